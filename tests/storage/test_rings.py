"""Rings on storage: who creates the first one, and what damaged files say."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from golden_tables import GoldenTables
from pyhudi.errors import CorruptTableError
from pyhudi.format.table import ring_file
from pyhudi.format.table.ring_file import (
    FIRST_INSTANT,
    RING_ROOT,
    RingFiles,
    encode_ring,
    initial_ring,
)
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.storage.objects.rings import (
    create_first_ring,
    load_all_ring_files,
    load_ring,
    load_ring_files,
    write_mark,
)
from pyhudi.storage.open import open_storage
from pyhudi.storage.protocol import Folder, ObjectStat, Storage

A = InstantTime("20260101000000000")
FILE = f"{RING_ROOT}/a/b/{FIRST_INSTANT}.hashing_meta"


def test_of_racing_creators_the_first_file_wins(memory: Storage) -> None:
    winner, loser = initial_ring("a/b", 4), initial_ring("a/b", 8)  # (g), with other counts
    assert create_first_ring(memory, winner) == winner
    assert create_first_ring(memory, loser) == winner
    assert create_first_ring(memory, winner) == winner
    assert memory.read(FILE) == encode_ring(winner)


def test_files_and_marks_of_each_partition_are_listed(memory: Storage) -> None:
    for partition in ("", "a", "a/b"):
        create_first_ring(memory, initial_ring(partition, 1))
    later = replace(initial_ring("a", 1), instant=A)
    memory.create(f"{RING_ROOT}/a/{A}.hashing_meta", encode_ring(later))
    memory.create(f"{RING_ROOT}/a/.{A}.hashing_meta.crc", b"x")
    write_mark(memory, "a", FIRST_INSTANT, is_complete=True)
    write_mark(memory, "a", FIRST_INSTANT, is_complete=False)
    write_mark(memory, "a", A, is_complete=False)
    marked = frozenset([FIRST_INSTANT, A])
    files = {
        "": RingFiles("", (FIRST_INSTANT,)),
        "a": RingFiles("a", (FIRST_INSTANT, A), marked, frozenset([FIRST_INSTANT])),
        "a/b": RingFiles("a/b", (FIRST_INSTANT,)),
    }
    assert load_all_ring_files(memory) == files
    assert {partition: load_ring_files(memory, partition) for partition in files} == files
    assert load_ring_files(memory, "none") == RingFiles("none")
    assert load_ring(memory, "none", FIRST_INSTANT) is None


def test_an_empty_mark_is_filled_once_every_node_has_files(memory: Storage) -> None:
    path = f"{RING_ROOT}/a/{FIRST_INSTANT}.commit"
    create_first_ring(memory, initial_ring("a", 1))
    write_mark(memory, "a", FIRST_INSTANT, is_complete=False)
    assert memory.read(path) == b""
    for is_complete in (True, True, False):
        write_mark(memory, "a", FIRST_INSTANT, is_complete=is_complete)
        assert memory.read(path)
        assert load_ring_files(memory, "a").complete == {FIRST_INSTANT}


def test_a_listing_that_shows_a_mark_and_misses_its_ring_is_repeated(
    memory: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_first_ring(memory, initial_ring("a", 1))
    write_mark(memory, "a", FIRST_INSTANT, is_complete=False)
    for name in ("list_folder", "list"):
        whole = getattr(memory, name)
        monkeypatch.setattr(memory, name, _missing_rings_once(whole))
    files = RingFiles("a", (FIRST_INSTANT,), frozenset([FIRST_INSTANT]))
    assert load_all_ring_files(memory) == {"a": files}
    assert load_ring_files(memory, "a") == files


def _missing_rings_once(listed: Any) -> Any:
    raced: list[str] = []

    def racing(path: str) -> Any:
        found = listed(path)
        if raced:
            return found
        raced.append(path)
        if isinstance(found, Folder):
            return replace(found, objects=tuple(_without_rings(found.objects)))
        return _without_rings(found)

    return racing


def _without_rings(stats: Iterable[ObjectStat]) -> Iterator[ObjectStat]:
    return (stat for stat in stats if not stat.path.endswith(".hashing_meta"))


def test_golden_rings_are_found(golden: GoldenTables) -> None:
    storage = open_storage(str(golden.path("mor_consistent_hash_split")))
    files = load_ring_files(storage, "")
    assert len(files.instants) == len(files.marks) == 2
    ring = load_ring(storage, "", files.instants[-1])
    assert ring is not None
    assert len(ring.nodes) == 4
    partitioned = open_storage(str(golden.path("mor_consistent_hash")))
    assert sorted(load_all_ring_files(partitioned)) == ["m37", "n30", "v45"]


GOOD = json.loads(encode_ring(initial_ring("a/b", 2)))
NODE = GOOD["nodes"][0]


def changed(**changes: Any) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (encode_ring(initial_ring("a/b", 2))[:-9], "not hashing metadata"),
        (b"<xml/>", "not hashing metadata"),
        (changed(partitionPath="c"), "ring of partition 'c'"),
        (changed(instant=A), f"ring of instant {A}"),
        (changed(nodes=[]), "a node, or its file id, is missing"),
        (changed(nodes=[NODE, NODE]), "two nodes have the same position"),
        (changed(nodes=[{**NODE, "fileIdPrefix": "../x"}]), "cannot begin a file id"),
    ],
)
def test_a_damaged_ring_is_named_with_its_partition_and_file(
    memory: Storage, data: bytes, why: str
) -> None:
    memory.create(FILE, data)
    with pytest.raises(CorruptTableError, match="partition 'a/b'") as caught:
        load_ring(memory, "a/b", FIRST_INSTANT)
    assert caught.value.path == FILE
    assert why in caught.value.why
    assert memory.read(FILE) == data


def test_a_huge_ring_is_not_read(memory: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.create(FILE, encode_ring(initial_ring("a/b", 2)))
    monkeypatch.setattr(ring_file, "RING_BYTES_MAX", 100)
    with pytest.raises(CorruptTableError, match="more than 100"):
        load_ring(memory, "a/b", FIRST_INSTANT)


def test_vectors_are_what_storage_gives(vectors: Path, memory: Storage) -> None:
    for name in ("initial", "after_split", "after_merge"):
        data = (vectors / "hashing_meta" / f"{name}.hashing_meta.json").read_bytes()
        ring = ring_file.decode_ring(data)
        path = ring_file.ring_path(ring.partition, ring_file.RingFileName(ring.instant))
        memory.create(path, data)
        assert load_ring(memory, ring.partition, ring.instant) == ring
