"""How each of Hudi's options for writes is treated; `classes` says what the classes are.

Names and alternative names are those of Hudi 1.2.0. An option whose value asks for what pyhudi does
anyway is honoured without a warning, so that a job's options can stay as they are. What Hudi would
do beside the write, and its user relies on, is refused and not ignored: a catalog that is not
synced, a validator that is not run, a table that is never compacted.
"""

from __future__ import annotations

from typing import Final

from pyhudi.format.lock.lock_address import ADDRESS_OPTIONS, OPTION_PREFIXES
from pyhudi.format.table.merge_rules import COMMIT_TIME_STRATEGY, EVENT_TIME_STRATEGY
from pyhudi.hudi_options.classes import (
    Honoured,
    OptionClasses,
    Refused,
    WithoutEffect,
    one_of,
    refused_off,
    refused_on,
    same,
    switch,
)
from pyhudi.hudi_options.early_options import EARLY_CLASSES
from pyhudi.hudi_options.ignored import BY_POLICY, IGNORED_CLASSES, LEFT, NO_LOG_COMPACTION
from pyhudi.hudi_options.resize_options import RESIZE_OPTIONS

OPERATION: Final = "hoodie.datasource.write.operation"
PARTITIONS_TO_DELETE: Final = "hoodie.datasource.write.partitions.to.delete"

# What the table is. Each tuple holds the names of one thing, the usual one first.
NAME: Final = ("hoodie.table.name", "hoodie.datasource.write.table.name")
DATABASE: Final = ("hoodie.database.name",)
TYPE: Final = (
    "hoodie.datasource.write.table.type",
    "hoodie.datasource.write.storage.type",
    "hoodie.table.type",
)
VERSION: Final = ("hoodie.write.table.version", "hoodie.table.version")
RECORD_KEY: Final = ("hoodie.datasource.write.recordkey.field", "hoodie.table.recordkey.fields")
PARTITION_BY: Final = (
    "hoodie.datasource.write.partitionpath.field",
    "hoodie.table.partition.fields",
)
ORDERING: Final = (
    "hoodie.datasource.write.precombine.field",
    "hoodie.table.ordering.fields",
    "hoodie.table.precombine.field",
    "hoodie.payload.ordering.field",
)
HIVE_STYLE: Final = ("hoodie.datasource.write.hive_style_partitioning",)
URL_ENCODE: Final = ("hoodie.datasource.write.partitionpath.urlencode",)
BUCKET_ENGINE: Final = ("hoodie.index.bucket.engine",)
BUCKET_MIN: Final = ("hoodie.bucket.index.min.num.buckets",)
BUCKET_MAX: Final = ("hoodie.bucket.index.max.num.buckets",)
BUCKET_COUNT: Final = ("hoodie.bucket.index.num.buckets",)
HASH_FIELDS: Final = ("hoodie.bucket.index.hash.field",)
MERGE_MODE: Final = ("hoodie.write.record.merge.mode", "hoodie.record.merge.mode")
MERGE_STRATEGY: Final = (
    "hoodie.write.record.merge.strategy.id",
    "hoodie.record.merge.strategy.id",
    "hoodie.datasource.write.record.merger.strategy",
    "hoodie.compaction.record.merger.strategy",
)
PAYLOAD_CLASS: Final = ("hoodie.datasource.write.payload.class", "hoodie.compaction.payload.class")
CONCURRENCY: Final = ("hoodie.write.concurrency.mode",)
LOCK_PROVIDER: Final = ("hoodie.write.lock.provider",)
KEY_GENERATOR_CLASS: Final = (
    "hoodie.datasource.write.keygenerator.class",
    "hoodie.table.keygenerator.class",
)
KEY_GENERATOR_TYPE: Final = (
    "hoodie.datasource.write.keygenerator.type",
    "hoodie.table.keygenerator.type",
)

# How this process writes.
BLOCK_FORMAT: Final = ("hoodie.logfile.data.block.format",)
LOG_BYTES_MAX: Final = ("hoodie.logfile.max.size",)
HEARTBEAT_INTERVAL: Final = ("hoodie.client.heartbeat.interval_in_ms",)
HEARTBEAT_MISSES: Final = ("hoodie.client.heartbeat.tolerable.misses",)
FAILED_WRITES: Final = ("hoodie.clean.failed.writes.policy", "hoodie.cleaner.policy.failed.writes")
CONFLICT_RETRIES: Final = ("hoodie.write.num.retries.on.conflict.failures",)
LOCK_WAIT: Final = ("hoodie.write.lock.wait_time_ms",)

# Which services follow a save, with the services that each switch is about.
COMPACT_INLINE: Final = "hoodie.compact.inline"
SERVICE_SWITCHES: Final = {
    "hoodie.table.services.enabled": ("compaction", "resize", "clean", "archive"),
    COMPACT_INLINE: ("compaction",),
    "hoodie.clean.automatic": ("clean",),
    "hoodie.archive.automatic": ("archive",),
}

# How rows may change the schema. The first is pyhudi's own, in the spelling of other table formats.
MERGE_SCHEMA: Final = "mergeSchema"
FILL_MISSING: Final = (
    "hoodie.datasource.write.reconcile.schema",
    "hoodie.write.set.null.for.missing.columns",
)

_MODEL: Final = "org.apache.hudi.common.model."
EVENT_TIME_PAYLOADS: Final = (
    f"{_MODEL}DefaultHoodieRecordPayload",
    f"{_MODEL}EventTimeAvroPayload",
)
COMMIT_TIME_PAYLOADS: Final = (f"{_MODEL}OverwriteWithLatestAvroPayload",)
_LOCKS: Final = "org.apache.hudi.client.transaction.lock."
FILE_LOCK: Final = f"{_LOCKS}FileSystemBasedLockProvider"
STORAGE_LOCK: Final = f"{_LOCKS}StorageBasedLockProvider"
ZOOKEEPER_LOCK: Final = f"{_LOCKS}ZookeeperBasedLockProvider"
_AWS_LOCKS: Final = "org.apache.hudi.aws.transaction.lock."
DYNAMODB_LOCK: Final = f"{_AWS_LOCKS}DynamoDBBasedLockProvider"
LOCK_ADDRESS: Final = tuple(
    f"{OPTION_PREFIXES[kind]}{name}" for kind, names in ADDRESS_OPTIONS.items() for name in names
)

_AS_TABLE = Honoured("for a new table; an existing one must have it so")
_SETTING = Honoured("a setting of this writer")
_RESIZING = Honoured(
    "for a new table with consistent buckets: its policy of resizes; an existing table keeps its"
    " own, and a warning says so"
)


_UNSEEN = "it concerns rows that no task of a save sees"
_DELETE_PARTITIONS = "table.delete_partitions([...])"
_OPERATIONS = one_of(
    {
        ("upsert",): Honoured("`table.upsert`; the default"),
        ("insert", "bulk_insert"): Honoured("`table.append`: a key that is there is merged"),
        ("delete",): Honoured("`table.delete` of the rows' keys"),
        ("insert_overwrite",): Refused(f"{_UNSEEN}: use table.overwrite(df)"),
        ("insert_overwrite_table",): Refused(
            f"{_UNSEEN}: use table.overwrite(df, partitions='all')"
        ),
        ("delete_partition",): Refused(f"{_UNSEEN}: use {_DELETE_PARTITIONS}"),
    },
    otherwise=Refused("pyhudi has no such write"),
)
_MERGE_MODES = one_of(
    {("event_time_ordering", "commit_time_ordering"): _AS_TABLE},
    otherwise=Refused("custom merging is Java code"),
)
_MERGE_STRATEGIES = one_of(
    {
        (EVENT_TIME_STRATEGY,): Honoured("merge mode EVENT_TIME_ORDERING"),
        (COMMIT_TIME_STRATEGY,): Honoured("merge mode COMMIT_TIME_ORDERING"),
    },
    otherwise=Refused("custom merging is Java code"),
)
_PAYLOADS = one_of(
    {
        EVENT_TIME_PAYLOADS: Honoured("merge mode EVENT_TIME_ORDERING"),
        COMMIT_TIME_PAYLOADS: Honoured("merge mode COMMIT_TIME_ORDERING"),
    },
    otherwise=Refused("this payload class is Java code that pyhudi does not follow"),
)
_MERGERS = one_of(
    {
        (
            "org.apache.hudi.DefaultSparkRecordMerger",
            "org.apache.hudi.HoodieSparkRecordMerger",
            "org.apache.hudi.OverwriteWithLatestSparkRecordMerger",
            f"{_MODEL}HoodieAvroRecordMerger",
        ): WithoutEffect("the merge mode decides how records merge"),
    },
    otherwise=Refused("custom merging is Java code"),
)
_KEY_GENERATOR_FITS = Honoured("where it is what Hudi takes for these columns; else refused")
_NO_KEY_GENERATOR = Refused("pyhudi makes keys and paths as SIMPLE, COMPLEX and NON_PARTITION do")
KEY_GENERATOR_CLASSES: Final = {
    f"org.apache.hudi.keygen.{name}{engine}KeyGenerator": word
    for engine in ("", "Avro")
    for name, word in {
        "Simple": "SIMPLE",
        "Complex": "COMPLEX",
        "Nonpartitioned": "NON_PARTITION",
    }.items()
}
_LOCK_PROVIDERS = one_of(
    {
        (FILE_LOCK,): Honoured("lock `file`"),
        (STORAGE_LOCK,): Honoured("lock `storage`"),
        (ZOOKEEPER_LOCK,): Honoured("lock `zookeeper`"),
        (DYNAMODB_LOCK,): Honoured("lock `dynamodb`"),
        (
            f"{_LOCKS}ZookeeperBasedImplicitBasePathLockProvider",
            f"{_AWS_LOCKS}DynamoDBBasedImplicitPartitionKeyLockProvider",
        ): Refused("the lock depends on how each engine spells the table's address; name its own"),
        (f"{_LOCKS}InProcessLockProvider", f"{_LOCKS}NoopLockProvider"): WithoutEffect(
            "pyhudi writers need no lock among themselves"
        ),
    },
    otherwise=Refused(
        "pyhudi shares these locks with Hudi: file system, storage, ZooKeeper, DynamoDB; no other"
    ),
)

_BUCKET_ENGINES = one_of(
    {
        ("simple", "simple_hashing", "consistent_hashing"): _AS_TABLE,
        ("extendible_hashing",): Refused("no engine can split such buckets yet"),
    },
    Refused("it is simple, or consistent_hashing"),
)

_TABLE: OptionClasses = {
    OPERATION: _OPERATIONS,
    PARTITIONS_TO_DELETE: Refused(f"use {_DELETE_PARTITIONS}"),
    **same((*NAME, *DATABASE, *TYPE, *VERSION), _AS_TABLE),
    **same((*RECORD_KEY, *PARTITION_BY, *ORDERING), _AS_TABLE),
    **same((*HIVE_STYLE, *URL_ENCODE), _AS_TABLE),
    "hoodie.index.type": one_of(
        {("bucket",): _AS_TABLE}, Refused("pyhudi writes tables with a bucket index")
    ),
    **same(BUCKET_ENGINE, _BUCKET_ENGINES),
    **same(tuple(RESIZE_OPTIONS.values()), _RESIZING),
    **same((*BUCKET_COUNT, *BUCKET_MIN, *BUCKET_MAX, *HASH_FIELDS), _AS_TABLE),
    **same(MERGE_MODE, _MERGE_MODES),
    **same(MERGE_STRATEGY, _MERGE_STRATEGIES),
    **same(PAYLOAD_CLASS, _PAYLOADS),
    "hoodie.write.record.merge.custom.implementation.classes": _MERGERS,
    "hoodie.datasource.write.record.merger.impls": _MERGERS,
    **same(
        CONCURRENCY,
        one_of(
            {
                ("single_writer",): Honoured("Hudi's word for leaving it open"),
                (
                    "optimistic_concurrency_control",
                    "non_blocking_concurrency_control",
                ): _AS_TABLE,
            },
            otherwise=Refused("Hudi has no such concurrency mode"),
        ),
    ),
    **same(LOCK_PROVIDER, _LOCK_PROVIDERS),
    **same(LOCK_ADDRESS, Honoured("where the lock is; an existing table must have it so")),
    **same(
        KEY_GENERATOR_CLASS,
        one_of({tuple(KEY_GENERATOR_CLASSES): _KEY_GENERATOR_FITS}, _NO_KEY_GENERATOR),
    ),
    **same(
        KEY_GENERATOR_TYPE,
        one_of(
            {
                tuple(
                    f"{word}{engine}"
                    for word in ("simple", "complex", "non_partition")
                    for engine in ("", "_avro")
                ): _KEY_GENERATOR_FITS
            },
            _NO_KEY_GENERATOR,
        ),
    ),
}

_SETTINGS: OptionClasses = {
    **same(
        BLOCK_FORMAT,
        one_of({("parquet", "avro"): _SETTING}, Refused("pyhudi writes parquet and avro blocks")),
    ),
    **same((*LOG_BYTES_MAX, *HEARTBEAT_INTERVAL, *HEARTBEAT_MISSES), _SETTING),
    **same(
        FAILED_WRITES,
        one_of(
            {("lazy",): _SETTING, ("eager",): Honoured("only where there is a single writer")},
            Refused("a failed write that is never rolled back stays pending"),
        ),
    ),
    **same((*CONFLICT_RETRIES, *LOCK_WAIT), _SETTING),
    **EARLY_CLASSES,
}

_ONE_BASE_FORMAT = one_of({("parquet",): _AS_TABLE}, Refused("pyhudi writes parquet files"))
_CHANGES_KEYS = "it would change record keys or partition paths"
_ADDED = "rows may bring new columns and wider types"
_SCHEMA: OptionClasses = {
    MERGE_SCHEMA: switch(
        on=Honoured(f"pyhudi's own: {_ADDED}, and may lack columns, which become null"),
        off=Honoured("pyhudi's own: rows have exactly the columns of the table"),
    ),
    **same(
        FILL_MISSING,
        switch(
            on=Honoured(f"{_ADDED}, and may lack columns, which become null"),
            off=Honoured(f"{_ADDED}; the default"),
        ),
    ),
    "hoodie.avro.schema.validate": switch(
        on=Honoured("a schema that older rows do not fit is refused, always"),
        off=WithoutEffect("a schema that older rows do not fit is refused, always"),
    ),
    "hoodie.write.concurrency.schema.conflict.resolution.enable": refused_off(
        "it would drop columns that other writers add meanwhile"
    ),
    "hoodie.datasource.write.schema.allow.auto.evolution.column.drop": refused_on(
        "rows that lack a column do not drop it; `table.update_schema()` does"
    ),
    "hoodie.schema.on.read.enable": refused_on("schema-on-read history is not written"),
    "hoodie.avro.schema": Refused("the rows' own schema counts"),
    "hoodie.write.schema": Refused("the rows' own schema counts"),
}
_MARKED_DELETES = Refused("rows that mean a delete are not recognised; use the operation delete")
_MEANING: OptionClasses = {
    "hoodie.metadata.enable": refused_on("pyhudi does not maintain the metadata table"),
    "hoodie.populate.meta.fields": refused_off("pyhudi writes the meta columns"),
    "hoodie.base.file.format": _ONE_BASE_FORMAT,
    "hoodie.table.base.file.format": _ONE_BASE_FORMAT,
    "hoodie.table.ro.file.format": _ONE_BASE_FORMAT,
    "hoodie.table.multiple.base.file.formats.enable": refused_on("pyhudi writes parquet files"),
    "hoodie.table.timeline.timezone": one_of(
        {("utc",): Honoured("for a new table")}, Refused("the times of new tables are in UTC")
    ),
    "hoodie.timeline.layout.version": one_of(
        {("2",): _AS_TABLE}, Refused("pyhudi writes layout 2")
    ),
    "hoodie.datasource.write.drop.partition.columns": refused_on("the files keep all columns"),
    "hoodie.table.cdc.enabled": refused_on("pyhudi does not write change logs"),
    "hoodie.table.cdc.supplemental.logging.mode": WithoutEffect("it needs CDC, which is refused"),
    "hoodie.table.partial.update.mode": one_of(
        {("none",): _AS_TABLE}, Refused("rows replace rows; `table.update` writes some columns")
    ),
    "hoodie.write.partial.update.schema": Refused(
        "`table.update` writes some columns, and `table.upsert(rows, owner=...)` an owner's"
    ),
    "hoodie.write.partial.update.unavailable.value": Refused("rows replace rows"),
    "hoodie.record.merge.property.*": _MARKED_DELETES,
    "hoodie.payload.delete.field": _MARKED_DELETES,
    "hoodie.payload.delete.marker": _MARKED_DELETES,
    "hoodie.allow.operation.metadata.field": refused_on("the meta columns are Hudi's five"),
    "hoodie.combine.before.upsert": refused_off("rows of one key are always combined"),
    "hoodie.combine.before.insert": refused_off("rows of one key are always combined"),
    "hoodie.combine.before.delete": WithoutEffect("a key is deleted once"),
    "hoodie.merge.allow.duplicate.on.inserts": refused_on("a key that is there is merged"),
    "hoodie.datasource.write.insert.drop.duplicates": refused_on("a key that is there is merged"),
    "hoodie.datasource.insert.dup.policy": one_of(
        {("none",): Honoured("a key that is there is merged")},
        Refused("a key that is there is merged; `table.append` can refuse it instead"),
    ),
    "hoodie.datasource.overwrite.mode": Refused(f"say it by {OPERATION}"),
    "hoodie.write.ignore.failed": refused_on("a write with bad rows fails whole"),
    "hoodie.write.complex.keygen.new.encoding": refused_on(_CHANGES_KEYS),
    "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled": refused_on(
        _CHANGES_KEYS
    ),
    "hoodie.datasource.write.slash.separated.date.partitioning": refused_on(_CHANGES_KEYS),
    "hoodie.keygen.*": Refused(_CHANGES_KEYS),
    "hoodie.deltastreamer.keygen.*": Refused(_CHANGES_KEYS),
    "hoodie.streamer.*": Refused("pyhudi has no streamer"),
    "hoodie.deltastreamer.*": Refused("pyhudi has no streamer"),
    "hoodie.index.class": Refused("a custom index is Java code"),
    "hoodie.bucket.index.partition.rule.type": Refused("all partitions have the same buckets"),
    "hoodie.bucket.index.partition.expressions": Refused("all partitions have the same buckets"),
    "hoodie.datasource.write.commitmeta.key.prefix": Refused("options do not go into commits"),
    "hoodie.bootstrap.*": Refused("pyhudi does not bootstrap tables"),
    "hoodie.write.lock.filesystem.path": Refused("the lock is at Hudi's default path in the table"),
    "hoodie.write.lock.filesystem.expire": one_of(
        {("0",): Honoured("as pyhudi does anyway")}, Refused("the file lock does not expire")
    ),
}

_NO_INLINE_CLUSTERING = refused_on("pyhudi does not cluster after a write yet")
_BESIDE: OptionClasses = {
    "hoodie.datasource.hive_sync.enable": refused_on("pyhudi syncs no catalog"),
    "hoodie.datasource.meta.sync.enable": refused_on("pyhudi syncs no catalog"),
    "hoodie.precommit.validators": Refused("validators are Java code"),
    "hoodie.precommit.validators.*": Refused("validators are Java code"),
    "hoodie.prewrite.validators": Refused("validators are Java code"),
    "hoodie.write.commit.callback.on": refused_on("callbacks are Java code"),
    "hoodie.errortable.enable": refused_on("a write with bad rows fails whole, with a sample"),
    "hoodie.client.init.callback.classes": Refused("callbacks are Java code"),
    COMPACT_INLINE: switch(on=Refused(BY_POLICY), off=LEFT),
    "hoodie.compact.schedule.inline": refused_on(BY_POLICY),
    "hoodie.log.compaction.inline": refused_on(NO_LOG_COMPACTION),
    "hoodie.clustering.inline": _NO_INLINE_CLUSTERING,
    "hoodie.datasource.clustering.inline.enable": refused_on(
        "pyhudi does not cluster after a write yet"
    ),
    "hoodie.clustering.schedule.inline": refused_on("pyhudi does not plan clusterings yet"),
    "hoodie.partition.ttl.inline": refused_on("partitions do not expire"),
}

WRITE_CLASSES: Final[OptionClasses] = {
    "path": Honoured("the table's address"),
    **_TABLE,
    **_SETTINGS,
    **_MEANING,
    **_SCHEMA,
    **_BESIDE,
    **IGNORED_CLASSES,
}
