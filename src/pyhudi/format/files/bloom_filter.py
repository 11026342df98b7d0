"""Bloom filters in the footers of base files: may this file hold a record key?

Two encodings, both Hadoop's and both big-endian:

    SIMPLE      int -1 | int hashes | byte 1 | int bits | bits, lowest first in each byte
    DYNAMIC_V0  int -1 | int hashes | byte 1 | int bits | int keys per row | int keys in last row
                | int rows | each row in the SIMPLE form

Hudi writes DYNAMIC_V0 sized for 60,000 keys, 430 KB of text in each file. We write SIMPLE, sized
for the keys there are, which its readers take as well, and DYNAMIC_V0 for a file whose keys come
in parts: to size one row for all of them, all would have to be held. A filter never denies a key
that was put into it. So a damaged one is an error and not a "no": a wrong "no" would duplicate
the key.
"""

from __future__ import annotations

import base64
import math
import struct
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyhudi.errors import CorruptTableError
from pyhudi.format.hashing import MurmurGroup, murmur_groups

_VERSION = -1
_MURMUR = 1
_HEADER = struct.Struct(">iibi")
_DYNAMIC = struct.Struct(">iii")
_HASHES_MAX = 255  # 30 serve one false answer in 10^9; more than this is damage
_BITS_MAX = 2**31 - 1


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
        """A SIMPLE filter of these keys that wrongly says "maybe" with probability fpp."""
        hashes, bits = _filter_size(len(keys), fpp)
        return cls(hashes, bits, (_filled(keys, hashes, bits).tobytes(),))

    def might_contain(self, keys: pa.Array) -> pa.BooleanArray:
        """False only where the key was certainly not put in; null counts as empty text."""
        answers = np.zeros(len(keys), np.bool_)
        tables = [np.frombuffer(row, np.uint8) for row in self.rows]
        for group in murmur_groups(keys):
            answers[group.rows] = self._group_answers(group, tables)
        return pa.array(answers)

    def _group_answers(
        self, group: MurmurGroup, tables: list[npt.NDArray[np.uint8]]
    ) -> npt.NDArray[np.bool_]:
        possible = np.ones((len(tables), len(group.rows)), np.bool_)
        seeds = np.zeros(len(group.rows), np.int32)
        for _ in range(self.hashes):
            seeds = group.hashes(seeds)
            positions = _positions(seeds, self.bits)
            byte, bit = positions >> 3, (positions & 7).astype(np.uint8)
            for row, table in enumerate(tables):
                possible[row] &= (table[byte] >> bit & 1).astype(np.bool_)
            if not possible.any():
                break
        answers: npt.NDArray[np.bool_] = np.logical_or.reduce(possible)
        return answers


class GrowingFilter:
    """A filter whose keys come in parts, none of which is kept.

    The first part sets the size of a row. A later part fills up the last row and then new ones, as
    long as all rows fit into `bytes_max`; from there on the rows are filled again from the first,
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
    """How many hashes over how many bits keep wrong answers as rare as fpp."""
    count = max(keys, 1)
    bits = min(math.ceil(count * -math.log(fpp) / math.log(2) ** 2), _BITS_MAX)
    return math.ceil(math.log(2) * bits / count), bits


def _filled(keys: pa.Array, hashes: int, bits: int) -> npt.NDArray[np.uint8]:
    """A row with the bits of these keys."""
    present = np.zeros((bits + 7) // 8 * 8, np.bool_)
    for group in murmur_groups(keys):
        seeds = np.zeros(len(group.rows), np.int32)
        for _ in range(hashes):
            seeds = group.hashes(seeds)
            present[_positions(seeds, bits)] = True
    return np.packbits(present, bitorder="little")


def _positions(hashes: npt.NDArray[np.int32], bits: int) -> npt.NDArray[np.int64]:
    """Java's `Math.abs(hash % bits)`."""
    return np.abs(hashes.astype(np.int64)) % bits


def encode_bloom_filter(bloom: BloomFilter) -> bytes:
    header = _HEADER.pack(_VERSION, bloom.hashes, _MURMUR, bloom.bits)
    if bloom.keys_per_row is None or bloom.keys_in_last_row is None:
        return header + bloom.rows[0]
    size = _DYNAMIC.pack(bloom.keys_per_row, bloom.keys_in_last_row, len(bloom.rows))
    return header + size + b"".join(header + row for row in bloom.rows)


def decode_bloom_filter(data: bytes, type_code: BloomType, path: str | None = None) -> BloomFilter:
    """CorruptTableError unless the bytes are exactly one filter of the type."""
    hashes, bits = _decoded_header(data, 0, path)
    row_bytes = _HEADER.size + (bits + 7) // 8
    if type_code is BloomType.SIMPLE:
        _expect_length(data, row_bytes, path)
        return BloomFilter(hashes, bits, (data[_HEADER.size :],))
    first = _HEADER.size + _DYNAMIC.size
    if len(data) < first:
        raise _damaged("it ends within its header", path)
    keys_per_row, keys_in_last_row, count = _DYNAMIC.unpack_from(data, _HEADER.size)
    if count < 1:
        raise _damaged(f"it has {count} rows", path)
    _expect_length(data, first + count * row_bytes, path)
    rows = []
    for at in range(first, len(data), row_bytes):
        if _decoded_header(data, at, path) != (hashes, bits):
            raise _damaged("its rows differ in size", path)
        rows.append(data[at + _HEADER.size : at + row_bytes])
    return BloomFilter(hashes, bits, tuple(rows), keys_per_row, keys_in_last_row)


def _decoded_header(data: bytes, at: int, path: str | None) -> tuple[int, int]:
    if len(data) < at + _HEADER.size:
        raise _damaged("it ends within its header", path)
    version, hashes, hash_type, bits = _HEADER.unpack_from(data, at)
    if (version, hash_type) != (_VERSION, _MURMUR):
        raise _damaged(f"version {version} with hash type {hash_type} is not known", path)
    if not (1 <= hashes <= _HASHES_MAX and bits >= 1):
        raise _damaged(f"it claims {hashes} hashes over {bits} bits", path)
    return hashes, bits


def _expect_length(data: bytes, expected: int, path: str | None) -> None:
    if len(data) != expected:
        raise _damaged(f"it has {len(data)} bytes and should have {expected}", path)


def _damaged(why: str, path: str | None) -> CorruptTableError:
    return CorruptTableError(
        "A bloom filter cannot be used",
        why=why,
        next_step="Read without it, and rewrite the file by compaction or clustering",
        path=path,
    )


def parse_bloom_filter(text: str, type_code: str, path: str | None = None) -> BloomFilter:
    """From the texts of a footer; that of the filter is base64."""
    if type_code not in tuple(BloomType):
        raise _damaged(f"its type {type_code[:40]!r} is not known", path)
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        raise _damaged("it is not base64", path) from None
    return decode_bloom_filter(data, BloomType(type_code), path)


def bloom_filter_text(bloom: BloomFilter) -> str:
    """The base64 text for a footer."""
    return base64.b64encode(encode_bloom_filter(bloom)).decode()
