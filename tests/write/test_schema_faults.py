"""What a change of the schema meets: writers under way, other engines, wrong strategies."""

from __future__ import annotations

import pyarrow as pa
import pytest

import pyhudi
from meddled_storage import Meddled
from memory_tables import MemoryTable
from write.test_schema_evolution import S1, TABLES, X, columns, evolving_table, rows, seen


def test_a_change_keeps_what_the_latest_writer_adds_that_it_began_beside() -> None:
    made = evolving_table("non-blocking")
    block = made.table("own").update_schema()

    def enter() -> None:
        block.__enter__().add_column("y", pa.int32())

    storage = Meddled(made.storage, ".log.", enter)
    made.table("other", storage).upsert(rows("first", X), schema_mode="add")
    block.__exit__(None, None, None)
    assert list(columns(made)) == ["v", "x", "y"]


def test_a_dropped_name_is_not_given_anew_while_a_write_that_has_the_column_is_pending() -> None:
    """Its file would hold text where the table has a number."""
    schema = pa.schema([*S1, X])
    buckets = pyhudi.SimpleBuckets(1)
    made = MemoryTable(schema, partition_by="day", buckets=buckets, **TABLES["copy on write"])

    def give_anew() -> None:
        with made.table("other").update_schema() as change:
            change.delete_column("x")
        with (
            made.table("other").update_schema() as change,
            pytest.raises(pyhudi.InvalidRequestError, match="'x' cannot be added again"),
        ):
            change.add_column("x", pa.int64())

    storage = Meddled(made.storage, "-0_", give_anew)
    made.table("own", storage).upsert(rows("own", X))
    assert storage.is_done
    assert seen(made) == {"own": {"v": 1}}
