"""The hashes that the format fixes, over whole Arrow arrays at once.

- Java's `String.hashCode` and `List.hashCode`: the simple bucket index;
- xxHash32: the ring of the consistent bucket index;
- Hadoop's MurmurHash2: bloom filters.

None of them loops over rows in Python. Java's hashes are polynomials in 31 modulo 2^32, and 31 has
an inverse there. So each unit is multiplied by a power of that inverse, one running sum is taken
over all strings, and the difference of two sums, times a power of 31, is the hash of the units
between. So the cost does not depend on the distribution of lengths. xxHash32 and MurmurHash2 go by
words of four bytes; there all rows of one length take each step together.

All arithmetic is on 32-bit words that wrap silently, as it does in Java. A null counts as 0, as in
Java's list hash, or as empty text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from pyhudi.errors import CorruptTableError

Int32s: TypeAlias = npt.NDArray[np.int32]
UInt32s: TypeAlias = npt.NDArray[np.uint32]
Rows: TypeAlias = npt.NDArray[np.int64]  # row numbers, or offsets of rows
Bytes: TypeAlias = npt.NDArray[np.uint8]

_WORD_MASK = 0xFFFFFFFF
_BLOCK_UNITS = 1 << 16  # outweighs the cost of a call, and stays in the processor's cache
_GROUP_ROWS = 1 << 15
_XXHASH_LENGTH_MAX = 1024  # longer texts are rare, and C hashes each in less than one numpy step


def xxhash32(data: bytes) -> int:
    """Return the unsigned xxHash32 of the bytes with seed 0."""
    return xxhash.xxh32_intdigest(data)


# Java's hashes.


def java_string_hashes(texts: pa.Array) -> Int32s:
    """Return Java's `String.hashCode` of each text; 0 for null."""
    data, offsets = _utf8(texts)
    result = np.empty(len(texts), np.uint32)
    for first, last in _blocks(offsets):
        block, within = data[offsets[first] : offsets[last]], offsets[first : last + 1]
        within = within - within[0]
        if block.size and block.max() >= 0x80:
            result[first:last] = _polynomials(*_utf16(block, within))
        else:
            result[first:last] = _polynomials(block, within)
    if texts.null_count:
        result[texts.is_null().to_numpy(zero_copy_only=False)] = 0
    return result.view(np.int32)


def java_list_hashes(lists: pa.ListArray) -> Int32s:
    """Return Java's `List.hashCode` of each list of texts, none of which is null itself."""
    elements = java_string_hashes(lists.flatten()).view(np.uint32)
    offsets = lists.offsets.to_numpy().astype(np.int64)
    offsets = offsets - offsets[0]
    result = np.empty(len(lists), np.uint32)
    for first, last in _blocks(offsets):
        within = offsets[first : last + 1]
        block = elements[within[0] : within[-1]]
        result[first:last] = _polynomials(block, within - within[0])
    lengths = np.diff(offsets)
    result += _powers(31, int(lengths.max(initial=0)) + 1)[lengths]
    return result.view(np.int32)


def _polynomials(units: npt.NDArray[np.unsignedinteger], offsets: Rows) -> UInt32s:
    """Return the sum of unit · 31^(units that follow) over each range between two offsets."""
    sums = np.zeros(units.size + 1, np.uint32)
    scaled = np.multiply(units, _powers(_INVERSE_31, units.size + 1)[1:], dtype=np.uint32)
    np.cumsum(scaled, out=sums[1:], dtype=np.uint32)
    between: UInt32s = sums[offsets[1:]] - sums[offsets[:-1]]
    between *= _powers(31, units.size + 1)[offsets[1:]]
    return between


def _powers(base: int, count: int) -> UInt32s:
    """Return base^0, base^1, … modulo 2^32, at least as many as `count`."""
    if count <= _BLOCK_UNITS + 1:
        return _block_powers(base)[:count]
    return _fresh_powers(base, count)


@lru_cache(maxsize=2)
def _block_powers(base: int) -> UInt32s:
    return _fresh_powers(base, _BLOCK_UNITS + 1)


def _fresh_powers(base: int, count: int) -> UInt32s:
    factors = np.full(count, base, np.uint32)
    factors[0] = 1
    powers: UInt32s = np.multiply.accumulate(factors, dtype=np.uint32)
    return powers


_INVERSE_31 = pow(31, -1, 1 << 32)


def _blocks(offsets: Rows) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows with at most `_BLOCK_UNITS` units, or with one longer row."""
    first, rows = 0, len(offsets) - 1
    while first < rows:
        fitting = int(np.searchsorted(offsets, offsets[first] + _BLOCK_UNITS, side="right")) - 1
        last = max(fitting, first + 1)
        yield first, last
        first = last


def _utf16(block: Bytes, offsets: Rows) -> tuple[npt.NDArray[np.uint16], Rows]:
    """Return the same texts as UTF-16 units, with the offsets counted in units."""
    try:
        encoded = block.tobytes().decode("utf-8").encode("utf-16-le")
    except UnicodeDecodeError:
        raise CorruptTableError(
            "a record key cannot be hashed",
            why="its bytes are not UTF-8",
            next_step="Find the writer of this key; the file itself may be damaged",
        ) from None
    # Every byte but a continuation begins a unit; one that begins four bytes begins two units.
    begun = ((block & 0xC0) != 0x80).astype(np.int64) + (block >= 0xF0)
    units_before = np.zeros(block.size + 1, np.int64)
    np.cumsum(begun, out=units_before[1:])
    return np.frombuffer(encoded, "<u2"), units_before[offsets]


def has_astral_characters(texts: pa.Array) -> bool:
    """True if some character takes two UTF-16 units, so that Java's order is not that of bytes."""
    return bool(utf8_bytes(texts).max(initial=0) >= 0xF0)


def utf8_bytes(texts: pa.Array) -> Bytes:
    """Return the bytes of all texts, one after another, so that one search covers all texts."""
    data, offsets = _utf8(texts)
    return data[offsets[0] : offsets[-1]]


def _utf8(texts: pa.Array) -> tuple[Bytes, Rows]:
    """Return the bytes of all texts and where each begins, without a copy where Arrow allows it."""
    if texts.type not in (pa.string(), pa.large_string()):
        texts = texts.cast(pa.large_string())
    _, offsets_buffer, data_buffer = texts.buffers()
    if len(texts) == 0 or offsets_buffer is None:
        return np.zeros(0, np.uint8), np.zeros(len(texts) + 1, np.int64)
    width = np.int32 if texts.type == pa.string() else np.int64
    offsets = np.frombuffer(offsets_buffer, width)[texts.offset : texts.offset + len(texts) + 1]
    data = np.zeros(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    return data, offsets.astype(np.int64)


# Hashes that go by words of four bytes.


def xxhash32s(texts: pa.Array) -> UInt32s:
    """Return the xxHash32, seed 0, of each text's UTF-8 bytes; null counts as empty."""
    data, offsets = _utf8(texts)
    result = np.empty(len(texts), np.uint32)
    for length, rows in _by_length(_lengths(texts, offsets)):
        starts = offsets[rows]
        if length > _XXHASH_LENGTH_MAX:
            result[rows] = [xxhash32(data[at : at + length].tobytes()) for at in starts.tolist()]
        else:
            result[rows] = _xxhash32_of_length(data, starts, length)
    return result


_P1, _P2, _P3, _P4, _P5 = (
    np.uint32(prime) for prime in (2654435761, 2246822519, 3266489917, 668265263, 374761393)
)
_XXHASH_LANES = (
    (_WORD_MASK & (2654435761 + 2246822519), 1),
    (2246822519, 7),
    (0, 12),
    (_WORD_MASK & -2654435761, 18),
)


def _xxhash32_of_length(data: Bytes, starts: Rows, length: int) -> UInt32s:
    words = _words(data)
    result = np.full(len(starts), _P5 if length < 16 else 0, np.uint32)
    whole = length & ~15
    for lane, (begin, rotation) in enumerate(_XXHASH_LANES if whole else ()):
        state = np.full(len(starts), begin, np.uint32)
        for at in range(4 * lane, whole, 16):
            state = _rotated(state + words[starts + at] * _P2, 13) * _P1
        result += _rotated(state, rotation)
    result += np.uint32(length)
    for at in range(whole, length & ~3, 4):
        result = _rotated(result + words[starts + at] * _P3, 17) * _P4
    for at in range(length & ~3, length):
        result = _rotated(result + data[starts + at].astype(np.uint32) * _P5, 11) * _P1
    result = (result ^ result >> np.uint32(15)) * _P2
    result = (result ^ result >> np.uint32(13)) * _P3
    return result ^ result >> np.uint32(16)


def _rotated(words: UInt32s, bits: int) -> UInt32s:
    return words << np.uint32(bits) | words >> np.uint32(32 - bits)


@dataclass(frozen=True, slots=True)
class MurmurGroup:
    """Texts of one length, hashed as far as MurmurHash2 can go before it knows the seed.

    A bloom filter hashes each key dozens of times, each time with the last result as the seed.
    """

    rows: Rows  # which texts these are
    length: int
    words: tuple[UInt32s, ...]  # already mixed
    tail: UInt32s | None  # the last one to three bytes

    @classmethod
    def of(cls, data: Bytes, starts: Rows, rows: Rows, length: int) -> Self:
        words = _words(data)
        whole = length & ~3
        mixed = tuple(_murmur_mixed(words[starts + at]) for at in range(0, whole, 4))
        tail = None
        for at in range(whole, length):
            signed = data[starts + at].view(np.int8).astype(np.int32).view(np.uint32)
            shifted = signed << np.uint32(8 * (length - 1 - at))
            tail = shifted if tail is None else tail ^ shifted
        return cls(rows, length, mixed, tail)

    def hashes(self, seeds: Int32s) -> Int32s:
        """Return one result per row of this group."""
        result = seeds.view(np.uint32) ^ np.uint32(self.length)
        for word in self.words:
            result *= _M
            result ^= word
        if self.tail is not None:
            result ^= self.tail
            result *= _M
        result ^= result >> np.uint32(13)
        result *= _M
        result ^= result >> np.uint32(15)
        return result.view(np.int32)


_M = np.uint32(0x5BD1E995)


def _murmur_mixed(words: UInt32s) -> UInt32s:
    words = words * _M
    return (words ^ words >> np.uint32(24)) * _M


def murmur_groups(texts: pa.Array) -> Iterator[MurmurGroup]:
    """Yield all texts in groups of one length; null counts as empty."""
    data, offsets = _utf8(texts)
    for length, rows in _by_length(_lengths(texts, offsets)):
        yield MurmurGroup.of(data, offsets[rows], rows, length)


def _words(data: Bytes) -> UInt32s:
    """Return the little-endian word that begins at each byte.

    It is a view, so that collecting words is one step.
    """
    if data.size < 4:
        return np.zeros(0, np.uint32)
    return np.ndarray((data.size - 3,), "<u4", data, strides=(1,))


def _lengths(texts: pa.Array, offsets: Rows) -> Rows:
    lengths = np.diff(offsets)
    if texts.null_count:
        lengths[texts.is_null().to_numpy(zero_copy_only=False)] = 0
    return lengths


def _by_length(lengths: Rows) -> Iterator[tuple[int, Rows]]:
    """Yield each length with the numbers of the rows that have it, a bounded number at a time."""
    narrow = np.min_scalar_type(int(lengths.max(initial=0)))  # numpy sorts short numbers by radix
    order = np.argsort(lengths.astype(narrow), kind="stable")
    ordered = lengths[order]
    ends = np.flatnonzero(np.diff(ordered, append=-1)) + 1
    first = 0
    for end in ends.tolist():
        for at in range(first, end, _GROUP_ROWS):
            rows = order[at : min(at + _GROUP_ROWS, end)]
            yield int(ordered[at]), rows
        first = end
