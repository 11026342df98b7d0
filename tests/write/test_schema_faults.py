"""What a change of the schema meets: writers under way, other engines, strategies that are wrong."""

from __future__ import annotations

import pyarrow as pa

from meddled_storage import Meddled
from write.test_schema_evolution import X, columns, evolving_table, rows


def test_a_change_keeps_what_the_latest_writer_adds_that_it_began_beside() -> None:
    made = evolving_table("non-blocking")
    block = made.table("own").update_schema()

    def enter() -> None:
        block.__enter__().add_column("y", pa.int32())

    storage = Meddled(made.storage, ".log.", enter)
    made.table("other", storage).upsert(rows("first", X), schema_mode="add")
    block.__exit__(None, None, None)
    assert list(columns(made)) == ["v", "x", "y"]
