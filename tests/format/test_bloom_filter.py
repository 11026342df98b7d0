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
from pyhudi.format.base_file import decode_footer
from pyhudi.format.bloom_filter import (
    BloomFilter,
    BloomType,
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
