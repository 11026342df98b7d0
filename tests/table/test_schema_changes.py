"""What differs between two schemas, column by column."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pyhudi.format.avro.documentation import DOC
from pyhudi.table.schema_changes import column_changes


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
            [("a", "type", "int32", "int64"), ("a", "nullable", "required", "optional")],
        ),
        (
            pa.schema([pa.field("a", INT, metadata={DOC: b"x"})]),
            pa.schema([("a", INT)]),
            [("a", "doc", "x", None)],
        ),
        (
            pa.schema([("a", INT), ("b", INT), ("gone", INT)]),
            pa.schema([("b", INT), ("new", INT), ("a", INT)]),
            [
                ("gone", "dropped", "int32", None),
                ("new", "added", None, "int32"),
                ("", "order", "a, b", "b, a"),
            ],
        ),
        (struct(("x", INT)), struct(("x", LONG)), [("s.x", "type", "int32", "int64")]),
        (
            struct(("x", INT), ("y", INT)),
            struct(("y", INT), ("x", INT)),
            [("s", "order", "x, y", "y, x")],
        ),
        (
            struct(("x", pa.list_(pa.field("element", pa.struct([("a", INT)]))))),
            struct(("x", pa.list_(pa.field("element", pa.struct([("b", INT)]), nullable=False)))),
            [
                ("s.x.element.a", "dropped", "int32", None),
                ("s.x.element.b", "added", None, "int32"),
                ("s.x.element", "nullable", "optional", "required"),
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
