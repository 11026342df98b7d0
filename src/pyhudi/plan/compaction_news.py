"""What becomes of a compaction plan when writes complete, or others plan, while it is made.

A plan is begun only if it has all that completed before it. On a busy table something always has,
so the plan is not made anew: what is new is worked in, and the result is the plan that would be
made now. That costs what the new writes touched, and not what the table holds. Where even that is
too slow, because writes complete all the time, the plan becomes smaller.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from pyhudi.format.file_names import FileGroupId
from pyhudi.format.instant import Instant
from pyhudi.plan.compaction import (
    SERVICES,
    CompactionPolicy,
    CompactionPreview,
    LeftOut,
    PendingPlans,
    held_by,
    plan_compaction,
    worst_first,
)
from pyhudi.table.file_group import FileGroupFiles, FileSlice
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import CompletionTimes
from pyhudi.timeline.ledger import Ledger
from pyhudi.timeline.timeline import WRITE_ACTIONS, Timeline

_LATER = "it is left to the next plan, for writes kept completing"


def news(known: Timeline, plans: PendingPlans, ledger: Ledger) -> Instant | None:
    """What the timeline a plan was made from does not have: a completed write, or another plan."""
    services = (i for i in ledger.pending_of(*SERVICES) if i.requested not in plans.groups)
    return next(unseen_writes(known, ledger), None) or next(services, None)


def unseen_writes(known: Timeline, ledger: Ledger) -> Iterator[Instant]:
    """Completed writes that a timeline does not have.

    They are compared by name and not by their times, for those of another engine come from its
    clock. What is missing because it was archived is no news.
    """
    for instant in ledger.completed.values():
        requested = instant.requested
        if (
            instant.action in WRITE_ACTIONS
            and requested not in known.completion_times
            and not known.is_archived(requested)
        ):
            yield instant


def without_old_slices(preview: CompactionPreview, state: TableState) -> TableState:
    """The table with no more of each planned file group than its latest slice.

    The next base file of a group opens a later slice, and a write tells of its files when it
    completes.
    """
    latest = {(slice_.partition, slice_.file_id): slice_ for slice_ in preview.slices}

    def kept(group: FileGroupFiles) -> FileGroupFiles:
        slice_ = latest.get((group.partition, group.file_id))
        if slice_ is None:
            return group
        bases = () if slice_.base is None else (slice_.base,)
        return group._replace(bases=bases, logs=slice_.logs)

    partitions = {path: tuple(map(kept, groups)) for path, groups in state.partitions.items()}
    return replace(state, partitions=partitions)


def written_since(
    preview: CompactionPreview, before: TableState, after: TableState, most: int
) -> tuple[TableState, list[FileGroupId]]:
    """File groups that were written to since a plan was made, at most so many, and the others.

    Those that come first in the plan come first. What nobody touched is the same object in both.
    """
    known = {id(group) for group in before.groups()}
    changed = [group for group in after.groups() if id(group) not in known]
    if len(changed) > most:
        ranks = {(s.partition, s.file_id): rank for rank, s in enumerate(preview.slices)}
        changed.sort(key=lambda group: ranks.get((group.partition, group.file_id), len(ranks)))
    listed: dict[str, tuple[FileGroupFiles, ...]] = {}
    for group in changed[:most]:
        listed[group.partition] = (*listed.get(group.partition, ()), group)
    put_off = [FileGroupId(group.partition, group.file_id) for group in changed[most:]]
    return replace(after, partitions=listed), put_off


def adjusted_plan(
    preview: CompactionPreview,
    changed: TableState,
    times: CompletionTimes,
    plans: PendingPlans,
    policy: CompactionPolicy,
    *,
    others_max: int,
    put_off: Collection[FileGroupId] = (),
) -> CompactionPreview:
    """A plan after writes and other plans that came while it was made.

    `changed` has the file groups that were written to, without those that are `put_off`. Of the
    other slices, which are as they were, the first `others_max` stay.
    """
    fresh = plan_compaction(changed, times, plans, policy)
    holder = plans.holders()
    written = {FileGroupId(group.partition, group.file_id) for group in changed.groups()}
    written.update(put_off)
    left = [out for out in preview.left_out if out.group not in written]
    left += [LeftOut(group, _LATER) for group in put_off]
    others: list[FileSlice] = []
    for slice_ in preview.slices:
        group = FileGroupId(slice_.partition, slice_.file_id)
        if group in written:
            continue
        if plan := holder(group):
            left.append(LeftOut(group, held_by(plan)))
        elif len(others) == others_max:
            left.append(LeftOut(group, _LATER))
        else:
            others.append(slice_)
    chosen, beyond = worst_first([*fresh.slices, *others], policy)
    found = {group.partition for group in written}
    unknown = tuple(partition for partition in preview.unknown if partition not in found)
    return CompactionPreview(tuple(chosen), (*left, *fresh.left_out, *beyond), unknown)
