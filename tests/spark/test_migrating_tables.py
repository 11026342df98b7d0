"""Writes from Spark to a table that is being migrated from simple to consistent buckets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import pyhudi
from opened_tables import opening_on
from pyhudi.format.table.bucket_migration import MigratingBuckets
from pyhudi.services.migration import run
from pyhudi.spark import shuffle
from pyhudi.storage.open import open_storage
from pyhudi.world import real_world
from pyhudi.write.begin import ready
from spark.test_consistent_buckets import content, create, frame, is_whole

pytestmark = pytest.mark.spark

RINGS = pyhudi.ConsistentBuckets(2)


@pytest.fixture(autouse=True)
def every_input_is_shuffled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffle, "TINY_BYTES", -1)


def begin(table: pyhudi.Table) -> None:
    """Leave the table as a process does that dies when it has begun to migrate."""
    opening = opening_on(open_storage(table.uri), real_world())
    session = opening.session()
    run._announce(opening, session, run._target(session.config, RINGS))
    assert isinstance(ready(opening).config.buckets, MigratingBuckets)


def later(spark: SparkSession, count: int, ts: int, first: int = 0) -> DataFrame:
    """Rows of days that no other write has."""
    rows = frame(spark, count, ts, first)
    return rows.selectExpr("concat('l', id) AS id", "date_add(day, 10) AS day", "ts", "v")


@pytest.mark.parametrize("how", [{}, {"partition_by": ()}, {"ordering": ()}])
def test_rows_go_to_the_buckets_that_each_partition_has(
    spark: SparkSession, tmp_path: Path, how: dict[str, Any]
) -> None:
    table = create(tmp_path / "t", buckets=3, **how)
    table.upsert(frame(spark, 60))
    begin(table)
    table.upsert(frame(spark, 20, ts=2).union(later(spark, 30, 2)))
    expected = {f"k{n}": 2 if n < 20 else 1 for n in range(60)} | {f"lk{n}": 2 for n in range(30)}
    assert content(table) == expected
    assert is_whole(table)
    table.delete(spark.createDataFrame([("k0",), ("lk0",)], "id string"))
    del expected["k0"], expected["lk0"]
    assert table.services.migrate_buckets(spark=spark).is_done
    assert content(table) == expected
    table.upsert(frame(spark, 10, ts=3, first=1).union(later(spark, 10, 3, first=1)))
    expected.update({key: 3 for n in range(1, 11) for key in (f"k{n}", f"lk{n}")})
    assert content(table) == expected
    assert is_whole(table)
