"""Executing compaction plans: a compaction's steps in the life of a plan
(`services.planned_action`).

The work of a plan creates base files, whose names are fixed. A plan is cancelled by a rollback,
which removes the plan and its files for good.

**Another engine on the table.** Hudi has a heartbeat for a plan that it executes, and leaves alone
a plan that has a live one. When it takes over a plan that was left inflight, it first deletes what
an earlier attempt left, our files too. So before a completion, under the lock, this process checks
that all its files exist, and makes missing ones again. In the other direction, what a failed
attempt of another engine left beside our files, perhaps incomplete, is deleted under the lock
before our files count. If the other engine has completed the plan first, our files are removed,
unless its own are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, NamedTuple, TypeAlias

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.proposals import LOCK_RULES, Decided, Refused, Rule, refusal_error
from pyhudi.commit.rollback import FailedWriteRecovery
from pyhudi.commit.transaction import writer_identity
from pyhudi.errors import (
    ConflictError,
    CorruptTableError,
    HudiError,
)
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.commit_metadata import (
    CommitMetadata,
    WriteStat,
    encode_commit_metadata,
)
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.plan_files import CompactionOperation, decode_compaction_plan
from pyhudi.plan.compaction.operations import input_bytes, omitted_file, unnamed_files
from pyhudi.plan.compaction.policy import CompactionPolicy
from pyhudi.plan.compaction.preview import CompactionPreview
from pyhudi.read.archive import History
from pyhudi.read.lost_files import CommitRecords, loss_error
from pyhudi.services.compaction.merge_slice import broken_plan, checked_groups, planned_slice
from pyhudi.services.compaction.result import (
    CompactionResult,
    compaction_metadata,
    compaction_result,
    data_paths,
    doubles,
    missing_file,
)
from pyhudi.services.compaction.schedule import Advance, CompactionPlanning
from pyhudi.services.planned_action import NOT_EXCLUSIVE, Execution, PlannedAction, has_plan
from pyhudi.settings import WriteSettings
from pyhudi.storage.objects.heartbeats import heartbeat_path
from pyhudi.storage.objects.markers import load_markers, marker_objects
from pyhudi.storage.objects.timeline_files import load_timeline_file
from pyhudi.table.committed_files import LostFile, with_committed
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import CompletionTimes

#: Makes the base files of a plan: its requested time, the table's schema, its operations.
Merge: TypeAlias = Callable[[str, str, Sequence[CompactionOperation]], Iterable[WriteStat]]

#: Actions of the plans that `cancel` accepts.
_CANCELLABLE = (Action.COMPACTION, Action.LOGCOMPACTION)


class _Plan(NamedTuple):
    """The operations of a plan, and the table's schema as of its begin."""

    operations: Sequence[CompactionOperation]
    schema: str  # of the table


class Compactions(PlannedAction[_Plan, CommitMetadata, CompactionResult]):
    """What one process does for the compactions of one table."""

    action = Action.COMPACTION

    def __init__(
        self,
        log: DecisionLog,
        recovery: FailedWriteRecovery,
        settings: WriteSettings,
        *,
        load: Callable[[], TableState],
        load_whole: Callable[[], TableState],
        advance: Advance,
        times: Callable[[TableState], CompletionTimes],
        records: CommitRecords,
        merge: Merge,
        schema: Callable[[str], str],
        exclusive: AbstractContextManager[Any] = NOT_EXCLUSIVE,
    ) -> None:
        """`merge` makes base files, outside of `exclusive`. `schema` returns the table's as of an
        instant's begin. `CompactionPlanning` uses the rest."""
        super().__init__(log, settings, exclusive)
        self.planning = CompactionPlanning(
            log, load=load, load_whole=load_whole, advance=advance, times=times, records=records
        )
        self._recovery = recovery
        self._load = load
        self._records = records
        self._merge = merge
        self._schema = schema

    # -- planning

    def preview(self, policy: CompactionPolicy | None = None) -> CompactionPreview:
        """Return the plan that would be made now."""
        with self._exclusive:
            return self.planning.preview(policy or CompactionPolicy())

    def schedule(self, policy: CompactionPolicy | None = None) -> str | None:
        """Make a plan; return its requested time, or None if nothing is to be done."""
        return self.scheduled(policy)[1]

    def scheduled(
        self, policy: CompactionPolicy | None = None
    ) -> tuple[CompactionPreview, str | None]:
        """Make a plan; return what is in it and what is not, and its requested time or None."""
        with self._exclusive:
            return self.planning.schedule(policy or CompactionPolicy())

    def blocked(self, plans: Iterable[Instant]) -> list[HudiError]:
        """Return an error for each plan that another engine was about to restart and has left.

        Only that engine can execute such a plan.
        """
        with self._exclusive:
            named = self._log.live.rolled_back_by
            blocked = [(i.requested, named[i.requested]) for i in plans if i.requested in named]
            return [
                _restarted_by_other_engine(*names) for names in blocked if self._is_left(*names)
            ]

    def _is_left(self, requested: str, rollback: str) -> bool:
        """True if the engine that began the rollback seems dead."""
        states = (State.REQUESTED, State.INFLIGHT)
        rollbacks = (Instant(InstantTime(rollback), Action.ROLLBACK, state) for state in states)
        signs = (heartbeat_path(requested), *map(self._log.path, rollbacks))
        return not self._liveness.seems_alive(*signs)

    # -- executing

    def input_bytes(self, requested: str) -> int:
        """Return the bytes of the files that a pending plan reads."""
        with self._exclusive:
            operations = self._load_operations(requested)
            return input_bytes(self._load(), checked_groups(operations, requested))

    def _load_operations(self, requested: str) -> Sequence[CompactionOperation]:
        path = self._log.path(self._pending(requested).in_state(State.REQUESTED))
        data = load_timeline_file(self._storage, path)
        try:
            return decode_compaction_plan(data, path).operations or ()
        except CorruptTableError as error:
            raise broken_plan(requested, f"{error.what} ({error.why})") from None

    def _load_plan(self, requested: str) -> _Plan:
        found = self._load_operations(requested)
        operations = checked_groups(found, requested)
        refuse_omitted(self._log, self._records, self._load(), operations, requested)
        return _Plan(found, self._schema(requested))

    def _pending(self, requested: str) -> Instant:
        instant = self._log.live.pending.get(requested)
        rollback = self._log.live.rolled_back_by.get(requested)
        if rollback is not None and instant is not None and not self._is_cancelled(instant):
            raise _restarted_by_other_engine(requested, rollback)
        return super()._pending(requested)

    def _work(self, run: Execution[_Plan]) -> CommitMetadata:
        stats = list(self._merge(run.requested, run.plan.schema, run.plan.operations))
        writer = writer_identity(self._log.world, self._settings)
        return compaction_metadata(stats, run.plan.schema, writer)

    def _encoded(self, run: Execution[_Plan], work: CommitMetadata) -> bytes:
        return encode_commit_metadata(work, self._log.world.random_bytes(16))

    def _objection(self, run: Execution[_Plan], work: CommitMetadata) -> Refused | None:
        if self._log.is_shared and (gone := missing_file(self._storage, work)):
            return Refused(Rule.DENIED, run.requested, f"{gone!r} is gone")
        ours = {path for paths in data_paths(work).values() for path in paths}
        markers = load_markers(self._storage, run.requested)
        self._storage.delete_all([m.data_file for m in markers if m.data_file not in ours])
        return None

    def _refusal(self, refused: Refused, run: Execution[_Plan], work: CommitMetadata) -> HudiError:
        """Return the error; remove our files if the plan was cancelled, or they would stay."""
        requested = run.requested
        if self._was_cancelled(requested):
            self._storage.delete_all([stat.data_path for stat in work.stats])
        elif refused.rule is Rule.ROLLED_BACK and refused.instant is not None:
            return _restarted_by_other_engine(requested, refused.instant)
        if refused.rule not in (Rule.ROLLED_BACK, Rule.NOT_PENDING, Rule.NOT_INFLIGHT):
            return refusal_error(refused, self._storage.uri, requested)
        return _not_completed(requested, refused)

    # -- the end

    def _result(
        self, run: Execution[_Plan], work: CommitMetadata, done: Instant, *, is_ours: bool
    ) -> CompactionResult:
        if is_ours:
            with suppress(HudiError):  # what stays is swept up
                self._storage.delete_all(marker_objects(self._storage, run.requested))
            return self._result_of(done, work, run.started_ms, is_ours=True)
        theirs = self._load_metadata(done)
        for own, other in doubles(work, theirs):
            if self._storage.stat(other) is not None:
                self._storage.delete(own)
        return self._result_of(done, theirs, run.started_ms, is_ours=False)

    def _ended_before(self, requested: str, ended: Instant, started_ms: int) -> CompactionResult:
        if ended.completed is None:
            raise self._not_pending(requested, "its plan is gone")
        return self._result_of(ended, self._load_metadata(ended), started_ms, is_ours=False)

    def _result_of(
        self, done: Instant, metadata: CommitMetadata, started_ms: int, *, is_ours: bool
    ) -> CompactionResult:
        seconds = (self._log.world.elapsed_ms() - started_ms) / 1000
        return compaction_result(done, metadata, seconds, is_ours=is_ours)

    # -- cancelling

    def cancel(self, requested: str, *, is_forced: bool = False) -> str:
        """Cancel a pending plan: remove it and the files made for it. Return the rollback's time.

        It is refused while another process executes the plan, unless `is_forced`. A log compaction
        that Hudi planned can be cancelled, too: otherwise its file groups would stay blocked if no
        Hudi process ever executed it.
        """
        with self._exclusive:
            live = self._log.refresh()
            instant = live.pending.get(requested)
            rollback = live.rolled_back_by.get(requested)
            if rollback is None:
                if instant is None or instant.action not in _CANCELLABLE:
                    raise self._nothing_to_cancel(requested)
                if not is_forced and self.is_being_executed(requested):
                    raise self._cannot_cancel_now(requested)
                rollback = self._aborted(instant)
            self._recovery.undo(rollback)
            plan = instant or Instant(InstantTime(requested), self.action, State.REQUESTED)
            if has_plan(self._log, plan):
                raise _restarted_by_other_engine(requested, rollback)
            return rollback

    def _aborted(self, instant: Instant) -> str:
        outcome = self._recovery.abort(instant)
        if isinstance(outcome, Decided):
            assert outcome.entry.instant is not None
            return outcome.entry.instant
        assert isinstance(outcome, Refused)
        if outcome.rule is Rule.ROLLED_BACK and outcome.instant is not None:
            return outcome.instant  # another process is cancelling it, too
        if outcome.rule in LOCK_RULES:
            raise refusal_error(outcome, self._storage.uri)
        raise self._nothing_to_cancel(instant.requested)


def refuse_omitted(
    log: DecisionLog,
    records: CommitRecords,
    state: TableState,
    operations: Mapping[FileGroupId, CompactionOperation],
    requested: str,
    service: str = "compaction",
) -> None:
    """Raise CorruptTableError if the plan would hide the rows of a file.

    That is a file whose write had completed by the plan's time, and that the plan does not name. If
    the file does not exist either, it is lost.
    """
    committed = records.load(state, [planned_slice(o) for o in operations.values()])
    whole = with_committed(state, committed.files)
    timeline = state.timeline
    unnamed = {file.name.requested for file in unnamed_files(whole, operations, requested)}
    archived = frozenset(time for time in unnamed if timeline.is_archived(time))
    history = History(log.storage, log.history_folder)
    times = CompletionTimes(timeline, history.completion_times(archived))
    omitted = omitted_file(whole, times, operations, requested)
    if omitted is None:
        return
    listed = {file.path for group in state.groups() for file in group.files}
    if omitted in listed:
        why = f"it leaves out {omitted!r}, which had completed by then"
        raise broken_plan(requested, why, service)
    file = next(file for file in committed.files if file.path == omitted)
    lost = LostFile(file.path, file.commit, file.size, None)
    what = f"the {service} {requested} cannot be executed"
    raise loss_error(log.storage, timeline, lost, what)


def _not_completed(requested: str, refused: Refused) -> ConflictError:
    why = f"{refused.rule} ({refused.instant or requested})"
    if refused.rule is Rule.ROLLED_BACK:
        why = f"it was cancelled meanwhile, by the rollback {refused.instant}"
    return ConflictError(
        f"the compaction {requested} was not completed",
        why=why,
        next_step="Plan a new one; no row is lost",
    )


def _restarted_by_other_engine(requested: str, rollback: str) -> ConflictError:
    """Return the error of a plan that another engine is restarting.

    Only Hudi ends such a rollback, because its next attempt may use the same file names.
    """
    return ConflictError(
        f"the compaction {requested} can be neither executed nor cancelled here",
        why=f"another engine is rolling back its own work on it (the rollback {rollback}), to start"
        " again. The plan stays pending, and its file groups stay blocked",
        next_step="Let that engine finish. If it died, start Hudi once on this table, for example"
        " with CALL run_compaction. Hudi then ends the rollback and executes the plan",
    )
