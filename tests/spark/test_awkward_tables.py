"""Spark and the local engine give the same rows of every awkward table that can be read."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import pyhudi

pytestmark = pytest.mark.spark

FOLDER = Path(__file__).parents[1] / "awkward"
READABLE = [
    path.stem
    for path in sorted(FOLDER.glob("*.json"))
    if "refused" not in json.loads(path.read_bytes())
]


def texts(rows: list[dict[str, Any]]) -> list[str]:
    """Rows as JSON, with doubles and times as they print: NaN is equal to itself there."""
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in rows)


@pytest.mark.parametrize("name", READABLE)
def test_spark_and_the_local_engine_agree(tmp_path: Path, spark: SparkSession, name: str) -> None:
    with tarfile.open(FOLDER / f"{name}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    table = pyhudi.open_table(tmp_path / name)
    for scan in (table.read(meta=True), table.changes(meta=True)):
        local = scan.to_arrow()
        frame = scan.to_spark(spark)
        assert frame.columns == local.column_names
        # Through Arrow, so that both sides make their Python values in the same way.
        assert texts(collected(frame, local.schema).to_pylist()) == texts(local.to_pylist())


def collected(frame: Any, schema: pa.Schema) -> pa.Table:
    rows = [row.asDict(recursive=True) for row in frame.collect()]
    return pa.Table.from_pylist([in_arrow(row, schema) for row in rows], schema)


def in_arrow(row: dict[str, Any], schema: pa.Schema) -> dict[str, Any]:
    """Spark's naive times are in this process's zone; Arrow takes naive ones for UTC."""
    return {
        f.name: row[f.name].astimezone()
        if pa.types.is_timestamp(f.type) and f.type.tz and row[f.name] is not None
        else row[f.name]
        for f in schema
    }
