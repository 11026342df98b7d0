"""`make demo`: read a table that Apache Hudi wrote, without Spark and with it; then write one too.

The first table is one of the golden ones of the tests: merge on read, with a completed compaction,
log files on top of it, a compaction that is still pending, and more log files after that.
"""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import pyhudi

ARCHIVE = Path(__file__).parents[1] / "tests" / "golden" / "mor_compacted.tar.gz"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(folder, filter="data")
        table = pyhudi.open_table(Path(folder) / "mor_compacted")
        print(f"{table}\n")
        show("Timeline", table.inspect.timeline())
        show("File slices", table.inspect.file_slices().drop_columns(["bytes", "file_id"]))
        rows = table.read(columns=table.schema.data_columns)
        show("Rows, read without Spark", rows.to_arrow().sort_by("id"))
        first = table.inspect.timeline()["completed"][0].as_py()
        feed = table.changes(since=first, columns=["id", "ver", "name"], where="ver > 2")
        show(f"Changes since {first} where ver > 2", feed.to_arrow().sort_by("id"))
        spark = (
            SparkSession.builder.master("local[2]")
            .appName("pyhudi demo")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "ERROR")
            .getOrCreate()
        )
        frame = rows.to_spark(spark)
        print("The same rows in Spark, by partition")
        frame.groupBy("part").agg({"id": "count", "amount": "sum"}).orderBy("part").show()
        same = {tuple(row) for row in frame.collect()} == {
            tuple(row.values()) for row in rows.to_arrow().to_pylist()
        }
        print(f"Spark and the local engine give the same rows: {same}")
        assert same
        write(f"{folder}/orders", spark)
        spark.stop()


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
            buckets=pyhudi.SimpleBuckets(2),
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
    show("The table now", first.read(columns=schema.names).to_arrow().sort_by("id"))
    assert second.read().to_arrow().num_rows == 5
    print(f"Overwritten by Spark: {first.overwrite(rows.where('ts > 3'))}")
    assert second.read().to_arrow().num_rows == 2


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
