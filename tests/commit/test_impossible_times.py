"""Times and waits that a table asks for and no writer can grant: refused by name; still read."""

from __future__ import annotations

import pyarrow as pa
import pytest

from memory_tables import TIMELINE, MemoryTable
from pyhudi.errors import CorruptTableError
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.properties import decode_properties, encode_properties
from pyhudi.format.table.table_config import CLOCK_SKEW
from pyhudi.read.load import PROPERTIES

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])


def rows(*ids: str) -> pa.Table:
    return pa.table({"id": list(ids), "ts": [1] * len(ids)}, schema=SCHEMA)


def made(lock: LockKind) -> MemoryTable:
    table = MemoryTable(SCHEMA, buckets=SimpleBuckets(1), ordering="ts", lock=lock)
    table.table().upsert(rows("a"))
    return table


@pytest.mark.parametrize("time", ["99999999999999999", "20261301000000000"])
def test_a_table_with_a_time_that_is_no_date_is_read_and_not_written(time: str) -> None:
    table = made(LockKind.FILE)
    table.storage.write(f"{TIMELINE}/{time}.clean.requested", b"")
    with pytest.raises(CorruptTableError, match=time):
        table.table("b").upsert(rows("b"))
    assert table.table("c").read().to_arrow()["id"].to_pylist() == ["a"]
    table.storage.delete(f"{TIMELINE}/{time}.clean.requested")
    table.table("b").upsert(rows("b"))


def with_skew(table: MemoryTable, ms: str) -> None:
    kept = {**decode_properties(table.storage.read(PROPERTIES)), CLOCK_SKEW: ms}
    table.storage.write(PROPERTIES, encode_properties(kept))


def test_no_writer_keeps_the_lock_for_as_long_as_a_table_likes() -> None:
    table = made(LockKind.FILE)
    with_skew(table, "3600000")
    before_ms = table.clock.ms
    with pytest.raises(CorruptTableError, match=f"Correct {CLOCK_SKEW}"):
        table.table("b").upsert(rows("b"))
    assert table.clock.ms - before_ms < 1_000
    assert table.table("c").read().to_arrow()["id"].to_pylist() == ["a"]


def test_where_no_other_engine_writes_the_difference_of_clocks_does_not_matter() -> None:
    table = made(LockKind.NONE)
    with_skew(table, "3600000")
    table.table("b").upsert(rows("b"))
