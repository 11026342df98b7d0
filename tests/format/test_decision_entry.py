"""Entries of the decision log: their bytes, their places, and what a forged one cannot do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.errors import CorruptTableError, UnsupportedTableError
from pyhudi.format.table.ring_file import encode_ring, initial_ring, ring_folder
from pyhudi.format.timeline.decision_entry import (
    ALSO_MAX,
    ENTRY_BYTES_MAX,
    ENTRY_VERSION,
    Entry,
    EntryKind,
    Target,
    closed_path,
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
CLOSE = Entry(
    n=4,
    id="f",
    prev="c",
    kind=EntryKind.CLOSE,
    time=T,
    instant=R,
    action=Action.CLUSTERING,
    creates=creation(closed_path(R), b""),
)


def ring(partition: str, requested: str = R) -> str:
    return f"{ring_folder(partition)}/{requested}.hashing_meta"


RESIZE = Entry(
    n=1,
    id="g",
    prev=None,
    kind=EntryKind.COMPLETE,
    time=T,
    instant=R,
    action=Action.CLUSTERING,
    creates=creation(f"{R}_{T}.replacecommit", b"done"),
    also=(
        creation(ring("day=1"), encode_ring(initial_ring("day=1", 4))),
        creation(ring(""), b"large", staged_path(R, "y")),
    ),
)
VOID = Entry(n=1001, id="e", prev="d", kind=EntryKind.VOID, voids=1000)


@pytest.mark.parametrize(
    "entry", [BEGIN, COMPLETE, STAGED, ABORT, CLOSE, RESIZE, VOID], ids=lambda e: e.id
)
def test_an_entry_comes_back_as_it_was(entry: Entry) -> None:
    assert decode_entry(encode_entry(entry), entry_path(entry.n)) == entry


@pytest.mark.parametrize("entry", [CLOSE, RESIZE], ids=lambda e: e.kind)
def test_a_process_that_knows_no_resizes_refuses_their_entries(entry: Entry) -> None:
    """It takes version 1 only, and would pass over the rings."""
    assert json.loads(encode_entry(entry))["v"] == 2
    assert json.loads(encode_entry(COMPLETE))["v"] == 1


def test_an_entry_of_a_newer_pyhudi_is_named_as_such() -> None:
    with pytest.raises(UnsupportedTableError, match="newer pyhudi"):
        decode_entry(changed(BEGIN, v=ENTRY_VERSION + 1, kind="grow"), entry_path(1))


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


def with_bytes(name: str) -> dict[str, Any]:
    """A record of an object with some bytes."""
    made = creation(name, b"x")
    return {"name": name, "size": 1, "sha256": made.sha256, "inline": "eA=="}


def ring_record(partition: str) -> dict[str, Any]:
    return with_bytes(ring(partition))


FORGED = [
    ("not JSON", b"{"),
    ("no object", b"[]"),
    ("deep", b"[" * 100_000),
    ("large", b" " * (ENTRY_BYTES_MAX + 1)),
    ("no version", changed(BEGIN, v=0)),
    ("a version that is none", changed(BEGIN, v=True)),
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
    ("a close of version 1", changed(CLOSE, n=1, v=1)),
    ("a close of another instant", changed(CLOSE, n=1, instant="20260101000000000")),
    ("a close that creates a timeline file", changed(CLOSE, n=1, creates=creates())),
    ("a close with bytes", changed(CLOSE, n=1, creates=with_bytes(closed_path(R)))),
    ("a close of a write", changed(CLOSE, n=1, action="deltacommit")),
    ("a close of itself", changed(CLOSE, n=1, time=R)),
    ("rings of version 1", changed(RESIZE, v=1)),
    ("a write that brings rings", changed(COMPLETE, n=1, v=2, also=[ring_record("day=1")])),
    ("a begin that brings rings", changed(BEGIN, v=2, also=[ring_record("day=1")])),
    ("rings that are an object", changed(RESIZE, also={})),
    ("a ring that is text", changed(RESIZE, also=["x"])),
    ("a ring twice", changed(RESIZE, also=[ring_record("day=1"), ring_record("day=1")])),
    ("another resize's ring", changed(RESIZE, also=[with_bytes(ring("day=1", T))])),
    ("the first ring", changed(RESIZE, also=[with_bytes(ring("day=1", "00000000000000"))])),
    ("a mark", changed(RESIZE, also=[with_bytes(f"{ring_folder('day=1')}/{R}.commit")])),
    ("a ring outside", changed(RESIZE, also=[with_bytes(ring("../../day=1"))])),
    ("a ring elsewhere", changed(RESIZE, also=[with_bytes(f"day=1/{R}.hashing_meta")])),
    ("a large ring", changed(RESIZE, also=[{**with_bytes(ring("day=1")), "size": 1 << 40}])),
    ("many rings", changed(RESIZE, also=[ring_record(str(n)) for n in range(ALSO_MAX + 1)])),
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
