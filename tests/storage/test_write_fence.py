"""The fence holds in every order in which a late task and the driver can act, and after a crash.

The real task function and the real writer run in two threads over one storage in memory, and take
turns: before each storage operation that the other could notice, it is open who goes on. All
schedules are tried. Planted faults show that a violation would be found.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from as_by_spark import FencedExecutor, written_by
from faulty_storage import FaultyStorage
from memory_tables import TIMELINE, MemoryTable
from pyhudi.commit.transaction import Transaction
from pyhudi.errors import HudiError, InvalidRequestError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.timeline.commit_metadata import WriteStat, decode_commit_metadata
from pyhudi.index.simple_bucket import file_id
from pyhudi.services.repair import GRACE_MS, repair_table
from pyhudi.storage.objects.heartbeats import HEARTBEAT_FOLDER, heartbeat_path
from pyhudi.storage.objects.markers import load_markers, marker_objects
from pyhudi.storage.objects.write_fence import (
    FENCE_FOLDER,
    fence_path,
    may_create_file,
    raise_fence,
    remove_fence,
)
from pyhudi.storage.protocol import Storage
from pyhudi.write.files import log_file as log_writer
from pyhudi.write.files import spec as write_files
from pyhudi.write.files.log_file import write_log
from pyhudi.write.files.spec import KeyedRows, WriteSpec
from pyhudi.write.intent import Reads, WriteIntent
from pyhudi.write.plan import WritePlan
from pyhudi.write.watch import Watch

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("ts", pa.int64())])
ROWS = pa.table({"id": ["a", "b", "c", "d"], "day": ["d0"] * 4, "ts": [1] * 4}, schema=SCHEMA)
MARKERS = ".hoodie/.temp"
CHANGES = frozenset({"create", "create_from", "replace", "write", "delete"})


class Crash(BaseException):
    """The process is gone: whatever it still tries does not reach storage."""


class Party:
    """A thread that waits at each of its operations until it is let on."""

    def __init__(self, function: Callable[[], object]) -> None:
        self.pending: tuple[str, str] | None = None  # operation and path, while it waits
        self.outcome: object = None
        self._failure: BaseException | None = None  # what no test expects
        self.is_over = self.is_crashed = False
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, args=(function,), daemon=True)

    def start(self) -> None:
        """Run to the first operation that counts."""
        self._thread.start()
        self._wait()

    def _wait(self) -> None:
        self._back.acquire()
        if self._failure is not None:
            raise self._failure

    def _run(self, function: Callable[[], object]) -> None:
        try:
            self.outcome = function()
        except (HudiError, Crash) as error:
            self.outcome = error
        except BaseException as error:
            self._failure = error
        self.is_over, self.pending = True, None
        self._back.release()

    def reached(self, operation: str, path: str) -> None:
        """Called in the thread, before the operation."""
        if threading.current_thread() is self._thread and not self.is_crashed:
            self.pending = operation, path
            self._back.release()
            self._go.acquire()
        if self.is_crashed:
            raise Crash

    def step(self) -> None:
        """Do the pending operation, and run to the next."""
        assert not self.is_over
        self._go.release()
        self._wait()

    def crash(self) -> None:
        self.is_crashed = True
        self._go.release()
        self._wait()
        assert self.is_over


class Watched(FaultyStorage):
    """Storage that tells a party of each operation."""

    def __init__(self, inner: Storage, reached: Callable[[str, str], None]) -> None:
        super().__init__(inner)
        self._reached = reached

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in {*CHANGES, "read", "stat", "list", "list_folder", "open"}:
            return found

        def told(path: str, *args: Any, **kwargs: Any) -> Any:
            self._reached(name, path)
            return found(path, *args, **kwargs)

        return told


def kind(path: str) -> str | None:
    """What an operation is about, as far as a task and a driver can notice each other."""
    folders = {FENCE_FOLDER: "fence", HEARTBEAT_FOLDER: "beat", MARKERS: "marker", "d0": "file"}
    return next((what for folder, what in folders.items() if path.startswith(folder)), None)


class Choices:
    """One schedule after the other, until all have been tried."""

    def __init__(self) -> None:
        self._taken: list[tuple[int, int]] = []  # choice, and how many there were
        self._at = 0

    def __call__(self, count: int) -> int:
        if self._at == len(self._taken):
            self._taken.append((0, count))
        chosen, expected = self._taken[self._at]
        assert expected == count, "a run is not repeatable"
        self._at += 1
        return chosen

    def next_run(self) -> bool:
        """Whether there is another schedule."""
        self._at = 0
        while self._taken and self._taken[-1][0] + 1 == self._taken[-1][1]:
            self._taken.pop()
        if not self._taken:
            return False
        chosen, count = self._taken[-1]
        self._taken[-1] = (chosen + 1, count)
        return True


class Bench(MemoryTable):
    """A table with two buckets. A write of bucket 0 is under way, and a task of it is late."""

    def __init__(self) -> None:
        super().__init__(SCHEMA, partition_by="day", ordering="ts", buckets=SimpleBuckets(2))
        self.table().upsert(ROWS)
        self.requested = ""

    def copy(self) -> Bench:
        made = copy.copy(self)
        made.clock = copy.copy(self.clock)
        made.storage = copy.copy(self.storage)
        made.storage._objects = dict(self.storage._objects)
        made.storage._paths = list(self.storage._paths)
        made.storage._now_ms = lambda: made.clock.ms
        return made

    def written(self, storage: Storage, spec: WriteSpec, bucket: int) -> Any:
        batch = ROWS.to_batches()[0]
        rows = KeyedRows(batch, batch.column("id"))
        return write_log(storage, spec, FileGroupId("d0", file_id(bucket)), rows=rows)

    def late_task(self, spec: WriteSpec, party: Callable[[], Party]) -> None:
        """Computed again, the input has rows for a bucket that the first attempt never touched."""
        watched = Watched(self.storage, lambda op, path: self._at_step(party(), op, path))
        self.written(watched, spec, 1)

    def _at_step(self, party: Party, operation: str, path: str) -> None:
        if kind(path) is not None:
            party.reached(operation, path)

    def drive(self, begun: Callable[[WriteSpec], None], party: Callable[[], Party]) -> None:
        is_begun = False

        def reached(operation: str, path: str) -> None:
            if is_begun:
                party().reached(operation, path)

        opening = self.opening("driver", Watched(self.storage, reached))

        class Driver(FencedExecutor):
            def run(_, plan: WritePlan, watch: Watch) -> list[WriteStat]:  # noqa: N805  # two selves
                nonlocal is_begun
                stats = list(self.written(self.storage, plan.spec, 0))
                self.requested = plan.spec.requested
                begun(plan.spec)
                is_begun = True
                return stats

        written_by(opening, Driver(), WriteIntent(operation="UPSERT", reads=Reads.LOCATIONS))

    # -- what counts in the end

    def files(self) -> set[str]:
        """Data files of the write that are there."""
        return {s.path for s in self.storage.list("d0") if self.requested in s.path}

    def named(self) -> set[str] | None:
        """Data files that the completed write names; None if it is not completed."""
        for stat in self.storage.list(TIMELINE):
            if stat.path.startswith(f"{TIMELINE}/{self.requested}_"):
                metadata = decode_commit_metadata(self.storage.read(stat.path), stat.path)
                return {s.data_path for stats in metadata.write_stats.values() for s in stats}
        return None

    def repaired(self, grace_ms: int = GRACE_MS) -> None:
        """As another process does it that finds the driver silent."""
        self.clock.ms += 10 * 60_000
        repair_table(self.session("repair"), grace_ms)

    def swept(self) -> None:
        """As `repaired`, when nobody can be late any more."""
        self.repaired(grace_ms=0)


def run(bench: Bench, choose: Choices, *, with_crash: bool) -> Bench:
    """One schedule to its end."""
    bench = bench.copy()
    parties: dict[str, Party] = {}
    driver = parties["driver"] = Party(
        lambda: bench.drive(
            lambda spec: parties.update(
                task=Party(lambda: bench.late_task(spec, lambda: parties["task"]))
            ),
            lambda: parties["driver"],
        )
    )
    driver.start()
    task = parties["task"]
    task.start()
    if with_crash:
        _crash_somewhere(bench, driver, task, choose)
    else:
        _interleave(driver, task, choose)
    while not task.is_over:
        task.step()
    return bench


def _interleave(driver: Party, task: Party, choose: Choices) -> None:
    """Who goes on is open wherever both have something to do that the other could notice."""
    while not driver.is_over:
        assert driver.pending is not None
        is_open = not task.is_over and kind(driver.pending[1]) is not None
        party = (driver, task)[choose(2)] if is_open else driver
        party.step()


def _crash_somewhere(bench: Bench, driver: Party, task: Party, choose: Choices) -> None:
    """The driver ends before one of its changes. A repair comes, after any step of the task.

    To keep it short, the task only goes on where the order matters: up to its next operation on
    what the driver is about to use.
    """
    while not driver.is_over:
        assert driver.pending is not None
        operation, path = driver.pending
        if operation in CHANGES and choose(2):
            driver.crash()
            break
        if _has_step(task, kind(path)) and choose(2):
            _step_to(task, kind(path))
        driver.step()
    while not task.is_over and not choose(2):
        task.step()
    bench.repaired()


_ORDER = ("marker", "fence", "beat", "file")


def _has_step(task: Party, what: str | None) -> bool:
    if task.is_over or what is None or task.pending is None:
        return False
    now = kind(task.pending[1])
    assert now is not None
    return _ORDER.index(what) >= _ORDER.index(now)


def _step_to(task: Party, what: str | None) -> None:
    while not task.is_over:
        assert task.pending is not None
        is_there = kind(task.pending[1]) == what
        task.step()
        if is_there:
            return


def schedules(bench: Bench, *, with_crash: bool = False) -> Iterator[Bench]:
    choose = Choices()
    while True:
        yield run(bench, choose, with_crash=with_crash)
        if not choose.next_run():
            return


def is_violated(bench: Bench) -> bool:
    """Whether a schedule leaves a file that readers show and the completed write does not name."""
    ends = ((end.files(), end.named()) for end in schedules(bench))
    return any(named is not None and not files <= named for files, named in ends)


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench()


def test_no_schedule_leaves_a_file_that_the_completed_write_does_not_name(bench: Bench) -> None:
    completed = failed = 0
    for end in schedules(bench):
        named = end.named()
        if named is not None:
            completed += 1
            assert end.files() == named
            assert not list(end.storage.list(FENCE_FOLDER)), "the fence stays behind"
        else:
            failed += 1
            end.swept()
            assert end.files() == set()
    assert completed >= 10
    assert failed >= 50


def test_a_crash_of_the_driver_at_any_step_is_repaired(bench: Bench) -> None:
    completed = given_up = 0
    for end in schedules(bench, with_crash=True):
        named = end.named()
        if named is not None:
            completed += 1
            assert end.files() == named
        else:
            given_up += 1
        end.swept()
        assert end.files() == (named or set())
        for folder in (FENCE_FOLDER, HEARTBEAT_FOLDER, MARKERS):
            assert not list(end.storage.list(folder)), folder
    assert completed > 20
    assert given_up > 20


# -- planted faults: each of the rules is needed


def looks_swapped(storage: Storage, requested: str) -> bool:
    if storage.stat(heartbeat_path(requested)) is None:
        return False
    return storage.stat(fence_path(requested)) is None


def test_with_the_two_looks_swapped_a_file_gets_through(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_files, "may_create_file", looks_swapped)
    assert is_violated(bench)


def test_with_the_marker_after_the_look_a_file_gets_through(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    announce = write_files.create_marker

    def look_first(storage: Storage, spec: WriteSpec, path: str, io_type: Any) -> None:
        if spec.is_fenced and not may_create_file(storage, spec.requested):
            raise write_files.WriteOverError("over", why="it is closed", next_step="Nothing")
        unfenced = WriteSpec(spec.requested, spec.avro_schema)
        announce(storage, unfenced, path, io_type)

    monkeypatch.setattr(log_writer, "create_marker", look_first)
    assert is_violated(bench)


def test_with_the_listing_before_the_fence_a_file_gets_through(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close(self: Any, files: Any) -> list[str]:
        storage = self._log.storage
        announced = [marker.data_file for marker in load_markers(storage, self.requested)]
        self._is_closed = True
        raise_fence(storage, self.requested)
        return sorted(set(announced) - set(files))

    monkeypatch.setattr(Transaction, "close", close)
    assert is_violated(bench)


def test_with_the_fence_removed_before_the_heartbeat_a_file_gets_through(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tidy(self: Any) -> None:
        storage = self._log.storage
        for path in marker_objects(storage, self.requested):
            storage.delete(path)
        remove_fence(storage, self.requested)
        self._heartbeat.end()

    monkeypatch.setattr(Transaction, "_tidy", tidy)
    assert is_violated(bench)


def test_without_a_fence_a_file_gets_through(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transaction, "close", lambda self, files: None)
    assert is_violated(bench)


# -- the small functions


def test_a_write_is_open_from_its_heartbeat_to_its_fence() -> None:
    storage = MemoryTable(SCHEMA, buckets=SimpleBuckets(1)).storage
    requested = "20260101000000001"
    assert not may_create_file(storage, requested)
    storage.write(heartbeat_path(requested), b"")
    assert may_create_file(storage, requested)
    raise_fence(storage, requested)
    raise_fence(storage, requested)
    assert not may_create_file(storage, requested)
    storage.delete(heartbeat_path(requested))
    remove_fence(storage, requested)
    remove_fence(storage, requested)
    assert not may_create_file(storage, requested)


def test_the_driver_refuses_to_complete_beside_a_file_it_does_not_know(bench: Bench) -> None:
    bench = bench.copy()

    class Driver(FencedExecutor):
        def run(self, plan: WritePlan, watch: Watch) -> list[WriteStat]:
            stats = bench.written(bench.storage, plan.spec, 0)
            bench.written(bench.storage, plan.spec, 1)
            bench.requested = plan.spec.requested
            return list(stats)

    intent = WriteIntent(operation="UPSERT", reads=Reads.LOCATIONS)
    with pytest.raises(InvalidRequestError, match="two attempts of one task disagree"):
        written_by(bench.opening(), Driver(), intent)
    assert bench.named() is None
    assert bench.files() == set()
    assert bench.table("b").read().to_arrow().num_rows == ROWS.num_rows
