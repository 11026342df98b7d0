"""Spark's own parquet scan against our tasks, by the number of base files.

Both read the same small plain slices and sum one column. What grows with the number of files is the
driver's work on explicit paths; `NATIVE_FILES_MAX` stands where that has eaten up what the native
scan saves.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyarrow as pa
from measure import best_of

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from handmade import HandmadeTable

FILES = (10, 100, 250, 500, 1000)
ROWS = 500
SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64()), ("text", pa.string())])


def build(folder: Path, files: int) -> HandmadeTable:
    from pyhudi.storage.open import open_storage

    made = HandmadeTable(open_storage(str(folder)), SCHEMA)
    rows = [{"id": f"{n:036}", "n": n, "text": f"{n:060x}"} for n in range(ROWS)]
    made.begin(1)
    first = made.base(1, rows, file_id="00000000-0")
    data = made.storage.read(first)
    paths = [first.replace("00000000-0", f"{n:08}-0") for n in range(files)]
    for path in paths[1:]:
        made.storage.write(path, data)
    made.complete(1, 2, paths)
    return made


def main() -> bool:
    from pyspark.sql import SparkSession

    import pyhudi
    from pyhudi.spark import scan as spark_scan

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    print(f"spark_paths: files of {ROWS} rows; wall seconds of a sum over one column")
    print(f"  {'files':>6} {'native':>8} {'tasks':>8}")
    limit = spark_scan.NATIVE_FILES_MAX
    for files in FILES:
        with tempfile.TemporaryDirectory() as folder:
            uri = build(Path(folder), files).storage.uri
            scan = pyhudi.open_table(uri).read(columns=["n"])

            def total(files_max: int, scan: pyhudi.Scan = scan) -> int:
                spark_scan.NATIVE_FILES_MAX = files_max
                row = scan.to_spark(spark).groupBy().sum("n").first()
                assert row is not None
                return int(row[0])

            assert total(1 << 30) == total(0) == files * sum(range(ROWS))
            best = best_of(2, {"native": lambda: total(1 << 30), "tasks": lambda: total(0)})
        native, tasks = (best[name].wall_s for name in ("native", "tasks"))
        print(f"  {files:>6} {native:>8.2f} {tasks:>8.2f}", flush=True)
    spark_scan.NATIVE_FILES_MAX = limit
    spark.stop()
    return True


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
