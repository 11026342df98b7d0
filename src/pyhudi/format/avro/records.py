"""Avro log block content ↔ Arrow.

The content is an int version (3), an int count, and each record as an int length and Avro binary
in the schema of the block's header. Decoding goes by columns (see `avro_layout`); the one step
per record is to follow the lengths from each record to the next. Encoding goes by rows, through
fastavro.

Every record must use exactly the bytes that its length says: that catches a damaged record at
the record, and keeps a forged length from reaching the next one.
"""

from __future__ import annotations

import io
import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

from pyhudi.errors import CorruptTableError, HudiError, UnsupportedTableError
from pyhudi.format.avro.cursor import Content, Ints
from pyhudi.format.avro.layout import RecordLayout
from pyhudi.format.avro.schema import AvroType, decode_arrow_schema
from pyhudi.format.avro.types import AvroError, Record, parse_schema

CONTENT_VERSION = 3
_HEAD = struct.Struct(">ii")
_LENGTH = struct.Struct(">I")
#: What is decoded at once: enough to make Python's share small, and little enough that positions,
#: which take far more memory than the bytes they point at, stay small too.
_CHUNK_BYTES = 1 << 22
#: What nulls and enum symbols may take in Arrow beyond the bytes of the content.
_ALLOWANCE = (1 << 31) - 1


def decode_avro_content(content: bytes, schema_json: str, path: str, offset: int) -> pa.RecordBatch:
    """Return all records of an AVRO_DATA or CDC_DATA block, in the block's own schema."""
    assert len(content) < 1 << 31, "no log block is that long"
    try:
        layout = _cached_layout(schema_json)
    except HudiError:
        layout = _layout(schema_json, path)  # fails again, and names the file
    bounds = _record_bounds(content, path, offset)
    batches: list[pa.RecordBatch] = []
    allowance = _ALLOWANCE
    for first, last in _chunks(bounds):
        begin = int(bounds[first])
        source = Content(content[begin : int(bounds[last])], allowance)
        starts = bounds[first:last] + (_LENGTH.size - begin)
        ends = bounds[first + 1 : last + 1] - begin
        try:
            batches.append(layout.decode(source, starts, ends))
        except AvroError:
            source.allowance = allowance
            number, why = _first_bad(layout, source, starts, ends)
            raise _damaged(path, offset + int(bounds[first + number]), why) from None
        allowance = source.allowance
    return _combined(batches)


def _layout(schema_json: str, path: str) -> RecordLayout:
    schema = decode_arrow_schema(schema_json, path)
    try:
        record = parse_schema(schema_json)
        assert isinstance(record, Record), "the Arrow schema is of a record"
        return RecordLayout(record, schema)
    except AvroError as error:
        raise CorruptTableError(
            "an Avro schema cannot be used",
            why=str(error),
            next_step="Restore the file from a copy",
            path=path,
        ) from None


@lru_cache(maxsize=16)
def _cached_layout(schema_json: str) -> RecordLayout:
    """Return the layout, cached: the blocks of a table share few schemas, and most are small."""
    return _layout(schema_json, "")


def _record_bounds(content: bytes, path: str, offset: int) -> Ints:
    """Return where each record begins with its length, and where the last one ends."""
    count = _record_count(content, path, offset)
    end = _HEAD.size
    bounds = [end]
    unpack, size = _LENGTH.unpack_from, _LENGTH.size
    try:
        for _ in range(count):
            end += unpack(content, end)[0] + size
            bounds.append(end)
    except struct.error:
        pass  # the content ends before the length: said below
    number = len(bounds) - 1
    if end > len(content):
        why = f"record {number} of {count} overruns the content"
        raise _damaged(path, offset + bounds[-2], why)
    if number < count:
        raise _damaged(path, offset + end, f"record {number + 1} of {count} is missing")
    if end < len(content):
        raise _damaged(path, offset + end, "bytes are left behind the last record")
    return np.array(bounds, np.int64)


def _record_count(content: bytes, path: str, offset: int) -> int:
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
    return int(count)


def _chunks(bounds: Ints) -> Iterator[tuple[int, int]]:
    """Yield the records in ranges of bounded size.

    There is at least one range, and it has at least one record if there are any.
    """
    first, count = 0, len(bounds) - 1
    while True:
        fitting = int(np.searchsorted(bounds, bounds[first] + _CHUNK_BYTES, side="right")) - 1
        last = min(count, max(fitting, first + 1))
        yield first, last
        if last == count:
            return
        first = last


def _first_bad(layout: RecordLayout, source: Content, starts: Ints, ends: Ints) -> tuple[int, str]:
    """Return the record up to which all decode and with which they do not, and why."""
    allowance = source.allowance

    def refusal(count: int) -> str | None:
        source.allowance = allowance
        try:
            layout.decode(source, starts[:count], ends[:count])
        except AvroError as error:
            return str(error)
        return None

    number = bisect_left(range(len(ends)), True, key=lambda n: refusal(n + 1) is not None)
    return number, str(refusal(number + 1))


def _combined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    columns = [pa.concat_arrays(parts) for parts in zip(*(b.columns for b in batches), strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=batches[0].schema)


def encode_avro_content(batches: Iterable[pa.RecordBatch], avro: AvroType) -> bytes:
    """Return the content of an AVRO_DATA block that holds these rows."""
    parsed = fastavro.parse_schema(avro, _write_hint=False)
    parts: list[bytes] = []
    for batch in batches:
        for row in _rows(batch):
            sink = io.BytesIO()
            fastavro.schemaless_writer(sink, parsed, row)
            parts += (_LENGTH.pack(sink.tell()), sink.getvalue())
    return _HEAD.pack(CONTENT_VERSION, len(parts) // 2) + b"".join(parts)


def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    columns = [
        [_with_dicts(value, column.type) for value in column.to_pylist()]
        if _has_map(column.type)
        else column.to_pylist()
        for column in batch.columns
    ]
    for values in zip(*columns, strict=True):
        yield dict(zip(batch.schema.names, values, strict=True))


def _has_map(type_: pa.DataType) -> bool:
    if pa.types.is_map(type_):
        return True
    return any(_has_map(type_.field(n).type) for n in range(type_.num_fields))


def _with_dicts(value: Any, type_: pa.DataType) -> Any:
    """Return the value with dicts for maps, which Arrow gives as lists of pairs."""
    if value is None or not pa.types.is_nested(type_):
        return value
    if pa.types.is_map(type_):
        return {key: _with_dicts(item, type_.item_type) for key, item in value}
    if pa.types.is_struct(type_):
        return {field.name: _with_dicts(value[field.name], field.type) for field in type_}
    return [_with_dicts(item, type_.value_type) for item in value]


def _damaged(path: str, offset: int, why: str) -> CorruptTableError:
    return CorruptTableError(
        "an Avro log block cannot be decoded",
        why=why,
        next_step="Restore the file from a copy, or from versions that the store keeps",
        path=path,
        offset=offset,
    )
