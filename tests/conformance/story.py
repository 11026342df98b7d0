"""One table's life under the eyes of the judges."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import pyhudi
from conformance.client import JudgeClient
from conformance.combinations import Combination
from conformance.rows import assert_same_rows, encoded_rows, spark_columns
from conformance.sample_rows import Row, Sample
from conformance.writing import ExpectedTable, create_table, hudi_writer_options


class Story:
    """A table, what it must hold, and the commits that both go through."""

    def __init__(
        self,
        path: Path,
        combination: Combination,
        *,
        buckets: int = 2,  # each costs Hudi a tenth of a second in every read
        shared: bool = False,
    ) -> None:
        """Create the table; a `shared` one is for Hudi to write too."""
        lock = "file" if shared else "none"
        self.path = path
        self.combination = combination
        self.buckets = buckets
        self.table = create_table(path, combination, buckets=buckets, lock=lock)
        self.sample = Sample(combination, null_elements=not shared)
        self.expected = ExpectedTable(combination, self.sample)

    def rows(self, numbers: range, *, written: int, seen_at: int, spread: int = 1) -> list[Row]:
        """Rows whose ordering values are `spread` wide, so that not all of them win."""
        return [self.sample.row(n, written=written, seen_at=seen_at + n % spread) for n in numbers]

    def upsert(self, rows: list[Row]) -> pyhudi.WriteResult:
        self.expected.upsert(rows)
        return self.table.upsert(self.sample.table(rows))

    def delete(self, rows: list[Row]) -> pyhudi.WriteResult:
        self.expected.delete(rows)
        return self.table.delete(self.sample.keys(rows))

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

    def agree(self, judge: JudgeClient) -> pa.Table:
        """The rows, once all three readers have given the same, and the right ones."""
        ours = self.table.read().to_arrow()
        assert_same_rows(ours, self.expected.rows, meta=False)
        assert_same_rows(ours, judge.hudi_rows(self.path))
        assert_same_rows(ours, judge.rs_rows(self.path))
        return ours
