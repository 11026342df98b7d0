"""How a plan of a resize is adjusted to what happens while it is made.

A resize is begun only if it names the latest slice of each of its inputs, if no other plan has one
of them, and if the ring that it was planned on is in force. Writers complete meanwhile, and other
plans are made. Then the slices are taken anew, and a change that another plan, or a resize that
completed, has overtaken is dropped. What is chosen, and where buckets are cut, stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.ring_file import Ring
from pyhudi.plan.pending_plans import PendingPlans
from pyhudi.plan.resizing.changes import FirstRing, ResizeChange, ResizePreview
from pyhudi.plan.resizing.choose import in_partition
from pyhudi.table.file_group import FileGroupFiles, FileSlice
from pyhudi.table.state import TableState


@dataclass(frozen=True, slots=True)
class FactsNow:
    """What a plan is adjusted to."""

    rings: Mapping[str, Ring | None]
    slices: Mapping[FileGroupId, FileSlice]  # the latest, of the inputs that readers still see
    plans: PendingPlans
    clusterings: Mapping[str, str]  # partition → the pending clustering or resize that is in it


def rebased(preview: ResizePreview, now: FactsNow) -> ResizePreview:
    """Return the plan as it is right now."""
    overtaken = {}
    changes = []
    holder = now.plans.holders()
    for change in preview.changes:
        if (why := _overtaken(change, now, holder)) is not None:
            overtaken[change.inputs[0]] = why
        else:
            slices = tuple(now.slices[group] for group in change.inputs)
            change = replace(change, slices=slices)
        changes.append(change)
    return replace(preview, changes=tuple(changes)).without(overtaken)


def _overtaken(
    change: ResizeChange | FirstRing, now: FactsNow, holder: Callable[[FileGroupId], str | None]
) -> str | None:
    """Return what has overtaken a change; None if nothing has."""
    if plan := now.clusterings.get(change.partition):
        return in_partition(plan)
    if not change.is_on(now.rings.get(change.partition)):
        return "its partition was resized a moment ago"
    for group in change.inputs:
        if (held := holder(group)) is not None:
            return held
        if group not in now.slices:
            return f"file group {group.file_id} was replaced a moment ago"
    return None


def only_inputs(preview: ResizePreview, state: TableState) -> TableState:
    """Return the table with the file groups that the plan replaces, and no others."""
    inputs = {group for change in preview.changes for group in change.inputs}
    partitions: dict[str, tuple[FileGroupFiles, ...]] = {}
    for path in sorted({group.partition for group in inputs}):
        groups = state.partitions.get(path, ())
        partitions[path] = tuple(g for g in groups if FileGroupId(path, g.file_id) in inputs)
    return replace(state, partitions=partitions)
