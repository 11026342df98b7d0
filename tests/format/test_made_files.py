"""What is noted of the files of a resize: a shortcut that may be missing, or wrong, and no more."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.format.timeline.made_files import MadeFile, decode_made, encode_made, made_path

_counts = st.integers(0, 2**53 - 1)


@given(st.dictionaries(st.text(), st.tuples(_counts, _counts, _counts, _counts)))
def test_what_is_noted_is_read_back(files: dict[str, tuple[int, int, int, int]]) -> None:
    files = {p: (size, max(r, i), min(r, i), d) for p, (size, r, i, d) in files.items()}
    stats = [
        WriteStat(
            path=path,
            file_size_in_bytes=size,
            num_writes=rows,
            num_inserts=inserts,
            num_deletes=deletes,
        )
        for path, (size, rows, inserts, deletes) in files.items()
    ]
    assert decode_made(encode_made(stats)) == {p: MadeFile(*counts) for p, counts in files.items()}


@pytest.mark.parametrize(
    "counts",
    [
        None,
        [],
        [1, 2, 3],
        [1, 2, 3, 4, 5],
        [1, 1, 2, 0],
        [-1, 0, 0, 0],
        [1.0, 0, 0, 0],
        [True, 0, 0, 0],
        ["1", 0, 0, 0],
        [2**53, 0, 0, 0],
    ],
)
def test_wrong_counts_make_it_no_note(counts: Any) -> None:
    record = {"v": 1, "files": {"sound": [1, 1, 0, 0], "wrong": counts}}
    assert decode_made(json.dumps(record).encode()) == {}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"1",
        b"{}",
        b'{"v":2,"files":{}}',
        b'{"v":1,"files":[]}',
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_bytes_that_are_no_note_count_as_none(data: bytes) -> None:
    assert decode_made(data) == {}


def test_it_lies_among_the_markers() -> None:
    at = InstantTime("20260101000000000")
    assert made_path(at) == ".hoodie/.temp/20260101000000000/made.json"
