"""Avro's plain types as columns: all values of a field, read at the positions of a cursor.

Each kind of column knows three things: how to read its values into Arrow, how to skip them, and
how to skip one of them alone. Skipping does not check values; reading does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyhudi.format.avro.cursor import Cursor
from pyhudi.format.avro.decoding import read_long
from pyhudi.format.avro.types import AvroError

_DECIMAL: Final = np.dtype("V16")  # how Arrow stores a decimal of up to 38 digits


class Column(ABC):
    """A type of the schema, whose values are at the positions of a cursor."""

    @abstractmethod
    def read(self, cursor: Cursor) -> pa.Array:
        """Return the values, with the cursor left behind them."""

    @abstractmethod
    def skip(self, cursor: Cursor) -> None:
        """Leave the cursor where `read` would leave it."""

    @abstractmethod
    def skip_one(self, raw: bytes, at: int) -> int:
        """Return where the value at one position ends, which may be outside the bytes."""


class NullColumn(Column):
    def read(self, cursor: Cursor) -> pa.Array:
        return pa.nulls(len(cursor))

    def skip(self, cursor: Cursor) -> None:
        """Do nothing, as a null has no bytes."""

    def skip_one(self, raw: bytes, at: int) -> int:
        return at


class NumberColumn(Column):
    """Int, long and every logical type of them: Arrow stores the same integer."""

    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_

    def read(self, cursor: Cursor) -> pa.Array:
        numbers = cursor.numbers()
        if self._type.bit_width == 64:
            return _plain(numbers, self._type)
        narrow = numbers.astype(np.int32)
        if np.count_nonzero(narrow != numbers):
            raise AvroError("a number is not an int of 32 bits")
        return _plain(narrow, self._type)

    def skip(self, cursor: Cursor) -> None:
        cursor.numbers()

    def skip_one(self, raw: bytes, at: int) -> int:
        while raw[at] > 0x7F:
            at += 1
        return at + 1


class EnumColumn(NumberColumn):
    def __init__(self, symbols: Sequence[str]) -> None:
        super().__init__(pa.int64())
        self._symbols = pa.array(symbols, pa.string())
        self._sizes = np.array([len(symbol.encode()) for symbol in symbols], np.int64)

    def read(self, cursor: Cursor) -> pa.Array:
        numbers = cursor.numbers()
        if np.count_nonzero((numbers < 0) | (numbers >= len(self._symbols))):
            raise AvroError(f"a number is not one of {len(self._symbols)} symbols")
        cursor.content.charge(int(self._sizes[numbers].sum()))
        return self._symbols.take(pa.array(numbers))


class FixedColumn(Column):
    """Booleans, floats and fixed types: a number of bytes, and what Arrow makes of them."""

    def __init__(self, dtype: str, made: Callable[[npt.NDArray[Any]], pa.Array]) -> None:
        self._dtype = np.dtype(dtype)
        self._made = made

    def read(self, cursor: Cursor) -> pa.Array:
        starts = cursor.advance(self._dtype.itemsize)
        return self._made(cursor.content.values(starts, self._dtype))

    def skip(self, cursor: Cursor) -> None:
        cursor.advance(self._dtype.itemsize)

    def skip_one(self, raw: bytes, at: int) -> int:
        return at + self._dtype.itemsize


class BytesColumn(Column):
    """A length and that many bytes."""

    def read(self, cursor: Cursor) -> pa.Array:
        lengths = cursor.lengths()
        starts = cursor.advance(lengths)
        return cursor.content.pieces(starts, cursor.at, pa.binary())

    def skip(self, cursor: Cursor) -> None:
        cursor.advance(cursor.lengths())

    def skip_one(self, raw: bytes, at: int) -> int:
        length, at = read_long(raw, at)
        if length < 0:
            raise AvroError("a length is negative")
        return at + length


class StringColumn(BytesColumn):
    def read(self, cursor: Cursor) -> pa.Array:
        lengths = cursor.lengths()
        starts = cursor.advance(lengths)
        strings = cursor.content.pieces(starts, cursor.at, pa.string())
        try:
            strings.validate(full=True)
        except pa.ArrowInvalid:
            raise AvroError("a string is not UTF-8") from None
        return strings


class DecimalColumn(BytesColumn):
    """Decimals in bytes, which Avro leaves as short as their values allow."""

    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_

    def read(self, cursor: Cursor) -> pa.Array:
        lengths = cursor.lengths()
        starts = cursor.advance(lengths)
        stored = np.empty(len(cursor), _DECIMAL)
        for length in np.unique(lengths).tolist():
            rows = np.flatnonzero(lengths == length)
            values = cursor.content.values(starts[rows], f"V{length}")
            stored[rows] = _decimals_of_width(values)
        return _decimal_array(stored, self._type)


def boolean_column() -> Column:
    return FixedColumn("u1", _booleans)


def float_column(type_: pa.DataType) -> Column:
    return FixedColumn(f"<f{type_.byte_width}", partial(_plain, type_=type_))


def fixed_column(size: int, type_: pa.DataType) -> Column:
    if pa.types.is_decimal(type_):
        return FixedColumn(f"V{size}", lambda v: _decimal_array(_decimals_of_width(v), type_))
    return FixedColumn(f"V{size}", partial(_plain, type_=type_))


def _booleans(values: npt.NDArray[Any]) -> pa.Array:
    if np.count_nonzero(values > 1):
        raise AvroError("a byte is not a boolean")
    return pa.array(values.view(np.bool_))


def _plain(values: npt.NDArray[Any], type_: pa.DataType) -> pa.Array:
    """Return values whose bytes are those of Arrow."""
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(values)])


def _decimals_of_width(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert decimals of one width from big-endian two's complement to Arrow's form."""
    width = values.dtype.itemsize
    if not width:
        raise AvroError("a decimal has no bytes")
    digits = values.view(np.uint8).reshape(len(values), width)
    sign = np.where(digits[:, :1] > 0x7F, np.uint8(0xFF), np.uint8(0))
    stored = np.repeat(sign, _DECIMAL.itemsize, axis=1)
    low = digits[:, -_DECIMAL.itemsize :]
    stored[:, : low.shape[1]] = low[:, ::-1]
    # Bytes in front of the last 16 may only repeat the sign, which those 16 must have too.
    if (digits[:, : -_DECIMAL.itemsize] != sign).any() or ((stored[:, -1:] ^ sign) > 0x7F).any():
        raise AvroError("a decimal has more than 128 bits")
    return stored.view(_DECIMAL).reshape(len(values))


def _decimal_array(stored: npt.NDArray[Any], type_: pa.DataType) -> pa.Array:
    """Return the decimals as a column, all within the precision of the type."""
    array = pa.Array.from_buffers(type_, len(stored), [None, pa.py_buffer(stored)])
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        raise AvroError(f"a decimal has more than {type_.precision} digits") from None
    return array
