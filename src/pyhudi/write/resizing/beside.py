"""Which buckets does a write find in a pending virtual resize?

A write that began after the plan puts its rows into the children (`write.files.group_log`). One
that began earlier writes to the inputs, as beside any resize, and its logs are copied: no file of a
child may be older than the resize. A plan that does not fit the rings cannot be executed. Beside it
writes go on as if it were not there, and so they do once it is being cancelled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from pyhudi.commit.pending_plans import load_service_plan
from pyhudi.conflict.resizes import BesideResize, BucketChange
from pyhudi.errors import CorruptTableError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.format.timeline.instant import Action, Instant, State
from pyhudi.session.session import TableSession
from pyhudi.write.files.group_log import VirtualInput
from pyhudi.write.resizing.work import laid_on_rings, ring_layout

NOTHING: Final[Mapping[FileGroupId, VirtualInput]] = {}


def virtual_inputs(session: TableSession, requested: str) -> Mapping[FileGroupId, VirtualInput]:
    """Return the buckets that pending virtual resizes, planned before the write, replace."""
    if not session.can_resize:
        return NOTHING
    live = session.log.live
    plans = [
        plan
        for plan in live.pending_of(Action.CLUSTERING)
        if plan.requested < requested and plan.requested not in live.rolled_back_by
    ]
    return {
        group: replaced
        for plan in plans
        if plan.requested not in session.copied
        for group, replaced in _inputs(session, plan)
    }


def _inputs(session: TableSession, plan: Instant) -> Iterator[tuple[FileGroupId, VirtualInput]]:
    """Yield the buckets of a plan, if it is virtual and there. That it is not virtual is
    remembered: a plan never changes, but it may be removed."""
    log, requested = session.log, plan.requested
    resize = load_service_plan(log, plan).resize
    if resize is None or not resize.is_virtual:
        if resize is not None:
            session.copied.add(requested)
        return
    path = log.path(plan.in_state(State.REQUESTED))
    try:
        work = laid_on_rings(requested, resize, partial(ring_layout, session), path)
    except CorruptTableError:
        return
    for change, children in zip(work.plan.groups, work.children, strict=True):
        for place, group in enumerate(change.inputs, start=1):
            yield group, VirtualInput(requested, place, children)


def children_of(virtual: Mapping[FileGroupId, VirtualInput]) -> frozenset[FileGroupId]:
    return frozenset(group for found in virtual.values() for group in found.children.groups)


def resizes_beside(
    virtual: Mapping[FileGroupId, VirtualInput], stats: Iterable[WriteStat]
) -> tuple[BesideResize, ...]:
    """Return the resizes in whose children a write has files."""
    written = {FileGroupId(stat.partition_path or "", stat.file_id or "") for stat in stats}
    found: dict[str, list[BucketChange]] = {}
    for group, replaced in sorted(virtual.items()):
        if not written.isdisjoint(replaced.children.groups):
            children = frozenset(replaced.children.groups)
            change = BucketChange(frozenset([group]), children)
            found.setdefault(replaced.resize, []).append(change)
    return tuple(BesideResize(resize, tuple(changes)) for resize, changes in found.items())
