"""What Hudi finds in a base file's footer: its entries, and what the bloom filter answers."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Mapping

from pyhudi.format.files.base_file import (
    AVRO_SCHEMA,
    BLOOM_FILTER,
    BLOOM_TYPE,
    MAX_RECORD_KEY,
    MIN_RECORD_KEY,
    BaseFileFooter,
)
from pyhudi.format.files.bloom_filter import BloomFilter
from single_hashes import murmur2_hash

_HEADER = struct.Struct(">iibi")
_ROWS = struct.Struct(">iii")


def read_footer(metadata: Mapping[bytes, bytes]) -> BaseFileFooter:
    """Return Hudi's entries among the key-value metadata of a parquet file."""
    keys = (AVRO_SCHEMA, BLOOM_FILTER, BLOOM_TYPE, MIN_RECORD_KEY, MAX_RECORD_KEY)
    return BaseFileFooter(*(metadata[key].decode() if key in metadata else None for key in keys))


def bloom_filter(footer: BaseFileFooter) -> BloomFilter:
    """Return the filter of a footer that has one, of either type."""
    assert footer.bloom is not None
    return read_filter(base64.b64decode(footer.bloom, validate=True), footer.bloom_type or "SIMPLE")


def read_filter(data: bytes, type_code: str) -> BloomFilter:
    """Return the filter that the bytes are."""
    version, hashes, hash_type, bits = _HEADER.unpack_from(data)
    assert (version, hash_type) == (-1, 1)
    if type_code == "SIMPLE":
        return BloomFilter(hashes, bits, (data[_HEADER.size :],))
    keys_per_row, keys_in_last_row, count = _ROWS.unpack_from(data, _HEADER.size)
    size = _HEADER.size + (bits + 7) // 8
    starts = range(_HEADER.size + _ROWS.size, len(data), size)
    rows = tuple(data[at + _HEADER.size : at + size] for at in starts)
    assert len(rows) == count
    return BloomFilter(hashes, bits, rows, keys_per_row, keys_in_last_row)


def possible_keys(bloom: BloomFilter, keys: Iterable[str]) -> list[str]:
    """Return those of the keys that the filter does not deny."""
    return [key for key in keys if any(_has(bloom, row, key) for row in bloom.rows)]


def _has(bloom: BloomFilter, row: bytes, key: str) -> bool:
    seed = 0
    for _ in range(bloom.hashes):
        seed = murmur2_hash(key.encode(), seed)
        at = abs(seed) % bloom.bits
        if not row[at >> 3] >> (at & 7) & 1:
            return False
    return True
