"""Plans against the rings in force."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyhudi.errors import CorruptTableError
from pyhudi.format.table.ring_file import RING_MAX, NodeTag, Ring, RingNode
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.format.timeline.resize_plan import GroupChange, InputSlice, ResizePlan
from pyhudi.plan.resizing.rings import ring_before, rings_after

C = InstantTime("20260102030405678")
RING = Ring(
    "day=1",
    InstantTime("0" * 14),
    3,
    7,
    (RingNode(10, "n10"), RingNode(20, "n20"), RingNode(RING_MAX, "last")),
)


def change(*inputs: str, **nodes: int) -> GroupChange:
    made = tuple(RingNode(at, id_, NodeTag.REPLACE) for id_, at in nodes.items())
    return GroupChange("day=1", 7, tuple(InputSlice(f"{id_}-0", None) for id_ in inputs), made)


def test_each_partition_of_a_plan_gets_its_next_ring() -> None:
    other = replace(RING, partition="day=2", sequence_number=0)
    moved = replace(change("n20", c=20), partition="day=2", sequence_number=0)
    plan = ResizePlan((change("n10", a=4, b=10), moved))
    after = rings_after(plan, {"day=1": RING, "day=2": other, "day=3": RING}, C)
    assert {path: ring.sequence_number for path, ring in after.items()} == {"day=1": 8, "day=2": 1}
    assert [node.file_id_prefix for node in after["day=1"].nodes] == ["a", "b", "n20", "last"]
    assert {ring.instant for ring in after.values()} == {C}


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (replace(change("n10", a=10), sequence_number=6), "on ring 6 .* ring 7 is in force"),
        (replace(change("n10", a=10), sequence_number=8), "on ring 8 .* ring 7 is in force"),
        (replace(change("n10", a=10), partition="day=9"), "the partition has no ring"),
        (change("n10", a=5, b=5), "overlap: two have the position 5"),
        (change("n10", a=15, b=10), "15 overlaps a bucket"),
        (change("n10", a=5), "gap: nothing replaces n10-0"),
        (change("gone", a=10), "gone-0 is not on the ring"),
        (change("n10", n10=10), "n10-0 is on the ring already"),
    ],
)
def test_a_plan_that_does_not_fit_the_ring_in_force_is_refused_by_partition(
    plan: GroupChange, why: str
) -> None:
    with pytest.raises(CorruptTableError, match=f"resize of partition '{plan.partition}'.*{why}"):
        rings_after(ResizePlan((plan,)), {"day=1": RING}, C)


def test_a_file_group_that_no_node_can_have_is_refused() -> None:
    plan = replace(change(a=10), slices=(InputSlice("n10-1", None),))
    with pytest.raises(CorruptTableError, match="n10-1 is no file group of a ring"):
        rings_after(ResizePlan((plan,)), {"day=1": RING}, C)


def removal(*positions: int) -> tuple[RingNode, ...]:
    return tuple(RingNode(position, None, NodeTag.DELETE) for position in positions)


@pytest.mark.parametrize(
    "changes",
    [
        (change("n10", a=4, b=10),),
        (change("n10", a=3, b=5, c=10), change("last", d=99, e=RING_MAX)),
        (
            replace(
                change("n10", "n20", "last"),
                children=(*removal(10, 20), RingNode(RING_MAX, "m", NodeTag.REPLACE)),
            ),
        ),
    ],
    ids=["a split", "two splits", "a merge"],
)
def test_a_plan_tells_from_the_ring_that_it_left_the_one_that_it_was_made_on(
    changes: tuple[GroupChange, ...],
) -> None:
    after = rings_after(ResizePlan(changes), {"day=1": RING}, C)["day=1"]
    assert ring_before(after, changes) == RING


def test_also_a_split_across_the_end_of_the_ring_is_told() -> None:
    wrapped = replace(RING, nodes=(*RING.nodes[:2], RingNode(300, "last")))
    changes = (change("n10", a=RING_MAX - 4, b=10),)
    after = rings_after(ResizePlan(changes), {"day=1": wrapped}, C)["day=1"]
    assert ring_before(after, changes) == wrapped


def test_a_plan_whose_inputs_cannot_be_placed_tells_nothing() -> None:
    after = rings_after(ResizePlan((change("n10", a=10),)), {"day=1": RING}, C)["day=1"]
    assert ring_before(after, ()) is None
    assert ring_before(after, (change("n10", "n20", a=10),)) is None
