"""Failed writes: detect them, abort them, roll them back.

Detection is a guess, because a silent writer may be frozen. An abort is not: `abort` and `complete`
of an instant compete for the next number of the log, and each checks for the other. So five writers
may detect a failure at once and one of them aborts, and a writer that wakes up too late is refused.
A rollback can be repeated by any process at any time, because it only deletes files of an aborted
instant, and those names are never used again.
"""

from __future__ import annotations

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.liveness import Liveness
from pyhudi.commit.proposals import Abort, Complete, Decided, Outcome
from pyhudi.errors import CorruptTableError, UnavailableError
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.plan_files import (
    RollbackPlan,
    decode_rollback_plan,
    encode_rollback_plan,
)
from pyhudi.format.timeline.service_metadata import encode_rollback_metadata
from pyhudi.plan.rollback import files_to_delete, is_final, plan_rollback, rollback_metadata
from pyhudi.settings import FailedWrites, WriteSettings
from pyhudi.storage.objects.heartbeats import heartbeat_path
from pyhudi.storage.objects.markers import load_markers
from pyhudi.storage.objects.timeline_files import load_timeline_file

#: What is rolled back when its writer fails. A failed compaction or clustering is executed again.
ROLLED_BACK_ACTIONS = (Action.COMMIT, Action.DELTACOMMIT, Action.REPLACECOMMIT)


class FailedWriteRecovery:
    """Rolls back what dead writers left; one for each process and table."""

    def __init__(self, log: DecisionLog, settings: WriteSettings) -> None:
        self._log = log
        self._storage = log.storage
        self._world = log.world
        self._settings = settings
        self._liveness = Liveness(log, settings)

    def recover(self, own: frozenset[str] = frozenset()) -> tuple[str, ...]:
        """Roll every failed write back; return the instants that this call aborted itself."""
        aborted = []
        self._liveness.forget_all_but(self._log.refresh().pending)
        live = self._log.live
        for instant in live.pending_of(*ROLLED_BACK_ACTIONS):
            has_failed = instant.requested not in own and self._has_failed(instant)
            if has_failed and isinstance(self.abort(instant), Decided):
                aborted.append(instant.requested)
        for rollback in self._log.live.pending_of(Action.ROLLBACK):
            self.undo(rollback.requested)
        return tuple(aborted)

    # -- detecting

    def failed(self, own: frozenset[str] = frozenset()) -> tuple[str, ...]:
        """Return the writes that `recover` would abort, as far as reading alone shows."""
        found = []
        live = self._log.refresh()
        for instant in live.pending_of(*ROLLED_BACK_ACTIONS):
            if instant.requested in own or live.rolled_back_by.get(instant.requested) is not None:
                continue
            is_eager = self._settings.failed_writes is FailedWrites.EAGER
            if is_eager or not self._liveness.seems_writer_alive(instant):
                found.append(instant.requested)
        return tuple(found)

    def _has_failed(self, instant: Instant) -> bool:
        if self._log.live.rolled_back_by.get(instant.requested) is not None:
            return False  # already aborted
        if self._settings.failed_writes is FailedWrites.EAGER:
            return True
        return not self._liveness.is_writer_alive(instant)

    # -- aborting

    def abort(self, instant: Instant) -> Outcome:
        """Abort the pending instant, by an entry in the log. Its files are not deleted yet."""
        requested = instant.requested
        markers = load_markers(self._storage, requested)
        plan = plan_rollback(instant, markers, self._storage.uri, self._log.folder)
        data = encode_rollback_plan(plan, self._world.random_bytes(16))
        pending = instant.in_state(State.REQUESTED)
        return self._log.append(Abort(pending, self._log.number_of(requested), data))

    # -- rolling back

    def undo(self, rollback: str) -> None:
        """Execute a rollback, and complete it. It may be repeated, by any number of processes."""
        started = self._world.elapsed_ms()
        requested = Instant(InstantTime(rollback), Action.ROLLBACK, State.REQUESTED)
        path = self._log.path(requested)
        try:
            plan = decode_rollback_plan(load_timeline_file(self._storage, path), path)
        except UnavailableError:
            return  # another process completed it, and it has been archived
        target = _target(plan, path)
        if target.requested in self._log.refresh().completed:
            raise CorruptTableError(
                f"the rollback {rollback} would undo {target.requested}, which has completed",
                why="no pyhudi writer plans that; its rows are visible",
                next_step="If the rows of that write are to stay, remove this plan; if they are to"
                " be removed, finish it with the engine that planned it",
                path=path,
            )
        if not is_final(plan):
            return  # another engine executes a plan again: what it writes next has the same names
        self._storage.create(self._log.path(requested.in_state(State.INFLIGHT)), b"")
        deleted = self.delete_files(target, plan if self._has_pending_files(target) else None)
        metadata = rollback_metadata(
            rollback, target, deleted, self._storage.uri, self._world.elapsed_ms() - started
        )
        data = encode_rollback_metadata(metadata, self._world.random_bytes(16))
        number = self._log.number_of(rollback)
        self._log.append(Complete(rollback, Action.ROLLBACK, number, data))
        self._storage.delete(heartbeat_path(target.requested))

    def _has_pending_files(self, target: Instant) -> bool:
        """True if the instant's pending files are there.

        If they are not, another process rolled it back before, or it was archived and must not be
        rolled back. A plan would not show which. Markers do: they stay with an aborted instant, and
        are removed with a completed one.
        """
        states = (State.REQUESTED, State.INFLIGHT)
        paths = (self._log.path(target.in_state(state)) for state in states)
        return any(self._storage.stat(path) is not None for path in paths)

    def delete_files(self, target: Instant, plan: RollbackPlan | None = None) -> tuple[str, ...]:
        """Delete what an aborted instant wrote, and its pending files; return the data files'
        paths.

        Its markers stay: a frozen task of it may still write, and then they name the file.
        """
        markers = load_markers(self._storage, target.requested)
        plan = plan or RollbackPlan()
        paths = files_to_delete(plan, markers, target.requested)
        self._storage.delete_all(paths)
        for state in (State.INFLIGHT, State.REQUESTED):
            self._storage.delete(self._log.path(target.in_state(state)))
        return paths


def _target(plan: RollbackPlan, path: str) -> Instant:
    named = plan.instant_to_rollback
    if named is None:
        raise UnavailableError(
            f"{path!r} does not say what it rolls back",
            why="its instantToRollback is null",
            next_step="Finish this rollback with the engine that planned it",
        )
    if named.action not in {action.value for action in Action}:
        raise CorruptTableError(
            f"the rollback of {named.commit_time} cannot be executed",
            why=f"{named.action!r} is not an action",
            next_step="Finish it with the engine that planned it",
            path=path,
        )
    return Instant(InstantTime(named.commit_time), Action(named.action), State.REQUESTED)
