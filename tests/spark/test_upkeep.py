"""Services that come with a write of Spark: its session does the merging."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import pyhudi

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])


def test_after_a_write_of_spark_its_tasks_compact(tmp_path: Path, spark: SparkSession) -> None:
    eager = pyhudi.CompactionPolicy(trigger_delta_commits=1)
    table = pyhudi.create_table(
        tmp_path / "t",
        SCHEMA,
        record_key="id",
        ordering="ts",
        buckets=pyhudi.SimpleBuckets(2),
        upkeep=pyhudi.Upkeep(compaction=eager, clean=None, archive=None),
    )
    frame = spark.createDataFrame([(f"k{n}", n) for n in range(20)], "id string, ts long")
    in_driver = "pyhudi.services.compaction.run.compact_slice"
    with patch(in_driver, side_effect=AssertionError("merged in the driver")):
        table.upsert(frame)
    assert "compaction" in table.inspect.timeline().column("began_as").to_pylist()
    found = table.read(columns=["id"], read_optimized=True).to_arrow().column("id").to_pylist()
    assert sorted(found) == sorted(f"k{n}" for n in range(20))
