"""`spark.read.format("pyhudi")` on Spark 4: found without registration, same rows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import pyhudi
from golden_tables import GoldenTables

pytestmark = pytest.mark.spark

NAME = "mor_compacted"


def test_spark_finds_the_source_by_itself(golden: GoldenTables, spark: SparkSession) -> None:
    path = golden.path(NAME)
    frame = spark.read.format("pyhudi").load(str(path))
    expected = pyhudi.open_table(path).read().to_arrow()
    assert frame.columns == expected.schema.names
    rows = [row.asDict() for row in frame.collect()]
    assert sorted(map(repr, rows)) == sorted(map(repr, expected.to_pylist()))


def test_hudis_own_options_keep_their_meaning(golden: GoldenTables, spark: SparkSession) -> None:
    path = golden.path(NAME)
    (read,) = [
        r
        for r in golden.description(NAME)["reads"]
        if r["name"].startswith("as_of_requested") and len(r["rows"]) == 8
    ]
    reader = spark.read.format("pyhudi").option("as.of.instant", read["how"]["as_of"])
    assert reader.load(str(path)).count() == 8


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, False),
        ({"meta": "true"}, True),
        ({"hoodie.datasource.query.type": "snapshot"}, True),
        ({"hoodie.datasource.query.type": "snapshot", "meta": "false"}, False),
    ],
)
def test_hudis_columns_are_shown_when_asked_for_and_with_hudis_options(
    golden: GoldenTables, spark: SparkSession, options: dict[str, str], shown: bool
) -> None:
    frame = spark.read.format("pyhudi").options(**options).load(str(golden.path(NAME)))
    [row] = frame.limit(1).collect()
    assert row.asDict().keys() == set(frame.columns)
    assert ("_hoodie_commit_time" in frame.columns) is shown


def test_insert_into_a_view_takes_the_users_columns(tmp_path: Path, spark: SparkSession) -> None:
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    buckets = pyhudi.SimpleBuckets(1)
    table = pyhudi.create_table(
        tmp_path / "t",
        schema,
        record_key="id",
        buckets=buckets,
        upkeep=False,
    )
    table.upsert(pa.table({"id": ["a"], "n": [1]}))
    spark.sql(f"CREATE TEMPORARY VIEW inserted USING pyhudi OPTIONS (path '{table.uri}')")
    try:
        spark.sql("INSERT INTO inserted VALUES ('b', 2)")
        found = spark.sql("SELECT * FROM inserted ORDER BY id").collect()
        assert [tuple(row) for row in found] == [("a", 1), ("b", 2)]
    finally:
        spark.catalog.dropTempView("inserted")


def test_a_given_schema_and_our_own_options_narrow_the_read(
    golden: GoldenTables, spark: SparkSession
) -> None:
    path = str(golden.path(NAME))
    frame = spark.read.format("pyhudi").schema("id string, ver bigint").load(path)
    assert frame.columns == ["id", "ver"]
    every = {(row["id"], row["ver"]) for row in frame.collect()}
    reader = spark.read.format("pyhudi").option("columns", "id,ver").option("where", "ver >= 3")
    found = {(row["id"], row["ver"]) for row in reader.load(path).collect()}
    assert found == {(id_, ver) for id_, ver in every if ver >= 3}
    assert 0 < len(found) < len(every)


def test_filters_are_pushed_down_where_spark_allows_it(
    golden: GoldenTables, spark: SparkSession
) -> None:
    path = str(golden.path(NAME))
    condition = "ver > 1 AND id <> 'x' AND name IS NOT NULL AND ver IN (2, 3, 4)"
    plain = spark.read.format("pyhudi").load(path).where(condition)
    expected = sorted(row["id"] for row in plain.collect())
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        reader = spark.read.format("pyhudi").option("filter_pushdown", "true")
        pushed = reader.load(path).where(condition)
        assert sorted(row["id"] for row in pushed.collect()) == expected
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_the_source_loads_where_spark_has_no_filters_yet() -> None:
    """As Spark 4.0, whose sources are not given filters."""
    program = (
        "from pyspark.sql import datasource as api\n"
        "base = vars(api).pop('Filter', None)\n"
        "for found in base.__subclasses__() if base else (): delattr(api, found.__name__)\n"
        "import pyspark_pyhudi; print(pyspark_pyhudi.DefaultSource.name())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "pyhudi\n", done.stderr


def test_a_wrong_option_is_an_error_with_the_nearest_name(
    golden: GoldenTables, spark: SparkSession
) -> None:
    reader = spark.read.format("pyhudi").option("hoodie.datasource.query.typ", "snapshot")
    with pytest.raises(Exception, match=r"Did you mean 'hoodie\.datasource\.query\.type'"):
        reader.load(str(golden.path(NAME))).collect()
