"""Archiving: completed instants move from the active timeline into the archive.

What goes is planned from a listing (`plan.archiving`). Then, a number of instants at a time:

    0  data files are listed: at one of an instant that no timeline tells of, the order stops, and
       so it does at a write of which a log is older than its base file
    1  what writes that were given up may have left is deleted, if the timeline will pass them;
       pending files of theirs, which somebody brought who slept, in any case
    2  the instants are added to the archive (`services.archiving.archive_files`)
    3  their requested and inflight files are deleted
    4  their completed files are deleted, oldest request first

Until the fourth step an instant is active, and from the second on it is archived too, which readers
can bear; so archiving may die anywhere, and the next run deletes what this one did not come to.
Two archivers at once race for the next manifest, and the one that loses looks around again.

No decision is made here, and none is needed: archiving changes where an instant is told of, not
whether it happened. On a table shared with a Java writer the table's lock is held, as Hudi's
archiver holds it, for some hundred instants at a time: all writers wait meanwhile. So the data
files are listed before it is taken. That is soon enough, for an instant is older than its files,
and a timeline that was listed after them tells of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from pyhudi.commit.log import DecisionLog
from pyhudi.errors import UnavailableError
from pyhudi.format.avro.container import CONTAINER_BYTES_MAX
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.archive import ArchivedInstant
from pyhudi.format.timeline.instant import Action, Instant, State
from pyhudi.format.timeline.markers import MARKER_ROOT
from pyhudi.plan.archiving import (
    ArchivePlan,
    ArchivePolicy,
    Backoff,
    batches,
    plan_archiving,
)
from pyhudi.read.archive import History
from pyhudi.read.load import list_data_files
from pyhudi.services.archiving.archive_files import ArchiveFiles, Snapshot
from pyhudi.services.archiving.facts import (
    DataFiles,
    MovedError,
    ServiceMemory,
    ghosts,
    live_replacements,
    load_facts,
    load_old_logs,
    unknown_files,
)
from pyhudi.session.session import TableSession
from pyhudi.storage.objects.checksums import checksum_path, is_checksum
from pyhudi.storage.objects.heartbeats import heartbeat_path
from pyhudi.storage.objects.markers import load_markers, marker_objects
from pyhudi.storage.objects.timeline_files import load_timeline_file
from pyhudi.storage.objects.timeline_listing import list_timeline, removable_orphans
from pyhudi.table.state import TableState
from pyhudi.timeline.timeline import WRITE_ACTIONS, Timeline, without_orphaned_inflights
from pyhudi.wording import counted

_NOTHING = nullcontext()
#: An archive that has more files now.
_Grown: TypeAlias = tuple[ArchiveFiles, Snapshot]

#: Times that another archiver may be faster before we leave it to that one.
ROUNDS_MAX = 5
#: Instants that move before the lock is given back, where there is one.
HOLD_INSTANTS = 500
#: Bytes of timeline files that one new archive file is made of, about.
BATCH_BYTES = 64 << 20

#: Instants whose plan is archived beside what they did. Hudi takes the last file that has bytes.
_PLANS: Mapping[Action, tuple[State, ...]] = {
    Action.CLEAN: (State.REQUESTED,),
    Action.COMPACTION: (State.REQUESTED,),
    Action.LOGCOMPACTION: (State.REQUESTED,),
    Action.REPLACECOMMIT: (State.INFLIGHT, State.REQUESTED),
    Action.CLUSTERING: (State.INFLIGHT, State.REQUESTED),
}


@dataclass(frozen=True, slots=True)
class ArchiveResult:
    """What archiving did."""

    archived: tuple[str, ...] = ()  # requested times of instants that it moved
    finished: tuple[str, ...] = ()  # that another run had moved, and not removed yet
    swept: tuple[str, ...] = ()  # files that writes which were given up had left
    merged: int = 0  # archive files that became part of a larger one
    removed: tuple[str, ...] = ()  # what the archive no longer needs
    stopped_at: str = ""  # a file of an instant that no timeline tells of
    held_by: tuple[str, ...] = ()  # file groups that must be compacted before more can go

    @property
    def did_anything(self) -> bool:
        return replace(self, stopped_at="", held_by=()) != ArchiveResult()

    def __str__(self) -> str:
        parts = [f"{counted(len(self.archived), 'instant')} archived"]
        if self.finished:
            parts.append(f"{len(self.finished)} of an earlier run finished")
        if self.swept:
            parts.append(f"{counted(len(self.swept), 'file')} of failed writes removed")
        if self.merged:
            parts.append(f"{counted(self.merged, 'archive file')} merged")
        if self.removed:
            parts.append(f"{counted(len(self.removed), 'old archive file')} removed")
        if self.stopped_at:
            parts.append(f"stopped at {self.stopped_at}, of whose instant no timeline tells")
        if self.held_by:
            more = f" and {len(self.held_by) - 1} more" if len(self.held_by) > 1 else ""
            parts.append(f"held up until a compaction of {self.held_by[0]}{more}")
        return ", ".join(parts)


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
    """Archives the instants of one table. `load` lists its data files, and is called seldom."""

    def __init__(
        self,
        log: DecisionLog,
        load: Callable[[], TableState],
        policy: ArchivePolicy,
        *,
        is_mor: bool,
        consumers_since: str | None = None,
        kept_from: str | None = None,
        known: ServiceMemory | None = None,
        turn: AbstractContextManager[Any] = _NOTHING,
    ) -> None:
        """`kept_from`: the write from which on a clean of now would keep, if it finds no file.

        `turn` is held for everything but the merging of archive files, which may take seconds; on
        a table of two engines for that, too, for it is done under the lock.
        """
        self._log = log
        self._storage = log.storage
        self._load = load
        self._policy = policy
        self._is_mor = is_mor
        self._since = consumers_since
        self._kept_from = kept_from or ""
        self._known = ServiceMemory() if known is None else known
        self._turn = turn
        self._history = History(log.storage, log.history_folder)
        self._state: TableState | None = None
        self._data: DataFiles | None = None
        self._checksums: set[str] = set()
        self._ghosts: tuple[Instant, ...] = ()
        self._listed: tuple[Instant, ...] = ()
        self._unsettled: frozenset[str] = frozenset()

    def plan(self) -> ArchivePlan:
        """What a run would do now. Nothing of the timeline or the archive is changed."""
        self._log.refresh()
        return self._planned(self._log.clock.estimate_ms, is_guarded=False)

    def run(self) -> ArchiveResult:
        """Archive what is due. UnavailableError leaves the rest to the next run."""
        done, lost = _Done(), 0
        if self._log.is_shared:
            with self._turn, suppress(UnavailableError):  # which the round below tells
                self.plan()  # what it learns need not be asked for while others wait
        while lost < ROUNDS_MAX:
            before = len(done.archived)
            with self._turn:
                is_over, grown = self._guarded_round(done)
            if grown is not None:
                self._merge(grown, done)
            if is_over:
                break
            lost += 0 if self._log.is_shared and len(done.archived) > before else 1
        return done.result()  # all that is due, unless another archiver is at work

    def _guarded_round(self, done: _Done) -> tuple[bool, _Grown | None]:
        """Whether all was done that is due, and the archive if it is left to be merged."""
        is_same = False
        try:
            with self._log.guarded() as (_live, may_go_on):
                is_over, grown = self._round(done, may_go_on)
                if grown is not None and self._log.is_shared:
                    self._merge(grown, done)
                    grown = None
            is_same = is_over and not done.result().did_anything
        finally:
            if not is_same:  # else the timeline is as it was just listed
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
        self._ghosts, self._listed = ghosts(self._log, timeline), listed
        left = tuple(i for i in timeline.instants if i not in self._ghosts)
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
        # A clean that finds nothing leaves no instant, and keeps no less than the last that did.
        retained = facts.retained and max(facts.retained, self._kept_from)
        facts = replace(facts, consumers_since=self._since, retained=retained)
        self._unsettled = facts.unfinished_rollbacks
        plan = plan_archiving(facts, self._policy)
        hiders = [i for i in plan.leaving if i.action is Action.REPLACECOMMIT]
        if hiders or plan.passed:
            self._state = self._load()
        if hiders and self._state is not None:
            facts = replace(facts, live_replacements=live_replacements(self._state))
            plan = plan_archiving(facts, self._policy)
        if plan.begin > (timeline.first_active or ""):
            files = self._data_files(plan)
            unknown = unknown_files(facts, self._history, plan.begin, files.named.values())
            held = load_old_logs(files, plan, lambda: self._state or self._load())
            if unknown or held:
                facts = replace(facts, unknown=unknown, old_logs=held)
                plan = plan_archiving(facts, self._policy)
        return plan

    def _data_files(self, plan: ArchivePlan) -> DataFiles:
        """The data files, listed once in a run unless the plan must know of newer ones."""
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
        """Whether all was done that is due, and the archive if it grew.

        False if another archiver was faster, or if the lock was held for long enough.
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
        self._sweep_ghosts(done)
        self._sweep_passed(plan, done)
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
        """The snapshot that has the instants, which are active no more; None if a race is lost."""
        left = list(batch)
        while left:
            loaded = list(self._loaded(timeline, left))
            if len(loaded) < len(left) and not loaded:
                return None  # archived meanwhile
            added = files.add(snapshot, loaded)
            if added is None:
                return None
            count = len(added.instants)
            self._remove(timeline, left[:count], may_go_on)
            done.archived += [instant.requested for instant in added.instants]
            snapshot, left = added.snapshot, left[count:]
        return snapshot

    def _loaded(self, timeline: Timeline, instants: Iterable[Instant]) -> Iterator[ArchivedInstant]:
        """The instants with their files, up to a number of bytes, or up to one that is gone."""
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
        """Take archived instants off the timeline: what is pending first, oldest first."""
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
                    why="the table's lock was lost, ends too soon, or is another one by now",
                    next_step="Archive again; what was begun is finished then",
                )
            if instant.completed is not None:
                for path in self._files(instant):
                    self._storage.delete(path)

    def _files(self, instant: Instant) -> list[str]:
        """The instant's file, and its checksum if another engine wrote one."""
        path = self._log.path(instant)
        return [path, *({checksum_path(path)} & self._checksums)]

    def _sweep_ghosts(self, done: _Done) -> None:
        """Delete pending files of what was given up: nothing would ever come behind them.

        Inflight files first, for Hudi's readers expect a plan beside them.
        """
        late = [(g, state) for g in self._ghosts for state in (State.INFLIGHT, State.REQUESTED)]
        orphaned_inflights = removable_orphans(self._storage, self._log.folder, self._listed)
        for instant, state in (*late, *((stray, State.INFLIGHT) for stray in orphaned_inflights)):
            path = self._log.path(instant.in_state(state))
            if self._storage.stat(path) is not None:
                self._storage.delete(path)
                done.swept.append(path)

    def _sweep_passed(self, plan: ArchivePlan, done: _Done) -> None:
        """Delete what given-up writes left: soon readers would take it for committed.

        Their markers name it, unless another engine undid them; so the data files are listed too.
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
            marked = sorted({m.data_file for m in load_markers(self._storage, requested)})
            there = [stat.path for stat in self._storage.stat_all(marked) if stat is not None]
            gone = sorted({*paths, *there})
            self._storage.delete_all(gone)
            done.swept += gone
            self._drop_markers(requested)
            self._storage.delete(heartbeat_path(requested))
        self._known.swept.update(set(plan.passed) - self._unsettled)

    def _drop_markers(self, requested: str) -> None:
        self._storage.delete_all(marker_objects(self._storage, requested))


def is_archiving_due(
    session: TableSession,
    memory: ServiceMemory,
    policy: ArchivePolicy,
    asked: ArchivePolicy | None = None,
) -> bool:
    """Whether a run could archive anything, by what the writer knows; it seldom asks storage.

    What an interrupted run left is finished by the next one that is due. `asked` is the policy
    before others raised what it leaves.
    """
    with session.exclusive:
        writes, pause = _writes(session), memory.pause
        if writes <= policy.keep_max:
            return False
        return pause is None or pause.is_over(asked or policy, writes, session.world.elapsed_ms())


def pause_archiving(
    session: TableSession, memory: ServiceMemory, policy: ArchivePolicy, asked: ArchivePolicy
) -> None:
    """After a run: do not try again at once if it had to leave more than the policy does."""
    with session.exclusive:
        writes, now_ms = _writes(session), session.world.elapsed_ms()
        is_stopped = writes > policy.keep_max
        memory.pause = Backoff.after(asked, writes, now_ms) if is_stopped else None


def _writes(session: TableSession) -> int:
    done = session.log.live.completed.values()
    return sum(instant.action in WRITE_ACTIONS for instant in done)


def archive(
    session: TableSession,
    policy: ArchivePolicy | None = None,
    *,
    consumers_since: str | None = None,
    kept_from: str | None = None,
    dry_run: bool = False,
    memory: ServiceMemory | None = None,
) -> ArchiveResult | ArchivePlan:
    """Archive what is due, or say what would be.

    `kept_from` is for whoever knows that a clean would find nothing: where it would keep from.
    """
    with session.exclusive:
        archiver = Archiver(
            session.log,
            session.loader.load,
            policy or ArchivePolicy(),
            is_mor=session.is_mor,
            consumers_since=consumers_since,
            kept_from=kept_from,
            known=memory,
            turn=session.exclusive,
        )
        if dry_run:
            return archiver.plan()
    return archiver.run()
