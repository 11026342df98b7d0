"""Whose rows are refused with advice on a schema mode: those whose verb takes one."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from memory_tables import MemoryTable
from pyhudi.api.table import Table
from pyhudi.errors import InvalidRequestError
from pyhudi.settings import SchemaMode
from pyhudi.write.begin import ready
from pyhudi.write.intent import WholeRows
from pyhudi.write.row_shape import row_shape
from pyhudi.write.schemas import row_schema

SCHEMA = pa.schema(
    [("id", pa.string()), ("day", pa.string()), ("ts", pa.int64()), ("v", pa.int32())]
)
ROW = {"id": "a", "day": "d0", "ts": 1, "v": 1}
KEYS = ("id", "day", "ts")


def table(**options: Any) -> MemoryTable:
    given = {"partition_by": "day", "ordering": "ts", "buckets": pyhudi.SimpleBuckets(1)}
    return MemoryTable(SCHEMA, **{**given, **options})


def rows(**types: pa.DataType) -> pa.Table:
    """Return one row, with large values in columns of these types besides, or instead."""
    fields = {**dict(zip(SCHEMA.names, SCHEMA.types, strict=True)), **types}
    values = {**ROW, **dict.fromkeys(types, 1 << 40)}
    return pa.Table.from_pylist([values], pa.schema(list(fields.items())))


ADDS = "would add 'x' to the table"
WIDENS = "would widen 'v' in the table"
NULLS = "would write null for 'v'"

ADVISED: dict[str, tuple[Callable[[Table], object], str]] = {
    "upsert": (lambda t: t.upsert(rows(x=pa.int64())), f'"add" {ADDS}'),
    "append": (lambda t: t.append(rows(x=pa.int64())), f'"add" {ADDS}'),
    "append of new keys": (
        lambda t: t.append(rows(x=pa.int64()), require_new_keys=True),
        f'"add" {ADDS}',
    ),
    "overwrite": (lambda t: t.overwrite(rows(x=pa.int64())), f'"add" {ADDS}'),
    "values": (lambda t: t.upsert(rows(v=pa.int64())), f'"add" {WIDENS}'),
    "missing": (lambda t: t.upsert(rows().select(KEYS)), f'"merge" {NULLS}'),
    "missing, in the mode add": (
        lambda t: t.upsert(rows().select(KEYS), schema_mode="add"),
        f'"merge" {NULLS}',
    ),
}


@pytest.mark.parametrize("case", ADVISED)
def test_whole_rows_that_are_refused_come_with_the_mode_that_takes_them(case: str) -> None:
    write, advice = ADVISED[case]
    made = table()
    made.table().upsert(rows())
    with pytest.raises(InvalidRequestError) as refusal:
        write(made.table())
    assert f"schema_mode={advice}" in refusal.value.next_step


def wrong_key(*names: str) -> pa.Table:
    """Return keys whose `ts` is none of the table's."""
    return rows().set_column(2, "ts", pa.array(["x"])).select(names)


WITHOUT: dict[str, Callable[[Table], object]] = {
    "update": lambda t: t.update(rows(v=pa.int64()), columns=["v"]),
    "update without the columns": lambda t: t.update(rows().select(KEYS), columns=["v"]),
    "delete by key": lambda t: t.delete(wrong_key(*KEYS)),
}


@pytest.mark.parametrize("verb", WITHOUT)
def test_verbs_without_a_mode_advise_none(verb: str) -> None:
    made = table()
    made.table().upsert(rows())
    with pytest.raises(InvalidRequestError) as refusal:
        WITHOUT[verb](made.table())
    assert "schema_mode" not in str(refusal.value)


def test_a_column_that_was_dropped_is_advised_by_no_mode() -> None:
    made = table()
    made.table().upsert(rows(x=pa.int64()), schema_mode="add")
    with made.table().update_schema() as change:
        change.delete_column("x")
    with pytest.raises(InvalidRequestError, match="columns that the table does not have: 'x'") as e:
        made.table().upsert(rows(x=pa.int64()))
    assert "schema_mode" not in str(e.value)


def test_the_rows_of_an_owner_get_no_advice_on_a_mode() -> None:
    made = table(ordering=(), owners={"clock": ["ts"], "counter": ["v"]})
    made.table().alter.own_columns("counter", ["v"])
    with pytest.raises(InvalidRequestError) as refusal:
        made.table().upsert(rows(v=pa.int64()).select(["id", "day", "v"]), owner="counter")
    assert "values of column 'v' do not fit" in str(refusal.value)
    assert "schema_mode" not in str(refusal.value)


def test_a_task_elsewhere_advises_in_the_words_of_its_caller() -> None:
    made = table()
    session = ready(made.opening("writing"))
    given = rows(v=pa.int64())
    words = {mode: f"mode {mode}" for mode in SchemaMode}
    schema = row_schema(session, given.schema, SchemaMode.STRICT, words)
    shape = pickle.loads(pickle.dumps(row_shape(WholeRows(), schema, session.config)))
    with pytest.raises(InvalidRequestError, match="mode add would widen 'v'"):
        shape.prepare(given.to_batches()[0])
