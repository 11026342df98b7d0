"""Bloom filters, as in the footers of base files: may this file hold a record key?

Two encodings, both Hadoop's and both big-endian:

    SIMPLE      int -1 | int hashes | byte 1 | int bits | bits, lowest first in each byte
    DYNAMIC_V0  int -1 | int hashes | byte 1 | int bits | int keys per row | int keys in last row
                | int rows | each row in the SIMPLE form

Hudi writes DYNAMIC_V0 sized for 60,000 keys, 430 KB of text in each file. We write SIMPLE, sized
for the keys there are, which its readers take as well, and DYNAMIC_V0 for a file whose keys come in
batches: to size one row for all of them, all would have to be held in memory. A filter never denies
a key that was put into it: a wrong "no" would duplicate the key. Only Hudi's writers use the filter
of a base file; pyhudi finds records by their buckets. It has filters of its own for what a write
has announced (`storage.objects.marker_filters`), in the SIMPLE form.
"""

from __future__ import annotations

import base64
import math
import struct
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyhudi.errors import CorruptTableError
from pyhudi.format.hashing import murmur_groups

_VERSION = -1
_MURMUR = 1
_HEADER = struct.Struct(">iibi")
_DYNAMIC = struct.Struct(">iii")
_BITS_MAX = 2**31 - 1
_HASHES_MAX = 100  # of a filter that is read


class BloomType(StrEnum):
    """The text of the footer's `hoodie_bloom_filter_type_code`."""

    SIMPLE = "SIMPLE"
    DYNAMIC_V0 = "DYNAMIC_V0"


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """A filter of one or more rows of bits; a key may be present if any row has all its bits."""

    hashes: int
    bits: int
    rows: tuple[bytes, ...]
    keys_per_row: int | None = None  # the last two are known to DYNAMIC_V0 alone
    keys_in_last_row: int | None = None

    @property
    def type_code(self) -> BloomType:
        return BloomType.SIMPLE if self.keys_per_row is None else BloomType.DYNAMIC_V0

    @classmethod
    def of(cls, keys: pa.Array, fpp: float = 1e-9) -> Self:
        """Return a SIMPLE filter of these keys that wrongly says "maybe" with probability fpp."""
        return cls.sized(len(keys), fpp).with_keys(keys)

    @classmethod
    def sized(cls, keys: int, fpp: float) -> Self:
        """Return an empty SIMPLE filter with room for this many keys."""
        hashes, bits = _filter_size(keys, fpp)
        return cls(hashes, bits, (bytes(-(-bits // 8)),))

    def with_keys(self, keys: pa.Array) -> Self:
        """Return the SIMPLE filter with more keys, which it has room for."""
        (row,) = self.rows
        added = _filled(keys, self.hashes, self.bits) | np.frombuffer(row, np.uint8)
        return replace(self, rows=(added.tobytes(),))

    def joined(self, other: Self | None) -> Self | None:
        """Return the SIMPLE filter of the keys of both; None if they are not made alike."""
        if other is None or replace(other, rows=self.rows) != self or len(other.rows) != 1:
            return None
        rows = (np.frombuffer(row, np.uint8) for row in (self.rows[0], other.rows[0]))
        return replace(self, rows=(np.bitwise_or(*rows).tobytes(),))

    def may_have_any(self, keys: pa.Array) -> bool:
        """True if one of the keys may be present."""
        rows = [np.unpackbits(np.frombuffer(r, np.uint8), bitorder="little") for r in self.rows]
        for group in murmur_groups(keys):
            seeds = np.zeros(len(group.rows), np.int32)
            found = np.ones((len(rows), len(group.rows)), np.bool_)
            for _ in range(self.hashes):
                seeds = group.hashes(seeds)
                at = _positions(seeds, self.bits)
                found &= np.stack([row[at] for row in rows]).astype(np.bool_)
            if found.any():
                return True
        return False


class GrowingFilter:
    """A filter whose keys come in batches, none of which is kept.

    The first batch sets the size of a row. A later one fills up the last row and then new ones, as
    long as all rows fit into `bytes_max`. From there on the rows are filled again from the first,
    so that wrong answers become more frequent and memory stays bounded.
    """

    def __init__(self, fpp: float, bytes_max: int = 32 << 20) -> None:
        self._fpp = fpp
        self._bytes_max = bytes_max
        self._hashes = self._bits = self._keys_per_row = self._keys = 0
        self._rows: list[npt.NDArray[np.uint8]] = []

    def add(self, keys: pa.Array) -> None:
        if not self._rows:
            self._hashes, self._bits = _filter_size(len(keys), self._fpp)
            self._keys_per_row = max(len(keys), 1)
        at = 0
        while at < len(keys):
            row, filled = divmod(self._keys, self._keys_per_row)
            piece = keys.slice(at, self._keys_per_row - filled)
            self._fill(row, piece)
            self._keys += len(piece)
            at += len(piece)

    def _fill(self, row: int, keys: pa.Array) -> None:
        bits = _filled(keys, self._hashes, self._bits)
        rows_max = max(self._bytes_max // len(bits), 1)
        if row < rows_max and row == len(self._rows):
            self._rows.append(bits)
        else:
            self._rows[row % rows_max] |= bits

    def filter(self) -> BloomFilter:
        if not self._rows:
            return BloomFilter.of(pa.array([], pa.string()), self._fpp)
        rows = tuple(row.tobytes() for row in self._rows)
        if len(rows) == 1 and self._keys <= self._keys_per_row:
            return BloomFilter(self._hashes, self._bits, rows)
        in_last = (self._keys - 1) % self._keys_per_row + 1
        return BloomFilter(self._hashes, self._bits, rows, self._keys_per_row, in_last)


def _filter_size(keys: int, fpp: float) -> tuple[int, int]:
    """Return how many hashes over how many bits keep wrong answers as rare as fpp."""
    count = max(keys, 1)
    bits = min(math.ceil(count * -math.log(fpp) / math.log(2) ** 2), _BITS_MAX)
    return math.ceil(math.log(2) * bits / count), bits


def _filled(keys: pa.Array, hashes: int, bits: int) -> npt.NDArray[np.uint8]:
    """Return a row with the bits of these keys."""
    present = np.zeros((bits + 7) // 8 * 8, np.bool_)
    for group in murmur_groups(keys):
        seeds = np.zeros(len(group.rows), np.int32)
        for _ in range(hashes):
            seeds = group.hashes(seeds)
            present[_positions(seeds, bits)] = True
    return np.packbits(present, bitorder="little")


def _positions(hashes: npt.NDArray[np.int32], bits: int) -> npt.NDArray[np.int64]:
    """Return Java's `Math.abs(hash % bits)`."""
    return np.abs(hashes.astype(np.int64)) % bits


def encode_bloom_filter(bloom: BloomFilter) -> bytes:
    header = _HEADER.pack(_VERSION, bloom.hashes, _MURMUR, bloom.bits)
    if bloom.keys_per_row is None or bloom.keys_in_last_row is None:
        return header + bloom.rows[0]
    size = _DYNAMIC.pack(bloom.keys_per_row, bloom.keys_in_last_row, len(bloom.rows))
    return header + size + b"".join(header + row for row in bloom.rows)


def decode_bloom_filter(data: bytes, path: str | None, *, bytes_max: int) -> BloomFilter:
    """Return a SIMPLE filter; CorruptTableError if the bytes are none, or too many."""
    if not _HEADER.size < len(data) <= bytes_max:
        raise _damaged(f"it has {len(data):,} bytes", path)
    version, hashes, kind, bits = _HEADER.unpack_from(data)
    row = data[_HEADER.size :]
    if version != _VERSION or kind != _MURMUR:
        raise _damaged("it is of another kind", path)
    if not 0 < hashes <= _HASHES_MAX or not 0 < bits <= 8 * len(row) or len(row) != -(-bits // 8):
        raise _damaged(f"{hashes} hashes of {bits} bits do not fit {len(row):,} bytes", path)
    return BloomFilter(hashes, bits, (row,))


def _damaged(why: str, path: str | None) -> CorruptTableError:
    return CorruptTableError(
        "a bloom filter cannot be read",
        why=why,
        next_step="Look at what it stands for instead",
        path=path,
    )


def bloom_filter_text(bloom: BloomFilter) -> str:
    """Return the base64 text for a footer."""
    return base64.b64encode(encode_bloom_filter(bloom)).decode()
