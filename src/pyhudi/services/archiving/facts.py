"""The facts about a table that archiving needs before it chooses instants.

Completed files do not change. A process that archives repeatedly reads each of them once, so that
a run does not cost more where the timeline cannot become shorter for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.rollback_targets import load_rollback_target
from pyhudi.errors import UnavailableError
from pyhudi.format.avro.container import CONTAINER_BYTES_MAX
from pyhudi.format.files.file_names import FileGroupId, parse_data_file
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.decision_entry import entry_path
from pyhudi.format.timeline.instant import Action, Instant, State
from pyhudi.format.timeline.plan_files import CLEANER_PLAN, RESTORE_PLAN
from pyhudi.format.timeline.service_metadata import CLEAN, RESTORE, ROLLBACK
from pyhudi.plan.archiving.choose import ArchiveFacts, ArchivePlan, old_logs
from pyhudi.plan.archiving.policy import ArchivePolicy, Backoff
from pyhudi.plan.retention import CleanBound, bound_of_clean, bound_of_plan
from pyhudi.read.archive import History
from pyhudi.storage.objects.decision_log import load_entry
from pyhudi.table.file_group import FileGroupFiles
from pyhudi.table.file_slices import grouped_files
from pyhudi.table.state import TableState
from pyhudi.timeline.timeline import Timeline

#: Stores report times in whole seconds.
_SECOND_MS = 1_000


class MovedError(UnavailableError):
    """Another archiver was faster: an instant of the listing is archived by now."""


@dataclass(slots=True)
class ServiceMemory:
    """What one process knows of completed instants, and of its own last run of services."""

    bounds: dict[Instant, CleanBound | None] = field(default_factory=dict)  # by clean
    rollback_targets: dict[Instant, tuple[str, ...]] = field(
        default_factory=dict
    )  # by rollback or restore
    modified_ms: dict[Instant, int] = field(default_factory=dict)
    swept: set[str] = field(default_factory=set)  # rolled back, and no late file of theirs can come
    backoff: Backoff | None = None
    repaired_at_ms: int | None = None  # by the steady clock of this machine

    def back_off(self, backoff: Backoff | None) -> None:
        """Remember until when archiving is not tried; None: it may be at once."""
        self.backoff = backoff

    def drop_gone(self, timeline: Timeline) -> None:
        """Forget instants that left the timeline."""
        there = frozenset(timeline.instants)
        self.bounds = {i: bound for i, bound in self.bounds.items() if i in there}
        self.rollback_targets = {
            i: targets for i, targets in self.rollback_targets.items() if i in there
        }
        self.modified_ms = {i: ms for i, ms in self.modified_ms.items() if i in there}


def load_facts(
    log: DecisionLog,
    history: History,
    timeline: Timeline,
    policy: ArchivePolicy,
    now_ms: Callable[[], int],
    *,
    is_mor: bool,
    known: ServiceMemory,
) -> ArchiveFacts:
    """Return the facts, except for those that need a listing of the data files.

    The log must just have been read. `now_ms` is the store's clock, which is read only if something
    may be due.
    """
    times = frozenset(instant.requested for instant in timeline.instants)
    archived = frozenset(history.recorded(times))
    facts = ArchiveFacts(timeline=timeline, is_mor=is_mor, archived=archived)
    waiting = [w for w in timeline.writes if w.requested not in archived]
    if len(waiting) <= policy.keep_max and not archived:
        return facts  # nothing is due, whatever the other facts are
    now = now_ms()
    known.drop_gone(timeline)
    rollback_targets = _rollback_targets(log, timeline, known)
    known.swept.intersection_update(t for targets in rollback_targets.values() for t in targets)
    # A run of a plan may have been rolled back, and the plan have been executed afterwards.
    archived |= history.recorded(
        frozenset(t for targets in rollback_targets.values() for t in targets)
    ).keys()
    retained_cleans, retained = _retained_cleans(log, timeline, known)
    return ArchiveFacts(
        timeline=timeline,
        is_mor=is_mor,
        archived=archived,
        recent_entries=recent_times(log, now - policy.grace_ms),
        rollback_targets=rollback_targets,
        recent_rollbacks=_recent_rollbacks(
            log, timeline, rollback_targets, now - policy.aborted_grace_ms, known
        ),
        retained=retained,
        retained_cleans=retained_cleans,
        swept=frozenset(known.swept),
    )


def late_pending(log: DecisionLog, timeline: Timeline) -> tuple[Instant, ...]:
    """Return pending instants of the listing whose rollback has completed.

    A process that slept created a file of such an instant once more, after all its files had been
    removed.
    """
    live = log.live
    unknown = (i for i in timeline.pending if i.requested not in live.pending)
    return tuple(
        instant
        for instant in unknown
        if instant.requested not in live.completed
        and log.rollback_of(instant.requested) in live.completed
    )


@dataclass(frozen=True, slots=True)
class DataFiles:
    """The result of a listing of the data files, and the timeline that was listed before it."""

    timeline: Timeline
    named: Mapping[str, str]  # instant → one of its files
    groups: tuple[FileGroupFiles, ...]  # with the files that are not older than the timeline

    @classmethod
    def of(cls, files: Iterable[tuple[str, int]], timeline: Timeline) -> DataFiles:
        """Make it from paths and sizes."""
        first = timeline.first_active or ""
        named: dict[str, str] = {}
        recent: dict[str, list[tuple[str, int]]] = {}
        for path, size in files:
            folder, _, file_name = path.rpartition("/")
            if (name := parse_data_file(file_name)) is None:
                continue
            named.setdefault(name.requested, path)
            if name.requested >= first:
                recent.setdefault(folder, []).append((path, size))
        groups = chain.from_iterable(
            grouped_files(folder, recent[folder]) for folder in sorted(recent)
        )
        return cls(timeline, named, tuple(groups))

    def is_stale(self, timeline: Timeline, leaving: Iterable[Instant]) -> bool:
        """True if a base file newer than a log of these writes may have been created since.

        Such a base file is of an instant that has completed since, and was requested before one of
        these writes completed. An instant that completes after the timeline was listed is pending
        on it, and a pending instant retains these writes.
        """
        known = self.timeline.completion_times
        new = [w.requested for w in timeline.writes if w.requested not in known]
        return bool(new) and any((i.completed or "") >= min(new) for i in leaving)


def load_old_logs(
    files: DataFiles, plan: ArchivePlan, load: Callable[[], TableState]
) -> Mapping[str, tuple[FileGroupId, ...]]:
    """Return writes to be archived → file groups in which their log is older than its base file.

    Which file groups were replaced matters only if there are such writes; then the table is loaded.
    """
    leaving = {instant.requested for instant in plan.leaving}
    found = old_logs(files.groups, plan.timeline)
    if leaving & found.keys() and plan.timeline.completed(Action.REPLACECOMMIT):
        found = old_logs(files.groups, plan.timeline, load().replaced)
    return {requested: found[requested] for requested in leaving & found.keys()}


def live_replacements(state: TableState) -> frozenset[str]:
    """Return replace commits whose replaced file groups still have files."""
    there = {(group.partition, group.file_id) for group in state.groups()}
    found = (instants for group, instants in state.replaced.items() if group in there)
    return frozenset(instant for instants in found for instant in instants)


def unknown_files(
    facts: ArchiveFacts, history: History, begin: str, paths: Iterable[str]
) -> Mapping[str, str]:
    """Return instants that no timeline has → a data file of each.

    Only instants between the timeline's begin and the new begin count. Files of earlier times count
    as committed already, and nothing may be left of their instants.
    """
    found: dict[str, str] = {}
    first, known_instants = facts.timeline.first_active or "", facts.known_instants
    for path in paths:
        name = parse_data_file(file_name(path))
        if (
            name is not None
            and first <= name.requested < begin
            and name.requested not in known_instants
        ):
            found.setdefault(name.requested, path)
    archived = history.recorded(frozenset(found))
    return {requested: path for requested, path in found.items() if requested not in archived}


def recent_times(log: DecisionLog, before_ms: int) -> tuple[str, str] | None:
    """Return the lowest and highest time of the entries that a process may take for the log's end.

    A process that read the log at `before_ms` may have found any entry as the last one whose
    successor is newer. The last entry of all may be read now, however old it is. Times of other
    engines are not among them unless they lie in between.
    """
    tail = log.tail
    if tail is None:
        return None
    low, high = 0, tail.n  # entries up to low are old, or pruned, as only old ones are
    while low < high:
        middle = (low + high + 1) // 2
        found = log.storage.stat(entry_path(middle))
        if found is None or found.modified_ms + _SECOND_MS <= before_ms:
            low = middle
        else:
            high = middle - 1
    last = _time_at(log, range(tail.n, 0, -1))
    if low and log.storage.stat(entry_path(low)) is None:
        return "", last  # the first one that may have been read is pruned, so its time is unknown
    return _time_at(log, range(max(1, low), tail.n + 1)) or last, last


def _time_at(log: DecisionLog, numbers: range) -> str:
    """Return the time of the first of these entries that has one; a void has none."""
    for number in numbers:
        entry = load_entry(log.storage, number)
        if entry is not None and entry.time is not None:
            return entry.time
    return ""


def _retained_cleans(
    log: DecisionLog, timeline: Timeline, known: ServiceMemory
) -> tuple[frozenset[str], str]:
    """Return the cleans that record how far back the table can be read, and the earliest write
    that the last of them retained."""
    bounds: dict[str, CleanBound] = {}
    for clean in timeline.completed(Action.CLEAN):
        if clean not in known.bounds:
            known.bounds[clean] = _bound(log, clean)
        bound = known.bounds[clean]
        if bound is not None and bound.is_bound:
            bounds[clean.requested] = bound
    if not bounds:
        return frozenset(), ""
    newest = max(bounds)
    by_request = max(
        bounds, key=lambda clean: (bounds[clean].earliest or bounds[clean].last, clean)
    )
    by_completion = max(bounds, key=lambda clean: (bounds[clean].since or "", clean))
    return frozenset({newest, by_request, by_completion}), bounds[newest].earliest


def _bound(log: DecisionLog, clean: Instant) -> CleanBound | None:
    """Return what a completed clean retains.

    Where Hudi died while it wrote the file, and left it empty, the plan says it.
    """
    path = log.path(clean)
    found = CLEAN.decode_or_none(_completed_file(log, clean), path)
    if found is not None:
        return bound_of_clean(found)
    path = log.path(clean.in_state(State.REQUESTED))
    try:
        plan = CLEANER_PLAN.decode_or_none(log.storage.read(path, 0, CONTAINER_BYTES_MAX + 1), path)
    except FileNotFoundError:
        return None
    return None if plan is None else bound_of_plan(clean.requested, plan)


def _rollback_targets(
    log: DecisionLog, timeline: Timeline, known: ServiceMemory
) -> Mapping[str, tuple[str, ...]]:
    """Return rollbacks and restores → the instants that they roll back."""
    found: dict[str, tuple[str, ...]] = {}
    for instant in timeline.instants:
        if instant in known.rollback_targets:
            found[instant.requested] = known.rollback_targets[instant]
        elif instant.action is Action.ROLLBACK:
            found[instant.requested] = _targets_of_rollback(log, instant)
        elif instant.action is Action.RESTORE and instant.completed is not None:
            found[instant.requested] = _targets_of_restore(log, instant)
        if instant.completed is not None and instant.requested in found:
            known.rollback_targets[instant] = found[instant.requested]
    return found


def _targets_of_rollback(log: DecisionLog, rollback: Instant) -> tuple[str, ...]:
    if rollback.completed is not None:
        data = _completed_file(log, rollback)
        if (done := ROLLBACK.decode_or_none(data, log.path(rollback))) is not None:
            return done.commits_rollback
    try:
        target = load_rollback_target(log.storage, log.folder, rollback.requested)
    except FileNotFoundError:
        raise _moved(rollback) from None
    return () if target is None else (target,)


def _targets_of_restore(log: DecisionLog, restore: Instant) -> tuple[str, ...]:
    """Return the instants that a completed restore rolled back.

    Where Hudi died while it wrote the file, and left it empty, the plan names them. Without a plan
    no instant is known; data files of such instants then stop archiving (`unknown`).
    """
    done = RESTORE.decode_or_none(_completed_file(log, restore), log.path(restore))
    if done is not None:
        return done.instants_to_rollback
    path = log.path(restore.in_state(State.REQUESTED))
    try:
        plan = RESTORE_PLAN.decode_or_none(log.storage.read(path, 0, CONTAINER_BYTES_MAX + 1), path)
    except FileNotFoundError:
        return ()
    return () if plan is None else tuple(i.commit_time for i in plan.instants_to_rollback)


def _completed_file(log: DecisionLog, instant: Instant) -> bytes:
    try:
        return log.storage.read(log.path(instant), 0, CONTAINER_BYTES_MAX + 1)
    except FileNotFoundError:
        raise _moved(instant) from None


def _moved(instant: Instant) -> MovedError:
    return MovedError(
        f"the {instant.action.value} {instant.requested} is gone",
        why="another process archived it since the timeline was listed",
        next_step="Archive again",
    )


def _recent_rollbacks(
    log: DecisionLog,
    timeline: Timeline,
    rollback_targets: Mapping[str, tuple[str, ...]],
    before_ms: int,
    known: ServiceMemory,
) -> frozenset[str]:
    """Return completed rollbacks and restores after which late files may still be created."""
    found = set()
    done = (
        i for i in timeline.instants if i.requested in rollback_targets and i.completed is not None
    )
    for instant in (i for i in done if i.action is not Action.SAVEPOINT):
        if instant not in known.modified_ms:
            if (stat := log.storage.stat(log.path(instant))) is None:
                continue
            known.modified_ms[instant] = stat.modified_ms
        if known.modified_ms[instant] + _SECOND_MS > before_ms:
            found.add(instant.requested)
    return frozenset(found)
