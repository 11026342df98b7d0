"""How a table's rows lie in its files: five meta columns first, then the table's own.

A file states its schema as Avro JSON. Arrow's schema is derived from it, so that the two cannot
disagree, and both are cached: making them takes longer than writing a small file.

The sequence number distinguishes the rows of one instant. Hudi builds it from the task that wrote
the row and a counter. Ours must not depend on the task, for attempts of the same work must write
the same bytes; so the file group replaces the task, as a number hashed from its name, large enough
that no two groups of a table share it.

Partial rows, as the owners of a joined table write them, lie in files of two schemas: their own,
and the table's for the placeholder row before each of them (`format.table.column_owners`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequestError
from pyhudi.format.avro.schema import decode_arrow_schema
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.files.required_values import stored_column
from pyhudi.format.table.column_owners import PLACEHOLDER_RANK, RANK_COLUMN, ROW_RANK
from pyhudi.table.schema import FILE_NAME, META_COLUMNS, conform

_HASH_BYTES = 6  # of 48 bits, ten thousand file groups share one with a chance below 1 in a million
_NUMBERS_CACHED = 1024  # ready as text, for small files
_SCHEMA_SOURCE = "the table's schema"


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The schema of a table's files, in Avro and in Arrow."""

    avro_json: str  # with the meta columns
    stored: pa.Schema  # the same
    data: pa.Schema  # the table's own columns


@lru_cache(maxsize=16)
def row_layout(avro_schema: str) -> RowLayout:
    """Return the layout for a table's schema as commit metadata has it, without meta columns."""
    decode_arrow_schema(avro_schema, _SCHEMA_SOURCE)  # refuses a schema that is not a record
    avro_json = _with_meta_fields(json.loads(avro_schema))
    stored = decode_arrow_schema(avro_json, _SCHEMA_SOURCE)
    data = pa.schema([field for field in stored if field.name not in META_COLUMNS])
    return RowLayout(avro_json, stored, data)


@lru_cache(maxsize=64)
def partial_layout(avro_schema: str, columns: tuple[str, ...]) -> RowLayout:
    """Return the layout of partial rows that have these columns; their files have the rank too.

    The columns come in the table's order, however they are named here.
    """
    avro = json.loads(avro_schema)
    kept = {*columns, RANK_COLUMN}
    part = {**avro, "fields": [field for field in avro["fields"] if field["name"] in kept]}
    layout = row_layout(json.dumps(part))
    data = pa.schema([field for field in layout.data if field.name != RANK_COLUMN])
    return RowLayout(layout.avro_json, layout.stored, data)


def _with_meta_fields(avro: dict[str, Any]) -> str:
    # As Hudi writes them, down to the empty documentation.
    meta = [
        {"name": name, "type": ["null", "string"], "doc": "", "default": None}
        for name in META_COLUMNS
    ]
    own = [field for field in avro["fields"] if field["name"] not in META_COLUMNS]
    return json.dumps({**avro, "fields": [*meta, *own]}, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class RowOrigin:
    """What the meta columns say of new rows: which instant wrote them, and where they lie."""

    requested: str
    group: FileGroupId
    file_name: str  # the base file's; in a log file the bare file id


def stored_rows(
    layout: RowLayout, rows: pa.RecordBatch, keys: pa.Array, origin: RowOrigin, first: int
) -> pa.RecordBatch:
    """Return new rows with their meta columns, in the layout of their file.

    The rows were converted to the table's schema when the write was called. If the table has
    evolved since, they get its new columns as nulls and its wider types. `first` is the number of
    the first row within its group.
    """
    rows = conform(rows, layout.data, "the rows")
    return _stored(layout, [*_meta_columns(rows.num_rows, keys, origin, first), *rows.columns])


def stored_partial_rows(
    layout: RowLayout, rows: pa.RecordBatch, keys: pa.Array, origin: RowOrigin, first: int
) -> pa.RecordBatch:
    """Return new partial rows in their own layout, with meta columns and rank."""
    if rows.schema.names != layout.data.names:  # a null would take the place of a value
        raise InvalidRequestError(
            "partial rows cannot be written",
            why=f"they have the columns {', '.join(rows.schema.names)} and the part has"
            f" {', '.join(layout.data.names)}",
            next_step="Give exactly the columns of the owner",
        )
    rows = conform(rows, layout.data, "the rows")
    count = rows.num_rows
    meta = dict(zip(META_COLUMNS, _meta_columns(count, keys, origin, first), strict=True))
    given = {**meta, **dict(zip(rows.schema.names, rows.columns, strict=True))}
    given[RANK_COLUMN] = pa.repeat(pa.scalar(ROW_RANK, pa.int32()), count)
    return _stored(layout, [given[name] for name in layout.stored.names])


def placeholder_rows(
    layout: RowLayout, parts: pa.RecordBatch, identity: Sequence[str]
) -> pa.RecordBatch:
    """Return the placeholder rows of stored partial rows.

    They are whole rows, null except for the columns that identify the row.
    """
    count = parts.num_rows
    columns = []
    for field in layout.stored:
        if field.name == RANK_COLUMN:
            columns.append(pa.repeat(pa.scalar(PLACEHOLDER_RANK, pa.int32()), count))
        elif field.name in META_COLUMNS or field.name in identity:
            columns.append(parts.column(field.name))
        else:
            columns.append(pa.nulls(count, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=layout.stored)


def _meta_columns(count: int, keys: pa.Array, origin: RowOrigin, first: int) -> list[pa.Array]:
    assert len(keys) - keys.null_count == count, "every row has a record key"
    prefix = f"{origin.requested}_{_group_number(origin.group)}_"
    return [
        _repeated(origin.requested, count),
        pc.binary_join_element_wise(prefix, _numbers(first, count), ""),
        keys,
        _repeated(origin.group.partition, count),
        _repeated(origin.file_name, count),
    ]


def moved_rows(layout: RowLayout, rows: pa.RecordBatch, file_name: str) -> pa.RecordBatch:
    """Return rows that have their meta columns, for another file: only the file's name changes."""
    columns = [
        _repeated(file_name, rows.num_rows) if name == FILE_NAME else rows.column(name)
        for name in layout.stored.names
    ]
    return _stored(layout, columns)


def _stored(layout: RowLayout, columns: Sequence[pa.Array]) -> pa.RecordBatch:
    fields = layout.stored
    fitted = [stored_column(column, field) for column, field in zip(columns, fields, strict=True)]
    return pa.RecordBatch.from_arrays(fitted, schema=fields)


def _numbers(first: int, count: int) -> pa.Array:
    """Return the numbers as text."""
    if first + count <= _NUMBERS_CACHED:
        return _cached_numbers().slice(first, count)
    return pa.array(np.arange(first, first + count)).cast(pa.string())


@lru_cache(maxsize=1)
def _cached_numbers() -> pa.Array:
    return pa.array(np.arange(_NUMBERS_CACHED)).cast(pa.string())


def _repeated(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)


@lru_cache(maxsize=1024)
def _group_number(group: FileGroupId) -> int:
    name = f"{group.partition}/{group.file_id}".encode()
    return int.from_bytes(hashlib.blake2b(name, digest_size=_HASH_BYTES).digest())
