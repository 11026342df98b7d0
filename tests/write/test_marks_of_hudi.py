"""A ring that Apache Hudi marked may have buckets without files, also on a table of pyhudi's.

Hudi seeds no bucket, and marks the rings that it finds in force. A log without a base file would be
hidden from Hudi's readers behind an older pending one.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from counted_storage import CountedStorage
from pyhudi.format.files.file_names import BaseFileName, parse_data_file
from pyhudi.format.table.ring_file import (
    FIRST_INSTANT,
    RingNode,
    encode_ring,
    initial_ring,
    ring_folder,
)
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.format.timeline.plan_files import (
    ClusteringStrategy,
    decode_requested_replace,
    encode_requested_replace,
)
from pyhudi.index.ring_changes import arc_of
from pyhudi.index.ring_layout import RingLayout
from pyhudi.storage.objects.rings import create_first_ring, load_ring, load_ring_files
from resize_tables import ResizeTable

KEYS = "klmnopqrst"
NEW = [f"new{number}" for number in range(64)]
MODES: dict[str, dict[str, Any]] = {"non-blocking": {"ordering": "ts"}, "optimistic": {}}


def _new_partition(table: ResizeTable) -> None:
    """Hudi created the first ring, and no row came into the partition."""
    create_first_ring(table.storage, initial_ring("d", 4))
    table.storage.create(f"{ring_folder('d')}/{FIRST_INSTANT}.commit", b"")


def _first_ring(table: ResizeTable) -> None:
    table.put(KEYS, 1)
    _with_empty_buckets(table, FIRST_INSTANT)


def _resized(table: ResizeTable) -> None:
    table.put(KEYS, 1)
    requested = table.plan(3)
    assert table.resizes().execute(requested) is not None
    _with_empty_buckets(table, InstantTime(requested))


def _with_empty_buckets(table: ResizeTable, instant: InstantTime) -> None:
    """Cut each bucket where no row lies in the lower part, which gets no file; Hudi marks it."""
    ring = load_ring(table.storage, "d", instant)
    assert ring is not None
    places = sorted(RingLayout(ring, ("id",)).hashes(pa.array([*KEYS])).tolist())
    nodes = list(ring.nodes)
    for number in range(len(ring.nodes)):
        arc = arc_of(ring, number)
        first = next((place for place in places if arc.low < place <= arc.high), arc.high)
        if -1 <= arc.low < first - 1:
            insort(nodes, RingNode(first - 1, f"empty-{number}"), key=lambda node: node.position)
    assert len(nodes) > len(ring.nodes)
    table.storage.write(
        f"{ring_folder('d')}/{ring.file_name}", encode_ring(replace(ring, nodes=tuple(nodes)))
    )
    table.storage.write(f"{ring_folder('d')}/{instant}.commit", b"")


RINGS: dict[str, Callable[[ResizeTable], None]] = {
    "a new partition": _new_partition,
    "a first ring": _first_ring,
    "a resized ring": _resized,
}
VERBS: dict[str, Callable[[ResizeTable], object]] = {
    "upsert": lambda t: t.table("new").upsert(t.made(NEW, 2)),
    "append": lambda t: t.table("new").append(t.made(NEW, 2)),
    "overwrite": lambda t: t.table("new").overwrite(t.made(NEW, 2), partitions=["d"]),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", RINGS)
def test_a_bucket_without_files_gets_a_base_file_before_its_first_log_is_visible(
    name: str, verb: str, mode: str
) -> None:
    table = ResizeTable(**MODES[mode])
    RINGS[name](table)
    kept = {} if verb == "overwrite" else table.values()
    written = VERBS[verb](table)
    assert table.values() == {**kept, **{key: f"{key}2" for key in NEW}}
    first, logs = first_files(table)
    assert logs if verb == "upsert" else written
    for group, log in logs.items():
        assert group in first, "no log opens a slice"
        assert first[group] < log
    assert table.table("v").services.verify()


def first_files(table: ResizeTable) -> tuple[dict[str, str], dict[str, str]]:
    """The instants of the first base file, and of the first log, of each live file group."""
    bases: dict[str, str] = {}
    logs: dict[str, str] = {}
    for stat in table.storage.list("d"):
        name = parse_data_file(stat.path.rpartition("/")[2])
        if name is None:
            continue
        found = bases if isinstance(name, BaseFileName) else logs
        found[name.file_id] = min(name.requested, found.get(name.file_id, name.requested))
    return bases, logs


@pytest.mark.parametrize("name", RINGS)
def test_a_partition_is_listed_once_and_its_mark_tells_the_processes_that_follow(
    name: str,
) -> None:
    table = ResizeTable(ordering="ts")
    RINGS[name](table)
    assert not load_ring_files(table.storage, "d").complete.intersection(in_force(table))
    table.put(NEW, 2, label="first")
    assert in_force(table) <= load_ring_files(table.storage, "d").complete
    storage = CountedStorage(table.storage)
    table.table("second", storage).upsert(table.made(NEW, 3))
    assert ("list_folder", "d") not in storage.requests


def in_force(table: ResizeTable) -> set[str]:
    return {max(load_ring_files(table.storage, "d").instants)}


def test_a_resize_that_hudi_planned_leaves_a_ring_whose_buckets_may_lack_files() -> None:
    table = ResizeTable(ordering="ts")
    table.put(KEYS, 1)
    requested = table.plan(2)
    path = f".hoodie/timeline/{requested}.clustering.requested"
    request = decode_requested_replace(table.storage.read(path), path)
    assert request is not None
    assert request.clustering_plan is not None
    hudis = replace(request.clustering_plan, strategy=ClusteringStrategy("org.apache.hudi.X", {}))
    data = encode_requested_replace(replace(request, clustering_plan=hudis), bytes(16))
    table.storage.write(path, data)
    assert table.resizes().execute(requested) is not None
    files = load_ring_files(table.storage, "d")
    assert requested in files.marks - files.complete
    table.put(KEYS, 2, label="new")
    assert requested in load_ring_files(table.storage, "d").complete
