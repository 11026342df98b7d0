"""The content of DELETE log blocks ↔ Arrow.

    int version (3) | int n | n bytes: one Avro record with the list of deletes

A delete is a record key, a partition path and an ordering value, which Hudi wraps in one of
thirteen kinds. Arrow wants one type a column, so deletes come as one batch for each kind, with the
index of every delete in the block; in practice a block has one kind. Several ordering fields are
one value of the kind ARRAY, whose parts have kinds of their own: a struct in Arrow.

The kind decides the meaning as well: a delete without an ordering value is written as null or as
the int 0, and beats every version before it. A true ordering value of int 0 looks the same.

The loop over records is written out: a delete has three fields, and a list may have a million.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptTableError, InvalidRequestError, UnsupportedTableError
from pyhudi.format.avro.decoding import MALFORMED, READERS, Decoder, read_count, read_long
from pyhudi.format.avro.encoding import WRITERS, Encoder, write_long, write_string
from pyhudi.format.avro.types import AvroError

CONTENT_VERSION: Final = 3
_HEAD: Final = struct.Struct(">ii")
_DECIMAL: Final = pa.decimal128(30, 15)  # the only decimal type that Hudi has for ordering values
_DECIMAL_BYTES_MAX: Final = 16
_KRYO_VERSIONS: Final = (1, 2)


class OrderingKind(StrEnum):
    """How an ordering value is stored."""

    NULL = "null"
    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    BYTES = "bytes"
    STRING = "string"
    DATE = "date"
    DECIMAL = "decimal"
    TIME_MICROS = "time in microseconds"
    TIMESTAMP_MICROS = "timestamp in microseconds"
    ARRAY = "array"
    LOCAL_DATE = "local date"


_SIMPLE: Final = tuple(OrderingKind)[:12]
_BRANCHES: Final = (*_SIMPLE, OrderingKind.ARRAY)
_PART_BRANCHES: Final = (*_SIMPLE, OrderingKind.LOCAL_DATE)

_STORED: Final[Mapping[OrderingKind, str]] = {
    **{kind: kind.value for kind in _SIMPLE[1:8]},
    OrderingKind.DATE: "int",
    OrderingKind.LOCAL_DATE: "int",
    OrderingKind.DECIMAL: "bytes",
    OrderingKind.TIME_MICROS: "long",
    OrderingKind.TIMESTAMP_MICROS: "long",
}
_ARROW: Final[Mapping[OrderingKind, pa.DataType]] = {
    OrderingKind.BOOLEAN: pa.bool_(),
    OrderingKind.INT: pa.int32(),
    OrderingKind.LONG: pa.int64(),
    OrderingKind.FLOAT: pa.float32(),
    OrderingKind.DOUBLE: pa.float64(),
    OrderingKind.BYTES: pa.binary(),
    OrderingKind.STRING: pa.string(),
    OrderingKind.DATE: pa.date32(),
    OrderingKind.LOCAL_DATE: pa.date32(),
    OrderingKind.DECIMAL: _DECIMAL,
    OrderingKind.TIME_MICROS: pa.time64("us"),
    OrderingKind.TIMESTAMP_MICROS: pa.timestamp("us", "UTC"),
}


@dataclass(frozen=True, slots=True)
class DeleteBatch:
    """Deletes of one block whose ordering values are of one kind."""

    kind: OrderingKind
    rows: pa.Int64Array  # the index of each delete in its block
    record_keys: pa.StringArray
    partition_paths: pa.StringArray
    ordering: pa.Array | None  # None if the kind is NULL, a struct if it is ARRAY
    part_kinds: tuple[OrderingKind, ...] = ()  # of an ARRAY

    @property
    def unconditional(self) -> pa.BooleanArray:
        """True for each delete without an ordering value, which beats everything before it."""
        if self.kind is OrderingKind.INT:
            return pc.equal(self.ordering, 0)
        return pa.repeat(self.kind is OrderingKind.NULL, len(self.rows))


def delete_batch(
    record_keys: pa.StringArray, partition_paths: pa.StringArray, ordering: pa.Array | None
) -> DeleteBatch:
    """Return deletes to write.

    Without ordering values they are unconditional, as Hudi writes those.
    """
    if ordering is None:
        ordering = pa.repeat(pa.scalar(0, pa.int32()), len(record_keys))
    several = pa.types.is_struct(ordering.type)
    parts = ordering.flatten() if several else [ordering]
    if any(part.null_count for part in parts):
        raise InvalidRequestError(
            "a delete has no ordering value",
            why="a null among the ordering values would beat every version of its row",
            next_step="Give every delete an ordering value, or none",
        )
    rows = pa.array(range(len(record_keys)), pa.int64())
    kinds = tuple(_kind_for(part.type) for part in parts)
    columns = [_cast(part, _ARROW[kind]) for part, kind in zip(parts, kinds, strict=True)]
    if not several:
        return DeleteBatch(kinds[0], rows, record_keys, partition_paths, columns[0])
    stored = _struct(columns)
    return DeleteBatch(OrderingKind.ARRAY, rows, record_keys, partition_paths, stored, kinds)


def decode_delete_records(content: bytes, path: str, offset: int) -> list[DeleteBatch]:
    """Return all deletes of a block's content.

    The content begins at byte `offset` of the log file `path`.
    """
    if len(content) < _HEAD.size:
        raise _damaged(path, offset, "the content is shorter than its own head")
    version, size = _HEAD.unpack_from(content)
    if version in _KRYO_VERSIONS:
        raise UnsupportedTableError(
            f"the delete block at byte {offset} of {path!r} has content version {version}",
            why="that is Java's Kryo serialisation, which table versions 8 and 9 do not write",
            next_step="Compact the file group with the engine that wrote it",
        )
    if version != CONTENT_VERSION or size != len(content) - _HEAD.size:
        why = f"version {version} with {size} bytes is claimed; {len(content)} bytes are there"
        raise _damaged(path, offset, why)
    try:
        return [group.batch() for group in _groups(content[_HEAD.size :])]
    except (*MALFORMED, pa.ArrowException, OverflowError) as error:
        raise _damaged(path, offset, str(error)) from None


class _Group:
    """Deletes of one kind while they are collected."""

    def __init__(self, kind: OrderingKind, part_kinds: tuple[OrderingKind, ...]) -> None:
        self._kind, self._part_kinds = kind, part_kinds
        self.rows: list[int] = []
        self.keys: list[str | None] = []
        self.partitions: list[str | None] = []
        self.values: list[Any] = []

    def batch(self) -> DeleteBatch:
        return DeleteBatch(
            self._kind,
            pa.array(self.rows, pa.int64()),
            pa.array(self.keys, pa.string()),
            pa.array(self.partitions, pa.string()),
            self._ordering(),
            self._part_kinds,
        )

    def _ordering(self) -> pa.Array | None:
        if self._kind is OrderingKind.NULL:
            return None
        if self._kind is not OrderingKind.ARRAY:
            return _column(self._kind, self.values)
        columns = zip(self._part_kinds, zip(*self.values, strict=True), strict=True)
        return _struct([_column(kind, values) for kind, values in columns])


def _groups(body: bytes) -> list[_Group]:
    groups: dict[tuple[int, tuple[OrderingKind, ...]], _Group] = {}
    row = 0
    count, position = read_count(body, 0)
    while count:
        for _ in range(count):
            key, position = _optional_text(body, position)
            partition, position = _optional_text(body, position)
            branch, position = read_long(body, position)
            kind = _kind_of(_BRANCHES, branch)
            parts: tuple[OrderingKind, ...] = ()
            if kind is OrderingKind.ARRAY:
                parts, value, position = _array(body, position)
            else:
                value, position = _DECODERS[kind](body, position)
            group = groups.get((branch, parts))
            if group is None:
                group = groups[branch, parts] = _Group(kind, parts)
            group.rows.append(row)
            group.keys.append(key)
            group.partitions.append(partition)
            group.values.append(value)
            row += 1
        count, position = read_count(body, position)
    if position != len(body):
        raise AvroError(f"the list ends at byte {position} of {len(body)}")
    return list(groups.values())


def _optional_text(body: bytes, position: int) -> tuple[str | None, int]:
    branch = body[position]
    if branch == 0:
        return None, position + 1
    if branch != 2:
        raise AvroError(f"byte {branch} is neither null nor text")
    text: str
    text, position = READERS["string"](body, position + 1)
    return text, position


def _kind_of(kinds: tuple[OrderingKind, ...], branch: int) -> OrderingKind:
    if not 0 <= branch < len(kinds):
        raise AvroError(f"{branch} is not a kind of ordering value")
    return kinds[branch]


def _array(body: bytes, position: int) -> tuple[tuple[OrderingKind, ...], tuple[Any, ...], int]:
    kinds, values = [], []
    if body[position] != 2:
        raise AvroError("an ordering value of several fields is null")
    count, position = read_count(body, position + 1)
    while count:
        for _ in range(count):
            branch, position = read_long(body, position)
            kind = _kind_of(_PART_BRANCHES, branch)
            value, position = _DECODERS[kind](body, position)
            kinds.append(kind)
            values.append(value)
        count, position = read_count(body, position)
    if not kinds:
        raise AvroError("an ordering value of several fields has none")
    return tuple(kinds), tuple(values), position


def _read_decimal(body: bytes, position: int) -> tuple[bytes, int]:
    """Return the decimal as Arrow stores it, 16 bytes with the least significant first."""
    unscaled, position = READERS["bytes"](body, position)
    if not 0 < len(unscaled) <= _DECIMAL_BYTES_MAX:
        raise AvroError(f"a decimal of {len(unscaled)} bytes")
    number = int.from_bytes(unscaled, "big", signed=True)
    if abs(number) >= 10**_DECIMAL.precision:
        raise AvroError(f"a decimal of more than {_DECIMAL.precision} digits")
    return number.to_bytes(_DECIMAL_BYTES_MAX, "little", signed=True), position


_DECODERS: Final[Mapping[OrderingKind, Decoder]] = {
    OrderingKind.NULL: READERS["null"],
    **{kind: READERS[stored] for kind, stored in _STORED.items()},
    OrderingKind.DECIMAL: _read_decimal,
}


def _column(kind: OrderingKind, values: Sequence[Any]) -> pa.Array:
    if kind is OrderingKind.NULL:
        return pa.nulls(len(values))
    if kind is OrderingKind.DECIMAL:
        stored = pa.py_buffer(b"".join(values))
        return pa.Array.from_buffers(_DECIMAL, len(values), [None, stored])
    return pa.array(values, _ARROW[kind])


def _struct(columns: Sequence[pa.Array]) -> pa.StructArray:
    return pa.StructArray.from_arrays(columns, names=[str(n) for n in range(len(columns))])


def encode_delete_records(batches: Sequence[DeleteBatch]) -> bytes:
    """Return the content of a DELETE block with these deletes, each at its row."""
    records: dict[int, bytes] = {}
    for batch in batches:
        rows = batch.rows.to_pylist()
        records.update(zip(rows, _encoded_records(batch), strict=True))
    count = sum(len(batch.rows) for batch in batches)
    assert records.keys() == set(range(count)), "every row of the block belongs to one delete"
    body = bytearray()
    if count:
        write_long(count, body)
    for row in range(count):
        body += records[row]
    body.append(0)
    return _HEAD.pack(CONTENT_VERSION, len(body)) + bytes(body)


def _encoded_records(batch: DeleteBatch) -> Iterator[bytes]:
    keys, partitions = batch.record_keys.to_pylist(), batch.partition_paths.to_pylist()
    for key, partition, value in zip(keys, partitions, _encoded_ordering(batch), strict=True):
        out = bytearray()
        for text in (key, partition):
            if text is None:
                out.append(0)
            else:
                out.append(2)
                write_string(text, out)
        yield bytes(out + value)


def _encoded_ordering(batch: DeleteBatch) -> Iterator[bytes]:
    if batch.kind is not OrderingKind.ARRAY:
        yield from _encoded_values(batch.kind, batch.ordering, _BRANCHES, len(batch.rows))
        return
    assert batch.ordering is not None
    columns = [
        _encoded_values(kind, part, _PART_BRANCHES, len(batch.rows))
        for kind, part in zip(batch.part_kinds, batch.ordering.flatten(), strict=True)
    ]
    head = bytearray([2 * _BRANCHES.index(OrderingKind.ARRAY), 2])  # the array is not null
    write_long(len(columns), head)
    for parts in zip(*columns, strict=True):
        yield bytes(head) + b"".join(parts) + b"\0"


def _encoded_values(
    kind: OrderingKind, column: pa.Array | None, branches: tuple[OrderingKind, ...], count: int
) -> Iterator[bytes]:
    branch = bytes([2 * branches.index(kind)])
    if kind is OrderingKind.NULL:
        yield from (branch for _ in range(count))
        return
    write: Encoder = WRITERS[_STORED[kind]]
    for value in _stored_values(kind, column):
        out = bytearray(branch)
        write(value, out)
        yield bytes(out)


def _stored_values(kind: OrderingKind, column: pa.Array) -> list[Any]:
    """Return Python values as Avro stores them: days, microseconds and unscaled bytes."""
    if kind is OrderingKind.DECIMAL:
        return _unscaled_values(column)
    stored = {"int": pa.int32(), "long": pa.int64()}.get(_STORED[kind], column.type)
    values: list[Any] = column.cast(stored).to_pylist()
    return values


def _unscaled_values(column: pa.Array) -> list[bytes]:
    """Return the fewest bytes of two's complement, as Java writes decimals.

    The most significant byte comes first.
    """
    data = column.buffers()[1].to_pybytes()
    width = _DECIMAL_BYTES_MAX
    starts = range(width * column.offset, width * (column.offset + len(column)), width)
    numbers = (int.from_bytes(data[at : at + width], "little", signed=True) for at in starts)
    return [n.to_bytes((n if n >= 0 else ~n).bit_length() // 8 + 1, signed=True) for n in numbers]


_IS_KIND: Final[tuple[tuple[Callable[[pa.DataType], bool], OrderingKind], ...]] = (
    (pa.types.is_boolean, OrderingKind.BOOLEAN),
    (pa.types.is_int64, OrderingKind.LONG),
    (pa.types.is_signed_integer, OrderingKind.INT),
    (pa.types.is_float32, OrderingKind.FLOAT),
    (pa.types.is_float64, OrderingKind.DOUBLE),
    (pa.types.is_binary, OrderingKind.BYTES),
    (pa.types.is_string, OrderingKind.STRING),
    (pa.types.is_date32, OrderingKind.DATE),
    (pa.types.is_decimal, OrderingKind.DECIMAL),
    (pa.types.is_time64, OrderingKind.TIME_MICROS),
    (pa.types.is_timestamp, OrderingKind.TIMESTAMP_MICROS),
)


def _kind_for(type_: pa.DataType) -> OrderingKind:
    for matches, kind in _IS_KIND:
        if matches(type_):
            return kind
    raise _not_storable(f"Hudi has no ordering values of Arrow's type {type_}")


def _cast(column: pa.Array, type_: pa.DataType) -> pa.Array:
    try:
        return column.cast(type_)
    except pa.ArrowInvalid as error:
        raise _not_storable(str(error)) from None


def _not_storable(why: str) -> InvalidRequestError:
    return InvalidRequestError(
        "an ordering value cannot be stored with a delete",
        why=why,
        next_step="Cast the ordering column to a long, a text, a date or a timestamp",
    )


def _damaged(path: str, offset: int, why: str) -> CorruptTableError:
    return CorruptTableError(
        "a delete block cannot be decoded",
        why=why,
        next_step="Restore the file from a copy, or from versions that the store keeps",
        path=path,
        offset=offset,
    )
