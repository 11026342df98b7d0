"""Columns in one piece, also those with more bytes than their type can count.

Arrow's text, binary and lists count in 32 bits, so that one array holds at most 2 GiB. The logs of
a file slice, or the rows of one bucket in one write, may have more than that in a column.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pyhudi.errors import InvalidRequestError


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return the column as one array, of the type that counts in 64 bits if its own cannot."""
    whole = _combined(column)
    return _combined(column.cast(large_type(column.type))) if whole is None else whole


def _combined(column: pa.ChunkedArray) -> pa.Array | None:
    if column.num_chunks == 1:
        return column.chunk(0)
    try:
        whole = column.combine_chunks()
    except (pa.ArrowInvalid, pa.ArrowCapacityError):
        return None
    return whole if isinstance(whole, pa.Array) else None


def of_type(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return values picked from a column in one array, in the column's own type again."""
    return values if values.type == type_ else values.cast(type_)


def large_type(type_: pa.DataType) -> pa.DataType:
    """Return the type that holds the same and counts in 64 bits, at every level.

    >>> print(large_type(pa.struct({"a": pa.string(), "b": pa.int32()})))
    struct<a: large_string, b: int32>
    """
    if pa.types.is_string(type_):
        return pa.large_string()
    if pa.types.is_binary(type_):
        return pa.large_binary()
    if pa.types.is_list(type_):
        return pa.large_list(_large_field(type_.value_field))
    if pa.types.is_map(type_):
        return pa.map_(_large_field(type_.key_field), _large_field(type_.item_field))
    if pa.types.is_struct(type_):
        return pa.struct([_large_field(field) for field in type_])
    return type_


def _large_field(field: pa.Field) -> pa.Field:
    return field.with_type(large_type(field.type))


def one_batch(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return rows that are written together as one batch.

    InvalidRequestError for too many bytes.
    """
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches)
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        if (whole := _combined(column)) is None:
            raise InvalidRequestError(
                "the rows of one bucket cannot be written at once",
                why=f"their values of the column {name!r} have over 2 GiB",
                next_step="Write fewer rows at a time, or make a table of more buckets",
            )
        columns.append(whole)
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)
