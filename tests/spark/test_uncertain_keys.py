"""Composite keys that two different rows could have are refused from Spark as they are without."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import pyhudi
from pyhudi.errors import InvalidRequestError
from pyhudi.spark import shuffle as placing

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [("a", pa.string()), ("b", pa.string()), ("day", pa.string()), ("v", pa.int32())]
)
COLUMNS = "a string, b string, day string, v int"
VERBS: dict[str, Callable[[pyhudi.Table, DataFrame], object]] = {
    "upsert": lambda table, rows: table.upsert(rows),
    "append": lambda table, rows: table.append(rows),
    "append new keys": lambda table, rows: table.append(rows, require_new_keys=True),
    "update": lambda table, rows: table.update(rows, columns=["v"]),
    "delete": lambda table, rows: table.delete(rows.select("a", "b", "day")),
    "delete looked up": lambda table, rows: table.delete(rows.select("a", "b")),
    "overwrite": lambda table, rows: table.overwrite(rows),
}


@pytest.fixture
def table(tmp_path: Path) -> pyhudi.Table:
    made = pyhudi.create_table(
        tmp_path / "t",
        SCHEMA,
        record_key=["a", "b"],
        partition_by="day",
        buckets=pyhudi.SimpleBuckets(2),
        upkeep=False,
    )
    made.upsert(pa.table({"a": ["p"], "b": ["q"], "day": ["d0"], "v": [1]}, schema=SCHEMA))
    return made


def frame(spark: SparkSession) -> DataFrame:
    """Sound rows of many partitions, and two that could have one key."""
    sound = [(f"a{n}", f"b{n}", f"d{n % 4}", n) for n in range(40)]
    colliding = [("x,b:y", "z", "d0", 1), ("x", "y,b:z", "d0", 2)]
    return spark.createDataFrame([*sound, *colliding], COLUMNS)


CASES = [*((verb, 0.0) for verb in VERBS), *((v, float("inf")) for v in ("upsert", "delete"))]


@pytest.mark.parametrize(("verb", "bytes_"), CASES)
def test_every_verb_refuses_them_with_a_sample(
    spark: SparkSession,
    table: pyhudi.Table,
    verb: str,
    bytes_: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In one task, and behind a shuffle, where sound rows come to other tasks."""
    monkeypatch.setattr(placing, "estimated_bytes", lambda frame: bytes_)
    with pytest.raises(InvalidRequestError, match=r"not certain: .*a='x,b:y', b='z'"):
        VERBS[verb](table, frame(spark))
    again = pyhudi.open_table(table.uri)
    assert again.read(columns=["a", "b"]).to_arrow().to_pylist() == [{"a": "p", "b": "q"}]
    assert all(row["completed"] for row in again.inspect.timeline().to_pylist())
    found = {row["partition"] for row in again.inspect.file_slices().to_pylist()}
    assert found == {"d0"}
