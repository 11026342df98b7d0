"""What differs between two schemas, column by column."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from pyhudi.format.avro.canonical import annotated_schema
from pyhudi.format.avro.documentation import DOC
from pyhudi.table.schema_changes import ChangeKind, ColumnChange, column_changes


def struct(*fields: Any) -> pa.Schema:
    return pa.schema([("s", pa.struct(list(fields)))])


INT, LONG, TEXT = pa.int32(), pa.int64(), pa.string()


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, pa.schema([("a", INT)]), [("a", "added", None, "int32")]),
        (
            None,
            pa.schema([pa.field("a", INT, nullable=False)]),
            [("a", "added", None, "int32 not null")],
        ),
        (pa.schema([("a", INT)]), pa.schema([("a", INT)]), []),
        (
            pa.schema([("a", INT), ("b", TEXT)]),
            pa.schema([("c", INT), ("b", TEXT)]),
            [("a", "dropped", "int32", None), ("c", "added", None, "int32")],
        ),
        (pa.schema([("a", INT)]), pa.schema([("a", LONG)]), [("a", "type", "int32", "int64")]),
        (
            pa.schema([pa.field("a", INT, nullable=False)]),
            pa.schema([("a", LONG)]),
            [("a", "nullable", "required", "optional"), ("a", "type", "int32", "int64")],
        ),
        (
            pa.schema([pa.field("a", INT, metadata={DOC: b"x"})]),
            pa.schema([("a", INT)]),
            [("a", "doc", "x", None)],
        ),
        (
            pa.schema([pa.field("a", INT, metadata={DOC: b""})]),
            pa.schema([("a", INT)]),
            [],
        ),
        (
            pa.schema([pa.field("a", INT, metadata={DOC: b"x"})]),
            pa.schema([pa.field("a", LONG, metadata={DOC: b"y"})]),
            [("a", "type", "int32", "int64"), ("a", "doc", "x", "y")],
        ),
        (
            struct(pa.field("x", INT), pa.field("y", INT, metadata={DOC: b"gone"})),
            struct(pa.field("x", INT, metadata={DOC: b"x"})),
            [("s.y", "dropped", "int32", None), ("s.x", "doc", None, "x")],
        ),
        (
            pa.schema([("a", pa.list_(pa.struct([pa.field("x", INT, metadata={DOC: b"x"})])))]),
            pa.schema([("a", pa.list_(pa.struct([("x", INT)])))]),
            [("a.element.x", "doc", "x", None)],
        ),
        (
            pa.schema([("a", TEXT)]),
            pa.schema([("a", pa.large_string()), ("b", pa.large_string())]),
            [("b", "added", None, "large_string")],
        ),
        (
            pa.schema([("a", INT), ("b", INT), ("c", INT)]),
            pa.schema([("c", INT), ("a", INT), ("new", INT), ("b", INT)]),
            [("new", "added", None, "int32"), ("c", "order", "3", "1")],
        ),
        (
            pa.schema([("a", INT), ("b", INT), ("gone", INT)]),
            pa.schema([("b", INT), ("new", INT), ("a", INT)]),
            [
                ("gone", "dropped", "int32", None),
                ("new", "added", None, "int32"),
                ("b", "order", "2", "1"),
            ],
        ),
        (struct(("x", INT)), struct(("x", LONG)), [("s.x", "type", "int32", "int64")]),
        (
            struct(("x", INT), ("y", INT)),
            struct(("y", INT), ("x", INT)),
            [("s.y", "order", "2", "1")],
        ),
        (
            struct(("x", pa.list_(pa.field("element", pa.struct([("a", INT)]))))),
            struct(("x", pa.list_(pa.field("element", pa.struct([("b", INT)]), nullable=False)))),
            [
                ("s.x.element", "nullable", "optional", "required"),
                ("s.x.element.a", "dropped", "int32", None),
                ("s.x.element.b", "added", None, "int32"),
            ],
        ),
        (
            struct(("x", pa.map_(TEXT, INT))),
            struct(("x", pa.map_(TEXT, LONG))),
            [("s.x.value", "type", "int32", "int64")],
        ),
        (struct(("x", INT)), pa.schema([("s", INT)]), [("s", "type", "struct<x: int32>", "int32")]),
    ],
)
def test_each_difference_names_the_innermost_column(
    before: pa.Schema | None, after: pa.Schema, expected: list[tuple[str, str, Any, Any]]
) -> None:
    found = [(c.path, c.kind, c.before, c.after) for c in column_changes(before, after)]
    assert found == expected


def test_a_change_that_arrow_cannot_express_is_shown_in_canonical_avro() -> None:
    def read(default: int, doc: str) -> pa.Schema:
        column = {"name": "a", "type": "int", "default": default, "doc": doc}
        return annotated_schema(
            json.dumps({"type": "record", "name": "r", "fields": [column]}), "x"
        )

    detail, doc = column_changes(read(1, "x"), read(2, "y"))
    assert (detail.path, detail.kind) == ("a", ChangeKind.DETAIL)
    assert '"default":1' in (detail.before or "")
    assert '"default":2' in (detail.after or "")
    assert doc == ColumnChange("a", ChangeKind.DOC, "x", "y")
