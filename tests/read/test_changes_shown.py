"""What `changes` shows of each kind of write, as docs/concurrency.md#consumers says it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from memory_tables import MemoryTable
from pyhudi.api.table import Table
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.table_config import TableType

SCHEMA = pa.schema(
    [("id", pa.int64()), ("day", pa.string()), ("ts", pa.int64()), ("v", pa.string())]
)
KINDS: dict[str, dict[str, Any]] = {
    "ordered": {"ordering": "ts"},
    "by commit": {},
    "cow": {"ordering": "ts", "table_type": TableType.COPY_ON_WRITE},
}


def rows(v: str, *ids: int, ts: int = 5) -> pa.Table:
    given = {"id": list(ids), "day": ["mon"] * len(ids), "ts": [ts] * len(ids), "v": [v] * len(ids)}
    return pa.table(given, schema=SCHEMA)


def written_and_deleted(table: Table) -> None:
    table.upsert(rows("new", 2, 7))
    table.delete("id = 7")


Shown = set[tuple[int, str]]
#: What is done to the rows 1, 2 and 3, and what a feed of it has.
WRITES: dict[str, tuple[Callable[[Table], object], Shown]] = {
    "upsert": (lambda table: table.upsert(rows("new", 2, 7)), {(2, "new"), (7, "new")}),
    "update": (lambda table: table.update(rows("new", 2), columns=["v"]), {(2, "new")}),
    "delete by predicate": (lambda table: table.delete("id = 2"), set()),
    "delete by keys": (lambda table: table.delete(rows("x", 2, ts=9)), set()),
    "written and deleted": (written_and_deleted, {(2, "new")}),
    "overwrite": (lambda table: table.overwrite(rows("new", 9)), {(9, "new")}),
    "delete partitions": (lambda table: table.delete_partitions(["mon"]), set()),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", WRITES)
def test_a_feed_has_the_rows_that_writes_left_and_nothing_of_what_they_took_away(
    kind: str, what: str
) -> None:
    made = MemoryTable(SCHEMA, partition_by="day", buckets=SimpleBuckets(1), **KINDS[kind])
    table = made.table()
    table.upsert(rows("old", 1, 2, 3))
    first = table.changes()
    act, shown = WRITES[what]
    act(table)
    feed = table.changes(since=first.until, columns=["id", "v"])
    assert {(row["id"], row["v"]) for row in feed.to_arrow().to_pylist()} == shown
    assert feed.until > first.until


def test_a_late_row_that_lost_is_in_the_feed_and_not_in_the_table() -> None:
    made = MemoryTable(SCHEMA, partition_by="day", buckets=SimpleBuckets(1), ordering="ts")
    table = made.table()
    table.upsert(rows("old", 1, 2))
    first = table.changes()
    table.upsert(rows("late", 2, ts=1))
    feed = table.changes(since=first.until, columns=["id", "v"])
    assert feed.to_arrow().to_pylist() == [{"id": 2, "v": "late"}]
    assert table.read(columns=["v"]).to_arrow().column("v").to_pylist() == ["old", "old"]


def test_a_key_in_two_partitions_is_two_rows() -> None:
    made = MemoryTable(SCHEMA, partition_by="day", buckets=SimpleBuckets(1))
    table = made.table()
    table.upsert(rows("a", 1))
    table.upsert(rows("b", 1).set_column(1, "day", pa.array(["tue"])))
    found = table.read(columns=["id", "day", "v"]).to_arrow().to_pylist()
    assert sorted((row["id"], row["day"], row["v"]) for row in found) == [
        (1, "mon", "a"),
        (1, "tue", "b"),
    ]
