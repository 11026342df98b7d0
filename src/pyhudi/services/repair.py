"""Sweeping up: removing what crashed and frozen writers left and no entry of the log is about.

With one exception, nothing here is needed for the table to be right: a file of an abandoned instant
must be removed before the active timeline moves past that instant, because readers count older
files as committed. Everything may be repeated, and by several processes at once.

What was listed is judged by a live timeline that was read *after* the listing: an object belongs to
an instant that was begun before the object existed, so that timeline has the instant if it is
alive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyhudi.commit import pruning
from pyhudi.commit.conflict_notes import CONFLICT_FOLDER
from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.early_evidence import EVIDENCE_FOLDER, owner_of
from pyhudi.commit.pruning import prune
from pyhudi.commit.rollback import ROLLED_BACK_ACTIONS, FailedWriteRecovery
from pyhudi.commit.write_ids import WRITE_ID_FOLDER
from pyhudi.format.files.file_names import parse_data_file
from pyhudi.format.paths import file_name
from pyhudi.format.table.bucket_migration import ring_settings
from pyhudi.format.table.ring_file import FIRST_INSTANT, RingFileName, ring_path
from pyhudi.format.timeline.decision_entry import STAGED_FOLDER, closed_path
from pyhudi.format.timeline.instant import (
    Action,
    Instant,
    State,
    is_instant_time,
    is_timeline_file,
)
from pyhudi.format.timeline.markers import MARKER_ROOT
from pyhudi.read.archive import History
from pyhudi.read.empty_table import missing_timeline_error
from pyhudi.read.load import list_data_files
from pyhudi.session.session import TableSession
from pyhudi.storage.objects.decision_log import closed_resizes, completed_by_log
from pyhudi.storage.objects.dual_logs import made_by
from pyhudi.storage.objects.heartbeats import HEARTBEAT_FOLDER, heartbeat_path
from pyhudi.storage.objects.markers import load_markers, marker_stats
from pyhudi.storage.objects.progress import PROGRESS_FOLDER
from pyhudi.storage.objects.rings import load_all_ring_files
from pyhudi.storage.objects.store_clock import CLOCK_FOLDER
from pyhudi.storage.objects.timeline_listing import list_timeline, removable_orphans
from pyhudi.storage.objects.write_fence import FENCE_FOLDER
from pyhudi.storage.protocol import ObjectStat
from pyhudi.timeline.live import PLANNED_ACTIONS, LiveTimeline
from pyhudi.timeline.timeline import WRITE_ACTIONS

#: No single create is delayed longer than this (assumption A1 of the protocol).
GRACE_MS = 24 * 3_600_000

_ABANDONED_ACTIONS = (*ROLLED_BACK_ACTIONS, *PLANNED_ACTIONS)
_SCRATCH_FOLDERS = (CLOCK_FOLDER, ".hoodie/.pyhudi/probe", PROGRESS_FOLDER)


@dataclass(frozen=True, slots=True)
class Repaired:
    """What a repair did."""

    rolled_back: tuple[str, ...]  # instants of failed writes
    removed: tuple[str, ...]  # objects that it removed
    #: Data files of writes that completed by the decision log, but that are on no timeline.
    kept: tuple[str, ...] = ()


class Repair:
    """Removes what failed writers left. After `grace_ms` no frozen writer creates an object."""

    def __init__(
        self,
        log: DecisionLog,
        recovery: FailedWriteRecovery,
        *,
        grace_ms: int = GRACE_MS,
        has_rings: bool = False,
    ) -> None:
        self._log = log
        self._storage = log.storage
        self._recovery = recovery
        self._grace_ms = grace_ms
        self._has_rings = has_rings
        self._removed: list[str] = []
        self._preserved: list[str] = []

    def run(self, own: frozenset[str] = frozenset(), *, is_whole: bool = False) -> Repaired:
        self._log.refresh()
        rolled_back = self._recovery.recover(own)
        self.sweep()
        if self._has_rings:
            self.sweep_rings()
        if is_whole:
            self.sweep_data_files()
        self._removed += prune(self._log)
        return Repaired(rolled_back, tuple(self._removed), tuple(self._preserved))

    def sweep(self) -> None:
        """Remove files of rolled-back instants, and objects that ended instants no longer need."""
        marked = self._marked_instants()
        heartbeats = list(self._storage.list(HEARTBEAT_FOLDER))
        staged = list(self._storage.list(STAGED_FOLDER))
        closed = closed_resizes(self._storage)
        scratch = [s for folder in _SCRATCH_FOLDERS for s in self._storage.list(folder)]
        write_ids = list(self._storage.list(WRITE_ID_FOLDER))
        conflicts = list(self._storage.list(CONFLICT_FOLDER))
        fences = list(self._storage.list(FENCE_FOLDER))
        evidence = list(self._storage.list(EVIDENCE_FOLDER))
        self._log.forget()
        live = self._log.refresh()
        now = self._log.clock.read_ms()
        pending_files = self._pending_files(live)
        for requested in sorted({*marked, *pending_files}):
            self._sweep_instant(requested, live, now, pending_files.get(requested, ()))
        self._sweep_late_inflights(live)
        for stat in heartbeats:
            self._sweep_heartbeat(stat, live, now)
        for stat in staged:
            requested = file_name(stat.path).partition(".")[0]
            if requested in live.completed or now - stat.modified_ms >= self._grace_ms:
                self._remove(stat.path)
        for requested in closed:
            if requested not in live.closed:
                self._remove(closed_path(requested))
        of_fences = self._storage.stat_all([heartbeat_path(file_name(s.path)) for s in fences])
        for stat, heartbeat in zip(fences, of_fences, strict=True):
            if heartbeat is None:  # a fence stays as long as the heartbeat
                self._remove(stat.path)
        for stat in evidence:
            self._sweep_evidence(stat, live, now)
        self._remove_older(scratch, now - self._grace_ms)
        self._remove_older(
            [*write_ids, *conflicts], now - max(self._grace_ms, pruning.ENTRIES_KEPT_MS)
        )

    def _marked_instants(self) -> list[str]:
        folders = self._storage.list_folder(MARKER_ROOT).folders
        names = (file_name(folder) for folder in folders)
        return [name for name in names if is_instant_time(name)]

    def _pending_files(self, live: LiveTimeline) -> dict[str, list[Instant]]:
        """Return pending files of instants that are neither pending nor completed.

        They may be files of rolled-back instants.
        """
        objects = self._storage.list_folder(self._log.folder).objects
        names = (file_name(stat.path) for stat in objects)
        found: dict[str, list[Instant]] = {}
        for name in (name for name in names if is_timeline_file(name) and "_" not in name):
            file = Instant.parse(name)
            if file.requested not in live.pending and file.requested not in live.completed:
                found.setdefault(file.requested, []).append(file)
        return found

    def _sweep_instant(
        self, requested: str, live: LiveTimeline, now: int, pending: Sequence[Instant]
    ) -> None:
        """Remove the markers of a completed instant, and the files of an abandoned one.

        The markers of an abandoned instant name its files. `pending` are the instant's pending
        files. If the timeline had none when the markers were there, the instant may be on no
        timeline any more.

        As long as its markers stay, this is done again in each sweep. So it has to be cheap: a
        listing, and one request for all files that the markers name.
        """
        objects = marker_stats(self._storage, requested)
        if requested in live.completed:
            self._remove_all([stat.path for stat in objects])
            return
        if requested in live.pending:
            return
        newest = max((stat.modified_ms for stat in objects), default=0)
        if not self._is_rolled_back(requested, live):
            is_old = not pending and now - newest >= self._grace_ms
            if not is_old or not self._is_unrecorded(requested, live):
                return
        named = [m.data_file for m in load_markers(self._storage, requested, objects)]
        marked = made_by(self._storage, requested, named)
        there = [stat.path for stat in self._storage.stat_all(marked) if stat is not None]
        self._remove_all(there)
        for file in sorted(pending, key=lambda file: file.state is State.REQUESTED):
            if file.action in _ABANDONED_ACTIONS:  # the inflight file first, as it came last
                self._remove(self._log.path(file))
        if now - newest >= self._grace_ms:
            self._remove_all([stat.path for stat in objects])

    def sweep_rings(self) -> None:
        """Remove rings of resizes that were rolled back. A marked one stays: it contradicts, and is
        for a person to judge."""
        unmarked = [
            (partition, instant)
            for partition, files in load_all_ring_files(self._storage).items()
            for instant in files.instants
            if instant not in files.marks and instant != FIRST_INSTANT
        ]
        if not unmarked:
            return
        self._log.forget()
        live = self._log.refresh()
        history = History(self._storage, self._log.history_folder)
        for partition, instant in unmarked:
            if _is_alive(instant, live) or history.recorded(frozenset([instant])):
                continue
            if self._is_rolled_back(instant, live) or history.is_undone(instant):
                self._remove(ring_path(partition, RingFileName(instant)))

    def _sweep_late_inflights(self, live: LiveTimeline) -> None:
        """Remove orphaned inflight files.

        They were created after their instant had been archived or rolled back.
        """
        listed = list_timeline(self._storage, self._log.folder, with_orphans=True)
        for orphan in removable_orphans(self._storage, self._log.folder, listed):
            self._remove(self._log.path(orphan))
        for service in live.pending_of(Action.CLEAN):
            if self._storage.stat(self._log.path(service.in_state(State.REQUESTED))) is None:
                self._remove(self._log.path(service.in_state(State.INFLIGHT)))
                self._log.forget()

    def _is_rolled_back(self, requested: str, live: LiveTimeline) -> bool:
        """True if a rollback of the instant has completed."""
        rollback = live.rolled_back_by.get(requested) or self._log.rollback_of(requested)
        return rollback is not None and rollback in live.completed

    def _is_unrecorded(self, requested: str, live: LiveTimeline) -> bool:
        """True if the instant is on no timeline, and no reader shows its files.

        This happens if a plan is removed by hand, or with Hudi's tools, after an executor had
        begun. Once the active timeline has moved past the instant, its files would look committed.
        """
        if requested in live.rolled_back_by or live.is_committed(requested):
            return False
        if not _has_write(live) or completed_by_log(self._storage, {requested}):
            return False  # the timeline is lost, not the instant
        return History(self._storage, self._log.history_folder).instant(requested) is None

    def sweep_data_files(self) -> None:
        """Remove data files of instants that are on no timeline, once the files are old.

        Such instants were removed by hand, or with Hudi's tools, and no marker names the files. If
        the timeline itself is lost, no instant is recorded, and all files stay. Files of a write
        that has completed by the decision log stay, too.
        """
        before = self._log.refresh()
        found: dict[str, list[ObjectStat]] = {}
        for stat in list_data_files(self._storage):
            name = parse_data_file(file_name(stat.path))
            if name is not None and not _is_alive(name.requested, before):
                found.setdefault(name.requested, []).append(stat)
        self._log.forget()
        live, now = self._log.refresh(), self._log.clock.read_ms()
        listed = list_timeline(self._storage, self._log.folder, with_orphans=True)
        known_instants: set[str] = {instant.requested for instant in listed}
        history = History(self._storage, self._log.history_folder)
        known_instants.update(history.recorded(frozenset(found)))
        removable: set[str] = set()
        unrecorded: set[str] = set()
        for requested in sorted(found.keys() - known_instants):
            if _is_alive(requested, live):
                continue
            if self._is_rolled_back(requested, live):
                removable.add(requested)
            elif requested not in live.rolled_back_by:
                unrecorded.add(requested)
        if unrecorded and not _has_write(live):
            raise missing_timeline_error(
                self._storage, self._log.folder, found[min(unrecorded)][0].path
            )
        done = completed_by_log(self._storage, unrecorded)
        self._preserved += [stat.path for requested in sorted(done) for stat in found[requested]]
        removable |= unrecorded - done
        for requested in sorted(removable):
            self._remove_older(found[requested], now - self._grace_ms)

    def _sweep_heartbeat(self, stat: ObjectStat, live: LiveTimeline, now: int) -> None:
        requested = file_name(stat.path)
        decided = requested in live.completed or self._is_rolled_back(requested, live)
        old = now - stat.modified_ms >= self._grace_ms
        if decided or (old and requested not in live.pending):
            self._remove(heartbeat_path(requested))

    def _sweep_evidence(self, stat: ObjectStat, live: LiveTimeline, now: int) -> None:
        """Remove a claim or a filter of a write that has ended; what names none when it is old."""
        owner = owner_of(self._storage, stat.path)
        is_over = owner is not None and owner not in live.pending
        if is_over or (owner is None and now - stat.modified_ms >= self._grace_ms):
            self._remove(stat.path)

    def _remove_older(self, stats: Iterable[ObjectStat], before_ms: int) -> None:
        for stat in stats:
            if stat.modified_ms <= before_ms:
                self._remove(stat.path)

    def _remove(self, path: str) -> None:
        self._storage.delete(path)
        self._removed.append(path)

    def _remove_all(self, paths: Sequence[str]) -> None:
        if paths:
            self._storage.delete_all(paths)
            self._removed += paths


def _has_write(live: LiveTimeline) -> bool:
    """True if a write has completed, as on every table with data: the last is never archived."""
    return any(instant.action in WRITE_ACTIONS for instant in live.completed.values())


def _is_alive(requested: str, live: LiveTimeline) -> bool:
    """True if files of the instant count, or may count later."""
    return requested in live.pending or live.is_committed(requested)


def repair_table(
    session: TableSession, grace_ms: int = GRACE_MS, *, is_whole: bool = False
) -> Repaired:
    """Finish or roll back what crashed writers began, and remove what they left.

    With `is_whole`, list all data files and remove those of instants that are on no timeline, too.
    """
    with session.exclusive:
        has_rings = ring_settings(session.config.buckets) is not None
        repair = Repair(session.log, session.recovery, grace_ms=grace_ms, has_rings=has_rings)
        return repair.run(frozenset(session.own), is_whole=is_whole)
