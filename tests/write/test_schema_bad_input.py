"""Columns that no table can have and damaged schemas: refused, and nothing is left of a write."""

from __future__ import annotations

import json
from collections.abc import Callable

import pyarrow as pa
import pytest

import pyhudi
from memory_tables import MemoryTable
from pyhudi.api.table import Table
from pyhudi.format.avro.schema import avro_record_schema
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.table_config import CREATE_SCHEMA
from pyhudi.session.properties import update_properties
from read.test_schema_in_force import foreign
from schema_scenarios import S1, TABLES, definition, recorded, rows
from write.test_schema_evolution import amid, evolving_table, files

# ---- columns that a write brings


def deep(levels: int) -> pa.DataType:
    type_ = pa.int32()
    for _ in range(levels):
        type_ = pa.struct([("x", type_)])
    return type_


#: The new columns, and what the error calls the one that is wrong.
COLUMNS: dict[str, tuple[list[tuple[str, pa.DataType]], str]] = {
    "10,001 columns": ([(f"c{n}", pa.int32()) for n in range(10_001 - 9)], "'c9991'"),
    "33 levels": ([("x", deep(33))], "'x.*64 levels"),
    "65 levels": ([("x", deep(65))], "'x.*6[24] levels"),
    "two that differ in case": ([("new", pa.int32()), ("NEW", pa.int32())], "'NEW'.*in case"),
    "one that differs from an old one": ([("V", pa.int32())], "'V'.*in case"),
    "a name of Hudi's": ([("_hoodie_x", pa.int32())], "'_hoodie_x'.*Hudi's own"),
    "a name of pyhudi's": ([("_pyhudi_x", pa.int32())], "'_pyhudi_x'.*pyhudi's own"),
    "an inner name of pyhudi's": ([("__pyhudi_x", pa.int32())], "'__pyhudi_x'.*pyhudi's own"),
}


def union(table: Table, given: pa.Table) -> None:
    with table.update_schema() as change:
        change.union_by_name(given.schema)


WAYS: dict[str, Callable[[Table, pa.Table], object]] = {
    "upsert add": lambda table, given: table.upsert(given, schema_mode="add"),
    "upsert merge": lambda table, given: table.upsert(given, schema_mode="merge"),
    "append": lambda table, given: table.append(given, schema_mode="add"),
    "overwrite": lambda table, given: table.overwrite(given, schema_mode="add"),
    "update_schema": union,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", COLUMNS)
def test_a_column_that_no_table_can_have_is_named_and_leaves_nothing(case: str, way: str) -> None:
    brought, message = COLUMNS[case]
    made = evolving_table("non-blocking")
    given = pa.Table.from_arrays(
        [*rows("own").columns, *(pa.nulls(1, type_) for _, type_ in brought)],
        schema=pa.schema([*S1, *brought]),
    )
    before = files(made)
    with pytest.raises(pyhudi.InvalidRequestError, match=message):
        WAYS[way](made.table("own"), given)
    assert files(made) == before


# ---- schemas that are stored


def record(*fields: object) -> str:
    return json.dumps({"type": "record", "name": "t", "fields": fields})


def nested(levels: int) -> str:
    type_: object = "int"
    for level in range(levels):
        fields = [{"name": "x", "type": type_}]
        type_ = {"type": "record", "name": f"r{level}", "fields": fields}
    return record({"name": "x", "type": type_})


KNOWN = avro_record_schema(S1, "t")["fields"]
STORED: dict[str, tuple[str, str]] = {
    "no JSON": ("{", "not JSON"),
    "no record": ('"int"', "not a record"),
    "a list": ("[]", "not a record"),
    "10,001 columns": (
        record(*KNOWN, *({"name": f"c{n}", "type": "int"} for n in range(10_001 - len(KNOWN)))),
        "more than 10000",
    ),
    "65 levels": (nested(65), "64 levels"),
    "one name twice": (record(*KNOWN, KNOWN[-1]), "two fields of one name"),
}


@pytest.mark.parametrize("way", ["upsert merge", "update_schema"])
@pytest.mark.parametrize("case", STORED)
def test_a_damaged_schema_that_a_table_was_created_with_refuses_writes_and_leaves_nothing(
    case: str, way: str
) -> None:
    text, message = STORED[case]
    made = MemoryTable(S1, **definition("non-blocking"))
    world = made.world("other")
    update_properties(made.storage, lambda values: {**values, CREATE_SCHEMA: text}, world)
    before = files(made)
    with pytest.raises(pyhudi.CorruptTableError, match=message):
        WAYS[way](made.table("own"), rows("own"))
    assert files(made) == before


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("case", STORED)
def test_a_damaged_schema_in_the_commit_of_another_names_the_commit_and_nothing_is_decided(
    case: str, kind: str
) -> None:
    text, message = STORED[case]
    made = MemoryTable(S1, **definition(kind), lock=LockKind.FILE)
    made.table("first").upsert(rows("first"))
    storage = amid(made, kind, lambda: foreign(made, None, extra={"schema": text}))
    with pytest.raises(pyhudi.CorruptTableError, match=message) as caught:
        made.table("own", storage).upsert(rows("own"))
    assert storage.is_done
    last, schema = max(recorded(made.storage), key=lambda done: done[0].completed or "")
    assert schema == text
    assert last.file_name in str(caught.value)
    assert made.pending() == []
