"""Entries of the decision log: their bytes, their places, and what a forged one cannot do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.errors import CorruptTableError
from pyhudi.format.timeline.decision_entry import (
    ENTRY_BYTES_MAX,
    Entry,
    EntryKind,
    Target,
    creation,
    decode_entry,
    encode_entry,
    entry_path,
    parse_entry_path,
    staged_path,
)
from pyhudi.format.timeline.instant import Action

R, T = "20260101000000001", "20260101000000002"

BEGIN = Entry(
    n=1,
    id="a",
    prev=None,
    kind=EntryKind.BEGIN,
    time=R,
    instant=R,
    action=Action.DELTACOMMIT,
    creates=creation(f"{R}.deltacommit.requested", b""),
    writer="somebody",
    wall=R,
)
COMPLETE = Entry(
    n=2,
    id="b",
    prev="a",
    kind=EntryKind.COMPLETE,
    time=T,
    instant=R,
    action=Action.COMPACTION,
    begin=1,
    creates=creation(f"{R}_{T}.commit", b"bytes \x00\xff"),
)
STAGED = Entry(
    n=3,
    id="c",
    prev="b",
    kind=EntryKind.COMPLETE,
    time=T,
    instant=R,
    action=Action.DELTACOMMIT,
    creates=creation(f"{R}_{T}.deltacommit", b"large", staged_path(R, "x")),
)
ABORT = Entry(
    n=1000,
    id="d",
    prev="c",
    kind=EntryKind.ABORT,
    time=T,
    instant=T,
    action=Action.ROLLBACK,
    target=Target(R, Action.COMMIT, 7),
    creates=creation(f"{T}.rollback.requested", b"plan"),
)
VOID = Entry(n=1001, id="e", prev="d", kind=EntryKind.VOID, voids=1000)


@pytest.mark.parametrize("entry", [BEGIN, COMPLETE, STAGED, ABORT, VOID], ids=lambda e: e.kind)
def test_an_entry_comes_back_as_it_was(entry: Entry) -> None:
    assert decode_entry(encode_entry(entry), entry_path(entry.n)) == entry


def test_the_bytes_of_an_entry_are_readable_and_stay_the_same() -> None:
    assert json.loads(encode_entry(BEGIN)) == {
        "v": 1,
        "n": 1,
        "id": "a",
        "prev": None,
        "kind": "begin",
        "time": R,
        "instant": R,
        "action": "deltacommit",
        "creates": {
            "name": f"{R}.deltacommit.requested",
            "size": 0,
            "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "inline": "",
        },
        "writer": "somebody",
        "wall": R,
    }


@given(st.integers(1, 10**20 - 1), st.integers(1, 10**20 - 1))
@settings(deadline=None)
def test_paths_sort_as_numbers_do(one: int, other: int) -> None:
    assert parse_entry_path(entry_path(one)) == one
    assert (entry_path(one) < entry_path(other)) == (one < other)


@pytest.mark.parametrize(
    "path",
    [
        "x",
        ".hoodie/.pyhudi/log/00000000000000000/1.json",
        ".hoodie/.pyhudi/log/00000000000000001/00000000000000000001.json",
        ".hoodie/.pyhudi/log/00000000000000000/0000000000000000000x.json",
    ],
)
def test_other_objects_in_the_folder_are_no_entries(path: str) -> None:
    assert parse_entry_path(path) is None


def changed(entry: Entry, **fields: Any) -> bytes:
    record = json.loads(encode_entry(entry))
    for name, value in fields.items():
        record.pop(name, None) if value is ... else record.update({name: value})
    return json.dumps(record).encode()


def creates(**fields: Any) -> dict[str, Any]:
    made = {**json.loads(encode_entry(BEGIN))["creates"], **fields}
    return {name: value for name, value in made.items() if value is not ...}


FORGED = [
    ("not JSON", b"{"),
    ("no object", b"[]"),
    ("deep", b"[" * 100_000),
    ("large", b" " * (ENTRY_BYTES_MAX + 1)),
    ("another version", changed(BEGIN, v=2)),
    ("another number", changed(BEGIN, n=2)),
    ("no number", changed(BEGIN, n="1")),
    ("a negative number", changed(BEGIN, n=-1)),
    ("no kind", changed(BEGIN, kind="maybe")),
    ("no time", changed(BEGIN, time=...)),
    ("no date", changed(BEGIN, time="tomorrow", instant="tomorrow")),
    ("a foreign action", changed(BEGIN, action="format c:")),
    ("nothing to create", changed(BEGIN, creates=...)),
    ("a path", changed(BEGIN, creates=creates(name="../../etc/passwd"))),
    ("another instant's file", changed(BEGIN, creates=creates(name=f"{T}.deltacommit.requested"))),
    ("another state", changed(BEGIN, creates=creates(name=f"{R}.deltacommit.inflight"))),
    ("a completed file", changed(BEGIN, creates=creates(name=f"{R}_{T}.deltacommit"))),
    ("other bytes", changed(BEGIN, creates=creates(inline="eA=="))),
    ("broken base64", changed(BEGIN, creates=creates(inline="%%%"))),
    ("bytes nowhere", changed(BEGIN, creates=creates(inline=...))),
    ("bytes elsewhere", changed(BEGIN, creates=creates(inline=..., staged="hoodie.properties"))),
    ("a negative size", changed(BEGIN, creates=creates(size=-1))),
    ("another time than its instant", changed(BEGIN, time=T)),
    ("an abort of nothing", changed(ABORT, n=1, target=...)),
    ("a void of nothing", changed(VOID, n=1, voids=...)),
]


@pytest.mark.parametrize(("what", "data"), FORGED, ids=[what for what, _ in FORGED])
def test_a_forged_entry_is_refused(what: str, data: bytes) -> None:
    with pytest.raises(CorruptTableError) as error:
        decode_entry(data, entry_path(1))
    assert entry_path(1) in str(error.value)


@given(st.binary(max_size=300))
@settings(deadline=None)
def test_no_bytes_break_the_decoder(data: bytes) -> None:
    with pytest.raises(CorruptTableError):
        decode_entry(data, entry_path(1))
