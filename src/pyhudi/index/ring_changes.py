"""How a ring of buckets changes: buckets split, neighbours merge, and nothing else moves.

A bucket owns an *arc* of the ring, the positions above the node before it, up to its own. An arc
is written as a stretch of the number line that ends at the node's own position. So that of the
first bucket begins below zero: at -1 where the last node stands at the end of the ring, and
further below where it does not, for then the positions behind the last node are the first bucket's
too. A place p on an arc is the ring's position p mod 2^31.

A *change* replaces some neighbouring buckets, its inputs, by others, which together own the same
arcs. It is kept as Hudi keeps it: nodes to put in (REPLACE) and positions to empty (DELETE), which
apply in their order. `require_sound` says whether a change, whichever process or engine made it,
leaves every bucket that is not among its inputs with what it owned.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from pyhudi.errors import CorruptTableError, InvalidRequestError
from pyhudi.format.table.ring_file import RING_MAX, NodeTag, Ring, RingNode
from pyhudi.format.timeline.instant import InstantTime

RING_SIZE: Final = RING_MAX + 1


class Arc(NamedTuple):
    """The positions of a bucket, as places on a line; a place below zero is RING_SIZE higher."""

    low: int  # the first place is the one above
    high: int  # the last place, and the node's position

    @property
    def width(self) -> int:
        return self.high - self.low

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """The positions as ranges with both ends in them: two if the arc crosses the ring's end."""
        if self.low >= -1:
            return ((self.low + 1, self.high),)
        return (0, self.high), (self.low + 1 + RING_SIZE, RING_MAX)


@dataclass(frozen=True, slots=True)
class RingChange:
    """Buckets of one ring that are replaced by others."""

    inputs: tuple[str, ...]  # file id prefixes, in the order of the ring
    children: tuple[RingNode, ...]  # REPLACE and DELETE, in the order in which they apply

    @property
    def made(self) -> tuple[RingNode, ...]:
        """The nodes that take the place of the inputs."""
        return tuple(node for node in self.children if node.tag is NodeTag.REPLACE)


def arc_of(ring: Ring, node: int) -> Arc:
    """Return the arc of a bucket, given by its number among the ring's nodes.

    >>> ring = Ring("", InstantTime("0" * 14), 2, 0, (RingNode(9, "a"), RingNode(RING_MAX, "b")))
    >>> arc_of(ring, 0), arc_of(ring, 1).ranges
    (Arc(low=-1, high=9), ((10, 2147483647),))
    """
    own, before = ring.nodes[node].position, ring.nodes[node - 1].position
    return Arc(before if before < own else before - RING_SIZE, own)


def owner_ranges(ring: Ring, node: int) -> tuple[tuple[int, int], ...]:
    """Return the positions that a bucket owns, as one or two ranges with both ends in them."""
    return arc_of(ring, node).ranges


def equal_points(arc: Arc, parts: int) -> tuple[int, ...]:
    """Return the places that cut an arc into parts of equal width; for two parts, Hudi's middle.

    An arc that is narrower than that is cut into single positions.

    >>> equal_points(Arc(-1, 2147483647), 4), equal_points(Arc(4, 6), 9)
    ((536870911, 1073741823, 1610612735), (5,))
    """
    parts = min(parts, arc.width)
    return tuple(arc.low + arc.width * part // parts for part in range(1, parts))


def split(ring: Ring, node: int, points: Sequence[int], new_ids: Sequence[str]) -> RingChange:
    """Split a bucket behind each of the points, into one bucket more than there are points.

    Points are places on the bucket's arc, and each is the last one of a child. `new_ids` are file
    id prefixes that no bucket has had.
    """
    arc, cuts = arc_of(ring, node), sorted(points)
    assert len(new_ids) == len(cuts) + 1, "a file id for each child"
    is_within = bool(cuts) and arc.low < cuts[0] and cuts[-1] < arc.high
    if not is_within or any(a == b for a, b in pairwise(cuts)):
        raise InvalidRequestError(
            f"bucket {ring.nodes[node].file_id} of partition {ring.partition!r} cannot be split at"
            f" {', '.join(map(str, points)) or 'no point'}",
            why=f"the points of a split are different places above {arc.low} and below {arc.high}",
            next_step='Correct the split policy, or use "middle" or "even"',
        )
    places = [*cuts, arc.high]
    made = (
        RingNode(place % RING_SIZE, id_, NodeTag.REPLACE)
        for place, id_ in zip(places, new_ids, strict=True)
    )
    return RingChange((_prefix(ring.nodes[node]),), tuple(made))


def merge(ring: Ring, run: range, new_id: str) -> RingChange:
    """Merge neighbours, given by their numbers among the nodes, into one bucket.

    The run does not cross the ring's end: the last node of a ring stays where it is.
    """
    assert run.step == 1, run
    assert 0 <= run.start < run.stop - 1 < len(ring.nodes), run
    nodes = [ring.nodes[number] for number in run]
    gone = (RingNode(node.position, None, NodeTag.DELETE) for node in nodes[:-1])
    made = RingNode(nodes[-1].position, new_id, NodeTag.REPLACE)
    return RingChange(tuple(map(_prefix, nodes)), (*gone, made))


def ring_after(ring: Ring, changes: Iterable[RingChange], instant: InstantTime) -> Ring:
    """Return the ring that a resize leaves, under its instant and the next sequence number.

    CorruptTableError if the changes are not sound on this ring.
    """
    made = tuple(changes)
    require_sound(ring, made)
    nodes = _applied(ring, (child for change in made for child in change.children))
    number = ring.sequence_number + 1
    return Ring(ring.partition, instant, ring.first_bucket_count, number, nodes, ring.version)


def require_sound(ring: Ring, changes: Sequence[RingChange]) -> None:
    """Raise CorruptTableError unless each change replaces its inputs and touches no other bucket.

    The changes may come from a plan that another process made.
    """
    places = {_prefix(node): number for number, node in enumerate(ring.nodes)}
    for change in changes:
        if why := _unsound(ring, places, change):
            raise unsound_change(ring.partition, why)
    ids = Counter(id_ for each in changes for id_ in (*each.inputs, *map(_prefix, each.made)))
    if twice := next((id_ for id_, times in ids.items() if times > 1), None):
        raise unsound_change(ring.partition, f"it names the file group {twice}-0 twice")


def unsound_change(partition: str, why: str) -> CorruptTableError:
    return CorruptTableError(
        f"the resize of partition {partition!r} cannot be used",
        why=why,
        next_step="Nothing was rewritten. Cancel the resize with table.services.cancel_resize,"
        " which loses no row, and plan another",
    )


def _unsound(ring: Ring, places: Mapping[str, int], change: RingChange) -> str | None:
    """Return what is wrong with a change; None if nothing is.

    A node that stays where it is keeps its arc if the node before it does not move. So it is enough
    that children lie on the arcs of inputs, and that no input is removed before a bucket that is
    none.
    """
    if unknown := [id_ for id_ in change.inputs if id_ not in places]:
        return f"the file group {unknown[0]}-0 is not on the ring"
    inputs = {places[id_] for id_ in change.inputs}
    children: dict[int, RingNode] = {}
    for child in change.children:
        if (child.tag is NodeTag.REPLACE) is (child.file_id_prefix is None) or (
            child.tag is NodeTag.NORMAL
        ):
            return f"the child at {child.position} is neither a new bucket nor a removed one"
        if child.position in children:
            return f"its children overlap: two have the position {child.position}"
        if _owner(ring, child.position) not in inputs:
            return f"the child at {child.position} overlaps a bucket that is none of its inputs"
        if child.file_id_prefix in places:
            return f"the child {child.file_id} is on the ring already"
        children[child.position] = child
    for number in inputs:
        node, following = ring.nodes[number], (number + 1) % len(ring.nodes)
        child_there = children.pop(node.position, None)
        if child_there is None:
            return f"its children leave a gap: nothing replaces {node.file_id}"
        if child_there.tag is NodeTag.DELETE and following not in inputs:
            return f"its children leave a gap: nothing ends where {node.file_id} does"
    for child in children.values():
        if child.tag is NodeTag.DELETE:
            return f"it removes a node at {child.position}, where there is none"
    return None if change.made else "it leaves no bucket"


def _owner(ring: Ring, position: int) -> int:
    """Return the number of the bucket that owns a position."""
    number = bisect_left(ring.nodes, position, key=lambda node: node.position)
    return number % len(ring.nodes)


def _applied(ring: Ring, children: Iterable[RingNode]) -> tuple[RingNode, ...]:
    """Return the nodes after the children were put in, or taken out, one after the other."""
    nodes = {node.position: node for node in ring.nodes}
    for child in children:
        if child.tag is NodeTag.DELETE:
            nodes.pop(child.position, None)
        else:
            nodes[child.position] = RingNode(child.position, child.file_id_prefix)
    return tuple(nodes[position] for position in sorted(nodes))


def _prefix(node: RingNode) -> str:
    assert node.file_id_prefix is not None
    return node.file_id_prefix
