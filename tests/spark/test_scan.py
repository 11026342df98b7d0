"""Which slices Spark reads by itself, which by our tasks, and that both give the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import pyhudi
from golden_tables import GoldenTables
from handmade import HandmadeTable
from pyhudi.spark import scan as spark_scan
from pyhudi.spark.types import spark_schema
from pyhudi.storage.open import open_storage

pytestmark = [pytest.mark.spark, pytest.mark.spark35]

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("n", pa.int64())])


def ids(frame: Any) -> list[str]:
    return sorted(row["id"] for row in frame.collect())


def plan_text(frame: Any, capsys: pytest.CaptureFixture[str]) -> str:
    frame.explain()
    return capsys.readouterr().out


@pytest.fixture
def made(tmp_path: Path) -> HandmadeTable:
    """A plain slice in partition x, one with a log in y."""
    table = HandmadeTable(open_storage(str(tmp_path / "t")), SCHEMA, partition_by="part")
    table.begin(1)
    bases = [
        table.base(1, [{"id": f"{p}{n}", "part": p, "n": n} for n in range(3)], partition=p)
        for p in "xy"
    ]
    table.complete(1, 2, bases)
    table.begin(3)
    rows = [{"id": "y1", "part": "y", "n": 10}, {"id": "y9", "part": "y", "n": 9}]
    table.complete(3, 4, [table.log(3, table.rows_block(3, rows), partition="y")])
    return table


def test_plain_slices_go_through_sparks_scan_and_slices_with_logs_through_tasks(
    made: HandmadeTable, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    table = pyhudi.open_table(made.storage.uri)
    both = table.read().to_spark(spark)
    text = plan_text(both, capsys)
    assert "FileScan parquet" in text
    assert "MapInArrow" in text
    assert ids(both) == ["x0", "x1", "x2", "y0", "y1", "y2", "y9"]
    plain = table.read(where="part = 'x'").to_spark(spark)
    assert "MapInArrow" not in plan_text(plain, capsys)
    assert ids(plain) == ["x0", "x1", "x2"]
    logged = table.read(where="part = 'y' AND n > 8").to_spark(spark)
    assert "FileScan" not in plan_text(logged, capsys)
    assert ids(logged) == ["y1", "y9"]


def test_columns_and_predicates_reach_sparks_scan(
    made: HandmadeTable, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    table = pyhudi.open_table(made.storage.uri)
    frame = table.read(columns=["id"], where="part = 'x' AND n = 2").to_spark(spark)
    text = plan_text(frame, capsys)
    assert "EqualTo(n,2)" in text
    assert "_hoodie_commit_time" not in text
    assert frame.columns == ["id"]
    assert ids(frame) == ["x2"]


def test_a_limit_holds_in_spark_too(made: HandmadeTable, spark: SparkSession) -> None:
    table = pyhudi.open_table(made.storage.uri)
    assert table.read(limit=2).to_spark(spark).count() == 2
    assert table.read(limit=99).to_spark(spark).count() == table.read().count() == 7


def test_files_that_need_promotion_are_read_by_tasks(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    narrow = pa.schema([("id", pa.string()), ("part", pa.string()), ("n", pa.int32())])
    made = HandmadeTable(open_storage(str(tmp_path / "t")), SCHEMA, partition_by="part")
    made.begin(1)
    old = made.base(1, [{"id": "a", "part": "x", "n": 1}], partition="x", schema=narrow)
    made.complete(1, 2, [old], schema=narrow)
    made.begin(3)
    new = made.base(3, [{"id": "b", "part": "y", "n": 2**40}], partition="y")
    made.complete(3, 4, [new])
    frame = pyhudi.open_table(made.storage.uri).read().to_spark(spark)
    text = plan_text(frame, capsys)
    assert "MapInArrow" in text
    assert "FileScan" in text
    assert sorted(row["n"] for row in frame.collect()) == [1, 2**40]


def test_more_files_than_the_limit_are_read_by_tasks(
    made: HandmadeTable,
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spark_scan, "NATIVE_FILES_MAX", 0)
    frame = pyhudi.open_table(made.storage.uri).read().to_spark(spark)
    assert "FileScan" not in plan_text(frame, capsys)
    assert len(ids(frame)) == 7


def test_partition_folders_that_look_like_patterns_are_read_literally(
    tmp_path: Path, spark: SparkSession
) -> None:
    made = HandmadeTable(open_storage(str(tmp_path / "t")), SCHEMA, partition_by="part")
    partitions = ["a*", "[b]", "{c}", "d e", "f%2Fg", "ü"]
    made.begin(1)
    files = [made.base(1, [{"id": p, "part": p, "n": 1}], partition=p) for p in partitions]
    made.complete(1, 2, files)
    frame = pyhudi.open_table(made.storage.uri).read().to_spark(spark)
    assert ids(frame) == sorted(partitions)


def test_an_empty_table_is_an_empty_frame_with_its_columns(
    tmp_path: Path, spark: SparkSession
) -> None:
    made = HandmadeTable(open_storage(str(tmp_path / "t")), SCHEMA, partition_by="part")
    made.begin(1)
    made.complete(1, 2)
    frame = pyhudi.open_table(made.storage.uri).read(columns=["id", "n"]).to_spark(spark)
    assert frame.columns == ["id", "n"]
    assert frame.count() == 0


def test_an_executor_with_another_release_is_refused(
    made: HandmadeTable, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_scan, "__version__", "0.0.0-other")
    frame = pyhudi.open_table(made.storage.uri).read().to_spark(spark)
    with pytest.raises(Exception, match="another pyhudi than the driver"):
        frame.collect()


def test_a_damaged_log_is_a_clear_error_in_spark_too(
    made: HandmadeTable, spark: SparkSession
) -> None:
    made.begin(5)
    path = made.log(5, b"not a log file at all", partition="y")
    made.complete(5, 6, [path])
    frame = pyhudi.open_table(made.storage.uri).read().to_spark(spark)
    with pytest.raises(Exception, match="not a Hudi log file"):
        frame.collect()


def test_changes_come_as_a_frame(made: HandmadeTable, spark: SparkSession) -> None:
    feed = pyhudi.open_table(made.storage.uri).changes(since="20260101000000002")
    assert ids(feed.to_spark(spark)) == ["y1", "y9"]


def test_the_active_session_is_used_when_none_is_given(
    golden: GoldenTables, spark: SparkSession
) -> None:
    table = pyhudi.open_table(golden.path("cow_part_v9"))
    assert table.read().to_spark().count() == table.read().to_arrow().num_rows


def test_a_type_that_spark_lacks_is_refused_by_name() -> None:
    with pytest.raises(pyhudi.UnsupportedTableError, match="column 't'"):
        spark_schema(pa.schema([("t", pa.time64("us"))]))
