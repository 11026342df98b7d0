"""Composite keys that two different rows could have: refused by every verb, and still read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from memory_tables import MemoryTable
from pyhudi.api.table import Table
from pyhudi.errors import InvalidRequestError
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.column_owners import ColumnOwners
from pyhudi.format.table.table_config import TableType
from pyhudi.storage.objects.column_owners import declare_owners
from pyhudi.table.rows import record_keys
from pyhudi.write.detached import DetachedWrite, begin, run_task
from pyhudi.write.intent import Change, Keys, WholeRows, WriteIntent
from pyhudi.write.schemas import row_schema

SCHEMA = pa.schema([("a", pa.string()), ("b", pa.string()), ("v", pa.int64())])
VERBS: dict[str, Callable[[Table, pa.Table], object]] = {
    "upsert": lambda table, rows: table.upsert(rows),
    "append": lambda table, rows: table.append(rows),
    "append new keys": lambda table, rows: table.append(rows, require_new_keys=True),
    "update": lambda table, rows: table.update(rows, columns=["v"]),
    "delete": lambda table, rows: table.delete(rows.select(["a", "b"])),
    "overwrite": lambda table, rows: table.overwrite(rows, partitions="all"),
}
UNCERTAIN = {
    "the next field": ("x,b:y", "z"),
    "its own field": ("x", "y,b:z"),
    "null": ("__null__", "1"),
    "empty": ("1", "__empty__"),
}


def rows(*keys: tuple[str | None, str | None]) -> pa.Table:
    given = [{"a": a, "b": b, "v": n} for n, (a, b) in enumerate(keys)]
    return pa.Table.from_pylist(given, SCHEMA)


def created(**definition: Any) -> MemoryTable:
    return MemoryTable(SCHEMA, record_key=["a", "b"], buckets=SimpleBuckets(2), **definition)


def keys_of(table: MemoryTable) -> set[tuple[str | None, str | None]]:
    found = table.table("reader").read(columns=["a", "b"]).to_arrow().to_pylist()
    return {(row["a"], row["b"]) for row in found}


@pytest.mark.parametrize("table_type", list(TableType))
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("what", UNCERTAIN)
def test_every_verb_refuses_them_with_a_sample_and_leaves_nothing_behind(
    table_type: TableType, verb: str, what: str
) -> None:
    table = created(table_type=table_type)
    mine = table.table()
    mine.upsert(rows(("p", "q"), (None, "r"), ("s", "")))
    before = {stat.path for stat in table.storage.list("")}
    a, b = UNCERTAIN[what]
    with pytest.raises(InvalidRequestError, match=rf"1 of 2 rows .*row 1 \(a='{a}', b='{b}'\)"):
        VERBS[verb](mine, rows(("t", "u"), (a, b)))
    assert {stat.path for stat in table.storage.list("")} == before
    assert keys_of(table) == {("p", "q"), (None, "r"), ("s", "")}


def test_an_owner_of_columns_is_refused_too() -> None:
    table = created(owners={"one": ["v"]})
    mine = table.table()
    declare_owners(table.storage, ColumnOwners({"one": ("v",)}))
    with pytest.raises(InvalidRequestError, match=r"row 0 \(a='x,b:y', b='z'\)"):
        mine.upsert(rows(("x,b:y", "z")), owner="one")


@pytest.mark.parametrize("change", [WholeRows(), Keys(frozenset({"a", "b", "v"}))])
def test_tasks_of_a_detached_write_refuse_them(change: Change) -> None:
    """As `df.write.format("pyhudi")` runs them."""
    session = created().session()
    intent = WriteIntent(operation="UPSERT", change=change, rows=row_schema(session))
    write = begin(session, intent)
    assert isinstance(write, DetachedWrite)
    given = rows(("t", "u"), ("x,b:y", "z")).to_batches()
    with pytest.raises(InvalidRequestError, match=r"row 1 \(a='x,b:y', b='z'\)"):
        list(run_task(write, 0, iter(given)))


@pytest.mark.parametrize("table_type", list(TableType))
def test_a_table_that_has_them_is_read_compacted_and_deleted_from_by_predicate(
    table_type: TableType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hudi writes them without a word."""
    table = created(table_type=table_type)
    with monkeypatch.context() as patch:
        patch.setattr(record_keys, "_refuse_ambiguous", lambda *_: None)
        table.table("hudi").upsert(rows(("x,b:y", "z"), ("__null__", "1"), ("p", "q")))
    assert keys_of(table) == {("x,b:y", "z"), ("__null__", "1"), ("p", "q")}
    mine = table.table()
    mine.upsert(rows(("p", "q"), ("s", "t")))
    mine.services.compact()
    assert keys_of(table) == {("x,b:y", "z"), ("__null__", "1"), ("p", "q"), ("s", "t")}
    mine.delete("a = 'x,b:y'")
    assert keys_of(table) == {("__null__", "1"), ("p", "q"), ("s", "t")}
