"""RFC-42, test plan: most data fall into a small hash range.

Four initial buckets, 16 times the target of rows, 90 % of them in 1 % of the ring.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from pyhudi.format.table.ring_file import FIRST_INSTANT, RING_MAX, Ring, RingNode
from pyhudi.index.ring_changes import RING_SIZE
from pyhudi.plan.resizing.choose import plan_resize
from pyhudi.plan.resizing.policy import ResizePolicy
from sized_rings import RowsOnRing

TARGET = 4096
pytestmark = pytest.mark.filterwarnings("ignore:target_bytes")


def policy(split: str) -> ResizePolicy:
    return ResizePolicy(target_bytes=TARGET, split=split, rest_seconds=0)


def skewed(seed: int) -> npt.NDArray[np.int64]:
    random = np.random.default_rng(seed)
    width = RING_SIZE // 100
    start = int(random.integers(0, RING_SIZE - width))
    hot = random.integers(start, start + width, 16 * TARGET * 9 // 10)
    rest = random.integers(0, RING_SIZE, 16 * TARGET - len(hot))
    return np.concatenate([hot, rest])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("split", "rounds"), [("even", 2), ("middle", 9)])
def test_the_largest_bucket_comes_near_the_target_in_a_few_rounds(
    split: str, rounds: int, seed: int
) -> None:
    rows = RowsOnRing.first(skewed(seed), 4)
    assert rows.sizes.max() > 14 * TARGET
    for _ in range(rounds):
        rows = rows.round(policy(split))
    assert rows.sizes.max() <= 2 * TARGET
    assert len(rows.ring.nodes) <= 4 * 16


@pytest.mark.parametrize("split", ["even", "middle"])
def test_rounds_end_and_then_every_bucket_is_as_it_should_be(split: str) -> None:
    rows = RowsOnRing.first(skewed(7), 4)
    for _ in range(32):
        preview = rows.preview(policy(split))
        if preview.is_empty:
            break
        rows = rows.resized(preview.plan(rows.new_ids))
    assert preview.is_empty
    assert str(preview).startswith("nothing to resize")
    assert {each.why for each in preview.left} <= {
        "its size is within bounds",
        "no small neighbour fits into one bucket with it",
    }


@pytest.mark.parametrize("split", ["even", "middle"])
def test_a_bucket_that_exceeds_the_limit_of_a_plan_goes_alone_and_the_preview_says_so(
    split: str,
) -> None:
    rows = RowsOnRing.first(skewed(1), 4)
    small = ResizePolicy(target_bytes=TARGET, split=split, rest_seconds=0, bytes_max=TARGET)
    preview = rows.preview(small)
    (change,) = preview.changes
    assert change.bytes > 14 * TARGET
    assert "bytes_max=4,096 cannot be kept" in str(preview)


@pytest.mark.parametrize("split", ["even", "middle"])
@pytest.mark.parametrize("others", [0, TARGET // 10])
def test_one_hot_hash_value_is_named_and_not_retried(split: str, others: int) -> None:
    random = np.random.default_rng(3)
    hot = np.full(5 * TARGET, 123_456_789)
    rows = RowsOnRing.first(np.concatenate([hot, random.integers(0, RING_MAX // 4, others)]), 4)
    preview = rows.preview(policy(split))
    assert not any(change.is_split for change in preview.changes)
    assert "one hash value, 123456789" in str(preview)


@pytest.mark.parametrize("split", ["even", "middle"])
def test_a_hot_hash_value_among_other_rows_is_cut_off_and_then_left_alone(split: str) -> None:
    random = np.random.default_rng(4)
    hot = np.full(5 * TARGET, 123_456_789)
    rows = RowsOnRing.first(np.concatenate([hot, random.integers(0, RING_SIZE, 8 * TARGET)]), 4)
    for _ in range(3 if split == "even" else 9):
        rows = rows.round(policy(split))
    preview = rows.preview(policy(split))
    assert preview.is_empty
    hottest, *others = sorted(rows.sizes, reverse=True)
    assert hottest >= 5 * TARGET
    assert max(others) <= 2 * TARGET
    assert "one hash value, 123456789" in str(preview)


def test_a_bucket_that_is_one_value_wide_is_named_without_a_sample() -> None:
    nodes = (RingNode(4, "a"), RingNode(5, "b"), RingNode(RING_MAX, "c"))
    rows = RowsOnRing(np.full(5 * TARGET, 5), Ring("p", FIRST_INSTANT, 3, 0, nodes))
    reasons = {left.why for left in plan_resize(rows.facts, policy("even"), rows.limits, {}).left}
    assert "its range is too narrow: it is the one hash value 5" in reasons
