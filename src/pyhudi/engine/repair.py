"""Sweeping up: what crashed and frozen writers left that no decision is about.

Nothing here is needed for the table to be right, except that a file of a given-up instant must be
gone before the active timeline moves past that instant, for readers count older files as
committed. Everything may be repeated, by several at once.

What was seen is judged by a ledger read *after* it was seen: an object belongs to an instant that
was decided before the object existed, so that ledger knows the instant if it is alive.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyhudi.engine.conflict_notes import CONFLICT_FOLDER
from pyhudi.engine.decide import DecisionLog
from pyhudi.engine.history import History
from pyhudi.engine.listed_timeline import list_timeline, lone_inflights
from pyhudi.engine.load import list_data_files
from pyhudi.engine.rollback import ROLLED_BACK_ACTIONS, FailedWriteRecovery
from pyhudi.errors import CorruptTableError
from pyhudi.format.file_names import parse_data_file
from pyhudi.format.instant import (
    Action,
    Instant,
    InstantTime,
    State,
    is_instant_time,
    is_timeline_file,
)
from pyhudi.format.log_entry import LOG_FOLDER, STAGED_FOLDER, entry_path, parse_entry_path
from pyhudi.format.markers import MARKER_ROOT
from pyhudi.storage.decision_log import completed_by_log, load_entry
from pyhudi.storage.heartbeats import HEARTBEAT_FOLDER, heartbeat_path
from pyhudi.storage.marker_files import load_markers, marker_objects
from pyhudi.storage.progress_files import PROGRESS_FOLDER
from pyhudi.storage.protocol import ObjectStat
from pyhudi.storage.write_fence import FENCE_FOLDER
from pyhudi.timeline.ledger import PLANNED_ACTIONS, Ledger
from pyhudi.timeline.timeline import WRITE_ACTIONS

#: No single create is delayed longer than this (assumption A1 of the protocol).
GRACE_MS = 24 * 3_600_000
#: The newest entries of the log that pruning keeps, and how long it keeps the others.
ENTRIES_KEPT = 100
ENTRIES_KEPT_MS = 7 * 24 * 3_600_000

WRITE_ID_FOLDER = ".hoodie/.pyhudi/writes"
_SCRATCH_FOLDERS = (".hoodie/.pyhudi/clock", ".hoodie/.pyhudi/probe", PROGRESS_FOLDER)


@dataclass(frozen=True, slots=True)
class Repaired:
    """What a repair did."""

    rolled_back: tuple[str, ...]  # instants that it gave up
    removed: tuple[str, ...]  # objects that it removed
    #: Data files of writes that completed by the decision log, and of which no timeline tells.
    kept: tuple[str, ...] = ()


class Repair:
    """Leaves nothing behind. `grace_ms` is how long a frozen writer may sleep and still write."""

    def __init__(
        self, log: DecisionLog, recovery: FailedWriteRecovery, *, grace_ms: int = GRACE_MS
    ) -> None:
        self._log = log
        self._storage = log.storage
        self._recovery = recovery
        self._grace_ms = grace_ms
        self._removed: list[str] = []
        self._kept: list[str] = []

    def run(self, own: frozenset[str] = frozenset(), *, is_whole: bool = False) -> Repaired:
        self._log.refresh()
        rolled_back = self._recovery.recover(own)
        self.sweep()
        if is_whole:
            self.sweep_data_files()
        self.prune()
        return Repaired(rolled_back, tuple(self._removed), tuple(self._kept))

    def sweep(self) -> None:
        """Remove ghosts, and what instants that are decided no longer need."""
        marked = self._marked_instants()
        beats = list(self._storage.list(HEARTBEAT_FOLDER))
        staged = list(self._storage.list(STAGED_FOLDER))
        scratch = [s for folder in _SCRATCH_FOLDERS for s in self._storage.list(folder)]
        write_ids = list(self._storage.list(WRITE_ID_FOLDER))
        conflicts = list(self._storage.list(CONFLICT_FOLDER))
        fences = list(self._storage.list(FENCE_FOLDER))
        self._log.forget()
        ledger = self._log.refresh()
        now = self._log.clock.read_ms()
        unknown = self._pending_files(ledger)
        for requested in sorted({*marked, *unknown}):
            self._sweep_instant(requested, ledger, now, is_gone=requested not in unknown)
        self._sweep_late_inflights(ledger)
        for stat in beats:
            self._sweep_beat(stat, ledger, now)
        for stat in staged:
            requested = stat.path.rpartition("/")[2].partition(".")[0]
            if requested in ledger.completed or now - stat.modified_ms >= self._grace_ms:
                self._remove(stat.path)
        for stat in fences:
            requested = stat.path.rpartition("/")[2]
            if self._storage.stat(heartbeat_path(requested)) is None:  # a fence stands until then
                self._remove(stat.path)
        self._remove_older(scratch, now - self._grace_ms)
        self._remove_older([*write_ids, *conflicts], now - max(self._grace_ms, ENTRIES_KEPT_MS))

    def _marked_instants(self) -> list[str]:
        folders = self._storage.list_folder(MARKER_ROOT).folders
        names = (folder.rpartition("/")[2] for folder in folders)
        return [name for name in names if is_instant_time(name)]

    def _pending_files(self, ledger: Ledger) -> set[str]:
        """Instants with pending files that are neither pending nor completed: ghosts, perhaps."""
        objects = self._storage.list_folder(self._log.folder).objects
        names = (stat.path.rpartition("/")[2] for stat in objects)
        found = {name[:17] for name in names if is_timeline_file(name) and "_" not in name}
        return found - ledger.pending.keys() - ledger.completed.keys()

    def _sweep_instant(self, requested: str, ledger: Ledger, now: int, *, is_gone: bool) -> None:
        """Markers of a completed instant go; those of a given-up one tell what else has to.

        `is_gone`: they were there when the timeline had no file of the instant.
        """
        objects = marker_objects(self._storage, requested)
        if requested in ledger.completed:
            for path in objects:
                self._remove(path)
            return
        if requested in ledger.pending:
            return
        newest = max((self._modified(path) for path in objects), default=0)
        if not self._is_undone(requested, ledger):
            is_old = is_gone and now - newest >= self._grace_ms
            if not is_old or not self._is_nowhere(requested, ledger):
                return
        for marker in load_markers(self._storage, requested):
            if self._storage.stat(marker.data_file) is not None:
                self._remove(marker.data_file)
        for path in self._ghosts(requested):
            if self._storage.stat(path) is not None:
                self._remove(path)
        if now - newest >= self._grace_ms:
            for path in objects:
                self._remove(path)

    def _sweep_late_inflights(self, ledger: Ledger) -> None:
        """Inflight files that stand alone: they came when their instant was archived, or undone."""
        listed = list_timeline(self._storage, self._log.folder, has_strays=True)
        for stray in lone_inflights(self._storage, self._log.folder, listed):
            self._remove(self._log.path(stray))
        for service in ledger.pending_of(Action.CLEAN):
            plan = Instant(service.requested, service.action, State.REQUESTED)
            late = Instant(service.requested, service.action, State.INFLIGHT)
            if self._storage.stat(self._log.path(plan)) is None:
                self._remove(self._log.path(late))
                self._log.forget()

    def _ghosts(self, requested: str) -> Iterable[str]:
        for action in (*ROLLED_BACK_ACTIONS, *PLANNED_ACTIONS):
            for state in (State.INFLIGHT, State.REQUESTED):
                yield self._log.path(Instant(InstantTime(requested), action, state))

    def _is_undone(self, requested: str, ledger: Ledger) -> bool:
        """Whether a rollback of the instant has completed."""
        rollback = ledger.named_by.get(requested) or self._log.rollback_of(requested)
        return rollback is not None and rollback in ledger.completed

    def _is_nowhere(self, requested: str, ledger: Ledger) -> bool:
        """Whether no timeline knows the instant, and no reader shows its files.

        So it is with a plan that somebody removed by hand, or with Hudi's tools, when an executor
        had begun. When the active timeline had passed it, it would look committed.
        """
        if requested in ledger.named_by or ledger.is_committed(requested):
            return False
        if not _has_write(ledger) or completed_by_log(self._storage, {requested}):
            return False  # not the instant is lost, but the timeline
        return History(self._storage, self._log.history_folder).instant(requested) is None

    def sweep_data_files(self) -> None:
        """Remove data files of instants that no timeline tells of, once they are old.

        Somebody removed the instants by hand, or with Hudi's tools, and no marker names the files.
        If the timeline itself is lost nothing tells of any instant; then all files stay. So do
        those of a write that has completed by the decision log.
        """
        before = self._log.refresh()
        found: dict[str, list[ObjectStat]] = {}
        for stat in list_data_files(self._storage):
            name = parse_data_file(stat.path.rpartition("/")[2])
            if name is not None and not _is_alive(name.requested, before):
                found.setdefault(name.requested, []).append(stat)
        self._log.forget()
        ledger, now = self._log.refresh(), self._log.clock.read_ms()
        listed = list_timeline(self._storage, self._log.folder, has_strays=True)
        told_of: set[str] = {instant.requested for instant in listed}
        history = History(self._storage, self._log.history_folder)
        told_of.update(history.recorded(frozenset(found)))
        gone: set[str] = set()
        nowhere: set[str] = set()
        for requested in sorted(found.keys() - told_of):
            if _is_alive(requested, ledger):
                continue
            if self._is_undone(requested, ledger):
                gone.add(requested)
            elif requested not in ledger.named_by:
                nowhere.add(requested)
        if nowhere and not _has_write(ledger):
            raise _lost_timeline(self._log, found[min(nowhere)][0].path)
        done = completed_by_log(self._storage, nowhere)
        self._kept += [stat.path for requested in sorted(done) for stat in found[requested]]
        gone |= nowhere - done
        for requested in sorted(gone):
            self._remove_older(found[requested], now - self._grace_ms)

    def _sweep_beat(self, stat: ObjectStat, ledger: Ledger, now: int) -> None:
        requested = stat.path.rpartition("/")[2]
        decided = requested in ledger.completed or self._is_undone(requested, ledger)
        old = now - stat.modified_ms >= self._grace_ms
        if decided or (old and requested not in ledger.pending):
            self._remove(heartbeat_path(requested))

    def _modified(self, path: str) -> int:
        stat = self._storage.stat(path)
        return 0 if stat is None else stat.modified_ms

    def _remove_older(self, stats: Iterable[ObjectStat], before_ms: int) -> None:
        for stat in stats:
            if stat.modified_ms <= before_ms:
                self._remove(stat.path)

    def _remove(self, path: str) -> None:
        self._storage.delete(path)
        self._removed.append(path)

    # -- pruning

    def prune(self) -> None:
        """Remove old entries, oldest first: never the tail, nor what an open instant needs.

        And the notes of conflicts that are as old.
        """
        reached = self._log.clock.at_least_ms() or 0
        self._remove_older(list(self._storage.list(CONFLICT_FOLDER)), reached - ENTRIES_KEPT_MS)
        numbered = ((parse_entry_path(s.path), s) for s in self._storage.list(LOG_FOLDER))
        entries = [(number, stat) for number, stat in numbered if number is not None]
        if len(entries) <= ENTRIES_KEPT:
            return
        keep_from = self._oldest_needed(entries)
        for number, stat in entries[:-ENTRIES_KEPT]:
            if number >= keep_from or reached - stat.modified_ms < ENTRIES_KEPT_MS:
                return
            self._remove(entry_path(number))

    def _oldest_needed(self, entries: list[tuple[int, ObjectStat]]) -> int:
        """The first number whose time is not before every pending instant's."""
        pending = self._log.refresh().pending
        if not pending:
            return entries[-1][0]
        oldest = min(pending)
        low, high = 0, len(entries)
        while low < high:
            middle = (low + high) // 2
            time = self._time_from(entries, middle)
            if time is not None and time < oldest:
                low = middle + 1
            else:
                high = middle
        return entries[low - 1][0] if low else entries[0][0]

    def _time_from(self, entries: list[tuple[int, ObjectStat]], place: int) -> str | None:
        """The time of the first entry from this place on that has one; a void has none."""
        for number, _ in entries[place:]:
            entry = load_entry(self._storage, number)
            if entry is not None and entry.time is not None:
                return entry.time
        return None


def _has_write(ledger: Ledger) -> bool:
    """Whether a write has completed, as on every table with data: the last is never archived."""
    return any(instant.action in WRITE_ACTIONS for instant in ledger.completed.values())


def _lost_timeline(log: DecisionLog, path: str) -> CorruptTableError:
    return CorruptTableError(
        f"the table at {log.storage.uri} has data files and no completed write",
        why=f"files of {log.folder} are missing, where at least the last write should be; "
        "no data file was removed",
        next_step=f"Put {log.folder} back from a copy, or from versions that the store keeps. "
        "Remove the data files yourself if nobody needs them",
        path=path,
    )


def _is_alive(requested: str, ledger: Ledger) -> bool:
    """Whether files of the instant count, or may count one day."""
    return requested in ledger.pending or ledger.is_committed(requested)
