"""Archiving: completed instants move from the active timeline into the archive.

What goes is planned from a listing (`plan.archiving`). Then, a number of instants at a time:

    0  data files are listed. Archiving stops at a file whose instant is on no timeline, and at a
       write of which a log is older than its base file
    1  files that abandoned writes may have left are deleted, if the timeline will move past these
       writes; pending files of theirs, which a process that slept created, are always deleted
    2  rings of resizes are marked, because Hudi looks for unmarked ones on the active timeline
       only; then the instants are added to the archive (`services.archiving.archive_files`)
    3  their requested and inflight files are deleted
    4  their completed files are deleted, oldest request first

Until the fourth step an instant is active, and from the second on it is archived too. Readers
accept both. So an archiver may die at any step, and the next run deletes what it left. Two
archivers at once race for the next manifest, and the one that loses lists the timeline again.

Nothing is appended to the log here, and nothing needs to be: archiving changes where an instant is
recorded, not whether it happened. On a table shared with a Java writer the table's lock is held, as
Hudi's archiver holds it, for some hundred instants at a time, and all writers wait meanwhile. So
the data files are listed before the lock is taken. This is safe, because an instant is older than
its files, and a timeline that was listed after them has the instant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.errors import UnavailableError
from pyhudi.format.avro.container import CONTAINER_BYTES_MAX
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.archive import ArchivedInstant
from pyhudi.format.timeline.instant import Action, Instant, State
from pyhudi.format.timeline.markers import MARKER_ROOT
from pyhudi.plan.archiving.choose import ArchivePlan, batches, plan_archiving
from pyhudi.plan.archiving.policy import ArchivePolicy
from pyhudi.read.archive import History
from pyhudi.read.load import list_data_files
from pyhudi.services.archiving.archive_files import ArchiveFiles, Snapshot
from pyhudi.services.archiving.facts import (
    DataFiles,
    MovedError,
    ServiceMemory,
    late_pending,
    live_replacements,
    load_facts,
    load_old_logs,
    unknown_files,
)
from pyhudi.services.archiving.marked_rings import mark_rings
from pyhudi.services.archiving.result import ArchiveResult
from pyhudi.storage.objects.checksums import checksum_path, is_checksum
from pyhudi.storage.objects.dual_logs import made_by
from pyhudi.storage.objects.heartbeats import heartbeat_path
from pyhudi.storage.objects.markers import load_markers, marker_objects
from pyhudi.storage.objects.timeline_files import load_timeline_file
from pyhudi.storage.objects.timeline_listing import list_timeline, removable_orphans
from pyhudi.table.state import TableState
from pyhudi.timeline.timeline import Timeline, without_orphaned_inflights

_NOTHING = nullcontext()
#: An archive to which files were added.
_Grown: TypeAlias = tuple[ArchiveFiles, Snapshot]
#: How often another archiver may be faster before this one leaves the rest to it.
ROUNDS_MAX = 5
#: Instants that are archived before the lock is released, where there is one.
HOLD_INSTANTS = 500
#: About how many bytes of timeline files go into one new archive file.
BATCH_BYTES = 64 << 20
#: Actions whose plan is archived beside their result. Hudi takes the last file that has bytes.
_PLANS: Mapping[Action, tuple[State, ...]] = {
    Action.CLEAN: (State.REQUESTED,),
    Action.COMPACTION: (State.REQUESTED,),
    Action.LOGCOMPACTION: (State.REQUESTED,),
    Action.REPLACECOMMIT: (State.INFLIGHT, State.REQUESTED),
    Action.CLUSTERING: (State.INFLIGHT, State.REQUESTED),
}


@dataclass(slots=True)
class _Done:
    archived: list[str] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    swept: list[str] = field(default_factory=list)
    merged: int = 0
    removed: list[str] = field(default_factory=list)
    stopped_at: str = ""
    held_by: tuple[str, ...] = ()

    def result(self) -> ArchiveResult:
        return ArchiveResult(
            tuple(self.archived),
            tuple(self.finished),
            tuple(self.swept),
            self.merged,
            tuple(self.removed),
            self.stopped_at,
            self.held_by,
        )


class Archiver:
    """Archives the instants of one table. `load` lists its data files, and is rarely called."""

    def __init__(
        self,
        log: DecisionLog,
        load: Callable[[], TableState],
        policy: ArchivePolicy,
        *,
        is_mor: bool,
        consumers_since: str | None = None,
        retained_from: str | None = None,
        known: ServiceMemory | None = None,
        exclusive: AbstractContextManager[Any] = _NOTHING,
    ) -> None:
        """`retained_from` is the write from which on a clean that finds no file would retain.

        `exclusive` is held for everything but the merging of archive files, which may take seconds.
        On a table of two engines it is held for that, too, because merging is done under the lock.
        """
        self._log = log
        self._storage = log.storage
        self._load = load
        self._policy = policy
        self._is_mor = is_mor
        self._since = consumers_since
        self._retained_from = retained_from or ""
        self._known = ServiceMemory() if known is None else known
        self._exclusive = exclusive
        self._history = History(log.storage, log.history_folder)
        self._state: TableState | None = None
        self._data: DataFiles | None = None
        self._checksums: set[str] = set()
        self._late_pending: tuple[Instant, ...] = ()
        self._listed: tuple[Instant, ...] = ()
        self._unfinished_rollbacks: frozenset[str] = frozenset()

    def plan(self) -> ArchivePlan:
        """Return what a run would do now, and change neither the timeline nor the archive."""
        self._log.refresh()
        return self._planned(self._log.clock.estimate_ms, is_guarded=False)

    def run(self) -> ArchiveResult:
        """Archive what is due. After UnavailableError, the next run does the rest."""
        done, lost = _Done(), 0
        if self._log.is_shared:
            with self._exclusive, suppress(UnavailableError):  # the round below raises it
                self.plan()  # so that less has to be read while other writers wait
        while lost < ROUNDS_MAX:
            before = len(done.archived)
            with self._exclusive:
                is_over, grown = self._guarded_round(done)
            if grown is not None:
                self._merge(grown, done)
            if is_over:
                break
            lost += 0 if self._log.is_shared and len(done.archived) > before else 1
        return done.result()  # all that was due, unless another archiver is working

    def _guarded_round(self, done: _Done) -> tuple[bool, _Grown | None]:
        """Return whether all that is due was done, and the archive if it is still to be merged."""
        is_same = False
        try:
            with self._log.guarded() as (_live, may_go_on):
                is_over, grown = self._round(done, may_go_on)
                if grown is not None and self._log.is_shared:
                    self._merge(grown, done)
                    grown = None
            is_same = is_over and not done.result().did_anything
        finally:
            if not is_same:  # otherwise the timeline is as it was just listed
                self._log.forget()
        return is_over, grown

    def _merge(self, grown: _Grown, done: _Done) -> None:
        files, snapshot = grown
        _, merged = files.merge(snapshot)
        done.merged += merged
        done.removed += files.tidy(self._log.clock.read_ms())

    # -- planning

    def _planned(self, now_ms: Callable[[], int], *, is_guarded: bool) -> ArchivePlan:
        self._state = None
        listed = list_timeline(
            self._storage, self._log.folder, is_guarded=is_guarded, with_orphans=True
        )
        timeline = Timeline.of(without_orphaned_inflights(listed))
        self._late_pending, self._listed = late_pending(self._log, timeline), listed
        left = tuple(i for i in timeline.instants if i not in self._late_pending)
        timeline = Timeline(left, timeline.began_as)
        facts = load_facts(
            self._log,
            self._history,
            timeline,
            self._policy,
            now_ms,
            is_mor=self._is_mor,
            known=self._known,
        )
        # A clean that finds nothing leaves no instant, and retains no less than the last that did.
        retained = facts.retained and max(facts.retained, self._retained_from)
        facts = replace(facts, consumers_since=self._since, retained=retained)
        self._unfinished_rollbacks = facts.unfinished_rollbacks
        plan = plan_archiving(facts, self._policy)
        replacing = [i for i in plan.leaving if i.action is Action.REPLACECOMMIT]
        if replacing or plan.passed:
            self._state = self._load()
        if replacing and self._state is not None:
            facts = replace(facts, live_replacements=live_replacements(self._state))
            plan = plan_archiving(facts, self._policy)
        if plan.begin > (timeline.first_active or ""):
            files = self._data_files(plan)
            unknown = unknown_files(facts, self._history, plan.begin, files.named.values())
            old_logs = load_old_logs(files, plan, lambda: self._state or self._load())
            if unknown or old_logs:
                facts = replace(facts, unknown=unknown, old_logs=old_logs)
                plan = plan_archiving(facts, self._policy)
        return plan

    def _data_files(self, plan: ArchivePlan) -> DataFiles:
        """Return the data files, listed once in a run unless the plan needs newer ones."""
        known = self._data
        if known is None or known.is_stale(plan.timeline, plan.leaving):
            if self._state is not None:
                groups = self._state.groups()
                files = ((file.path, file.size) for group in groups for file in group.files)
            else:
                files = ((stat.path, stat.size) for stat in list_data_files(self._storage))
            known = self._data = DataFiles.of(files, plan.timeline)
        return known

    # -- one round

    def _round(self, done: _Done, may_go_on: Callable[[], bool]) -> tuple[bool, _Grown | None]:
        """Return whether all that is due was done, and the archive if files were added.

        It is not all done if another archiver was faster, or if the lock was held for long enough.
        """
        world = self._log.world
        files = ArchiveFiles(
            self._storage, self._log.history_folder, world, self._policy, may_go_on
        )
        snapshot = files.snapshot()
        try:
            plan = self._planned(self._log.clock.read_ms, is_guarded=self._log.is_shared)
        except MovedError:
            return False, None
        except UnavailableError:
            files.require_newest(snapshot)
            raise
        done.stopped_at, done.held_by = plan.stopped_at, plan.held_by
        self._sweep_late_pending(done)
        self._sweep_aborted(plan, done)
        if plan.is_empty:
            return True, None
        self._remove(plan.timeline, plan.finished, may_go_on)
        done.finished += [instant.requested for instant in plan.finished]
        leaving = plan.leaving[:HOLD_INSTANTS] if self._log.is_shared else plan.leaving
        for batch in batches(leaving, self._policy.file_instants):
            added = self._archive(files, snapshot, plan.timeline, batch, done, may_go_on)
            if added is None:
                return False, None
            snapshot = added
        return len(leaving) == len(plan.leaving), (files, snapshot)

    def _archive(
        self,
        files: ArchiveFiles,
        snapshot: Snapshot,
        timeline: Timeline,
        batch: tuple[Instant, ...],
        done: _Done,
        may_go_on: Callable[[], bool],
    ) -> Snapshot | None:
        """Move the instants into the archive; return its snapshot, or None if a race is lost."""
        left = list(batch)
        while left:
            loaded = list(self._loaded(timeline, left))
            if len(loaded) < len(left) and not loaded:
                return None  # archived meanwhile
            mark_rings(self._storage, loaded)
            added = files.add(snapshot, loaded)
            if added is None:
                return None
            count = len(added.instants)
            self._remove(timeline, left[:count], may_go_on)
            done.archived += [instant.requested for instant in added.instants]
            snapshot, left = added.snapshot, left[count:]
        return snapshot

    def _loaded(self, timeline: Timeline, instants: Iterable[Instant]) -> Iterator[ArchivedInstant]:
        """Yield the instants with their files, up to a number of bytes or to one that is gone."""
        size = 0
        for instant in instants:
            try:
                metadata = load_timeline_file(self._storage, self._log.path(instant))
            except UnavailableError:
                return
            plan = self._plan_of(timeline, instant)
            size += len(metadata) + len(plan or b"")
            assert instant.completed is not None
            yield ArchivedInstant(
                instant.requested, instant.completed, instant.action.value, metadata or None, plan
            )
            if size >= BATCH_BYTES:
                return

    def _plan_of(self, timeline: Timeline, instant: Instant) -> bytes | None:
        began_as = timeline.began_as.get(instant.requested, instant.action)
        for state in _PLANS.get(began_as, ()):
            path = self._log.path(Instant(instant.requested, began_as, state))
            try:
                data = self._storage.read(path, 0, CONTAINER_BYTES_MAX)
            except FileNotFoundError:
                continue
            if data:
                return data
        return None

    # -- removing

    def _remove(
        self, timeline: Timeline, instants: Iterable[Instant], may_go_on: Callable[[], bool]
    ) -> None:
        """Remove archived instants from the timeline: pending files first, oldest first."""
        instants = list(instants)
        listed = self._storage.list_folder(self._log.folder).objects
        self._checksums = {stat.path for stat in listed if is_checksum(stat.path)}
        marked = {file_name(f) for f in self._storage.list_folder(MARKER_ROOT).folders}
        pending: list[str] = []
        for instant in instants:
            began_as = timeline.began_as.get(instant.requested, instant.action)
            if instant.requested in marked:
                self._drop_markers(instant.requested)
            for state in (State.REQUESTED, State.INFLIGHT):
                if (began_as, state) != (Action.SAVEPOINT, State.REQUESTED):
                    pending += self._files(Instant(instant.requested, began_as, state))
        self._storage.delete_all(pending)
        for instant in instants:
            if not may_go_on():
                raise UnavailableError(
                    "archiving stopped",
                    why="the table's lock was lost, ends too soon, or has been changed",
                    next_step="Archive again. That run finishes what this one began",
                )
            if instant.completed is not None:
                for path in self._files(instant):
                    self._storage.delete(path)

    def _files(self, instant: Instant) -> list[str]:
        """Return the instant's file, and its checksum if another engine wrote one."""
        path = self._log.path(instant)
        return [path, *({checksum_path(path)} & self._checksums)]

    def _sweep_late_pending(self, done: _Done) -> None:
        """Delete late pending files of instants that were rolled back; they would stay for ever.

        Inflight files are deleted first, because Hudi's readers expect a plan beside them.
        """
        late = [
            (g, state) for g in self._late_pending for state in (State.INFLIGHT, State.REQUESTED)
        ]
        orphaned_inflights = removable_orphans(self._storage, self._log.folder, self._listed)
        for instant, state in (*late, *((orphan, State.INFLIGHT) for orphan in orphaned_inflights)):
            path = self._log.path(instant.in_state(state))
            if self._storage.stat(path) is not None:
                self._storage.delete(path)
                done.swept.append(path)

    def _sweep_aborted(self, plan: ArchivePlan, done: _Done) -> None:
        """Delete what abandoned writes left, because readers would soon take it for committed.

        The markers of these writes name their files, unless another engine rolled the writes back.
        So the data files are listed, too.
        """
        if not plan.passed:
            return
        archived = self._history.recorded(frozenset(plan.passed))
        passed = [requested for requested in plan.passed if requested not in archived]
        left: dict[str, set[str]] = {requested: set() for requested in passed}
        assert self._state is not None
        for group in self._state.groups():
            for file in group.files:
                if file.name.requested in left:
                    left[file.name.requested].add(file.path)
        for requested, paths in left.items():
            named = sorted({m.data_file for m in load_markers(self._storage, requested)})
            marked = made_by(self._storage, requested, named)
            there = [stat.path for stat in self._storage.stat_all(marked) if stat is not None]
            gone = sorted({*paths, *there})
            self._storage.delete_all(gone)
            done.swept += gone
            self._drop_markers(requested)
            self._storage.delete(heartbeat_path(requested))
        self._known.swept.update(set(plan.passed) - self._unfinished_rollbacks)

    def _drop_markers(self, requested: str) -> None:
        self._storage.delete_all(marker_objects(self._storage, requested))
