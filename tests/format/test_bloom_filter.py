"""Bloom filters: exact bytes, and never a wrong "no"."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from footers import bloom_filter, possible_keys, read_filter, read_footer
from golden_tables import NAMES, GoldenTables
from pyhudi.format.files.bloom_filter import (
    BloomFilter,
    BloomType,
    GrowingFilter,
    bloom_filter_text,
    encode_bloom_filter,
)
from single_hashes import murmur2_hash

ABSENT = [f"absent {i}" for i in range(2000)]


def record_keys(path: Path) -> list[str]:
    keys = pq.ParquetFile(path).read(columns=["_hoodie_record_key"]).column(0)
    return list(keys.to_pylist())


@pytest.mark.parametrize("name", NAMES)
def test_golden_filters_hold_every_key_of_their_file_and_round_trip(
    golden: GoldenTables, name: str
) -> None:
    for path in golden.path(name).rglob("*.parquet"):
        if ".hoodie" in path.parts:
            continue
        footer = read_footer(pq.read_metadata(path).metadata)
        bloom = bloom_filter(footer)
        keys = record_keys(path)
        assert possible_keys(bloom, keys) == keys
        assert not possible_keys(bloom, ABSENT)
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
    assert possible_keys(bloom, keys) == keys
    assert read_filter(encode_bloom_filter(bloom), BloomType.SIMPLE) == bloom


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
    keys = [key for part in parts for key in part]
    assert possible_keys(bloom, keys) == keys
    assert read_filter(encode_bloom_filter(bloom), bloom.type_code) == bloom


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
    assert len(possible_keys(bloom, ABSENT)) < 40


def test_a_filter_never_outgrows_its_bound() -> None:
    bloom = in_parts(100_000, 1_000, bytes_max=20_000)
    assert sum(map(len, bloom.rows)) <= 20_000
    assert len(bloom.rows) > 1


def test_hudi_sizes_are_reproduced() -> None:
    bloom = BloomFilter.of(pa.array([str(i) for i in range(60_000)]), fpp=1e-9)
    assert (bloom.hashes, bloom.bits) == (30, 2587966)


def test_wrong_answers_are_as_rare_as_asked() -> None:
    bloom = BloomFilter.of(pa.array([f"present {i}" for i in range(2000)]), fpp=0.05)
    assert 20 < len(possible_keys(bloom, ABSENT)) < 250


def test_a_key_is_sought_in_every_row_of_a_dynamic_filter() -> None:
    ones, twos = pa.array(["a", "b"]), pa.array(["c", "d"])
    first, second = BloomFilter.of(ones, fpp=1e-6), BloomFilter.of(twos, fpp=1e-6)
    both = BloomFilter(first.hashes, first.bits, first.rows + second.rows, 2, 2)
    assert possible_keys(both, ["a", "b", "c", "d", "e"]) == ["a", "b", "c", "d"]
    assert read_filter(encode_bloom_filter(both), BloomType.DYNAMIC_V0) == both


def test_the_empty_filter_holds_nothing() -> None:
    bloom = BloomFilter.of(pa.array([], pa.string()))
    assert not possible_keys(bloom, ABSENT)
