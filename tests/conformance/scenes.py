"""A table that both engines write, and engines that stop in the midst of a write."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.feather
import pytest

import pyhudi
from conformance.client import JudgeClient
from conformance.combinations import (
    BlockFormat,
    Columns,
    Combination,
    KeyShape,
    MergeMode,
    Partitioning,
    TableKind,
    Version,
)
from conformance.rivals import Deed, Shared, hudi_write, shared_numbers
from conformance.rows import assert_same_rows
from conformance.sample_rows import Row
from conformance.writing import ExpectedTable, create_table
from pyhudi.commit.transaction import Completed, Held, Lost, Transaction
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State, is_timeline_file
from pyhudi.format.timeline.plan_files import decode_rollback_plan
from pyhudi.storage.locks.file_lock import LOCK_PATH

WAIT_S = 60.0  # for what takes a second or two
#: A writer of which nothing is heard for twice as long counts as dead, to those who are told so; on
#: a busy machine a live one may be silent for seconds.
BEAT_MS = 15_000
IMPATIENT: Mapping[str, int] = {"heartbeat_interval_ms": BEAT_MS, "heartbeat_misses": 2}
#: Times that an engine may be gone from where it was to be caught.
CATCHES = 4
SILENT_S = 3 * BEAT_MS / 1000
#: The same for Hudi, whose cleaner rolls failed writes back.
IMPATIENT_CLEANER = {
    "hoodie.clean.automatic": "true",
    "hoodie.client.heartbeat.interval_in_ms": str(BEAT_MS),
    "hoodie.client.heartbeat.tolerable.misses": "2",
}


def combination(
    kind: TableKind, merge: MergeMode, partitioning: Partitioning = Partitioning.NONE
) -> Combination:
    return Combination(
        kind,
        Version.NINE,
        partitioning,
        KeyShape.TEXT,
        merge,
        BlockFormat.PARQUET,
        Columns.SCALARS,
    )


NON_BLOCKING = combination(TableKind.MOR, MergeMode.EVENT_TIME)
OPTIMISTIC = combination(TableKind.MOR, MergeMode.COMMIT_TIME)
COPY_ON_WRITE = combination(TableKind.COW, MergeMode.COMMIT_TIME)


class Scene:
    """A table with rows in every bucket, which pyhudi made and both engines write."""

    def __init__(self, path: Path, combination: Combination, buckets: int = 1) -> None:
        self.shared = Shared(str(path), combination, buckets)
        self.path = path
        self.sample = self.shared.sample
        self.expected = ExpectedTable(combination, self.sample)
        create_table(path, combination, buckets=buckets, lock="file")
        self.upsert(self.rows(shared_numbers(), written=0))

    def rows(self, numbers: Iterable[int], *, written: int) -> list[Row]:
        """What a later write brings counts more."""
        return [self.sample.row(n, written=written, seen_at=100 + written) for n in numbers]

    def upsert(self, rows: list[Row], **settings: Any) -> pyhudi.WriteResult:
        """By a pyhudi writer of its own."""
        result = self.shared.open(**settings).upsert(self.sample.table(rows))
        self.expected.upsert(rows)
        return result

    def hudi_write(self, judge: JudgeClient, rows: list[Row], **options: str) -> None:
        hudi_write(judge, self.shared, self.sample.table(rows), options=options)
        self.expected.upsert(rows)

    def agree(self, judge: JudgeClient) -> None:
        """All readers give the same rows, and the right ones."""
        ours = self.shared.open().read(meta=True).to_arrow()
        assert_same_rows(ours, self.expected.rows, meta=False)
        assert_same_rows(ours, judge.hudi_rows(self.path))
        assert_same_rows(ours, judge.rs_rows(self.path))

    # -- the timeline

    def instants(self) -> list[Instant]:
        names = sorted(os.listdir(self.path / ".hoodie" / "timeline"))
        return [Instant.parse(name) for name in names if is_timeline_file(name)]

    def pending_writes(self) -> set[InstantTime]:
        writes = [i for i in self.instants() if i.action in (Action.COMMIT, Action.DELTACOMMIT)]
        done = {i.requested for i in writes if i.state is State.COMPLETED}
        return {i.requested for i in writes} - done

    def is_requested(self, requested: str) -> bool:
        """And no more than that."""
        found = [i for i in self.instants() if i.requested == requested]
        return {i.state for i in found} == {State.REQUESTED}

    def is_inflight(self, requested: str) -> bool:
        found = [i for i in self.instants() if i.requested == requested]
        return {i.state for i in found} == {State.REQUESTED, State.INFLIGHT}

    def rollbacks_of(self, requested: str) -> int:
        """Completed ones."""
        folder = self.path / ".hoodie" / "timeline"
        rollbacks = [i for i in self.instants() if i.action is Action.ROLLBACK]
        done = {i.requested for i in rollbacks if i.state is State.COMPLETED}
        plans = [i for i in rollbacks if i.state is State.REQUESTED and i.requested in done]
        found = 0
        for instant in plans:
            data = (folder / instant.file_name).read_bytes()
            named = decode_rollback_plan(data, instant.file_name).instant_to_rollback
            found += named is not None and named.commit_time == requested
        return found

    def files_of(self, requested: str) -> list[Path]:
        """Data files of an instant."""
        found = (p for p in self.path.rglob(f"*_{requested}*") if p.suffix != ".crc")
        return sorted(p for p in found if ".hoodie" not in p.relative_to(self.path).parts)


def until(test: Callable[[], Any], what: str) -> Any:
    """What the test gives, once that is anything."""
    deadline = time.monotonic() + WAIT_S
    while not (found := test()):
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.005)
    return found


# ---- one engine in the midst of a write, and the other


@contextmanager
def held_lock(path: Path) -> Iterator[None]:
    """The table's lock, taken as any third writer may."""
    lock = path / LOCK_PATH
    until(lambda: _created(lock), "the lock is free")
    try:
        yield
    finally:
        lock.unlink()


def _created(path: Path) -> bool:
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def frozen_hudi_write(
    judge: JudgeClient, scene: Scene, rows: list[Row], **options: str
) -> AbstractContextManager[tuple[str, Future[None]]]:
    """Hudi has written its files and is about to complete, and stands still; what it is told.

    The lock is what it waits for when it is frozen, and nobody has it afterwards.
    """
    return _caught(judge, scene, rows, options, _frozen_before_its_end)


def hudi_write_frozen_at_its_start(
    judge: JudgeClient, scene: Scene, rows: list[Row], **options: str
) -> AbstractContextManager[tuple[str, Future[None]]]:
    """Hudi has begun an instant, and stands still before it looks at the timeline."""
    return _caught(judge, scene, rows, options, _frozen_at_its_start)


@contextmanager
def _frozen_before_its_end(judge: JudgeClient, scene: Scene, requested: str) -> Iterator[bool]:
    """Whether it has not completed before the lock was ours."""
    until(lambda: not scene.is_requested(requested), "Hudi has looked around")
    with ExitStack() as stack:
        with held_lock(scene.path):
            until(lambda: _is_settled(scene, requested), "Hudi has written")
            stack.enter_context(judge.frozen())
        yield scene.is_inflight(requested)


@contextmanager
def _frozen_at_its_start(judge: JudgeClient, scene: Scene, requested: str) -> Iterator[bool]:
    """Whether it has not looked around yet; the lock is not its own."""
    while scene.is_requested(requested):
        with judge.frozen():
            if not (scene.path / LOCK_PATH).exists() and scene.is_requested(requested):
                yield True
                return
    yield False


@contextmanager
def _caught(
    judge: JudgeClient,
    scene: Scene,
    rows: list[Row],
    options: Mapping[str, str],
    frozen: Callable[[JudgeClient, Scene, str], AbstractContextManager[bool]],
) -> Iterator[tuple[str, Future[None]]]:
    """A write of Hudi that is frozen where it should be; it gets another one if it was faster."""
    for _ in range(CATCHES):
        with _hudi_at_work(judge, scene, rows, options) as begun:
            written, requested = begun()
            with frozen(judge, scene, requested) as is_there:
                if is_there:
                    yield requested, written
                    return
        written.result()
        scene.expected.upsert(rows)  # to write them once more changes nothing
    pytest.fail("Hudi was always faster")


@contextmanager
def _hudi_at_work(
    judge: JudgeClient, scene: Scene, rows: list[Row], options: Mapping[str, str]
) -> Iterator[Callable[[], tuple[Future[None], str]]]:
    """What waits for it to begin, and tells its end and its instant."""
    known = {instant.requested for instant in scene.instants()}
    table = scene.sample.table(rows)

    def begun() -> tuple[Future[None], str]:
        found = until(lambda: {i.requested for i in scene.instants()} - known, "Hudi has begun")
        return written, str(min(found))

    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(hudi_write, judge, scene.shared, table, Deed.UPSERT, options)
        yield begun


def _is_settled(scene: Scene, requested: str) -> bool:
    """Whether the write has files, and nothing happens to them for a while."""

    def sizes() -> list[tuple[Path, int]]:
        return [(path, path.stat().st_size) for path in scene.files_of(requested)]

    before = sizes()
    time.sleep(0.5)
    return bool(before) and before == sizes()


@contextmanager
def held_write(
    scene: Scene, rows: list[Row], **settings: Any
) -> Iterator[tuple[str, Callable[[], pyhudi.WriteResult]]]:
    """pyhudi has written its files, and is alive; what lets it complete, and tells the result."""
    begun: list[str] = []
    go = threading.Event()
    complete = Transaction.complete

    def waiting(self: Transaction, *arguments: Any, **named: Any) -> Completed | Held | Lost:
        if threading.current_thread().name.startswith("held"):
            begun.append(self.requested)
            go.wait()
        return complete(self, *arguments, **named)

    def finish() -> pyhudi.WriteResult:
        go.set()
        return written.result()

    table = scene.shared.open(**settings)
    with ThreadPoolExecutor(1, "held") as pool, patch.object(Transaction, "complete", waiting):
        written = pool.submit(table.upsert, scene.sample.table(rows))
        until(lambda: begun or written.done(), "pyhudi has written")
        try:
            yield begun[0], finish
        finally:
            go.set()


#: Dies when its files are written: nobody gives its instant up, and its heartbeat grows old.
DYING = f"""
import os, sys
import pyarrow.feather
import pyhudi
from pyhudi.commit.rollback import FailedWriteRecovery
from pyhudi.commit.transaction import Transaction
from pyhudi.write import local
path, rows, where, markers = sys.argv[1:]
# A table that Hudi writes, too, gets no lists from tasks, which might add direct markers.
local.are_listed = lambda *_: markers == "server"
owner = {{"complete": Transaction, "undo": FailedWriteRecovery}}[where]
setattr(owner, where, lambda *_, **__: os._exit(9))
settings = pyhudi.WriteSettings(heartbeat_interval_ms={BEAT_MS}, heartbeat_misses=2)
table = pyhudi.open_table(path, write_settings=settings)
table.upsert(pyarrow.feather.read_table(rows))
"""


def dead_write(
    scene: Scene, rows: list[Row], where: str = "complete", markers: str = "direct"
) -> str:
    """The instant that a writer left which died, `where` it completes or undoes another's."""
    known = scene.pending_writes()
    given = scene.path.parent / "rows.feather"
    pyarrow.feather.write_feather(scene.sample.table(rows), given)
    command = [sys.executable, "-c", DYING, str(scene.path), str(given), where, markers]
    assert subprocess.run(command, check=False).returncode == 9
    return next(iter(scene.pending_writes() - known), "")


def grown_silent(scene: Scene, requested: str) -> None:
    """Let its signs be old enough for those who have no patience; it is dead, or frozen."""
    then = time.time() - SILENT_S
    signs = [i.file_name for i in scene.instants() if i.requested == requested]
    for path in (f".heartbeat/{requested}", *(f"timeline/{name}" for name in signs)):
        os.utime(scene.path / ".hoodie" / path, (then, then))
