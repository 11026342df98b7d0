"""The hashes that the format fixes, one value at a time: what the array versions are held to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_WORD_MASK = 0xFFFFFFFF
_MURMUR_M = 0x5BD1E995


def java_string_hash(text: str) -> int:
    """Return Java's `String.hashCode`: over UTF-16 units, so an astral character counts as two."""
    result = 0
    for unit in np.frombuffer(text.encode("utf-16-le"), "<u2").tolist():
        result = (31 * result + unit) & _WORD_MASK
    return _signed(result)


def java_list_hash(values: Sequence[str | None]) -> int:
    """Return Java's `List.hashCode` of strings; null counts as 0."""
    result = 1
    for value in values:
        element = 0 if value is None else java_string_hash(value)
        result = (31 * result + element) & _WORD_MASK
    return _signed(result)


def murmur2_hash(data: bytes, seed: int = 0) -> int:
    """Return Hadoop's MurmurHash2: the last one to three bytes enter reversed and with a sign."""
    result = (seed ^ len(data)) & _WORD_MASK
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MURMUR_M & _WORD_MASK
        word = (word ^ word >> 24) * _MURMUR_M & _WORD_MASK
        result = (result * _MURMUR_M & _WORD_MASK) ^ word
    for shift, byte in zip((0, 8, 16), reversed(data[whole:]), strict=False):
        result ^= ((byte ^ 0x80) - 0x80) << shift & _WORD_MASK
    if whole < len(data):
        result = result * _MURMUR_M & _WORD_MASK
    result = (result ^ result >> 13) * _MURMUR_M & _WORD_MASK
    return _signed(result ^ result >> 15)


def _signed(word: int) -> int:
    return word - (1 << 32) if word >> 31 else word
