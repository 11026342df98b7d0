"""Run by `test_connect_writes.py` in a process of its own: Connect and classic do not mix.

Usage: connect_write.py TABLE STEPS [STRATEGY], where the steps are JSON, [verb, source, options]
each, and the strategy is one of early detection. Prints a line for each: the class of the session's
module, and the rows that the local engine reads then. With a strategy, a write that yields prints
its facts instead, and ends the run. Markers are asked for from a service, which there is not
through Connect: the last line has the warnings.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

from pyspark.sql import SparkSession

import pyhudi
from pyhudi.write.markers.kind import MarkerServiceWarning


def write(path: str, steps: list[list[Any]], strategy: str | None = None) -> None:
    builder = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "2")
    spark = builder.getOrCreate()
    early = pyhudi.EarlyDetection(strategy=strategy)
    settings = pyhudi.WriteSettings(early_detection=early, markers=pyhudi.Markers.SERVER)
    table = pyhudi.open_table(path, write_settings=settings)
    for verb, source, options in steps:
        if isinstance(source, dict):
            source = spark.createDataFrame(list(map(tuple, source["rows"])), source["columns"])
        try:
            getattr(table, verb)(source, **options)
        except pyhudi.EarlyConflictError as error:
            print(json.dumps([type(spark).__module__, error.facts]))
            break
        rows = table.read().to_arrow().to_pylist()
        print(json.dumps([type(spark).__module__, [list(row.values()) for row in rows]]))
    spark.stop()


def main(*arguments: Any) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default", MarkerServiceWarning)
        write(*arguments)
    found = [str(each.message) for each in caught if each.category is MarkerServiceWarning]
    print(json.dumps({"warnings": found}))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), *sys.argv[3:])
