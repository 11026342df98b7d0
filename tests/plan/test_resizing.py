"""What becomes of each bucket in one plan, and why not more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.ring_file import FIRST_INSTANT, RING_MAX, Ring, RingNode
from pyhudi.index.ring_changes import RING_SIZE
from pyhudi.plan.pending_plans import PendingPlans
from pyhudi.plan.resizing.changes import ResizePreview
from pyhudi.plan.resizing.choose import (
    PARTS_MAX,
    RingLimits,
    SizedPartition,
    plan_resize,
    worst_partitions,
)
from pyhudi.plan.resizing.policy import MIB, ResizePolicy
from sized_rings import LIMITS, NOW, facts, sized

T = 120 * MIB
FITS = "its size is within bounds"


def ring(partition: str = "p", count: int = 8) -> Ring:
    step = RING_SIZE // count
    ends = [*range(step, RING_MAX, step), RING_MAX][:count]
    nodes = tuple(RingNode(end, f"{partition}{n}") for n, end in enumerate(ends))
    return Ring(partition, FIRST_INSTANT, count, 5, nodes)


def parts_of(partition: str, *targets: float, resized: str | None = None) -> SizedPartition:
    """A partition whose buckets have these multiples of the target."""
    sizes = {number: int(target * T) for number, target in enumerate(targets)}
    return sized(ring(partition, len(targets)), sizes, resized)


class Everywhere(Mapping[FileGroupId, Any]):
    """Samples of rows that are spread over the whole ring."""

    def __getitem__(self, group: FileGroupId) -> Any:
        return np.linspace(0, RING_MAX, 4096, dtype=np.int64)

    def __iter__(self) -> Iterator[FileGroupId]:
        return iter(())

    def __len__(self) -> int:
        return 0


def preview(
    *partitions: SizedPartition,
    limits: RingLimits = LIMITS,
    plans: PendingPlans | None = None,
    clusterings: Mapping[str, str] | None = None,
    samples: Mapping[FileGroupId, Any] | None = None,
    **policy: Any,
) -> ResizePreview:
    given = facts(*partitions, plans=plans or PendingPlans({}), clusterings=clusterings)
    known = Everywhere() if samples is None else samples
    return plan_resize(given, ResizePolicy(**policy), limits, known)


def changes(found: ResizePreview) -> list[tuple[str, list[int], int]]:
    return [(each.partition, [*each.nodes], each.parts) for each in found.changes]


def reasons(found: ResizePreview) -> dict[str, str]:
    return {left.group.file_id.removesuffix("-0"): left.why for left in found.left}


def test_large_buckets_split_small_neighbours_merge_and_the_others_stay() -> None:
    found = preview(parts_of("p", 0.1, 0.1, 1, 5, 2, 0.1, 0.1, 0.1))
    assert changes(found) == [("p", [3], 5), ("p", [5, 6, 7], 1), ("p", [0, 1], 1)]
    assert reasons(found) == {"p2": FITS, "p4": FITS}


def test_a_merge_never_crosses_the_end_of_the_ring() -> None:
    found = preview(parts_of("p", 0.1, 1, 1, 0.1))
    assert found.is_empty
    lonely = "no small neighbour fits into one bucket with it"
    assert reasons(found) == {"p0": lonely, "p1": FITS, "p2": FITS, "p3": lonely}


def test_a_merged_bucket_is_not_larger_than_the_target() -> None:
    found = preview(parts_of("p", *[0.19] * 8))
    assert changes(found) == [("p", [0, 1, 2, 3, 4], 1), ("p", [5, 6, 7], 1)]


def test_a_partition_waits_until_each_bucket_has_a_file() -> None:
    """The ring that a resize leaves is marked as complete."""
    found = preview(sized(ring("p", 4), {0: 3 * T, 1: T, 3: 5}))
    assert found.is_empty
    why = "bucket p2-0 of its partition has no file yet; the next write makes one"
    assert reasons(found) == {"p0": why, "p1": FITS, "p2": why, "p3": why}


def test_a_bucket_that_cannot_be_read_does_not_keep_others_from_being_resized() -> None:
    broken = {FileGroupId("p", "p0-0"): "its file is damaged"}
    given = replace(facts(parts_of("p", 3, 4)), broken=broken)
    found = plan_resize(given, ResizePolicy(), LIMITS, Everywhere())
    assert changes(found) == [("p", [1], 4)]
    assert reasons(found) == {"p0": "its file is damaged"}


def test_a_plan_has_the_slices_the_ring_and_the_children() -> None:
    found = preview(parts_of("p", 1, 3))
    plan = found.plan(f"c{n}" for n in count())
    (group,) = plan.groups
    assert (group.partition, group.sequence_number) == ("p", 5)
    assert [part.file_id for part in group.slices] == ["p1-0"]
    assert [part.files for part in group.slices] == [("p1-0_0-0-0_20260101000000000.parquet",)]
    assert [node.file_id_prefix for node in group.children] == ["c0", "c1", "c2"]
    assert group.children[-1].position == RING_MAX
    assert group.metrics
    assert group.metrics["TOTAL_IO_READ_MB"] == 360.0


# ---- limits of the ring


def test_the_largest_buckets_take_the_room_that_the_ring_has() -> None:
    found = preview(parts_of("p", 3, 9, 3, 3), limits=RingLimits(1, 7))
    assert changes(found) == [("p", [1], 4)]
    at_limit = "its partition may have 7 buckets at most"
    assert reasons(found) == dict.fromkeys(("p0", "p2", "p3"), at_limit)


def test_a_partition_keeps_its_least_number_of_buckets() -> None:
    found = preview(parts_of("p", *[0.01] * 4), limits=RingLimits(3, 9))
    assert changes(found) == [("p", [0, 1], 1)]
    assert reasons(found) == dict.fromkeys(("p2", "p3"), "it is left to the next plan")
    found = preview(parts_of("p", *[0.01] * 4), limits=RingLimits(4, 9))
    assert set(reasons(found).values()) == {"its partition has 4 buckets at least"}


def test_a_huge_bucket_becomes_a_bounded_number_of_buckets_at_once() -> None:
    assert changes(preview(parts_of("p", 1000))) == [("p", [0], PARTS_MAX)]


# ---- limits of a plan


def test_the_limit_by_bytes_comes_first_and_smaller_changes_still_fit() -> None:
    found = preview(parts_of("p", 3, 5, 4, 1, 0.1, 0.1), bytes_max=int(8.5 * T))
    assert changes(found) == [("p", [1], 5), ("p", [0], 3), ("p", [4, 5], 1)]
    assert reasons(found)["p2"] == f"with it the plan exceeds bytes_max={int(8.5 * T):,}"


def test_buckets_and_partitions_of_a_plan_are_limited() -> None:
    many = [parts_of(f"p{n}", 3 + n, 1) for n in range(4)]
    found = preview(*many, partitions_max=2)
    assert changes(found) == [("p3", [0], 6), ("p2", [0], 5)]
    why = "the plan has partitions_max=2 other partitions"
    assert [left.why for left in found.left if left.why != FITS] == [why, why]
    found = preview(*many, buckets_max=1)
    assert changes(found) == [("p3", [0], 6)]
    assert "with it the plan exceeds buckets_max=1" in str(found)


def test_a_merge_is_shortened_to_the_buckets_that_a_plan_may_have() -> None:
    assert changes(preview(parts_of("p", *[0.01] * 9), buckets_max=4)) == [("p", [0, 1, 2, 3], 1)]
    found = preview(parts_of("p", 0.1, 0.1), buckets_max=1)
    assert set(reasons(found).values()) == {"buckets_max=1 lets no two buckets merge"}


# ---- what holds a bucket


def test_a_bucket_in_another_pending_plan_is_left_alone_and_ends_a_run() -> None:
    plans = PendingPlans(
        {"20260101": frozenset({FileGroupId("p", "p1-0"), FileGroupId("p", "p3-0")})}
    )
    found = preview(parts_of("p", 0.1, 0.1, 0.1, 3, 0.1, 0.1), plans=plans)
    assert changes(found) == [("p", [4, 5], 1)]
    held = "the pending plan 20260101 has it"
    assert reasons(found)["p1"] == reasons(found)["p3"] == held


def test_nothing_is_planned_beside_a_plan_that_cannot_be_read() -> None:
    found = preview(parts_of("p", 3, 1), plans=PendingPlans({"20260101": None}))
    assert found.is_empty
    unclear = "the pending plan 20260101 may have it, for its file cannot be read"
    assert reasons(found) == {"p0": unclear, "p1": FITS}


def test_a_partition_with_a_pending_clustering_or_resize_is_left_alone() -> None:
    found = preview(parts_of("p", 3, 1), parts_of("q", 3), clusterings={"p": "20260101"})
    assert changes(found) == [("q", [0], 3)]
    assert reasons(found) == {"p0": "the pending plan 20260101 is in its partition", "p1": FITS}


@pytest.mark.parametrize(
    ("seconds", "rests"), [(600, True), (405.678, False), (405.679, True), (0, False)]
)
def test_a_partition_rests_between_two_resizes(seconds: float, rests: bool) -> None:
    resized = f"{NOW[:8]}025720000"  # 405.678 seconds before now
    found = preview(parts_of("p", 3, resized=resized), rest_seconds=seconds)
    assert found.is_empty is rests
    if rests:
        assert f"was resized at {resized}, and rests until 20260102" in str(found)


# ---- samples


def test_buckets_that_are_to_be_split_are_sampled_first_and_no_others() -> None:
    partitions = (parts_of("p", 3, 1, 0.1, 0.1), parts_of("q", 4))
    found = preview(*partitions, partitions_max=1, samples={})
    assert found.unsampled == (FileGroupId("q", "q0-0"),)


def test_a_bucket_of_one_hash_value_makes_room_for_another() -> None:
    hot = {FileGroupId("q", "q0-0"): np.full(100, 77)}
    found = preview(parts_of("p", 3, 1), parts_of("q", 4), partitions_max=1, samples=hot)
    assert found.unsampled == (FileGroupId("p", "p0-0"),)
    assert reasons(found)["q0"] == "its rows have one hash value, 77"


def test_what_a_split_would_cut_off_must_be_worth_a_bucket() -> None:
    rows = np.concatenate([np.full(97, 77), [1, 2, 3]])
    key = FileGroupId("p", "p0-0")
    found = preview(parts_of("p", 4), samples={key: rows})  # 3 % of 4 targets is 0.12
    assert reasons(found)["p0"] == "nearly all of its rows have one hash value, 77"
    assert not preview(parts_of("p", 8), samples={key: rows}).is_empty


def test_a_sample_counts_only_where_its_rows_belong_to_the_bucket() -> None:
    rows = np.array([RING_MAX, 5, 6, 7])  # the first is another bucket's
    found = preview(parts_of("p", 3, 1), samples={FileGroupId("p", "p0-0"): rows}, split="even")
    assert found.changes[0].points == (5, 6)


def test_a_policy_without_points_leaves_its_bucket_alone() -> None:
    class Never:
        def points(self, bucket: object) -> list[int]:
            return []

    found = preview(parts_of("p", 3, 1), split=Never())
    assert reasons(found) == {"p0": "its split policy returns no point", "p1": FITS}


# ---- dropping, and words


def test_a_change_is_dropped_with_all_its_buckets() -> None:
    found = preview(parts_of("p", 3, 1, 0.1, 0.1)).without({FileGroupId("p", "p3-0"): "written"})
    assert changes(found) == [("p", [0], 3)]
    assert reasons(found) == {"p1": FITS, "p2": "written", "p3": "written"}


def test_rings_are_needed_only_where_a_size_is_out_of_bounds_and_the_worst_come_first() -> None:
    sizes = {
        "fits": [T, 2 * T, 24 * MIB],
        "lonely": [1, T, T],
        "empty": [],
        "merge": [1, T, 1],
        "more to merge": [1, T, 1, 1],
        "split": [T, 2 * T + 1],
        "larger": [1, 1, 3 * T],
    }
    found = worst_partitions(sizes, ResizePolicy())
    assert found == ["larger", "split", "more to merge", "merge"]


def test_a_preview_says_what_happens_to_how_many_and_why_not() -> None:
    found = preview(parts_of("p", 3, 1, 1, 0.1, 0.1), parts_of("q", 3), clusterings={"q": "2026"})
    assert str(found).splitlines() == [
        "3 buckets become 4, in 1 partition: 403 MB to rewrite",
        "  p/p0-0: 377 MB, split into 3",
        "  p/p3-0 and 1 neighbour: 25.2 MB, merged into one",
        "not changed: 3 buckets",
        f"  2 buckets such as p/p1-0 (126 MB): {FITS}",
        "  q/q0-0 (377 MB): the pending plan 2026 is in its partition",
    ]
    assert str(preview(parts_of("p", 1))).startswith("nothing to resize")
