"""Failed writes: detect them, abort them, roll them back.

Detection is a guess, because a silent writer may be frozen. An abort is not: `abort` and `complete`
of an instant compete for the next number of the log, and each checks for the other. So five writers
may detect a failure at once and one of them aborts, and a writer that wakes up too late is refused.
A rollback can be repeated by any process at any time, because it only deletes files of an aborted
instant, and those names are never used again.
"""

from __future__ import annotations

from collections.abc import Set
from functools import partial

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.liveness import Liveness
from pyhudi.commit.pending_plans import load_service_plan
from pyhudi.commit.proposals import Abort, Complete, Decided, Outcome
from pyhudi.commit.virtual_resizes import KeptResizes
from pyhudi.errors import CorruptTableError, UnavailableError
from pyhudi.format.files.file_names import FileGroupId, group_of_path, parse_data_file
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.plan_files import (
    RollbackPlan,
    decode_rollback_plan,
    encode_rollback_plan,
)
from pyhudi.format.timeline.service_metadata import encode_rollback_metadata
from pyhudi.plan.rollback import files_to_delete, is_final, plan_rollback, rollback_metadata
from pyhudi.read.archive import History
from pyhudi.settings import FailedWrites, WriteSettings
from pyhudi.storage.objects.dual_logs import made_by
from pyhudi.storage.objects.heartbeats import heartbeat_path
from pyhudi.storage.objects.markers import load_markers
from pyhudi.storage.objects.timeline_files import load_timeline_file

#: What is rolled back when its writer fails. A failed compaction or clustering is executed again.
ROLLED_BACK_ACTIONS = (Action.COMMIT, Action.DELTACOMMIT, Action.REPLACECOMMIT)


class FailedWriteRecovery:
    """Rolls back what dead writers left; one for each process and table."""

    def __init__(self, log: DecisionLog, settings: WriteSettings) -> None:
        self.log = self._log = log
        self._storage = log.storage
        self._world = log.world
        self._settings = settings
        self._liveness = Liveness(log, settings)
        self._kept = KeptResizes(log)

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
        marked = [marker.data_file for marker in load_markers(self._storage, requested)]
        left = {*made_by(self._storage, requested, marked), *self._beside_resize(instant)}
        plan = plan_rollback(instant, sorted(left), self._storage.uri, self._log.folder)
        data = encode_rollback_plan(plan, self._world.random_bytes(16))
        pending = instant.in_state(State.REQUESTED)
        number, check = self._log.number_of(requested), partial(self._kept.refusal, pending)
        return self._log.append(Abort(pending, number, data, check))

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
        deleted = self.delete_files(target, plan if self._may_trust(plan, target) else None)
        metadata = rollback_metadata(
            rollback, target, deleted, self._storage.uri, self._world.elapsed_ms() - started
        )
        data = encode_rollback_metadata(metadata, self._world.random_bytes(16))
        number = self._log.number_of(rollback)
        self._log.append(Complete(rollback, Action.ROLLBACK, number, data))
        self._storage.delete(heartbeat_path(target.requested))

    def _may_trust(self, plan: RollbackPlan, target: Instant) -> bool:
        """True if the files that the plan names may be deleted.

        The plan of a resize left the timeline when it was aborted. Of the logs that writers have
        put into its children the markers of the writes tell, and those may be gone.
        """
        if self._has_pending_files(target):
            return True
        if target.action is not Action.CLUSTERING:
            return False
        markers = load_markers(self._storage, target.requested)
        if files_to_delete(plan, markers, target.requested) == files_to_delete(
            RollbackPlan(), markers, target.requested
        ):
            return False  # the markers say all that it does
        history = History(self._storage, self._log.history_folder)
        return history.instant(target.requested) is None

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
        requested = target.requested
        markers = load_markers(self._storage, requested)
        planned = files_to_delete(plan or RollbackPlan(), markers, requested)
        left = {*made_by(self._storage, requested, planned)}
        if plan is not None and target.action is Action.CLUSTERING:
            # Writers may have put more logs into the children since the plan was made.
            groups = {group for path in planned if (group := group_of_path(path)) is not None}
            left.update(self._named(requested, groups))
        paths = tuple(sorted(left))
        self._storage.delete_all(paths)
        for state in (State.INFLIGHT, State.REQUESTED):
            self._storage.delete(self._log.path(target.in_state(state)))
        return paths

    def _beside_resize(self, instant: Instant) -> list[str]:
        """Return all files that a resize names, if writers write twice beside it.

        Their markers are in the folders of the writes, and gone with those that have completed.
        """
        if instant.action is not Action.CLUSTERING:
            return []
        plan = load_service_plan(self._log, instant).resize
        return [] if plan is None or not plan.is_dual else self._named(instant.requested, plan.made)

    def remove_named(self, instant: Instant, groups: Set[FileGroupId]) -> None:
        """Remove the files of these groups that an aborted instant names."""
        self._storage.delete_all(self._named(instant.requested, groups))

    def _named(self, requested: str, groups: Set[FileGroupId]) -> list[str]:
        """List the files of these groups that the instant names."""
        listed = (
            stat.path
            for partition in sorted({group.partition for group in groups})
            for stat in self._storage.list_folder(partition).objects
        )
        return [path for path in listed if _is_of(path, requested, groups)]


def _is_of(path: str, requested: str, groups: Set[FileGroupId]) -> bool:
    name = parse_data_file(file_name(path))
    return name is not None and name.requested == requested and group_of_path(path) in groups


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
