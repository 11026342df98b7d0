"""The rings that a plan of a resize leaves, and whether the plan fits the buckets that there are.

A plan is read from a file that another process, or another engine, has made. Before its first file
is written, and again when it completes, its groups are compared with the ring in force: by the
sequence number, which every resize of the partition raises, and by what the children own.

A partition with simple buckets gets its first ring by such a plan, too. Its one group replaces all
buckets, and its children are the whole ring.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise

from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.ring_file import FIRST_INSTANT, NodeTag, Ring, RingNode
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.format.timeline.resize_plan import GroupChange, ResizePlan
from pyhudi.index.ring_changes import RingChange, ring_after, unsound_change
from pyhudi.index.simple_bucket import bucket_number


def rings_after(
    plan: ResizePlan, before: Mapping[str, Ring | SimpleBuckets], instant: InstantTime
) -> dict[str, Ring]:
    """Return the next ring of each partition of the plan.

    `before` are the rings in force, and the buckets of partitions that have none. CorruptTableError
    if the plan was built on an older ring, or does not fit it.
    """
    return {
        partition: _ring_after(changes, before.get(partition), partition, instant)
        for partition, changes in plan.by_partition.items()
    }


def _ring_after(
    changes: tuple[GroupChange, ...],
    ring: Ring | SimpleBuckets | None,
    partition: str,
    instant: InstantTime,
) -> Ring:
    if isinstance(ring, SimpleBuckets):
        return _first_ring(changes, ring, partition, instant)
    if ring is None:
        raise unsound_change(partition, "the partition has no ring")
    for change in changes:
        if change.sequence_number != ring.sequence_number:
            planned, now = change.sequence_number, ring.sequence_number
            why = f"it was planned on ring {planned} of the partition, and ring {now} is in force"
            raise unsound_change(partition, why)
        for part in change.slices:
            if not part.file_id.endswith("-0"):
                raise unsound_change(partition, f"{part.file_id} is no file group of a ring")
    return ring_after(ring, map(ring_change, changes), instant)


def ring_before(after: Ring, changes: Iterable[GroupChange]) -> Ring | None:
    """Return the ring that a plan was made on, from the one that it left; None if it cannot tell.

    Each input stands where a child removes it, or where the last child is.
    """
    nodes = {node.position: node for node in after.nodes}
    number = None
    for change in changes:
        number = change.sequence_number
        for child in change.children:
            nodes.pop(child.position, None)
        gone = [c.position for c in change.children if c.tag is NodeTag.DELETE]
        last = [c.position for c in change.children if c.tag is NodeTag.REPLACE][-1:]
        if len(gone) + len(last) != len(change.slices):
            return None
        for part, position in zip(change.slices, (*gone, *last), strict=True):
            nodes[position] = RingNode(position, part.file_id.removesuffix("-0"))
    if number is None:
        return None
    found = tuple(nodes[position] for position in sorted(nodes))
    return replace(after, instant=FIRST_INSTANT, sequence_number=number, nodes=found)


def ring_change(change: GroupChange) -> RingChange:
    """Return a group of a plan as a change of its ring."""
    prefixes = (part.file_id.removesuffix("-0") for part in change.slices)
    return RingChange(tuple(prefixes), change.children)


def _first_ring(
    changes: tuple[GroupChange, ...], buckets: SimpleBuckets, partition: str, instant: InstantTime
) -> Ring:
    """Return the first ring of a partition with simple buckets."""
    change = changes[0]
    if len(changes) > 1 or change.sequence_number:
        raise unsound_change(partition, "it was planned on a ring, and the partition has none")
    numbers = [bucket_number(part.file_id) for part in change.slices]
    if numbers != list(range(buckets.count)):
        why = f"it does not replace each of the {buckets.count} buckets of the partition once"
        raise unsound_change(partition, why)
    children = sorted(change.children, key=lambda child: child.position)
    if any(child.tag is not NodeTag.REPLACE for child in children) or not children:
        raise unsound_change(partition, "a child is not a new bucket")
    if twice := next((a for a, b in pairwise(children) if a.position == b.position), None):
        raise unsound_change(partition, f"two children have the position {twice.position}")
    nodes = tuple(RingNode(child.position, child.file_id_prefix) for child in children)
    return Ring(partition, instant, len(nodes), change.sequence_number, nodes)
