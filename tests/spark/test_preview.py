"""A preview of a DataFrame: one evaluation, and the places that the write then has files in."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

import pyhudi
from pyhudi.errors import InvalidRequestError
from pyhudi.format.files.file_names import group_of_path

pytestmark = [pytest.mark.spark, pytest.mark.spark35]

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.int64())])
COLUMNS = "id string, day string, v bigint"
ROWS = [(f"k{n}", f"d{n % 3}", n) for n in range(60)]
KINDS: dict[str, dict[str, Any]] = {
    "simple": {"buckets": pyhudi.SimpleBuckets(3)},
    "consistent": {"buckets": pyhudi.ConsistentBuckets(2)},
    "copy on write": {"buckets": pyhudi.SimpleBuckets(3), "table_type": "cow"},
}


def made(path: Path, schema: pa.Schema = SCHEMA, **definition: Any) -> pyhudi.Table:
    given = {"record_key": "id", "partition_by": "day", "upkeep": False, **definition}
    return pyhudi.create_table(path / "t", schema, **given)


def files(path: Path) -> set[str]:
    return {str(each.relative_to(path / "t")) for each in path.rglob("*") if each.is_file()}


def counted(preview: pyhudi.WritePreview) -> dict[tuple[str, str | None], int]:
    return {(row["partition"], row["file_id"]): row["rows"] for row in preview.places().to_pylist()}


@pytest.mark.parametrize("kind", KINDS)
def test_the_places_of_a_frame_are_those_of_its_rows_and_of_the_write(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    table = made(tmp_path, **KINDS[kind])
    rows = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in ROWS], SCHEMA)
    table.upsert(rows)
    frame = spark.createDataFrame(ROWS, COLUMNS)
    before = files(tmp_path)
    preview = table.plan_upsert(frame)
    assert files(tmp_path) == before
    assert counted(preview) == counted(table.plan_upsert(rows))
    some, few = frame.where("v < 7"), rows.slice(0, 7)
    assert counted(table.plan_update(some, columns=["v"])) == counted(
        table.plan_update(few, columns=["v"])
    )
    assert counted(table.plan_overwrite(some)) == counted(table.plan_overwrite(few))
    assert files(tmp_path) == before
    table.upsert(frame)
    new = (path for path in files(tmp_path) - before if not path.startswith(".hoodie"))
    groups = {(group.partition, group.file_id) for path in new if (group := group_of_path(path))}
    assert groups == set(counted(preview))


def test_a_frame_is_evaluated_once_and_only_for_its_keys_and_partitions(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = made(tmp_path, **KINDS["simple"])
    context = spark.sparkContext
    evaluated, dear = context.accumulator(0), context.accumulator(0)

    def key(number):  # type: ignore[no-untyped-def]  # Spark would warn of hints
        evaluated.add(1)
        return f"k{number}"

    def value(number):  # type: ignore[no-untyped-def]
        dear.add(1)
        return number

    numbers = spark.range(40)
    frame = numbers.select(
        F.udf(key, "string").asNondeterministic()("id").alias("id"),
        F.lit("d0").alias("day"),
        F.udf(value, "bigint")("id").alias("v"),
    )
    assert sum(counted(table.plan_upsert(frame)).values()) == 40
    assert (evaluated.value, dear.value) == (40, 0)


KEYED = [
    (pa.date32(), "date", [date(2024, 2, 29), None]),
    (pa.decimal128(9, 2), "decimal(9,2)", [Decimal("1.50"), Decimal("-7.00")]),
    (pa.bool_(), "boolean", [True, False]),
    (pa.string(), "string", ["a b", "", None, "é/%"]),
]


@pytest.mark.parametrize(("type_", "spark_type", "values"), KEYED, ids=[k[1] for k in KEYED])
def test_partitions_of_every_type_are_named_as_the_write_names_them(
    spark: SparkSession, tmp_path: Path, type_: pa.DataType, spark_type: str, values: list[Any]
) -> None:
    schema = pa.schema([("id", pa.string()), ("day", type_), ("v", pa.int64())])
    for number, kind in enumerate(("simple", "consistent")):
        table = made(tmp_path / str(number), schema, url_encode=True, **KINDS[kind])
        rows = [(f"k{n}", values[n % len(values)], n) for n in range(12)]
        frame = spark.createDataFrame(rows, f"id string, day {spark_type}, v bigint")
        arrow = pa.Table.from_pylist(
            [dict(zip(schema.names, row, strict=True)) for row in rows], schema
        )
        table.upsert(arrow)
        assert counted(table.plan_upsert(frame)) == counted(table.plan_upsert(arrow))


def test_a_new_partition_of_consistent_buckets_is_one_place_without_a_file_group(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = made(tmp_path, **KINDS["consistent"])
    before = files(tmp_path)
    preview = table.plan_upsert(spark.createDataFrame(ROWS, COLUMNS))
    assert counted(preview) == {(day, None): 20 for day in ("d0", "d1", "d2")}
    assert files(tmp_path) == before


def test_a_frame_with_wrong_columns_or_uncertain_keys_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = made(tmp_path, **KINDS["simple"])
    frame = spark.createDataFrame(ROWS, COLUMNS)
    with pytest.raises(InvalidRequestError, match="v"):
        table.plan_upsert(frame.drop("v"))
    odd = spark.createDataFrame([("x,id:y", "d0", 1)], COLUMNS)
    with pytest.raises(InvalidRequestError, match="1 rows cannot be placed"):
        table.plan_upsert(odd)
