"""Hudi's write options that change no rows: they concern machinery that pyhudi does not have.

Tuning, other indexes, other file formats, other locks, servers and services. The outcome is the
same without them, and a warning says why. A switch that is off describes what pyhudi does anyway.
"""

from __future__ import annotations

from typing import Final

from pyhudi.hudi_options.classes import (
    Honoured,
    OptionClasses,
    Refused,
    WithoutEffect,
    ignored_on,
    one_of,
    same,
    switch,
)

BY_POLICY: Final = "services follow the policy that the table records (table.alter.upkeep)"
LEFT: Final = Honoured("this save leaves the service to other processes")
#: A switch of a service: on is what the table's policy says anyway.
_BY_POLICY = switch(on=WithoutEffect(BY_POLICY), off=LEFT)
NO_LOG_COMPACTION: Final = "pyhudi reads log compactions, and makes none"
_NO_CLUSTERING = "pyhudi does not cluster while it writes"
_OWN_RESIZES = (
    "pyhudi plans and executes resizes of buckets itself, and writes twice beside those of Hudi"
)
_SERVICES: OptionClasses = {
    "hoodie.table.services.enabled": _BY_POLICY,
    "hoodie.datasource.compaction.async.enable": ignored_on(BY_POLICY),
    "hoodie.log.compaction.enable": ignored_on(NO_LOG_COMPACTION),
    "hoodie.compact.inline.*": WithoutEffect(BY_POLICY),
    "hoodie.compaction.*": WithoutEffect(BY_POLICY),
    "hoodie.log.compaction.blocks.threshold": WithoutEffect(NO_LOG_COMPACTION),
    "hoodie.clustering.async.enabled": ignored_on(_NO_CLUSTERING),
    "hoodie.datasource.clustering.async.enable": ignored_on(_NO_CLUSTERING),
    "hoodie.clustering.inline.max.commits": WithoutEffect(_NO_CLUSTERING),
    "hoodie.clustering.async.max.commits": WithoutEffect(_NO_CLUSTERING),
    "hoodie.clustering.max.parallelism": WithoutEffect(_NO_CLUSTERING),
    "hoodie.clustering.updates.strategy": WithoutEffect(_OWN_RESIZES),
    "hoodie.clustering.execution.strategy.class": WithoutEffect(_OWN_RESIZES),
    "hoodie.clustering.plan.strategy.class": WithoutEffect(_OWN_RESIZES),
    "hoodie.clustering.plan.*": WithoutEffect(_NO_CLUSTERING),
    "hoodie.layout.optimize.*": WithoutEffect(_NO_CLUSTERING),
    "hoodie.clean.automatic": _BY_POLICY,
    "hoodie.clean.async.enabled": ignored_on(BY_POLICY),
    "hoodie.clean.async": ignored_on(BY_POLICY),
    **same(
        (
            *(
                f"hoodie.{family}.{name}"
                for family in ("clean", "cleaner")
                for name in (
                    *("policy", "commits.retained", "hours.retained", "fileversions.retained"),
                    "parallelism",
                )
            ),
            "hoodie.clean.trigger.strategy",
            "hoodie.clean.trigger.max.commits",
            "hoodie.clean.max.commits",
            "hoodie.clean.incremental.enabled",
            "hoodie.cleaner.incremental.mode",
            "hoodie.clean.multiple.enabled",
            "hoodie.clean.allow.multiple",
        ),
        WithoutEffect(BY_POLICY),
    ),
    "hoodie.archive.automatic": _BY_POLICY,
    "hoodie.archive.async": ignored_on(BY_POLICY),
    **same(
        (
            "hoodie.keep.min.commits",
            "hoodie.keep.max.commits",
            "hoodie.commits.archival.batch",
            "hoodie.archive.beyond.savepoint",
        ),
        WithoutEffect(BY_POLICY),
    ),
    "hoodie.partition.ttl.*": WithoutEffect("partitions do not expire"),
    "hoodie.table.service.manager.*": WithoutEffect(BY_POLICY),
}

_NO_CATALOG = WithoutEffect("pyhudi syncs no catalog")
_NO_OTHER_INDEX = WithoutEffect("the index is by buckets")
_FILES = WithoutEffect("a bucket is a file group, and its rows decide its size")
_TUNING = WithoutEffect("pyhudi sizes its own tasks and buffers")
_BUCKET_CONFLICTS = (
    "org.apache.hudi.client.transaction.BucketIndexConcurrentFileWritesConflictResolutionStrategy"
)
_LOCKING = WithoutEffect("pyhudi's locks keep their own times")
_NO_SERVER = WithoutEffect("pyhudi has no timeline server")
_SQL = WithoutEffect("it is for Hudi's SQL statements")
_MACHINERY: OptionClasses = {
    **same(
        [
            f"hoodie.{name}.shuffle.parallelism"
            for name in ("upsert", "insert", "bulkinsert", "delete")
        ],
        _TUNING,
    ),
    **same(
        [f"hoodie.{name}.parallelism" for name in ("rollback", "finalize.write", "markers.delete")],
        _TUNING,
    ),
    "hoodie.bulkinsert.*": WithoutEffect("rows go to their buckets"),
    "hoodie.datasource.write.row.writer.enable": WithoutEffect("pyhudi writes Arrow batches"),
    "hoodie.datasource.write.streaming.*": WithoutEffect("streams are written by foreachBatch"),
    "hoodie.write.executor.*": _TUNING,
    "hoodie.write.buffer.*": _TUNING,
    "hoodie.memory.*": _TUNING,
    "hoodie.common.spillable.diskmap.type": _TUNING,
    "hoodie.common.diskmap.compression.enabled": _TUNING,
    "hoodie.write.status.storage.level": _TUNING,
    "hoodie.write.tagged.record.storage.level": _TUNING,
    "hoodie.release.resource.on.completion.enable": _TUNING,
    "hoodie.block.writes.on.speculative.execution": WithoutEffect("speculation does no harm here"),
    "hoodie.parquet.compression.codec": one_of(
        {("zstd",): Honoured("all files but small log blocks, which have snappy")},
        WithoutEffect("pyhudi compresses with zstd, small log blocks with snappy"),
    ),
    "hoodie.parquet.outputtimestamptype": one_of(
        {("timestamp_micros",): Honoured("timestamps are microseconds")},
        WithoutEffect("timestamps are microseconds"),
    ),
    "hoodie.parquet.small.file.limit": _FILES,
    "hoodie.parquet.*": WithoutEffect("pyhudi lays out parquet files itself"),
    "hoodie.copyonwrite.*": _FILES,
    "hoodie.record.size.*": _FILES,
    "hoodie.merge.small.file.group.candidates.limit": _FILES,
    "hoodie.logfile.data.block.max.size": WithoutEffect("blocks have a size that readers can hold"),
    "hoodie.logfile.to.parquet.compression.ratio": _FILES,
    "hoodie.orc.*": WithoutEffect("pyhudi writes parquet files"),
    "hoodie.hfile.*": WithoutEffect("pyhudi writes parquet files"),
    "hoodie.storage.layout.type": _NO_OTHER_INDEX,
    "hoodie.storage.layout.partitioner.class": _NO_OTHER_INDEX,
    **same(
        [
            *("hoodie.bloom.index.*", "hoodie.index.bloom.*", "hoodie.simple.index.*"),
            *("hoodie.global.simple.index.parallelism", "hoodie.record.index.*"),
            "hoodie.global.index.reconcile.parallelism",
        ],
        _NO_OTHER_INDEX,
    ),
    "hoodie.bucket.index.remote.partitioner.enable": _TUNING,
    "hoodie.bucket.index.query.pruning": WithoutEffect("it is for reads"),
    "hoodie.metadata.*": WithoutEffect("pyhudi does not maintain the metadata table"),
    "hoodie.metrics.*": WithoutEffect("pyhudi reports no metrics to servers"),
    "hoodie.filesystem.view.*": _NO_SERVER,
    "hoodie.embed.timeline.server": ignored_on("pyhudi has no timeline server"),
    "hoodie.embed.timeline.server.*": _NO_SERVER,
    "hoodie.markers.timeline_server_based.*": _NO_SERVER,
    "hoodie.rollback.using.markers": WithoutEffect("pyhudi rolls back by markers, always"),
    "hoodie.consistency.check.*": WithoutEffect("pyhudi needs a store that is consistent"),
    "hoodie.write.auto.upgrade": ignored_on("pyhudi never upgrades a table"),
    "hoodie.write.record.positions": WithoutEffect("records are merged by key"),
    "hoodie.write.complex.keygen.validation.enable": WithoutEffect("keys are checked, always"),
    "hoodie.skip.default.partition.validation": WithoutEffect("partition values are checked"),
    "hoodie.merge.data.validation.enabled": WithoutEffect("rows are checked as they are written"),
    "hoodie.fail.job.on.duplicate.data.file.detection": WithoutEffect("files are created once"),
    "hoodie.allow.empty.commit": WithoutEffect("it changes no rows"),
    "hoodie.payload.event.time.field": WithoutEffect("commits carry no watermark"),
    "hoodie.write.track.event.time.watermark": WithoutEffect("commits carry no watermark"),
    "hoodie.write.lock.conflict.resolution.strategy": one_of(
        {(_BUCKET_CONFLICTS,): Honoured("as pyhudi does unless the table says otherwise")},
        Refused("all writers must agree; `create_table(conflict_strategy=...)` records it"),
    ),
    "hoodie.auto.adjust.lock.configs": ignored_on("pyhudi adjusts no options"),
    **same(
        [
            f"hoodie.write.lock.{name}"
            for name in (
                *("num_retries", "wait_time_ms_between_retry", "max_wait_time_ms_between_retry"),
                *("client.num_retries", "client.wait_time_ms_between_retry"),
                *("heartbeat_interval_ms", "storage.*"),
            )
        ],
        _LOCKING,
    ),
    "hoodie.write.lock.hivemetastore.*": WithoutEffect("it is for a lock that pyhudi does not use"),
    **same(
        [
            f"hoodie.write.lock.dynamodb.{name}"
            for name in (
                *("billing_mode", "read_capacity", "write_capacity", "table_creation_timeout"),
            )
        ],
        WithoutEffect("a DynamoDB table that pyhudi makes is billed by request"),
    ),
    "hoodie.datasource.hive_sync.*": _NO_CATALOG,
    "hoodie.datasource.meta.sync.base.path": _NO_CATALOG,
    "hoodie.datasource.meta_sync.condition.sync": _NO_CATALOG,
    "hoodie.meta.sync.*": _NO_CATALOG,
    "hoodie.meta_sync.*": _NO_CATALOG,
    "hoodie.gcp.bigquery.sync.*": _NO_CATALOG,
    "hoodie.datasource.partition_extractor_class": _NO_CATALOG,
    "hoodie.table.partition_extractor_class": _NO_CATALOG,
    "hoodie.write.commit.callback.*": WithoutEffect("callbacks are Java code"),
    "hoodie.errortable.*": WithoutEffect("a write with bad rows fails whole, with a sample"),
    "hoodie.sql.*": _SQL,
    "hoodie.spark.sql.*": _SQL,
}

IGNORED_CLASSES: Final[OptionClasses] = {**_SERVICES, **_MACHINERY}
