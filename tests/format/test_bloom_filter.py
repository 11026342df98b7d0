"""Bloom filters: exact bytes, and never a wrong "no"."""

from __future__ import annotations

import base64
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden_tables import NAMES, GoldenTables
from pyhudi.errors import CorruptTableError
from pyhudi.format.files.base_file import decode_footer
from pyhudi.format.files.bloom_filter import (
    BloomFilter,
    BloomType,
    GrowingFilter,
    bloom_filter_text,
    decode_bloom_filter,
    encode_bloom_filter,
    parse_bloom_filter,
)
from pyhudi.format.hashing import murmur2_hash

ABSENT = pa.array([f"absent {i}" for i in range(2000)])


def record_keys(path: Path) -> pa.Array:
    return pq.ParquetFile(path).read(columns=["_hoodie_record_key"]).column(0).combine_chunks()


@pytest.mark.parametrize("name", NAMES)
def test_golden_filters_hold_every_key_of_their_file_and_round_trip(
    golden: GoldenTables, name: str
) -> None:
    for path in golden.path(name).rglob("*.parquet"):
        if ".hoodie" in path.parts:
            continue
        footer = decode_footer(pq.read_metadata(path).metadata)
        bloom = footer.bloom_filter()
        assert bloom is not None
        keys = record_keys(path)
        assert bloom.might_contain(keys).true_count == len(keys)
        assert bloom.might_contain(ABSENT).true_count == 0
        assert bloom_filter_text(bloom) == footer.bloom
        assert bloom.type_code == footer.bloom_type


def positions(key: str, bloom: BloomFilter) -> set[int]:
    """The format's rule, one key and one hash at a time."""
    seed, found = 0, set()
    for _ in range(bloom.hashes):
        seed = murmur2_hash(key.encode(), seed)
        found.add(abs(seed) % bloom.bits)
    return found


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), max_size=30))
def test_a_filter_has_exactly_the_bits_of_its_keys(keys: list[str]) -> None:
    bloom = BloomFilter.of(pa.array(keys, pa.string()), fpp=0.01)
    expected = set().union(*(positions(key, bloom) for key in keys))
    bits = {i for i in range(bloom.bits) if bloom.rows[0][i >> 3] >> (i & 7) & 1}
    assert bits == expected
    assert bloom.might_contain(pa.array(keys, pa.string())).true_count == len(keys)
    assert decode_bloom_filter(encode_bloom_filter(bloom), BloomType.SIMPLE) == bloom


KEY_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(KEY_TEXTS, max_size=30), max_size=8), st.sampled_from([1, 100, 32 << 20]))
def test_a_filter_of_keys_in_parts_denies_none_of_them(
    parts: list[list[str]], bytes_max: int
) -> None:
    growing = GrowingFilter(0.01, bytes_max)
    for part in parts:
        growing.add(pa.array(part, pa.string()))
    bloom = growing.filter()
    keys = pa.array([key for part in parts for key in part], pa.string())
    assert bloom.might_contain(keys).true_count == len(keys)
    assert decode_bloom_filter(encode_bloom_filter(bloom), bloom.type_code) == bloom


def in_parts(count: int, size: int, bytes_max: int = 32 << 20) -> BloomFilter:
    growing = GrowingFilter(0.001, bytes_max)
    for start in range(0, count, size):
        growing.add(pa.array([f"present {i}" for i in range(start, start + size)]))
    return growing.filter()


def test_keys_in_one_part_make_the_filter_of_keys_at_once() -> None:
    at_once = BloomFilter.of(pa.array([f"present {i}" for i in range(500)]), 0.001)
    assert in_parts(500, 500) == at_once


def test_keys_in_parts_fill_one_row_after_the_other() -> None:
    growing = GrowingFilter(0.001)
    for size in (100, 60, 60, 30):
        growing.add(pa.array([f"present {size} {i}" for i in range(size)]))
    bloom = growing.filter()
    assert (len(bloom.rows), bloom.keys_per_row, bloom.keys_in_last_row) == (3, 100, 50)
    assert bloom.might_contain(ABSENT).true_count < 40


def test_a_filter_never_outgrows_its_bound() -> None:
    bloom = in_parts(100_000, 1_000, bytes_max=20_000)
    assert sum(map(len, bloom.rows)) <= 20_000
    assert len(bloom.rows) > 1


def test_hudi_sizes_are_reproduced() -> None:
    bloom = BloomFilter.of(pa.array([str(i) for i in range(60_000)]), fpp=1e-9)
    assert (bloom.hashes, bloom.bits) == (30, 2587966)


def test_wrong_answers_are_as_rare_as_asked() -> None:
    bloom = BloomFilter.of(pa.array([f"present {i}" for i in range(2000)]), fpp=0.05)
    assert 20 < bloom.might_contain(ABSENT).true_count < 250


def test_a_key_is_sought_in_every_row_of_a_dynamic_filter() -> None:
    ones, twos = pa.array(["a", "b"]), pa.array(["c", "d"])
    first, second = BloomFilter.of(ones, fpp=1e-6), BloomFilter.of(twos, fpp=1e-6)
    both = BloomFilter(first.hashes, first.bits, first.rows + second.rows, 2, 2)
    assert both.might_contain(pa.array(["a", "b", "c", "d", "e"])).to_pylist() == [True] * 4 + [
        False
    ]
    assert decode_bloom_filter(encode_bloom_filter(both), BloomType.DYNAMIC_V0) == both


def test_the_empty_filter_holds_nothing() -> None:
    bloom = BloomFilter.of(pa.array([], pa.string()))
    assert bloom.might_contain(ABSENT).true_count == 0
    assert len(bloom.might_contain(pa.array([], pa.string()))) == 0


SIMPLE = encode_bloom_filter(BloomFilter.of(pa.array(["a", "b"])))
BLOOM = decode_bloom_filter(SIMPLE, BloomType.SIMPLE)
DYNAMIC = encode_bloom_filter(BloomFilter(BLOOM.hashes, BLOOM.bits, BLOOM.rows * 2, 2, 2))


@pytest.mark.parametrize(
    ("data", "type_code"),
    [
        (b"", "SIMPLE"),
        (SIMPLE[:12], "SIMPLE"),
        (SIMPLE[:-1], "SIMPLE"),
        (SIMPLE + b"\0", "SIMPLE"),
        (b"\0" + SIMPLE[1:], "SIMPLE"),  # another version
        (SIMPLE[:8] + b"\0" + SIMPLE[9:], "SIMPLE"),  # another hash
        (SIMPLE[:4] + b"\x7f\xff\xff\xff" + SIMPLE[8:], "SIMPLE"),  # would hash for hours
        (SIMPLE[:4] + b"\0\0\0\0" + SIMPLE[8:], "SIMPLE"),
        (SIMPLE[:9] + b"\x7f\xff\xff\xff" + SIMPLE[13:], "SIMPLE"),  # more bits than there are
        (SIMPLE[:9] + b"\xff\xff\xff\xff" + SIMPLE[13:], "SIMPLE"),
        (DYNAMIC, "SIMPLE"),
        (SIMPLE, "DYNAMIC_V0"),
        (DYNAMIC[:20], "DYNAMIC_V0"),
        (DYNAMIC[:-1], "DYNAMIC_V0"),
        (DYNAMIC[:21] + b"\x7f\xff\xff\xff" + DYNAMIC[25:], "DYNAMIC_V0"),  # rows
        (DYNAMIC[:21] + b"\0\0\0\0" + DYNAMIC[25:], "DYNAMIC_V0"),
        (DYNAMIC[:29] + b"\0\0\0\x09" + DYNAMIC[33:], "DYNAMIC_V0"),  # rows that differ
        (SIMPLE, "FANCY"),
    ],
)
def test_damaged_filters_are_refused(data: bytes, type_code: str) -> None:
    with pytest.raises(CorruptTableError, match="bloom filter") as caught:
        parse_bloom_filter(base64.b64encode(data).decode(), type_code, path="a.parquet")
    assert caught.value.path == "a.parquet"


@pytest.mark.parametrize("text", ["=", "a", "____", "é"])
def test_text_that_is_not_base64_is_refused(text: str) -> None:
    with pytest.raises(CorruptTableError, match="bloom filter"):
        parse_bloom_filter(text, "SIMPLE")
