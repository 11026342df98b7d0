"""Writes from Spark to tables of consistent buckets: each row goes to the owner on its ring."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession

import pyhudi
from pyhudi.errors import InvalidRequestError
from pyhudi.format.table.ring_file import FIRST_INSTANT, initial_ring
from pyhudi.spark import shuffle
from pyhudi.storage.objects.rings import (
    create_first_ring,
    load_all_ring_files,
    load_ring,
    load_ring_files,
    write_mark,
)
from pyhudi.storage.open import open_storage

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [("id", pa.string()), ("day", pa.date32()), ("ts", pa.int64()), ("v", pa.int32())]
)


@pytest.fixture(autouse=True)
def every_input_is_shuffled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffle, "TINY_BYTES", -1)


def create(path: Path, **options: Any) -> pyhudi.Table:
    given = {"record_key": "id", "partition_by": "day", "ordering": "ts", **options}
    return pyhudi.create_table(path, SCHEMA, **{"upkeep": False, **given})


def frame(spark: SparkSession, count: int, ts: int = 1, first: int = 0) -> DataFrame:
    return spark.range(first, first + count).selectExpr(
        "concat('k', id) AS id",
        "date_add(DATE'2026-01-01', cast(id % 3 AS int)) AS day",
        f"cast({ts} AS long) AS ts",
        "cast(id AS int) AS v",
    )


def content(table: pyhudi.Table) -> dict[str, int]:
    found = pyhudi.open_table(table.uri).read(columns=["id", "ts"]).to_arrow().to_pylist()
    assert len({row["id"] for row in found}) == len(found), "no key is there twice"
    return {row["id"]: row["ts"] for row in found}


def is_whole(table: pyhudi.Table) -> bool:
    return pyhudi.open_table(table.uri).services.verify().findings == ()


KINDS: dict[str, dict[str, Any]] = {
    "sized by itself": {},
    "four at first": {"buckets": pyhudi.ConsistentBuckets(4)},
    "without partitions": {"partition_by": (), "buckets": pyhudi.ConsistentBuckets(5)},
    "optimistic": {"ordering": (), "buckets": pyhudi.ConsistentBuckets(3)},
    "of two key columns": {"record_key": ["id", "v"], "buckets": pyhudi.ConsistentBuckets(3)},
    "by one of two key columns": {
        "record_key": ["v", "id"],
        "buckets": pyhudi.ConsistentBuckets(3, hash_fields=("id",)),
    },
}


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_every_kind_of_write_places_rows_by_the_rings(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any]
) -> None:
    table = create(tmp_path / "t", **options)
    table.upsert(frame(spark, 300))
    table.upsert(frame(spark, 200, ts=2, first=200))
    expected = {f"k{n}": 1 if n < 200 else 2 for n in range(400)}
    assert content(table) == expected
    local = pyhudi.open_table(table.uri)
    local.upsert(frame(spark, 10, ts=3).toArrow())
    expected.update({f"k{n}": 3 for n in range(10)})
    table.append(frame(spark, 10, first=1000))
    expected.update({f"k{n}": 1 for n in range(1000, 1010)})
    table.delete(
        frame(spark, 20, ts=4).drop("v") if "v" not in table.record_key else frame(spark, 20, ts=4)
    )
    keys = frame(spark, 10, first=30).select(*table.record_key)
    table.delete(keys)
    table.delete("v = 50", spark=spark)
    for n in (*range(20), *range(30, 40), 50):
        del expected[f"k{n}"]
    table.update(frame(spark, 1, first=60).selectExpr("id", "day", "v", "8L AS ts"), columns=["ts"])
    expected["k60"] = 8
    assert content(table) == expected
    assert is_whole(table)
    table.overwrite(frame(spark, 50, ts=9), partitions="all")
    assert content(table) == {f"k{n}": 9 for n in range(50)}
    table.upsert(frame(spark, 60, ts=10))
    assert content(table) == {f"k{n}": 10 for n in range(60)}
    table.services.compact(spark=spark)
    assert content(table) == {f"k{n}": 10 for n in range(60)}
    assert is_whole(table)


@pytest.mark.spark35
def test_the_first_write_sizes_each_partition_by_its_share(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shuffle, "estimated_bytes", lambda frame: 1 << 30)
    table = create(tmp_path / "t")
    table.upsert(frame(spark, 300))
    storage = open_storage(table.uri)
    rings = [
        load_ring(storage, partition, files.instants[0])
        for partition, files in load_all_ring_files(storage).items()
    ]
    assert [len(ring.nodes) for ring in rings if ring is not None] == [4, 4, 4]


def test_buckets_without_files_of_rings_that_hudi_marked_are_opened_by_seeds(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = create(tmp_path / "t", buckets=pyhudi.ConsistentBuckets(4))
    storage, days = open_storage(table.uri), [f"2026-01-0{n}" for n in (1, 2, 3)]
    for day in days:
        create_first_ring(storage, initial_ring(day, 4))
        write_mark(storage, day, FIRST_INSTANT, is_complete=False)
    table.upsert(frame(spark, 30))
    assert content(table) == {f"k{n}": 1 for n in range(30)}
    for day in days:
        bases = [stat for stat in storage.list(day) if stat.path.endswith(".parquet")]
        assert len(bases) == 4
        assert load_ring_files(storage, day).complete == {FIRST_INSTANT}
    assert is_whole(table)


@pytest.mark.skipif(pyspark.__version__.startswith("3."), reason="no data sources in Python")
def test_the_data_source_creates_and_writes_tables_of_rings(
    spark: SparkSession, tmp_path: Path
) -> None:
    from pyspark_pyhudi import DefaultSource  # it cannot be loaded on Spark 3.5

    spark.dataSource.register(DefaultSource)
    options = {
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "day",
        "hoodie.datasource.write.precombine.field": "ts",
    }
    rings = {
        "hoodie.index.type": "BUCKET",
        "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
        "hoodie.bucket.index.num.buckets": "3",
    }
    for name, given, count in (("auto", options, 1), ("three", {**options, **rings}, 3)):
        path = str(tmp_path / name)
        for first, ts in ((0, 1), (100, 2)):
            writer = frame(spark, 200, ts=ts, first=first).write.format("pyhudi")
            writer.options(**given).mode("append").save(path)
        table = pyhudi.open_table(path)
        assert content(table) == {f"k{n}": 1 if n < 100 else 2 for n in range(300)}
        assert is_whole(table)
        storage = open_storage(path)
        for partition, files in load_all_ring_files(storage).items():
            ring = load_ring(storage, partition, files.instants[0])
            assert ring is not None
            assert len(ring.nodes) == count


def test_values_that_cannot_be_partitions_are_named(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("day", pa.string())])
    table = pyhudi.create_table(tmp_path / "t", schema, record_key="id", partition_by="day")
    rows = spark.range(100).selectExpr("concat('k', id) AS id", "if(id = 77, 'a/b', 'a') AS day")
    with pytest.raises(InvalidRequestError, match="a slash would make a folder"):
        table.upsert(rows)
    no_key = spark.range(100).selectExpr("if(id = 77, null, 'k') AS id", "'a' AS day")
    with pytest.raises(InvalidRequestError, match="record key"):
        table.upsert(no_key)
    assert pyhudi.open_table(table.uri).read().to_arrow().num_rows == 0
