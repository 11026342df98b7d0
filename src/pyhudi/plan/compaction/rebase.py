"""How a compaction plan is adjusted to writes that complete, and to other plans, while it is made.

A plan is begun only if it has every write that completed before it. On a busy table some write
always has completed meanwhile. So the plan is not made again; the new writes are worked into it.
That costs what they touched, and a look at the other file groups of their partitions, however large
the table is. Where even that is too slow, because writes complete all the time, the plan becomes
smaller. The slices that it has are those that a plan made now would have; it may lack a group that
another plan has released meanwhile, and what there is room for since another slice dropped out.

All this needs to know what is new. Where archiving has taken instants that the plan was made of,
that cannot be known (`missed_archived_writes`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.instant import Instant
from pyhudi.plan.compaction.choose import plan_compaction, worst_first
from pyhudi.plan.compaction.policy import CompactionPolicy
from pyhudi.plan.compaction.preview import CompactionPreview, LeftOut
from pyhudi.plan.pending_plans import SERVICES, PendingPlans
from pyhudi.table.file_group import FileGroupFiles, FileSlice
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import CompletionTimes
from pyhudi.timeline.live import LiveTimeline
from pyhudi.timeline.timeline import WRITE_ACTIONS, Timeline

_LATER = "it is left to the next plan, for writes kept completing"


def changes_since(known: Timeline, plans: PendingPlans, live: LiveTimeline) -> Instant | None:
    """Return an instant that the plan's timeline lacks: a completed write, or another plan."""
    services = (i for i in live.pending_of(*SERVICES) if i.requested not in plans.groups)
    return next(unseen_writes(known, live), None) or next(services, None)


def missed_archived_writes(known: Timeline, live: LiveTimeline) -> bool:
    """True if archiving took instants that `known` has as active before `live` was listed.

    Archiving may then also have taken a write that completed since, and neither of the two shows
    it. It goes by the order of requests, and stops before what is pending. A completed write that
    was rolled back is missing as well, and so are its files.
    """
    ended = known.pending_writes - live.pending.keys() - live.rolled_back_by.keys()
    return not (known.completion_times.keys() | ended) <= live.completed.keys()


def unseen_writes(known: Timeline, live: LiveTimeline) -> Iterator[Instant]:
    """Yield completed writes that a timeline does not have.

    They are compared by name and not by their times, since another engine takes those from its own
    clock. A write that is missing because it was archived does not count.
    """
    for instant in live.completed.values():
        requested = instant.requested
        if (
            instant.action in WRITE_ACTIONS
            and requested not in known.completion_times
            and not known.is_archived(requested)
        ):
            yield instant


def without_old_slices(preview: CompactionPreview, state: TableState) -> TableState:
    """Return the table with only the latest slice of each planned file group.

    The next base file of a group starts a later slice, and a write names its files when it
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


@dataclass(frozen=True, slots=True)
class GroupChanges:
    """What happened to the file groups of a table since a plan was made of it."""

    written: TableState  # with the groups that got files, and no others
    deferred: tuple[FileGroupId, ...]  # got some as well, and exceed the limit
    removed: frozenset[FileGroupId]  # the plan has them, and readers see them no more


def written_since(
    preview: CompactionPreview,
    before: TableState,
    after: TableState,
    policy: CompactionPolicy,
    groups_max: int,
) -> GroupChanges:
    """Return what changed in the file groups between the two states.

    Only partitions that are not the same object in both are searched, and in them only groups that
    are not. At most `groups_max` of these are taken, those that come first in the plan.
    """
    touched = {p: g for p, g in after.partitions.items() if before.partitions.get(p) is not g}
    known = {id(group) for path in touched for group in before.partitions.get(path, ())}
    asked = touched.keys() if policy.partitions is None else touched.keys() & {*policy.partitions}
    changed = [g for path in touched if path in asked for g in touched[path] if id(g) not in known]
    if len(changed) > groups_max:
        ranks = {_id_of(slice_): rank for rank, slice_ in enumerate(preview.slices)}
        changed.sort(key=lambda group: ranks.get(_id_of(group), len(ranks)))
    listed: dict[str, tuple[FileGroupFiles, ...]] = {}
    for group in changed[:groups_max]:
        listed[group.partition] = (*listed.get(group.partition, ()), group)
    there = {_id_of(group) for groups in touched.values() for group in groups}
    planned = (*map(_id_of, preview.slices), *(out.group for out in preview.left_out))
    return GroupChanges(
        written=replace(after, partitions=listed),
        deferred=tuple(map(_id_of, changed[groups_max:])),
        removed=frozenset(
            group
            for group in planned
            if (group.partition in touched and group not in there)
            or (group.partition, group.file_id) in after.replaced
        ),
    )


def _id_of(group: FileGroupFiles | FileSlice) -> FileGroupId:
    return FileGroupId(group.partition, group.file_id)


def adjusted_plan(
    preview: CompactionPreview,
    since: GroupChanges,
    times: CompletionTimes,
    plans: PendingPlans,
    policy: CompactionPolicy,
    *,
    groups_max: int,
) -> CompactionPreview:
    """Return the plan, adjusted to writes and other plans that came while it was made.

    It has at most `groups_max` slices. Those that were written to come first; of the others, which
    did not change, the first stay.
    """
    fresh = plan_compaction(since.written, times, plans, policy)
    others_max = max(0, groups_max - len(fresh.slices))
    holder = plans.holders()
    changed = {*map(_id_of, since.written.groups()), *since.deferred, *since.removed}
    left = [out for out in preview.left_out if out.group not in changed]
    left += [LeftOut(group, _LATER) for group in since.deferred]
    others: list[FileSlice] = []
    for slice_ in preview.slices:
        group = _id_of(slice_)
        if group in changed:
            continue
        if held := holder(group):
            left.append(LeftOut(group, held))
        elif len(others) == others_max:
            left.append(LeftOut(group, _LATER))
        else:
            others.append(slice_)
    chosen, beyond = worst_first([*fresh.slices, *others], policy)
    found = {group.partition for group in changed}
    unknown = tuple(partition for partition in preview.unknown if partition not in found)
    return CompactionPreview(tuple(chosen), (*left, *fresh.left_out, *beyond), unknown)
