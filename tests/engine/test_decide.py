"""The decision log: what is decided, in which order, and what a crash or a zombie cannot do."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC

import pytest

from pyhudi.engine.decide import CLOCK_AHEAD_MAX_MS, LOOK_AGAIN_MS, DecisionLog
from pyhudi.engine.decisions import (
    Abort,
    AlreadyDone,
    Begin,
    Complete,
    Decided,
    Outcome,
    Refused,
    Rule,
)
from pyhudi.errors import CorruptTableError, UnavailableError
from pyhudi.format.instant import Action, Instant, InstantTime, State
from pyhudi.format.log_entry import Entry, EntryKind, entry_path, staged_path
from pyhudi.format.plan_files import InstantName, RollbackPlan, encode_rollback_plan
from pyhudi.settings import WriteSettings
from pyhudi.storage.decision_log import load_entry
from pyhudi.storage.faulty import Effect, Fault, FaultyStorage
from pyhudi.storage.memory import MemoryStorage
from pyhudi.storage.protocol import Folder, ObjectStat, Storage
from pyhudi.timeline.instant_time import clock_time, following_time
from worlds import START_MS, Clock, still_world

TIMELINE = ".hoodie/timeline"
SYNC = bytes(16)


class Bench:
    """One table in memory, and as many processes as a test wants."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.storage = MemoryStorage(lambda: self.clock.ms)

    def log(
        self, label: str = "a", *, storage: Storage | None = None, skew_ms: int = 0
    ) -> DecisionLog:
        return DecisionLog(
            storage or self.storage,
            still_world(self.clock, label, skew_ms=skew_ms),
            WriteSettings(),
            timeline_folder=TIMELINE,
            zone=UTC,
        )

    def names(self) -> list[str]:
        return [s.path.rpartition("/")[2] for s in self.storage.list(TIMELINE)]

    def entries(self) -> list[Entry]:
        found: list[Entry] = []
        while (entry := load_entry(self.storage, len(found) + 1)) is not None:
            found.append(entry)
        return found


@pytest.fixture
def bench() -> Bench:
    return Bench()


def decided(outcome: Outcome) -> Entry:
    assert isinstance(outcome, Decided), outcome
    return outcome.entry


def begun(log: DecisionLog) -> Entry:
    entry = decided(log.append(Begin(Action.DELTACOMMIT)))
    assert entry.instant is not None
    inflight = Instant(InstantTime(entry.instant), Action.DELTACOMMIT, State.INFLIGHT)
    log.storage.create(log.path(inflight), b"")
    return entry


def completion(entry: Entry, data: bytes = b"done", staged: str | None = None) -> Complete:
    assert entry.instant is not None
    return Complete(entry.instant, Action.DELTACOMMIT, entry.n, data, staged)


def abort(entry: Entry) -> Abort:
    assert entry.instant is not None
    plan = RollbackPlan(InstantName(entry.instant, "deltacommit"), ())
    target = Instant(InstantTime(entry.instant), Action.DELTACOMMIT, State.REQUESTED)
    return Abort(target, entry.n, encode_rollback_plan(plan, SYNC))


def test_each_decision_takes_the_next_number_and_a_later_time(bench: Bench) -> None:
    a, b = bench.log("a"), bench.log("b", skew_ms=-300_000)
    first, second = begun(a), begun(b)
    decided(b.append(completion(second)))
    decided(a.append(completion(first)))
    entries = bench.entries()
    assert [entry.n for entry in entries] == [1, 2, 3, 4]
    times = [entry.time or "" for entry in entries]
    assert times == sorted(set(times))
    assert [entry.prev for entry in entries[1:]] == [entry.id for entry in entries[:-1]]


def test_a_clock_that_is_far_ahead_pulls_the_table_only_so_far(bench: Bench) -> None:
    hour = 3_600_000
    entry = begun(bench.log("fast", skew_ms=hour))
    limit = clock_time(bench.clock.ms + CLOCK_AHEAD_MAX_MS, UTC)
    assert entry.time is not None
    assert clock_time(START_MS, UTC) < entry.time <= limit
    later = begun(bench.log("right"))
    assert later.time is not None
    assert later.time == following_time(entry.time), "the others follow, and nobody waits"


def test_what_a_crashed_writer_decided_is_carried_out_by_the_next(bench: Bench) -> None:
    a = bench.log("a")
    entry = begun(a)
    crash = Fault(Effect.FAIL, operation="create", path=f"{TIMELINE}/*_*", times=None)
    zombie = bench.log("a", storage=FaultyStorage(bench.storage, [crash]))
    zombie.refresh()
    with pytest.raises(UnavailableError):
        zombie.append(Complete(entry.instant or "", Action.DELTACOMMIT, None, b"done"))
    assert not any("_" in name for name in bench.names())
    bench.log("b").refresh()
    [completed] = [name for name in bench.names() if "_" in name]
    assert bench.storage.read(f"{TIMELINE}/{completed}") == b"done"
    again = a.append(completion(entry))
    assert isinstance(again, AlreadyDone)
    assert again.instant.file_name == completed


def test_staged_bytes_are_published_by_whoever_comes(bench: Bench) -> None:
    a = bench.log("a")
    entry = begun(a)
    place = staged_path(entry.instant or "", "x")
    bench.storage.create(place, b"large")
    made = decided(a.append(completion(entry, b"large", place)))
    assert made.creates is not None
    assert made.creates.inline is None
    bench.storage.delete(f"{TIMELINE}/{made.creates.name}")  # as if it had crashed before
    bench.log("b").refresh()
    assert bench.storage.read(f"{TIMELINE}/{made.creates.name}") == b"large"


def test_missing_staged_bytes_are_reported_and_nothing_is_invented(bench: Bench) -> None:
    a = bench.log("a")
    entry = begun(a)
    place = staged_path(entry.instant or "", "x")
    bench.storage.create(place, b"large")
    made = decided(a.append(completion(entry, b"large", place)))
    assert made.creates is not None
    bench.storage.delete(f"{TIMELINE}/{made.creates.name}")
    bench.storage.delete(place)
    with pytest.raises(CorruptTableError, match="cannot be carried out"):
        bench.log("b").refresh()


def test_an_aborted_instant_never_completes(bench: Bench) -> None:
    a, b = bench.log("a"), bench.log("b")
    entry = begun(a)
    rollback = decided(b.append(abort(entry)))
    refused = a.append(completion(entry))
    assert refused == Refused(Rule.ROLLED_BACK, rollback.instant)
    assert f"{entry.instant}.deltacommit.inflight" not in bench.names()


def test_a_completed_instant_is_never_aborted(bench: Bench) -> None:
    a, b = bench.log("a"), bench.log("b")
    entry = begun(a)
    b.refresh()
    decided(a.append(completion(entry)))
    assert b.append(abort(entry)) == Refused(Rule.COMPLETED, entry.instant)


def test_an_instant_is_aborted_once(bench: Bench) -> None:
    entry = begun(bench.log("a"))
    outcomes = [bench.log(name).append(abort(entry)) for name in "bcdef"]
    assert sum(isinstance(outcome, Decided) for outcome in outcomes) == 1
    assert sum(name.endswith("rollback.requested") for name in bench.names()) == 1


def test_an_instant_without_its_inflight_file_does_not_complete(bench: Bench) -> None:
    a = bench.log("a")
    entry = begun(a)
    bench.storage.delete(f"{TIMELINE}/{entry.instant}.deltacommit.inflight")
    assert a.append(completion(entry)) == Refused(Rule.NOT_INFLIGHT)


@pytest.mark.parametrize("effect", [Effect.FAIL, Effect.LOSE_REPLY])
def test_a_lost_reply_does_not_decide_twice(bench: Bench, effect: Effect) -> None:
    fault = Fault(effect, operation="create", path="*/log/*")
    log = bench.log(storage=FaultyStorage(bench.storage, [fault]))
    if effect is Effect.FAIL:
        with pytest.raises(UnavailableError):
            log.append(Begin(Action.DELTACOMMIT))
        assert bench.entries() == []
        return
    assert decided(log.append(Begin(Action.DELTACOMMIT))).n == 1
    assert len(bench.entries()) == 1


def test_a_number_that_was_pruned_and_taken_again_decides_nothing(bench: Bench) -> None:
    """A zombie that froze before creating entry 2 wakes up after others have pruned it."""
    begun(bench.log("a"))
    timeline = bench.storage.list_folder(TIMELINE)
    for _ in range(3):
        begun(bench.log("b"))
    bench.storage.delete(entry_path(2))
    hidden = {entry_path(n) for n in (3, 4)}

    class Frozen(FaultyStorage):
        """Lists as it was when the writer froze, until the writer creates its entry."""

        def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectStat]:
            return (s for s in super().list(prefix, after=after) if s.path not in hidden)

        def list_folder(self, prefix: str) -> Folder:
            return timeline if hidden and prefix == TIMELINE else super().list_folder(prefix)

        def create(self, path: str, data: bytes) -> bool:
            created = super().create(path, data)
            hidden.clear()
            return created

    zombie = bench.log("zombie", storage=Frozen(bench.storage))
    assert decided(zombie.append(Begin(Action.DELTACOMMIT))).n == 5
    assert load_entry(bench.storage, 2) is None


def test_a_writer_that_slept_past_pruning_may_not_complete(bench: Bench) -> None:
    a = bench.log("a")
    entry = begun(a)
    b = bench.log("b")
    for _ in range(3):
        begun(b)
    bench.storage.delete(entry_path(2))
    assert a.append(completion(entry)) == Refused(Rule.LOG_NOT_WHOLE)


def test_a_foreign_instant_on_a_table_without_a_lock_is_refused(bench: Bench) -> None:
    a = bench.log("a")
    begun(a)
    later = clock_time(bench.clock.ms + 60_000, UTC)
    bench.storage.create(f"{TIMELINE}/{later}.deltacommit.requested", b"")
    outcome = bench.log("b").append(Begin(Action.DELTACOMMIT))
    assert outcome == Refused(Rule.FOREIGN, later)


def test_an_existing_table_is_adopted_and_its_times_are_respected(bench: Bench) -> None:
    old = clock_time(START_MS + 120_000, UTC)  # its writer's clock was ahead
    bench.storage.create(f"{TIMELINE}/{old}.deltacommit.requested", b"")
    bench.storage.create(f"{TIMELINE}/{old}.deltacommit.inflight", b"")
    bench.storage.create(f"{TIMELINE}/{old}_{old[:-1]}9.deltacommit", b"x")
    entry = begun(bench.log("a"))
    assert entry.n == 1
    assert entry.time is not None
    assert entry.time > f"{old[:-1]}9"


def test_nothing_begins_during_a_restore(bench: Bench) -> None:
    time = clock_time(START_MS, UTC)
    bench.storage.create(f"{TIMELINE}/{time}.restore.requested", b"")
    assert bench.log().append(Begin(Action.DELTACOMMIT)) == Refused(Rule.RESTORE_PENDING, time)


def test_a_timeline_file_that_is_not_what_was_decided_stops_everything(bench: Bench) -> None:
    a = bench.log("a")
    entry = begun(a)
    made = decided(a.append(completion(entry)))
    assert made.creates is not None
    b = bench.log("b")

    class Blind(FaultyStorage):
        """Does not see the file, and finds it when it creates it."""

        def stat(self, path: str) -> None:
            return None

    bench.storage.write(f"{TIMELINE}/{made.creates.name}", b"forged")
    b = bench.log("b", storage=Blind(bench.storage))
    with pytest.raises(CorruptTableError, match="not what was decided"):
        b.refresh()


def test_an_uncontended_commit_costs_what_the_protocol_counts(bench: Bench) -> None:
    storage = FaultyStorage(bench.storage)
    log = bench.log(storage=storage)
    decided(log.append(completion(begun(log))))
    before = len(storage.trace)
    decided(log.append(completion(begun(log))))
    operations = [operation.name for operation in storage.trace[before:]]
    # Two entries, requested, inflight and completed; the heartbeat is the transaction's.
    assert operations.count("create") == 5
    # A tail and a verify listing for each entry, and a look at the own inflight file.
    assert operations.count("list") == 4
    assert operations.count("stat") == 1
    assert len(operations) == 10


def test_the_cost_of_a_commit_does_not_grow_with_the_table(bench: Bench) -> None:
    storage = FaultyStorage(bench.storage)
    log = bench.log(storage=storage)
    costs = []
    for _ in range(40):
        before = len(storage.trace)
        decided(log.append(completion(begun(log))))
        costs.append(len(storage.trace) - before)
    assert set(costs[1:]) == {10}


def test_kinds_of_entries_are_those_of_the_protocol() -> None:
    assert {kind.value for kind in EntryKind} == {"begin", "complete", "abort", "void"}


def test_a_foreign_engine_that_comes_later_is_noticed(bench: Bench) -> None:
    a = bench.log("a")
    decided(a.append(completion(begun(a))))
    later = clock_time(bench.clock.ms + 60_000, UTC)
    bench.storage.create(f"{TIMELINE}/{later}.deltacommit.requested", b"")
    bench.clock.sleep(LOOK_AGAIN_MS + 1)
    assert a.append(Begin(Action.DELTACOMMIT)) == Refused(Rule.FOREIGN, later)
    bench.storage.delete(f"{TIMELINE}/{later}.deltacommit.requested")
    bench.clock.sleep(LOOK_AGAIN_MS + 1)
    begun(a)
