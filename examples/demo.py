"""`make demo`: read a table that Apache Hudi wrote, without Spark and with it; write one; and let
two Spark jobs join their rows into one at the same time.

The first table is one of the golden ones of the tests: merge on read, with a completed compaction,
log files on top of it, a compaction that is still pending, and more log files after that.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pyarrow as pa
from join import COMMITS, OWNERS, SCHEMA, session
from pyspark.sql import SparkSession

import pyhudi

ARCHIVE = Path(__file__).parents[1] / "tests" / "golden" / "mor_compacted.tar.gz"
JOB = Path(__file__).with_name("join.py")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(folder, filter="data")
        rows = read(f"{folder}/mor_compacted")
        spark = session(2)
        read_again(rows, spark)
        write(f"{folder}/orders", spark)
        spark.stop()
        join(f"{folder}/joined")


def read(uri: str) -> pyhudi.Scan:
    """A table that Hudi wrote, without Spark."""
    table = pyhudi.open_table(uri)
    print(f"{table}\n")
    show("Timeline", table.inspect.timeline())
    show("File slices", table.inspect.file_slices().drop_columns(["bytes", "file_id"]))
    rows = table.read()
    show("Rows, read without Spark", rows.to_arrow().sort_by("id"))
    first = table.inspect.timeline()["completed"][0].as_py()
    feed = table.changes(since=first, columns=["id", "ver", "name"], where="ver > 2")
    show(f"Changes since {first} where ver > 2", feed.to_arrow().sort_by("id"))
    return rows


def read_again(rows: pyhudi.Scan, spark: SparkSession) -> None:
    frame = rows.to_spark(spark)
    print("The same rows in Spark, by partition")
    frame.groupBy("part").agg({"id": "count", "amount": "sum"}).orderBy("part").show()
    local = {tuple(row.values()) for row in rows.to_arrow().to_pylist()}
    assert {tuple(row) for row in frame.collect()} == local
    print("Spark and the local engine give the same rows.")


def write(uri: str, spark: SparkSession) -> None:
    """Two writers on one table, neither of which knows of the other: Spark, and plain Arrow."""
    schema = pa.schema([("id", pa.string()), ("day", pa.string()), ("ts", pa.int64())])
    first, second = (
        pyhudi.create_table(
            uri,
            schema,
            record_key="id",
            partition_by="day",
            ordering="ts",
            buckets=2,
            exist_ok=True,
        )
        for _ in range(2)
    )
    ids = [f"order {number}" for number in range(6)]
    rows = spark.createDataFrame([(id_, "monday", n) for n, id_ in enumerate(ids)], schema.names)
    print(f"\nWritten by Spark: {first.upsert(rows)}")
    late = pa.table({"id": ids[:2], "day": ["monday"] * 2, "ts": [9, -1]}, schema=schema)
    print(f"By a second writer, without Spark: {second.upsert(late)}")
    print(f"Deleted: {first.delete('ts = 5')}\n")
    show("The table now", first.read().to_arrow().sort_by("id"))
    assert second.read().to_arrow().num_rows == 5
    print(f"Overwritten by Spark: {first.overwrite(rows.where('ts > 3'))}")
    assert second.read().to_arrow().num_rows == 2
    for ts in range(10, 16):
        second.upsert(pa.table({"id": ids[:1], "day": ["monday"], "ts": [ts]}, schema=schema))
    maintenance = first.inspect.upkeep().select(["service", "policy", "did"])
    show("\nMaintenance, by the writers themselves", maintenance)
    assert "merged into" in maintenance["did"][0].as_py()


def join(uri: str) -> None:
    """Two Spark jobs, each a process of its own, own different columns of one wide table."""
    table = pyhudi.create_table(uri, SCHEMA, record_key="order_id", buckets=2, owners=OWNERS)
    print("\nTwo Spark jobs join orders and payments into one table, at the same time")
    command = [sys.executable, str(JOB), uri]
    jobs = [subprocess.Popen([*command, owner], stderr=subprocess.PIPE) for owner in OWNERS]
    for job in jobs:
        _, errors = job.communicate()
        assert job.returncode == 0, errors.decode()
    joined = table.read(columns=SCHEMA.names).to_arrow().sort_by("order_id")
    show("\nThe joined rows", joined)
    assert joined.to_pylist() == expected_join()
    print("They are what a model of the join says, whichever job was first.")


def expected_join() -> list[dict[str, object]]:
    """The last value of each column, whatever the other job does."""
    rows: dict[str, dict[str, object]] = {}
    for owner, commits in COMMITS.items():
        for order_id, *values in (row for commit in commits for row in commit):
            row = rows.setdefault(order_id, dict.fromkeys(SCHEMA.names) | {"order_id": order_id})
            row.update(zip(OWNERS[owner], values, strict=True))
    return [rows[order_id] for order_id in sorted(rows)]


def show(title: str, table: pa.Table) -> None:
    """A table as text, each column as wide as it must be."""
    print(title)
    columns = [
        [name, *(shown(value) for value in table[name].to_pylist())] for name in table.column_names
    ]
    widths = [max(map(len, column)) for column in columns]
    for row in zip(*columns, strict=True):
        print("  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())
    print()


def shown(value: object) -> str:
    if isinstance(value, list):
        return f"{len(value)} log file{'' if len(value) == 1 else 's'}"
    return "-" if value is None else str(value)


if __name__ == "__main__":
    main()
