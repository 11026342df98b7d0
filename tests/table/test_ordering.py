"""Ordering values compare as Hudi compares them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyhudi.table.ordering import at_least, dense_ranks

NEGATIVE_NAN = float(np.array([-1], dtype=np.int64).view(np.float64)[0])

#: Type, and values from the lowest to the highest.
ORDERS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int32(), [-1, 0, 1]),
    (pa.int64(), [None, -1, 0]),
    (pa.string(), [None, "", "10", "5", "é", "\uffff", "\U00010000"]),
    (pa.float64(), [None, float("-inf"), -1.5, -0.0, 0.0, 5e-324, float("inf"), float("nan")]),
    (pa.float32(), [None, -0.0, 0.0, 0.1, float("nan")]),
    (pa.bool_(), [None, False, True]),
]
PAIRS = [(t, low, high) for t, values in ORDERS for low, high in pairwise(values)]


@pytest.mark.parametrize(("type_", "low", "high"), PAIRS)
def test_values_have_one_order(type_: pa.DataType, low: Any, high: Any) -> None:
    left, right = pa.array([low, high, low], type_), pa.array([high, low, low], type_)
    assert at_least([left], [right]).to_pylist() == [False, True, True]
    ranks = dense_ranks([pa.array([low, high, low], type_)])
    assert ranks[0] == ranks[2] < ranks[1]


@pytest.mark.parametrize(
    ("type_", "one", "other"),
    [(pa.int32(), None, 0), (pa.float64(), float("nan"), NEGATIVE_NAN)],
)
def test_values_that_hudi_takes_for_one_are_equal(type_: pa.DataType, one: Any, other: Any) -> None:
    left, right = pa.array([one], type_), pa.array([other], type_)
    assert at_least([left], [right]).to_pylist() == [True]
    assert at_least([right], [left]).to_pylist() == [True]
    assert len(set(dense_ranks([pa.concat_arrays([left, right])]))) == 1


def test_a_later_column_decides_only_among_equals() -> None:
    first, second = pa.array([1, 1, 2, None]), pa.array(["a", "b", "", "z"])
    assert dense_ranks([first, second]).tolist() == [1, 2, 3, 0]
    assert at_least([first, second], [first.take([1, 0, 1, 3]), second.take([1, 0, 1, 3])]) == (
        pa.array([False, True, True, True])
    )
