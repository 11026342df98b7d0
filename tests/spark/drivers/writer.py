"""A driver on a cluster, run by `cluster.py` in a process of its own.

Usage: writer.py ARGUMENTS, which are JSON. Reads a command a line, [number, name, arguments],
and prints an answer a line, [number, answer]. Commands run in threads, so a job can be disturbed.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import pyhudi
from pyhudi.spark import shuffle as placing


class Commands:
    """What a test may ask for; each gives what JSON can hold."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def ready(self) -> str:
        return self._spark.version

    def read(self, table: str) -> list[str]:
        """The record keys that tasks of the cluster read."""
        frame = pyhudi.open_table(table).read(columns=["id"]).to_spark(self._spark)
        return sorted(row["id"] for row in frame.collect())

    def write(
        self,
        table: str,
        verb: str,
        source: Any,
        options: dict[str, Any] | None = None,
        settings: dict[str, Any] | None = None,
        strategy: str | None = None,
    ) -> dict[str, Any]:
        early = pyhudi.EarlyDetection(strategy=strategy, period_ms=300)
        chosen = pyhudi.WriteSettings(early_detection=early, **settings or {})
        opened = pyhudi.open_table(table, write_settings=chosen)
        is_fickle = isinstance(source, dict) and "versions" in source
        # Behind a shuffle all attempts of a task would get the rows that were computed first.
        estimate = (lambda frame: 0.0) if is_fickle else placing.estimated_bytes
        with patch.object(placing, "estimated_bytes", estimate):
            result = getattr(opened, verb)(self._input(source), **options or {})
        return {"rows": result.rows, "deletes": result.deletes, "instant": result.instant}

    def cancel(self) -> None:
        self._spark.sparkContext.cancelAllJobs()

    def _input(self, source: Any) -> Any:
        if not isinstance(source, dict):
            return source
        if "versions" in source:
            return self._fickle(**source)
        return self._spark.createDataFrame(map(tuple, source["rows"]), source["columns"])

    def _fickle(self, versions: list[Any], columns: str, folder: str) -> DataFrame:
        """Rows that are others each time they are computed."""
        names = [column.partition(" ")[0] for column in columns.split(", ")]

        def compute(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _ in batches:
                for number, rows in enumerate(versions):
                    try:
                        (Path(folder) / str(number)).touch(exist_ok=False)
                    except FileExistsError:
                        continue
                    yield pa.RecordBatch.from_pylist(
                        [dict(zip(names, row, strict=True)) for row in rows]
                    )
                    break

        return self._spark.range(0, 1, 1, 1).mapInArrow(compute, columns)


def _serve(commands: Commands) -> None:
    turn = threading.Lock()

    def answer(number: int, run: Callable[..., Any], arguments: dict[str, Any]) -> None:
        try:
            found = run(**arguments)
        except Exception as error:
            facts = getattr(error, "facts", None)
            found = {"error": type(error).__name__, "text": str(error), "facts": facts}
        with turn:
            print(json.dumps([number, found]), flush=True)

    for line in sys.stdin:
        number, name, arguments = json.loads(line)
        run = getattr(commands, name)
        threading.Thread(target=answer, args=(number, run, arguments), daemon=True).start()


def main(arguments: dict[str, Any]) -> None:
    builder = SparkSession.builder.master(arguments["master"]).appName(arguments["name"])
    for name, value in arguments["settings"].items():
        builder = builder.config(name, value)
    _serve(Commands(builder.getOrCreate()))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
