"""Which type a table stores for each Arrow type.

Hudi tables have few types, and Arrow has many that mean nearly the same. `storable_type` is this
table, applied inside lists, maps and structs too. What is not in it is refused, because each way to
store it would lose or invent something:

| Arrow type                                   | stored as                |
| -------------------------------------------- | ------------------------ |
| bool                                         | bool                     |
| int8, int16, int32, uint8, uint16            | int32                    |
| int64, uint32                                | int64                    |
| float16, float32                             | float32                  |
| float64                                      | float64                  |
| decimal of at most 38 digits, scale ≥ 0      | decimal128, same digits  |
| string, large_string, string_view            | string                   |
| binary, large_binary, binary_view, fixed     | binary                   |
| date32, date64                               | date32                   |
| timestamp without a zone, any unit           | timestamp[us]            |
| timestamp with a zone, any unit              | timestamp[us, UTC]       |
| dictionary                                   | its values' type         |
| list, large_list, fixed_size_list, list_view | list                     |
| map with text keys                           | map                      |
| struct                                       | struct                   |

A uint64 is refused: half of its values have no int64, and a decimal is not what its owner expects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import pyarrow as pa

from pyhudi.errors import CorruptTableError, InvalidRequestError
from pyhudi.format.avro.schema import avro_record_schema, decode_arrow_schema
from pyhudi.table.rows.reserved_names import reservation
from pyhudi.table.schema import META_COLUMNS, with_meta_columns

_LEVELS_MAX = 64  # of lists, maps and structs inside each other; more than any file may have
DECIMAL_DIGITS_MAX: Final = 38
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

_INT32 = (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16())

_SCALARS: tuple[tuple[Callable[[pa.DataType], bool], pa.DataType], ...] = (
    (pa.types.is_boolean, pa.bool_()),
    (lambda type_: type_ in _INT32, pa.int32()),
    (lambda type_: type_ in (pa.int64(), pa.uint32()), pa.int64()),
    (lambda type_: type_ in (pa.float16(), pa.float32()), pa.float32()),
    (pa.types.is_float64, pa.float64()),
    (lambda type_: is_text(type_), pa.string()),
    (lambda type_: is_bytes(type_), pa.binary()),
    (pa.types.is_date, pa.date32()),
)

#: What to do about types that are refused.
_ADVICE: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_uint64, "Cast it to int64, or to decimal128(20, 0) if values need 64 bits"),
    (pa.types.is_null, "Give it a type; a column of nothing but nulls has none"),
    (pa.types.is_time, "Cast it to int64, counting microseconds of the day, or to string"),
    (pa.types.is_duration, "Cast it to int64, counting microseconds"),
    (pa.types.is_decimal, "Cast it to a decimal of at most 38 digits with a scale from 0 to 38"),
    (pa.types.is_map, "Cast the keys to string, or store a list of structs"),
    (pa.types.is_struct, "Leave it out, or give it a field"),
    (lambda type_: isinstance(type_, pa.BaseExtensionType), "Cast it to its storage type"),
)


def is_text(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(type_)
        or pa.types.is_large_string(type_)
        or pa.types.is_string_view(type_)
    )


def is_bytes(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(type_)
        or pa.types.is_large_binary(type_)
        or pa.types.is_binary_view(type_)
        or is_fixed_bytes(type_)
    )


def is_fixed_bytes(type_: pa.DataType) -> bool:
    """True for fixed-size bytes. Arrow counts decimals among them; here they are not."""
    return bool(pa.types.is_fixed_size_binary(type_) and not pa.types.is_decimal(type_))


def is_list(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(type_)
        or pa.types.is_large_list(type_)
        or pa.types.is_fixed_size_list(type_)
        or pa.types.is_list_view(type_)
        or pa.types.is_large_list_view(type_)
    )


def storable_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of a table for rows of this schema.

    InvalidRequestError names what it cannot hold.

    >>> storable_schema(pa.schema([("n", pa.uint16()), ("at", pa.timestamp("ns"))]))
    n: int32
    at: timestamp[us]

    Hudi's five meta columns are left out, as from rows: the schema may be that of another table.
    """
    schema = pa.schema([field for field in schema if field.name not in META_COLUMNS])
    if not len(schema):
        raise InvalidRequestError(
            "the table cannot be created",
            why="its schema has no columns",
            next_step="Give the columns and their types",
        )
    for name in schema.names:
        if (why := reservation(name)) is not None:
            raise InvalidRequestError(
                f"column {name!r} cannot be stored",
                why=why,
                next_step="Rename it, or leave it out",
            )
    stored = pa.schema(storable_fields(list(schema)))
    if (why := unreadable(stored)) is not None:
        raise InvalidRequestError(
            "the table cannot be created",
            why=why,
            next_step="Give it fewer columns, or flatten those inside others",
        )
    return stored


def unreadable(schema: pa.Schema) -> str | None:
    """Return in what the schema exceeds what readers accept, before it is stored.

    None if it does not.
    """
    avro = json.dumps(avro_record_schema(with_meta_columns(schema), "new"))
    try:
        decode_arrow_schema(avro, "the schema")
    except CorruptTableError as error:
        return error.why
    return None


def storable_fields(
    fields: Sequence[pa.Field], within: str = "", levels: int = 0, beside: Iterable[str] = ()
) -> list[pa.Field]:
    """Return the fields in storable types; `within` is the path.

    InvalidRequestError for a name that is not legal or a type that is not stored. `beside` has the
    names of the fields that are there already, which are not judged.
    """
    _refuse_names([field.name for field in fields], within, beside)
    return [
        pa.field(
            field.name,
            storable_type(field.type, f"{within}{field.name}", levels),
            nullable=field.nullable,
        )
        for field in fields
    ]


def _refuse_names(names: Sequence[str], within: str, beside: Iterable[str]) -> None:
    there = {name.lower(): name for name in beside}
    seen: dict[str, str] = {}
    for name in names:
        path = f"{within}{name}"
        if _NAME.match(name) is None:
            why = "a name has letters from a to z, digits and underscores, and begins with no digit"
            raise _refusal(path, why, "Rename it")
        if (known := there.get(name.lower())) is not None:
            why = f"{within + known!r} differs from it only in case, which Spark does not see"
            advice = f"Rename it to {known!r} if that column is meant, else to something else"
            raise _refusal(path, why, advice)
        if (other := seen.setdefault(name.lower(), name)) != name:
            why = f"{within + other!r} differs from it only in case, which Spark does not see"
            raise _refusal(path, why, "Rename one of them")
    if len(seen) < len(names):
        twice = next(name for name in seen.values() if names.count(name) > 1)
        raise _refusal(f"{within}{twice}", "several have that name", "Rename or remove the others")


def storable_type(type_: pa.DataType, path: str, levels: int = 0) -> pa.DataType:
    """Return the type with which a column of this path is stored.

    InvalidRequestError if there is none.
    """
    if levels > _LEVELS_MAX:
        raise _refusal(path, f"it is more than {_LEVELS_MAX} levels deep", "Flatten it")
    if (scalar := storable_scalar(type_)) is not None:
        return scalar
    if pa.types.is_dictionary(type_):
        return storable_type(type_.value_type, path, levels + 1)
    if is_list(type_):
        item = storable_type(type_.value_type, f"{path}.element", levels + 1)
        return pa.list_(pa.field("element", item, nullable=type_.value_field.nullable))
    if pa.types.is_map(type_) and is_text(_values(type_.key_type)):
        item = storable_type(type_.item_type, f"{path}.value", levels + 1)
        return pa.map_(pa.string(), pa.field("value", item, nullable=type_.item_field.nullable))
    if pa.types.is_struct(type_) and type_.num_fields:
        return pa.struct(storable_fields(list(type_), f"{path}.", levels + 1))
    advice = (text for belongs, text in _ADVICE if belongs(type_))
    raise _refusal(path, f"pyhudi does not write {type_}", next(advice, "Cast it to another type"))


def storable_scalar(type_: pa.DataType) -> pa.DataType | None:
    """Return the type with which a column is stored that has no others inside; else None."""
    for belongs, stored in _SCALARS:
        if belongs(type_):
            return stored
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", None if type_.tz is None else "UTC")
    if pa.types.is_decimal(type_) and _is_storable_decimal(type_):
        return pa.decimal128(type_.precision, type_.scale)
    return None


def _is_storable_decimal(type_: pa.DataType) -> bool:
    return bool(type_.precision <= DECIMAL_DIGITS_MAX and 0 <= type_.scale <= type_.precision)


def _values(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def _refusal(column: str, why: str, next_step: str) -> InvalidRequestError:
    return InvalidRequestError(f"column {column!r} cannot be stored", why=why, next_step=next_step)
