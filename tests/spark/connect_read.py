"""Run by `test_connect.py` in a process of its own: Spark Connect and classic Spark do not mix.

Usage: connect_read.py TABLE; prints the record keys that Spark Connect reads, then those that the
local engine reads.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

import pyhudi


def main(path: str) -> None:
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    scan = pyhudi.open_table(path).read(columns=["_hoodie_record_key"])
    keys = [row["_hoodie_record_key"] for row in scan.to_spark(spark).collect()]
    local = scan.to_arrow()["_hoodie_record_key"].to_pylist()
    print(json.dumps([type(spark).__module__, sorted(keys), sorted(local)]))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
