"""Columns inside columns: how a path names one, and a column with another one at a path inside it.

A path is the names from the table's column inwards. A field of a struct has its own name; what a
list holds is called `element`, and what a map holds `value`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa

from pyhudi.errors import InvalidRequestError
from pyhudi.table.rows.storable_types import is_list

Path: TypeAlias = str | Sequence[str]
Parts: TypeAlias = tuple[str, ...]


def parse_path(path: object) -> Parts:
    """Return the names of a path.

    >>> parse_path("tags.element.name")
    ('tags', 'element', 'name')
    """
    given = path.split(".") if isinstance(path, str) else path
    if isinstance(given, list | tuple) and given:
        parts = tuple(part for part in given if isinstance(part, str) and part)
        if len(parts) == len(given):
            return parts
    raise InvalidRequestError(
        f"{path!r:.100} is not the path of a column",
        why="a path is names that are joined by dots, or a tuple of names",
        next_step="Write 'name', 'name.inner' or ('name', 'inner')",
    )


def dotted(parts: Parts) -> str:
    return ".".join(parts)


def refused(path: str, what: str, why: str, next_step: str) -> InvalidRequestError:
    """Return the error for a column that cannot be or do something."""
    return InvalidRequestError(f"column {path!r} cannot {what}", why=why, next_step=next_step)


# ---- looking


def child_of(type_: pa.DataType, name: str, parts: Parts) -> pa.Field | None:
    """Return what a name means inside a type; None if it means nothing.

    `parts` is the whole path, for the error about the key of a map.
    """
    if pa.types.is_struct(type_):
        index = type_.get_field_index(name)
        return None if index < 0 else type_.field(index)
    if is_list(type_) and name == "element":
        return type_.value_field
    if pa.types.is_map(type_) and name == "value":
        return type_.item_field
    if pa.types.is_map(type_) and name == "key":
        why = "the keys of a map are text that is never null"
        raise refused(dotted(parts), "be changed", why, "Change the map's value instead")
    return None


def has_column(schema: pa.Schema, parts: Parts) -> bool:
    """True if the schema has a column at the path."""
    index = schema.get_field_index(parts[0])
    field = None if index < 0 else schema.field(index)
    for depth, part in enumerate(parts[1:], start=2):
        field = None if field is None else child_of(field.type, part, parts[:depth])
    return field is not None


def paths_of(field: pa.Field, within: str) -> Iterator[str]:
    """Yield the path of a column and those of all fields of structs inside it."""
    yield f"{within}{field.name}"
    yield from _paths_inside(field.type, f"{within}{field.name}")


def _paths_inside(type_: pa.DataType, path: str) -> Iterator[str]:
    if pa.types.is_struct(type_):
        for field in type_:
            yield from paths_of(field, f"{path}.")
    elif is_list(type_):
        yield from _paths_inside(type_.value_type, f"{path}.element")
    elif pa.types.is_map(type_):
        yield from _paths_inside(type_.item_type, f"{path}.value")


def columns_in(field: pa.Field) -> int:
    """Return how many columns a field is, with all fields of structs inside it."""
    return sum(1 for _ in paths_of(field, ""))


# ---- changing


def with_inner(field: pa.Field, parts: Parts, new: pa.Field) -> pa.Field:
    """Return the field with another one at a path inside it, which exists."""
    if not parts:
        return new
    type_, rest = field.type, parts[1:]
    if pa.types.is_struct(type_):
        fields = [with_inner(f, rest, new) if f.name == parts[0] else f for f in type_]
        return field.with_type(pa.struct(fields))
    if pa.types.is_map(type_):
        return field.with_type(pa.map_(type_.key_field, with_inner(type_.item_field, rest, new)))
    return field.with_type(pa.list_(with_inner(type_.value_field, rest, new)))


def without_metadata(field: pa.Field, key: bytes) -> pa.Field:
    kept = {name: text for name, text in (field.metadata or {}).items() if name != key}
    return field.with_metadata(kept) if kept else field.remove_metadata()
