"""How errors show bad rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyhudi.table.rows.bad_rows import sample, true_rows


@pytest.mark.parametrize(
    ("array", "shown"),
    [
        (pa.array(["it's"]), '"it\'s"'),
        (pa.array(["x" * 100]), "'" + "x" * 39 + "…"),
        (pa.array([b"\xff"]), r"b'\xff'"),
        (pa.array([None], pa.int32()), "null"),
        (pa.array([1.5]), "1.5"),
        (pa.array(["a"]).dictionary_encode(), "'a'"),
        (pa.array([1500], pa.timestamp("ns")), "1970-01-01 00:00:00.000001500"),
        (pa.array([10**17], pa.timestamp("s")), "<value out of range: 100000000000000000>"),
        (pa.array([0], pa.timestamp("us", "no/zone")), "a timestamp[us, tz=no/zone]"),
        (pa.array([[2**62]], pa.list_(pa.timestamp("us"))), "a list<item: timestamp[us]>"),
        (pa.array([{"a": None}]), "{'a': None}"),
    ],
)
def test_a_value_is_shown_readably(array: pa.Array, shown: str) -> None:
    assert sample([0], {"c": array}) == f"row 0 (c={shown})"


def test_three_rows_are_enough() -> None:
    mask = pa.array([True, None, False, True, True, True])
    assert true_rows(mask) == [0, 3, 4]
    columns = {"a": pa.array(range(6)), "b": pa.array(list("uvwxyz"))}
    assert sample(range(6), columns) == "row 0 (a=0, b='u'), row 1 (a=1, b='v'), row 2 (a=2, b='w')"
