"""How a write ends: the error says what is true of the table, and nothing goes on in secret.

A write that raises is not visible, and never will be, unless the error is OutcomeUnknownError. And
whatever stops a write stops its heartbeat, or others would take it for alive as long as the
process lives.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from faulty_storage import Effect, Fault, FaultyStorage
from memory_tables import TIMELINE, MemoryTable
from pyhudi.commit.decision_log import STALE_MS
from pyhudi.commit.proposals import TooBusyError
from pyhudi.commit.transaction import Transaction
from pyhudi.errors import (
    HudiError,
    InvalidRequestError,
    OutcomeUnknownError,
    UnavailableError,
)
from pyhudi.format.avro.schema import avro_record_schema
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.table_config import TableType
from pyhudi.format.timeline.commit_metadata import CommitMetadata
from pyhudi.format.timeline.instant import Action
from pyhudi.settings import WriteSettings
from pyhudi.storage.objects.heartbeats import HEARTBEAT_FOLDER
from pyhudi.storage.protocol import Storage
from pyhudi.storage.stores.local_disk import LocalStorage
from pyhudi.storage.stores.local_files import TemporaryFile
from pyhudi.storage.stores.memory import MemoryStorage
from pyhudi.timeline.instant_time import clock_time
from pyhudi.world import World
from worlds import Clock

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("ts", pa.int64())])


def rows(*ids: str, day: str = "mo", ts: int = 1) -> pa.Table:
    count = len(ids)
    return pa.table({"id": list(ids), "day": [day] * count, "ts": [ts] * count}, schema=SCHEMA)


class Bench(MemoryTable):
    """A table in memory, processes that write it, and the heartbeats that go on."""

    def __init__(self, **options: Any) -> None:
        self.beating: list[Callable[[], None]] = []
        given = {"partition_by": "day", "ordering": "ts", "buckets": SimpleBuckets(1), **options}
        super().__init__(SCHEMA, **given)

    def copy(self) -> Bench:
        """The same table again, which goes its own way from here."""
        made = copy(self)
        made.clock = Clock(self.clock.ms)
        made.storage = MemoryStorage(lambda: made.clock.ms)
        made.beating = []
        for stat in self.storage.list(""):
            made.storage.write(stat.path, self.storage.read(stat.path))
        return made

    def world(self, label: str) -> World:
        def every(interval_ms: int, call: Callable[[], None]) -> Callable[[], None]:
            self.beating.append(call)
            return lambda: self.beating.remove(call)

        return replace(super().world(label), every=every)

    def content(self) -> dict[tuple[str, str], int]:
        found = self.table("reader").read(columns=["day", "id", "ts"]).to_arrow().to_pylist()
        return {(row["day"], row["id"]): row["ts"] for row in found}


class Denied(FaultyStorage):
    """Calls of a kind that the user's rights, or a read-only disk, do not allow."""

    def __init__(self, inner: Storage, operation: str, path: str, nth: int = 1) -> None:
        super().__init__(inner, [Fault(Effect.FAIL, operation, path, nth=nth, times=None)])

    def _run(self, name: str, path: str, perform: Any) -> Any:
        try:
            return super()._run(name, path, perform)
        except UnavailableError as error:
            raise InvalidRequestError(error.what, why="denied", next_step="Allow it") from None


# -- what the error says


@pytest.mark.parametrize("left", [".hoodie/.heartbeat/*", ".hoodie/.temp/*"])
def test_a_write_after_which_nothing_can_be_tidied_up_is_reported_as_done(left: str) -> None:
    bench = Bench()
    bench.table().upsert(rows("a"))
    result = bench.table("b", Denied(bench.storage, "delete", left)).upsert(rows("b"))
    assert result.rows == 1
    assert bench.content() == {("mo", "a"): 1, ("mo", "b"): 1}
    assert bench.beating == []


@pytest.mark.parametrize("denied", [True, False])
def test_a_decided_write_that_cannot_be_published_has_an_unknown_outcome(denied: bool) -> None:
    bench = Bench()
    bench.table().upsert(rows("a"))
    path = f"{TIMELINE}/*_*.deltacommit"
    fault = Fault(Effect.FAIL, "create", path, times=None)
    faulty = FaultyStorage(bench.storage, [fault])
    storage = Denied(bench.storage, "create", path) if denied else faulty
    with pytest.raises(OutcomeUnknownError, match="same write_id") as error:
        bench.table("b", storage).upsert(rows("b"))
    assert bench.content() == {("mo", "a"): 1}
    bench.table("c").upsert(rows("c"))  # the next writer carries out what stands in the log
    assert bench.content() == {("mo", id_): 1 for id_ in "abc"}
    assert any(name.startswith(f"{error.value.instant}_") for name in bench.names())
    assert bench.beating == []


@pytest.mark.parametrize(("nth", "what"), [(1, "the table"), (2, "'mo'")])
def test_when_the_outcome_of_a_seed_is_unknown_the_rows_are_known_not_to_be_there(
    nth: int, what: str
) -> None:
    bench = Bench()
    lost = Fault(Effect.FAIL, "create", f"{TIMELINE}/*_*.deltacommit", nth=nth)
    with pytest.raises(UnavailableError, match=f"{what} could not be prepared") as error:
        bench.table("a", FaultyStorage(bench.storage, [lost])).upsert(rows("a"))
    assert not isinstance(error.value, OutcomeUnknownError)
    bench.table("b").upsert(rows("b"))
    assert bench.content() == {("mo", "b"): 1}
    assert bench.pending() == []
    assert bench.beating == []


class Rival(FaultyStorage):
    """Another writer is first to the next entry, again and again."""

    def __init__(self, bench: Bench, *, passed: int, wins: int) -> None:
        super().__init__(bench.storage)
        self._table = bench.table("rival")
        self._passed = passed
        self._wins = wins

    def create(self, path: str, data: bytes) -> bool:
        if path.startswith(".hoodie/.pyhudi/log/"):
            self._passed -= 1
            if self._passed < 0 < self._wins:
                self._wins -= 1
                self._table.upsert(rows("rival", ts=self._wins))
        return super().create(path, data)


@pytest.mark.parametrize("passed", [0, 1], ids=["begin", "completion"])
def test_a_write_that_lost_every_race_is_known_not_to_be_there(passed: int) -> None:
    bench = Bench()
    bench.table().upsert(rows("a"))
    rival = Rival(bench, passed=passed, wins=3)
    with pytest.raises(TooBusyError, match="is too busy") as error:
        bench.table("b", rival, commit_rounds=3).upsert(rows("b"))
    assert not isinstance(error.value, OutcomeUnknownError)
    assert bench.pending() == []
    assert bench.beating == []
    bench.table("c").upsert(rows("c"))
    assert bench.content().keys() == {("mo", id_) for id_ in ("a", "c", "rival")}


def test_a_write_that_other_clocks_keep_from_completing_is_known_not_to_be_there() -> None:
    bench = Bench(lock=LockKind.FILE)
    bench.table("first").upsert(rows("a"))

    class Ahead(FaultyStorage):
        has_come = False

        def create(self, path: str, data: bytes) -> bool:
            if path.endswith(".inflight") and not self.has_come:
                self.has_come = True  # another engine, whose clock is five minutes fast
                name = f"{clock_time(bench.clock.ms + 300_000, UTC)}.deltacommit.requested"
                bench.storage.create(f"{TIMELINE}/{name}", b"")
            return super().create(path, data)

    table = bench.table("b", Ahead(bench.storage))
    with pytest.raises(UnavailableError, match="ahead of the store's clock") as error:
        table.upsert(rows("b"))
    assert not isinstance(error.value, OutcomeUnknownError)
    assert not bench.beating
    assert bench.table("reader").read().to_arrow()["id"].to_pylist() == ["a"]


def test_a_write_that_lost_some_races_is_done_once() -> None:
    bench = Bench()
    bench.table().upsert(rows("a"))
    rival = Rival(bench, passed=0, wins=4)
    assert bench.table("b", rival, commit_rounds=6).upsert(rows("b")).retries == 0
    assert bench.content().keys() == {("mo", id_) for id_ in ("a", "b", "rival")}
    assert bench.pending() == []


# -- every operation, one at a time

Strike = Callable[[Storage, int], FaultyStorage]
STRIKES: list[tuple[str, Strike]] = [
    ("fails", lambda inner, n: FaultyStorage(inner, [Fault(Effect.FAIL, nth=n)])),
    ("loses its reply", lambda inner, n: FaultyStorage(inner, [Fault(Effect.LOSE_REPLY, nth=n)])),
    ("is not allowed, nor are others", lambda inner, n: Denied(inner, "create", "*", n)),
]


def struck(bench: Bench, strike: Strike, n: int) -> tuple[bool | None, bool]:
    """Whether a write of which an operation fails is visible, by its word; and if one did fail."""
    storage = strike(bench.storage, n)
    try:
        bench.table("b", storage).upsert(rows("b", day="tu"))
    except OutcomeUnknownError:
        return None, True
    except HudiError:
        return False, True
    return True, storage._matches[0] >= n


def settled(bench: Bench) -> set[tuple[str, str]]:
    """The rows once others have written, and found out who is silent."""
    table = bench.table("c")
    for ts in range(2):
        bench.clock.sleep(3_600_000)
        table.upsert(rows("c", ts=ts))
    return {*bench.content()} - {("mo", "a"), ("mo", "c")}


@pytest.mark.parametrize("table_type", list(TableType))
@pytest.mark.parametrize("strike", [strike for _, strike in STRIKES], ids=[w for w, _ in STRIKES])
def test_whichever_operation_fails_the_error_is_true_and_no_heartbeat_goes_on(
    strike: Strike, table_type: TableType
) -> None:
    told = []
    has_struck, n = True, 0
    table = Bench(table_type=table_type)
    table.table().upsert(rows("a"))
    while has_struck:
        n += 1
        bench = table.copy()
        is_visible, has_struck = struck(bench, strike, n)
        told.append(is_visible)
        assert bench.beating == [], f"operation {n}"
        found = settled(bench)
        assert found in ({("tu", "b")}, set()), f"operation {n}"
        assert is_visible in (None, bool(found)), f"operation {n}"
        assert bench.pending() == [], f"operation {n}"
    assert {*told} == {True, False, None}


# -- heartbeats


def test_a_failure_right_after_the_begin_ends_the_heartbeat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another writer commits meanwhile, so its schema is read after our begin; that fails."""
    monkeypatch.setattr("pyhudi.commit.proposals.INLINE_BYTES_MAX", 0)  # the log has no bytes of it
    bench = Bench()
    table = bench.table()
    table.upsert(rows("a"))

    class Meddled(FaultyStorage):
        met = False

        def create(self, path: str, data: bytes) -> bool:
            if not self.met and path.startswith(".hoodie/.pyhudi/log/"):
                self.met = True
                table.upsert(rows("b"))
            return super().create(path, data)

        def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
            if self.met and path.endswith(".deltacommit"):
                raise UnavailableError("the store is slow", why="503", next_step="Repeat")
            return super().read(path, start, end)

    with pytest.raises(UnavailableError, match="the store is slow"):
        bench.table("c", Meddled(bench.storage)).upsert(rows("c"))
    assert bench.beating == []
    assert bench.pending() == []
    assert bench.content().keys() == {("mo", "a"), ("mo", "b")}


def test_a_begin_that_is_found_in_the_log_again_is_never_without_a_heartbeat() -> None:
    """Its own process was slow to announce it, and meanwhile somebody else made its file."""
    bench = Bench()
    bench.table().upsert(rows("a"))
    slow = Fault(Effect.DELAY, "write", f"{HEARTBEAT_FOLDER}/*", delay_ms=2 * STALE_MS)
    storage = FaultyStorage(bench.storage, [slow], sleep_ms=bench.clock.sleep)
    result = bench.table("slow", storage).upsert(rows("b"))
    beats = [o.name for o in storage.trace if o.path == f"{HEARTBEAT_FOLDER}/{result.instant}"]
    assert beats == ["write", "write", "delete"]


def test_a_user_who_interrupts_a_write_ends_its_heartbeat() -> None:
    bench = Bench()
    bench.table().upsert(rows("a"))

    class Interrupted(FaultyStorage):
        def create(self, path: str, data: bytes) -> bool:
            if ".log.1_" in path and not path.startswith(".hoodie"):
                raise KeyboardInterrupt
            return super().create(path, data)

    with pytest.raises(KeyboardInterrupt):
        bench.table("b", Interrupted(bench.storage)).upsert(rows("b"))
    assert bench.beating == []
    assert bench.pending() == []


MANY = SimpleBuckets(300)  # so that the metadata does not fit into an entry, and is staged
STAGED = Fault(Effect.FAIL, "create", ".hoodie/.pyhudi/staged/*", times=None)


def test_metadata_that_cannot_be_staged_ends_the_write_and_its_heartbeat() -> None:
    bench = Bench(buckets=MANY)
    ids = [f"k{n}" for n in range(1_500)]
    bench.table().upsert(rows("a"))
    with pytest.raises(UnavailableError, match="staged") as error:
        bench.table("b", FaultyStorage(bench.storage, [STAGED])).upsert(rows(*ids))
    assert not isinstance(error.value, OutcomeUnknownError)
    assert bench.beating == []
    assert bench.content() == {("mo", "a"): 1}


def test_a_seed_that_cannot_be_staged_ends_its_heartbeat() -> None:
    bench = Bench(buckets=MANY)
    with pytest.raises(UnavailableError, match="staged"):
        bench.table("a", FaultyStorage(bench.storage, [STAGED])).upsert(rows("a"))
    assert bench.beating == []


@pytest.mark.parametrize("lock", [LockKind.NONE, LockKind.FILE])
def test_a_write_that_is_given_up_is_undone_at_once(lock: LockKind) -> None:
    bench = Bench(lock=lock)
    bench.table().upsert(rows("a"))
    full = Fault(Effect.TEAR, path="mo/.0*", times=None, keep_bytes=10)
    with pytest.raises(UnavailableError):
        bench.table("b", FaultyStorage(bench.storage, [full])).upsert(rows("b"))
    assert bench.beating == []
    assert bench.pending() == []


# -- a schema that moves on


def evolve(bench: Bench) -> pa.Table:
    """Another engine adds a column; a row that has it."""
    writer = bench.session("java")
    other = Transaction.begin(writer.log, WriteSettings(), Action.DELTACOMMIT, writer.recovery)
    schema = SCHEMA.append(pa.field("note", pa.string()))
    avro = json.dumps(avro_record_schema(schema, "t"))
    metadata = CommitMetadata(extra_metadata={"schema": avro}, operation_type="ALTER_SCHEMA")
    other.complete(metadata).or_raise()
    return rows("n").append_column("note", pa.array(["new"]))


def test_a_writer_that_was_idle_takes_rows_with_a_column_that_was_added_meanwhile() -> None:
    bench = Bench()
    table = bench.table()
    table.upsert(rows("a"))
    table.upsert(evolve(bench))
    assert bench.content() == {("mo", "a"): 1, ("mo", "n"): 1}
    with pytest.raises(InvalidRequestError, match="missing columns 'note'"):
        table.upsert(rows("b"))


def test_a_column_that_is_added_while_rows_are_gathered_is_null_in_them() -> None:
    bench = Bench()
    table = bench.table()
    table.upsert(rows("a"))

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows("b").to_batches()[0]
        evolve(bench)

    table.upsert(pa.RecordBatchReader.from_batches(SCHEMA, batches()))
    read = bench.table("c").read(columns=["id", "note"]).to_arrow().sort_by("id")
    assert read.to_pylist() == [{"id": "a", "note": None}, {"id": "b", "note": None}]
    assert bench.beating == []
    assert bench.pending() == []


# -- a disk that is full


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.parametrize("chunk", [b"x", b"x" * 100_000])
def test_a_full_disk_is_reported_whether_or_not_a_buffer_would_hold_the_bytes(
    chunk: bytes, tmp_path: Path
) -> None:
    temporary = TemporaryFile(str(tmp_path), "p/file", "file:///lake/t")
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, temporary._descriptor)
    os.close(full)
    try:
        with pytest.raises(UnavailableError, match=r"No space.* Free space") as caught:
            temporary.fill([chunk, chunk])
    finally:
        temporary.close()
    assert caught.value.what == "write of 'p/file' in file:///lake/t failed"
    assert os.listdir(tmp_path) == []


def test_a_disk_that_fills_up_in_the_middle_leaves_no_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write = os.write
    room = [10]

    def write_some(descriptor: int, data: memoryview) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(descriptor, data[: min(4, room[0])])
        room[0] -= written
        return written

    storage = LocalStorage(str(tmp_path))
    monkeypatch.setattr(os, "write", write_some)
    assert storage.create("a", b"ten bytes.")
    with pytest.raises(UnavailableError, match="No space left on device"):
        storage.create("b", b"x")
    monkeypatch.undo()
    assert storage.read("a") == b"ten bytes."
    assert storage.stat("b") is None
