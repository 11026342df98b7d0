"""Where many Avro values begin in one stretch of bytes, and how all of them move on together.

A cursor holds one position per value. Every read looks at the bytes at all positions at once and
moves each position behind what it read, so the work in Python is per field and not per record.

Bounds: a value belongs to a record, and `advance`, the only way forward, refuses to pass the
record's end. So the values of one field never overlap: their positions rise, and together they
take no more bytes than there are. A number is looked at before its length is known, so padding
follows the bytes, and no read leaves them.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyhudi.format.avro.types import AvroError

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_PADDING: Final = bytes(16)  # no number is longer, and a zero ends it
_ONE_BYTE: Final = np.array([(n >> 1) ^ -(n & 1) for n in range(128)], np.int64)
_FEW_BYTES: Final = 1 << 12

# The bits of a word of eight bytes: the one that says that a byte is not a number's last, the
# seven others of every byte, and the positions of those when two and when four bytes are joined.
_HIGH: Final = np.uint64(0x8080_8080_8080_8080)
_ODD_7: Final = np.uint64(0x7F00_7F00_7F00_7F00)
_ODD_14: Final = np.uint64(0x3FFF_0000_3FFF_0000)
_ODD_28: Final = np.uint64(0x0FFF_FFFF_0000_0000)
_1, _2, _3, _4, _15 = (np.uint64(n) for n in (1, 2, 3, 4, 15))


class Content:
    """The bytes that hold records, and how far the values may outgrow them.

    A null of a wide type and an enum's symbol take a byte here and any number of them in Arrow.
    `allowance` is what such values may still take.
    """

    __slots__ = ("_words", "allowance", "data", "raw")

    def __init__(self, records: bytes, allowance: int) -> None:
        self.raw = records + _PADDING
        self.data = np.frombuffer(self.raw, np.uint8)
        self.allowance = allowance
        self._words: Words = _overlapping(self.raw, "<u8")

    def charge(self, size: int) -> None:
        self.allowance -= size
        if self.allowance < 0:
            raise AvroError("nulls and enum symbols take too much memory")

    def values(self, starts: Ints, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return the values of a fixed width that begin at `starts`, which `advance` returned."""
        return _overlapping(self.raw, dtype)[starts]

    def pieces(self, starts: Ints, ends: Ints, type_: pa.DataType) -> pa.Array:
        """Return the bytes from each start to its end, as strings or bytes of their own."""
        count = len(starts)
        offsets = np.zeros(count + 1, np.int32)
        np.cumsum(ends - starts, out=offsets[1:])
        size = int(offsets[-1])
        if size <= _FEW_BYTES:  # Arrow would take longer to begin than this does altogether
            places = np.repeat(starts - offsets[:-1], ends - starts) + np.arange(size)
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.data[places])]
            return pa.Array.from_buffers(type_, count, buffers)
        # As one array in which the pieces and the gaps between them take turns.
        turns = np.empty((count, 2), np.int32)
        turns[:, 0] = starts
        turns[:, 1] = ends
        buffers = [None, pa.py_buffer(turns), pa.py_buffer(self.raw)]
        both = pa.Array.from_buffers(type_, 2 * count - 1, buffers)
        return both.take(pa.array(np.arange(0, 2 * count, 2)))

    def numbers(self, starts: Ints) -> tuple[Ints, int | Ints]:
        """Return the ints or longs that begin at `starts`, and their sizes.

        They are zigzag, seven bits a byte, the lowest first.
        """
        first = self.data[starts]
        if not np.count_nonzero(first > 0x7F):
            return _ONE_BYTE[first], 1
        words = self._words[starts]
        ends = ~words & _HIGH
        end = ends & -ends  # the end of the first byte that is a last one; 0 if none of eight is
        numbers = _joined(words & (end - _1))
        # A power of two as a double has its exponent, here one less than eight times the size,
        # in the bits from 52 on, over a bias of 1023.
        sizes = (end.astype(np.float64).view(np.int64) >> 55) - 127
        if np.count_nonzero(end) < len(end):
            self._lengthen(np.flatnonzero(end == 0), starts, numbers, sizes)
        return (numbers >> _1).view(np.int64) ^ -(numbers & _1).view(np.int64), sizes

    def _lengthen(self, rows: Ints, starts: Ints, numbers: Words, sizes: Ints) -> None:
        """Add the ninth and tenth bytes of the numbers that have them."""
        ninth = self.data[starts[rows] + 8].astype(np.uint64)
        more = ninth > 0x7F
        tenth = self.data[starts[rows] + 9].astype(np.uint64) * more
        if np.count_nonzero(tenth > 1):
            raise AvroError("a number has more than 64 bits")
        numbers[rows] |= (ninth & np.uint64(0x7F)) << np.uint64(56) | tenth << np.uint64(63)
        sizes[rows] = 9 + more


def _overlapping(raw: bytes, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return the value at every byte as a view. Taking some of them copies only those."""
    kind = np.dtype(dtype)
    return np.ndarray(max(0, len(raw) - kind.itemsize + 1), kind, raw, strides=(1,))


def _joined(words: Words) -> Words:
    """Return the lower seven bits of all eight bytes as one number.

    They are joined by twos, then by fours, then all eight.
    """
    words = words & ~_HIGH
    words -= (words & _ODD_7) >> _1
    words -= ((words & _ODD_14) >> _2) * _3
    return words - ((words & _ODD_28) >> _4) * _15


class Cursor:
    """One position per value, and the end of the record that each value is in."""

    __slots__ = ("at", "content", "ends")

    def __init__(self, content: Content, at: Ints, ends: Ints) -> None:
        self.content = content
        self.at = at
        self.ends = ends

    def __len__(self) -> int:
        return len(self.at)

    def select(self, rows: Ints) -> Cursor:
        """Return a cursor of its own for some of the values; see `resume`."""
        return Cursor(self.content, self.at[rows], self.ends[rows])

    def resume(self, rows: Ints, selected: Cursor) -> None:
        """Continue where the selected cursor is now."""
        self.at[rows] = selected.at

    def advance(self, sizes: int | Ints) -> Ints:
        """Move behind values of these sizes, and return where they begin."""
        starts = self.at
        self.at = starts + sizes
        if np.count_nonzero(self.at > self.ends):
            raise AvroError("a value runs past the end of its record")
        return starts

    def numbers(self) -> Ints:
        """Return the next int or long."""
        numbers, sizes = self.content.numbers(self.at)
        self.advance(sizes)
        return numbers

    def lengths(self) -> Ints:
        """Return the next length.

        It is not negative, nor so large that positions wrap around.
        """
        lengths = self.numbers()
        if np.count_nonzero(lengths.view(np.uint64) > len(self.content.raw)):
            raise AvroError("a length is negative, or larger than the content")
        return lengths

    def counts(self) -> Ints:
        """Return how many items the next block of an array or map has; 0 ends the array or map."""
        counts = self.numbers()
        rows = np.flatnonzero(counts < 0)
        if len(rows):  # the block's size in bytes follows, for readers that skip it
            blocks = self.select(rows)
            blocks.numbers()
            self.resume(rows, blocks)
            counts[rows] = -counts[rows]
        # Every item takes a byte; the least of all longs stays negative when it is negated.
        if np.count_nonzero((counts > self.ends - self.at) | (counts < 0)):
            raise AvroError("an array or map claims more items than its record has bytes")
        return counts
