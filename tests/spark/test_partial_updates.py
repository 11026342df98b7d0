"""Owners of columns write from Spark what they would write without it, and join with each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

import pyhudi
from pyhudi.errors import InvalidRequestError
from pyhudi.spark import shuffle as placing

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("day", pa.string()),
        ("amount", pa.int64()),
        ("customer", pa.string()),
        ("method", pa.string()),
    ]
)
OWNERS = {"orders": ["amount", "customer"], "payments": ["method"]}
Row = dict[str, Any]


def create(path: Path) -> pyhudi.Table:
    return pyhudi.create_table(
        path,
        SCHEMA,
        record_key="id",
        partition_by="day",
        buckets=pyhudi.SimpleBuckets(2),
        owners=OWNERS,
        upkeep=False,
    )


def content(table: pyhudi.Table) -> dict[str, Row]:
    found = pyhudi.open_table(table.uri).read(columns=SCHEMA.names).to_arrow().to_pylist()
    by_key = {row["id"]: row for row in found}
    assert len(by_key) == len(found), "a key is there twice"
    return by_key


def orders(spark: SparkSession, count: int) -> DataFrame:
    # The columns in another order than the table's, and of types that fit.
    return spark.range(count).selectExpr(
        "concat('c', id) AS customer",
        "cast(id AS int) AS amount",
        "concat('k', id) AS id",
        "concat('d', id % 2) AS day",
    )


def payments(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).selectExpr(
        "concat('k', id * 2) AS id",
        "concat('d', id * 2 % 2) AS day",
        "if(id % 3 = 0, null, 'card') AS method",
    )


def expected(count: int) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for number in range(count):
        key = {"id": f"k{number}", "day": f"d{number % 2}"}
        rows[f"k{number}"] = {**key, "amount": number, "customer": f"c{number}", "method": None}
    for number in range(count):
        key = {"id": f"k{number * 2}", "day": "d0"}
        row = rows.setdefault(f"k{number * 2}", {**key, "amount": None, "customer": None})
        row["method"] = None if number % 3 == 0 else "card"
    return rows


@pytest.mark.parametrize("tiny", [True, False])
def test_owners_join_from_spark_whether_rows_are_shuffled_or_not(
    spark: SparkSession, tmp_path: Path, tiny: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not tiny:
        monkeypatch.setattr(placing, "TINY_BYTES", -1)
    table = create(tmp_path / "t")
    written = table.upsert(orders(spark, 50), owner="orders")
    assert written.rows == 50
    table.upsert(payments(spark, 50), owner="payments")
    assert content(table) == expected(50)
    assert table.owners == {owner: tuple(columns) for owner, columns in OWNERS.items()}


def test_owners_join_across_engines_and_readers(spark: SparkSession, tmp_path: Path) -> None:
    table = create(tmp_path / "t")
    rows = [row.asDict() for row in payments(spark, 20).collect()]
    table.upsert(pa.Table.from_pylist(rows), owner="payments")
    table.upsert(orders(spark, 20), owner="orders")
    assert content(table) == expected(20)
    frame = table.read(columns=SCHEMA.names).to_spark(spark)
    assert {row["id"]: row.asDict() for row in frame.collect()} == expected(20)


def test_deletes_and_overwrites_from_spark_leave_a_table_that_owners_go_on_with(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = create(tmp_path / "t")
    table.upsert(orders(spark, 6), owner="orders")
    table.delete(spark.createDataFrame([("k0",), ("k1",)], "id string"))
    table.delete("id = 'k2'", spark=spark)
    table.upsert(
        spark.createDataFrame([("k0", "d0", "card")], "id string, day string, method string"),
        owner="payments",
    )
    rows = content(table)
    assert sorted(rows) == ["k0", "k3", "k4", "k5"]
    assert rows["k0"] == {
        "id": "k0",
        "day": "d0",
        "amount": None,
        "customer": None,
        "method": "card",
    }
    whole = orders(spark, 1).withColumn("method", F.lit("bill")).select(SCHEMA.names)
    table.overwrite(whole, partitions="all")
    table.upsert(orders(spark, 2), owner="orders")
    assert content(table) == {
        "k0": {"id": "k0", "day": "d0", "amount": 0, "customer": "c0", "method": "bill"},
        "k1": {"id": "k1", "day": "d1", "amount": 1, "customer": "c1", "method": None},
    }


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda frame: frame.drop("amount"), "missing 'amount'"),
        (lambda frame: frame.withColumn("method", F.lit("x")), "'method' belongs to owner 'pay"),
        (lambda frame: frame.withColumn("x", F.lit(1)), "'x' has no owner"),
        (lambda frame: frame.withColumn("amount", F.array(F.lit(1))), "types in 'amount'"),
    ],
)
def test_frames_of_other_columns_are_refused_before_anything_runs(
    spark: SparkSession, tmp_path: Path, change: Any, why: str
) -> None:
    table = create(tmp_path / "t")
    with pytest.raises(InvalidRequestError, match=why):
        table.upsert(change(orders(spark, 3)), owner="orders")
    with pytest.raises(InvalidRequestError, match="whole rows is not possible"):
        table.upsert(orders(spark, 3))
    assert pyhudi.open_table(table.uri).inspect.timeline().num_rows == 0


def test_who_loses_its_columns_while_spark_computes_cannot_complete(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = create(tmp_path / "t")
    uri = table.uri

    def released(batches: Any) -> Any:
        pyhudi.open_table(uri).alter.release_columns("orders")
        yield from batches

    frame = orders(spark, 4)
    with pytest.raises(InvalidRequestError, match="'orders' may not complete this write"):
        table.upsert(frame.coalesce(1).mapInArrow(released, frame.schema), owner="orders")
    assert content(table) == {}


def test_a_part_whose_row_is_deleted_meanwhile_is_written_again_without_computing_it_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = create(tmp_path / "t")
    table.upsert(orders(spark, 4), owner="orders")
    uri = table.uri

    def beside_a_delete(batches: Any) -> Any:
        pyhudi.open_table(uri).delete(pa.table({"id": ["k0"]}))
        yield from batches

    frame = payments(spark, 2).coalesce(1)
    result = table.upsert(frame.mapInArrow(beside_a_delete, frame.schema), owner="payments")
    assert result.retries == 1
    rows = content(table)
    gone = {"id": "k0", "day": "d0", "amount": None, "customer": None, "method": None}
    assert rows["k0"] == gone
    assert rows["k2"] == {**gone, "id": "k2", "amount": 2, "customer": "c2", "method": "card"}
    assert sorted(rows) == ["k0", "k1", "k2", "k3"]
