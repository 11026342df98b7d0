"""Rows go to the file group of their partition and bucket, and one of each key stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.errors import InvalidRequestError
from pyhudi.format.table.properties import TableProperties
from pyhudi.format.table.table_config import TableConfig
from pyhudi.index.routing import Placed, latest_per_key, placed, refuse_null_ordering
from pyhudi.index.simple_bucket import bucket_ids
from pyhudi.table.merge import LogRows, MergeRule, fold_logs
from pyhudi.table.schema import RECORD_KEY


def config(keys: str = "id", partitions: str = "day") -> TableConfig:
    return TableConfig.of(
        TableProperties(
            {
                "hoodie.table.name": "t",
                "hoodie.table.type": "MERGE_ON_READ",
                "hoodie.table.version": "9",
                "hoodie.table.recordkey.fields": keys,
                "hoodie.table.partition.fields": partitions,
                "hoodie.table.ordering.fields": "ts",
                "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
            }
        )
    )


def batch_of(rows: Sequence[tuple[str, str | None, int]]) -> pa.RecordBatch:
    ids, days, order = ([row[at] for row in rows] for at in range(3))
    types = {"id": pa.string(), "day": pa.string(), "n": pa.int64()}
    columns = zip((ids, days, order), types.values(), strict=True)
    return pa.RecordBatch.from_arrays([pa.array(v, t) for v, t in columns], list(types))


ROWS = st.lists(
    st.tuples(st.text(min_size=1, max_size=3), st.none() | st.sampled_from("zéa_ "), st.just(0))
).map(lambda rows: [(key, day, n) for n, (key, day, _) in enumerate(rows)])


@settings(deadline=None, max_examples=50)
@given(ROWS, st.integers(1, 5))
def test_every_row_is_in_its_group_once_in_the_order_it_came(
    rows: list[tuple[str, str | None, int]], count: int
) -> None:
    groups = list(placed(batch_of(rows), config(), count))
    places = [(group.partition.encode(), group.bucket) for group in groups]
    assert places == sorted(set(places))
    for group in groups:
        assert len(group.keys) == group.rows.num_rows > 0
        assert group.keys.to_pylist() == group.rows.column("id").to_pylist()
        assert set(bucket_ids(group.keys, ["id"], count).to_pylist()) == {group.bucket}
        days = {day or "__HIVE_DEFAULT_PARTITION__" for day in group.rows.column("day").to_pylist()}
        assert days == {group.partition}
        numbers = group.rows.column("n").to_pylist()
        assert numbers == sorted(numbers)
    assert sorted(n for g in groups for n in g.rows.column("n").to_pylist()) == [*range(len(rows))]


def shown(groups: list[Placed]) -> list[tuple[str, int, list[str], list[int]]]:
    return [
        (g.partition, g.bucket, g.keys.to_pylist(), g.rows.column("n").to_pylist()) for g in groups
    ]


def test_groups_are_the_same_however_rows_are_cut() -> None:
    rows = [(f"k{n % 7}", f"d{n % 3}", n) for n in range(50)]
    whole = batch_of([("x", "y", -1), *rows, ("x", "y", -1)])
    want = shown(list(placed(batch_of(rows), config(), 4)))
    assert shown(list(placed(whole[1:51], config(), 4))) == want


def test_a_batch_of_one_group_is_not_copied() -> None:
    batch = batch_of([("a", "d", 0), ("b", "d", 1)])
    (group,) = placed(batch, config(), 1)
    assert group.rows.column("n").buffers()[1].address == batch.column("n").buffers()[1].address


def test_no_rows_make_no_groups() -> None:
    assert list(placed(batch_of([]), config(), 4)) == []


def test_rows_of_an_unpartitioned_table_have_the_empty_path() -> None:
    groups = list(placed(batch_of([("a", "d", 0)]), config(partitions=""), 4))
    assert [group.partition for group in groups] == [""]


COMPOSITE = pa.RecordBatch.from_pydict({"id": ["1"] * 2, "nm": ["a", "b"], "day": ["d"] * 2})


def test_hash_fields_keep_keys_together() -> None:
    groups = list(placed(COMPOSITE, config("id,nm"), 997, ["id"]))
    assert [group.keys.to_pylist() for group in groups] == [["id:1,nm:a", "id:1,nm:b"]]
    assert len(list(placed(COMPOSITE, config("id,nm"), 997))) == 2


def test_without_hash_fields_the_record_key_fields_are_meant_by_name() -> None:
    odd = pa.RecordBatch.from_pydict({"id": ["1,x:2"], "nm": ["a"], "day": ["d"]})
    (group,) = placed(odd, config("id,nm"), 997)
    (named,) = bucket_ids(group.keys, ["id", "nm"], 997).to_pylist()
    (unnamed,) = bucket_ids(group.keys, [], 997).to_pylist()
    assert group.bucket == named != unnamed


def test_hash_fields_outside_of_the_record_key_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"by 'day': .* record key fields id, nm"):
        placed(COMPOSITE, config("id,nm"), 4, ["id", "day"])


def test_bad_rows_are_found_before_the_first_group_is_given() -> None:
    with pytest.raises(InvalidRequestError, match="row 1"):
        placed(batch_of([("a", "d", 0), ("", "d", 1)]), config(), 4)


# ---- one row of each key


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
