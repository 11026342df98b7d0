"""One table's life under the eyes of the judges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import pyhudi
from conformance.client import JudgeClient, Question
from conformance.combinations import Combination, TableKind
from conformance.rows import assert_same_rows, encoded_rows, spark_columns
from conformance.sample_rows import ORDERING, Row, Sample
from conformance.writing import ExpectedTable, create_table, hudi_writer_options

Partition = tuple[Any, ...]  # the values of the partition columns
Claim = tuple[pa.Table, Question]  # what pyhudi reads, and what to ask a judge


class Story:
    """A table, what it must hold, and the commits that both go through."""

    def __init__(
        self,
        path: Path,
        combination: Combination,
        *,
        buckets: int = 2,  # each costs Hudi a tenth of a second in every read
        shared: bool = False,
        spark: SparkSession | None = None,
    ) -> None:
        """Create the table; a `shared` one is for Hudi to write too.

        With `spark`, rows come as Spark's, and its tasks write them.
        """
        lock = "file" if shared else "none"
        self.path = path
        self.combination = combination
        self.buckets = buckets
        self.table = create_table(path, combination, buckets=buckets, lock=lock)
        self.sample = Sample(combination, null_elements=not shared)
        self.expected = ExpectedTable(combination, self.sample)
        self.spark = spark

    def rows(self, numbers: range, *, written: int, seen_at: int, spread: int = 1) -> list[Row]:
        """Rows whose ordering values are `spread` wide, so that not all of them win."""
        return [self.sample.row(n, written=written, seen_at=seen_at + n % spread) for n in numbers]

    def _given(self, rows: pa.Table) -> Any:
        return rows if self.spark is None else self.spark.createDataFrame(rows)

    # -- commits of pyhudi

    def upsert(self, rows: list[Row]) -> pyhudi.WriteResult:
        self.expected.upsert(rows)
        return self.table.upsert(self._given(self.sample.table(rows)))

    def append(self, rows: list[Row]) -> pyhudi.WriteResult:
        self.expected.upsert(rows)
        return self.table.append(self._given(self.sample.table(rows)))

    def update(self, rows: list[Row], columns: Sequence[str]) -> pyhudi.WriteResult:
        self.expected.update(rows, columns)
        given = self.sample.table(rows).select([*self.sample.identity, *columns])
        return self.table.update(self._given(given), columns=columns)

    def delete(self, rows: list[Row]) -> pyhudi.WriteResult:
        self.expected.delete(rows)
        return self.table.delete(self._given(self.sample.keys(rows)))

    def delete_keys(self, rows: list[Row]) -> pyhudi.WriteResult:
        """By the record key alone."""
        self.expected.delete(rows)
        keys = self.sample.table(rows).select(list(self.sample.record_key))
        return self.table.delete(self._given(keys))

    def delete_unless_newer(self, rows: list[Row]) -> pyhudi.WriteResult:
        """Rows that were seen later than these say stay, where a table goes by that."""
        self.expected.delete(rows, newer_stay=True)
        given = self.sample.table(rows).select([*self.sample.identity, ORDERING])
        return self.table.delete(self._given(given))

    def delete_where(self, predicate: str, test: Callable[[Row], bool]) -> pyhudi.WriteResult:
        """The predicate as text, and as a function."""
        self.expected.delete_where(test)
        return self.table.delete(predicate)

    def overwrite(
        self, rows: list[Row], partitions: str | Sequence[Partition] = "touched"
    ) -> pyhudi.WriteResult:
        sample = self.sample
        given = self._given(sample.table(rows))
        if not isinstance(partitions, str):
            self.expected.overwrite(rows, partitions)
            return self.table.overwrite(given, partitions=self._named(partitions))
        is_all = partitions == "all"
        replaced = {sample.partition(row) for row in (self.expected.stored if is_all else rows)}
        self.expected.overwrite(rows, replaced)
        return self.table.overwrite(given, partitions=partitions)

    def delete_partitions(self, partitions: Sequence[Partition]) -> pyhudi.WriteResult:
        self.expected.overwrite([], partitions)
        return self.table.delete_partitions(self._named(partitions))

    def _named(self, partitions: Sequence[Partition]) -> list[dict[str, Any]]:
        return [dict(zip(self.sample.partition_by, one, strict=True)) for one in partitions]

    # -- commits of Hudi

    def hudi_write(self, judge: JudgeClient, rows: list[Row], operation: str = "upsert") -> None:
        """The same by Hudi: `upsert` or `delete`."""
        change = self.expected.delete if operation == "delete" else self.expected.upsert
        change(rows)
        judge.hudi_write(
            self.path,
            encoded_rows(self.sample.table(rows)),
            spark_columns(self.sample.schema),
            hudi_writer_options(self.table.name, self.combination, buckets=self.buckets),
            operation,
        )

    # -- what all readers say

    def agree(self, judge: JudgeClient) -> pa.Table:
        """The rows, once all three readers have given the same, and the right ones."""
        ours = self.rows_now()
        self.hear(judge, self.by_both(ours))
        return ours

    def rows_now(self) -> pa.Table:
        """The rows by pyhudi, which are the right ones."""
        ours = self.table.read(meta=True).to_arrow()
        assert_same_rows(ours, self.expected.rows, meta=False)
        return ours

    def hear(self, judge: JudgeClient, claims: Sequence[Claim]) -> None:
        """Have the judges answer every question as pyhudi did."""
        answers = judge.ask_all([question for _, question in claims])
        for (ours, _), theirs in zip(claims, answers, strict=True):
            assert_same_rows(ours, theirs)

    def by_both(self, ours: pa.Table, **how: str) -> list[Claim]:
        """The claim that both judges read these rows."""
        return [(ours, {"cmd": cmd, "path": self.path, **how}) for cmd in ("read", "rs-read")]

    def of_past(self, time: str, then: pa.Table) -> list[Claim]:
        """What was requested until this time is what the table held then."""
        past = self.table.read(as_of=pyhudi.RequestedTime(time), meta=True).to_arrow()
        assert_same_rows(past, encoded_rows(then))
        return self.by_both(past, as_of=time)

    def of_changes(self, begin: str, end: str) -> list[Claim]:
        """Rows of the commits that completed after `begin`, until `end`, as Hudi has it."""
        options = {
            "hoodie.datasource.query.type": "incremental",
            "hoodie.datasource.read.begin.instanttime": begin,
            "hoodie.datasource.read.end.instanttime": end,
        }
        ours = self.table.read_with_hudi_options(options).to_arrow()
        return [(ours, {"cmd": "read", "path": self.path, "begin": begin, "end": end})]

    def of_base_files(self) -> list[Claim]:
        """A read-optimized read; of a copy-on-write table it is any other."""
        if self.combination.kind is not TableKind.MOR:
            return []
        ours = self.table.read(read_optimized=True, meta=True).to_arrow()
        return self.by_both(ours, query_type="read_optimized")
