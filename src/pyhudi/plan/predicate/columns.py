"""Which field of a schema a predicate's column is, and the type it is compared as.

Several Arrow types hold the same values. They are compared as one of them each, so that everything
after binding knows eight kinds only: boolean, integer, double, decimal, text, binary, date and
timestamp. The conversions lose nothing. A column of any other type can be tested for null alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import pyarrow as pa

from pyhudi.errors import InvalidRequestError
from pyhudi.plan.predicate.tree import DIGITS_MAX, Column


@dataclass(frozen=True, slots=True)
class BoundField:
    """What binding learns about a column."""

    declared: pa.DataType
    compared: pa.DataType | None  # None: it cannot be compared
    path: str | None  # the name in statistics, as parquet joins it; None if that is ambiguous


def bound_field(
    column: Column, schema: pa.Schema, paths: Collection[str]
) -> tuple[Column, BoundField]:
    """Return the column as the schema spells it, with its field.

    `paths` are the schema's clear paths.
    """
    names: list[str] = []
    fields: Sequence[pa.Field] = list(schema)
    for part in column.name:
        field = _field_called(part, fields, within=names)
        names.append(field.name)
        fields = list(field.type) if pa.types.is_struct(field.type) else []
    path = ".".join(names)
    known = path if path in paths else None
    return Column(tuple(names)), BoundField(field.type, compared_type(field.type), known)


def clear_paths(schema: pa.Schema) -> frozenset[str]:
    """Return the dotted paths that mean one field.

    `a.b` is not among them if `a` has a field `b` and `a.b` exists.
    """
    meanings = Counter(".".join(path) for path in _paths(schema))
    return frozenset(path for path, count in meanings.items() if count == 1)


def compared_type(declared: pa.DataType) -> pa.DataType | None:
    """Return the type as which values of a type are compared; None if they cannot be."""
    kinds = pa.types
    if kinds.is_dictionary(declared):
        return compared_type(declared.value_type)
    if kinds.is_boolean(declared) or kinds.is_integer(declared):
        return declared
    if kinds.is_floating(declared):
        return pa.float64()
    if kinds.is_decimal(declared):
        fits = declared.precision <= DIGITS_MAX and declared.scale >= 0
        return pa.decimal128(declared.precision, declared.scale) if fits else None
    if kinds.is_string(declared) or kinds.is_string_view(declared):
        return pa.string()
    if kinds.is_binary(declared) or kinds.is_binary_view(declared):
        return pa.binary()
    if kinds.is_large_string(declared) or kinds.is_large_binary(declared):
        return declared  # a batch may hold more bytes than the small kind can address
    if kinds.is_fixed_size_binary(declared):
        return pa.binary()
    if kinds.is_date(declared):
        return pa.date32()
    if kinds.is_timestamp(declared):
        return pa.timestamp(declared.unit, "UTC" if declared.tz else None)
    return None


def is_text(compared: pa.DataType) -> bool:
    return bool(pa.types.is_string(compared) or pa.types.is_large_string(compared))


def _field_called(name: str, fields: Sequence[pa.Field], within: Sequence[str]) -> pa.Field:
    """Return the one field of that name.

    Without an exact match, it is the one of that name in any case, as Spark resolves.
    """
    exact = [field for field in fields if field.name == name]
    found = exact or [field for field in fields if field.name.lower() == name.lower()]
    if len(found) == 1:
        return found[0]
    path = ".".join((*within, name))
    if found:
        raise InvalidRequestError(
            f"the column {path!r} is ambiguous",
            why=f"the table has {_listed(field.name for field in found)}",
            next_step="Spell the column exactly as the table does",
        )
    if within and not fields:
        raise InvalidRequestError(
            f"there is no column {path!r}",
            why=f"{'.'.join(within)!r} is not a struct",
            next_step="Put a name that has a dot in it in backticks",
        )
    raise InvalidRequestError(
        f"there is no column {path!r}",
        why=f"{'.'.join(within) or 'the table'} has no such name among {len(fields)}",
        next_step=_advice(name, [field.name for field in fields]),
    )


def _advice(name: str, names: Sequence[str]) -> str:
    """Return the names most like the wanted one; the first few if none is."""
    spelled = {other.lower(): other for other in names}
    close = [spelled[other] for other in get_close_matches(name.lower(), spelled)]
    if len(close) == 1:
        return f"Did you mean {close[0]!r}?"
    return f"Use {'one of ' if len(names) > 1 else ''}{_listed(close or names[:8])}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def _paths(fields: Iterable[pa.Field], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield every column and every field of a struct, as the names that lead to it."""
    for field in fields:
        path = (*above, field.name)
        yield path
        if pa.types.is_struct(field.type):
            yield from _paths(field.type, path)
