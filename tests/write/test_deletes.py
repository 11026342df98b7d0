"""Deletes: what is looked up is looked up after the write began, and the strongest delete wins."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest

from faulty_storage import FaultyStorage
from memory_tables import MemoryTable
from pyhudi.errors import ConflictError, InvalidRequestError
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.table_config import TableType
from pyhudi.storage.protocol import Storage

SCHEMA = pa.schema(
    [("id", pa.string()), ("day", pa.string()), ("ts", pa.int64()), ("v", pa.string())]
)


def rows(*found: tuple[str, str, int, str]) -> pa.Table:
    columns = zip(*found, strict=True)
    return pa.table(dict(zip(SCHEMA.names, map(list, columns), strict=True)), schema=SCHEMA)


class Bench(MemoryTable):
    """A partitioned table in memory, and processes that write it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(SCHEMA, **{"partition_by": "day", "buckets": SimpleBuckets(1), **options})

    def content(self) -> list[tuple[Any, ...]]:
        found = self.table("reader").read(columns=SCHEMA.names).to_arrow().to_pylist()
        return sorted(tuple(row.values()) for row in found)


class Meddled(FaultyStorage):
    """Something happens right before the first object of a kind is created."""

    def __init__(self, inner: Storage, kind: str, meanwhile: Callable[[], object]) -> None:
        super().__init__(inner)
        self._kind = kind
        self._meanwhile: Callable[[], object] | None = meanwhile

    def _meddle(self, path: str) -> None:
        if self._kind in path and (meanwhile := self._meanwhile) is not None:
            self._meanwhile = None
            meanwhile()

    def create(self, path: str, data: bytes) -> bool:
        self._meddle(path)
        return super().create(path, data)

    def create_from(self, path: str, chunks: Iterable[bytes]) -> int | None:
        self._meddle(path)
        return super().create_from(path, chunks)


# -- races

OLD, KEPT, NEW = ("a", "mo", 1, "old"), ("b", "mo", 1, "keep"), ("a", "mo", 2, "new")
MOMENTS = {
    "before the delete began": ("/log/", 0),
    "while the delete was written": ("mo/", 1),
}


@pytest.mark.parametrize(("moment", "retries"), MOMENTS.values(), ids=MOMENTS)
@pytest.mark.parametrize("table_type", list(TableType))
def test_a_row_that_changed_so_that_the_predicate_is_false_stays(
    table_type: TableType, moment: str, retries: int
) -> None:
    bench = Bench(table_type=table_type)
    other = bench.table("other")
    other.upsert(rows(OLD, KEPT))
    meddled = Meddled(bench.storage, moment, lambda: other.upsert(rows(NEW)))
    result = bench.table("a", meddled).delete("v = 'old'")
    assert bench.content() == [NEW, KEPT]
    assert (result.deletes, result.retries) == (0, retries)


@pytest.mark.parametrize(("moment", "retries"), MOMENTS.values(), ids=MOMENTS)
def test_a_row_that_came_to_match_the_predicate_goes(moment: str, retries: int) -> None:
    bench = Bench()
    other = bench.table("other")
    other.upsert(rows(OLD, KEPT))
    late = ("c", "mo", 1, "old")
    meddled = Meddled(bench.storage, moment, lambda: other.upsert(rows(late)))
    result = bench.table("a", meddled).delete("v = 'old'")
    assert bench.content() == [KEPT]
    assert (result.deletes, result.retries) == (2, retries)


def test_a_key_whose_partition_is_looked_up_is_found_where_it_is_when_the_delete_begins() -> None:
    bench = Bench()
    other = bench.table("other")
    other.upsert(rows(KEPT))
    moved = ("a", "tu", 1, "moved")
    meddled = Meddled(bench.storage, "/log/", lambda: other.upsert(rows(moved)))
    bench.table("a", meddled).delete(pa.table({"id": ["a"]}))
    assert bench.content() == [KEPT]


def test_a_delete_that_may_not_be_repeated_says_so_and_nothing_is_deleted() -> None:
    bench = Bench()
    other = bench.table("other")
    other.upsert(rows(OLD, KEPT))
    meddled = Meddled(bench.storage, "mo/", lambda: other.upsert(rows(NEW)))
    with pytest.raises(ConflictError, match="lost to another write"):
        bench.table("a", meddled, conflict_retries=0).delete("v = 'old'")
    assert bench.content() == [NEW, KEPT]


def test_on_a_table_with_an_ordering_a_newer_row_beats_the_delete_that_did_not_see_it() -> None:
    bench = Bench(ordering="ts")
    other = bench.table("other")
    other.upsert(rows(OLD, KEPT))
    meddled = Meddled(bench.storage, "mo/", lambda: other.upsert(rows(NEW)))
    assert bench.table("a", meddled).delete(pa.table({"id": ["a"]})).retries == 0
    assert bench.content() == [NEW, KEPT]


def test_a_predicate_is_asked_again_when_others_wrote_meanwhile() -> None:
    bench = Bench(ordering="ts")
    other = bench.table("other")
    other.upsert(rows(OLD, KEPT))
    meddled = Meddled(bench.storage, "mo/", lambda: other.upsert(rows(NEW)))
    assert bench.table("a", meddled).delete("v = 'old'").retries == 1
    assert bench.content() == [NEW, KEPT]


# -- several deletes of one key


@pytest.mark.parametrize("times", [(5, 10), (10, 5), (5, 10, 6)])
@pytest.mark.parametrize("located", [True, False])
@pytest.mark.parametrize("table_type", list(TableType))
def test_of_several_deletes_of_a_key_the_latest_counts(
    table_type: TableType, located: bool, times: tuple[int, ...]
) -> None:
    bench = Bench(table_type=table_type, ordering="ts")
    bench.table().upsert(rows(("a", "mo", 7, "v"), KEPT))
    keys = {"id": ["a"] * len(times), "ts": list(times)}
    if located:
        keys["day"] = ["mo"] * len(times)
    bench.table("b").delete(pa.table(keys))
    assert bench.content() == [KEPT]
    bench.table("c").delete(pa.table({"id": ["b", "b"], "ts": [0, -1]}))
    assert bench.content() == [KEPT], "a row that is newer than all of them stays"


def test_a_key_that_is_given_twice_is_deleted_once() -> None:
    bench = Bench()
    bench.table().upsert(rows(OLD, KEPT, ("a", "tu", 1, "other")))
    chunks = pa.concat_tables([pa.table({"id": ["a", "a"]}), pa.table({"id": ["q", "a"]})])
    assert bench.table("b").delete(chunks).deletes == 2  # one in each partition
    assert bench.content() == [KEPT]


# -- what keys may come with


@pytest.mark.parametrize("ordering", ["ts", ()])
def test_rows_that_were_read_can_be_deleted_as_they_are(ordering: Any) -> None:
    bench = Bench(ordering=ordering)
    table = bench.table()
    table.upsert(rows(OLD, KEPT))
    found = table.read(where="id = 'a'", meta=True)
    assert "_hoodie_record_key" in found.to_arrow().column_names
    assert table.delete(found).deletes == 1
    assert bench.content() == [KEPT]


def test_keys_that_are_not_there_are_passed_over() -> None:
    bench = Bench(ordering="ts")
    table = bench.table()
    table.upsert(rows(OLD))
    assert table.delete(pa.table({"id": ["nobody"], "ts": [10]})).deletes == 0
    assert table.delete(pa.table({"id": pa.array([], pa.string())})).deletes == 0
    assert bench.content() == [OLD]


REFUSED: list[tuple[str, Any, str]] = [
    ("a predicate about no column", "nosuch = 1", "nosuch"),
    ("no predicate", "", "predicate"),
    ("no rows", None, "__arrow_c_stream__"),
    ("a list", ["a"], "__arrow_c_stream__"),
    ("no key", pa.table({"ts": [1]}), "'id' is missing"),
    ("another column", pa.table({"id": ["a"], "q": [1]}), "'q' is not in the table"),
    ("a column twice", pa.table([pa.array(["a"])] * 2, names=["id", "id"]), "several columns"),
    ("a key of another type", pa.table({"id": [1]}), "cannot become string"),
    ("a null key", pa.table({"id": pa.array([None], pa.string())}), "row 0"),
    ("a null ordering value", pa.table({"id": ["a"], "ts": pa.array([None], pa.int64())}), "row 0"),
]


@pytest.mark.parametrize(("what", "keys", "told"), REFUSED, ids=[what for what, _, _ in REFUSED])
def test_what_names_no_rows_is_refused_before_anything_begins(
    what: str, keys: Any, told: str
) -> None:
    bench = Bench(ordering="ts")
    bench.table().upsert(rows(OLD))
    names = bench.names()
    with pytest.raises(InvalidRequestError, match=told):
        bench.table("b").delete(keys)
    assert bench.names() == names
    assert bench.content() == [OLD]
