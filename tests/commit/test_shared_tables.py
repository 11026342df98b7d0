"""A table that a Java writer shares: the lock, the other engine's instants, and `void`."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC

import pytest

from faulty_storage import Effect, Fault, FaultyStorage
from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.proposals import Abort, Begin, Complete, Decided, Draft, Facts, Refused, Rule
from pyhudi.commit.rollback import FailedWriteRecovery
from pyhudi.commit.superseded import is_superseded
from pyhudi.errors import UnavailableError
from pyhudi.format.timeline.decision_entry import EntryKind
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.plan_files import InstantName, RollbackPlan, encode_rollback_plan
from pyhudi.read import log_view as known_log
from pyhudi.settings import WriteSettings
from pyhudi.storage.locks.file_lock import LOCK_PATH, FileLock
from pyhudi.storage.objects.decision_log import load_entry
from pyhudi.storage.protocol import Storage
from pyhudi.storage.stores.memory import MemoryStorage
from pyhudi.timeline.instant_time import clock_time
from pyhudi.timeline.live import LiveTimeline
from worlds import START_MS, Clock, still_world

TIMELINE = ".hoodie/timeline"
SETTINGS = WriteSettings(lock_wait_ms=5_000)
SKEW_MS = 200


class Bench:
    def __init__(self) -> None:
        self.clock = Clock()
        self.storage = MemoryStorage(lambda: self.clock.ms)

    def log(self, label: str = "a", storage: Storage | None = None) -> DecisionLog:
        world = still_world(self.clock, label)
        return DecisionLog(
            storage or self.storage,
            world,
            SETTINGS,
            timeline_folder=TIMELINE,
            zone=UTC,
            lock=FileLock(storage or self.storage, world),
            skew_ms=SKEW_MS,
        )

    def java(self, ms_from_now: int, *states: str) -> str:
        """A Java writer's instant, and the time it was requested."""
        requested = clock_time(self.clock.ms + ms_from_now, UTC)
        done = clock_time(self.clock.ms + ms_from_now + 1, UTC)
        names = {
            "requested": f"{requested}.deltacommit.requested",
            "inflight": f"{requested}.deltacommit.inflight",
            "completed": f"{requested}_{done}.deltacommit",
        }
        for state in states:
            self.storage.write(f"{TIMELINE}/{names[state]}", b"")
        return requested

    def begin(self, log: DecisionLog) -> Complete:
        outcome = log.append(Begin(Action.DELTACOMMIT))
        assert isinstance(outcome, Decided)
        requested = outcome.entry.instant or ""
        inflight = Instant(InstantTime(requested), Action.DELTACOMMIT, State.INFLIGHT)
        log.storage.create(log.path(inflight), b"")
        return Complete(requested, Action.DELTACOMMIT, outcome.entry.n, b"done")

    def names(self) -> list[str]:
        return [s.path.rpartition("/")[2] for s in self.storage.list(TIMELINE)]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def unsettled(bench: Bench) -> Complete:
    """A completion that was decided by a writer that crashed before it was carried out."""
    log = bench.log("a")
    job = bench.begin(log)
    crash = Fault(Effect.FAIL, operation="create", path=f"{TIMELINE}/*_*", times=None)
    dying = bench.log("dying", FaultyStorage(bench.storage, [crash]))
    with pytest.raises(UnavailableError):
        dying.append(Complete(job.requested, Action.DELTACOMMIT, None, b"done"))
    bench.storage.delete(LOCK_PATH)  # an operator, or the lock's expiry
    return job


def test_the_lock_is_held_while_deciding_and_free_afterwards(bench: Bench) -> None:
    seen = []

    class Watching(FaultyStorage):
        def create(self, path: str, data: bytes) -> bool:
            if "/log/" in path or path.startswith(TIMELINE):
                seen.append((path[:20], bench.storage.stat(LOCK_PATH) is not None))
            return super().create(path, data)

    log = bench.log(storage=Watching(bench.storage))
    log.append(Begin(Action.DELTACOMMIT))
    assert len(seen) == 2
    assert all(held for _, held in seen)
    assert bench.storage.stat(LOCK_PATH) is None


class Whole:
    """A proposal that begins and completes its instant."""

    requested = None
    announce = None

    def draft(self, facts: Facts, live: LiveTimeline) -> Draft:
        return Draft(EntryKind.COMPLETE, Action.DELTACOMMIT, b"done", whole=True)


def test_a_whole_entry_is_decided_and_published_under_one_lock(bench: Bench) -> None:
    locks = []

    class Watching(FaultyStorage):
        def create(self, path: str, data: bytes) -> bool:
            if path == LOCK_PATH:
                locks.append(path)
            return super().create(path, data)

    assert isinstance(bench.log(storage=Watching(bench.storage)).append(Whole()), Decided)
    assert len(locks) == 1
    assert [name.partition(".")[2] for name in sorted(bench.names())] == [
        "deltacommit.inflight",
        "deltacommit.requested",
        "deltacommit",
    ]


@pytest.mark.parametrize("published", [0, 1, 2])
def test_a_whole_entry_of_a_dead_writer_is_published_unless_it_is_superseded(
    bench: Bench, published: int
) -> None:
    crash = Fault(Effect.FAIL, operation="create", path=f"{TIMELINE}/*", nth=published + 1)
    crash = replace(crash, times=None)
    with pytest.raises(UnavailableError):
        bench.log("dying", FaultyStorage(bench.storage, [crash])).append(Whole())
    bench.storage.delete(LOCK_PATH)
    assert len(bench.names()) == published
    after, other = bench.log("b"), Bench()
    for path in [stat.path for stat in bench.storage.list("")]:
        other.storage.write(path, bench.storage.read(path))
    assert isinstance(after.append(Begin(Action.DELTACOMMIT)), Decided)
    assert len([name for name in bench.names() if "_" in name]) == 1
    other.java(60_000, "requested", "inflight", "completed")
    assert isinstance(other.log("b").append(Begin(Action.DELTACOMMIT)), Decided)
    entry = load_entry(other.storage, 2)
    assert entry is not None
    assert entry.voids == 1


@pytest.mark.parametrize("is_rolled_back", [False, True])
def test_a_whole_entry_is_superseded_once_its_instant_was_rolled_back(
    *, is_rolled_back: bool
) -> None:
    bench = Bench()
    outcome = bench.log().append(Whole())
    assert isinstance(outcome, Decided)
    entry, live = replace(outcome.entry, guarded=False), LiveTimeline()
    assert entry.instant is not None
    if is_rolled_back:
        live.add_rollback(entry.instant, clock_time(bench.clock.ms + 60_000, UTC))
    assert is_superseded(entry, live, lambda: False) is is_rolled_back


def test_a_lock_that_is_taken_stops_the_write_and_nothing_is_decided(bench: Bench) -> None:
    bench.storage.create(LOCK_PATH, b"")
    with pytest.raises(UnavailableError, match="could not be taken"):
        bench.log().append(Begin(Action.DELTACOMMIT))
    assert load_entry(bench.storage, 1) is None


def test_instants_of_the_other_engine_are_welcome_and_their_times_respected(bench: Bench) -> None:
    log = bench.log()
    first = bench.begin(log)
    java = bench.java(60_000, "requested", "inflight", "completed")
    second = bench.begin(log)
    assert first.requested < java < second.requested


def test_the_lock_is_kept_until_a_java_clock_must_read_more(bench: Bench) -> None:
    before = bench.clock.ms
    bench.log().append(Begin(Action.DELTACOMMIT))
    assert bench.clock.ms - before >= SKEW_MS


def test_a_decision_that_a_java_commit_overtook_is_voided(bench: Bench) -> None:
    job = unsettled(bench)
    bench.java(60_000, "requested", "inflight", "completed")
    log = bench.log("b")
    log.refresh()
    voided = load_entry(bench.storage, 3)
    assert voided is not None
    assert (voided.kind, voided.voids) == (EntryKind.VOID, 2)
    assert not [name for name in bench.names() if name.startswith(f"{job.requested}_")]
    # Nobody rolled it back, so its owner may decide it again, with a later time.
    outcome = log.append(Complete(job.requested, Action.DELTACOMMIT, None, b"done"))
    assert isinstance(outcome, Decided)
    completed = [name for name in bench.names() if name.startswith(f"{job.requested}_")]
    assert len(completed) == 1


def test_an_overtaken_abort_that_took_its_plan_away_is_decided_again(bench: Bench) -> None:
    """Without the rollback nobody would remove what executors of the plan wrote."""
    log = bench.log("a")
    begun = log.append(Begin(Action.COMPACTION, plan=b"what to merge"))
    assert isinstance(begun, Decided)
    planned = Instant(InstantTime(begun.entry.instant or ""), Action.COMPACTION, State.REQUESTED)
    crash = Fault(Effect.FAIL, operation="create", path=f"{TIMELINE}/*.rollback.*", times=None)
    dying = bench.log("dying", FaultyStorage(bench.storage, [crash]))
    named = RollbackPlan(InstantName(planned.requested, "compaction"), ())
    rollback = encode_rollback_plan(named, bytes(16))
    with pytest.raises(UnavailableError):
        dying.append(Abort(planned, begun.entry.n, rollback))
    assert planned.file_name not in bench.names()
    bench.storage.delete(LOCK_PATH)
    java = bench.java(60_000, "requested", "inflight", "completed")

    bench.log("b").refresh()
    again = load_entry(bench.storage, 3)
    assert again is not None
    assert (again.kind, again.voids) == (EntryKind.ABORT, 2)
    assert again.target is not None
    assert again.target.instant == planned.requested
    assert again.instant is not None
    assert again.instant > java
    path = f"{TIMELINE}/{again.instant}.rollback.requested"
    assert bench.storage.read(path, 0, len(rollback) + 1) == rollback
    assert [name for name in bench.names() if ".rollback." in name] == [path.rpartition("/")[2]]


def test_a_decision_whose_instant_java_rolled_back_is_voided_for_good(bench: Bench) -> None:
    job = unsettled(bench)
    bench.storage.delete(f"{TIMELINE}/{job.requested}.deltacommit.inflight")
    log = bench.log("b")
    log.refresh()
    voided = load_entry(bench.storage, 3)
    assert voided is not None
    assert voided.voids == 2
    again = log.append(Complete(job.requested, Action.DELTACOMMIT, None, b"done"))
    assert again == Refused(Rule.NOT_INFLIGHT)


def test_a_rollback_that_java_planned_stops_the_completion(bench: Bench) -> None:
    log = bench.log()
    job = bench.begin(log)
    rollback = clock_time(bench.clock.ms + 1_000, UTC)
    plan = RollbackPlan(InstantName(job.requested, "deltacommit"), ())
    path = f"{TIMELINE}/{rollback}.rollback.requested"
    bench.storage.create(path, encode_rollback_plan(plan, bytes(16)))
    assert log.append(job) == Refused(Rule.ROLLED_BACK, rollback)


def test_a_write_that_java_undid_is_not_completed_by_a_late_inflight_file(bench: Bench) -> None:
    """Its writer slept between its requested file and its inflight file."""
    log = bench.log()
    job = bench.begin(log)
    bench.storage.delete(f"{TIMELINE}/{job.requested}.deltacommit.requested")
    assert log.append(job) == Refused(Rule.NOT_INFLIGHT)
    assert not [name for name in bench.names() if name.startswith(f"{job.requested}_")]


def test_a_pending_rollback_of_java_is_finished(bench: Bench) -> None:
    java = bench.java(-1_000, "requested", "inflight")
    data = f"p/.00000000-0000-0000-0000-000000000000-0_{java}.log.1_0-1-2"
    bench.storage.create(f".hoodie/.temp/{java}/MARKERS.type", b"TIMELINE_SERVER_BASED")
    bench.storage.create(f".hoodie/.temp/{java}/MARKERS0", f"{data}.marker.CREATE\n".encode())
    bench.storage.create(data, b"rows")
    rollback = clock_time(bench.clock.ms, UTC)
    plan = encode_rollback_plan(RollbackPlan(InstantName(java, "deltacommit"), ()), bytes(16))
    bench.storage.create(f"{TIMELINE}/{rollback}.rollback.requested", plan)
    log = bench.log()
    FailedWriteRecovery(log, SETTINGS).recover()
    assert bench.storage.stat(data) is None
    assert [name for name in bench.names() if name.endswith(".rollback")]
    assert not [name for name in bench.names() if name.startswith(java)]


def test_a_java_write_without_a_heartbeat_is_spared_while_it_is_young(bench: Bench) -> None:
    java = bench.java(0, "requested", "inflight")
    log = bench.log()
    recovery = FailedWriteRecovery(log, SETTINGS)
    assert recovery.recover() == ()
    bench.clock.sleep(SETTINGS.heartbeat_timeout_ms + 1)
    assert recovery.recover() == (java,)
    assert bench.clock.ms > START_MS


def test_a_lost_lock_makes_the_writer_check_again(bench: Bench) -> None:
    class Thief(FaultyStorage):
        """Somebody deletes the lock while the writer looks at the timeline."""

        stolen = 0

        def list_folder(self, prefix: str):  # type: ignore[no-untyped-def]
            if prefix == TIMELINE and self.stolen < 2:
                self.stolen += 1
                bench.storage.delete(LOCK_PATH)
            return super().list_folder(prefix)

    storage = Thief(bench.storage)
    outcome = bench.log(storage=storage).append(Begin(Action.DELTACOMMIT))
    assert isinstance(outcome, Decided)
    assert storage.stolen == 2
    assert load_entry(bench.storage, 2) is None


def test_what_was_decided_before_the_table_had_a_lock_is_carried_out_though_overtaken(
    bench: Bench,
) -> None:
    """Its writer may be about to do so, and no lock tells him that he must not."""
    world = still_world(bench.clock, "without a lock")
    crash = Fault(Effect.FAIL, operation="create", path=f"{TIMELINE}/*_*", times=None)
    storage = FaultyStorage(bench.storage, [crash])
    frozen = DecisionLog(storage, world, SETTINGS, timeline_folder=TIMELINE, zone=UTC)
    job = bench.begin(frozen)
    with pytest.raises(UnavailableError):
        frozen.append(job)
    bench.java(5, "requested", "inflight", "completed")
    bench.clock.sleep(1_000)
    bench.log("with a lock").refresh()
    assert [name for name in bench.names() if name.startswith(f"{job.requested}_")]


def test_the_lock_is_asked_after_the_stores_clock_was_read_and_before_anything_is_published(
    bench: Bench,
) -> None:
    job = unsettled(bench)
    held: list[bool] = []

    class SlowClock(FaultyStorage):
        def write(self, path: str, data: bytes) -> str:
            if path.startswith(".hoodie/.pyhudi/clock"):
                bench.storage.delete(LOCK_PATH)  # it took so long that the lock is over
            return super().write(path, data)

        def create(self, path: str, data: bytes) -> bool:
            if path.rpartition("/")[2].startswith(f"{job.requested}_"):
                held.append(bench.storage.stat(LOCK_PATH) is not None)
            return super().create(path, data)

    bench.log("b", SlowClock(bench.storage)).refresh()
    assert held == [True]


def test_a_writer_that_slept_too_long_is_not_told_that_its_decision_was_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others carried it out and archived it: who writes again would write it twice."""
    monkeypatch.setattr(known_log, "ENTRIES_KEPT_MAX", 20)

    class Sleepy(FaultyStorage):
        is_awake = True

        def create(self, path: str, data: bytes) -> bool:
            created = super().create(path, data)
            if "/log/" in path and not self.is_awake:
                self.is_awake = True
                bench.storage.delete(LOCK_PATH)
                others = bench.log("b")
                for _ in range(15):
                    others.append(bench.begin(others))
                assert [name for name in bench.names() if name.startswith(f"{job.requested}_")]
                for stat in bench.storage.list(TIMELINE):
                    if stat.path.startswith(f"{TIMELINE}/{job.requested}"):
                        bench.storage.delete(stat.path)
            return created

    storage = Sleepy(bench.storage)
    log = bench.log("a", storage)
    job = bench.begin(log)
    storage.is_awake = False
    with pytest.raises(UnavailableError, match="the log was pruned past it"):
        log.append(job)


def test_whoever_is_interrupted_while_he_waits_for_other_clocks_still_waits(bench: Bench) -> None:
    log = bench.log()
    sleep = log.world.sleep_ms
    interrupted: list[int] = []

    def interrupting(ms: int) -> None:
        if not interrupted:
            interrupted.append(ms)
            raise KeyboardInterrupt
        sleep(ms)

    log.world = replace(log.world, sleep_ms=interrupting)
    log._lease._world = log.world
    with pytest.raises(KeyboardInterrupt):
        log.append(Begin(Action.DELTACOMMIT))
    assert bench.storage.stat(LOCK_PATH) is None
    (name,) = bench.names()
    assert clock_time(bench.clock.ms - SKEW_MS, UTC) > name[:17]
