"""Bringing a user's columns into a table's types, without loss or not at all.

Whether a type can become another follows from the types alone (`mismatches`), so that one error can
name every column that cannot. Whether the values can is found by converting them (`coerced`):
numbers must fit, times must be whole microseconds, no null may go where none is allowed.
A field that a struct lacks is null; only the types say whether that is allowed (`fills_missing`).
`unfit_rows` then finds the rows to blame, by halves, since Arrow's casts do not report them.

| from                    | to                                                       |
| ----------------------- | -------------------------------------------------------- |
| integers                | integers, floats and decimals that hold the very number  |
| floats                  | floats that hold the very number                         |
| decimals                | decimals that hold the very number                       |
| text, bytes, dates      | their own kind; a date64 must be a whole day             |
| timestamps with a zone  | UTC, if the unit holds them                              |
| timestamps without one  | the same, if the unit holds them; never a zone           |
| lists, maps, structs    | their own kind; fields of structs go by name             |
| dictionaries            | what their values can become                             |
| nulls                   | anything that may be null                                |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.table.rows.bad_rows import SAMPLE_ROWS_MAX
from pyhudi.table.rows.storable_types import is_bytes, is_fixed_bytes, is_list, is_text

Convert: TypeAlias = Callable[[pa.Array], pa.Array]

_LIST_VALUES_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A column, or part of one, whose type can never become the table's."""

    path: str
    why: str


class UnfitValuesError(Exception):
    """Some values of a column, or of a part of it, do not fit. Never leaves this package."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(why)
        self.path = path
        self.why = why


# ---- types


def mismatches(
    source: pa.DataType, target: pa.DataType, path: str, *, fills_missing: bool = False
) -> Iterator[Mismatch]:
    """Yield why a column of the one type cannot become one of the other; nothing if it can.

    With `fills_missing`, fields that a struct lacks become null where they may.
    """
    within = partial(mismatches, fills_missing=fills_missing)
    if pa.types.is_dictionary(source):
        yield from within(source.value_type, target, path)
    elif pa.types.is_struct(source) and pa.types.is_struct(target):
        yield from _struct_mismatches(source, target, path, fills_missing=fills_missing)
    elif is_list(source) and is_list(target):
        yield from within(source.value_type, target.value_type, f"{path}.element")
    elif pa.types.is_map(source) and pa.types.is_map(target):
        yield from within(source.key_type, target.key_type, f"{path}.key")
        yield from within(source.item_type, target.item_type, f"{path}.value")
    elif not _is_alike(source, target):
        yield Mismatch(path, f"{source} cannot become {target}")


def _struct_mismatches(
    source: pa.StructType, target: pa.StructType, path: str, *, fills_missing: bool
) -> Iterator[Mismatch]:
    wanted, found = {field.name for field in target}, Counter(field.name for field in source)
    for field in target:
        where = f"{path}.{field.name}"
        times = found[field.name]
        if times == 1:
            kind = source.field(field.name).type
            yield from mismatches(kind, field.type, where, fills_missing=fills_missing)
        elif times:
            yield Mismatch(where, "several fields have that name")
        elif not (fills_missing and field.nullable):
            yield Mismatch(where, "it is missing")
    for name in found:
        if name not in wanted:
            yield Mismatch(f"{path}.{name}", "the table has no such field")


def _is_alike(source: pa.DataType, target: pa.DataType) -> bool:
    """True if some values of the one type are values of the other, and mean the same."""
    if source.equals(target) or pa.types.is_null(source):
        return True
    if pa.types.is_integer(source):
        numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
        return any(belongs(target) for belongs in numbers)
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
        return bool((source.tz is None) == (target.tz is None))
    kinds = (
        pa.types.is_floating,
        pa.types.is_decimal,
        pa.types.is_date,
        pa.types.is_time,
        is_text,
        is_bytes,
    )
    return any(belongs(source) and belongs(target) for belongs in kinds)


# ---- values


def coerced(array: pa.Array, field: pa.Field, path: str) -> pa.Array:
    """Return the same values in the field's type; UnfitValuesError if some do not fit."""
    result = _converted(array, field.type, path)
    if not field.nullable and result.null_count:
        raise UnfitValuesError(path, "it must not be null")
    return result


def _converted(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    try:
        return _by_kind(array, target, path)
    except pa.ArrowException as error:
        raise UnfitValuesError(path, _first_words(error, array.type, target)) from None


def _by_kind(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        return _converted(_decoded(array), target, path)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    if pa.types.is_struct(target):
        return _converted_struct(array, target, path)
    if is_list(target):
        return _converted_list(array, target, path)
    if pa.types.is_map(target):
        return _converted_map(array, target, path)
    return array if array.type.equals(target) else _cast(array, target)


def _decoded(array: pa.DictionaryArray) -> pa.Array:
    """Return the values themselves.

    Arrow cannot take from views, which Polars has in its categories.
    """
    values = array.dictionary
    if is_text(values.type) or (is_bytes(values.type) and not is_fixed_bytes(values.type)):
        values = pc.cast(values, pa.string() if is_text(values.type) else pa.binary())
    return values.take(array.indices)


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    source = array.type
    if pa.types.is_integer(source) and pa.types.is_decimal(target):
        array = pc.cast(array, pa.decimal128(20, 0))  # holds all 64 bits
    elif pa.types.is_floating(source) and target.bit_width < source.bit_width:
        return _narrowed(array, target)
    elif is_bytes(source) and is_fixed_bytes(target):
        array = pc.cast(array, pa.binary())
    return pc.cast(array, target)


def _narrowed(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return floats of fewer bits, without loss. Arrow would round them."""
    result = pc.cast(array, target)
    same = pc.or_(pc.equal(pc.cast(result, array.type), array), pc.is_nan(array))
    if not pc.all(same, min_count=0).as_py():
        raise pa.ArrowInvalid("the number has more digits")
    return result


def _first_words(error: pa.ArrowException, source: pa.DataType, target: pa.DataType) -> str:
    """Return Arrow's reason, with the types, which Arrow names only sometimes."""
    words = str(error).partition("\n")[0][:120].rstrip(".")
    return words if str(source) in words else f"{source} to {target}: {words}"


def _converted_struct(array: pa.StructArray, target: pa.StructType, path: str) -> pa.Array:
    children = []
    for field in target:
        index = array.type.get_field_index(field.name)
        where = f"{path}.{field.name}"
        if index < 0:
            child = pa.nulls(len(array), field.type)
        else:
            # Unlike `.field`, this heeds a slice's bounds and the struct's own nulls.
            child = _converted(pc.struct_field(array, [index]), field.type, where)
        if not field.nullable and child.null_count > array.null_count:
            raise UnfitValuesError(where, "it must not be null")
        children.append(child)
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)


def _converted_list(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    values = coerced(pc.list_flatten(array), target.value_field, f"{path}.element")
    offsets = _offsets(np.asarray(pc.fill_null(pc.list_value_length(array), 0)), path)
    mask = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(offsets, values, type=target, mask=mask)


def _converted_map(array: pa.MapArray, target: pa.MapType, path: str) -> pa.Array:
    bounds = np.asarray(array.offsets).astype(np.int64)
    start, length = int(bounds[0]), int(bounds[-1] - bounds[0])
    keys = coerced(array.keys.slice(start, length), target.key_field, f"{path}.key")
    items = coerced(array.items.slice(start, length), target.item_field, f"{path}.value")
    mask = array.is_null() if array.null_count else None
    offsets = _offsets(np.diff(bounds), path)
    return pa.MapArray.from_arrays(offsets, keys, items, type=target, mask=mask)


def _offsets(lengths: np.typing.NDArray[np.int64], path: str) -> pa.Int32Array:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] > _LIST_VALUES_MAX:
        raise UnfitValuesError(path, f"its lists hold more than {_LIST_VALUES_MAX} values")
    return pa.array(offsets.astype(np.int32))


# ---- blame


def unfit_rows(array: pa.Array, convert: Convert) -> list[int]:
    """Return the first rows whose values do not fit.

    None are returned if each row fits and only all together are too much.
    """
    found: list[int] = []
    waiting = [(0, len(array))]
    while waiting and len(found) < SAMPLE_ROWS_MAX:
        start, length = waiting.pop()
        try:
            convert(array.slice(start, length))
        except UnfitValuesError:
            if length == 1:
                found.append(start)
            else:
                half = length // 2
                waiting += [(start + half, length - half), (start, half)]
    return found
