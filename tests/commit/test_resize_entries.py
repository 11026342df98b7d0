"""What the decision log knows of resizes: closing, rings before the resize, and who is late."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC

import pytest

from faulty_storage import Effect, Fault, FaultyStorage
from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.proposals import (
    Abort,
    AlreadyDone,
    Begin,
    Close,
    Complete,
    Decided,
    Outcome,
    Refused,
    Rule,
)
from pyhudi.commit.publish import publish
from pyhudi.errors import CorruptTableError, UnavailableError
from pyhudi.format.table.ring_file import Ring, encode_ring, initial_ring, ring_folder
from pyhudi.format.timeline.commit_metadata import CommitMetadata, encode_replace_commit_metadata
from pyhudi.format.timeline.decision_entry import CLOSED_FOLDER, STAGED_FOLDER, Entry, closed_path
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.plan_files import InstantName, RollbackPlan, encode_rollback_plan
from pyhudi.settings import WriteSettings
from pyhudi.storage.protocol import Storage
from pyhudi.storage.stores.memory import MemoryStorage
from worlds import Clock, still_world

TIMELINE = ".hoodie/timeline"
SYNC = bytes(16)
DAYS = ("day=1", "day=2")


class Bench:
    """A table in memory with a resize of two partitions that an executor has made inflight."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.storage = MemoryStorage(lambda: self.clock.ms)
        self.executor = self.log("executor")
        self.requested = self.begun(self.executor, Action.CLUSTERING)

    def log(self, label: str, storage: Storage | None = None) -> DecisionLog:
        return DecisionLog(
            storage or self.storage,
            still_world(self.clock, label),
            WriteSettings(),
            timeline_folder=TIMELINE,
            zone=UTC,
        )

    def begun(self, log: DecisionLog, action: Action = Action.DELTACOMMIT) -> str:
        entry = decided(log.append(Begin(action)))
        assert entry.instant is not None
        inflight = Instant(InstantTime(entry.instant), action, State.INFLIGHT)
        log.storage.create(log.path(inflight), b"")
        return entry.instant

    def written(self, label: str) -> str:
        """Complete a write, and return its requested time."""
        log = self.log(label)
        requested = self.begun(log)
        decided(log.append(Complete(requested, Action.DELTACOMMIT, None, b"done")))
        return requested

    def ring(self, day: str) -> Ring:
        ring = initial_ring(day, 2)
        return replace(ring, instant=InstantTime(self.requested), sequence_number=1)

    def completion(self, rings: dict[str, bytes] | None = None) -> Complete:
        replaced = dict.fromkeys(DAYS, ("a-0",))
        metadata = CommitMetadata(
            {}, operation_type="CLUSTER", partition_to_replace_file_ids=replaced
        )
        data = encode_replace_commit_metadata(metadata, SYNC)
        rings = rings or {self.path(day): encode_ring(self.ring(day)) for day in DAYS}
        also = tuple(rings.items())
        return Complete(self.requested, Action.CLUSTERING, None, data, also=also)

    def path(self, day: str) -> str:
        return f"{ring_folder(day)}/{self.requested}.hashing_meta"

    def abort(self) -> Abort:
        plan = RollbackPlan(InstantName(self.requested, "clustering"), ())
        target = Instant(InstantTime(self.requested), Action.CLUSTERING, State.REQUESTED)
        return Abort(target, None, encode_rollback_plan(plan, SYNC))

    def paths(self, folder: str) -> list[str]:
        return [stat.path for stat in self.storage.list(folder)]


def decided(outcome: Outcome) -> Entry:
    assert isinstance(outcome, Decided), outcome
    return outcome.entry


@pytest.fixture
def bench() -> Bench:
    return Bench()


# -- close


def test_every_process_learns_that_a_resize_is_closed(bench: Bench) -> None:
    early = bench.log("early")
    assert early.refresh().closed == set()
    decided(bench.executor.append(Close(bench.requested)))
    assert early.refresh().closed == {bench.requested}, "from the entry"
    assert bench.log("late").refresh().closed == {bench.requested}, "from a listing"
    bench.written("another")
    assert bench.log("later").refresh().closed == {bench.requested}, "after other entries"


def test_a_close_whose_process_died_is_applied_by_the_next(bench: Bench) -> None:
    crash = Fault(Effect.FAIL, operation="create", path=f"{CLOSED_FOLDER}/*", times=None)
    dying = bench.log("dying", FaultyStorage(bench.storage, [crash]))
    with pytest.raises(UnavailableError):
        dying.append(Close(bench.requested))
    assert bench.paths(CLOSED_FOLDER) == []
    assert bench.log("next").refresh().closed == {bench.requested}
    assert bench.paths(CLOSED_FOLDER) == [closed_path(bench.requested)]


def test_a_resize_is_closed_once(bench: Bench) -> None:
    outcomes = [bench.log(label).append(Close(bench.requested)) for label in "abc"]
    assert [type(outcome) for outcome in outcomes] == [Decided, AlreadyDone, AlreadyDone]


def test_a_write_cannot_be_closed(bench: Bench) -> None:
    write = bench.begun(bench.log("a"))
    assert bench.executor.append(Close(write)) == Refused(Rule.NOT_PENDING, write)


def test_a_resize_that_has_ended_is_not_closed(bench: Bench) -> None:
    other = Bench()
    rollback = decided(bench.log("b").append(bench.abort())).instant
    assert bench.executor.append(Close(bench.requested)) == Refused(Rule.ROLLED_BACK, rollback)
    decided(other.executor.append(other.completion()))
    assert isinstance(other.log("b").append(Close(other.requested)), AlreadyDone)
    assert bench.paths(CLOSED_FOLDER) == other.paths(CLOSED_FOLDER) == []


def test_an_abort_removes_what_closed_the_resize(bench: Bench) -> None:
    early = bench.log("early")
    decided(bench.executor.append(Close(bench.requested)))
    assert early.refresh().closed
    decided(bench.log("canceller").append(bench.abort()))
    assert bench.paths(CLOSED_FOLDER) == []
    assert early.refresh().closed == bench.log("late").refresh().closed == set()


@pytest.mark.parametrize("is_completed", [True, False])
def test_what_closed_a_resize_that_ended_counts_for_nothing(
    bench: Bench, is_completed: bool
) -> None:
    """A process that slept creates the object again, after it was tidied."""
    decided(bench.executor.append(Close(bench.requested)))
    proposal = bench.completion() if is_completed else bench.abort()
    decided(bench.executor.append(proposal))
    bench.storage.write(closed_path(bench.requested), b"")
    assert bench.executor.live.closed == bench.log("late").refresh().closed == set()


# -- rings


def test_the_rings_of_a_resize_are_there_before_it_is_visible(bench: Bench) -> None:
    watched = FaultyStorage(bench.storage)
    decided(bench.log("a", watched).append(bench.completion()))
    created = [str(call) for call in watched.trace if "create" in str(call)]
    order = [next(n for n, c in enumerate(created) if bench.path(day) in c) for day in DAYS]
    done = next(n for n, call in enumerate(created) if "replacecommit" in call)
    assert max(order) < done
    for day in DAYS:
        assert bench.storage.read(bench.path(day)) == encode_ring(bench.ring(day))


@pytest.mark.parametrize("inline_max", [32 << 10, 500, 3])
@pytest.mark.parametrize("missing", ["*day=1/*", "*day=2/*", f"{TIMELINE}/*_*"])
def test_a_process_that_died_before_any_object_is_succeeded_by_another(
    bench: Bench, missing: str, inline_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At three bytes all of the bytes are staged, at 500 some are."""
    monkeypatch.setattr("pyhudi.commit.proposals.INLINE_BYTES_MAX", inline_max)
    crash = Fault(Effect.FAIL, operation="create", path=missing, times=None)
    dying = bench.log("dying", FaultyStorage(bench.storage, [crash]))
    with pytest.raises(UnavailableError):
        dying.append(bench.completion())
    live = bench.log("next").refresh()
    assert bench.requested in live.completed
    for day in DAYS:
        assert bench.storage.read(bench.path(day)) == encode_ring(bench.ring(day))
    assert isinstance(bench.executor.append(bench.completion()), AlreadyDone)


def test_a_completed_resize_leaves_nothing_staged(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyhudi.commit.proposals.INLINE_BYTES_MAX", 3)
    decided(bench.executor.append(bench.completion()))
    assert bench.paths(STAGED_FOLDER) == []
    assert len(bench.paths(ring_folder(""))) == len(DAYS)


def test_rings_that_were_cleaned_since_are_not_brought_back(bench: Bench) -> None:
    """A process that slept publishes an entry once more, whose completed file is there."""
    entry = decided(bench.executor.append(bench.completion()))
    for day in DAYS:
        bench.storage.delete(bench.path(day))
    publish(bench.storage, TIMELINE, entry)
    assert bench.paths(ring_folder("")) == []


def test_a_resize_that_was_cancelled_has_no_rings(bench: Bench) -> None:
    decided(bench.log("a").append(bench.abort()))
    assert isinstance(bench.executor.append(bench.completion()), Refused)
    assert bench.paths(ring_folder("")) == []


def forged_rings(bench: Bench) -> dict[str, dict[str, bytes]]:
    ring = bench.ring("day=1")
    others = f"{ring_folder('day=3')}/{bench.requested}.hashing_meta"
    return {
        "of another partition": {bench.path("day=1"): encode_ring(bench.ring("day=2"))},
        "of another resize": {bench.path("day=1"): encode_ring(initial_ring("day=1", 2))},
        "where nothing is replaced": {others: encode_ring(replace(ring, partition="day=3"))},
        "that is no ring": {bench.path("day=1"): b"rows"},
    }


@pytest.mark.parametrize("forged", list(forged_rings(Bench())))
def test_a_ring_that_is_not_the_resizes_own_is_not_created(bench: Bench, forged: str) -> None:
    with pytest.raises(CorruptTableError):
        bench.executor.append(bench.completion(forged_rings(bench)[forged]))
    assert bench.paths(ring_folder("")) == []
    assert not any("replacecommit" in path for path in bench.paths(TIMELINE))


def test_a_ring_with_other_bytes_in_its_place_stops_everything(bench: Bench) -> None:
    bench.storage.write(bench.path("day=1"), b"other")
    with pytest.raises(CorruptTableError, match="differs from the decision log"):
        bench.executor.append(bench.completion())
    assert not any("replacecommit" in path for path in bench.paths(TIMELINE))


# -- how writes are numbered


def test_writes_since_a_resize_are_numbered_alike_by_every_process(bench: Bench) -> None:
    early = bench.log("early")
    early.refresh()
    slow = bench.begun(log := bench.log("slow"))
    first = bench.written("a")
    decided(bench.executor.append(Close(bench.requested)))
    decided(log.append(Complete(slow, Action.DELTACOMMIT, None, b"done")))
    last = bench.written("b")
    expected = [(1, first), (2, slow), (3, last)]
    for process in (early, bench.executor, bench.log("late")):
        found = process.completions_since(bench.requested)
        assert [(write.number, write.instant.requested) for write in found] == expected


def test_a_write_that_began_before_the_resize_and_completes_after_it_is_numbered(
    bench: Bench,
) -> None:
    other = Bench()
    old = other.begun(log := other.log("old"))
    resize = other.begun(other.executor, Action.CLUSTERING)
    decided(log.append(Complete(old, Action.DELTACOMMIT, None, b"done")))
    found = other.log("late").completions_since(resize)
    assert [(write.number, write.instant.requested) for write in found] == [(1, old)]
