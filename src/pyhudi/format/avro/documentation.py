"""How are columns documented, in Arrow and in Avro?

Avro documents the fields of records: columns of the table and fields of structs, not what a list or
map holds. In Arrow the text is metadata of the field, under `DOC`. A field without that metadata
says nothing: rows have no documentation for a table's columns, and take none away. An empty text
says that there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from pyhudi.format.avro.nesting import is_array, struct_inside

DOC = b"doc"

#: Avro as JSON: a name, a list (union) or an object.
_Avro = Any


def documentation(field: pa.Field) -> str | None:
    """Return what the field says of its documentation; None if it says nothing."""
    metadata = field.metadata
    text = metadata.get(DOC) if metadata else None
    return None if text is None else text.decode("utf-8", "replace")


def with_documentation(field: pa.Field, text: str) -> pa.Field:
    """Return the field with this documentation; an empty text takes it away."""
    data = text.encode("utf-8", "replace")  # JSON can say half a character
    return field.with_metadata({**(field.metadata or {}), DOC: data})


def documented_columns(columns: Iterable[pa.Field]) -> dict[str, str]:
    """Return what the columns, and the fields inside them, say of their documentation, by path."""
    return dict(_said(columns, ""))


def _said(columns: Iterable[pa.Field], within: str) -> Iterator[tuple[str, str]]:
    for column in columns:
        if (text := documentation(column)) is not None:
            yield f"{within}{column.name}", text
        if column.type.num_fields:
            step, children = struct_inside(column.type)
            yield from _said(children, f"{within}{column.name}{step}.")


def has_documentation(columns: Iterable[pa.Field], texts: Mapping[str, str]) -> bool:
    """True if the columns are documented so. `texts` has those that matter, by path."""
    if not texts:
        return True
    found = documented_columns(columns)
    return all(found.get(path, "") == text for path, text in texts.items())


def redocumented(schema: pa.Schema, texts: Mapping[str, str]) -> pa.Schema:
    """Return the schema with these documentations, by path. A path that it lacks is skipped.

    It says of each of them that it is so, also of the empty ones.
    """
    found = documented_columns(schema) if texts else {}
    if all(found.get(path) == text for path, text in texts.items()):
        return schema
    return pa.schema(_redocumented(schema, texts, ""), metadata=schema.metadata)


def _redocumented(
    columns: Iterable[pa.Field], texts: Mapping[str, str], within: str
) -> list[pa.Field]:
    made = []
    for column in columns:
        path = f"{within}{column.name}"
        if column.type.num_fields:
            column = column.with_type(_retyped(column.type, texts, path))
        text = texts.get(path)
        made.append(column if text is None else with_documentation(column, text))
    return made


def _retyped(type_: pa.DataType, texts: Mapping[str, str], path: str) -> pa.DataType:
    if pa.types.is_struct(type_):
        return pa.struct(_redocumented(type_, texts, f"{path}."))
    if is_array(type_):
        item = type_.value_field
        return pa.list_(item.with_type(_retyped(item.type, texts, f"{path}.element")))
    if pa.types.is_map(type_):
        item = type_.item_field
        return pa.map_(type_.key_field, item.with_type(_retyped(item.type, texts, f"{path}.value")))
    return type_


# ---- in Avro


def documented_field(avro: Mapping[str, _Avro], column: pa.Field) -> dict[str, _Avro]:
    """Return an Avro field with the documentation that the column has, not that inside it.

    If the column says nothing, what the Avro field has stays.
    """
    made, text = dict(avro), documentation(column)
    if text:
        made["doc"] = text
    elif text is not None:
        made.pop("doc", None)
    return made


def documented_in_full(avro: Mapping[str, _Avro], column: pa.Field) -> dict[str, _Avro]:
    """Return an Avro field with the documentation that the column and the fields inside it have.

    Its types are written out where they are used, so no other column shares them.
    """
    made = documented_field(avro, column)
    return {**made, "type": _documented_type(avro["type"], column.type)}


def _documented_type(avro: _Avro, type_: pa.DataType) -> _Avro:
    if not type_.num_fields:
        return avro
    if isinstance(avro, list):
        return [_documented_type(branch, type_) for branch in avro]
    if not isinstance(avro, dict):
        return avro
    match avro["type"]:
        case "record":
            pairs = zip(avro["fields"], type_, strict=True)
            return {**avro, "fields": [documented_in_full(*pair) for pair in pairs]}
        case "array":
            return {**avro, "items": _documented_type(avro["items"], type_.value_type)}
        case "map":
            return {**avro, "values": _documented_type(avro["values"], type_.item_type)}
    return avro


def avro_documentation(avro: Mapping[str, _Avro]) -> str:
    """Return the documentation of an Avro field, empty if it has none."""
    text = avro.get("doc")
    return text if isinstance(text, str) else ""
