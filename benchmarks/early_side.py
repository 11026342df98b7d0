"""A writer of `early_writers.py` and `early_rivals.py` in a process of its own: pyhudi's local
engine, or pyhudi in Spark.

A write that loses is not repeated, so what it took is what it lost.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from side import (
    ORDERING,
    PARTITION,
    RECORD_KEY,
    Row,
    own_stdout,
    serve,
    source_frame,
    start_session,
)

import pyhudi
from pyhudi.format.timeline.decision_entry import LOG_FOLDER
from pyhudi.read.load import TableLoader, load_config
from pyhudi.session.open import OpenTable, Overrides
from pyhudi.storage.open import open_storage
from pyhudi.world import real_world

#: A driver that shares the machine with another.
SESSION = {"spark.master": "local[1]", "spark.driver.memory": "1g"}
#: The settings of a writer without early detection of any kind.
OFF: Row = {"check_commits": False}
#: For how long a write is held at most.
HELD_S = 600.0


def hello(**versions: str) -> Row:
    return {"pid": os.getpid(), "pyhudi": pyhudi.__version__, **versions}


@cache
def read_rows(source: str) -> pa.Table:
    return pq.read_table(source)


def prepare(sources: list[str]) -> Row:
    """Have the input in memory, where the local engine's users have it."""
    for source in sources:
        read_rows(source)
    return {}


def create(table: str, buckets: int, sources: list[str]) -> Row:
    """A copy-on-write table with these rows in it, one source after the other."""
    created = pyhudi.create_table(
        table,
        pq.read_table(sources[0]).schema,
        record_key=RECORD_KEY,
        partition_by=PARTITION,
        ordering=ORDERING,
        buckets=pyhudi.SimpleBuckets(buckets),
        table_type="cow",
        upkeep=False,
    )
    for source in sources:
        created.append(pq.read_table(source))
    return {}


def settings_of(early: Mapping[str, Any], markers: str = "direct") -> pyhudi.WriteSettings:
    return pyhudi.WriteSettings(
        early_detection=pyhudi.EarlyDetection(**early),
        markers=pyhudi.Markers(markers),
        conflict_retries=0,
    )


def opened_on(storage: Any, settings: pyhudi.WriteSettings) -> pyhudi.Table:
    opening = OpenTable(storage, real_world(), settings, Overrides())
    return pyhudi.Table(TableLoader(storage, load_config(storage)), opening)


def upsert(table: str, rows: Any, early: Mapping[str, Any], markers: str) -> Row:
    """Write once; say when it ended, and how."""
    began = time.perf_counter()
    told: Row = {"is_lost": False}
    try:
        opened = pyhudi.open_table(table, write_settings=settings_of(early, markers))
        opened.upsert(rows)
    except pyhudi.ConflictError as error:
        told = {"is_lost": True, **{name: error.facts.get(name) for name in ("found", "strategy")}}
    return {**told, "wall_s": time.perf_counter() - began, "ended": time.monotonic()}


def upsert_here(table: str, source: str, early: Row, markers: str) -> Row:
    return upsert(table, read_rows(source), early, markers)


class Held:
    """A write in a thread, which is held where it asks to be completed, or has so many files."""

    def __init__(self, table: str, source: str, files_max: int | None) -> None:
        self._is_there, self._may_go_on = threading.Event(), threading.Event()
        self._inner = open_storage(table)
        self._files_max = files_max
        self.files = 0
        opened = opened_on(self, settings_of(OFF))
        self._thread = ThreadPoolExecutor(1)
        self._result = self._thread.submit(opened.upsert, read_rows(source))
        assert self._is_there.wait(HELD_S), "the write did not get where it is held"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create_from(self, path: str, chunks: Iterator[bytes]) -> int | None:
        if self.files == self._files_max:
            self._wait()
        self.files += 1
        return self._inner.create_from(path, chunks)

    def create(self, path: str, data: bytes) -> bool:
        if path.startswith(LOG_FOLDER) and self.files:
            self._wait()
        return self._inner.create(path, data)

    def _wait(self) -> None:
        self._is_there.set()
        self._may_go_on.wait(HELD_S)

    def release(self) -> bool:
        """Let it go on; True if it completed."""
        self._may_go_on.set()
        try:
            self._result.result(HELD_S)
        except pyhudi.ConflictError:
            return False
        finally:
            self._thread.shutdown()
        return True


_held: list[Held] = []


def hold(table: str, source: str, files_max: int | None = None) -> Row:
    _held.append(Held(table, source, files_max))
    return {"files": _held[-1].files}


def release() -> Row:
    """Let all writes go on that are held; say how many completed, and when the last did."""
    completed = sum([held.release() for held in _held])
    _held.clear()
    return {"completed": completed, "ended": time.monotonic()}


def spark_commands() -> dict[str, Callable[..., Row]]:
    session = start_session(SESSION)

    def upsert_there(table: str, source: str, early: Row, markers: str) -> Row:
        return upsert(table, source_frame(session, source), early, markers)

    return {"hello": lambda: hello(spark=session.version), "upsert": upsert_there}


def main(engine: str) -> None:
    sink = own_stdout()
    here = {
        "hello": hello,
        "create": create,
        "prepare": prepare,
        "upsert": upsert_here,
        "hold": hold,
        "release": release,
    }
    serve(sink, here if engine == "local" else {**here, **spark_commands()})
    release()  # what is still held would keep this process


if __name__ == "__main__":
    main(*sys.argv[1:])
