"""Rings as layouts: a node is a file group."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.errors import ConflictError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.ring_file import (
    FIRST_INSTANT,
    RING_MAX,
    Ring,
    RingNode,
    decode_ring,
    initial_ring,
)
from pyhudi.index.layout import BucketLayout
from pyhudi.index.ring_layout import RingLayout, coarsest_ring
from pyhudi.index.routing import PreparedBatch, Routing

KEYS = pa.array([f"k{n}" for n in range(500)])


def layout(partition: str = "p", count: int = 4) -> RingLayout:
    return RingLayout(initial_ring(partition, count), ("id",))


class Rings:
    """Partitions with rings of different sizes, by their names."""

    shared = None

    def layout(self, partition: str, size: float = 0) -> BucketLayout:
        return layout(partition, int(partition))


def test_every_node_has_a_group_and_its_number() -> None:
    ring = layout()
    groups = [ring.group(ordinal) for ordinal in range(ring.size)]
    assert [group.file_id for group in groups] == [node.file_id for node in ring.ring.nodes]
    assert [ring.ordinal(group.file_id) for group in groups] == [0, 1, 2, 3]
    assert all(map(ring.has, groups))
    assert ring.ordinal("00000001-0000-0000-0000-000000000000-0") is None
    assert not ring.has(FileGroupId("q", groups[0].file_id))


@pytest.mark.parametrize("name", ["initial", "after_split", "after_merge"])
def test_keys_of_a_real_table_are_assigned_where_they_were_found(vectors: Path, name: str) -> None:
    data = (vectors / "hashing_meta" / f"{name}.hashing_meta.json").read_bytes()
    ring = RingLayout(decode_ring(data), ("id",))
    recorded = json.loads((vectors / "consistent_bucket.json").read_bytes())
    cases: list[dict[str, Any]] = recorded["real_table_vectors"]
    assigned = ring.assign(pa.array([case["record_key"] for case in cases])).tolist()
    assert [ring.group(n).file_id for n in assigned] == [case[name] for case in cases]


def test_a_layout_travels_and_assigns_alike() -> None:
    ring = layout(count=100)
    sent = pickle.loads(pickle.dumps(ring))
    assert sent == ring
    assert sent.assign(KEYS).tolist() == ring.assign(KEYS).tolist()


def test_layouts_of_equal_ranges_assign_alike() -> None:
    assert layout("p").assignment == layout("q").assignment
    assert layout("p").assignment != layout("p", 5).assignment


def test_each_partition_goes_by_its_own_ring_and_keys_are_hashed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hashed: list[int] = []
    original = RingLayout.hashes

    def counting(self: RingLayout, keys: pa.Array) -> Any:
        hashed.append(len(keys))
        return original(self, keys)

    monkeypatch.setattr(RingLayout, "hashes", counting)
    days = pa.array([str(1 + n % 5) for n in range(len(KEYS))])
    batch = PreparedBatch(
        pa.record_batch({"n": np.arange(len(KEYS))}), KEYS, days.dictionary_encode()
    )
    ordinals = Routing(Rings()).ordinals(batch).tolist()
    assert hashed == [len(KEYS)]
    for key, day, ordinal in zip(KEYS, days.to_pylist(), ordinals, strict=True):
        assert layout(day, int(day)).assign(pa.array([key])).tolist() == [ordinal]


def test_partitions_without_rows_get_no_ring() -> None:
    paths = pa.array(["3", "x", "3"]).dictionary_encode()[:1]
    batch = PreparedBatch(pa.record_batch({"n": [1]}), pa.array(["k"]), paths)
    assert len(Routing(Rings()).ordinals(batch)) == 1


def test_a_group_that_was_resized_has_no_successor() -> None:
    with pytest.raises(ConflictError, match="was resized"):
        Routing(Rings()).successor(FileGroupId("3", "gone-0"))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sets(st.integers(0, RING_MAX), min_size=1, max_size=5), max_size=4))
def test_keys_of_one_node_are_together_on_the_coarsest_ring(ends: list[set[int]]) -> None:
    rings = [
        Ring("p", FIRST_INSTANT, 1, 0, tuple(RingNode(end, f"n{end}") for end in sorted(some)))
        for some in ends
    ]
    common = RingLayout(coarsest_ring(rings), ("id",))
    edges = sorted(
        {edge for some in ends for end in some for edge in (end, min(end + 1, RING_MAX))}
    )
    positions = np.array([0, *edges, RING_MAX], np.int32)
    gathered = common.place(positions)
    for ring in rings:
        owners = RingLayout(ring, ("id",)).place(positions)
        for owner in set(owners.tolist()):
            assert len(set(gathered[owners == owner].tolist())) == 1
