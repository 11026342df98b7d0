"""Sorted batches come apart into groups: each group once, each key once, nothing read too early."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.index.layout import SimpleRule
from pyhudi.index.routing import PreparedBatch, Routing, Targets
from pyhudi.index.simple_bucket import bucket_ids, file_id
from pyhudi.write.files.spec import KeyedRows
from pyhudi.write.sorted_groups import (
    KEY_BITS,
    KeyedBatch,
    grouped,
    joined_rows,
    sorted_by_group,
)

ROUTING = Routing(SimpleRule(SimpleBuckets(3, ("id",))))
SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("n", pa.int64())])


class Row(NamedTuple):
    """A row on its way. Code and key hash are drawn by hand, so that they can coincide."""

    path: str
    bucket: int
    code: int
    key: str
    key_hash: int
    ts: int

    @property
    def group(self) -> FileGroupId:
        return FileGroupId(self.path, file_id(self.bucket))

    @property
    def sort_key(self) -> int:
        return (self.code << KEY_BITS) | self.key_hash


@st.composite
def arrivals(draw: st.DrawFn) -> list[Row]:
    """Rows in the order of their sort keys, in which the codes and hashes of some coincide."""
    places = [(path, bucket) for path in ("", "a", "b") for bucket in range(2)]
    codes = draw(st.lists(st.integers(-2, 2), min_size=len(places), max_size=len(places)))
    hashes = draw(st.lists(st.integers(0, 2), min_size=5, max_size=5))
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, len(places) - 1), st.integers(0, 4), st.integers(0, 3)),
            max_size=40,
        )
    )
    made = [Row(*places[p], codes[p], f"k{k}", hashes[k], ts) for p, k, ts in rows]
    return sorted(made, key=lambda row: row.sort_key)


def batch(rows: Sequence[Row], first: int = 0) -> KeyedBatch:
    """A batch whose dictionary of partitions is in an order of its own, with one that is unused."""
    paths = ["never", *sorted({row.path for row in rows}, reverse=len(rows) % 2 == 0)]
    indices = pa.array([paths.index(row.path) for row in rows], pa.int32())
    table = {
        "id": [row.key for row in rows],
        "ts": [row.ts for row in rows],
        "n": list(range(first, first + len(rows))),
    }
    keyed = KeyedRows(pa.RecordBatch.from_pydict(table, SCHEMA), pa.array(table["id"], pa.string()))
    buckets = np.array([row.bucket for row in rows], np.int32)
    targets = Targets(ROUTING, pa.DictionaryArray.from_arrays(indices, pa.array(paths)), buckets)
    return KeyedBatch(keyed, targets, np.array([row.sort_key for row in rows], np.int64))


def cut(rows: Sequence[Row], cuts: Sequence[int]) -> Iterator[KeyedBatch]:
    bounds = [0, *sorted(c % (len(rows) + 1) for c in cuts), len(rows)]
    for start, end in pairwise(bounds):
        yield batch(rows[start:end], start)


def model(rows: Sequence[Row], *, by_time: bool) -> dict[FileGroupId, dict[str, tuple[int, int]]]:
    """Group → key → the time and number of the latest row, the later of equals."""
    found: dict[FileGroupId, dict[str, tuple[int, int]]] = {}
    for number, row in enumerate(rows):
        group = found.setdefault(row.group, {})
        if row.key not in group or not by_time or row.ts >= group[row.key][0]:
            group[row.key] = (row.ts, number)
    return found


def as_read(chunks: Iterator[KeyedRows]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for chunk in chunks:
        assert chunk.keys.to_pylist() == chunk.rows.column("id").to_pylist()
        assert chunk.rows.schema == SCHEMA
        for row in chunk.rows.to_pylist():
            assert row["id"] not in found, "a key comes twice"
            found[row["id"]] = (row["ts"], row["n"])
    return found


@given(arrivals(), st.lists(st.integers(0, 100), max_size=6), st.booleans())
@settings(max_examples=100, deadline=None)
def test_every_group_comes_once_with_the_latest_row_of_each_key(
    rows: list[Row], cuts: list[int], by_time: bool
) -> None:
    found: dict[FileGroupId, Any] = {}
    for group, chunks in grouped(cut(rows, cuts), ("ts",) if by_time else ()):
        assert group not in found, "a group comes twice"
        found[group] = as_read(chunks)
    assert found == model(rows, by_time=by_time)


@given(arrivals(), st.lists(st.integers(0, 100), max_size=6), st.integers(0, 3))
@settings(max_examples=50, deadline=None)
def test_who_stops_in_the_middle_of_a_group_still_gets_the_next_ones_whole(
    rows: list[Row], cuts: list[int], chunks_read: int
) -> None:
    found = {}
    for number, (group, chunks) in enumerate(grouped(cut(rows, cuts), ("ts",))):
        if number % 2:
            found[group] = as_read(chunks)
        else:
            for _, _ in zip(range(chunks_read), chunks, strict=False):
                pass
            found[group] = {}
    expected = model(rows, by_time=True)
    assert found.keys() == expected.keys()
    assert all(content in ({}, expected[group]) for group, content in found.items())
    assert sum(bool(content) for content in found.values()) == len(found) // 2


def distinct(count: int, code: int = 7, path: str = "a") -> list[Row]:
    return [Row(path, 0, code, f"k{n:02}", n, 1) for n in range(count)]


def test_a_group_is_read_as_it_is_asked_for() -> None:
    asked: list[int] = []

    def batches() -> Iterator[KeyedBatch]:
        for number, start in enumerate(range(0, 40, 10)):
            asked.append(number)
            yield batch(distinct(40)[start : start + 10], start)

    (_, chunks), *others = iter_once(grouped(batches(), ("ts",)))
    assert asked == [0]
    first = next(chunks)
    assert asked == [0], "the second batch was asked for before the first chunk was given"
    assert first.rows.num_rows == 9  # the last one waits: the next batch may have its key
    next(chunks)
    assert asked == [0, 1]
    assert others == []


def iter_once(
    groups: Iterator[tuple[FileGroupId, Iterator[KeyedRows]]],
) -> list[tuple[FileGroupId, Iterator[KeyedRows]]]:
    """The first group alone: asking for the second would read the first to its end."""
    return [next(groups)]


def test_no_more_than_one_batch_and_the_rows_of_one_key_are_held() -> None:
    rows = distinct(300)
    largest = 0
    asked = given_out = 0

    def batches() -> Iterator[KeyedBatch]:
        nonlocal asked, largest
        for start in range(0, 300, 10):
            asked += 10
            largest = max(largest, asked - given_out)
            yield batch(rows[start : start + 10], start)

    for _, chunks in grouped(batches(), ("ts",)):
        for chunk in chunks:
            given_out += chunk.rows.num_rows
    assert given_out == 300
    assert largest <= 20


def test_a_group_that_shares_its_hash_with_another_waits_until_that_one_has_ended() -> None:
    first, second = distinct(4, path="a"), distinct(4, path="b")
    mixed = [row for pair in zip(first, second, strict=True) for row in pair]
    after = [Row("c", 1, 8, "k", 0, 1)]
    groups = [
        (group, set(as_read(chunks)))
        for group, chunks in grouped(cut([*mixed, *after], [3, 5]), ("ts",))
    ]
    keys = {f"k{n:02}" for n in range(4)}
    first_of, second_of = (FileGroupId(path, file_id(0)) for path in "ab")
    last = FileGroupId("c", file_id(1))
    assert groups == [(first_of, keys), (second_of, keys), (last, {"k"})]


@pytest.mark.parametrize("cuts", [[], [1], [0, 0, 2, 2], [1, 2, 3]])
def test_copies_of_a_key_in_several_batches_become_one_row(cuts: list[int]) -> None:
    times = [3, 9, 9, 1]
    rows = [Row("a", 0, 7, "k", 5, ts) for ts in times]
    ((_, chunks),) = [(p, list(c)) for p, c in grouped(cut(rows, cuts), ("ts",))]
    assert as_read(iter(chunks)) == {"k": (9, 2)}  # the later of equals


@given(arrivals())
@settings(max_examples=50, deadline=None)
def test_rows_without_sort_keys_are_grouped_as_those_with(rows: list[Row]) -> None:
    given = batch(rows)
    keys = given.rows.keys
    made = sorted_by_group(PreparedBatch(given.rows.rows, keys, given.targets.paths), ROUTING)
    assert (np.diff(made.sort_keys) >= 0).all()
    buckets = bucket_ids(keys, ["id"], 3).to_pylist()
    moved = [row._replace(bucket=bucket) for row, bucket in zip(rows, buckets, strict=True)]
    found = {group: as_read(chunks) for group, chunks in grouped([made], ("ts",))}
    assert found == model(moved, by_time=True)


def test_without_batches_there_are_no_groups() -> None:
    assert list(grouped(iter([]), ())) == []
    assert list(grouped(iter([batch([]), batch([])]), ("ts",))) == []


def test_rows_are_joined_in_one_piece_whatever_their_types() -> None:
    schema = pa.schema(
        [
            ("id", pa.string()),
            ("tags", pa.list_(pa.string())),
            ("pairs", pa.map_(pa.string(), pa.int64())),
            ("inner", pa.struct([("x", pa.int64())])),
        ]
    )
    parts: list[list[dict[str, Any]]] = [
        [{"id": "a", "tags": ["x"], "pairs": [("p", 1)], "inner": {"x": 1}}],
        [{"id": "b", "tags": None, "pairs": [], "inner": None}],
    ]
    batches = [pa.RecordBatch.from_pylist(part, schema) for part in parts]
    joined = joined_rows([KeyedRows(b, b.column("id")) for b in batches])
    assert joined.rows.to_pylist() == [*parts[0], *parts[1]]
    assert joined.rows.schema == schema
    assert joined.keys.to_pylist() == ["a", "b"]
