"""pyhudi writes tables that Hudi made, and that say nothing of pyhudi."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import pyhudi
from conformance.client import JudgeClient
from conformance.combinations import (
    BlockFormat,
    Columns,
    Combination,
    KeyShape,
    MergeMode,
    Partitioning,
    TableKind,
    Version,
)
from conformance.rows import assert_same_rows, encoded_rows, spark_columns
from conformance.sample_rows import Row, Sample
from conformance.writing import ExpectedTable, hudi_writer_options

pytestmark = [pytest.mark.judge, pytest.mark.conformance, pytest.mark.spark]

BUCKETS = 5


class HudiMade:
    """A table that Hudi makes by its first write, with five buckets."""

    def __init__(
        self,
        judge: JudgeClient,
        path: Path,
        kind: TableKind = TableKind.MOR,
        key: KeyShape = KeyShape.TEXT,
        *,
        has_metadata_table: bool = False,
    ) -> None:
        combination = Combination(
            kind,
            Version.NINE,
            Partitioning.ONE,
            key,
            MergeMode.EVENT_TIME,
            BlockFormat.PARQUET,
            Columns.SCALARS,
        )
        self._judge = judge
        self._options = {
            **hudi_writer_options("made_by_hudi", combination, buckets=BUCKETS),
            "hoodie.metadata.enable": str(has_metadata_table).lower(),
        }
        self._sample = Sample(combination, null_elements=False)
        self._expected = ExpectedTable(combination, self._sample)
        self.path = path
        self.hudi_upsert(range(60), written=1)
        properties = (path / ".hoodie" / "hoodie.properties").read_text()
        assert "bucket" not in properties
        assert "pyhudi" not in properties

    def _rows(self, numbers: range, written: int) -> list[Row]:
        rows = [self._sample.row(n, written=written, seen_at=10 + written) for n in numbers]
        self._expected.upsert(rows)
        return rows

    def hudi_upsert(self, numbers: range, *, written: int) -> None:
        rows = encoded_rows(self._sample.table(self._rows(numbers, written)))
        self._judge.hudi_write(self.path, rows, spark_columns(self._sample.schema), self._options)

    def upsert(
        self, table: pyhudi.Table, spark: SparkSession, numbers: range, *, written: int
    ) -> None:
        rows = self._sample.table(self._rows(numbers, written))
        table.upsert(spark.createDataFrame(rows))

    def refused(self, table: pyhudi.Table, spark: SparkSession) -> str:
        """Why a write is refused."""
        rows = self._sample.table([self._sample.row(1, written=9, seen_at=99)])
        with pytest.raises(pyhudi.UnsupportedTableError) as refusal:
            table.upsert(spark.createDataFrame(rows))
        return str(refusal.value)

    def agree(self) -> None:
        ours = pyhudi.open_table(self.path).read(meta=True).to_arrow()
        assert_same_rows(ours, self._expected.rows, meta=False)
        assert_same_rows(ours, self._judge.hudi_rows(self.path))
        assert_same_rows(ours, self._judge.rs_rows(self.path))


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        (TableKind.MOR, KeyShape.TEXT),
        pytest.param(TableKind.MOR, KeyShape.COMPOSITE, marks=pytest.mark.long),
        (TableKind.COW, KeyShape.COMPOSITE),
        pytest.param(TableKind.COW, KeyShape.INTEGER, marks=pytest.mark.long),
    ],
)
def test_spark_finds_the_buckets_of_a_table_that_hudi_made(
    judge: JudgeClient, spark: SparkSession, tmp_path: Path, kind: TableKind, key: KeyShape
) -> None:
    made = HudiMade(judge, tmp_path / "table", kind, key)
    table = pyhudi.open_table(made.path, lock="file")
    made.upsert(table, spark, range(30, 90), written=2)
    made.agree()
    made.hudi_upsert(range(50, 120), written=3)
    made.upsert(table, spark, range(0, 120, 4), written=4)
    made.agree()
    buckets = {
        (s["partition"], s["file_id"][:8])
        for s in judge.hudi_slices(made.path)
        if s["view"] == "latest"
    }
    assert len(buckets) == 2 * BUCKETS, "each bucket of each partition has one file group"


def test_a_live_metadata_table_is_refused_until_it_is_switched_off(
    judge: JudgeClient, spark: SparkSession, tmp_path: Path
) -> None:
    made = HudiMade(judge, tmp_path / "table", has_metadata_table=True)
    assert (made.path / ".hoodie" / "metadata").exists()
    table = pyhudi.open_table(made.path, lock="file")
    assert "its metadata table is live" in made.refused(table, spark)
    table.alter.disable_metadata_table()
    made.upsert(table, spark, range(30, 90), written=2)
    made.agree()
