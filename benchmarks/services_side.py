"""A process of `services.py` that runs pyhudi: its local engine, or with the word `spark` in Spark.

Every step opens the table again, as a job that does one thing would. What has to happen in several
processes at the same moment is timed by the machine's monotonic clock.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from side import (
    COLUMNS,
    ORDERING,
    PARTITION,
    RECORD_KEY,
    Row,
    digest,
    own_stdout,
    serve,
    start_session,
)

import pyhudi
from pyhudi.services.compaction.result import Compacted

FUEL = bytes(100_000)
#: What happens beside writers; they are alone otherwise.
ALONE, COMPACTION, BURNER = "alone", "beside compaction", "beside a burner"


def hello(**versions: str) -> Row:
    return {"pid": os.getpid(), "pyhudi": pyhudi.__version__, **versions}


@cache
def read_rows(source: str) -> pa.Table:
    return pq.read_table(source)


def build(table: str, buckets: int, load: str, upserts: list[str]) -> Row:
    """A table with base files, and in every slice as many logs as there are upserts.

    The local engine writes logs, so base files are made of the first rows by a compaction.
    """
    first = read_rows(load)
    created = pyhudi.create_table(
        table,
        first.schema,
        record_key=RECORD_KEY,
        partition_by=PARTITION,
        ordering=ORDERING,
        buckets=pyhudi.SimpleBuckets(buckets),
        upkeep=False,
    )
    created.append(first)
    compacted(table)
    for source in upserts:
        created.upsert(read_rows(source))
    return shape(table)


def shape(table: str) -> Row:
    """How many slices a reader of the table merges, and the logs of all and of the least."""
    slices = [read.slice for read in pyhudi.open_table(table).read().plan.reads]
    logs = [len(slice_.logs) for slice_ in slices]
    return {
        "slices": len(slices),
        "bases": sum(slice_.base is not None for slice_ in slices),
        "logs": sum(logs),
        "least": min(logs),
    }


def compacted(table: str, spark: SparkSession | None = None) -> Compacted:
    return pyhudi.open_table(table).services.compact(spark=spark)


def compact_once(table: str, spark: SparkSession | None = None) -> Row:
    done = compacted(table, spark)
    [result] = done.results
    assert not done.pending, "a plan was not executed"
    return {"groups": result.file_groups, "logs": result.log_files, "rows": result.rows}


# -- side by side


def sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


def upsert_between(table: str, source: str, ts: int, begin: float, end: float) -> Row:
    """The same keys again and again, each time newer than `ts`: when it began and ended each."""
    rows, opened = read_rows(source), pyhudi.open_table(table)
    place = rows.schema.get_field_index(ORDERING)

    def upsert() -> None:
        nonlocal ts
        ts += 1
        opened.upsert(rows.set_column(place, ORDERING, pa.array([ts] * rows.num_rows)))

    for _ in range(3):  # so that it knows the table, and its own code
        upsert()
    sleep_until(begin)
    moments = [time.monotonic()]
    while moments[-1] < end:
        upsert()
        moments.append(time.monotonic())
    return {"moments": moments, "ts": ts}


def take_turns(table: str, order: list[str], begin: float, end: float) -> Row:
    """What `order` says, over and over. Whatever is no compaction takes as long as the last one
    did, and the burner as much CPU; the spans say what, from when to when, and on how many cores.
    """
    sleep_until(begin)
    spans, lasts_s, cores = [], 0.0, 0.0
    for what in itertools.cycle(order):
        started, cpu = time.monotonic(), time.process_time()
        if started >= end:
            return {"spans": spans}
        if what == COMPACTION:
            assert compacted(table).results, "there was nothing to compact"
        elif what == BURNER:
            burn(cores, started, started + lasts_s)
        else:
            sleep_until(started + lasts_s)
        ended = time.monotonic()
        taken = (time.process_time() - cpu) / (ended - started)
        if what == COMPACTION:
            lasts_s, cores = ended - started, taken
        spans.append({"what": what, "begin": started, "end": ended, "cores": taken})
    raise AssertionError("the order is empty")


def burn(cores: float, begin: float, end: float) -> None:
    """Use as much CPU as is asked for, in as many threads as that takes, and do nothing."""
    threads = max(1, math.ceil(cores))
    with ThreadPoolExecutor(threads) as pool:
        for burnt in [pool.submit(_burn, cores / threads, begin, end) for _ in range(threads)]:
            burnt.result()


def _burn(share: float, begin: float, end: float) -> None:
    """A share of one core; where it was kept waiting, it makes up for that."""
    burnt = time.thread_time()
    while (now := time.monotonic()) < end:
        if time.thread_time() - burnt < share * (now - begin):
            hashlib.sha256(FUEL)  # lets other threads run meanwhile
        else:
            time.sleep(0.001)


def newest(table: str, last: list[int]) -> Row:
    """How many rows and keys there are, and how many rows have each of the last values."""
    read = pyhudi.open_table(table).read(columns=[RECORD_KEY, ORDERING]).to_arrow()
    counts = {row["values"]: row["counts"] for row in read[ORDERING].value_counts().to_pylist()}
    keys = len(read[RECORD_KEY].unique())
    return {"rows": read.num_rows, "keys": keys, "last": [counts.get(ts, 0) for ts in last]}


def spark_commands() -> dict[str, Callable[..., Row]]:
    session = start_session({})

    def digested(table: str) -> Row:
        return digest(pyhudi.open_table(table).read(columns=list(COLUMNS)).to_spark(session))

    return {
        "hello": partial(hello, spark=session.version),
        "compact": partial(compact_once, spark=session),
        "digest": digested,
    }


def main(engine: str) -> None:
    sink = own_stdout()
    commands: dict[str, Callable[..., Row]] = {
        "hello": hello,
        "build": build,
        "shape": shape,
        "compact": compact_once,
        "upsert": upsert_between,
        "take turns": take_turns,
        "newest": newest,
    }
    serve(sink, commands if engine == "local" else {**commands, **spark_commands()})


if __name__ == "__main__":
    main(*sys.argv[1:])
