"""The hashes that the format fixes: arrays give what single values give."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.errors import CorruptTableError
from pyhudi.format.hashing import (
    has_astral_characters,
    java_list_hashes,
    java_string_hashes,
    murmur_groups,
    xxhash32,
    xxhash32s,
)
from single_hashes import java_list_hash, java_string_hash, murmur2_hash


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -2147483648),
        ("é", 233),
        ("€", 8364),
        ("😀", 1772899),  # two units, 0xD83D and 0xDE00
    ],
)
def test_java_string_hash_is_known(text: str, result: int) -> None:
    assert java_string_hash(text) == result
    assert java_string_hashes(pa.array([text])).tolist() == [result]


@pytest.mark.parametrize(
    ("data", "result"),
    [
        (b"", 0x02CC5D05),
        (b"a", 0x550D7456),
        (b"Nobody inspects the spammish repetition", 0xE2293B2F),
    ],
)
def test_xxhash32_is_known(data: bytes, result: int) -> None:
    assert xxhash32(data) == result
    assert xxhash32s(pa.array([data.decode()])).tolist() == [result]


def test_recorded_hashes_are_reproduced(vectors: Path) -> None:
    simple = json.loads((vectors / "simple_bucket.json").read_bytes())["vectors"]
    answered = [vector for vector in simple if "extracted" in vector]
    lists = pa.array([vector["extracted"] for vector in answered], pa.list_(pa.string()))
    expected = [vector["list_hash_code"] for vector in answered]
    assert java_list_hashes(lists).tolist() == expected
    assert [java_list_hash(vector["extracted"]) for vector in answered] == expected
    ring = json.loads((vectors / "consistent_bucket.json").read_bytes())["vectors"]
    joined = pa.array([vector["joined"] for vector in ring])
    signed = xxhash32s(joined).view(np.int32).tolist()
    assert signed == [vector["xxhash32_signed"] for vector in ring]


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=70)
nullable = st.lists(texts | st.none(), max_size=30)
arrow_types = st.sampled_from(
    [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())]
)


def sliced(values: list[str | None], arrow_type: pa.DataType) -> pa.Array:
    """The values as a slice from the middle of an array, where careless code goes wrong."""
    return pa.array(["first", *values, "last"], arrow_type)[1:-1]


def murmur2_hashes(texts: pa.Array, seeds: np.ndarray) -> np.ndarray:
    result = np.empty(len(texts), np.int32)
    for group in murmur_groups(texts):
        result[group.rows] = group.hashes(seeds[group.rows])
    return result


@settings(deadline=None)
@given(nullable, arrow_types)
def test_arrays_hash_as_single_values_do(values: list[str | None], arrow_type: pa.DataType) -> None:
    array = sliced(values, arrow_type)
    encoded = [(value or "").encode() for value in values]
    seeds = np.arange(-3, len(values) - 3, dtype=np.int32) * 1_000_003
    assert java_string_hashes(array).tolist() == [java_string_hash(v or "") for v in values]
    assert xxhash32s(array).tolist() == [xxhash32(data) for data in encoded]
    assert murmur2_hashes(array, seeds).tolist() == [
        murmur2_hash(data, seed) for data, seed in zip(encoded, seeds.tolist(), strict=True)
    ]


@settings(deadline=None)
@given(st.lists(st.lists(texts | st.none(), max_size=4), max_size=20))
def test_lists_hash_as_single_lists_do(lists: list[list[str | None]]) -> None:
    array = pa.array([["first"], *lists, ["last"]], pa.list_(pa.string()))[1:-1]
    assert java_list_hashes(array).tolist() == [java_list_hash(values) for values in lists]


HASHES: list[Callable[[pa.Array], np.ndarray]] = [
    java_string_hashes,
    xxhash32s,
    lambda array: murmur2_hashes(array, np.zeros(len(array), np.int32)),
]
SINGLE: list[Callable[[str], int]] = [
    java_string_hash,
    lambda text: xxhash32(text.encode()),
    lambda text: murmur2_hash(text.encode()),
]


@pytest.mark.parametrize(("hashes", "single"), [*zip(HASHES, SINGLE, strict=True)])
def test_blocks_and_long_texts_do_not_change_the_hash(
    hashes: Callable[[pa.Array], np.ndarray], single: Callable[[str], int]
) -> None:
    draw = random.Random(5)
    values = ["x" * length for length in (70_000, 65_536, 65_535, 1025, 1024, 0)]
    values += ["é€😀"[i % 3] * draw.randrange(40) for i in range(3000)]
    values += [f"{i:036d}" for i in range(40_000)]  # more than one group of a length
    draw.shuffle(values)
    sample = draw.sample(range(len(values)), 300) + [
        i for i, value in enumerate(values) if len(value) > 1000
    ]
    result = hashes(pa.array(values))
    assert [int(result[i]) for i in sample] == [single(values[i]) for i in sample]


@pytest.mark.parametrize("hashes", HASHES)
@pytest.mark.parametrize(
    "array",
    [
        pa.array([], pa.string()),
        pa.array(["x"])[1:],
        pa.array([None, None], pa.string()),
        pa.array(["", ""]),
        pa.nulls(2, pa.large_string()),
    ],
)
def test_arrays_without_bytes_are_hashed(
    array: pa.Array, hashes: Callable[[pa.Array], np.ndarray]
) -> None:
    assert len(set(hashes(array).tolist())) <= 1
    assert len(hashes(array)) == len(array)


def test_bytes_that_are_no_text_are_refused() -> None:
    broken = pa.array([b"ok", b"\xff\xfe"]).view(pa.string())
    with pytest.raises(CorruptTableError, match="not UTF-8"):
        java_string_hashes(broken)


@pytest.mark.parametrize(
    ("values", "answer"), [([], False), (["é", "\uffff"], False), (["a", "😀"], True)]
)
def test_astral_characters_are_noticed(values: list[str], answer: bool) -> None:
    assert has_astral_characters(sliced(list(values), pa.string())) is answer


def test_many_keys_are_hashed_in_a_moment() -> None:
    keys = pa.array([f"{i:036d}" for i in range(200_000)])
    for hashes in HASHES:
        begin = time.process_time()
        hashes(keys)
        assert time.process_time() - begin < 1.0  # a fiftieth of a second on an idle machine
