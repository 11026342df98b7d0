"""Compaction: executors that slept for long, and plans that cannot be executed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from archived_tables import POLICY, SETTINGS, Bench, content, rows
from faulty_storage import FaultyStorage
from golden_tables import GoldenTables
from memory_tables import TIMELINE
from opened_tables import session_on
from pyhudi.commit.proposals import Begin, Decided
from pyhudi.errors import (
    ConflictError,
    CorruptTableError,
    InvalidRequestError,
    UnavailableError,
)
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.format.timeline.instant import Action
from pyhudi.format.timeline.plan_files import decode_compaction_plan
from pyhudi.format.timeline.writer_identity import WriterIdentity
from pyhudi.plan.cleaning import CleanPolicy
from pyhudi.plan.compaction.operations import omitted_file
from pyhudi.plan.compaction.policy import CompactionPolicy
from pyhudi.read.load import TableLoader, load_config
from pyhudi.read.plan import AtCompletion, Reader
from pyhudi.services.cleaning.execute import clean
from pyhudi.services.compaction.execute import Compactions
from pyhudi.services.compaction.merge_slice import checked_groups
from pyhudi.services.compaction.result import compaction_metadata
from pyhudi.services.compaction.run import LocalMerge, compact, compactions
from pyhudi.services.compaction.schedule import PlanDraft
from pyhudi.session.session import TableSession
from pyhudi.storage.objects.heartbeats import Heartbeat, heartbeat_path
from pyhudi.storage.open import open_storage
from pyhudi.storage.protocol import ObjectStat, Storage
from pyhudi.timeline.live import LiveTimeline

HOUR_MS = 3_600_000


def begun(bench: Bench, action: Action, plan: bytes) -> str:
    """Put a plan on the timeline that was not made from the table."""
    session = bench.session("forger")
    outcome = session.log.append(Begin(action, plan))
    assert isinstance(outcome, Decided)
    assert outcome.entry.instant is not None
    return outcome.entry.instant


def planned(bench: Bench) -> str:
    requested = compactions(bench.session("planner")).schedule()
    assert requested is not None
    return requested


def plan_path(requested: str, action: str = "compaction") -> str:
    return f"{TIMELINE}/{requested}.{action}.requested"


def sleepy(bench: Bench, meanwhile: Callable[[TableSession], object]) -> Compactions:
    """An executor that falls asleep when its files are there."""
    session = bench.session("slow")

    def merge(*asked: Any) -> list[WriteStat]:
        stats = list(LocalMerge(session)(*asked))
        meanwhile(session)
        return stats

    return compactions(session, merge)


# -- executors that slept


@pytest.mark.parametrize("lock", [None, LockKind.FILE])
@pytest.mark.parametrize("when", ["before the decision", "before the files"])
def test_an_executor_that_slept_until_its_plan_was_archived_deletes_nothing(
    lock: LockKind | None, when: str
) -> None:
    """Another one completed it, under the same names; its inputs are cleaned since."""
    bench = Bench(lock=lock) if lock else Bench()
    bench.table("w").upsert(rows(1, "precious"))
    bench.write(1, 2, 3)
    requested = planned(bench)
    before: dict[str, int] = {}

    def meanwhile(session: TableSession) -> None:
        bench.clock.sleep(HOUR_MS)
        [done] = compact(bench.session("fast"), plans=False).results
        assert done.instant == requested
        bench.write(*range(4, 14))
        bench.clock.sleep(HOUR_MS)
        bench.write(14)
        clean(bench.session("cleaner"), CleanPolicy.commits(1))
        assert requested in bench.archive().archived
        before.update(content(bench.table().read()))
        session.log.forget()

    if when == "before the decision":
        slow = sleepy(bench, meanwhile)
    else:
        session = bench.session("slow")

        def merge(*asked: Any) -> list[WriteStat]:
            meanwhile(session)
            return list(LocalMerge(session)(*asked))

        slow = compactions(session, merge)
    result = slow.execute(requested)
    assert result is not None
    assert not result.is_ours
    assert "precious" in before
    assert content(bench.table().read()) == before
    again = compactions(bench.session("late")).execute(requested)
    assert again is not None
    assert (again.is_ours, again.file_groups) == (False, 1)
    with pytest.raises(InvalidRequestError, match=f"has completed at {again.completed}"):
        compactions(bench.session("late")).cancel(requested)


def test_an_executor_whose_plan_was_cancelled_and_archived_leaves_nothing() -> None:
    bench = Bench()
    bench.write(1, 2, 3)
    requested = planned(bench)
    names: list[str] = []

    def meanwhile(session: TableSession) -> None:
        made = [s.path for s in bench.storage.list("") if s.path.endswith(".parquet")]
        names.extend(path for path in made if requested in path)
        data = {path: bench.storage.read(path) for path in names}
        compactions(bench.session("other")).cancel(requested, is_forced=True)
        bench.write(*range(4, 12))
        bench.clock.sleep(HOUR_MS)
        bench.write(12)
        bench.archive()
        for path in names:  # and only now its last file comes
            bench.storage.write(path, data[path])
        session.log.forget()

    with pytest.raises(ConflictError, match="was not completed"):
        sleepy(bench, meanwhile).execute(requested)
    assert names
    assert not [s.path for s in bench.storage.list("") if requested in s.path]


def test_files_of_a_plan_whose_end_is_unknown_are_left_where_they_are() -> None:
    """A plan that vanished without a word may have been restored from elsewhere, or be archived."""
    bench = Bench()
    bench.write(1, 2, 3)
    requested = planned(bench)

    def meanwhile(session: TableSession) -> None:
        bench.storage.delete(plan_path(requested))
        bench.storage.delete(plan_path(requested).replace("requested", "inflight"))
        session.log.forget()

    with pytest.raises(ConflictError, match="was not completed"):
        sleepy(bench, meanwhile).execute(requested)
    assert [s.path for s in bench.storage.list("") if f"_{requested}.parquet" in s.path]


class Sleepy(FaultyStorage):
    """Its process sleeps before it creates a certain object, and much happens meanwhile."""

    def __init__(self, inner: Storage, path: str, meanwhile: Callable[[], None]) -> None:
        super().__init__(inner)
        self._path, self._meanwhile = path, meanwhile

    def create(self, path: str, data: bytes) -> bool:
        if path == self._path:
            self._meanwhile()
        return super().create(path, data)


@pytest.mark.parametrize("is_cleaned", [True, False])
@pytest.mark.parametrize("when", ["before the heartbeat", "before the inflight file"])
def test_an_executor_that_slept_before_it_began_leaves_no_inflight_file(
    when: str, is_cleaned: bool
) -> None:
    """The plan is archived when it wakes up; nothing but its requested file can found another."""
    bench = Bench()
    bench.table("w").upsert(rows(1, "precious"))
    bench.write(1, 2, 3)
    requested = planned(bench)
    inflight = plan_path(requested).replace("requested", "inflight")

    def meanwhile() -> None:
        bench.clock.sleep(HOUR_MS)
        compactions(bench.session("fast")).execute(requested, is_forced=True)
        bench.write(*range(4, 14))
        bench.clock.sleep(HOUR_MS)
        bench.write(14)
        if is_cleaned:
            clean(bench.session("cleaner"), CleanPolicy.commits(1))
        assert requested in bench.archive().archived

    path = heartbeat_path(requested) if when == "before the heartbeat" else inflight
    storage = Sleepy(bench.storage, path, meanwhile)
    result = compactions(bench.session("slow", storage)).execute(requested)
    assert result is not None
    assert not result.is_ours
    assert bench.storage.stat(inflight) is None
    created = [o.path for o in storage.trace if o.name == "create"]
    assert (inflight in created) == (path == inflight)
    assert "precious" in content(bench.table().read())


def test_an_inflight_file_goes_whatever_ended_the_work() -> None:
    """Also an unforeseen error, when the plan was cancelled and archived."""
    bench = Bench()
    bench.write(1, 2, 3)
    requested = planned(bench)

    def merge(*asked: Any) -> list[WriteStat]:
        compactions(bench.session("other")).cancel(requested, is_forced=True)
        bench.storage.write(plan_path(requested).replace("requested", "inflight"), b"")
        raise MemoryError

    with pytest.raises(MemoryError):
        compactions(bench.session("slow"), merge).execute(requested)
    assert not [s.path for s in bench.storage.list(TIMELINE) if requested in s.path]


def test_two_services_that_start_at_once_do_the_work_once() -> None:
    """Both have found the plan pending, and that no process executes it."""
    bench = Bench()
    bench.write(1, 2, 3)
    requested = planned(bench)
    merges: list[str] = []

    def service(label: str, storage: Storage) -> Compactions:
        session = bench.session(label, storage)

        def merge(*asked: Any) -> list[WriteStat]:
            merges.append(label)
            assert service("late", bench.storage).execute(requested) is None
            return list(LocalMerge(session)(*asked))

        return compactions(session, merge)

    def meanwhile() -> None:
        done = service("fast", bench.storage).execute(requested)
        assert done is not None
        assert done.is_ours

    slow = service("slow", Sleepy(bench.storage, heartbeat_path(requested), meanwhile))
    result = slow.execute(requested)
    assert result is not None
    assert not result.is_ours
    assert merges == ["fast"]
    assert bench.storage.stat(heartbeat_path(requested)) is None


def test_an_executor_that_fails_leaves_the_heartbeat_of_its_successor() -> None:
    bench = Bench()
    bench.write(1, 2, 3)
    requested = planned(bench)
    successor = bench.session("successor")

    def merge(*asked: Any) -> list[WriteStat]:
        bench.clock.sleep(2 * SETTINGS.heartbeat_timeout_ms)
        theirs = Heartbeat(bench.storage, requested)
        assert theirs.claim(successor.log.clock, successor.world, 60_000, 120_000)
        raise MemoryError

    with pytest.raises(MemoryError):
        compactions(bench.session("frozen"), merge).execute(requested)
    assert compactions(successor).is_being_executed(requested)


# -- plans that cannot be executed


@pytest.mark.parametrize("data", [b"garbage", b"", b"Obj\x01 and no more"])
def test_a_plan_that_cannot_be_read_keeps_no_other_from_being_executed(data: bytes) -> None:
    bench = Bench()
    bench.write(1, 2, 3)
    sound = planned(bench)
    bench.write(4, 5)
    broken = begun(bench, Action.COMPACTION, data)
    before = content(bench.table().read())
    with pytest.raises(CorruptTableError, match="cancel_compaction") as caught:
        compact(bench.session("compactor")).or_raise()
    assert broken in str(caught.value)
    assert any("done nevertheless: compaction" in note for note in caught.value.__notes__)
    assert [i.requested for i in compactions(bench.session()).pending()] == [broken]
    assert [i.requested for i in bench.active() if i.requested == sound and i.completed]
    assert content(bench.table().read()) == before
    compactions(bench.session("canceller")).cancel(broken)
    assert compact(bench.session("compactor")).results
    assert content(bench.table().read()) == before


def test_a_plan_has_a_write_that_completed_and_was_archived_while_it_waited_for_the_lock() -> None:
    """An archiver that goes by numbers alone, as Hudi's does, leaves no trace of it to see."""
    bench = Bench(lock=LockKind.FILE)
    bench.write(1, 2, 3)
    work = compactions(bench.session("planner"))
    drafted = work.planning.drafted
    drafts: list[PlanDraft] = []

    def slow(live: LiveTimeline, policy: CompactionPolicy, **how: bool) -> PlanDraft:
        drafts.append(drafted(live, policy, **how))
        if len(drafts) == 1:
            bench.write(*range(4, 12))
            bench.clock.sleep(10_000)
            assert bench.archive(POLICY).archived
        return drafts[-1]

    work.planning.drafted = slow  # type: ignore[method-assign]
    requested = work.schedule()
    assert requested is not None
    last = drafts[0].state.timeline.writes[-1].requested
    archived = {instant.requested for instant in bench.archived()}
    assert any(time > last for time in archived), "only what the plan knew is archived"
    before = content(bench.table().read())
    data = bench.storage.read(plan_path(requested))
    [operation] = decode_compaction_plan(data, "plan").operations or ()
    named = " ".join(operation.delta_file_paths or ())
    assert all(time in named for time in archived if time > last)
    assert work.execute(requested) is not None
    assert content(bench.table().read()) == before


def test_a_plan_that_is_cancelled_before_its_turn_is_no_failure() -> None:
    bench = Bench()
    bench.write(1, 2, 3)
    requested = planned(bench)
    pending = Compactions.pending
    cancelled: list[str] = []

    def and_then(service: Compactions) -> Any:
        found = pending(service)
        if not cancelled:
            cancelled.append(requested)
            compactions(bench.session("other")).cancel(requested)
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Compactions, "pending", and_then)
        done = compact(bench.session("compactor"), plans=False)
    assert (done.results, done.pending) == ((), ())


@pytest.mark.parametrize("lock", [LockKind.NONE, LockKind.FILE])
def test_what_storage_denies_is_reported_though_the_plan_is_under_way_by_then(
    lock: LockKind,
) -> None:
    bench = Bench(lock=lock)
    bench.write(1, 2, 3)
    requested = planned(bench)

    def denied(*_: Any) -> list[WriteStat]:
        raise InvalidRequestError("denied", why="no rights", next_step="Get them")

    done = compact(bench.session("compactor"), plans=False, merge=denied)
    assert [error.what for error in done.errors] == ["denied"]
    assert done.pending == (requested,)


def test_a_full_disk_is_reported_though_the_plan_was_cancelled_meanwhile() -> None:
    bench = Bench()
    bench.write(1, 2, 3)
    requested = planned(bench)

    def full(*_: Any) -> list[WriteStat]:
        compactions(bench.session("other")).cancel(requested, is_forced=True)
        raise UnavailableError("no space", why="the disk is full", next_step="Make room")

    done = compact(bench.session("compactor"), plans=False, merge=full)
    assert [error.what for error in done.errors] == ["no space"]
    assert done.pending == ()


def test_a_log_compaction_whose_hudi_is_gone_can_be_cancelled() -> None:
    bench = Bench()
    bench.write(1, 2, 3)
    preview = planned(bench)
    data = bench.storage.read(plan_path(preview))
    compactions(bench.session("canceller")).cancel(preview)
    requested = begun(bench, Action.LOGCOMPACTION, data)
    bench.storage.write(heartbeat_path(requested), b"")
    service = compactions(bench.session("canceller"))
    with pytest.raises(ConflictError, match="seems to execute it"):
        service.cancel(requested)
    assert not compact(bench.session("compactor")).results
    bench.clock.sleep(2 * SETTINGS.heartbeat_timeout_ms)
    before = content(bench.table().read())
    service.cancel(requested)
    assert bench.storage.stat(plan_path(requested, "logcompaction")) is None
    assert compact(bench.session("compactor")).results
    bench.write(*range(4, 12))
    bench.clock.sleep(10_000)
    assert bench.archive(POLICY).archived
    assert content(bench.table().read()).keys() >= before.keys()


def test_the_completed_file_has_every_file_group_in_its_order() -> None:
    stats = [WriteStat(file_id=f"f{n}", partition_path="pq"[n % 2]) for n in range(6)]
    found = compaction_metadata(iter(stats), "{}", WriterIdentity("w")).write_stats
    named = {partition: [stat.file_id for stat in some] for partition, some in found.items()}
    assert named == {"p": ["f0", "f2", "f4"], "q": ["f1", "f3", "f5"]}


@pytest.mark.parametrize("name", ["mor_archived", "mor_compacted"])
def test_plans_that_hudi_made_have_all_that_they_must(golden: GoldenTables, name: str) -> None:
    storage = open_storage(str(golden.path(name)))
    loader = TableLoader(storage, load_config(storage))
    state = loader.load()
    plans = [s.path for s in storage.list(TIMELINE) if s.path.endswith(".compaction.requested")]
    assert plans
    for path in plans:
        requested = path.rpartition("/")[2][:17]
        plan = decode_compaction_plan(storage.read(path), path)
        times = Reader(loader).completion_times(state, AtCompletion(requested))
        operations = checked_groups(plan.operations or (), requested)
        assert omitted_file(state, times, operations, requested) is None


def test_no_heart_beats_on_if_the_store_fails_at_the_end() -> None:
    bench = Bench()
    bench.write(1, 2, 3)
    requested = planned(bench)
    stopped: list[str] = []
    is_failing: list[bool] = []

    class Failing(FaultyStorage):
        def stat(self, path: str) -> ObjectStat | None:
            if is_failing:
                raise UnavailableError("stat failed", why="a test", next_step="")
            return super().stat(path)

    def merge(*asked: Any) -> list[WriteStat]:
        is_failing.append(True)
        raise MemoryError

    def every(interval_ms: int, call: Callable[[], None]) -> Callable[[], None]:
        return lambda: stopped.append(requested)

    world = replace(bench.session("failing").world, every=every)
    session = session_on(Failing(bench.storage), world, SETTINGS)
    with pytest.raises(MemoryError):
        compactions(session, merge).execute(requested)
    assert stopped == [requested]
