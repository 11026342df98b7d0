"""Executing clean plans: the steps of a clean in the life of a plan (`services.planned_action`).

The work of a plan only deletes files that the plan names, and may be repeated. So a heartbeat is
not claimed: two processes that delete the same files do no harm. The plan is checked before it is
executed. A file that is still needed by now, for example by a savepoint, is skipped. A path outside
the table, a file of a latest slice and a file of a pending write must never be planned. If a plan
has one, that is an error, nothing is deleted, and the plan stays pending until a process cancels
it.

No rollback aborts a clean. It is cancelled by completing it as a clean of nothing. From the moment
a plan is on the timeline, reads of what it removes are refused (`plan.retention`). They stay
refused if it is cancelled, because the process that cancels it cannot know whether another one is
removing its files at that moment. A scan that was made before meets a missing file, which is an
error as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, NamedTuple

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.proposals import Refused
from pyhudi.errors import (
    CorruptTableError,
    HudiError,
    UnsupportedTableError,
)
from pyhudi.format.table.bucket_migration import ring_settings
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.plan_files import CLEANER_PLAN, CleanerPlan
from pyhudi.format.timeline.service_metadata import encode_clean_metadata
from pyhudi.plan.clean_records import (
    believed_plan,
    clean_metadata,
    group_of,
    planned_paths,
    refuse_needed,
    skipped_files,
)
from pyhudi.plan.cleaning import CleanPlan, CleanPolicy
from pyhudi.plan.retention import RETAINED_SINCE_KEY, Retention
from pyhudi.plan.ring_cleaning import outlived_rings, ring_objects
from pyhudi.read.lost_files import CommitRecords
from pyhudi.read.plan import AtCompletion, Reader
from pyhudi.services.cleaning.result import Cleaned, CleanResult
from pyhudi.services.cleaning.schedule import (
    CleanFacts,
    CleanPlanning,
    clean_refusal,
    refuse_beside_restore,
)
from pyhudi.services.planned_action import NOT_EXCLUSIVE, Execution, PlannedAction
from pyhudi.session.session import TableSession
from pyhudi.settings import WriteSettings
from pyhudi.storage.objects.heartbeats import Heartbeat, heartbeat_path
from pyhudi.storage.objects.rings import load_ring_files
from pyhudi.storage.objects.timeline_files import load_timeline_file
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import CompletionTimes
from pyhudi.timeline.timeline import WRITE_ACTIONS

#: What an empty plan means; Hudi leaves one if it dies between creating the file and filling it.
_NO_PLAN = CleanerPlan(None, "", CleanPolicy().by.value)


def clean(
    session: TableSession, policy: CleanPolicy | None = None, *, dry_run: bool = False
) -> CleanResult | CleanPlan:
    """Remove what the policy does not retain; with `dry_run` only return a verdict on every file.

    Failed writes are rolled back first, and pending cleans are finished.
    """
    policy = policy or CleanPolicy()
    with session.exclusive:
        if not dry_run:
            session.recover()
        cleanings = table_cleanings(session)
    return cleanings.preview(policy) if dry_run else cleanings.run(policy)


def cancel_clean(session: TableSession, instant: str) -> Cleaned:
    """Cancel a pending clean."""
    with session.exclusive:
        return table_cleanings(session).cancel(instant)


def table_cleanings(session: TableSession) -> Cleanings:
    """Return the cleans of a table that is open for writing."""
    reader = Reader(session.loader)

    # A savepoint has the time of the commit that it saves, so it is not at the timeline's end.
    load = partial(session.current.load, is_whole=True)

    def times(state: TableState) -> CompletionTimes:
        return reader.completion_times(state, AtCompletion(""))

    records = CommitRecords(session.loader)
    return Cleanings(
        session.log, load, times, reader.retention, records, session.settings, session.exclusive
    )


class _Plan(NamedTuple):
    """The files of a plan."""

    plan: CleanerPlan
    planned: Mapping[str, tuple[str, ...]]  # its files, by partition
    bytes: int = 0  # of those that are there
    skipped: frozenset[str] = frozenset()  # those that are still needed
    rings: tuple[str, ...] = ()  # of buckets that it removes, in the order in which they go

    @property
    def paths(self) -> list[str]:
        return [path for paths in self.planned.values() for path in paths]

    @property
    def going(self) -> list[str]:
        return [path for path in self.paths if path not in self.skipped]

    def of_nothing(self) -> _Plan:
        return self._replace(skipped=frozenset(self.paths), rings=())


class Cleanings(PlannedAction[_Plan, int, Cleaned]):
    """What one process does for the cleans of one table. `_work` returns how many ms it took."""

    action = Action.CLEAN

    def __init__(
        self,
        log: DecisionLog,
        load: Callable[[], TableState],
        times: Callable[[TableState], CompletionTimes],
        retention: Callable[[TableState], Retention],
        records: CommitRecords,
        settings: WriteSettings,
        exclusive: AbstractContextManager[Any] = NOT_EXCLUSIVE,
    ) -> None:
        """Hold `exclusive` for everything but the deletes; the rest is for `CleanPlanning`."""
        super().__init__(log, settings, exclusive)
        self.planning = CleanPlanning(log, load, times, retention, records)

    def run(self, policy: CleanPolicy, *, take_over: bool = False) -> CleanResult:
        """Finish pending cleans, then clean. With `take_over`, finish also a clean that another
        process is executing.

        A plan that cannot be executed stays, and does not keep other plans from being executed. Its
        error is in the result.
        """
        done: list[Cleaned] = []
        errors: list[HudiError] = []
        for instant in self.pending():
            try:
                if not take_over and self.is_being_executed(instant.requested):
                    return CleanResult(tuple(done), instant.requested, tuple(errors))
                done.append(self.execute(instant.requested))
            except HudiError as error:
                errors.append(error)
        retained_from = None
        try:
            with self._exclusive:
                requested, retained_from = self.planning.schedule(policy)
            if requested is not None:
                done.append(self.execute(requested))
        except HudiError as error:
            errors.append(error)
        return CleanResult(tuple(done), None, tuple(errors), retained_from)

    # -- planning

    def preview(self, policy: CleanPolicy) -> CleanPlan:
        """Return what a clean would do now."""
        with self._exclusive:
            return self.planning.preview(policy)

    def schedule(self, policy: CleanPolicy) -> str | None:
        """Put a plan on the timeline; return its requested time, or None if no file is removed."""
        with self._exclusive:
            return self.planning.schedule(policy)[0]

    # -- executing

    def execute(self, requested: str, *, is_forced: bool = True) -> Cleaned:
        """Execute a plan, or what is left of it, even beside another process."""
        cleaned = super().execute(requested, is_forced=is_forced)
        assert cleaned is not None
        return cleaned

    def is_being_executed(self, requested: str) -> bool:
        """True if another process seems to execute the clean.

        pyhudi has a heartbeat. If another engine made the plan, the age of the plan's files counts,
        too.
        """
        signs = [heartbeat_path(requested)]
        plan = self._load_cleaner_plan(requested)
        if RETAINED_SINCE_KEY not in (plan.extra_metadata or {}):
            signs += [self._path(requested, state) for state in (State.REQUESTED, State.INFLIGHT)]
        with self._exclusive:
            return self._liveness.is_alive(*signs)

    def _claimed(self, heartbeat: Heartbeat, *, is_forced: bool) -> bool:
        heartbeat.start(self._log.world, self._settings.heartbeat_interval_ms)
        return True

    def _load_plan(self, requested: str) -> _Plan:
        refuse_beside_restore(f"the clean {requested}", self._log.live.pending.values())
        plan = self._load_cleaner_plan(requested)
        path = self._path(requested, State.REQUESTED)
        return _Plan(plan, planned_paths(plan, self._storage.uri, path))

    def _load_cleaner_plan(self, requested: str) -> CleanerPlan:
        path = self._path(requested, State.REQUESTED)
        plan = CLEANER_PLAN.decode_or_none(load_timeline_file(self._storage, path), path)
        return _NO_PLAN if plan is None else plan

    def _rechecked(self, run: Execution[_Plan]) -> Execution[_Plan]:
        facts = self.planning.facts(self._log.clock.read_ms())
        size, skipped = self._examined(facts, run.requested, run.plan.planned)
        plan = run.plan._replace(bytes=size, skipped=skipped)
        return run.with_plan(plan._replace(rings=tuple(self._outlived(facts, plan))))

    def _outlived(self, facts: CleanFacts, plan: _Plan) -> Iterator[str]:
        """Yield what goes of rings whose buckets this plan removes."""
        if ring_settings(facts.state.config.buckets) is None:
            return
        replaced = {group_of(path) for path in plan.going} & facts.state.replaced.keys()
        for partition in sorted({partition for partition, _ in replaced}):
            files = load_ring_files(self._storage, partition)
            gone = outlived_rings(files, partial(self._retains_before, facts, plan.plan))
            yield from ring_objects(partition, gone)

    def _retains_before(self, facts: CleanFacts, plan: CleanerPlan, resize: InstantTime) -> bool:
        """True if a state is retained, or saved, in which the resize had not completed."""
        since = (plan.extra_metadata or {}).get(RETAINED_SINCE_KEY)
        earliest = plan.earliest_instant_to_retain
        if since is None and earliest is None:
            return True  # a plan of another engine, which does not say
        done = facts.times.of(resize)
        if done is None:
            found = self._history().instant(resize)
            done = resize if found is None else found.completed
        is_before = earliest is None or resize < earliest.timestamp
        is_known = since is None or done <= since
        return not (is_before and is_known and all(done <= s for s in facts.pins.savepoints))

    def _examined(
        self, facts: CleanFacts, requested: str, planned: Mapping[str, tuple[str, ...]]
    ) -> tuple[int, frozenset[str]]:
        """Return the bytes of the files to be removed, and files to skip because they are needed.

        Raise CorruptTableError if a file should never have been planned, and another error beside a
        restore.
        """
        refuse_beside_restore(f"the clean {requested}", facts.state.timeline.pending)
        # This comes first: where the latest slice is lost, a planned slice would be the latest.
        groups = {group_of(path) for paths in planned.values() for path in paths}
        self.planning.refuse_losses(facts, groups)
        now = self.planning.plan(facts, CleanPolicy.versions(1)).files
        # A process that opened the table long ago may not know files of writes under way.
        under_way = facts.state.timeline.pending_writes
        path = self._path(requested, State.REQUESTED)
        refuse_needed(requested, planned, now, under_way, path)
        return skipped_files(planned, now)

    def _work(self, run: Execution[_Plan]) -> int:
        self._storage.delete_all(run.plan.going)
        for path in run.plan.rings:
            self._storage.delete(path)
        return self._log.world.elapsed_ms() - run.started_ms

    def _remove_late_inflight(self, requested: str) -> None:
        """Do nothing, which saves a request: `plans` ignores an inflight file without a plan."""

    # -- the end

    def _encoded(self, run: Execution[_Plan], work: int) -> bytes:
        plan, planned, skipped = run.plan.plan, run.plan.planned, run.plan.skipped
        metadata = clean_metadata(run.requested, self._believed(plan), planned, skipped, work)
        return encode_clean_metadata(metadata, self._log.world.random_bytes(16))

    def _believed(self, plan: CleanerPlan) -> CleanerPlan:
        done = self._log.refresh().completed.values()
        writes = [instant for instant in done if instant.action in WRITE_ACTIONS]
        return believed_plan(
            plan,
            newest=max((write.requested for write in writes), default=""),
            completed=max((write.completed or "" for write in writes), default=""),
        )

    def _result(self, run: Execution[_Plan], work: int, done: Instant, *, is_ours: bool) -> Cleaned:
        plan, completed = run.plan, done.completed or ""
        skipped = tuple(sorted(plan.skipped))
        return Cleaned(run.requested, completed, len(plan.going), plan.bytes, skipped)

    def _ended_before(self, requested: str, ended: Instant, started_ms: int) -> Cleaned:
        return Cleaned(requested, ended.completed or "", 0, 0)

    def _refusal(self, refused: Refused, run: Execution[_Plan], work: int) -> HudiError:
        return clean_refusal(refused, f"the clean {run.requested}")

    # -- cancelling

    def cancel(self, requested: str) -> Cleaned:
        """Cancel a pending clean: complete it, and remove nothing more.

        Reads of the states that it was to remove stay refused. Another process may have removed its
        files, or may be removing them, and no check can rule that out.
        """
        if requested not in {instant.requested for instant in self.pending()}:
            raise self._not_pending(requested, "no plan has that time, or it is complete")
        if self._seems_executed(requested):
            raise self._cannot_cancel_now(requested)
        plan = self._readable_plan(requested)
        if (ended := self._make_inflight(requested)) is not None:
            return self._ended_before(requested, ended, 0)
        run = Execution(requested, plan.of_nothing(), 0)
        return self._finished(run, 0, self._complete(run, 0))

    def _seems_executed(self, requested: str) -> bool:
        try:
            return self.is_being_executed(requested)
        except CorruptTableError:
            return False  # no process executes a plan that none can read

    def _readable_plan(self, requested: str) -> _Plan:
        """Return the plan, or an empty one if it cannot be read: then no process executes it."""
        with suppress(CorruptTableError, UnsupportedTableError):
            plan = self._load_cleaner_plan(requested)
            return _Plan(plan, planned_paths(plan, self._storage.uri, ""))
        return _Plan(_NO_PLAN, {})
