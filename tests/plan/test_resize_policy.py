"""What a resize policy accepts, and where policies cut."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import InvalidRequestError
from pyhudi.index.ring_changes import RING_SIZE
from pyhudi.plan.resizing.policy import (
    MIB,
    ResizePolicy,
    SplitBucket,
    split_points,
)


class Fixed:
    """A policy of a caller: these points, whatever the bucket."""

    def __init__(self, points: Any) -> None:
        self.returned = points

    def points(self, bucket: SplitBucket) -> Sequence[int]:
        found: Sequence[int] = self.returned
        return found


def bucket(
    low: int = 0, high: int = 1000, parts: int = 4, places: Sequence[int] = ()
) -> SplitBucket:
    return SplitBucket("day=1", "n-0", low, high, 1, parts, np.array(sorted(places), np.int64))


def test_the_defaults_are_those_of_the_issue() -> None:
    policy = ResizePolicy()
    assert (policy.target_bytes, policy.split_above, policy.merge_below) == (120 * MIB, 2.0, 0.2)
    assert (policy.bytes_max, policy.partitions_max) == (2048 * MIB, 16)
    assert (policy.rest_seconds, policy.split, policy.writes) == (600, "middle", "copied")
    assert (policy.split_bytes, policy.merge_bytes) == (240 * MIB, 24 * MIB)


UNUSABLE: dict[str, list[object]] = {
    "target_bytes": [4095, 0, -1, 1e9, True, "1", None],
    "split_above": [0.99, float("nan"), float("inf"), True, "2"],
    "merge_below": [-0.1, 1.1, float("nan"), None],
    "bytes_max": [0],
    "buckets_max": [0],
    "partitions_max": [0],
    "rest_seconds": [-1, float("inf"), "600"],
    "split": ["center", None, 3, Fixed, lambda bucket: []],
    "writes": ["dual", None],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in UNUSABLE.items() for value in values]
)
def test_a_policy_that_cannot_be_used_is_refused_by_its_name(name: str, value: object) -> None:
    with pytest.raises(InvalidRequestError, match=f"{name}=.*Change the resize policy"):
        ResizePolicy(**{name: value})  # type: ignore[arg-type]


def test_a_target_of_a_few_kilobytes_is_accepted_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="target_bytes=4096.*1 MiB"):
        ResizePolicy(target_bytes=4096)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ResizePolicy(target_bytes=MIB)


def test_the_middle_cuts_into_equal_ranges_whatever_the_rows() -> None:
    assert split_points("middle", bucket(places=[1, 2, 3])) == (250, 500, 750)
    assert split_points("middle", bucket(parts=2)) == (500,)


def test_even_without_a_row_to_go_by_cuts_into_equal_ranges() -> None:
    assert split_points("even", bucket(parts=2)) == (500,)


def test_even_cuts_half_way_between_rows() -> None:
    assert split_points("even", bucket(parts=2, places=[10, 20, 40, 900])) == (30,)
    assert split_points("even", bucket(parts=4, places=[10, 20, 40, 900])) == (15, 30, 470)


def test_even_cuts_a_place_that_many_rows_share_off_on_both_sides() -> None:
    places = [1, 2, 3, *[500] * 20, 997, 998, 999]
    low, high = split_points("even", bucket(parts=4, places=places))
    assert 3 <= low < 500 <= high < 997


@given(
    st.integers(-RING_SIZE, 1000).flatmap(
        lambda low: st.tuples(
            st.just(low), st.lists(st.integers(low + 1, low + 5000), min_size=2, max_size=60)
        )
    ),
    st.integers(2, 64),
)
def test_even_always_cuts_a_bucket_with_two_places_and_no_part_is_without_rows(
    drawn: tuple[int, list[int]], parts: int
) -> None:
    low, places = drawn
    points = split_points("even", bucket(low, low + 5000, parts, places))
    if len(set(places)) == 1:
        assert points == ()
        return
    assert 1 <= len(points) < parts
    assert all(low < point < low + 5000 for point in points)
    cuts = [low, *points, low + 5000]
    counts, _ = np.histogram(np.array(places) - 0.5, bins=cuts)
    assert counts.sum() == len(places)
    assert counts.min() >= 1


@given(st.integers(0, 2**32), st.integers(2, 16))
def test_even_shares_are_within_a_row_of_each_other_where_no_place_repeats(
    seed: int, parts: int
) -> None:
    places = np.random.default_rng(seed).choice(100_000, 640, replace=False) + 1
    points = split_points("even", bucket(0, 200_000, parts, places.tolist()))
    shares, _ = np.histogram(places - 0.5, bins=[0, *points, 200_000])
    assert len(shares) == parts
    assert shares.max() - shares.min() <= 2


def test_the_points_of_a_callers_policy_are_put_in_order() -> None:
    assert split_points(Fixed([900, 3]), bucket()) == (3, 900)
    assert split_points(Fixed(np.array([3])), bucket()) == (3,)
    assert split_points(Fixed([]), bucket()) == ()


@pytest.mark.parametrize(
    ("points", "why"),
    [
        ([0], "above 0 and below 1000"),
        ([1000], "above 0 and below 1000"),
        ([-5, 3], "above 0 and below 1000"),
        ([3, 3], "one comes twice"),
        ([1, 2, 3, 4], "may become 4 buckets at most"),
        ([1.5], "not whole numbers"),
        (["a"], "not whole numbers"),
        (7, "not whole numbers"),
        (None, "not whole numbers"),
    ],
)
def test_points_at_which_a_bucket_cannot_be_cut_are_refused_by_partition_and_bucket(
    points: Any, why: str
) -> None:
    with pytest.raises(InvalidRequestError, match=f"bucket n-0 in partition 'day=1'.*{why}"):
        split_points(Fixed(points), bucket())


def test_a_policy_sees_the_range_and_a_sample_of_its_bucket() -> None:
    seen: list[SplitBucket] = []

    class Looking:
        def points(self, bucket: SplitBucket) -> Sequence[int]:
            seen.append(bucket)
            return [int(bucket.places[0])]

    check: Callable[..., object] = split_points
    assert check(Looking(), bucket(places=[7, 9])) == (7,)
    (found,) = seen
    assert (found.partition, found.file_id, found.low, found.high) == ("day=1", "n-0", 0, 1000)
