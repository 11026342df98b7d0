"""pyhudi's side of `writes.py`, and with the word `parquet` that of plain parquet files in Spark.

With the word `consistent` a table has consistent buckets, and simple ones otherwise.

Plain parquet is the limit: it has no keys, so its "upsert" only adds files, and its scans merge
nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from side import (
    ORDERING,
    PARTITION,
    RECORD_KEY,
    Row,
    own_stdout,
    serve_engine,
    source_frame,
    start_session,
)

import pyhudi


def serve_pyhudi(sink: TextIO, session: SparkSession, buckets: Any) -> None:
    """Every step opens the table anew, as a job that does one thing would."""

    def hello() -> Row:
        return {"spark": session.version, "pyhudi": pyhudi.__version__}

    def load(table: str, source: str, how: str) -> Row:
        created = pyhudi.create_table(
            table,
            pq.read_schema(next(Path(source).glob("*.parquet"))),
            record_key=RECORD_KEY,
            partition_by=PARTITION,
            ordering=ORDERING,
            buckets=buckets if how == "append" else pyhudi.SimpleBuckets(int(how)),
            upkeep=False,
        )
        created.append(source_frame(session, source))
        return {}

    def upsert(table: str, source: str) -> Row:
        pyhudi.open_table(table).upsert(source_frame(session, source))
        return {}

    def frame(table: str, columns: Sequence[str]) -> DataFrame:
        return pyhudi.open_table(table).read(columns=columns).to_spark(session)

    serve_engine(sink, hello, load, upsert, frame)


def serve_parquet(sink: TextIO, session: SparkSession) -> None:
    def add(table: str, source: str, how: str = "write") -> Row:
        source_frame(session, source).write.partitionBy(PARTITION).mode("append").parquet(table)
        return {}

    def frame(table: str, columns: Sequence[str]) -> DataFrame:
        return session.read.parquet(table).select(*columns)

    serve_engine(sink, lambda: {"spark": session.version}, add, add, frame)


def main(engine: str, buckets: str) -> None:
    sink = own_stdout()
    session = start_session({})
    if engine == "parquet":
        serve_parquet(sink, session)
    elif engine == "consistent":
        serve_pyhudi(sink, session, pyhudi.ConsistentBuckets(initial=int(buckets)))
    else:
        serve_pyhudi(sink, session, pyhudi.SimpleBuckets(int(buckets)))
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
