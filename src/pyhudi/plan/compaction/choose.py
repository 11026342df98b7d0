"""Which file slices a compaction should merge into new base files.

A plan holds, of each file group, the latest slice as completed writes left it (RFC-66). Its
requested time comes after every completion that the plan knows, and it is begun only if nothing
completed meanwhile (`plan.compaction.rebase`); so its logs are exactly those that completed before
that time. Logs of pending writes, even of those that began earlier, belong to the slice that the
plan starts.

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

from collections.abc import Callable, Iterable
from typing import Any

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.plan.compaction.operations import log_bytes, metrics_of
from pyhudi.plan.compaction.policy import MB, CompactionOrder, CompactionPolicy
from pyhudi.plan.compaction.preview import CompactionPreview, LeftOut
from pyhudi.plan.compaction.trigger import OVERDUE_TIMES, has_come
from pyhudi.plan.pending_plans import PendingPlans
from pyhudi.table.file_group import FileSlice
from pyhudi.table.file_slices import is_replaced, latest_slice
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import (
    CompletionTimes,
    visible_now,
)
from pyhudi.wording import counted, readable


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
        if has_come(policy, _delta_commits(slice_), _oldest_log(slice_), now, times=OVERDUE_TIMES)
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
    if (size := log_bytes(slice_)) < policy.min_log_bytes:
        least_bytes = policy.min_log_bytes
        return f"its logs have {counted(size, 'byte')}, and min_log_bytes is {least_bytes:,}"
    return None


def _delta_commits(slice_: FileSlice) -> int:
    return len({log.name.requested for log in slice_.logs})


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
                first = -log_bytes(slice_)
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
