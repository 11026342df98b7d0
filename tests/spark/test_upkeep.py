"""Services that come with a write of Spark: its session does the merging."""

from __future__ import annotations

import warnings
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import pyhudi

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])
EAGER = pyhudi.Upkeep(
    compaction=pyhudi.CompactionPolicy(trigger_delta_commits=1), clean=None, archive=None
)


def test_after_a_write_of_spark_its_tasks_compact(tmp_path: Path, spark: SparkSession) -> None:
    table = pyhudi.create_table(
        tmp_path / "t",
        SCHEMA,
        record_key="id",
        ordering="ts",
        buckets=pyhudi.SimpleBuckets(2),
        upkeep=EAGER,
    )
    frame = spark.createDataFrame([(f"k{n}", n) for n in range(20)], "id string, ts long")
    in_driver = "pyhudi.services.compaction.run.compact_slice"
    with patch(in_driver, side_effect=AssertionError("merged in the driver")):
        table.upsert(frame)
    assert "compaction" in table.inspect.timeline().column("began_as").to_pylist()
    found = table.read(columns=["id"], read_optimized=True).to_arrow().column("id").to_pylist()
    assert sorted(found) == sorted(f"k{n}" for n in range(20))


def test_buckets_that_a_write_from_spark_made_too_large_are_split_by_spark(
    tmp_path: Path, spark: SparkSession
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # buckets this small are for tests only
        sizing = pyhudi.ResizePolicy(target_bytes=4096, rest_seconds=0)
    table = pyhudi.create_table(
        tmp_path / "t",
        SCHEMA,
        record_key="id",
        ordering="ts",
        buckets=pyhudi.ConsistentBuckets(initial=1),
        upkeep=pyhudi.Upkeep(compaction=None, resize=sizing, clean=None, archive=None),
    )
    frame = spark.range(20_000).selectExpr("concat('k', id) AS id", "id AS ts")
    in_driver = "pyhudi.services.resizing.run.write_children"
    with patch(in_driver, side_effect=AssertionError("rewritten in the driver")):
        table.upsert(frame)
    assert "clustering" in table.inspect.timeline().column("began_as").to_pylist()
    assert len(table.inspect.buckets(rows=False)) > 1
    found = table.read(columns=["id"]).to_arrow().column("id").to_pylist()
    assert sorted(found) == sorted(f"k{n}" for n in range(20_000))


#: Options of a save → whether a compaction follows it.
SAVES: list[tuple[dict[str, str], bool]] = [
    ({}, True),
    ({"upkeep": "false"}, False),
    ({"hoodie.compact.inline": "false"}, False),
    ({"hoodie.table.services.enabled": "false"}, False),
]


def test_what_is_due_follows_a_save_unless_its_options_leave_it_to_others(
    tmp_path: Path, spark: SparkSession
) -> None:
    frame = spark.createDataFrame([("a", 1), ("b", 2)], "id string, ts long").coalesce(1)
    for number, (options, is_followed) in enumerate(SAVES):
        table = pyhudi.create_table(
            tmp_path / f"t{number}",
            SCHEMA,
            record_key="id",
            ordering="ts",
            buckets=pyhudi.SimpleBuckets(1),
            upkeep=EAGER,
        )
        frame.write.format("pyhudi").options(**options).mode("append").save(table.uri)
        actions = table.inspect.timeline().column("began_as").to_pylist()
        assert ("compaction" in actions) is is_followed, options
        assert table.read().to_arrow().num_rows == 2


def test_a_table_that_a_save_creates_records_the_usual_policy(
    tmp_path: Path, spark: SparkSession
) -> None:
    frame = spark.createDataFrame([("a", 1)], "id string, ts long")
    options = {
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.bucket.index.num.buckets": "1",
    }
    frame.write.format("pyhudi").options(**options).mode("append").save(str(tmp_path / "t"))
    assert pyhudi.open_table(tmp_path / "t").upkeep == pyhudi.Upkeep()


@pytest.mark.parametrize("wrong", ["no", "0"])
def test_a_word_that_is_no_choice_of_upkeep_is_refused(
    tmp_path: Path, spark: SparkSession, wrong: str
) -> None:
    frame = spark.createDataFrame([("a", 1)], "id string, ts long")
    with pytest.raises(Exception, match=r"upkeep=.* is not known: it is"):
        frame.write.format("pyhudi").option("upkeep", wrong).mode("append").save(str(tmp_path))
