"""A writer of `many_writers.py` in a process of its own: pyhudi's local engine, or pyhudi in Spark.

The local engine's storage and world are watched from outside, which shows what no result has:
how long a lock was held, how often another writer was first to the log's next number, and how long
this one then waited. Both are constructor arguments, so nothing of the engine is replaced.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
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
from pyhudi.storage.locks.file_lock import LOCK_PATH
from pyhudi.storage.open import open_storage
from pyhudi.storage.protocol import ObjectStat, Storage
from pyhudi.world import World, real_world

#: A driver that shares the machine with others.
SESSION = {"spark.master": "local[1]", "spark.driver.memory": "1g"}
SETTINGS = pyhudi.WriteSettings()
#: Whole calls that may fail before the workload does.
CALLS_MAX = 50


@dataclass
class Watch:
    """What was seen of one writer. Times are milliseconds."""

    holds: list[tuple[float, float]] = field(default_factory=list)  # held, and of that slept
    completions: list[float] = field(default_factory=list)  # from the log's end to the file
    races_lost: int = 0
    backed_off_ms: float = 0.0

    _held_since: float | None = None
    _slept_ms: float = 0.0
    _end_read_at: float = 0.0
    _is_decided: bool = False

    def locked(self) -> None:
        self._held_since, self._slept_ms = _now_ms(), 0.0

    def unlocked(self) -> None:
        if self._held_since is not None:
            self.holds.append((_now_ms() - self._held_since, self._slept_ms))
        self._held_since = None

    def slept(self, ms: float) -> None:
        if self._held_since is None:
            self.backed_off_ms += ms
        else:
            self._slept_ms += ms

    def read_end(self) -> None:
        if not self._is_decided:  # else it is the look behind the decision
            self._end_read_at = _now_ms()

    def decided(self, *, is_won: bool) -> None:
        self.races_lost += not is_won
        self._is_decided = is_won

    def published(self, path: str) -> None:
        if self._is_decided and path.endswith(".deltacommit"):
            self.completions.append(_now_ms() - self._end_read_at)
        self._is_decided = False

    def world(self) -> World:
        real = real_world()

        def sleep_ms(ms: int) -> None:
            started = _now_ms()
            real.sleep_ms(ms)
            self.slept(_now_ms() - started)

        return replace(real, sleep_ms=sleep_ms)


def _now_ms() -> float:
    return time.perf_counter() * 1000


class WatchedStorage:
    """Another storage, of which a few calls are noted."""

    def __init__(self, inner: Storage, watch: Watch) -> None:
        self._inner = inner
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create(self, path: str, data: bytes) -> bool:
        is_new = self._inner.create(path, data)
        if path == LOCK_PATH and is_new:
            self._watch.locked()
        elif path.startswith(LOG_FOLDER):
            self._watch.decided(is_won=is_new)
        elif path.startswith(".hoodie/timeline/"):
            self._watch.published(path)
        return is_new

    def delete(self, path: str) -> None:
        self._inner.delete(path)
        if path == LOCK_PATH:
            self._watch.unlocked()

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectStat]:
        if prefix.startswith(LOG_FOLDER):
            self._watch.read_end()
        return self._inner.list(prefix, after=after)


# -- what a writer does


@dataclass
class Tally:
    """What the upserts of one writer came to. The table itself has notes of what they lost."""

    writes: int = 0
    attempts: int = 0
    recommits: int = 0  # conflicts after which only the commit had to be repeated
    calls_failed: int = 0  # after all the retries that the engine makes by itself

    def upsert(self, call: Callable[[], pyhudi.WriteResult]) -> None:
        """Call until it succeeds."""
        self.writes += 1
        for _ in range(CALLS_MAX):
            try:
                result = call()
            except pyhudi.ConflictError:
                self.attempts += 1 + SETTINGS.conflict_retries
                self.calls_failed += 1
            else:
                self.attempts += 1 + result.retries
                self.recommits += result.recommits
                return
        raise RuntimeError(f"{CALLS_MAX} calls of one upsert have lost")


@cache
def read_rows(source: str) -> pa.Table:
    return pq.read_table(source)


def prepare(sources: list[str]) -> Row:
    """Have the input in memory, where the local engine's users have it."""
    for source in sources:
        read_rows(source)
    return {}


def create(table: str, mode: str, lock: str, buckets: int, source: str) -> Row:
    """A table with these rows in it, so that all buckets are there."""
    rows = read_rows(source)
    pyhudi.create_table(
        table,
        rows.schema,
        record_key=RECORD_KEY,
        partition_by=PARTITION,
        ordering=ORDERING,
        buckets=pyhudi.SimpleBuckets(buckets),
        concurrency=mode,
        lock=lock,
        upkeep=False,
    ).upsert(rows)
    return {}


def upsert_here(table: str, mode: str, sources: list[str]) -> Row:
    watch, tally = Watch(), Tally()
    storage: Any = WatchedStorage(open_storage(table), watch)
    opening = OpenTable(storage, watch.world(), SETTINGS, Overrides())
    opened = pyhudi.Table(TableLoader(storage, load_config(storage)), opening)
    holds: list[list[tuple[float, float]]] = []
    for source in sources:
        tally.upsert(partial(opened.upsert, read_rows(source)))
        holds.append(watch.holds)
        watch.holds = []
    return {
        **asdict(tally),
        "holds": holds,  # of each upsert
        "completions": watch.completions,
        "races_lost": watch.races_lost,
        "backed_off_s": watch.backed_off_ms / 1000,
    }


def spark_commands() -> dict[str, Callable[..., Row]]:
    session = start_session(SESSION)

    def upsert(table: str, mode: str, sources: list[str]) -> Row:
        tally, opened = Tally(), pyhudi.open_table(table, write_settings=SETTINGS)
        for source in sources:
            tally.upsert(partial(opened.upsert, source_frame(session, source)))
        return asdict(tally)

    return {"hello": lambda: hello(spark=session.version), "upsert": upsert}


def hello(**versions: str) -> Row:
    return {"pid": os.getpid(), "pyhudi": pyhudi.__version__, **versions}


def main(engine: str) -> None:
    sink = own_stdout()
    here = {"hello": hello, "create": create, "prepare": prepare, "upsert": upsert_here}
    serve(sink, here if engine == "local" else {**here, **spark_commands()})


if __name__ == "__main__":
    main(*sys.argv[1:])
