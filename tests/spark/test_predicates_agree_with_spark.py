"""The same predicate keeps the same rows in Arrow and in Spark."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from predicate_cases import SCHEMA, VALUES, predicates
from pyhudi.plan.predicate.binding import bind
from pyhudi.plan.predicate.parser import parse_predicate
from pyhudi.plan.predicate.sql import to_sql
from pyhudi.plan.predicate.tree import Predicate

pytestmark = [pytest.mark.spark, pytest.mark.spark35]

ODD = "od`d na.me"
ROWS = 240


def values_of(name: str, step: int) -> list[Any]:
    """Every value of the column and null, in an order that differs from column to column."""
    pool = [*VALUES.get(name, VALUES["name"]), None]
    return [pool[(row * step + row // len(pool)) % len(pool)] for row in range(ROWS)]


SCHEMA_WITH_ID = pa.schema([("id", pa.int64()), *SCHEMA, (ODD, pa.string())])
BATCH = pa.RecordBatch.from_arrays(
    [
        pa.array(range(ROWS))
        if field.name == "id"
        else pa.array(values_of(field.name, step), field.type)
        for step, field in enumerate(SCHEMA_WITH_ID)
    ],
    schema=SCHEMA_WITH_ID,
)


@pytest.fixture(scope="module")
def frame(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    path: Path = tmp_path_factory.mktemp("predicates") / "rows.parquet"
    pq.write_table(pa.Table.from_batches([BATCH]), path)
    # Old dates are in today's calendar, which Spark 3 would otherwise ask about.
    return spark.read.option("datetimeRebaseMode", "CORRECTED").parquet(str(path)).cache()


PREDICATES = [
    # Integers, and numbers they cannot hold.
    "small = 1",
    "small <> 1",
    "small < 1.5",
    "small >= -1.5",
    "small = 1.5",
    "NOT small = 1.5",
    "small < 1000",
    "small > 1e3",
    "small <=> 2.5",
    "big = 9007199254740993",
    "big > 9223372036854775806.5",
    "big < 9223372036854775808",
    "big IN (1, 1.5, 2)",
    "big IN (1, NULL)",
    "big NOT IN (1, NULL)",
    "big NOT IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)",
    "big BETWEEN -1 AND 2",
    "big NOT BETWEEN -1 AND 2",
    "1 BETWEEN small AND small",
    "nested.inner >= 0",
    "nested IS NULL",
    "nested.inner IS NULL",
    "nested IS NOT NULL AND nested.inner IS NULL",
    # Doubles and floats, NaN and both zeros.
    "double > 1",
    "double >= 1e300",
    "double <= 1e300",
    "NOT double <= 1e300",
    "double = 0",
    "double = -0.0",
    "double IN (0, 1.5)",
    "double NOT IN (0, 1.5)",
    "double <> 0.1",
    "double = 0.1",
    "single = 0.1",
    "single > 0.1",
    "single < 1e300",
    "double = other",
    "double <> other",
    "double < other",
    "double <= other",
    "double > other",
    "double >= other",
    "double <=> other",
    "NOT double <=> other",
    # Decimals.
    "price = 1",
    "price = 1.250",
    "price < 1.255",
    "price > 1.1e0",
    "price <= 99999999999999999999999999999999999999",
    "price IN (0.5, 1.25, 7.777)",
    # Texts and binary.
    "name = 'it''s'",
    r"name = 'it\'s' OR name = '\\'",
    r"name IN ('\n', '\u0000', '%', '`', '\"')",
    "name < 'é'",
    "name >= '\uffff'",
    "name > ''",
    "name = ' a' OR name = 'A'",
    "name = '${spark.app.name}'",
    "name = label",
    "name < label",
    "name LIKE 'a%'",
    "name LIKE '_'",
    r"name LIKE '\%'",
    r"name LIKE 'a\%' OR name LIKE '\_'",
    r"name LIKE '%\\\\'",
    r"name LIKE '%\n%'",
    "name NOT LIKE '%a%'",
    "name LIKE ''",
    "`od``d na.me` LIKE 'a%'",
    "raw = X'FF'",
    "raw > X'7F'",
    "raw = X''",
    # Dates and timestamps.
    "day = DATE '2026-01-05'",
    "day > '1969-12-31'",
    "day < TIMESTAMP '2026-01-05 12:00:00'",
    "day <= '0001-01-01'",
    "at >= TIMESTAMP '2026-01-05 13:30:00.000001+01:00'",
    "at > '2026-01-05'",
    "at = DATE '2026-01-05'",
    "at < '1970-01-01 00:00:00Z'",
    "local = '2026-01-05 12:30:00.001'",
    "local < TIMESTAMP_NTZ '2026-01-05 12:30:00.0005'",
    "local >= TIMESTAMP '2026-01-05 12:30:00'",
    # Booleans, nulls and connectives.
    "flag",
    "NOT flag",
    "flag = FALSE",
    "flag < TRUE",
    "flag <=> NULL",
    "flag <> NULL",
    "flag IS NULL OR big = 1 AND NOT name = 'a'",
    "NOT (flag AND big > 0 OR day IS NULL)",
    "flag OR NULL",
    "NOT (flag AND NULL)",
    "TRUE",
    "FALSE",
    "NULL",
]


def outcomes(frame: DataFrame, texts: list[str]) -> list[list[bool | None]]:
    """What Spark says of every row, in one job for all the texts."""
    named = [f"CAST(({text}) AS BOOLEAN) AS p{index}" for index, text in enumerate(texts)]
    rows = frame.selectExpr("id", *named).orderBy("id").collect()
    return [[row[index + 1] for row in rows] for index in range(len(texts))]


def disagreements(frame: DataFrame, texts: list[str], trees: list[Predicate]) -> list[str]:
    """The texts of which Spark says, for some row, what Arrow does not say of their trees."""
    masks = [bind(tree, SCHEMA_WITH_ID).mask(BATCH).to_pylist() for tree in trees]
    answers = zip(texts, masks, outcomes(frame, texts), strict=True)
    return [text for text, ours, theirs in answers if ours != theirs]


def test_spark_gives_every_row_the_same_outcome(frame: DataFrame) -> None:
    trees = [parse_predicate(where) for where in PREDICATES]
    assert (
        disagreements(frame, [bind(tree, SCHEMA_WITH_ID).to_sql() for tree in trees], trees) == []
    )


# Where Spark itself errs about the plain text, and not about the bound one.
SPARK_ERRS = {
    # TRUE even for null, when the literal lies beyond all integers.
    "`big` < 9223372036854775808",
    # Unknown in Spark 3.5, when no decimal is wide enough for both sides.
    "`price` <= 99999999999999999999999999999999999999",
}


def test_spark_reads_the_text_before_binding_alike(frame: DataFrame) -> None:
    trees = [parse_predicate(where) for where in PREDICATES]
    assert set(disagreements(frame, [to_sql(tree) for tree in trees], trees)) <= SPARK_ERRS


def test_spark_keeps_the_same_rows(frame: DataFrame) -> None:
    bounds = [bind(where, SCHEMA_WITH_ID) for where in PREDICATES]
    filtered = [
        frame.filter(bound.to_sql()).selectExpr(f"{index} AS predicate", "id")
        for index, bound in enumerate(bounds)
    ]
    kept: dict[int, set[int]] = {index: set() for index in range(len(PREDICATES))}
    for row in reduce(DataFrame.union, filtered).collect():  # one job for all
        kept[row["predicate"]].add(row["id"])
    for where, bound, theirs in zip(PREDICATES, bounds, kept.values(), strict=True):
        ours = BATCH.filter(bound.mask(BATCH)).column("id").to_pylist()
        assert theirs == set(ours), where


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata"])
def test_the_zone_of_the_session_changes_nothing(
    spark: SparkSession, frame: DataFrame, zone: str
) -> None:
    timed = [text for text in PREDICATES if text.startswith(("day", "at", "local"))]
    trees = [parse_predicate(where) for where in timed]
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        texts = [bind(tree, SCHEMA_WITH_ID).to_sql() for tree in trees]
        assert disagreements(frame, texts, trees) == []
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


@settings(
    deadline=None,
    max_examples=3,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=[*HealthCheck],
)
@given(st.lists(predicates, min_size=60, max_size=60))
def test_random_predicates_have_the_same_outcomes(frame: DataFrame, some: list[Predicate]) -> None:
    texts = [bind(tree, SCHEMA_WITH_ID).to_sql() for tree in some]
    assert disagreements(frame, texts, some) == []
