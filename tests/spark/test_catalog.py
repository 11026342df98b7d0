"""Tables in Spark's catalog: `CREATE TABLE t USING pyhudi LOCATION '...'` on Spark 4."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import pyhudi

pytestmark = pytest.mark.spark

COLUMNS = ["id", "day", "note"]
Row = tuple[int, str, str]
ROWS: list[Row] = [(1, "mon", "a"), (2, "tue", "b")]


def made_table(path: Path, rows: list[Row]) -> Path:
    schema = pa.schema([("id", pa.int64()), ("day", pa.string()), ("note", pa.string())])
    table = pyhudi.create_table(
        path,
        schema,
        record_key="id",
        partition_by="day",
        buckets=pyhudi.SimpleBuckets(1),
        upkeep=False,
    )
    table.upsert(pa.table(dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True))))
    return path


def rows_of(path: Path) -> list[Row]:
    found = pyhudi.open_table(path).read(columns=COLUMNS).to_arrow().to_pylist()
    return sorted((row["id"], row["day"], row["note"]) for row in found)


def instants_of(path: Path) -> set[str]:
    return set(os.listdir(path / ".hoodie" / "timeline"))


@dataclass(frozen=True)
class Catalog:
    """A database of Spark's catalog, and the folder in which Spark keeps its tables."""

    spark: SparkSession
    folder: Path

    def rows(self, query: str) -> list[Row]:
        return sorted((row[0], row[1], row[2]) for row in self.spark.sql(query).collect())

    def refusal(self, statement: str) -> str:
        with pytest.raises(PySparkException) as refused:
            self.spark.sql(statement).collect()
        return str(refused.value)


@pytest.fixture
def catalog(spark: SparkSession, tmp_path: Path) -> Iterator[Catalog]:
    folder = tmp_path / "warehouse"
    spark.sql(f"CREATE DATABASE shop LOCATION '{folder}'")
    spark.sql("USE shop")
    yield Catalog(spark, folder)
    spark.sql("USE default")
    spark.sql("DROP DATABASE shop CASCADE")


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    return made_table(tmp_path / "orders", ROWS)


@pytest.mark.parametrize("where", ["LOCATION '{}'", "OPTIONS (path '{}')"])
def test_a_table_of_the_catalog_is_read_with_the_users_columns(
    catalog: Catalog, orders: Path, where: str
) -> None:
    catalog.spark.sql(f"CREATE TABLE orders USING pyhudi {where.format(orders)} COMMENT 'all'")
    assert catalog.spark.table("orders").columns == COLUMNS
    assert catalog.rows("SELECT * FROM orders") == ROWS

    pyhudi.open_table(orders).upsert(pa.table({"id": [3], "day": ["mon"], "note": ["c"]}))
    assert catalog.rows("SELECT * FROM orders WHERE id > 2") == [(3, "mon", "c")]

    catalog.spark.sql("DROP TABLE orders")
    assert len(rows_of(orders)) == 3  # Spark forgets the name, and the rows stay


def test_options_of_the_table_and_of_the_query_hold(catalog: Catalog, orders: Path) -> None:
    catalog.spark.sql(f"CREATE TABLE some USING pyhudi OPTIONS (path '{orders}', `where` 'id = 1')")
    assert catalog.rows("SELECT * FROM some") == ROWS[:1]
    assert catalog.rows("SELECT * FROM some WITH (`where` = 'id = 2')") == ROWS[1:]


def test_only_what_the_catalog_adds_is_passed_over(catalog: Catalog, orders: Path) -> None:
    statement = f"CREATE TABLE t USING pyhudi OPTIONS (wher 'id = 1') LOCATION '{orders}'"
    assert "Did you mean 'where'" in catalog.refusal(statement)
    with pytest.raises(PySparkException, match="there is no read option 'owner'"):
        catalog.spark.read.format("pyhudi").option("owner", "me").load(str(orders))


def test_a_secret_is_not_kept_in_the_catalog(catalog: Catalog, orders: Path) -> None:
    options = f"OPTIONS (path '{orders}', 'storage.aws_secret_access_key' 'hunter22')"
    refusal = catalog.refusal(f"CREATE TABLE t USING pyhudi {options}")
    assert "storage.aws_secret_access_key cannot be stored in Spark's catalog" in refusal
    assert "hunter22" not in refusal


def test_inserts_that_name_the_path_take_the_users_columns(
    catalog: Catalog, orders: Path, tmp_path: Path
) -> None:
    other = made_table(tmp_path / "other", [(7, "sun", "z")])
    sql = catalog.spark.sql
    sql(f"CREATE TABLE orders USING pyhudi LOCATION '{orders}'")
    sql(f"CREATE TABLE other USING pyhudi LOCATION '{other}'")
    sql(f"INSERT INTO orders WITH (path = '{orders}') VALUES (3, 'mon', 'c')")
    sql(f"INSERT INTO orders WITH (path = '{orders}') SELECT * FROM other")
    sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING pyhudi OPTIONS (path '{orders}')")
    sql("INSERT INTO v (note, id, day) VALUES ('d', 4, 'tue')")
    assert rows_of(orders) == [*ROWS, (3, "mon", "c"), (4, "tue", "d"), (7, "sun", "z")]
    assert rows_of(other) == [(7, "sun", "z")]
    sql("DROP VIEW v")


@pytest.mark.parametrize("rows", ["VALUES (3, 'mon', 'c')", "SELECT * FROM other"])
def test_an_insert_without_a_path_is_refused_and_writes_to_no_table(
    catalog: Catalog, orders: Path, tmp_path: Path, rows: str
) -> None:
    """Spark gives the writer the schema of the rows, which may be another table's."""
    other = made_table(tmp_path / "other", [(7, "sun", "z")])
    catalog.spark.sql(f"CREATE TABLE orders USING pyhudi LOCATION '{orders}'")
    catalog.spark.sql(f"CREATE TABLE other USING pyhudi LOCATION '{other}'")
    before = [instants_of(path) for path in (orders, other)]
    refusal = catalog.refusal(f"INSERT INTO orders {rows}")
    assert "InvalidRequestError: no table is named" in refusal
    assert "INSERT INTO ... WITH (path = 'path')" in refusal
    assert [instants_of(path) for path in (orders, other)] == before


def test_a_table_without_a_location_is_refused_and_leaves_no_folder(catalog: Catalog) -> None:
    assert "USING pyhudi has no location" in catalog.refusal("CREATE TABLE t USING pyhudi")
    assert "no table is named" in catalog.refusal("CREATE TABLE t USING pyhudi AS SELECT 1 AS id")
    assert catalog.spark.catalog.listTables("shop") == []
    assert not catalog.folder.exists() or os.listdir(catalog.folder) == []


def test_a_table_that_is_not_there_is_refused(catalog: Catalog, tmp_path: Path) -> None:
    where = f"LOCATION '{tmp_path}/nowhere'"
    assert "TableNotFoundError" in catalog.refusal(f"CREATE TABLE t USING pyhudi {where}")
    assert not (tmp_path / "nowhere").exists()


def test_a_table_with_columns_says_how_to_create_it(catalog: Catalog, orders: Path) -> None:
    """Spark creates it without asking, and does not say where it is."""
    catalog.spark.sql(f"CREATE TABLE t (id BIGINT) USING pyhudi LOCATION '{orders}'")
    refusal = catalog.refusal("SELECT * FROM t")
    assert "CREATE TABLE ... USING pyhudi LOCATION 'path', without columns" in refusal
