"""Tables of a combination: how pyhudi makes them, how a Hudi writer joins, what they must hold."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyhudi
from conformance.combinations import (
    Combination,
    MergeMode,
    Partitioning,
    TableKind,
    Version,
)
from conformance.rows import encoded_rows
from conformance.sample_rows import ORDERING, Sample

Row = dict[str, Any]

_VERSIONS = {Version.NINE: 9, Version.EIGHT: 8}
_TABLE_TYPES = {TableKind.MOR: "MERGE_ON_READ", TableKind.COW: "COPY_ON_WRITE"}


#: A policy that the table records, in the form that Hudi has to keep, and by which nothing runs.
LEFT = pyhudi.Upkeep(compaction=None, resize=None, clean=None, archive=None)


def create_table(
    path: Path | str,
    combination: Combination,
    *,
    buckets: int,
    lock: str = "none",
    storage_options: Mapping[str, str] | None = None,
) -> pyhudi.Table:
    """The table, by the front door; `lock` is for a Hudi writer beside pyhudi."""
    sample = Sample(combination)
    return pyhudi.create_table(
        path,
        sample.schema,
        record_key=sample.record_key,
        partition_by=sample.partition_by,
        ordering=ORDERING if combination.merge is MergeMode.EVENT_TIME else (),
        table_type=combination.kind,
        version=_VERSIONS[combination.version],
        hive_style=combination.partitioning is Partitioning.HIVE,
        url_encode=combination.partitioning is Partitioning.ENCODED,
        buckets=pyhudi.SimpleBuckets(buckets),
        lock=lock,
        storage_options=storage_options,
        write_settings=pyhudi.WriteSettings(
            log_block_format=pyhudi.LogBlockFormat(combination.blocks)
        ),
        upkeep=LEFT,
    )


def hudi_writer_options(name: str, combination: Combination, *, buckets: int) -> dict[str, str]:
    """What a Hudi job must say so that it and pyhudi may write one table, beside each other."""
    sample = Sample(combination)
    return {
        "hoodie.table.name": name,
        "hoodie.table.type": _TABLE_TYPES[combination.kind],
        "hoodie.datasource.write.table.type": _TABLE_TYPES[combination.kind],
        "hoodie.datasource.write.recordkey.field": ",".join(sample.record_key),
        "hoodie.datasource.write.partitionpath.field": ",".join(sample.partition_by),
        "hoodie.datasource.write.hive_style_partitioning": _text(
            combination.partitioning is Partitioning.HIVE
        ),
        "hoodie.datasource.write.partitionpath.urlencode": _text(
            combination.partitioning is Partitioning.ENCODED
        ),
        "hoodie.write.table.version": str(_VERSIONS[combination.version]),
        # Without this, Hudi asks whether an older Hudi wrote the keys of a version 8 table.
        "hoodie.write.complex.keygen.validation.enable": "false",
        "hoodie.index.type": "BUCKET",
        "hoodie.index.bucket.engine": "SIMPLE",
        "hoodie.bucket.index.num.buckets": str(buckets),
        "hoodie.bucket.index.hash.field": ",".join(sample.record_key),
        "hoodie.logfile.data.block.format": combination.blocks,
        # Many writers: the same lock as pyhudi, and nobody's unfinished write is taken away.
        "hoodie.write.concurrency.mode": (
            "NON_BLOCKING_CONCURRENCY_CONTROL"
            if combination.kind is TableKind.MOR and combination.merge is MergeMode.EVENT_TIME
            else "OPTIMISTIC_CONCURRENCY_CONTROL"
        ),
        "hoodie.write.lock.provider": (
            "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
        ),
        "hoodie.clean.failed.writes.policy": "LAZY",
        # pyhudi keeps no metadata table, and positions mean nothing to a bucket index.
        "hoodie.metadata.enable": "false",
        "hoodie.write.record.positions": "false",
        **(
            {"hoodie.table.ordering.fields": ORDERING}
            if combination.merge is MergeMode.EVENT_TIME
            else {"hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING"}
        ),
        **QUIET,
    }


#: No table service runs by itself, and little parallelism is enough for few rows.
QUIET = {
    "hoodie.archive.automatic": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.compact.inline": "false",
    "hoodie.embed.timeline.server": "false",
    "hoodie.bulkinsert.shuffle.parallelism": "2",
    "hoodie.delete.shuffle.parallelism": "2",
    "hoodie.insert.shuffle.parallelism": "2",
    "hoodie.upsert.shuffle.parallelism": "2",
}


def _text(flag: bool) -> str:
    return "true" if flag else "false"


class ExpectedTable:
    """What a table must hold, by the merge rule said in a line: a plain model of a Hudi table."""

    def __init__(self, combination: Combination, sample: Sample) -> None:
        self._by_event = combination.merge is MergeMode.EVENT_TIME
        self._sample = sample
        self._rows: dict[tuple[Any, ...], Row] = {}

    def upsert(self, rows: Iterable[Row]) -> None:
        for row in rows:
            if self._wins(row):
                self._rows[self._name(row)] = row

    def update(self, rows: Iterable[Row], columns: Iterable[str]) -> None:
        """New values of these columns, for rows that are there."""
        for row in rows:
            if (stored := self._rows.get(self._name(row))) is not None:
                self.upsert([{**stored, **{column: row[column] for column in columns}}])

    def delete(self, rows: Iterable[Row], *, newer_stay: bool = False) -> None:
        """With `newer_stay`, the rows' ordering values say how new a row may be."""
        for row in rows:
            if not newer_stay or self._wins(row):
                self._rows.pop(self._name(row), None)

    def delete_where(self, test: Callable[[Row], bool]) -> None:
        self._rows = {name: row for name, row in self._rows.items() if not test(row)}

    def overwrite(self, rows: Iterable[Row], partitions: Container[tuple[Any, ...]]) -> None:
        """The rows in the place of all that is in the partitions."""
        self.delete_where(lambda row: self._sample.partition(row) in partitions)
        self.upsert(rows)

    def _wins(self, row: Row) -> bool:
        """Over the row that is there, if one is."""
        stored = self._rows.get(self._name(row))
        return stored is None or not self._by_event or bool(row[ORDERING] >= stored[ORDERING])

    @property
    def stored(self) -> list[Row]:
        return list(self._rows.values())

    @property
    def rows(self) -> list[Row]:
        """As the judges write them."""
        return encoded_rows(self._sample.table(self._rows.values()))

    def _name(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[column] for column in self._sample.identity)
