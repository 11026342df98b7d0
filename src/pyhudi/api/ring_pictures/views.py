"""What a picture of a ring shows: its buckets as arcs, with keys, sizes, and what becomes of them.

Rings and sizes go in, and plain values come out, which the drawing and the text for terminals only
arrange. What a resize changes is seen by comparing two rings: every change ends where both rings
have a node. The size of a bucket that does not exist yet is an expectation: what a split makes has
equal parts of the input, what a merge makes has all of its inputs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pyhudi.format.table.ring_file import Ring, RingNode
from pyhudi.index.ring_changes import RING_SIZE, Arc, arc_of
from pyhudi.wording import counted, readable

NAME_CHARACTERS: Final = 8  # of a file id: as many as tell buckets of one partition apart

#: File id → bytes of the bucket. A bucket that is missing here has an unknown size.
Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class BucketView:
    """One bucket."""

    name: str
    begin: float  # where its arc begins, in turns clockwise from the top; may be below 0
    end: float
    keys: str  # which keys it takes
    bytes: int | None  # None if that is not known
    note: str = ""  # its state, or what becomes of it
    change: int | None = None  # the number of the change that replaces or makes it
    is_expected: bool = False  # its size, because it has no file yet

    @property
    def label(self) -> str:
        size = "?" if self.bytes is None else readable(self.bytes, "B")
        return f"≈ {size}" if self.is_expected and self.bytes is not None else size

    @property
    def words(self) -> str:
        size = "size not known" if self.bytes is None else self.label
        return " · ".join(filter(None, (self.name, self.keys, size, self.note)))


@dataclass(frozen=True, slots=True)
class RingView:
    """One ring, at one moment."""

    title: str
    buckets: tuple[BucketView, ...]
    coming: tuple[BucketView, ...] = ()  # what a pending resize makes beside them
    caption: str = ""

    @property
    def bytes(self) -> int | None:
        """The size of all buckets; None if one is not known."""
        sizes = [bucket.bytes for bucket in self.buckets]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None


def ring_view(
    title: str,
    ring: Ring,
    sizes: Sizes,
    notes: Mapping[str, str] | None = None,
    coming: tuple[BucketView, ...] = (),
) -> RingView:
    """Return a ring as it is; notes are by file id."""
    notes = notes or {}
    shown = (_bucket(ring, number, sizes) for number in range(len(ring.nodes)))
    ids = (node.file_id for node in ring.nodes)
    buckets = (replace(b, note=notes.get(id_, "")) for b, id_ in zip(shown, ids, strict=True))
    return RingView(title, tuple(buckets), coming)


def change_views(
    before: Ring, after: Ring, sizes: Sizes, sizes_after: Sizes | None = None
) -> tuple[RingView, RingView]:
    """Return the ring before and after a resize.

    Without sizes of afterwards, they are what is expected.
    """
    changes = ring_differences(before, after)
    inputs = {id_: number for number, change in enumerate(changes) for id_ in change.inputs}
    made = {id_: number for number, change in enumerate(changes) for id_ in change.made}
    is_expected = sizes_after is None
    found = _expected(changes, sizes) if sizes_after is None else sizes_after
    old = []
    for number, node in enumerate(before.nodes):
        bucket = _bucket(before, number, sizes)
        if (change := inputs.get(node.file_id)) is not None:
            bucket = replace(bucket, note=changes[change].what, change=change)
        old.append(bucket)
    new = []
    for number, node in enumerate(after.nodes):
        bucket = _bucket(after, number, found)
        if (change := made.get(node.file_id)) is not None:
            bucket = replace(bucket, note="new", change=change, is_expected=is_expected)
        new.append(bucket)
    return RingView("before", tuple(old)), RingView("after", tuple(new))


def with_coming(view: RingView, ring: Ring, after: Ring, sizes: Sizes) -> RingView:
    """Return the view of a ring with what a pending resize makes beside it."""
    before_view, after_view = change_views(ring, after, sizes)
    buckets = (
        replace(bucket, change=other.change)
        for bucket, other in zip(view.buckets, before_view.buckets, strict=True)
    )
    made = (bucket for bucket in after_view.buckets if bucket.change is not None)
    return replace(view, buckets=tuple(buckets), coming=tuple(made))


@dataclass(slots=True)
class RingDifference:
    """Neighbouring buckets of one ring that another ring has others for; file ids."""

    inputs: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)

    @property
    def what(self) -> str:
        if len(self.inputs) == 1:
            return f"split into {len(self.made)}" if len(self.made) > 1 else "rewritten"
        return f"{counted(len(self.inputs), 'bucket')} become {len(self.made)}"


def ring_differences(before: Ring, after: Ring) -> list[RingDifference]:
    """Return what the later ring has other buckets for, in the order of the ring."""
    positions = {node.position for node in before.nodes}
    shared = sorted(positions.intersection(node.position for node in after.nodes))
    found = [RingDifference() for _ in shared or (0,)]

    def there(node: RingNode) -> RingDifference:
        return found[bisect_left(shared, node.position) % len(found)]

    for node in before.nodes:
        there(node).inputs.append(node.file_id)
    for node in after.nodes:
        there(node).made.append(node.file_id)
    return [each for each in found if each.inputs != each.made]


def _expected(changes: Sequence[RingDifference], sizes: Sizes) -> Sizes:
    """Return the sizes, with those of the buckets that the changes make."""
    found = dict(sizes)
    for change in changes:
        if sizes.keys() >= set(change.inputs):
            total = sum(sizes[id_] for id_ in change.inputs)
            found.update(dict.fromkeys(change.made, total // len(change.made)))
    return found


def _bucket(ring: Ring, number: int, sizes: Sizes) -> BucketView:
    arc, id_ = arc_of(ring, number), ring.nodes[number].file_id
    return BucketView(id_[:NAME_CHARACTERS], *_turns(arc), _keys(arc), sizes.get(id_))


def _turns(arc: Arc) -> tuple[float, float]:
    return (arc.low + 1) / RING_SIZE, (arc.high + 1) / RING_SIZE


def _keys(arc: Arc) -> str:
    ranges = " and ".join(f"{first:,} to {last:,}" for first, last in arc.ranges)
    return f"hash values {ranges}"
