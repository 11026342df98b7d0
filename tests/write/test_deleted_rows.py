"""Rows that say that they are deleted: no verb and no kind of table shows one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from as_by_spark import written_as_by_spark
from memory_tables import MemoryTable
from pyhudi.api.table import Table
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.table_config import TableType
from pyhudi.write import tasks
from pyhudi.write.intent import WriteIntent

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("_hoodie_is_deleted", pa.bool_())])
ROWS = pa.table({"id": ["a", "b"], "ts": [1, 1], "_hoodie_is_deleted": [False, True]}, SCHEMA)

VERBS: dict[str, Callable[[Table], Any]] = {
    "upsert": lambda table: table.upsert(ROWS),
    "append": lambda table: table.append(ROWS),
    "overwrite": lambda table: table.overwrite(ROWS, partitions="all"),
    "upsert by tasks": lambda table: written_as_by_spark(
        table, ROWS, WriteIntent(operation="UPSERT")
    ),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("table_type", list(TableType))
@pytest.mark.parametrize("is_large", [False, True])
def test_a_row_that_is_deleted_is_not_shown_by_whichever_file_it_comes(
    verb: str, table_type: TableType, *, is_large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_large:
        monkeypatch.setattr(tasks, "LOAD_BYTES_MIN", 0)  # a load becomes base files
    memory = MemoryTable(SCHEMA, ordering="ts", buckets=SimpleBuckets(1), table_type=table_type)
    VERBS[verb](memory.table())
    assert memory.table("reader").read().to_arrow()["id"].to_pylist() == ["a"]
    assert memory.table("compactor").services.run().errors == ()
    assert memory.table("reader").read().to_arrow()["id"].to_pylist() == ["a"]
