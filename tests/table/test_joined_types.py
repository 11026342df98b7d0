"""The join of types: an order in which no value is lost."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.table.joined_types import joined_type

decimals = st.integers(1, 38).flatmap(
    lambda precision: st.integers(0, precision).map(lambda scale: pa.decimal128(precision, scale))
)
numbers = st.sampled_from([pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()])
types = numbers | decimals


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int32(), pa.float64(), pa.float64()),
        (pa.int32(), pa.float32(), pa.float64()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.int64(), pa.float32(), None),
        (pa.int64(), pa.float64(), None),
        (pa.int32(), pa.string(), None),
        (pa.int32(), pa.decimal128(10, 0), None),
        (pa.string(), pa.binary(), None),
        (pa.decimal128(10, 2), pa.decimal128(9, 4), pa.decimal128(12, 4)),
        (pa.decimal128(38, 0), pa.decimal128(38, 1), None),
    ],
)
def test_two_types_have_the_least_type_that_holds_both(
    one: pa.DataType, other: pa.DataType, expected: pa.DataType | None
) -> None:
    assert joined_type(one, other) == expected
    assert joined_type(other, one) == expected


def joined(one: pa.DataType | None, other: pa.DataType | None) -> pa.DataType | None:
    return None if one is None or other is None else joined_type(one, other)


@given(types, types, types)
def test_the_order_in_which_types_are_joined_does_not_matter(
    a: pa.DataType, b: pa.DataType, c: pa.DataType
) -> None:
    assert joined_type(a, a) == a
    assert joined(joined(a, b), c) == joined(a, joined(b, c))
