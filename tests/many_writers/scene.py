"""A table in memory, and writes that stop where a test wants something to happen in between.

A held write is a real one: a verb of `Table`, run by a thread that moves only while the test waits
for it. So whatever order of begins, files and completions a test asks for is the order there is,
and the same test always goes the same way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from datetime import UTC
from enum import StrEnum
from typing import Any

import pyarrow as pa

from memory_tables import TIMELINE, MemoryTable
from pyhudi.api.table import Table
from pyhudi.commit.transaction import Transaction
from pyhudi.format.files.file_names import parse_data_file
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.concurrency_mode import ConcurrencyMode
from pyhudi.format.table.conflict_strategy import CONFLICT_STRATEGY, Strategy
from pyhudi.format.table.table_config import TableConfig, TableType
from pyhudi.read.load import PROPERTIES, TableLoader, load_config
from pyhudi.session.session import TableSession
from pyhudi.storage.protocol import Storage
from pyhudi.storage.stores.memory import MemoryStorage
from pyhudi.timeline.instant_time import clock_time
from pyhudi.world import World
from pyhudi.write import complete as completing
from pyhudi.write import write as writing
from pyhudi.write import write_id
from pyhudi.write.intent import WriteIntent
from pyhudi.write.result import WriteResult
from worlds import START_MS, Clock, still_world

SCHEMA = pa.schema(
    [("id", pa.string()), ("day", pa.string()), ("ts", pa.int64()), ("by", pa.string())]
)

#: What a key's row is, for a test: its ordering value and who wrote it.
Content = dict[str, tuple[int, str]]
Act = Callable[[Table], WriteResult]

Definition = dict[str, Any]
NBCC: Definition = {"ordering": "ts"}
OCC: Definition = {"ordering": "ts", "concurrency": ConcurrencyMode.OPTIMISTIC}
COW: Definition = {"ordering": "ts", "table_type": TableType.COPY_ON_WRITE}
#: Kinds of tables on which two writes of one file group conflict.
CHECKED: dict[str, Definition] = {"mor": OCC, "cow": COW}
KINDS: dict[str, Definition] = {"nbcc": NBCC, **CHECKED}

#: Every order of two writers' begins and ends: 1 and 2 begin, and end with a dash.
ORDERS = ("1 1- 2 2-", "1 2 1- 2-", "1 2 2- 1-", "2 1 1- 2-", "2 1 2- 1-", "2 2- 1 1-")

_PATIENCE_S = 60


def rows(by: str, *ids: str, ts: int = 1, day: str = "mo") -> pa.Table:
    return pa.Table.from_pylist([{"id": i, "day": day, "ts": ts, "by": by} for i in ids], SCHEMA)


def rows_of(by: str, ordering: dict[str, int], day: str = "mo") -> pa.Table:
    """Rows with an ordering value of their own."""
    return pa.concat_tables(rows(by, id_, ts=ts, day=day) for id_, ts in ordering.items())


def upsert(given: pa.Table) -> Act:
    return lambda table: table.upsert(given)


def append(given: pa.Table) -> Act:
    return lambda table: table.append(given)


class Stop(StrEnum):
    """Where a write can be held."""

    BEGUN = "its instant has begun, and it has written nothing"
    WRITTEN = "its files are there, and it has not asked to be completed"
    NEVER = "it runs to its end"


class HeldWrite:
    """A write of its own process, which is stopped once at each place it is told."""

    def __init__(self, act: Callable[[], WriteResult]) -> None:
        self._act = act
        self._stop = Stop.NEVER
        self._result: WriteResult | None = None
        self._error: BaseException | None = None
        self._ours, self._theirs = threading.Semaphore(0), threading.Semaphore(0)
        self._is_over = False
        self.requested = ""
        _let_writes_be_held()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def run_to(self, stop: Stop) -> HeldWrite:
        """Let it go on until it is there, or has failed before."""
        self._stop = stop
        if not self._is_over:
            self._theirs.release()
            assert self._ours.acquire(timeout=_PATIENCE_S), "the write does not go on"
        return self

    @property
    def is_over(self) -> bool:
        """True if it has ended, in whichever way."""
        return self._is_over

    def finish(self) -> WriteResult:
        """Let it end; its result, or its error."""
        self.run_to(Stop.NEVER)
        self._thread.join(_PATIENCE_S)
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    # -- on its own thread

    def _run(self) -> None:
        _of_thread.held = self
        self._theirs.acquire()
        try:
            self._result = self._act()
        except BaseException as error:
            self._error = error
        self._is_over = True
        self._ours.release()

    def reach(self, stop: Stop) -> None:
        if stop is self._stop:
            self._ours.release()
            self._theirs.acquire()


#: The held write whose thread runs, if it is one's.
_of_thread = threading.local()


def _registered(session: TableSession, transaction: Transaction, intent: WriteIntent) -> Any:
    held: HeldWrite | None = getattr(_of_thread, "held", None)
    if held is not None:
        held.requested = transaction.requested
        held.reach(Stop.BEGUN)
    return write_id.registered(session, transaction, intent)


def _complete(*args: Any, **kwargs: Any) -> Any:
    held: HeldWrite | None = getattr(_of_thread, "held", None)
    if held is not None:
        held.reach(Stop.WRITTEN)
    return completing.complete(*args, **kwargs)


def _let_writes_be_held() -> None:
    """Have every write ask whether its thread is one's of a held write; others pass through."""
    writing.registered = _registered  # type: ignore[attr-defined]
    writing.complete = _complete  # type: ignore[attr-defined]


class Scene(MemoryTable):
    """A table of three days, and the processes that write and read it."""

    def __init__(self, *, strategy: Strategy | None = None, **definition: Any) -> None:
        given = {"partition_by": "day", "buckets": SimpleBuckets(1), **definition}
        super().__init__(SCHEMA, **given)
        self.skews_ms: dict[str, int] = {}
        self._config: TableConfig | None = None  # for readers: a table keeps what it is
        if strategy is not None:
            line = f"{CONFLICT_STRATEGY}={strategy.class_name}\n".encode()
            self.storage.write(PROPERTIES, self.storage.read(PROPERTIES) + line)

    def copy(self) -> Scene:
        """The same table again, which goes its own way from here."""
        made = copy(self)
        made.clock = Clock(self.clock.ms)
        made.storage = MemoryStorage(lambda: made.clock.ms)
        made.skews_ms = dict(self.skews_ms)
        for stat in self.storage.list(""):
            made.storage.write(stat.path, self.storage.read(stat.path))
        return made

    def world(self, label: str) -> World:
        return still_world(self.clock, label, skew_ms=self.skews_ms.get(label, 0))

    def at(self, second: int) -> None:
        """Let the clock be so many seconds after the beginning of time."""
        assert self.clock.ms <= START_MS + second * 1000, "time does not go back"
        self.clock.ms = START_MS + second * 1000

    def hold(
        self,
        label: str,
        act: Act,
        stop: Stop = Stop.WRITTEN,
        *,
        storage: Storage | None = None,
        **settings: Any,
    ) -> HeldWrite:
        """Begin a write, and stop it there."""
        table = self.table(label, storage, **settings)
        return HeldWrite(lambda: act(table)).run_to(stop)

    def content(self, reader: Table | None = None, **point: Any) -> Content:
        """What a reader sees, by key; without one, a reader that has no past. No key is twice."""
        if self._config is None:
            self._config = load_config(self.storage)
        loader = TableLoader(self.storage, self._config)
        reader = reader or Table(loader, self.opening("a reader"))
        found = reader.read(columns=["id", "ts", "by"], **point).to_arrow()
        by_key = {row["id"]: (row["ts"], row["by"]) for row in found.to_pylist()}
        assert len(by_key) == found.num_rows, "a key is there twice"
        return by_key

    def writers(self, **point: Any) -> dict[str, str]:
        """Who wrote each key's row."""
        return {id_: by for id_, (_, by) in self.content(**point).items()}

    def completed(self, *actions: str) -> list[str]:
        """Completed instants, of these actions or of all."""
        done = [name for name in self.names() if "_" in name]
        return [n for n in done if not actions or n.rpartition(".")[2] in actions]

    def leftovers(self) -> list[str]:
        """Data files of instants that did not complete, and the instants that are pending."""
        done = {name[:17] for name in self.completed()}
        paths = (s.path for s in self.storage.list("") if not s.path.startswith(".hoodie/"))
        parsed = ((path, parse_data_file(path.rpartition("/")[2])) for path in paths)
        data = [path for path, name in parsed if name is not None and name.requested not in done]
        return data + self.pending()


_BEGUN: dict[str, Scene] = {}


def begun_scene(*written: pa.Table, **definition: Any) -> Scene:
    """A table into which these rows were written, one upsert after the other.

    It is made once for all tests that want the same, and each has a copy.
    """
    key = repr((definition, [table.to_pylist() for table in written]))
    if key not in _BEGUN:
        scene = Scene(**definition)
        for given in written:
            scene.table("first").upsert(given)
        _BEGUN[key] = scene
    return _BEGUN[key].copy()


@contextmanager
def no_row_is_lost(scene: Scene) -> Iterator[None]:
    """What was there before is there afterwards, and nothing else."""
    before = scene.content()
    yield
    assert scene.content() == before


SHARED: Definition = {"lock": LockKind.FILE}


class ForeignWriter:
    """Another engine on a table with a lock: its timeline files, made by hand.

    As Hudi's writers do, it takes its times from a clock, and leaves no entry in the decision log.
    """

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._storage = scene.storage

    def begin(self, action: str = "deltacommit", plan: bytes = b"", inflight: bytes = b"") -> str:
        requested = self._time()
        word = "inflight" if action == "commit" else f"{action}.inflight"
        self._storage.write(f".hoodie/.heartbeat/{requested}", b"")
        self._storage.write(f"{TIMELINE}/{requested}.{action}.requested", plan)
        self._storage.write(f"{TIMELINE}/{requested}.{word}", inflight)
        return requested

    def complete(self, requested: str, data: bytes, action: str = "deltacommit") -> str:
        completed = self._time()
        self._storage.write(f"{TIMELINE}/{requested}_{completed}.{action}", data)
        self._storage.delete(f".hoodie/.heartbeat/{requested}")
        return completed

    def _time(self) -> str:
        return clock_time(self._scene.clock(), UTC)
