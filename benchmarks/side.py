"""What the programs that `writes.py` starts have in common: a Spark session and a way to be asked.

Commands come as JSON lines and each is answered by one line, as the judges of the conformance suite
do it, so their client serves here too. This file runs in both environments and knows neither
engine.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from pyspark.sql import DataFrame, SparkSession

#: The columns of every table: 11, about 200 bytes a row.
COLUMNS = {
    "id": "STRING",
    "part": "STRING",
    "ts": "BIGINT",
    **{f"n{i}": "BIGINT" for i in range(3)},
    **{f"d{i}": "DOUBLE" for i in range(2)},
    **{f"s{i}": "STRING" for i in range(3)},
}
AGGREGATED = ("ts", "n0", "n1")
RECORD_KEY, PARTITION, ORDERING = "id", "part", "ts"
CODEC = "zstd"

#: The same for all engines; everything else is Spark's default.
SESSION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "6g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": CODEC,
    "spark.log.level": "ERROR",
    "spark.python.daemon.module": "waited_daemon",  # killed workers count, too
    "spark.executorEnv.PYTHONPATH": str(Path(__file__).parent),
}

Row = dict[str, Any]
Command = Callable[..., Row]


def start_session(settings: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("benchmark")
    for key, value in {**SESSION, **settings}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")  # Spark 3.5 does not know the setting
    return session


def source_frame(session: SparkSession, folder: str) -> DataFrame:
    """The input of a step. Its schema is given, so that no job is spent on finding it."""
    schema = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    return session.read.schema(schema).parquet(folder)


def aggregate(frame: DataFrame) -> Row:
    """Three columns of all rows."""
    found = frame.selectExpr("count(*)", "sum(ts)", "sum(n0)", "sum(n1)").first()
    assert found is not None
    return dict(zip(("rows", "ts", "n0", "n1"), found, strict=True))


def scan(frame: DataFrame) -> Row:
    """All columns of all rows, to nowhere."""
    frame.select(*COLUMNS).write.format("noop").mode("overwrite").save()
    return {}


def digest(frame: DataFrame) -> Row:
    """A number that differs as soon as one value of one row does; not timed."""
    found = frame.selectExpr("count(*)", f"bit_xor(xxhash64({', '.join(COLUMNS)}))").first()
    assert found is not None
    return {"rows": found[0], "digest": found[1]}


def own_stdout() -> TextIO:
    """Keep stdout for answers: whatever the JVM prints, from its start on, goes to stderr."""
    sink = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return sink


def serve(sink: TextIO, commands: Mapping[str, Command]) -> None:
    """Answer until the input ends."""
    for line in sys.stdin:
        command: Row = json.loads(line)
        try:
            reply = {"ok": True, "rows": [commands[command.pop("cmd")](**command)]}
        except Exception as error:
            traceback.print_exc()
            reply = {"ok": False, "error": f"{type(error).__name__}: {str(error)[:2000]}"}
        print(json.dumps(reply), file=sink, flush=True)


def serve_engine(
    sink: TextIO,
    hello: Callable[[], Row],
    load: Command,
    upsert: Command,
    frame: Callable[[str, Sequence[str]], DataFrame],
) -> None:
    """`load(table, source, how)` makes a table anew, `upsert(table, source)` changes it, and
    `frame(table, columns)` opens it for reading these columns, as its users would.
    """

    def loaded(table: str, source: str, how: str) -> Row:
        shutil.rmtree(table, ignore_errors=True)
        return load(table, source, how)

    serve(
        sink,
        {
            "hello": lambda: {**hello(), "pid": os.getpid()},
            "load": loaded,
            "upsert": upsert,
            "aggregate": lambda table: aggregate(frame(table, AGGREGATED)),
            "scan": lambda table: scan(frame(table, tuple(COLUMNS))),
            "digest": lambda table: digest(frame(table, tuple(COLUMNS))),
        },
    )
