"""What a parquet footer says of its row groups: sizes, and the bounds of each column's values.

pyarrow gives the same, but its accessors let a C++ exception through where the footer contradicts
itself, and that ends the process: one flipped bit would take a Spark executor down. So facts
*about* a file are read here, and pyarrow only reads its rows.

The footer is one Thrift struct in the compact protocol. A field is a byte (the step from the last
field's number, and a type) and a value; numbers are zigzag varints as in Avro; a struct ends with a
zero. Fields that we do not need are skipped. Lengths are first compared with the bytes that are
left.

A few kilobytes of parquet can stand for gigabytes of zeros, so a claim out of proportion is refused
while it is still a claim (`excessive_claim`). A footer that understates its pages is not detected.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa

FOOTER_BYTES_MAX: Final = 16 * 1024 * 1024
_TAIL_BYTES: Final = 1 << 16  # one read usually takes the whole footer
_MAGIC: Final = b"PAR1"
_DEPTH_MAX: Final = 32

_BYTE, _BINARY, _LIST, _SET, _STRUCT = 3, 8, 9, 10, 12
_NUMBERS: Final = (4, 5, 6)
_FIXED_BYTES: Final = {1: 0, 2: 0, _BYTE: 1, 7: 8}  # true, false, byte, double

_INT32, _INT64, _FLOAT, _DOUBLE_VALUE = 1, 2, 4, 5  # physical types whose values have one width
_WIDTHS: Final = {_INT32: 4, _INT64: 8, _FLOAT: 4, _DOUBLE_VALUE: 8}


class FooterError(ValueError):
    """Bytes that are not a parquet footer. Callers turn it into CorruptTableError with a path."""


@dataclass(frozen=True, slots=True)
class ColumnChunk:
    """One column of one row group; bounds are as stored, None where none can be relied on."""

    path: str  # names joined by dots
    physical_type: int
    inflated_bytes: int
    least: bytes | None = None
    greatest: bytes | None = None
    null_count: int | None = None

    def bounds(self, type_: pa.DataType) -> tuple[Any, Any]:
        """Return the least and the greatest value as Python values of the column's Arrow type."""
        return (
            _value(self.least, type_, self.physical_type),
            _value(self.greatest, type_, self.physical_type),
        )


@dataclass(frozen=True, slots=True)
class RowGroup:
    rows: int
    columns: tuple[ColumnChunk, ...]


def decode_row_groups(source: pa.NativeFile) -> tuple[RowGroup, ...]:
    """Return the row groups of an open parquet file."""
    size = source.size()
    tail = source.read_at(min(size, _TAIL_BYTES), max(0, size - _TAIL_BYTES))
    if len(tail) < 12 or tail[-4:] != _MAGIC:
        raise FooterError("it does not end as a parquet file does")
    length = int.from_bytes(tail[-8:-4], "little")
    if length > min(size - 12, FOOTER_BYTES_MAX):
        raise FooterError(f"its footer claims {length} bytes")
    if length > len(tail) - 8:
        tail = source.read_at(length + 8, size - length - 8)
    try:
        file, _ = _FILE(tail[-8 - length : -8], 0, _STRUCT)
    except (IndexError, UnicodeDecodeError) as error:
        raise FooterError(f"its footer is broken ({error})") from None
    if 4 not in file:
        raise FooterError("its footer has no list of row groups")
    # Without a column order it is unknown by which comparison the bounds were found.
    ordered = [bool(order) for order in file.get(7, ())]
    return tuple(_row_group(group, ordered) for group in file[4])


def excessive_claim(
    groups: Sequence[RowGroup], columns: Collection[str], bytes_max: int
) -> str | None:
    """Return why reading these top-level columns may take too much memory; None if it will not."""
    rows = sum(group.rows for group in groups)
    chunks = (chunk for group in groups for chunk in group.columns)
    claimed = sum(c.inflated_bytes for c in chunks if c.path.partition(".")[0] in columns)
    if claimed > bytes_max or rows > bytes_max:
        return f"{rows} rows and {claimed} bytes are claimed, and {bytes_max} bytes are allowed"
    return None


def _row_group(group: Mapping[int, Any], ordered: Sequence[bool]) -> RowGroup:
    columns = tuple(
        _column_chunk(chunk, has_order=number < len(ordered) and ordered[number])
        for number, chunk in enumerate(group.get(1, ()))
    )
    return RowGroup(_natural(group.get(3, 0)), columns)


def _column_chunk(chunk: Mapping[int, Any], *, has_order: bool) -> ColumnChunk:
    path, physical_type = ".".join(chunk.get(3, ())), chunk.get(1, -1)
    inflated_bytes = _natural(chunk.get(6, 0))
    stored = chunk.get(12)
    if stored is None or not has_order:
        return ColumnChunk(path, physical_type, inflated_bytes)
    bounds = stored.get(6), stored.get(5)
    return ColumnChunk(path, physical_type, inflated_bytes, *bounds, stored.get(3))


def _natural(number: int) -> int:
    if number < 0:
        raise FooterError(f"its footer claims {number} rows or bytes")
    return number


def _value(data: bytes | None, type_: pa.DataType, physical_type: int) -> Any:
    """Return the stored value; None if it cannot be one of the type and so says nothing."""
    if data is None or len(data) != _WIDTHS.get(physical_type, len(data)):
        return None
    try:
        if pa.types.is_string(type_):
            return data.decode()
        if pa.types.is_binary(type_) or pa.types.is_fixed_size_binary(type_):
            return data
        if pa.types.is_boolean(type_):
            return data != b"\0" if len(data) == 1 else None
        if pa.types.is_decimal128(type_):
            data = _arrow_decimal(data, little=physical_type in _WIDTHS)
        if len(data) < type_.bit_width // 8:
            return None
        return pa.Array.from_buffers(type_, 1, [None, pa.py_buffer(data)])[0].as_py()
    except (ValueError, OverflowError, pa.ArrowException):  # a time that Python does not have
        return None


def _arrow_decimal(data: bytes, *, little: bool) -> bytes:
    number = int.from_bytes(data, "little" if little else "big", signed=True)
    return number.to_bytes(16, "little", signed=True)


# ---- Thrift: each function takes the footer and a position, and gives a value and the next one

_Decode: TypeAlias = Callable[[bytes, int, int], tuple[Any, int]]  # with the type that is there


def _varint(data: bytes, position: int) -> tuple[int, int]:
    byte = data[position]
    position += 1
    if byte < 0x80:
        return byte, position
    number, shift = byte & 0x7F, 7
    while byte >= 0x80:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if shift > 70:
            raise FooterError("its footer has a number of more than 64 bits")
    return number, position


def _integer(data: bytes, position: int, kind: int) -> tuple[int, int]:
    if kind not in _NUMBERS:
        raise FooterError(f"its footer has type {kind} where a number belongs")
    zigzag, position = _varint(data, position)
    return (zigzag >> 1) ^ -(zigzag & 1), position


def _bytes(data: bytes, position: int, kind: int) -> tuple[bytes, int]:
    if kind != _BINARY:
        raise FooterError(f"its footer has type {kind} where bytes belong")
    size, position = _varint(data, position)
    if size > len(data) - position:
        raise FooterError(f"its footer has a part of {size} bytes, beyond its end")
    return data[position : position + size], position + size


def _text(data: bytes, position: int, kind: int) -> tuple[str, int]:
    text, position = _bytes(data, position, kind)
    return text.decode(), position


def _struct_of(wanted: Mapping[int, _Decode]) -> _Decode:
    """Return the decoder of the wanted fields of a struct, by their numbers."""

    def decode(data: bytes, position: int, kind: int) -> tuple[dict[int, Any], int]:
        if kind != _STRUCT:
            raise FooterError(f"its footer has type {kind} where a struct belongs")
        found: dict[int, Any] = {}
        number = 0
        while head := data[position]:
            position += 1
            if head >> 4:
                number += head >> 4
            else:
                number, position = _integer(data, position, _NUMBERS[0])
            field = wanted.get(number)
            if field is None:
                position = _skipped(data, position, head & 15, 0)
            else:
                found[number], position = field(data, position, head & 15)
        return found, position + 1

    return decode


def _list_of(item: _Decode) -> _Decode:
    def decode(data: bytes, position: int, kind: int) -> tuple[list[Any], int]:
        if kind != _LIST:
            raise FooterError(f"its footer has type {kind} where a list belongs")
        size, item_kind, position = _list_head(data, position)
        items = []
        for _ in range(size):
            value, position = item(data, position, item_kind)
            items.append(value)
        return items, position

    return decode


def _list_head(data: bytes, position: int) -> tuple[int, int, int]:
    """Return how many items of which type follow. Each takes at least a byte."""
    head = data[position]
    size, position = head >> 4, position + 1
    if size == 15:
        size, position = _varint(data, position)
    if size > len(data) - position:
        raise FooterError(f"its footer has a list of {size} items, beyond its end")
    return size, head & 15, position


def _skipped(data: bytes, position: int, kind: int, depth: int) -> int:
    """Return the position behind a value that is not needed."""
    if kind in _NUMBERS:
        while data[position] >= 0x80:
            position += 1
        return position + 1
    if kind == _BINARY:
        size, position = _varint(data, position)
        return position + size
    if kind in _FIXED_BYTES:
        return position + _FIXED_BYTES[kind]
    if depth > _DEPTH_MAX:
        raise FooterError(f"its footer is more than {_DEPTH_MAX} levels deep")
    if kind == _STRUCT:
        while head := data[position]:
            position += 1
            if not head >> 4:
                _, position = _varint(data, position)
            position = _skipped(data, position, head & 15, depth + 1)
        return position + 1
    if kind in (_LIST, _SET):
        size, item, position = _list_head(data, position)
        for _ in range(size):
            # In a list, a boolean is a byte of its own.
            position = _skipped(data, position, max(item, _BYTE), depth + 1)
        return position
    raise FooterError(f"its footer has a field of type {kind}")  # maps: parquet has none


def _column(data: bytes, position: int, kind: int) -> tuple[Any, int]:
    found, position = _COLUMN_CHUNK(data, position, kind)
    if 3 not in found:
        raise FooterError("its footer says nothing of a column")
    return found[3], position


_STATISTICS: Final = {3: _integer, 5: _bytes, 6: _bytes}  # nulls, greatest, least
_COLUMN: Final = {1: _integer, 3: _list_of(_text), 6: _integer, 12: _struct_of(_STATISTICS)}
_COLUMN_CHUNK: Final = _struct_of({3: _struct_of(_COLUMN)})
_ROW_GROUP: Final = {1: _list_of(_column), 3: _integer}
_ORDER: Final = {1: _struct_of({})}  # by the column's type; any other is unknown
_FILE: Final = _struct_of({4: _list_of(_struct_of(_ROW_GROUP)), 7: _list_of(_struct_of(_ORDER))})
