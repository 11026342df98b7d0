"""The decision log: what is decided, in which order, and what a crash or a zombie cannot do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC
from typing import Any
from uuid import UUID

import pytest

from faulty_storage import Effect, Fault, FaultyStorage
from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.foreign_writers import LOOK_AGAIN_MS
from pyhudi.commit.proposals import (
    Abort,
    AlreadyDone,
    Begin,
    Complete,
    Decided,
    Outcome,
    Refused,
    Rule,
    TooBusyError,
)
from pyhudi.commit.publish import has_effect
from pyhudi.errors import CorruptTableError, UnavailableError
from pyhudi.format.timeline.commit_metadata import CommitMetadata, encode_commit_metadata
from pyhudi.format.timeline.decision_entry import (
    STAGED_FOLDER,
    Entry,
    EntryKind,
    encode_entry,
    entry_path,
)
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.plan_files import InstantName, RollbackPlan, encode_rollback_plan
from pyhudi.format.timeline.writer_identity import WRITER_KEY, WriterIdentity
from pyhudi.settings import WriteSettings
from pyhudi.storage.locks.file_lock import LOCK_PATH, FileLock
from pyhudi.storage.locks.storage_lock import StorageLock
from pyhudi.storage.objects.decision_log import load_entry
from pyhudi.storage.objects.store_clock import CLOCK_AHEAD_MAX_MS
from pyhudi.storage.protocol import Folder, ObjectStat, Storage
from pyhudi.storage.stores.memory import MemoryStorage
from pyhudi.timeline.instant_time import clock_time, following_time
from pyhudi.timeline.live import LiveTimeline
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


def completion(entry: Entry, data: bytes = b"done") -> Complete:
    assert entry.instant is not None
    return Complete(entry.instant, Action.DELTACOMMIT, entry.n, data)


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


def test_a_look_knows_what_was_decided_and_is_published_after_it(bench: Bench) -> None:
    """Else a writer that looked would append a time, or a completion, as if that were not there."""
    entry = begun(bench.log("a"))
    crash = Fault(Effect.FAIL, operation="create", path=f"{TIMELINE}/*_*", times=None)
    dying = bench.log("a", storage=FaultyStorage(bench.storage, [crash]))
    dying.refresh()
    with pytest.raises(UnavailableError):
        dying.append(completion(entry))
    looking = bench.log("b")
    seen = dict(looking.peek().completed)
    assert seen.keys() == {entry.instant}
    assert not any("_" in name for name in bench.names()), "a look publishes nothing"
    bench.log("c").refresh()
    begun(looking)
    assert looking.live.completed == seen
    assert looking.append(abort(entry)) == Refused(Rule.COMPLETED, entry.instant)


def decided_and_not_published(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> str:
    """A writer dies between its entry and the completed file, whose bytes are staged; the path."""
    monkeypatch.setattr("pyhudi.commit.proposals.INLINE_BYTES_MAX", 3)
    entry = begun(bench.log("a"))
    crash = Fault(Effect.FAIL, operation="create", path=f"{TIMELINE}/*_*", times=None)
    dying = bench.log("a", storage=FaultyStorage(bench.storage, [crash]))
    dying.refresh()
    with pytest.raises(UnavailableError):
        dying.append(Complete(entry.instant or "", Action.DELTACOMMIT, None, b"large"))
    made = bench.entries()[-1].creates
    assert made is not None
    assert made.inline is None
    assert made.staged is not None
    return made.staged


def test_staged_bytes_are_published_by_the_next_process(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided_and_not_published(bench, monkeypatch)
    bench.log("b").refresh()
    [completed] = [name for name in bench.names() if "_" in name]
    assert bench.storage.read(f"{TIMELINE}/{completed}") == b"large"


def test_missing_staged_bytes_are_reported_and_nothing_is_invented(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.storage.delete(decided_and_not_published(bench, monkeypatch))
    with pytest.raises(CorruptTableError, match="cannot be published"):
        bench.log("b").refresh()


def test_what_was_staged_is_removed_when_the_append_ends(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyhudi.commit.proposals.INLINE_BYTES_MAX", 3)
    log = bench.log("a")
    entry = begun(log)
    decided(log.append(completion(entry, b"large")))
    assert list(bench.storage.list(STAGED_FOLDER)) == []
    [completed] = [name for name in bench.names() if "_" in name]
    assert bench.storage.read(f"{TIMELINE}/{completed}") == b"large"


def test_a_refused_proposal_stages_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyhudi.commit.proposals.INLINE_BYTES_MAX", 3)
    log, watched = bench.log("a"), FaultyStorage(bench.storage)
    entry = begun(log)
    decided(bench.log("b").append(abort(entry)))
    refused = bench.log("c", storage=watched).append(completion(entry, b"large"))
    assert isinstance(refused, Refused)
    assert not [call for call in watched.trace if STAGED_FOLDER in str(call)]


def test_an_aborted_instant_never_completes(bench: Bench) -> None:
    a, b = bench.log("a"), bench.log("b")
    entry = begun(a)
    rollback = decided(b.append(abort(entry)))
    refused = a.append(completion(entry))
    assert refused == Refused(Rule.ROLLED_BACK, rollback.instant)
    assert f"{entry.instant}.deltacommit.inflight" not in bench.names()


@pytest.mark.parametrize(
    ("extra", "stays"), [({WRITER_KEY: WriterIdentity("job").text}, True), ({}, False)]
)
def test_an_abort_takes_the_inflight_file_only_from_another_engine(
    bench: Bench, extra: dict[str, str], stays: bool
) -> None:
    """Ours is fenced off by the log, and Hudi deletes files only of what is inflight."""
    a, b = bench.log("a"), bench.log("b")
    entry = begun(a)
    name = f"{entry.instant}.deltacommit.inflight"
    introduction = CommitMetadata(extra_metadata=extra)
    bench.storage.write(f"{TIMELINE}/{name}", encode_commit_metadata(introduction, SYNC))
    rollback = decided(b.append(abort(entry)))
    assert (name in bench.names()) == stays
    assert a.append(completion(entry)) == Refused(Rule.ROLLED_BACK, rollback.instant)


def test_an_inflight_file_that_makes_no_sense_is_not_ours(bench: Bench) -> None:
    entry = begun(bench.log("a"))
    name = f"{entry.instant}.deltacommit.inflight"
    bench.storage.write(f"{TIMELINE}/{name}", b"nonsense")
    decided(bench.log("b").append(abort(entry)))
    assert name not in bench.names()


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


def test_an_entry_that_took_a_pruned_number_since_it_was_listed_is_not_carried_out(
    bench: Bench,
) -> None:
    """Entry 2 is listed as the tail, then pruned and taken by a zombie, and only then read."""
    begun(bench.log("a"))
    late = bench.log("late")
    late.refresh()
    begun(bench.log("b"))
    second, later = load_entry(bench.storage, 2), clock_time(bench.clock.ms + 60_000, UTC)
    assert second is not None
    assert second.creates is not None
    name = f"{later}.deltacommit.requested"
    creates = replace(second.creates, name=name)
    dead = replace(second, id=str(UUID(int=7)), time=later, instant=later, creates=creates)

    class Late(FaultyStorage):
        def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectStat]:
            found = list(super().list(prefix, after=after))
            if any(stat.path == entry_path(2) for stat in found) and not bench.entries()[2:]:
                begun(bench.log("c"))
                bench.storage.write(entry_path(2), encode_entry(dead))
            return iter(found)

    late.storage = Late(bench.storage)
    assert decided(late.append(Begin(Action.DELTACOMMIT))).n == 4
    assert load_entry(bench.storage, 2) is None
    assert name not in bench.names()


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
    with pytest.raises(CorruptTableError, match="differs from the decision log"):
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
    assert {kind.value for kind in EntryKind} == {"begin", "complete", "abort", "close", "void"}


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


def test_a_foreign_engine_is_noticed_by_a_process_whose_first_look_was_long_ago(
    bench: Bench,
) -> None:
    """It opened the table, computed its rows for minutes, and then began and completed at once."""
    a = bench.log("a")
    decided(a.append(completion(begun(a))))
    b = bench.log("b")
    b.refresh()
    bench.clock.sleep(300_000)
    foreign = clock_time(bench.clock.ms, UTC)
    bench.storage.create(f"{TIMELINE}/{foreign}.deltacommit.requested", b"")
    bench.clock.sleep(300_000)
    assert b.append(Begin(Action.DELTACOMMIT)) == Refused(Rule.FOREIGN, foreign)


def test_what_is_decided_just_before_archiving_lists_the_timeline_is_not_missed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever took that write for pending would roll it back, and delete its rows."""
    a = bench.log("a")
    decided(a.append(completion(begun(a))))
    job = completion(begun(bench.log("b")))
    crash = Fault(Effect.FAIL, operation="create", path=f"{TIMELINE}/*_*", times=None)
    dying = bench.log("dying", storage=FaultyStorage(bench.storage, [crash]))
    refresh = a.refresh

    def then_another_decides() -> LiveTimeline:
        found = refresh()
        with pytest.raises(UnavailableError):
            dying.append(replace(job, begin=None))
        return found

    monkeypatch.setattr(a, "refresh", then_another_decides)
    with a.guarded() as (live, _):
        assert job.requested in live.completed
        assert job.requested not in live.pending
    assert job.requested not in a.live.pending


# -- settling first


class SettledFirst(FaultyStorage):
    """Whoever creates an entry has to find the one before it carried out."""

    def __init__(self, inner: Storage, before_listing: Callable[[], None] | None = None) -> None:
        super().__init__(inner)
        self._meanwhile = before_listing
        self.unsettled: list[int] = []

    def list_folder(self, prefix: str) -> Folder:
        if prefix == TIMELINE and (meanwhile := self._meanwhile) is not None:
            self._meanwhile = None
            meanwhile()
        return super().list_folder(prefix)

    def create(self, path: str, data: bytes) -> bool:
        if path.startswith(".hoodie/.pyhudi/log/"):
            number = json.loads(data)["n"]
            tail = load_entry(self._inner, number - 1)
            if tail is not None and not has_effect(self._inner, TIMELINE, tail):
                self.unsettled.append(tail.n)
        return super().create(path, data)


def test_what_the_search_for_foreign_instants_reads_of_the_log_is_settled_too(
    bench: Bench,
) -> None:
    """After B settled the tail, A completes, and C decides and dies. B lists the timeline, finds
    times it does not know, and reads the log again: its end is now C's, which nobody carried out.
    """
    a, c = bench.log("a"), bench.log("c")
    first, second = begun(a), begun(c)
    crash = Fault(Effect.FAIL, operation="create", path=f"{TIMELINE}/*_*", times=None)
    dying = bench.log("dying", storage=FaultyStorage(bench.storage, [crash]))
    dying.refresh()

    def meanwhile() -> None:
        decided(a.append(completion(first)))
        with pytest.raises(UnavailableError):
            dying.append(Complete(second.instant or "", Action.DELTACOMMIT, None, b"C"))

    storage = SettledFirst(bench.storage, meanwhile)
    begun(bench.log("b", storage=storage))
    assert storage.unsettled == []
    assert [entry.kind for entry in bench.entries()[-3:]] == ["complete", "complete", "begin"]
    assert any(name.startswith(f"{second.instant}_") for name in bench.names())


def test_a_process_keeps_the_bytes_of_the_last_entry_only(bench: Bench) -> None:
    """A process may write for months."""
    log = bench.log()
    for _ in range(5):
        decided(log.append(completion(begun(log), bytes(10_000))))
    assert log._known is not None
    assert [n for n, e in log._known.by_number.items() if e.creates is not None] == [10]


# -- a lock that guards

SKEW_MS = 200


def locked_log(
    bench: Bench, label: str, storage: Storage | None = None, **settings: Any
) -> DecisionLog:
    world = still_world(bench.clock, label)
    return DecisionLog(
        storage or bench.storage,
        world,
        WriteSettings(**settings),
        timeline_folder=TIMELINE,
        zone=UTC,
        lock=FileLock(bench.storage, world),
        skew_ms=SKEW_MS,
    )


class Thief(FaultyStorage):
    """The lock is gone once an entry has been created: its lease ended, or an operator came."""

    def create(self, path: str, data: bytes) -> bool:
        created = super().create(path, data)
        if path.startswith(".hoodie/.pyhudi/log/"):
            self._inner.delete(LOCK_PATH)
        return created


def test_a_decision_that_stands_is_not_reported_as_a_lost_race(bench: Bench) -> None:
    job = completion(begun(locked_log(bench, "a")))
    loser = locked_log(bench, "a", Thief(bench.storage), commit_rounds=1)
    with pytest.raises(UnavailableError, match="it was appended") as error:
        loser.append(replace(job, begin=None))
    assert not isinstance(error.value, TooBusyError)
    assert not any("_" in name for name in bench.names())
    locked_log(bench, "b").refresh()
    assert any(name.startswith(f"{job.requested}_") for name in bench.names())


def test_a_begin_that_another_writer_carried_out_is_announced_all_the_same(bench: Bench) -> None:
    """Or the write would go on without a heartbeat, and be rolled back."""
    other = locked_log(bench, "b")
    begun(other)
    log = locked_log(bench, "a", Thief(bench.storage))
    visits: list[int] = []

    def sleep(ms: int) -> None:
        if not visits:
            visits.append(ms)
            log.storage = bench.storage  # from now on the lock stays
            begun(other)

    log.world = replace(log.world, sleep_ms=sleep)
    announced: list[str] = []
    entry = decided(log.append(Begin(Action.DELTACOMMIT, announce=announced.append)))
    assert visits
    assert {*announced} == {entry.instant}
    assert [e.n for e in bench.entries() if e.id == entry.id] == [2]


def foreign_pending(bench: Bench, ahead_ms: int) -> str:
    ahead = clock_time(bench.clock.ms + ahead_ms, UTC)
    for state in ("requested", "inflight"):
        bench.storage.create(f"{TIMELINE}/{ahead}.deltacommit.{state}", b"")
    return ahead


def test_a_foreign_time_that_is_somewhat_ahead_is_waited_for_without_the_lock(
    bench: Bench,
) -> None:
    """Or another foreign writer, whose clock is right, would come before what we publish."""
    ahead = foreign_pending(bench, 20_000)
    log = locked_log(bench, "a")
    sleep, slept_with_lock = log.world.sleep_ms, []

    def watched(ms: int) -> None:
        slept_with_lock.append((ms, bench.storage.stat(LOCK_PATH) is not None))
        sleep(ms)

    log.world = replace(log.world, sleep_ms=watched)
    entry = begun(log)
    assert (entry.instant or "") > ahead
    assert clock_time(bench.clock.ms - SKEW_MS, UTC) > (entry.instant or "")
    assert max(slept_with_lock)[0] > 19_000
    assert all(ms <= 2 * SKEW_MS for ms, is_held in slept_with_lock if is_held)


def test_a_foreign_time_that_is_far_ahead_stops_writes_and_says_for_how_long(
    bench: Bench,
) -> None:
    ahead = foreign_pending(bench, 3_600_000)
    before = bench.clock.ms
    says = rf"{ahead}, is 359\d\.\d s ahead of the store.*-Duser\.timezone=UTC"
    with pytest.raises(UnavailableError, match=says):
        begun(locked_log(bench, "a"))
    assert bench.clock.ms - before < 20 * SKEW_MS
    bench.clock.sleep(3_600_000)
    assert (begun(locked_log(bench, "b")).instant or "") > ahead


@pytest.mark.parametrize("skew_ms", [-600_000, 600_000])
def test_on_a_shared_table_the_stores_clock_counts(bench: Bench, skew_ms: int) -> None:
    """A foreign writer reads its own clock next, which is as right as the store's."""
    world = still_world(bench.clock, "wrong", skew_ms=skew_ms)
    log = DecisionLog(
        bench.storage,
        world,
        WriteSettings(),
        timeline_folder=TIMELINE,
        zone=UTC,
        lock=FileLock(bench.storage, world),
        skew_ms=SKEW_MS,
    )
    earlier = clock_time(bench.clock.ms - 1_000, UTC)
    entry = begun(log)
    assert earlier < (entry.instant or "") < clock_time(bench.clock.ms - SKEW_MS, UTC)
    completed = decided(log.append(completion(entry)))
    assert (completed.time or "") < clock_time(bench.clock.ms - SKEW_MS, UTC)


def test_one_slow_append_does_not_keep_a_process_from_appending_for_ever(bench: Bench) -> None:
    world = still_world(bench.clock, "a")
    storage = FaultyStorage(
        bench.storage,
        [Fault(Effect.DELAY, operation="create", path="*/log/*", delay_ms=101_000)],
        sleep_ms=bench.clock.sleep,
    )
    log = DecisionLog(
        storage,
        world,
        WriteSettings(),
        timeline_folder=TIMELINE,
        zone=UTC,
        lock=StorageLock(bench.storage, world),
    )
    begun(log)  # within the lease of 300 s
    assert begun(log).n == 2


# -- entries that nobody of us wrote

FORGED: dict[str, Callable[[dict[str, Any]], object]] = {
    "no target": lambda e: e.update(target=[]),
    "a target that is text": lambda e: e.update(target="x"),
    "an effect that is text": lambda e: e.update(creates="x"),
    "an effect that is a list": lambda e: e.update(creates=[1]),
    "an action that is a list": lambda e: e.update(action=[]),
    "a kind that is an object": lambda e: e.update(kind={}),
    "an effect outside": lambda e: e["creates"].update(name="../x"),
    "a size that is none": lambda e: e["creates"].update(size=True),
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_an_entry_that_makes_no_sense_stops_everything_and_is_named(
    bench: Bench, forge: Callable[[dict[str, Any]], object]
) -> None:
    log = bench.log()
    decided(log.append(completion(begun(log))))
    entry = json.loads(bench.storage.read(entry_path(2)))
    forge(entry)
    bench.storage.write(entry_path(2), json.dumps(entry).encode())
    before = bench.names()
    with pytest.raises(CorruptTableError, match=entry_path(2)):
        bench.log("b").append(Begin(Action.DELTACOMMIT))
    assert bench.names() == before


def test_a_process_that_writes_for_months_knows_no_more_than_the_timeline(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyhudi.commit.decision_log.NOTED_MAX", 20)
    log, sizes = bench.log(), []
    for _ in range(60):
        decided(log.append(completion(begun(log))))
        for stat in list(bench.storage.list(TIMELINE))[:-6]:
            bench.storage.delete(stat.path)  # as an archiver elsewhere does
        sizes.append(len(log.refresh().completed))
    assert max(sizes) <= 14
    assert sizes[-1] >= 1
