"""Avro's nested types as columns: unions, records, arrays and maps.

A union splits the positions into those with a value and those without, and spreads the values
over both. An array or map first finds where its items begin, by skipping the next item of all
lists that have one left, and then reads all items as one column. When few lists are left, as in a
small block with long arrays, skipping items one by one is faster than moving few positions
together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.format.avro.cursor import Cursor, Ints
from pyhudi.format.avro.decoding import read_count
from pyhudi.format.avro.leaves import Column, NullColumn, StringColumn
from pyhudi.format.avro.types import AvroError

_FEW: Final = 64  # lists whose items are found one by one
_PLAIN_NULL_SIZE: Final = 16  # of a decimal, the widest of the types that are not composed
_DTYPES: Final = {4: "u4", 8: "u8"}  # numpy moves these faster than other widths

Mask = npt.NDArray[np.bool_]


class UnionColumn(Column):
    """A value or null. The branch number is taken as one byte, since no writer uses more."""

    def __init__(self, branches: Sequence[Column], type_: pa.DataType) -> None:
        self._value: Column = NullColumn()
        self._value_byte = -1
        self._is_null = np.zeros(256, np.bool_)
        for number, branch in enumerate(branches[:64]):
            if isinstance(branch, NullColumn):
                self._is_null[2 * number] = True
            else:
                self._value, self._value_byte = branch, 2 * number
        self._null_bytes = frozenset(np.flatnonzero(self._is_null).tolist())
        self._null_excess = max(0, _null_size(type_) - _PLAIN_NULL_SIZE)

    def read(self, cursor: Cursor) -> pa.Array:
        present = self._present(cursor)
        if present is None:
            return self._value.read(cursor)
        rows = np.flatnonzero(present)
        cursor.content.charge(self._null_excess * (len(present) - len(rows)))
        chosen = cursor.select(rows)
        values = self._value.read(chosen)
        cursor.resume(rows, chosen)
        return _spread(values, present)

    def skip(self, cursor: Cursor) -> None:
        present = self._present(cursor)
        if present is None:
            self._value.skip(cursor)
            return
        rows = np.flatnonzero(present)
        chosen = cursor.select(rows)
        self._value.skip(chosen)
        cursor.resume(rows, chosen)

    def skip_one(self, raw: bytes, at: int) -> int:
        byte = raw[at]
        if byte == self._value_byte:
            return self._value.skip_one(raw, at + 1)
        if byte not in self._null_bytes:
            raise AvroError("a byte is not a branch of its union")
        return at + 1

    def _present(self, cursor: Cursor) -> Mask | None:
        """Return which positions have a value; None if all have."""
        branches = cursor.content.data[cursor.advance(1)]
        present: Mask = branches == self._value_byte
        count = np.count_nonzero(present)
        if count == len(present):
            return None
        if count + np.count_nonzero(self._is_null[branches]) < len(present):
            raise AvroError("a byte is not a branch of its union")
        return present


def _null_size(type_: pa.DataType) -> int:
    """Return about how many bytes a null of the type takes in Arrow."""
    if pa.types.is_struct(type_):
        return sum(_null_size(field.type) for field in type_)
    return int(type_.byte_width) if pa.types.is_fixed_size_binary(type_) else 8


def _spread(values: pa.Array, present: Mask) -> pa.Array:
    """Return the values at the positions that are present, and nulls at the others."""
    type_, count = values.type, len(present)
    valid = pa.py_buffer(np.packbits(present, bitorder="little"))
    if values.null_count == 0 and (pa.types.is_string(type_) or pa.types.is_binary(type_)):
        # A null ends where it begins, so the bytes stay as they are.
        places = np.zeros(count + 1, np.int64)
        np.cumsum(present, out=places[1:])
        _, offsets, data = values.buffers()
        spread = np.frombuffer(offsets, np.int32)[places]
        return pa.Array.from_buffers(type_, count, [valid, pa.py_buffer(spread), data])
    if values.null_count == 0 and _has_slots(type_):
        spread = np.zeros(count, _DTYPES.get(type_.byte_width, f"V{type_.byte_width}"))
        stored = np.frombuffer(values.buffers()[1], spread.dtype, len(values))
        spread[np.flatnonzero(present)] = stored
        return pa.Array.from_buffers(type_, count, [valid, pa.py_buffer(spread)])
    places = np.cumsum(present) - 1
    if not pa.types.is_struct(type_):
        return values.take(pa.array(places, mask=~present))
    # Taking nulls would put nulls into the struct's fields too, which may not be nullable; a null
    # that is built has empty values there.
    places[~present] = len(values)
    return pa.concat_arrays([values, pa.array([None], type_)]).take(pa.array(places))


def _has_slots(type_: pa.DataType) -> bool:
    """True if Arrow stores a value as a number of bytes."""
    fixed = pa.types.is_primitive(type_) and not pa.types.is_boolean(type_)
    return fixed or pa.types.is_decimal(type_) or pa.types.is_fixed_size_binary(type_)


class RecordColumn(Column):
    def __init__(self, fields: Sequence[Column], type_: pa.DataType) -> None:
        self._fields = fields
        self._type = type_

    def read(self, cursor: Cursor) -> pa.Array:
        columns = [field.read(cursor) for field in self._fields]
        return pa.StructArray.from_arrays(columns, fields=list(self._type))

    def skip(self, cursor: Cursor) -> None:
        for field in self._fields:
            field.skip(cursor)

    def skip_one(self, raw: bytes, at: int) -> int:
        for field in self._fields:
            at = field.skip_one(raw, at)
        return at


class ListColumn(Column):
    """Blocks of items, each behind its count; a count of 0 ends the list."""

    def __init__(self, item: Column, type_: pa.DataType) -> None:
        self._item = item
        self._type = type_

    def read(self, cursor: Cursor) -> pa.Array:
        items, counts = self._items(cursor)
        return self._lists(self._item.read(items), counts)

    def _lists(self, items: pa.Array, counts: Ints) -> pa.Array:
        offsets = np.zeros(len(counts) + 1, np.int32)
        np.cumsum(counts, out=offsets[1:])
        buffers = [None, pa.py_buffer(offsets)]
        return pa.Array.from_buffers(self._type, len(counts), buffers, children=[items])

    def skip(self, cursor: Cursor) -> None:
        self._items(cursor)

    def skip_one(self, raw: bytes, at: int) -> int:
        count, at = read_count(raw, at)
        while count:
            for _ in range(count):
                at = self._item.skip_one(raw, at)
            count, at = read_count(raw, at)
        return at

    def _items(self, cursor: Cursor) -> tuple[Cursor, Ints]:
        """Return the items of all lists in order, and how many each list has."""
        cursor.at = cursor.at.copy()  # it is changed in place from here on
        counts = np.zeros(len(cursor), np.int64)
        left = np.zeros(len(cursor), np.int64)  # in the block that the position is in
        rows = np.arange(len(cursor))
        found: list[Ints] = []
        while len(rows) > _FEW:
            rows = self._begun(cursor, rows, left)
            items = cursor.select(rows)
            found.append(items.at)
            self._item.skip(items)
            cursor.resume(rows, items)
            counts[rows] += 1
            left[rows] -= 1
        try:
            found.append(self._found_alone(cursor, rows, left, counts))
        except IndexError:
            raise AvroError("an array or map runs past the end of the content") from None
        # No two values overlap, so the order of positions is the order of lists and items.
        starts = np.sort(np.concatenate(found))
        return Cursor(cursor.content, starts, np.repeat(cursor.ends, counts)), counts

    def _begun(self, cursor: Cursor, rows: Ints, left: Ints) -> Ints:
        """Return the lists that have an item next, after reading every count before it."""
        done = rows[left[rows] == 0]
        if not len(done):
            return rows
        blocks = cursor.select(done)
        left[done] = blocks.counts()
        cursor.resume(done, blocks)
        return rows[left[rows] > 0]

    def _found_alone(self, cursor: Cursor, rows: Ints, left: Ints, counts: Ints) -> Ints:
        """Return where the rest of the items begin, by going through one list after the other."""
        raw, skip_one = cursor.content.raw, self._item.skip_one
        starts: list[int] = []
        stops: list[int] = []
        totals = [0]
        places = (cursor.at[rows], cursor.ends[rows], left[rows])
        for at, end, count in zip(*(place.tolist() for place in places), strict=True):
            while True:
                for _ in range(count):
                    starts.append(at)
                    at = skip_one(raw, at)
                count, at = read_count(raw, at)
                if at > end:
                    raise AvroError("an array or map runs past the end of its record")
                if not count:
                    break
            stops.append(at)
            totals.append(len(starts))
        cursor.at[rows] = stops
        counts[rows] += np.diff(totals)
        return np.array(starts, np.int64)


class MapColumn(ListColumn):
    """A list of keys and values."""

    def __init__(self, value: Column, type_: pa.DataType) -> None:
        entry = pa.struct([type_.key_field, type_.item_field])
        super().__init__(RecordColumn([StringColumn(), value], entry), type_)

    def read(self, cursor: Cursor) -> pa.Array:
        items, counts = self._items(cursor)
        return self._lists(*_with_distinct_keys(self._item.read(items), counts))


def _with_distinct_keys(entries: pa.Array, counts: Ints) -> tuple[pa.Array, Ints]:
    """Return the entries with one per key of each map, the last one, and their counts."""
    keys = entries.field(0).dictionary_encode()
    rows = np.repeat(np.arange(len(counts)), counts)
    pairs = rows * len(keys.dictionary) + keys.indices.to_numpy()
    if pc.count_distinct(pa.array(pairs)).as_py() == len(pairs):
        return entries, counts
    _, last = np.unique(pairs[::-1], return_index=True)
    kept = np.sort(len(pairs) - 1 - last)
    return entries.take(pa.array(kept)), np.bincount(rows[kept], minlength=len(counts))
