"""Of the rows of a key that one write holds, one stays: the one that a merge would leave."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.errors import InvalidRequestError
from pyhudi.table.merge import LogRows, MergeRule, fold_logs
from pyhudi.table.rows.latest import latest_per_key, refuse_null_ordering
from pyhudi.table.schema import RECORD_KEY


def latest(keys: list[str], event_time: bool, **columns: pa.Array) -> list[tuple[str, Any]]:
    rows = pa.RecordBatch.from_pydict({"n": pa.array(range(len(keys))), **columns})
    kept, found = latest_per_key(pa.array(keys), rows, list(columns), event_time=event_time)
    return list(zip(kept.to_pylist(), found.column("n").to_pylist(), strict=True))


@pytest.mark.parametrize(
    ("event_time", "kept"),
    [(False, [("b", 1), ("a", 3), ("c", 4)]), (True, [("a", 0), ("b", 1), ("c", 4)])],
)
def test_the_latest_row_of_a_key_stays(event_time: bool, kept: list[tuple[str, int]]) -> None:
    keys, times = ["a", "b", "a", "a", "c"], pa.array([9, 1, 8, 7, 0])
    assert latest(keys, event_time, ts=times) == kept


@pytest.mark.parametrize(
    ("columns", "kept"),
    [
        ({"ts": pa.array([5, 5, 4])}, 1),
        ({"ts": pa.array([0.0, -0.0, float("nan")])}, 2),
        ({"ts": pa.array([1, 1, 1]), "more": pa.array(["b", "c", "a"])}, 1),
        ({"ts": pa.array([2, 1, 1]), "more": pa.array(["a", "c", "d"])}, 0),
    ],
)
def test_ordering_values_decide_as_in_a_merge(columns: dict[str, pa.Array], kept: int) -> None:
    assert latest(["a"] * 3, True, **columns) == [("a", kept)]


def test_rows_of_different_keys_are_left_as_they_are() -> None:
    keys, rows = pa.array(["b", "a"]), pa.RecordBatch.from_pydict({"ts": [1, 2]})
    assert latest_per_key(keys, rows, ["ts"], event_time=True) == (keys, rows)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), min_size=1), st.booleans())
def test_the_row_that_stays_is_the_one_that_a_merge_leaves(
    entries: list[tuple[str, int]], event_time: bool
) -> None:
    keys = pa.array([key for key, _ in entries])
    rows = pa.RecordBatch.from_arrays(
        [keys, pa.array([ts for _, ts in entries]), pa.array(range(len(entries)))],
        [RECORD_KEY, "ts", "n"],
    )
    kept, found = latest_per_key(keys, rows, ["ts"], event_time=event_time)
    assert kept == found.column(RECORD_KEY)
    rule = MergeRule(ordering=("ts",) if event_time else ())
    no_deletes = pa.array([False] * len(entries))
    merged = fold_logs([LogRows(rows, no_deletes)], rows.schema, rule).remaining()
    want = sorted(n for batch in merged for n in batch.column("n").to_pylist())
    assert found.column("n").to_pylist() == want


def test_rows_without_an_ordering_value_are_refused_with_a_sample() -> None:
    rows = pa.RecordBatch.from_pydict({"ts": [1, 2], "more": ["a", None]})
    refuse_null_ordering(rows, ["ts"])
    with pytest.raises(InvalidRequestError, match=r"1 of 2 rows .* 'more': row 1 \(more=null\)"):
        refuse_null_ordering(rows, ["ts", "more"])
