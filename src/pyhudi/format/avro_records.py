"""Avro log block content ↔ Arrow.

The content is an int version (3), an int count, and each record as an int length and Avro binary
in the schema of the block's header. fastavro decodes the records in compiled code; logical types
are left off the schema it sees, so that dates, times and timestamps arrive as plain integers and
go into their Arrow columns without a Python object for each value.

Every record must use exactly the bytes that its length says: that catches a damaged record at
the record, and keeps a forged length from reaching the next one.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable
from typing import Any

import fastavro
import pyarrow as pa

from pyhudi.errors import CorruptTableError, UnsupportedTableError
from pyhudi.format.avro_schema import AvroType, decode_arrow_schema, load_avro_json

CONTENT_VERSION = 3
_HEAD = struct.Struct(">ii")
_LENGTH = struct.Struct(">i")
#: Logical types that fastavro turns into Python objects we do not want; decimals it may.
_INTEGER_LOGICAL = frozenset(
    {
        "date",
        "time-millis",
        "time-micros",
        "timestamp-millis",
        "timestamp-micros",
        "local-timestamp-millis",
        "local-timestamp-micros",
        "uuid",
    }
)


def decode_avro_content(content: bytes, schema_json: str, path: str, offset: int) -> pa.RecordBatch:
    """All records of an AVRO_DATA or CDC_DATA block, in the block's own schema."""
    arrow = decode_arrow_schema(schema_json, path)
    avro = load_avro_json(schema_json, path)
    _refuse_empty_items(avro, path)
    try:
        parsed = fastavro.parse_schema(_plain(avro), _write_hint=False)
    except (fastavro.schema.SchemaParseException, ValueError, KeyError, TypeError) as error:
        raise _damaged(path, offset, f"its schema is not Avro ({error})") from None
    rows = list(_records(content, parsed, path, offset))
    try:
        columns = [
            pa.array([_arrow_value(row[f.name], f.type) for row in rows], type=f.type)
            if _has_map(f.type)
            else pa.array([row[f.name] for row in rows], type=f.type)
            for f in arrow
        ]
        return pa.RecordBatch.from_arrays(columns, schema=arrow)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise _damaged(path, offset, f"a value does not fit its type ({error})") from None


def _records(content: bytes, schema: Any, path: str, offset: int) -> Iterable[dict[str, Any]]:
    if len(content) < _HEAD.size:
        raise _damaged(path, offset, "the content is shorter than its own head")
    version, count = _HEAD.unpack_from(content)
    if version != CONTENT_VERSION:
        raise UnsupportedTableError(
            f"the Avro log block at byte {offset} of {path!r} has content version {version}",
            why=f"tables of version 8 and 9 have version {CONTENT_VERSION}",
            next_step="Compact the file group with the engine that wrote it",
        )
    if not 0 <= count <= (len(content) - _HEAD.size) // _LENGTH.size:
        raise _damaged(path, offset, f"{count} records cannot be in {len(content)} bytes")
    source = io.BytesIO(content)
    position = _HEAD.size
    for number in range(count):
        if position + _LENGTH.size > len(content):
            raise _damaged(path, offset + position, f"record {number} of {count} is missing")
        (length,) = _LENGTH.unpack_from(content, position)
        end = position + _LENGTH.size + length
        if length < 0 or end > len(content):
            raise _damaged(path, offset + position, f"record {number} claims {length} bytes")
        source.seek(position + _LENGTH.size)
        yield _record(source, schema, end, path, offset + position)
        position = end
    if position != len(content):
        raise _damaged(path, offset + position, "bytes are left behind the last record")


def _record(source: io.BytesIO, schema: Any, end: int, path: str, offset: int) -> dict[str, Any]:
    try:
        record: dict[str, Any] = fastavro.schemaless_reader(source, schema, None)
    except Exception as error:  # fastavro raises whatever the bytes lead it into
        raise _damaged(path, offset, f"it is not Avro ({type(error).__name__})") from None
    if source.tell() != end:
        raise _damaged(path, offset, f"a record ends at {source.tell()} and should at {end}")
    return record


def encode_avro_content(batches: Iterable[pa.RecordBatch], avro: AvroType) -> bytes:
    """The content of an AVRO_DATA block that holds these rows."""
    parsed = fastavro.parse_schema(avro, _write_hint=False)
    parts: list[bytes] = []
    for batch in batches:
        for row in batch.to_pylist(maps_as_pydicts="strict"):
            sink = io.BytesIO()
            fastavro.schemaless_writer(sink, parsed, row)
            parts += (_LENGTH.pack(sink.tell()), sink.getvalue())
    return _HEAD.pack(CONTENT_VERSION, len(parts) // 2) + b"".join(parts)


def _plain(avro: AvroType) -> AvroType:
    """The schema without the logical types whose stored integers Arrow takes as they are."""
    if isinstance(avro, list):
        return [_plain(branch) for branch in avro]
    if not isinstance(avro, dict):
        return avro
    kept = {
        key: _plain(value) if key in ("type", "items", "values") else value
        for key, value in avro.items()
        if not (key == "logicalType" and value in _INTEGER_LOGICAL)
        and key not in ("default", "doc", "aliases", "avro.java.string")
    }
    if isinstance(avro.get("fields"), list):
        kept["fields"] = [_plain(field) for field in avro["fields"]]
    return kept


def _refuse_empty_items(avro: AvroType, path: str, *, repeated: bool = False) -> None:
    """Items without bytes let a few bytes claim any number of them: no such table exists."""
    if isinstance(avro, list):
        for branch in avro:
            # A union's branch number is a byte of its own, so null is fine inside one.
            _refuse_empty_items(branch, path)
    elif isinstance(avro, dict):
        empty = avro.get("type") == "record" and not avro.get("fields")
        if repeated and (empty or avro.get("type") == "null"):
            raise CorruptTableError(
                "an Avro schema cannot be used",
                why="it has an array or map of items that take no bytes",
                next_step="Restore the file from a copy",
                path=path,
            )
        for key in ("items", "values"):
            if key in avro:
                _refuse_empty_items(avro[key], path, repeated=True)
        for field in avro.get("fields") or ():
            _refuse_empty_items(field.get("type"), path, repeated=repeated)
        if isinstance(avro.get("type"), (dict, list)):
            _refuse_empty_items(avro["type"], path, repeated=repeated)
    elif repeated and avro == "null":
        _refuse_empty_items({"type": "null"}, path, repeated=True)


def _has_map(type_: pa.DataType) -> bool:
    if pa.types.is_map(type_):
        return True
    return any(_has_map(type_.field(i).type) for i in range(type_.num_fields))


def _arrow_value(value: Any, type_: pa.DataType) -> Any:
    """A value with every map as a list of pairs, which is how Arrow takes maps."""
    if value is None or not _has_map(type_):
        return value
    if pa.types.is_map(type_):
        return [(key, _arrow_value(item, type_.item_type)) for key, item in value.items()]
    if pa.types.is_struct(type_):
        return {field.name: _arrow_value(value[field.name], field.type) for field in type_}
    return [_arrow_value(item, type_.value_type) for item in value]


def _damaged(path: str, offset: int, why: str) -> CorruptTableError:
    return CorruptTableError(
        "an Avro log block cannot be decoded",
        why=why,
        next_step="Restore the file from a copy, or roll back the instant in its name",
        path=path,
        offset=offset,
    )
