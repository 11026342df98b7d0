"""Buckets, concurrency mode and lock: what a table keeps so that all its writers agree."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.errors import CorruptTableError, InvalidRequestError
from pyhudi.format.table.bucket_config import (
    BUCKETS_MAX,
    NODES_MAX,
    TARGET_BYTES,
    Buckets,
    ConsistentBuckets,
    SimpleBuckets,
    bucket_properties,
    buckets_of,
)
from pyhudi.format.table.concurrency_mode import ConcurrencyMode, concurrency_of
from pyhudi.format.table.properties import TableProperties

BUCKET = {
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "SIMPLE",
    "hoodie.bucket.index.num.buckets": "8",
    "hoodie.bucket.index.hash.field": "a",
}
KEY = ("a", "b")


def kept(**changes: str) -> Buckets | None:
    values = BUCKET | {key.replace("__", "."): value for key, value in changes.items()}
    return buckets_of(TableProperties(values), KEY)


@pytest.mark.parametrize("count", [0, -1, BUCKETS_MAX + 1, 1.0, "8", True, None])
def test_a_count_that_no_file_id_can_hold_is_refused(count: Any) -> None:
    with pytest.raises(InvalidRequestError, match="whole number from 1"):
        SimpleBuckets(count)


@pytest.mark.parametrize("names", ["id", ["id"], ("id", "id"), ("",), (1,), ("a,b",), None])
def test_hash_fields_that_are_no_tuple_of_names_are_refused(names: Any) -> None:
    with pytest.raises(InvalidRequestError, match="tuple of different column names"):
        SimpleBuckets(8, names)


@pytest.mark.parametrize(
    ("given_fields", "named"),
    [((), ("a", "b")), (("a", "b"), ("a", "b")), (("b", "a"), ("a", "b")), (("b",), ("b",))],
)
def test_resolved_buckets_name_what_is_hashed_in_the_order_of_the_key(
    given_fields: tuple[str, ...], named: tuple[str, ...]
) -> None:
    assert SimpleBuckets(4, given_fields).resolved(KEY) == SimpleBuckets(4, named)


def test_a_hash_field_outside_the_record_key_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"c is not in the record key \(a, b\)"):
        SimpleBuckets(4, ("a", "c")).resolved(KEY)


@settings(deadline=None, max_examples=50)
@given(st.integers(1, BUCKETS_MAX), st.sets(st.sampled_from(KEY)))
def test_kept_buckets_are_those_that_were_stored(count: int, names: set[str]) -> None:
    buckets = SimpleBuckets(count, tuple(sorted(names)))
    properties = TableProperties(bucket_properties(buckets, KEY))
    assert buckets_of(properties, KEY) == buckets.resolved(KEY)


def test_buckets_are_stored_under_the_names_of_hudis_options() -> None:
    procedures_need = {"hoodie.datasource.write.recordkey.field": "a,b"}
    assert bucket_properties(SimpleBuckets(8, ("a",)), KEY) == BUCKET | procedures_need


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, SimpleBuckets(8, ("a",))),
        ({"hoodie__index__type": "bucket"}, SimpleBuckets(8, ("a",))),
        ({"hoodie__index__bucket__engine": ""}, SimpleBuckets(8, ("a",))),  # Hudi's default
        ({"hoodie__bucket__index__hash__field": ""}, SimpleBuckets(8, ("a", "b"))),
        ({"hoodie__index__type": ""}, None),
        ({"hoodie__index__type": "BLOOM"}, None),
        (
            {"hoodie__index__bucket__engine": "CONSISTENT_HASHING"},
            ConsistentBuckets(8, hash_fields=("a",)),
        ),
        ({"hoodie__index__bucket__engine": "simple_hashing"}, SimpleBuckets(8, ("a",))),
        ({"hoodie__index__bucket__engine": "EXTENDIBLE_HASHING"}, None),
        ({"hoodie__bucket__index__num__buckets": ""}, None),
    ],
)
def test_what_the_properties_tell_of_buckets(
    changes: dict[str, str], found: Buckets | None
) -> None:
    assert kept(**changes) == found


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hoodie.bucket.index.num.buckets", "0"),
        ("hoodie.bucket.index.num.buckets", "100000000"),
        ("hoodie.bucket.index.num.buckets", "eight"),
        ("hoodie.bucket.index.hash.field", "c"),
        ("hoodie.bucket.index.hash.field", "a,a"),
    ],
)
def test_malformed_buckets_are_refused_by_key(key: str, value: str) -> None:
    with pytest.raises(CorruptTableError, match=key):
        kept(**{key.replace(".", "__"): value})


@pytest.mark.parametrize(
    ("value", "mode"),
    [
        ("OPTIMISTIC_CONCURRENCY_CONTROL", ConcurrencyMode.OPTIMISTIC),
        ("non_blocking_concurrency_control", ConcurrencyMode.NON_BLOCKING),
        ("SINGLE_WRITER", None),
        ("", None),
    ],
)
def test_what_the_properties_tell_of_concurrency(value: str, mode: ConcurrencyMode | None) -> None:
    key = "hoodie.write.concurrency.mode"
    assert concurrency_of(TableProperties({key: value})) is mode


def test_a_malformed_concurrency_mode_is_refused_by_key() -> None:
    with pytest.raises(CorruptTableError, match=r"concurrency\.mode"):
        concurrency_of(TableProperties({"hoodie.write.concurrency.mode": "HOPE"}))


# ---- consistent buckets


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"min": 0}, "min=0"),
        ({"max": NODES_MAX + 1}, "max=262145"),
        ({"max": True}, "max=True"),
        ({"initial": 0}, "initial=0"),
        ({"initial": 32769, "max": 100_000}, "initial=32769"),
        ({"initial": "many"}, "initial='many'"),
        ({"initial": 2, "min": 4}, "min <= initial <= max"),
        ({"initial": 8, "max": 4}, "min <= initial <= max"),
        ({"min": 8, "max": 4}, "min <= initial <= max"),
        ({"hash_fields": "id"}, "tuple of different column names"),
    ],
)
def test_limits_that_no_ring_can_keep_are_refused(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidRequestError, match=why):
        ConsistentBuckets(**arguments)


@pytest.mark.parametrize(
    ("buckets", "size", "count"),
    [
        (ConsistentBuckets(), 0, 1),
        (ConsistentBuckets(), TARGET_BYTES, 1),
        (ConsistentBuckets(), TARGET_BYTES + 1, 2),
        (ConsistentBuckets(), 5 * TARGET_BYTES, 8),
        (ConsistentBuckets(), float("inf"), 64),
        (ConsistentBuckets(min=3), 0, 3),
        (ConsistentBuckets(max=5), 1e12, 5),
        (ConsistentBuckets(7), 1e12, 7),
    ],
)
def test_the_first_write_sizes_a_ring(buckets: ConsistentBuckets, size: float, count: int) -> None:
    assert buckets.first_count(size) == count


@pytest.mark.parametrize(
    "buckets",
    [
        ConsistentBuckets(hash_fields=("a", "b")),
        ConsistentBuckets(16, 2, 64, ("a",)),
        ConsistentBuckets(min=8, hash_fields=("b",)),
        ConsistentBuckets(max=2, hash_fields=("b",)),
    ],
)
def test_consistent_buckets_are_recorded_under_hudis_names(buckets: ConsistentBuckets) -> None:
    recorded = bucket_properties(buckets, KEY)
    assert recorded["hoodie.index.bucket.engine"] == "CONSISTENT_HASHING"
    assert recorded["hoodie.bucket.index.max.num.buckets"] == str(buckets.max)
    assert buckets_of(TableProperties(recorded), KEY) == buckets


@pytest.mark.parametrize(
    "changes",
    [
        {"hoodie__bucket__index__min__num__buckets": "9"},
        {"hoodie__bucket__index__max__num__buckets": "7"},
        {"pyhudi__buckets__initial": "some"},
    ],
)
def test_recorded_limits_that_no_ring_can_keep_are_an_error(changes: dict[str, str]) -> None:
    with pytest.raises(CorruptTableError, match="table property cannot be used"):
        kept(hoodie__index__bucket__engine="CONSISTENT_HASHING", **changes)
