"""An executor of a resize dies at any storage operation, and another process continues.

Readers see every row once before, at the moment of the crash, and after; and what is left is what
one undisturbed execution leaves.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from faulty_storage import Effect, Fault, FaultyStorage, Operation
from pyhudi.errors import ConflictError, HudiError, InvalidRequestError
from pyhudi.format.table.concurrency_mode import ConcurrencyMode
from pyhudi.format.timeline.commit_metadata import decode_commit_metadata
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.format.timeline.made_files import made_path
from pyhudi.plan.resizing import copies
from pyhudi.storage.protocol import Storage
from pyhudi.storage.stores.memory import MemoryStorage
from pyhudi.write.resizing.help import finish_resize
from resize_tables import ResizeTable


class Outrun:
    """A storage whose executor is outrun by a writer, as often as a resize waits before it closes.

    Just before each completion is proposed, a write to the input completes.
    """

    def __init__(self, scene: Scene, inner: Storage) -> None:
        self._scene = scene
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create(self, path: str, data: bytes) -> bool:
        is_completion = b'"kind":"complete"' in data and b'"action":"clustering"' in data
        if "/.pyhudi/log/" in path and is_completion:
            self._scene.outrun()
        return self._inner.create(path, data)


@dataclass
class Scene:
    """A table with a resize that is planned, and what must be in the table."""

    table: ResizeTable
    requested: str
    values: dict[str, str]
    is_outrun: bool
    stamp: int = 10

    @classmethod
    def made(cls, *, is_outrun: bool) -> Scene:
        table = ResizeTable(concurrency=ConcurrencyMode.OPTIMISTIC)
        table.put("klmnopq", 1)
        table.put("mx", 2)
        requested = table.plan(3)
        table.put("kly", 3)
        table.remove("q")
        values = {key: f"{key}1" for key in "nop"}
        values |= {"m": "m2", "x": "x2"} | {key: f"{key}3" for key in "kly"}
        return cls(table, requested, values, is_outrun)

    def copied(self) -> Scene:
        """The same once more, in a storage of its own."""
        table = ResizeTable(concurrency=ConcurrencyMode.OPTIMISTIC)
        table.clock.ms = self.table.clock.ms
        storage = MemoryStorage(lambda: table.clock.ms)
        for stat in self.table.storage.list(""):
            storage.write(stat.path, self.table.storage.read(stat.path))
        table.storage = storage
        return Scene(table, self.requested, dict(self.values), self.is_outrun, self.stamp)

    def outrun(self) -> None:
        live = self.table.session("look").log.refresh()
        is_open = self.requested in live.pending and self.requested not in live.closed
        if self.is_outrun and is_open:
            self.stamp += 1
            self.table.put("k", self.stamp, label=f"w{self.stamp}")
            self.values["k"] = f"k{self.stamp}"

    def execute(self, *faults: Fault) -> FaultyStorage:
        """Execute the resize through storage that fails; return it."""
        storage = FaultyStorage(Outrun(self, self.table.storage), faults)
        service = self.table.resizes("dying", storage)
        service.execute(self.requested)
        return storage

    def check(self) -> None:
        found = self.table.table("r").read(columns=["id", "v"]).to_arrow().to_pylist()
        assert sorted((row["id"], row["v"]) for row in found) == sorted(self.values.items())

    def is_done(self) -> bool:
        return self.requested in self.table.session("look").log.refresh().completed

    def files(self) -> list[str]:
        """The resize's data files."""
        return sorted(s.path for s in self.table.storage.list("d") if self.requested in s.path)


def continued(scene: Scene) -> None:
    """Another process continues, as a service does."""
    session = scene.table.session("other")
    session.recover()
    if not scene.is_done():
        scene.table.resizes("other").execute(scene.requested, is_forced=True)


def helped(scene: Scene) -> None:
    """A writer that meets the closed resize continues."""
    session = scene.table.session("writer")
    if scene.requested not in session.log.refresh().closed:
        continued(scene)
        return
    finish_resize(session, scene.requested)


_CHANGES = {"create", "create_from", "write", "replace", "delete"}


def crashes(trace: Sequence[Operation]) -> Iterator[tuple[Fault, ...]]:
    """The process dies before the first operation, or right after one that changes storage."""
    yield (Fault(Effect.FAIL, nth=1, times=None),)
    for nth, operation in enumerate(trace, 1):
        if operation.name in _CHANGES:
            yield Fault(Effect.LOSE_REPLY, nth=nth), Fault(Effect.FAIL, nth=nth + 1, times=None)


def hiccups(trace: Sequence[Operation]) -> Iterator[tuple[Fault, ...]]:
    """One operation fails, and the process lives."""
    for nth in range(1, len(trace) + 1):
        yield (Fault(Effect.FAIL, nth=nth),)


@pytest.mark.parametrize(
    ("faults_of", "rescue", "is_outrun", "portion"),
    [
        (crashes, continued, False, copies.PORTION_FILES),
        (crashes, helped, True, 8),
        (hiccups, continued, False, 1),
    ],
    ids=["dies", "dies while it is outrun by writers", "storage fails once"],
)
def test_another_process_continues_whatever_operation_was_the_last(
    faults_of: Callable[[Sequence[Operation]], Iterator[tuple[Fault, ...]]],
    rescue: Callable[[Scene], None],
    is_outrun: bool,
    portion: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`portion` is how many copies are made at once, in no fixed order."""
    monkeypatch.setattr(copies, "PORTION_FILES", portion)
    origin = Scene.made(is_outrun=is_outrun)
    undisturbed = origin.copied()
    trace = undisturbed.execute().trace
    undisturbed.check()
    was_closed = 0
    for faults in faults_of(trace):
        scene = origin.copied()
        with suppress(HudiError):
            scene.execute(*faults)
        scene.check()
        was_closed += scene.requested in scene.table.session("look").log.refresh().closed
        rescue(scene)
        assert scene.is_done(), faults
        scene.check()
        assert not scene.table.session("look").log.refresh().pending, faults
        if not is_outrun:  # else it depends on the crash how many writes there are
            assert scene.files() == undisturbed.files(), faults
    assert bool(was_closed) is is_outrun


class Pausing:
    """A storage that, before one of the operations that change something, lets another act."""

    def __init__(self, inner: Storage, nth: int, meanwhile: Callable[[], object]) -> None:
        self._inner = inner
        self._left = nth
        self._meanwhile = meanwhile

    def __getattr__(self, name: str) -> Any:
        if name not in _CHANGES:
            return getattr(self._inner, name)

        def paused(*given: Any, **named: Any) -> Any:
            self._left -= 1
            if not self._left:
                self._meanwhile()
            return getattr(self._inner, name)(*given, **named)

        return paused


def changes_in(trace: Sequence[Operation]) -> range:
    return range(1, 1 + sum(operation.name in _CHANGES for operation in trace))


def test_an_executor_may_sleep_at_any_operation_while_another_executes_the_resize() -> None:
    origin = Scene.made(is_outrun=False)
    undisturbed = origin.copied()
    moments = changes_in(undisturbed.execute().trace)
    ours = 0
    for nth in moments:
        scene = origin.copied()
        pausing = Pausing(scene.table.storage, nth, partial(continued, scene))
        result = scene.table.resizes("slow", pausing).execute(scene.requested)
        assert result is not None
        ours += result.is_ours
        assert result.copies == len(undisturbed.files()) - result.children
        scene.check()
        assert scene.files() == undisturbed.files(), nth
        assert not scene.table.session("look").log.refresh().pending, nth
    assert 0 < ours < len(moments)


def test_a_resize_may_be_cancelled_at_any_operation_of_its_executor() -> None:
    origin = Scene.made(is_outrun=False)
    moments = changes_in(origin.copied().execute().trace)
    completed = 0
    for nth in moments:
        scene = origin.copied()

        def cancel(scene: Scene = scene) -> None:
            with suppress(InvalidRequestError):  # it has completed
                scene.table.resizes("c").cancel(scene.requested, is_forced=True)

        pausing = Pausing(scene.table.storage, nth, cancel)
        try:
            result = scene.table.resizes("slow", pausing).execute(scene.requested)
        except (ConflictError, InvalidRequestError):
            result = None
        assert (result is not None) is scene.is_done()
        completed += result is not None
        scene.check()
        live = scene.table.session("look").log.refresh()
        assert not live.pending, nth
        assert not live.closed, nth
        again = scene.table.plan(2, label="again")
        assert scene.table.resizes("later").execute(again) is not None
        scene.check()
    assert 0 < completed < len(moments)


# ---- writers that cannot finish a closed resize


def closed(scene: Scene) -> Scene:
    """The scene right after its resize was closed: its executor died."""
    outrun = scene.copied()
    outrun.is_outrun = True
    with suppress(KeyboardInterrupt):
        outrun.table.resizes("dying", StopsClosed(outrun)).execute(outrun.requested)
    assert outrun.requested in outrun.table.session("look").log.refresh().closed
    return outrun


def counted(scene: Scene) -> tuple[int, int]:
    """Rows of base files, and deletes, by the commit of the resize."""
    timeline = scene.table.storage.list(".hoodie/timeline")
    [path] = [stat.path for stat in timeline if f"/{scene.requested}_" in stat.path]
    stats = decode_commit_metadata(scene.table.storage.read(path), path).stats
    rows = sum(stat.num_writes or 0 for stat in stats if stat.log_files is None)
    return rows, sum(stat.num_deletes or 0 for stat in stats)


class StopsClosed(Outrun):
    """A storage on which an executor is outrun, and dies when it has closed the resize."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene, scene.table.storage)

    def create(self, path: str, data: bytes) -> bool:
        created = super().create(path, data)
        if path.endswith(f"/{self._scene.requested}") and not data and ".pyhudi" in path:
            raise KeyboardInterrupt
        return created


@pytest.mark.parametrize("note", ["there", "gone", "wrong", "damaged"])
def test_a_writer_finishes_what_another_closed(note: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the note it reads the last copies alone; without it the same is counted."""
    monkeypatch.setattr(copies, "PORTION_FILES", 1)
    scene = closed(Scene.made(is_outrun=False))
    path = made_path(InstantTime(scene.requested))
    data = scene.table.storage.read(path)
    if note == "gone":
        scene.table.storage.delete(path)
    elif note == "wrong":
        noted = json.loads(data)
        for counts in noted["files"].values():
            counts[0] += 1
        scene.table.storage.write(path, json.dumps(noted).encode())
    elif note == "damaged":
        scene.table.storage.write(path, data[:-3])
    watched = FaultyStorage(scene.table.storage)
    finish_resize(scene.table.session("writer", watched), scene.requested)
    assert scene.is_done()
    scene.check()
    read = {operation.path for operation in watched.trace if operation.name in ("open", "read")}
    assert any(path.endswith(".parquet") for path in read) is (note != "there")
    first = min(path for path in scene.files() if ".log." in path)
    assert (first in read) is (note != "there")
    assert counted(scene) == (8, 1)
    finish_resize(scene.table.session("late"), scene.requested)  # it has ended


@pytest.mark.parametrize("lost", ["a base file", "a log"])
def test_a_writer_cancels_a_closed_resize_that_cannot_be_finished(lost: str) -> None:
    scene = closed(Scene.made(is_outrun=False))
    storage = scene.table.storage
    if lost == "a base file":
        storage.delete(next(path for path in scene.files() if path.endswith(".parquet")))
    else:
        logs = [s.path for s in storage.list("d") if ".log." in s.path]
        newest = max((p for p in logs if scene.requested not in p), key=lambda p: p.split("_")[1])
        storage.write(newest, storage.read(newest)[:-9])
    finish_resize(scene.table.session("writer"), scene.requested)
    live = scene.table.session("look").log.refresh()
    assert not live.pending
    assert not live.closed
    assert not scene.is_done()
    assert not scene.files()
    if lost == "a base file":
        scene.check()
