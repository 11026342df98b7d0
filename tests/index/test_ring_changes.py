"""Splits and merges of a ring: what they change, and what they leave alone."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.errors import CorruptTableError, InvalidRequestError
from pyhudi.format.table.ring_file import (
    RING_MAX,
    NodeTag,
    Ring,
    RingNode,
    decode_ring,
    encode_ring,
    initial_ring,
)
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.index.consistent_bucket import bucket_of
from pyhudi.index.ring_changes import (
    RING_SIZE,
    Arc,
    RingChange,
    arc_of,
    equal_points,
    merge,
    owner_ranges,
    require_sound,
    ring_after,
    split,
)

C = InstantTime("20260102030405678")


def ring(*positions: int) -> Ring:
    nodes = tuple(RingNode(position, f"n{position}") for position in positions)
    return Ring("p", InstantTime("0" * 14), len(nodes), 3, nodes)


def replace(position: int, id_: str) -> RingNode:
    return RingNode(position, id_, NodeTag.REPLACE)


def delete(position: int) -> RingNode:
    return RingNode(position, None, NodeTag.DELETE)


def owners(of: Ring, positions: list[int]) -> list[str]:
    return [of.nodes[n].file_id for n in bucket_of(pa.array(positions, pa.int32()), of).to_pylist()]


def telling_positions(*rings: Ring) -> list[int]:
    """Positions at and around every node: no owner changes anywhere else."""
    ends = {node.position + step for each in rings for node in each.nodes for step in (-1, 0, 1)}
    return sorted({0, RING_MAX, *(end for end in ends if 0 <= end <= RING_MAX)})


# ---- what Hudi wrote


def recorded(vectors: Path, name: str) -> Ring:
    return decode_ring((vectors / "hashing_meta" / f"{name}.hashing_meta.json").read_bytes())


def test_splitting_every_bucket_in_the_middle_gives_the_bytes_that_hudi_wrote(
    vectors: Path,
) -> None:
    before, after = recorded(vectors, "initial"), recorded(vectors, "after_split")
    ids = {node.position: node.file_id_prefix or "" for node in after.nodes}
    changes = []
    for number, node in enumerate(before.nodes):
        points = equal_points(arc_of(before, number), 2)
        changes.append(split(before, number, points, [ids[points[0]], ids[node.position]]))
    made = ring_after(before, changes, after.instant)
    assert encode_ring(made) == encode_ring(after)


def test_a_merge_across_the_end_of_the_ring_that_hudi_made_applies_to_the_same_bytes(
    vectors: Path,
) -> None:
    before, after = recorded(vectors, "after_split"), recorded(vectors, "after_merge")
    kept = {node.position: node for node in after.nodes}
    assert before.nodes[-1].position == RING_MAX not in kept
    runs: list[list[RingNode]] = [[]]
    for node in (*before.nodes[2:], *before.nodes[:2]):  # runs end with the nodes that are kept
        runs[-1].append(node)
        if node.position in kept:
            runs.append([])
    changes = []
    for run in filter(None, runs):
        last = run[-1].position
        made = replace(last, kept[last].file_id_prefix or "")
        inputs = tuple(node.file_id_prefix or "" for node in run)
        changes.append(RingChange(inputs, (*(delete(n.position) for n in run[:-1]), made)))
    assert encode_ring(ring_after(before, changes, after.instant)) == encode_ring(after)


# ---- ranges


@pytest.mark.parametrize(
    ("positions", "node", "ranges"),
    [
        ((9, RING_MAX), 0, ((0, 9),)),
        ((9, RING_MAX), 1, ((10, RING_MAX),)),
        ((9, 20), 0, ((0, 9), (21, RING_MAX))),  # behind the last node the first one owns
        ((9, 20), 1, ((10, 20),)),
        ((20,), 0, ((0, 20), (21, RING_MAX))),
        ((RING_MAX,), 0, ((0, RING_MAX),)),
        ((0, RING_MAX), 0, ((0, 0),)),
    ],
)
def test_a_bucket_owns_what_lies_above_the_one_before(
    positions: tuple[int, ...], node: int, ranges: tuple[tuple[int, int], ...]
) -> None:
    assert owner_ranges(ring(*positions), node) == ranges


@pytest.mark.parametrize(
    ("former", "own", "middle"),
    [
        (0, 10, 5),
        (536870912, 1073741824, 805306368),
        (RING_MAX, 536870912, 268435455),  # recorded: a first bucket of Hudi's
        (20, 9, (20 + 9 + RING_SIZE >> 1) % RING_SIZE),
    ],
)
def test_the_middle_of_an_arc_is_hudis(former: int, own: int, middle: int) -> None:
    nodes = sorted((former, own))
    arc = arc_of(ring(*nodes), nodes.index(own))
    assert [point % RING_SIZE for point in equal_points(arc, 2)] == [middle]


@given(st.integers(-RING_SIZE, RING_MAX - 1), st.integers(1, RING_SIZE), st.integers(1, 40))
def test_equal_points_cut_an_arc_into_parts_of_equal_width(
    low: int, width: int, parts: int
) -> None:
    arc = Arc(low, low + width)
    places = [arc.low, *equal_points(arc, parts), arc.high]
    widths = [b - a for a, b in pairwise(places)]
    assert len(widths) == min(parts, width)
    assert max(widths) - min(widths) <= 1
    assert min(widths) >= 1


# ---- any change


@st.composite
def rings(draw: st.DrawFn) -> Ring:
    """Rings of our own, and such as a merge of Hudi's across the end leaves."""
    positions = draw(st.sets(st.integers(0, RING_MAX), min_size=1, max_size=12))
    if draw(st.booleans()):
        positions |= {RING_MAX}
    return ring(*sorted(positions))


@st.composite
def changes_of(draw: st.DrawFn, of: Ring) -> list[RingChange]:
    made: list[RingChange] = []
    node = 0
    while node < len(of.nodes):
        kind = draw(st.sampled_from(["leave", "split", "merge"]))
        length = 1
        ids = [f"c{node}x{n}" for n in range(9)]
        if kind == "split" and (arc := arc_of(of, node)).width > 1:
            inner = st.integers(arc.low + 1, arc.high - 1)
            points = sorted(draw(st.sets(inner, min_size=1, max_size=8)))
            made.append(split(of, node, points, ids[: len(points) + 1]))
        elif kind == "merge" and node + 1 < len(of.nodes):
            length = draw(st.integers(2, len(of.nodes) - node))
            made.append(merge(of, range(node, node + length), ids[0]))
        node += length
    return made


@settings(deadline=None)
@given(st.data())
def test_only_what_changes_differs_and_every_position_has_one_owner(data: st.DataObject) -> None:
    before = data.draw(rings())
    changes = data.draw(changes_of(before))
    after = ring_after(before, changes, C)
    assert (after.instant, after.sequence_number) == (C, before.sequence_number + 1)
    assert after.first_bucket_count == before.first_bucket_count
    assert decode_ring(encode_ring(after)) == after

    covered = sorted(r for node in range(len(after.nodes)) for r in owner_ranges(after, node))
    assert covered[0][0] == 0
    assert covered[-1][1] == RING_MAX
    assert all(a[1] + 1 == b[0] for a, b in pairwise(covered))

    replaced = {f"{id_}-0" for change in changes for id_ in change.inputs}
    heirs = {
        f"{i}-0": {n.file_id for n in change.made} for change in changes for i in change.inputs
    }
    positions = telling_positions(before, after)
    for old, new in zip(owners(before, positions), owners(after, positions), strict=True):
        assert new == old if old not in replaced else new in heirs[old]


@settings(deadline=None)
@given(st.data())
def test_ranges_are_those_by_which_rows_are_placed(data: st.DataObject) -> None:
    of = data.draw(rings())
    positions = telling_positions(of)
    found = owners(of, positions)
    for node in range(len(of.nodes)):
        arc = arc_of(of, node)
        inside = np.zeros(len(positions), bool)
        for first, last in owner_ranges(of, node):
            inside |= (np.array(positions) >= first) & (np.array(positions) <= last)
        assert arc.width == sum(last - first + 1 for first, last in arc.ranges)
        assert [owner == of.nodes[node].file_id for owner in found] == inside.tolist()


# ---- what is refused


@pytest.mark.parametrize("points", [(), (10,), (20,), (9,), (15, 15), (12, 21), (-3,)])
def test_points_outside_of_a_bucket_are_refused(points: tuple[int, ...]) -> None:
    of = ring(10, 20, RING_MAX)
    with pytest.raises(InvalidRequestError, match=r"n20-0 of partition 'p'.*above 10 and below 20"):
        split(of, 1, points, [f"c{n}" for n in range(len(points) + 1)])


@pytest.mark.parametrize(
    ("inputs", "children", "why"),
    [
        (("n15",), (replace(20, "c"),), "n15-0 is not on the ring"),
        (("n20",), (replace(15, "c"), replace(15, "d")), "overlap: two have the position 15"),
        (("n20",), (replace(9, "c"), replace(20, "d")), "9 overlaps a bucket"),
        (("n20",), (replace(25, "c"), replace(20, "d")), "25 overlaps a bucket"),
        (("n20",), (replace(15, "c"),), "gap: nothing replaces n20-0"),
        (("n20",), (delete(20),), "gap: nothing ends where n20-0 does"),
        (("n10", "n30"), (delete(10), replace(30, "c")), "gap: nothing ends where n10-0 does"),
        (("n20",), (delete(15), replace(20, "c")), "removes a node at 15"),
        (("n20",), (replace(20, "n20"),), "n20-0 is on the ring already"),
        (("n20",), (replace(20, "n30"),), "n30-0 is on the ring already"),
        (("n20",), (RingNode(20, "c"),), "neither a new bucket nor a removed one"),
        (("n20",), (RingNode(20, None, NodeTag.REPLACE),), "neither a new bucket"),
        (("n20",), (RingNode(20, "c", NodeTag.DELETE),), "neither a new bucket"),
        (("n20",), (replace(15, "c"), replace(20, "c")), "the file group c-0 twice"),
        (("n20", "n20"), (replace(20, "c"),), "the file group n20-0 twice"),
        ((), (), "leaves no bucket"),
        (
            ("n10", "n20", "n30"),
            (delete(10), delete(20), delete(30)),
            "leaves no bucket",
        ),
    ],
)
def test_a_change_that_does_not_fit_the_ring_is_refused(
    inputs: tuple[str, ...], children: tuple[RingNode, ...], why: str
) -> None:
    with pytest.raises(CorruptTableError, match=f"partition 'p'.*{why}"):
        ring_after(ring(10, 20, 30), [RingChange(inputs, children)], C)


def test_two_changes_may_not_name_one_group() -> None:
    of = ring(10, 20, 30)
    first = split(of, 1, (15,), ["c", "d"])
    for other, named in (
        (split(of, 1, (16,), ["e", "f"]), "n20"),
        (merge(of, range(2), "e"), "n20"),
    ):
        with pytest.raises(CorruptTableError, match=f"{named}-0 twice"):
            require_sound(of, [first, other])
    with pytest.raises(CorruptTableError, match="c-0 twice"):
        require_sound(of, [first, split(of, 2, (25,), ["c", "x"])])


def test_a_first_ring_of_the_greatest_size_splits_and_merges_back() -> None:
    before = initial_ring("p", 32768)
    halves = [
        split(before, n, equal_points(arc_of(before, n), 2), [f"a{n}", f"b{n}"])
        for n in range(0, len(before.nodes), 2)
    ]
    after = ring_after(before, halves, C)
    assert len(after.nodes) == 32768 + 16384
    back = [merge(after, range(n, n + 2), f"m{n}") for n in range(0, len(after.nodes), 3)]
    again = ring_after(after, back, C)
    assert [n.position for n in again.nodes] == [n.position for n in before.nodes]
