"""Executing resizes: a resize's steps in the life of a plan (`services.planned_action`).

    bases      the children's base files, from the slices that the plan names
    the end    copy what completed since, and complete (`write.resizing.finish`)

All of it has fixed names, so any process goes on where another stopped. Writers go on meanwhile.
The longest part, the base files, is made while the resize is not closed. If no attempt can succeed,
because a log is damaged, or if writers outrun it (`plan.resizing.pace`), the resize is cancelled:
it must not stay in the way of writers, nor of compactions of the buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from math import isfinite
from typing import Any, NamedTuple, TypeAlias

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.pending_plans import load_service_plan
from pyhudi.commit.proposals import LOCK_RULES, AlreadyDone, Outcome, Refused, Rule, refusal_error
from pyhudi.commit.rollback import FailedWriteRecovery
from pyhudi.commit.transaction import writer_identity
from pyhudi.errors import ConflictError, HudiError, UnsupportedTableError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.commit_metadata import (
    CommitMetadata,
    WriteStat,
    encode_replace_commit_metadata,
)
from pyhudi.format.timeline.instant import Action, Instant, State
from pyhudi.format.timeline.plan_files import CompactionOperation
from pyhudi.format.timeline.resize_plan import GroupChange
from pyhudi.plan.compaction.operations import operation_of
from pyhudi.plan.resizing.inputs import input_slices
from pyhudi.read.lost_files import CommitRecords
from pyhudi.services.compaction.execute import refuse_omitted
from pyhudi.services.planned_action import NOT_EXCLUSIVE, Execution, PlannedAction
from pyhudi.services.resizing.child_bases import Rewrite
from pyhudi.services.resizing.result import ResizeResult, resize_result
from pyhudi.settings import WriteSettings
from pyhudi.storage.objects.heartbeats import Heartbeat, heartbeat_path
from pyhudi.table.state import TableState
from pyhudi.write.resizing.bases import load_made
from pyhudi.write.resizing.cancel import (
    abort_resize,
    has_rows_error,
    is_incurable,
    is_kept,
    rollback_of,
)
from pyhudi.write.resizing.copies import ResizeCopies
from pyhudi.write.resizing.finish import ResizeEnd, resize_metadata, tidy
from pyhudi.write.resizing.work import LayoutOf, ResizeWork, load_resize, unreadable_resize

#: Makes the children's base files: the resize, the table's schema, its splits and merges.
Merge: TypeAlias = Callable[[str, str, Sequence[Rewrite]], Iterable[WriteStat]]


class _Plan(NamedTuple):
    """A resize, and the table's schema as of its begin."""

    work: ResizeWork
    schema: str


class _Made(NamedTuple):
    """What this process has made of a resize, or found."""

    bases: tuple[WriteStat, ...]
    copies: ResizeCopies

    @property
    def stats(self) -> tuple[WriteStat, ...]:
        return (*self.bases, *self.copies.stats)


class Resizes(PlannedAction[_Plan, _Made, ResizeResult]):
    """What one process does for the resizes of one table."""

    action = Action.CLUSTERING

    def __init__(
        self,
        log: DecisionLog,
        recovery: FailedWriteRecovery,
        settings: WriteSettings,
        *,
        load: Callable[[], TableState],
        records: CommitRecords,
        layout_of: LayoutOf,
        merge: Merge,
        schema: Callable[[str], str],
        exclusive: AbstractContextManager[Any] = NOT_EXCLUSIVE,
    ) -> None:
        """`merge` makes base files, outside of `exclusive`. `schema` returns the table's as of an
        instant's begin."""
        super().__init__(log, settings, exclusive)
        self._recovery = recovery
        self._load = load
        self._records = records
        self._layout_of = layout_of
        self._merge = merge
        self._schema = schema

    @property
    def called(self) -> str:
        return "resize"

    def plans(self) -> list[Instant]:
        """Return the pending resizes, also those whose plans are damaged.

        A clustering of another kind is left to another engine.
        """
        with self._exclusive:
            return [plan for plan in super().plans() if self._may_resize(plan)]

    def _may_resize(self, plan: Instant) -> bool:
        found = load_service_plan(self._log, plan)
        return found.resize is not None or found.damage is not None

    def damaged(self) -> list[HudiError]:
        """Return an error for each pending resize whose plan cannot be read."""
        with self._exclusive:
            found = ((i.requested, load_service_plan(self._log, i)) for i in self.plans())
            return [unreadable_resize(i, plan.damage) for i, plan in found if plan.damage]

    def input_bytes(self, requested: str) -> float:
        """Return about how much a pending resize reads, by the plan's own metrics."""
        work = load_resize(self._log, requested, self._layout_of)
        return sum(map(_megabytes, work.plan.groups)) * (1 << 20)

    # -- executing

    def is_being_executed(self, requested: str) -> bool:
        return self._is_at_hudis(requested) or super().is_being_executed(requested)

    def _claimed(self, heartbeat: Heartbeat, *, is_forced: bool) -> bool:
        if not is_forced and self._is_at_hudis(heartbeat.requested):
            return False
        return super()._claimed(heartbeat, is_forced=is_forced)

    def _is_at_hudis(self, requested: str) -> bool:
        """True if Hudi may be executing the plan: it has made it inflight a moment ago.

        Its executors have no heartbeat. Those of pyhudi have one before the inflight file.
        """
        if not self._log.is_shared or self._storage.stat(heartbeat_path(requested)) is not None:
            return False
        return self._liveness.is_alive(self._path(requested, State.INFLIGHT))

    def _load_plan(self, requested: str) -> _Plan:
        self._pending(requested)
        work = load_resize(self._log, requested, self._layout_of)
        # A virtual one may have to be finished.
        if self._log.is_shared and not (work.plan.is_dual or work.plan.is_virtual):
            raise _shared(requested)
        slices = (slice_ for change in work.plan.groups for slice_ in input_slices(change))
        named = {FileGroupId(s.partition, s.file_id): operation_of(s) for s in slices}
        planned = {group: named.get(group) or _nothing(group) for group in work.plan.inputs}
        refuse_omitted(self._log, self._records, self._load(), planned, requested, "resize")
        return _Plan(work, self._schema(requested))

    def _work(self, run: Execution[_Plan]) -> _Made:
        work = run.plan.work
        bases = tuple(self._merge(run.requested, run.plan.schema, rewrites(work)))
        with self._exclusive:
            copies = ResizeCopies(self._log, work)
            copies.find(load_made(self._storage, work.requested))
        return _Made(bases, copies)

    def _completion(self, run: Execution[_Plan], work: _Made) -> Outcome:
        try:
            return self._end(run, work).run()
        except HudiError as error:
            if (done := self._completed_meanwhile(run.requested, error)) is None:
                raise
            return AlreadyDone(done)

    def _end(self, run: Execution[_Plan], made: _Made) -> ResizeEnd:
        encoded = partial(self._encoded, run, made)
        work, exclusive = run.plan.work, self._exclusive
        return ResizeEnd(
            self._log, work, made.bases, made.copies, encoded=encoded, exclusive=exclusive
        )

    def _encoded(self, run: Execution[_Plan], work: _Made) -> bytes:
        metadata = self._metadata(run, work)
        return encode_replace_commit_metadata(metadata, self._log.world.random_bytes(16))

    def _metadata(self, run: Execution[_Plan], work: _Made) -> CommitMetadata:
        writer = writer_identity(self._log.world, self._settings)
        return resize_metadata(run.plan.work, work.stats, run.plan.schema, writer)

    def _completed_meanwhile(self, requested: str, error: HudiError) -> Instant | None:
        done = super()._completed_meanwhile(requested, error)
        if done is None and is_incurable(error):
            with self._exclusive:
                abort_resize(self._recovery, requested)
        return done

    def _refusal(self, refused: Refused, run: Execution[_Plan], work: _Made) -> HudiError:
        """Return the error; remove our files if the plan was cancelled, or they would stay."""
        requested = run.requested
        if self._was_cancelled(requested):
            self._storage.delete_all([stat.data_path for stat in work.stats])
        if refused.rule not in (Rule.ROLLED_BACK, Rule.NOT_PENDING, Rule.NOT_INFLIGHT):
            return refusal_error(refused, self._storage.uri, requested)
        return _not_completed(requested, refused)

    # -- the end

    def _result(
        self, run: Execution[_Plan], work: _Made, done: Instant, *, is_ours: bool
    ) -> ResizeResult:
        tidy(self._log, run.plan.work)
        metadata = self._metadata(run, work) if is_ours else self._load_metadata(done)
        return self._result_of(done, metadata, run.started_ms, is_ours=is_ours)

    def _ended_before(self, requested: str, ended: Instant, started_ms: int) -> ResizeResult:
        if ended.completed is None:
            raise self._not_pending(requested, "its plan is gone")
        metadata = self._load_metadata(ended)
        return self._result_of(ended, metadata, started_ms, is_ours=False)

    def _result_of(
        self, done: Instant, metadata: CommitMetadata, started_ms: int, *, is_ours: bool
    ) -> ResizeResult:
        seconds = (self._log.world.elapsed_ms() - started_ms) / 1000
        return resize_result(done, metadata, seconds, is_ours=is_ours)

    # -- cancelling

    def cancel(self, requested: str, *, is_forced: bool = False) -> str:
        """Cancel a pending resize: remove its plan and its children. Return the rollback's time.

        It is refused while another process executes the resize, unless `is_forced`.
        """
        with self._exclusive:
            live = self._log.refresh()
            instant = live.pending.get(requested)
            if (rollback := live.rolled_back_by.get(requested)) is not None:
                self._recovery.undo(rollback)
                return rollback
            if instant is None or instant.action is not self.action:
                raise self._nothing_to_cancel(requested)
            if not is_forced and self.is_being_executed(requested):
                raise self._cannot_cancel_now(requested)
            outcome = abort_resize(self._recovery, requested)
            if (rollback := rollback_of(outcome)) is not None:
                return rollback
            if isinstance(outcome, Refused) and outcome.rule in LOCK_RULES:
                raise refusal_error(outcome, self._storage.uri)
            if is_kept(outcome):
                assert isinstance(outcome, Refused)
                raise has_rows_error(requested, outcome)
            raise self._nothing_to_cancel(requested)


def rewrites(work: ResizeWork) -> tuple[Rewrite, ...]:
    """Return what is read and made, split by split."""
    pairs = zip(work.plan.groups, work.children, strict=True)
    return tuple(
        Rewrite(input_slices(change), children, _megabytes(change)) for change, children in pairs
    )


def _nothing(group: FileGroupId) -> CompactionOperation:
    """Return what a plan names of a bucket that was never written."""
    return CompactionOperation(None, (), None, group.file_id, group.partition)


def _megabytes(change: GroupChange) -> float:
    """Return about how much is read, by the plan's own metrics."""
    size = (change.metrics or {}).get("TOTAL_IO_MB", 0.0)
    # Any program may have written the plan.
    return size if isfinite(size) else 0.0


def _shared(requested: str) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"the resize {requested} is not executed",
        why="the table has got a lock that Apache Hudi takes, and a Hudi writer would not know what"
        " pyhudi copies",
        next_step="Cancel it with cancel_resize, which loses no row",
    )


def _not_completed(requested: str, refused: Refused) -> ConflictError:
    why = f"{refused.rule} ({refused.instant or requested})"
    if refused.rule is Rule.ROLLED_BACK:
        why = f"it was cancelled meanwhile, by the rollback {refused.instant}"
    return ConflictError(
        f"the resize {requested} was not completed",
        why=why,
        next_step="Plan a new one; no row is lost",
    )
