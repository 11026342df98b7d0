"""Which file slices a compaction should merge into new base files, and when one is due.

A plan holds, of each file group, the latest slice as completed writes left it (RFC-66). Its
requested time comes after every completion that the plan knows, and it is begun only if nothing
completed meanwhile (`compaction_rebase`); so its logs are exactly those that completed before that
time. Logs of pending writes, even of those that began earlier, belong to the slice that the plan
starts.

A file group is in one pending plan at a time. So several plans may be pending, on disjoint groups,
and each of them can be executed, or cancelled, independently of the others.

The worst file groups come first, by the policy's order, until the work of one run is enough. What
an operation's metrics say, and the bound, are Hudi's: megabytes, rounded down, of what is read and
of what is written, the latter taken to be as much as the old base file.

Before all of them come file groups with logs that are older than their base file: the writes of
these logs cannot be archived until the logs are merged (`plan.archiving`). They come whatever the
policy's thresholds say, but take no more than half of a bounded run. Writers that are active
whenever a compaction is planned leave such a log in each group that it compacts; without that limit
the same groups would be compacted again and again, and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import chain
from typing import Any, TypeAlias

from pyhudi.format.files.file_names import FileGroupId, parse_data_file
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.instant import Action
from pyhudi.format.timeline.plan_files import CompactionOperation, CompactionPlan
from pyhudi.plan.policy_checks import require_whole, unusable, word_of
from pyhudi.table.file_group import BaseFile, FileGroupFiles, FileSlice, LogFile
from pyhudi.table.file_slices import is_replaced, latest_slice
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import (
    CompletionTimes,
    just_before,
    visible_at_completion,
    visible_now,
)
from pyhudi.timeline.timeline import ActiveInstants
from pyhudi.wording import by_reason, counted, first_reasons, readable

MB = 1 << 20
#: Hudi's bound on the bytes that one compaction reads and writes.
IO_BYTES_MAX = 512_000 * MB
#: How large Hudi takes the first base file of a file group to become.
NEW_BASE_BYTES = 120 * MB
#: Actions whose plans take file groups.
SERVICES = (Action.COMPACTION, Action.LOGCOMPACTION, Action.CLUSTERING)

_LISTED_MAX = 20


class CompactionOrder(StrEnum):
    """Which file groups come first."""

    LOG_SIZE = "log_size"  # those with most bytes in logs; Hudi's own order
    DELTA_COMMITS = "delta_commits"  # those to which most writes have added logs
    AGE = "age"  # those whose oldest log is the oldest


class CompactionTrigger(StrEnum):
    """What makes a compaction due; the words are Hudi's."""

    NUM_COMMITS = "num_commits"
    NUM_COMMITS_AFTER_LAST_REQUEST = "num_commits_after_last_request"
    TIME_ELAPSED = "time_elapsed"
    NUM_AND_TIME = "num_and_time"
    NUM_OR_TIME = "num_or_time"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPolicy:
    """What to compact, and when; the defaults are Hudi's."""

    order: CompactionOrder = CompactionOrder.LOG_SIZE
    min_delta_commits: int = 1  # writes that added logs to a group before it is worth the work
    min_log_bytes: int = 0  # bytes of logs of a group before it is worth the work
    io_bytes_max: int = IO_BYTES_MAX  # read and written by one run; the group beyond is the last
    #: Exact: what the files of one run have in all. A larger group is left out; without it, any.
    input_bytes_max: int | None = None
    partitions: tuple[str, ...] | None = None  # paths; without them, all
    trigger: CompactionTrigger = CompactionTrigger.NUM_COMMITS
    trigger_delta_commits: int = 5  # completed since the last compaction
    trigger_seconds: int = 3_600  # since the last compaction

    def __post_init__(self) -> None:
        for each in fields(self):
            name, value = each.name, getattr(self, each.name)
            if name in _WORDS:
                object.__setattr__(self, name, word_of(name, value, _WORDS[name], _ADVICE))
            elif name != "partitions" and (value is not None or name not in _MAY_BE_NONE):
                require_whole(name, value, 0 if name in _MAY_BE_ZERO else 1, _ADVICE)
        if self.partitions is not None:
            object.__setattr__(self, "partitions", _paths(self.partitions))


_ADVICE = "Change the compaction policy"
_WORDS: Mapping[str, type[StrEnum]] = {"order": CompactionOrder, "trigger": CompactionTrigger}
_MAY_BE_ZERO = ("min_log_bytes", "trigger_seconds", "input_bytes_max")
_MAY_BE_NONE = ("input_bytes_max",)
#: A group is overdue when its trigger would have fired so many times.
OVERDUE_TIMES = 4


def _paths(given: Any) -> tuple[str, ...]:
    is_list = isinstance(given, Collection) and not isinstance(given, str | bytes | Mapping)
    if not is_list or not all(isinstance(path, str) for path in given):
        raise unusable("partitions", given, "it must be a list of partition paths", _ADVICE)
    return tuple(path.strip("/") for path in given)


# ---- when


def is_due(policy: CompactionPolicy, timeline: ActiveInstants, now: str) -> bool:
    """True if it is time for a compaction; `now` is a time in the timeline's own zone."""
    since, deltas = _since_last(policy.trigger, timeline)
    if since is None or not deltas:
        return False
    return _has_come(policy, deltas, since, now)


def _has_come(
    policy: CompactionPolicy, deltas: int, since: str, now: str, *, times: int = 1
) -> bool:
    """True if the trigger has fired, or would have, so many times."""
    enough = deltas >= times * policy.trigger_delta_commits
    late = _seconds_between(since, now) >= times * policy.trigger_seconds
    match policy.trigger:
        case CompactionTrigger.TIME_ELAPSED:
            return late
        case CompactionTrigger.NUM_AND_TIME:
            return enough and late
        case CompactionTrigger.NUM_OR_TIME:
            return enough or late
    return enough


def _since_last(trigger: CompactionTrigger, timeline: ActiveInstants) -> tuple[str | None, int]:
    """Return the time of the last compaction and the number of delta commits since.

    Without one it is the time of the first write.
    """
    instants, began_as = tuple(timeline.instants), timeline.began_as
    deltas = [
        instant
        for instant in instants
        if instant.action is Action.DELTACOMMIT
        and instant.completed is not None
        and instant.requested not in began_as
    ]
    if trigger is CompactionTrigger.NUM_COMMITS_AFTER_LAST_REQUEST:
        pending = (i.requested for i in instants if i.action is Action.COMPACTION)
        began = chain((r for r, a in began_as.items() if a is Action.COMPACTION), pending)
    else:
        done = {i.requested for i in instants if i.completed is not None}
        began = chain(r for r, a in began_as.items() if a is Action.COMPACTION and r in done)
    last = max(began, default=None)
    if last is None:
        first = min(deltas, key=lambda i: (i.completed or "", i.requested), default=None)
        return (None if first is None else first.requested), len(deltas)
    return last, sum((instant.completed or "") > last for instant in deltas)


def _seconds_between(earlier: str, later: str) -> float:
    try:
        moments = [datetime.strptime(time[:14], "%Y%m%d%H%M%S") for time in (earlier, later)]
    except ValueError:  # a synthetic time is older than anything
        return float("inf")
    milliseconds = [int(time[14:17] or 0) for time in (earlier, later)]
    between = moments[1] - moments[0]
    return (between + timedelta(milliseconds=milliseconds[1] - milliseconds[0])).total_seconds()


# ---- what


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file group with logs that is not in the plan."""

    group: FileGroupId
    why: str
    #: Its latest slice, if that alone is more than `input_bytes_max`.
    too_large: FileSlice | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{group_name(self.group)}: {self.why}"


@dataclass(frozen=True, slots=True)
class CompactionPreview:
    """What a compaction would do, and what it would leave alone."""

    slices: tuple[FileSlice, ...]
    left_out: tuple[LeftOut, ...]
    unknown: tuple[str, ...] = ()  # partitions in the policy that the table lacks

    @property
    def is_empty(self) -> bool:
        return not self.slices

    @property
    def plan(self) -> CompactionPlan:
        """The plan as Hudi writes it."""
        operations = tuple(operation_of(slice_) for slice_ in self.slices)
        return CompactionPlan(operations, extra_metadata={}, missing_schedule_partitions=())

    def __str__(self) -> str:
        logs = [log for slice_ in self.slices for log in slice_.logs]
        size = readable(sum(slice_.bytes for slice_ in self.slices), "B")
        groups = counted(len(self.slices), "file group")
        head = "nothing to compact"
        if self.slices:
            head = f"{groups} to compact: {counted(len(logs), 'log file')}, {size}"
        lines = [head, *_listed(map(_slice_line, self.slices), len(self.slices))]
        if self.left_out:
            count = counted(len(self.left_out), "file group")
            lines.append(f"not in the plan: {count} with logs")
            reasons = by_reason((out, out.why) for out in self.left_out)
            lines += first_reasons([_left_out_line(*of) for of in reasons], indent="  ")
        lines += [f"the table has no partition {partition!r}" for partition in self.unknown]
        return "\n".join(lines)


#: No plan was requested.
NOTHING = CompactionPreview((), ())


def _listed(lines: Iterable[str], count: int) -> list[str]:
    shown = [f"  {line}" for _, line in zip(range(_LISTED_MAX), lines, strict=False)]
    return [*shown, f"  ... and {count - _LISTED_MAX} more"] if count > _LISTED_MAX else shown


def _left_out_line(why: str, left_out: Sequence[LeftOut]) -> str:
    first = left_out[0]
    if len(left_out) == 1:
        return str(first)
    return f"{counted(len(left_out), 'file group')} such as {group_name(first.group)}: {why}"


def _slice_line(slice_: FileSlice) -> str:
    base = "no base file" if slice_.base is None else f"base file of {slice_.base_instant}"
    logs = sum(log.size for log in slice_.logs)
    named = group_name(FileGroupId(slice_.partition, slice_.file_id))
    line = f"{named}: {base}, {counted(len(slice_.logs), 'log file')}, {readable(logs, 'B')}"
    if old := len(slice_.old_logs):
        line += f"; {old} older than the base file, so the group comes first"
    return line


def group_name(group: FileGroupId) -> str:
    """Return the file group as previews and errors name it."""
    return f"{group.partition}/{group.file_id}" if group.partition else group.file_id


#: By requested time; None if a plan does not name its groups.
PlannedGroups: TypeAlias = Mapping[str, frozenset[FileGroupId] | None]


@dataclass(frozen=True, slots=True)
class PendingPlans:
    """Pending table services and their file groups."""

    groups: PlannedGroups
    #: File group → a pending write that has put rows into it, or may do so, in files that are
    #: named by what has completed: a base file would lie on top of them.
    entered: Mapping[FileGroupId, str] = field(default_factory=dict)

    def holders(self) -> Callable[[FileGroupId], str | None]:
        """Return a function that says which plan, or which write, has a file group, or may have it;
        None: none."""
        known = {group: f"write {write}" for group, write in self.entered.items()}
        for plan, groups in self.groups.items():
            known.update(dict.fromkeys(groups or (), f"plan {plan}"))
        unclear = next((plan for plan, groups in self.groups.items() if groups is None), None)
        may = unclear and f"the pending plan {unclear} may have it, for its file cannot be read"
        return lambda group: held_by(known[group]) if group in known else may


def plan_compaction(
    state: TableState, times: CompletionTimes, plans: PendingPlans, policy: CompactionPolicy
) -> CompactionPreview:
    """Return the slices to compact.

    `times` need what `snapshot.archive_needed` says of the archive.
    """
    holder = plans.holders()
    wanted: list[FileSlice] = []
    left: list[LeftOut] = []
    for slice_ in _with_logs(state, times, policy.partitions):
        group = FileGroupId(slice_.partition, slice_.file_id)
        if why := _objection(slice_, holder(group), policy):
            left.append(LeftOut(group, why))
        else:
            wanted.append(slice_)
    chosen, beyond = worst_first(wanted, policy)
    unknown = sorted(set(policy.partitions or ()) - state.partitions.keys())
    return CompactionPreview(tuple(chosen), (*left, *beyond), tuple(unknown))


def worst_first(
    wanted: Iterable[FileSlice], policy: CompactionPolicy
) -> tuple[list[FileSlice], list[LeftOut]]:
    """Return as much as one run may do, and what is beyond that.

    Slices that archiving waits for come first, within half of the run.
    """
    slices = sorted(wanted, key=_order(policy.order))
    waited_for = sorted((s for s in slices if s.old_logs), key=_oldest_log)
    first = _within(waited_for, policy.io_bytes_max // 2)
    taken = {(slice_.partition, slice_.file_id) for slice_ in first}
    others = [slice_ for slice_ in slices if (slice_.partition, slice_.file_id) not in taken]
    rest = _within(others, policy.io_bytes_max - MB * sum(map(_io_megabytes, first)))
    late = (FileGroupId(slice_.partition, slice_.file_id) for slice_ in others[len(rest) :])
    left = [LeftOut(group, _ENOUGH) for group in late]
    if policy.input_bytes_max is None:
        return [*first, *rest], left
    chosen, beyond = _fitting([*first, *rest], policy.input_bytes_max)
    return chosen, [*beyond, *left]


_ENOUGH = "the work of one run is enough without it"


def _fitting(slices: Iterable[FileSlice], bytes_max: int) -> tuple[list[FileSlice], list[LeftOut]]:
    """Return those that fit together, in this order, and the others."""
    chosen: list[FileSlice] = []
    left: list[LeftOut] = []
    room = bytes_max
    for slice_ in slices:
        group = FileGroupId(slice_.partition, slice_.file_id)
        if slice_.bytes <= room:
            chosen.append(slice_)
            room -= slice_.bytes
        elif slice_.bytes <= bytes_max:
            left.append(LeftOut(group, _ENOUGH))
        else:
            why = f"its files have more than the {readable(bytes_max, 'B')} that one run may read"
            left.append(LeftOut(group, why, too_large=slice_))
    return chosen, left


def overdue_slices(
    preview: CompactionPreview, policy: CompactionPolicy, now: str
) -> list[FileSlice]:
    """Return slices that are too large for a run of this policy, and long due by its trigger.

    `now` is a time in the timeline's own zone.
    """
    large = (out.too_large for out in preview.left_out if out.too_large is not None)
    return [
        slice_
        for slice_ in large
        if _has_come(policy, _delta_commits(slice_), _oldest_log(slice_), now, times=OVERDUE_TIMES)
    ]


def _with_logs(
    state: TableState, times: CompletionTimes, partitions: tuple[str, ...] | None
) -> Iterable[FileSlice]:
    """Return the latest slices that have logs, of file groups that are not replaced."""
    now = visible_now(state.timeline)
    names = state.partitions if partitions is None else set(partitions)
    for partition, groups in state.partitions.items():
        if partition not in names:
            continue
        for group in groups:
            if not group.logs or is_replaced(group, state.replaced, now):
                continue
            found = latest_slice(group, times, now)
            if found is not None and found.logs:
                yield found


def _objection(slice_: FileSlice, held: str | None, policy: CompactionPolicy) -> str | None:
    if held is not None:
        return held
    if slice_.old_logs:
        return None  # whatever it is worth: archiving waits for it
    if (commits := _delta_commits(slice_)) < policy.min_delta_commits:
        added, least = counted(commits, "write"), policy.min_delta_commits
        return f"{added} added logs, and min_delta_commits is {least}"
    if (size := _log_bytes(slice_)) < policy.min_log_bytes:
        least_bytes = policy.min_log_bytes
        return f"its logs have {counted(size, 'byte')}, and min_log_bytes is {least_bytes:,}"
    return None


def held_by(holder: str) -> str:
    return f"the pending {holder} has it"


def _delta_commits(slice_: FileSlice) -> int:
    return len({log.name.requested for log in slice_.logs})


def _log_bytes(slice_: FileSlice) -> int:
    return sum(log.size for log in slice_.logs)


def _oldest_log(slice_: FileSlice) -> str:
    return min(log.name.requested for log in slice_.logs)


def _order(order: CompactionOrder) -> Callable[[FileSlice], tuple[Any, ...]]:
    """Return the sort key that puts the worst first.

    Ties go by name, so that a plan is the same each time.
    """

    def key(slice_: FileSlice) -> tuple[Any, ...]:
        match order:
            case CompactionOrder.DELTA_COMMITS:
                first: Any = -_delta_commits(slice_)
            case CompactionOrder.AGE:
                first = _oldest_log(slice_)
            case _:
                first = -_log_bytes(slice_)
        return first, slice_.partition, slice_.file_id

    return key


def _within(slices: list[FileSlice], io_bytes_max: int) -> list[FileSlice]:
    """Return the slices of one run, as Hudi bounds it.

    The slice that reaches the bound is the last, and one is always in.
    """
    left = io_bytes_max // MB
    for count, slice_ in enumerate(slices, 1):
        left -= _io_megabytes(slice_)
        if left <= 0:
            return slices[:count]
    return slices


def _io_megabytes(slice_: FileSlice) -> int:
    return int(metrics_of(slice_)["TOTAL_IO_MB"])


def operation_of(slice_: FileSlice) -> CompactionOperation:
    return CompactionOperation(
        base_instant_time=slice_.base_instant,
        delta_file_paths=tuple(log.name.file_name for log in slice_.logs),
        data_file_path=slice_.base.name.file_name if slice_.base else None,
        file_id=slice_.file_id,
        partition_path=slice_.partition,
        metrics=metrics_of(slice_),
    )


def metrics_of(slice_: FileSlice) -> dict[str, float]:
    """Return what Hudi's plans say of an operation."""
    read = slice_.bytes // MB
    written = (NEW_BASE_BYTES if slice_.base is None else slice_.base.size) // MB
    return {
        "TOTAL_LOG_FILES": float(len(slice_.logs)),
        "TOTAL_IO_READ_MB": float(read),
        "TOTAL_LOG_FILES_SIZE": float(_log_bytes(slice_)),
        "TOTAL_IO_WRITE_MB": float(written),
        "TOTAL_IO_MB": float(read + written),
    }


# ---- whether it is the right plan


def input_bytes(state: TableState, operations: Mapping[FileGroupId, CompactionOperation]) -> int:
    """Return the bytes of the files that a plan names, as far as they are there."""
    return sum(
        file.size
        for group, operation in _planned(state, operations)
        for file in group.files
        if file.name.file_name in _names_in(operation)
    )


def unnamed_files(
    state: TableState, operations: Mapping[FileGroupId, CompactionOperation], requested: str
) -> Iterable[BaseFile | LogFile]:
    """Yield files in the plan's file groups that it does not name.

    They may be older than the plan.
    """
    for group, operation in _planned(state, operations):
        named = _names_in(operation)
        for file in group.files:
            if file.name.requested < requested and file.name.file_name not in named:
                yield file


def omitted_file(
    state: TableState,
    times: CompletionTimes,
    operations: Mapping[FileGroupId, CompactionOperation],
    requested: str,
) -> str | None:
    """Return a file that the plan leaves out of a slice as it was right before the plan's time.

    The new base file would hide its rows. `times` need those of the archived `unnamed_files`. What
    completed later is rightly left out: it belongs to the slice that the plan starts.
    """
    then = visible_at_completion(times, just_before(requested))
    for group, operation in _planned(state, operations):
        found = latest_slice(group, times, then)
        if found is None:
            continue
        named = _names_in(operation)
        if found.base is not None and not _has_base(operation, found):
            return found.base.path
        for log in found.logs:
            if log.name.file_name not in named:
                return log.path
    return None


def _planned(
    state: TableState, operations: Mapping[FileGroupId, CompactionOperation]
) -> Iterable[tuple[FileGroupFiles, CompactionOperation]]:
    """Yield the file groups of the plan that readers still see."""
    now = visible_now(state.timeline)
    for partition in {group.partition for group in operations}:
        for group in state.partitions.get(partition, ()):
            operation = operations.get(FileGroupId(partition, group.file_id))
            if operation is not None and not is_replaced(group, state.replaced, now):
                yield group, operation


def _names_in(operation: CompactionOperation) -> set[str]:
    base = operation.base_file_path
    paths = (*([base] if base else []), *operation.log_file_paths)
    return {file_name(path) for path in paths}


def _has_base(operation: CompactionOperation, slice_: FileSlice) -> bool:
    """True if the plan names a base file of that instant; of two attempts, either will do."""
    name = parse_data_file(file_name(operation.base_file_path or ""))
    return name is not None and name.requested == slice_.base_instant
