"""Numbers of buckets, told from keys and the file groups they lie in."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.bucket_config import BUCKETS_MAX
from pyhudi.index.bucket_inference import NoSimpleBuckets, PossibleCounts, possible_counts
from pyhudi.index.simple_bucket import bucket_ids, bucket_number, file_id
from single_hashes import java_list_hash


def group(bucket: int, partition: str = "p") -> FileGroupId:
    return FileGroupId(partition, file_id(bucket))


def laid_out(
    keys: list[str], count: int, fields: tuple[str, ...] = ("id",)
) -> dict[FileGroupId, pa.Array]:
    """The keys in the file groups of a table with so many buckets."""
    array = pa.array(keys, pa.string())
    buckets = bucket_ids(array, fields, count)
    return {
        group(bucket): array.filter(pc.equal(buckets, bucket))
        for bucket in buckets.unique().to_pylist()
    }


def key_of_hash(hash_: int) -> str:
    """A key with this hash: a number in base 31, whose digits begin at `@`, after a first unit."""
    rest = hash_ - 31 - 64 * (1 + 31 + 31**2)
    first, rest = divmod(rest, 31**2)
    key = "".join(map(chr, (64 + first, 64 + rest // 31, 64 + rest % 31)))
    assert java_list_hash([key]) == hash_
    return key


COUNTS = [1, 2, 3, 8, 12, 97, 256, 1024]


@pytest.mark.parametrize("count", COUNTS)
def test_enough_keys_tell_the_count(count: int) -> None:
    keys = laid_out([f"key-{n}" for n in range(20 * count)], count)
    assert possible_counts([], keys, ["id"]) == PossibleCounts(count, (count,))


@given(
    st.lists(st.text(max_size=8), min_size=1, max_size=30),
    st.integers(1, 3000),
    st.booleans(),
)
@settings(deadline=None, max_examples=100)
def test_the_true_count_is_always_among_the_possible_ones(
    texts: list[str], count: int, is_composite: bool
) -> None:
    keys = [f"id:{text},line:{n}" if is_composite else text for n, text in enumerate(texts)]
    found = possible_counts([], laid_out(keys, count, ("line",)), ["line"])
    assert isinstance(found, PossibleCounts)
    assert found.least <= count
    assert found.counts is None or count in found.counts


@given(st.lists(st.text(max_size=8), min_size=1, max_size=12), st.integers(1, 60))
@settings(deadline=None, max_examples=30)
def test_the_possible_counts_are_exactly_those_that_fit_when_tried(
    texts: list[str], count: int
) -> None:
    keys = laid_out(texts, count)
    found = possible_counts([], keys, ["id"])
    assert isinstance(found, PossibleCounts)
    tried = [
        n
        for n in range(1, 100)
        if all(
            n > (b := int(g.file_id[:8])) and set(bucket_ids(k, ["id"], n).to_pylist()) == {b}
            for g, k in keys.items()
        )
    ]
    told = range(found.least, 100) if found.counts is None else found.counts
    assert [n for n in told if n < 100] == tried


def test_names_alone_tell_only_the_least_count() -> None:
    assert possible_counts([group(4), group(2)], {}, ["id"]) == PossibleCounts(5, None)
    assert possible_counts([], {}, ["id"]) == PossibleCounts(1, None)
    empty = {group(1): pa.array([], pa.string())}
    assert possible_counts([], empty, ["id"]) == PossibleCounts(2, None)


def test_a_key_whose_hash_is_its_bucket_excludes_nothing() -> None:
    keys = {group(70_000): pa.array([key_of_hash(70_000)])}
    assert possible_counts([], keys, ["id"]) == PossibleCounts(70_001, None)


def test_names_without_keys_exclude_smaller_counts() -> None:
    keys = {group(3): pa.array([f"key-{n}" for n in range(400)])}
    keys = {g: k.filter(pc.equal(bucket_ids(k, ["id"], 8), 3)) for g, k in keys.items()}
    assert possible_counts([], keys, ["id"]) == PossibleCounts(4, (4, 8))
    assert possible_counts([group(4, "other")], keys, ["id"]) == PossibleCounts(5, (8,))


def test_one_count_is_the_only_one_and_several_are_not() -> None:
    assert PossibleCounts(4, (8,)).only == 8
    assert PossibleCounts(4, (4, 8)).only is None
    assert PossibleCounts(4, None).only is None


def test_null_keys_tell_nothing() -> None:
    assert possible_counts([], {group(0): pa.array([None], pa.string())}, ["id"]) == (
        PossibleCounts(1, None)
    )


CONTRADICTIONS = {
    "a file id without a number": (
        [FileGroupId("p", "8b764ad0-e5d2-49d3-ae38-f135d57ba24f-0")],
        {},
        "has no bucket number",
    ),
    "a short file id": ([FileGroupId("p", "0000001")], {}, "has no bucket number"),
    "digits that are not ASCII": ([FileGroupId("p", "\u0660" * 8)], {}, "has no bucket number"),
    "two file groups of one bucket": (
        [group(1), FileGroupId("p", "00000001-aaaa-0")],
        {},
        "bucket 1 of partition 'p' has two file groups",
    ),
    "a bucket beyond all counts": (
        [group(BUCKETS_MAX)],
        {},
        "no number of buckets",
    ),
    "a hash below its bucket": (
        [],
        {group(90_000): pa.array([key_of_hash(70_000)])},
        "hashes to another bucket",
    ),
    "keys that share no count": (
        [],
        {group(1): pa.array([f"key-{n}" for n in range(50)])},
        "no number of buckets",
    ),
    "a divisor that is smaller than the bucket": (
        [],
        {group(70_000): pa.array([key_of_hash(70_007)])},
        "no number of buckets",
    ),
    "a divisor that is too small for a bucket without keys": (
        [group(70_000, "other")],
        {group(1): pa.array([key_of_hash(70_001)])},
        "no number of buckets",
    ),
}


@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_what_fits_no_count_is_no_table_of_simple_buckets(what: str) -> None:
    groups, keys, why = CONTRADICTIONS[what]
    found = possible_counts(groups, keys, ["id"])
    assert isinstance(found, NoSimpleBuckets)
    assert why in found.why
    assert found.is_numbered is ("no bucket number" not in why)


def test_the_same_bucket_in_two_partitions_is_in_order() -> None:
    assert possible_counts([group(1, "p"), group(1, "q")], {}, []) == PossibleCounts(2, None)


def test_other_hash_fields_give_another_answer() -> None:
    keys = laid_out([f"id:{n},line:{n % 7}" for n in range(500)], 5, ("id",))
    assert possible_counts([], keys, ["id"]) == PossibleCounts(5, (5,))
    assert isinstance(possible_counts([], keys, ["id", "line"]), NoSimpleBuckets)


@pytest.mark.parametrize(
    ("id_", "number"),
    [(file_id(7), 7), ("00000012-x", 12), ("f3a0c2d1-0", None), ("", None), ("-0000001", None)],
)
def test_a_bucket_number_is_eight_digits_at_the_beginning(id_: str, number: int | None) -> None:
    assert bucket_number(id_) == number
