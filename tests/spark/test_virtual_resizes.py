"""Spark beside a virtual resize: its tasks write into the new buckets, and read by reference."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import pyhudi
from pyhudi.format.files.log_reference import is_virtual_child
from pyhudi.format.table.bucket_config import ConsistentBuckets
from pyhudi.plan.resizing.policy import ResizePolicy

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:target_bytes"),
]

SCHEMA = pa.schema(
    [pa.field("id", pa.string(), nullable=False), ("day", pa.string()), ("ts", pa.int64())]
)
COUNT = 200


def test_spark_writes_and_reads_beside_a_virtual_resize(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "table")
    buckets = ConsistentBuckets(initial=1)
    table = pyhudi.create_table(
        path, SCHEMA, record_key="id", partition_by="day", ordering="ts", buckets=buckets
    )
    for ts in (1, 2):
        given = [{"id": f"k{n}", "day": f"d{n % 2}", "ts": ts} for n in range(COUNT)]
        table.upsert(pa.Table.from_pylist(given, SCHEMA))
    policy = ResizePolicy(target_bytes=4096, rest_seconds=0, writes="virtual")
    [planned] = table.services.resize(policy, plan_only=True).pending
    frame = spark.sql(
        "SELECT concat('k', id) AS id, concat('d', id % 2) AS day, 3L AS ts"
        f" FROM range({2 * COUNT})"
    )
    result = pyhudi.open_table(path).upsert(frame)
    assert result.rows == 2 * COUNT
    files = pyhudi.open_table(path).inspect.file_slices()
    assert files.num_rows >= 2
    logs = [p.name for p in Path(path).rglob(f".*_{result.requested}.log.*") if p.suffix != ".crc"]
    assert any(is_virtual_child(name[1:].partition("_")[0]) for name in logs)
    expected = {f"k{n}": (f"d{n % 2}", 3) for n in range(2 * COUNT)}
    for _ in ("pending", "completed"):
        opened = pyhudi.open_table(path)
        rows = opened.read().to_spark(spark).collect()
        assert {row.id: (row.day, row.ts) for row in rows} == expected
        assert len(rows) == len(expected)
        assert opened.services.verify()
        if opened.services.resize(policy, dry_run=True).pending:
            [done] = opened.services.resize(policy, spark=spark).or_raise().results
            assert (done.instant, done.copies) == (planned, 0)
