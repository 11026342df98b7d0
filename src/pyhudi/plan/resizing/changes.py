"""What a plan of a resize changes, and what it leaves alone: the values that planning makes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.ring_file import NodeTag, Ring, RingNode, initial_ring
from pyhudi.format.timeline.resize_plan import GroupChange, InputSlice, ResizePlan
from pyhudi.index.ring_changes import merge, split
from pyhudi.plan.compaction.operations import metrics_of
from pyhudi.plan.compaction.preview import group_name
from pyhudi.table.file_group import FileSlice
from pyhudi.wording import by_reason, counted, first_reasons, readable

_LISTED_MAX = 20


@dataclass(frozen=True, slots=True)
class ResizeChange:
    """One split, or one merge of neighbours."""

    ring: Ring
    nodes: range  # numbers of the buckets on the ring
    slices: tuple[FileSlice, ...]  # of each
    parts: int  # how many buckets they become
    points: tuple[int, ...] | None = ()  # of a split; None until a sample was seen
    note: str = ""

    @property
    def partition(self) -> str:
        return self.ring.partition

    @property
    def inputs(self) -> tuple[FileGroupId, ...]:
        nodes = (self.ring.nodes[number] for number in self.nodes)
        return tuple(FileGroupId(self.partition, node.file_id) for node in nodes)

    @property
    def bytes(self) -> int:
        return sum(slice_.bytes for slice_ in self.slices)

    @property
    def is_split(self) -> bool:
        return len(self.nodes) == 1

    def is_on(self, ring: Ring | None) -> bool:
        """True if the change can be made on the ring that is in force now."""
        return ring is not None and ring.instant == self.ring.instant

    def planned(self, new_ids: Iterator[str]) -> GroupChange:
        """Return the change as a plan has it; each new bucket takes the next file id prefix."""
        if self.is_split:
            ids = [next(new_ids) for _ in range(self.parts)]
            change = split(self.ring, self.nodes.start, self.points or (), ids)
        else:
            change = merge(self.ring, self.nodes, next(new_ids))
        return GroupChange(
            self.partition,
            self.ring.sequence_number,
            tuple(map(_input_slice, self.slices)),
            change.children,
            _metrics(self.slices),
        )


@dataclass(frozen=True, slots=True)
class FirstRing:
    """The simple buckets of a partition become the nodes of its first ring."""

    partition: str
    slices: tuple[FileSlice, ...]  # of each bucket, by number
    parts: int  # how many nodes the ring gets
    points: tuple[int, ...] = ()  # no sample is needed

    @property
    def inputs(self) -> tuple[FileGroupId, ...]:
        return tuple(FileGroupId(self.partition, slice_.file_id) for slice_ in self.slices)

    @property
    def bytes(self) -> int:
        return sum(slice_.bytes for slice_ in self.slices)

    @property
    def nodes(self) -> range:
        """The numbers of the buckets, all of them."""
        return range(len(self.slices))

    @property
    def is_split(self) -> bool:
        return False

    def is_on(self, ring: Ring | None) -> bool:
        """True if the partition has no ring yet."""
        return ring is None

    def planned(self, new_ids: Iterator[str]) -> GroupChange:
        """Return the change as a plan has it; each node takes the next file id prefix."""
        places = (node.position for node in initial_ring(self.partition, self.parts).nodes)
        children = (RingNode(place, next(new_ids), NodeTag.REPLACE) for place in places)
        inputs = tuple(map(_input_slice, self.slices))
        return GroupChange(self.partition, 0, inputs, tuple(children), _metrics(self.slices))


def _input_slice(slice_: FileSlice) -> InputSlice:
    base = slice_.base.name.file_name if slice_.base else None
    return InputSlice(slice_.file_id, base, tuple(log.name.file_name for log in slice_.logs))


def _metrics(slices: Iterable[FileSlice]) -> dict[str, float]:
    found = [metrics_of(slice_) for slice_ in slices]
    return {name: sum(each[name] for each in found) for name in found[0]}


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """A bucket that the plan does not change."""

    group: FileGroupId
    bytes: int
    why: str
    is_too_much: bool = False  # for this process, whose policy bounds what it reads


@dataclass(frozen=True, slots=True)
class ResizePreview:
    """What a resize would do with each bucket that it looked at."""

    changes: tuple[ResizeChange | FirstRing, ...]
    left: tuple[LeftAlone, ...]
    later: int = 0  # partitions that were not looked at, because the plan is full

    @property
    def is_empty(self) -> bool:
        return not self.changes

    @property
    def unsampled(self) -> tuple[FileGroupId, ...]:
        """Buckets that are to be split, and of whose rows a sample is needed first."""
        return tuple(each.inputs[0] for each in self.changes if each.points is None)

    def plan(self, new_ids: Iterator[str]) -> ResizePlan:
        return ResizePlan(tuple(change.planned(new_ids) for change in self.changes))

    def without(self, dropped: Mapping[FileGroupId, str]) -> ResizePreview:
        """Return the preview without the changes of these buckets, each with its reason."""
        kept, left = [], list(self.left)
        for change in self.changes:
            why = next((dropped[group] for group in change.inputs if group in dropped), None)
            if why is None:
                kept.append(change)
            else:
                left += all_left(change, why)
        return replace(self, changes=tuple(kept), left=tuple(left))

    def __str__(self) -> str:
        buckets = sum(len(change.nodes) for change in self.changes)
        head = "nothing to resize"
        if self.changes:
            partitions = len({change.partition for change in self.changes})
            size = readable(sum(change.bytes for change in self.changes), "B")
            made = sum(change.parts for change in self.changes)
            becomes = "becomes" if buckets == 1 else "become"
            head = (
                f"{counted(buckets, 'bucket')} {becomes} {made:,}, in"
                f" {counted(partitions, 'partition')}: {size} to rewrite"
            )
        shown = [f"  {_change_line(change)}" for change in self.changes[:_LISTED_MAX]]
        if len(self.changes) > _LISTED_MAX:
            shown.append(f"  ... and {len(self.changes) - _LISTED_MAX} more")
        lines = [head, *shown]
        if self.left:
            lines.append(f"not changed: {counted(len(self.left), 'bucket')}")
            reasons = by_reason((each, each.why) for each in self.left)
            lines += first_reasons([_left_line(*of) for of in reasons], indent="  ")
        if self.later:
            lines.append(f"left to the next plan: {counted(self.later, 'other partition')}")
        return "\n".join(lines)


def _change_line(change: ResizeChange | FirstRing) -> str:
    size = readable(change.bytes, "B")
    first = group_name(change.inputs[0])
    if isinstance(change, FirstRing):
        into = counted(change.parts, "bucket")
        return f"partition {change.partition!r}: {size}, to a ring of {into}"
    if change.is_split:
        return f"{first}: {size}, split into {change.parts}{change.note}"
    return f"{first} and {counted(len(change.nodes) - 1, 'neighbour')}: {size}, merged into one"


def _left_line(why: str, left: Sequence[LeftAlone]) -> str:
    first = left[0]
    size = readable(first.bytes, "B")
    if len(left) == 1:
        return f"{group_name(first.group)} ({size}): {why}"
    return f"{counted(len(left), 'bucket')} such as {group_name(first.group)} ({size}): {why}"


def all_left(
    change: ResizeChange | FirstRing, why: str, *, is_too_much: bool = False
) -> Iterator[LeftAlone]:
    """Return the buckets of a change that is not made, each with the reason."""
    for group, slice_ in zip(change.inputs, change.slices, strict=True):
        yield LeftAlone(group, slice_.bytes, why, is_too_much)
