"""Columns that may not be null, as parquet wants them.

Parquet refuses a null in a field that is declared as required, also where the struct around it is
null and the field means nothing. Arrow data from elsewhere has nulls there as often as not, and
calls every field nullable; so nested columns are rebuilt in the table's type, with values in such
fields. A null that does mean something is the user's mistake, and the error names its column.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequestError


def stored_column(array: pa.Array, field: pa.Field) -> pa.Array:
    """Return the column as the field declares it.

    Their types may differ in what is nullable.
    """
    _refuse_nulls(array, field, field.name)
    return _fitted(array, field.type, field.name)


def _refuse_nulls(array: pa.Array, field: pa.Field, column: str) -> None:
    if not field.nullable and array.null_count:
        inside = "" if field.name == column else f" in the field {field.name!r}"
        raise InvalidRequestError(
            f"column {column!r} cannot be written",
            why=f"it holds a null{inside}, and the table's schema allows none there",
            next_step="Give every row a value, or make the column nullable",
        )


def _fitted(array: pa.Array, type_: pa.DataType, column: str) -> pa.Array:
    if not pa.types.is_nested(type_):
        return array
    if array.type.equals(type_) and not _has_required(type_):
        return array
    if array.offset:
        array = pa.concat_arrays([array])  # children of a slice are whole: cut them too
    mask = array.is_null()
    if pa.types.is_struct(type_):
        children = [_child(array, type_, n, column) for n in range(type_.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=mask)
    if pa.types.is_map(type_):
        items = _fitted(array.items, type_.item_type, column)
        return pa.MapArray.from_arrays(array.offsets, array.keys, items, type=type_, mask=mask)
    values = _fitted(array.values, type_.value_type, column)
    return pa.ListArray.from_arrays(array.offsets, values, type=type_, mask=mask)


def _has_required(type_: pa.DataType) -> bool:
    """True if some struct of the type has a required field."""
    if pa.types.is_map(type_):
        return _has_required(type_.item_type)  # the key is required, and never null
    fields = [type_.field(number) for number in range(type_.num_fields)]
    if pa.types.is_struct(type_) and not all(field.nullable for field in fields):
        return True
    return any(_has_required(field.type) for field in fields)


def _child(array: pa.StructArray, type_: pa.StructType, number: int, column: str) -> pa.Array:
    field = type_.field(number)
    child = _fitted(pc.struct_field(array, [number]), field.type, column)
    if not field.nullable and array.null_count:
        # A null struct that Arrow builds has an empty value in each required field.
        empty = pa.array([None], type_).field(number)
        places = np.where(np.asarray(array.is_null()), len(child), np.arange(len(child)))
        child = pa.concat_arrays([child, empty]).take(pa.array(places))
    _refuse_nulls(child, field, column)
    return child
