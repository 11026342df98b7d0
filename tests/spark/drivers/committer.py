"""A driver that commits one thing after the other to a table, beside other drivers that do so too.

Usage: committer.py NAME SETTINGS, which are JSON. Says when its session is there, then reads a task
a line: a table and commits. It prints a line for each commit as soon as it has returned, and one
more when all are done. `spark/committers.py` is the other side.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import pyhudi

#: How often one commit is tried again before something else must be wrong.
CONFLICTS_MAX = 20
AWAIT_S = 300  # on a machine that has much to do, too
_TICK_S = 0.01


def await_files(paths: Iterable[str]) -> None:
    """Signals are empty files, for whose input and whose driver it is may be two processes."""
    end = time.monotonic() + AWAIT_S
    for path in map(Path, paths):
        while not path.exists():
            if time.monotonic() > end:
                raise TimeoutError(f"{path.name} did not come")
            time.sleep(_TICK_S)


def frame(spark: SparkSession, commit: dict[str, Any]) -> DataFrame:
    """The input of a commit, which says when it is computed, and perhaps waits for others."""
    given = spark.createDataFrame(map(tuple, commit["rows"]), commit["columns"])
    signals = commit["signals"]
    if "begun" not in signals:
        return given

    def compute(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        Path(signals["begun"]).touch()
        await_files(signals["completes_after"])
        yield from batches

    return given.mapInArrow(compute, given.schema)


def committed(spark: SparkSession, table: pyhudi.Table, commit: dict[str, Any]) -> dict[str, Any]:
    """Write until no other writer was first, as a job that knows its rows does."""
    conflicts: list[dict[str, Any]] = []
    await_files(commit["signals"].get("begins_after", ()))
    while True:
        try:
            given = frame(spark, commit)
            result = getattr(table, commit["verb"])(given, **commit["options"])
        except pyhudi.ConflictError as error:
            conflicts.append({"text": str(error), "facts": error.facts})
            if len(conflicts) > CONFLICTS_MAX:
                raise
            continue
        if done := commit["signals"].get("done"):
            Path(done).touch()
        return {
            "commit": commit["name"],
            "instant": result.instant,
            "completed": result.completed,
            "retries": result.retries,
            "conflicts": conflicts,
        }


def say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


def main(name: str, settings: dict[str, str]) -> None:
    builder = SparkSession.builder.master("local[1]").appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    say({"ready": spark.version})
    for line in sys.stdin:
        task = json.loads(line)
        writer = pyhudi.WriteSettings(**task["settings"])
        table = pyhudi.open_table(task["table"], write_settings=writer, progress=False)
        for commit in task["commits"]:
            say(committed(spark, table, commit))
        say({"done": True})


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
