"""The first ring of a partition with simple buckets: what a plan may say, and what not."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from pyhudi.errors import CorruptTableError
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.ring_file import NodeTag, RingNode, initial_ring
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.format.timeline.resize_plan import (
    GroupChange,
    InputSlice,
    ResizePlan,
    decode_resize_plan,
    encode_resize_plan,
)
from pyhudi.index.layout import SimpleLayout, SimpleRule
from pyhudi.index.ring_layout import RingLayout
from pyhudi.index.routing import Routing
from pyhudi.index.simple_bucket import file_id
from pyhudi.plan.resizing.changes import FirstRing
from pyhudi.plan.resizing.rings import rings_after
from pyhudi.table.file_group import FileSlice

C = InstantTime("20260101000000000")
BUCKETS = SimpleBuckets(3, ("id",))
SLICES = tuple(FileSlice("p", file_id(n), C, None, ()) for n in range(3))
CHANGE = FirstRing("p", SLICES, 2).planned(iter(["a", "b"]))


def test_the_nodes_are_those_of_a_new_partition_under_new_file_ids() -> None:
    ring = rings_after(ResizePlan((CHANGE,)), {"p": BUCKETS}, C)["p"]
    first = initial_ring("p", 2)
    assert [node.position for node in ring.nodes] == [node.position for node in first.nodes]
    assert [node.file_id for node in ring.nodes] == ["a-0", "b-0"]
    assert (ring.instant, ring.first_bucket_count, ring.sequence_number) == (C, 2, 0)


def test_a_plan_comes_through_its_file() -> None:
    plan = ResizePlan((CHANGE,))
    data = encode_resize_plan(plan, "s3://lake/t", b"0" * 16)
    found = decode_resize_plan(data, "plan")
    assert found is not None
    assert rings_after(found, {"p": BUCKETS}, C) == rings_after(plan, {"p": BUCKETS}, C)


def of(*numbers: int) -> tuple[InputSlice, ...]:
    return tuple(InputSlice(file_id(number), None) for number in numbers)


NODE = CHANGE.children[-1]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ((replace(CHANGE, slices=of(0, 1)),), "each of the 3 buckets"),
        ((replace(CHANGE, slices=of(0, 1, 2, 3)),), "each of the 3 buckets"),
        ((replace(CHANGE, slices=of(0, 1, 1)),), "each of the 3 buckets"),
        ((replace(CHANGE, slices=(*of(0, 1), InputSlice("f3a0-0", None))),), "each of the 3"),
        ((replace(CHANGE, sequence_number=4),), "planned on a ring"),
        ((CHANGE, CHANGE), "planned on a ring"),
        ((replace(CHANGE, children=()),), "not a new bucket"),
        ((replace(CHANGE, children=(NODE, RingNode(9, None, NodeTag.DELETE))),), "not a new"),
        ((replace(CHANGE, children=(NODE, replace(NODE, file_id_prefix="c"))),), "the position"),
    ],
)
def test_a_plan_that_does_not_fit_the_partition_is_refused(
    changes: tuple[GroupChange, ...], why: str
) -> None:
    with pytest.raises(CorruptTableError, match=why):
        rings_after(ResizePlan(changes), {"p": BUCKETS}, C)


def test_only_a_partition_that_is_migrated_may_have_no_ring() -> None:
    with pytest.raises(CorruptTableError, match="has no ring"):
        rings_after(ResizePlan((CHANGE,)), {}, C)
    with pytest.raises(CorruptTableError, match="not on the ring"):
        rings_after(ResizePlan((CHANGE,)), {"p": initial_ring("p", 2)}, C)


def test_a_key_is_hashed_in_the_way_of_its_partition() -> None:
    """One write may meet both: the hashes of one kind say nothing of the other."""
    ring = RingLayout(initial_ring("ring", 4), ("id",))
    simple = SimpleLayout("simple", BUCKETS)
    routing = Routing(SimpleRule(BUCKETS), {"ring": ring})
    for key in (f"k{n}" for n in range(40)):
        one = pa.array([key])
        expected = [each.group(int(each.assign(one)[0])) for each in (simple, ring)]
        assert list(routing.groups_of(one, ["simple", "ring"])) == expected
