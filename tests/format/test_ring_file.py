"""Hashing metadata: the same bytes as Hudi's."""

from __future__ import annotations

import json
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden_tables import NAMES, GoldenTables
from pyhudi.errors import CorruptTableError, InvalidRequestError
from pyhudi.format.table import ring_file
from pyhudi.format.table.ring_file import (
    FIRST_INSTANT,
    RING_MAX,
    NodeTag,
    Ring,
    RingFileName,
    RingNode,
    decode_nodes,
    decode_ring,
    encode_nodes,
    encode_ring,
    initial_ring,
    ring_folder,
)
from pyhudi.format.timeline.instant import InstantTime

T = InstantTime("20260102030405678")
PREFIX = "226498a1-8628-4733-a898-ebfc08982934"


@pytest.mark.parametrize("name", ["initial", "after_split", "after_merge"])
def test_recorded_rings_round_trip_byte_for_byte(vectors: Path, name: str) -> None:
    data = (vectors / "hashing_meta" / f"{name}.hashing_meta.json").read_bytes()
    assert encode_ring(decode_ring(data)) == data


def test_golden_rings_round_trip_and_first_rings_are_computed(golden: GoldenTables) -> None:
    files = [path for name in NAMES for path in golden.path(name).rglob("*.hashing_meta")]
    assert files
    for path in files:
        ring = decode_ring(path.read_bytes())
        assert encode_ring(ring) == path.read_bytes()
        assert ring.file_name == path.name
        assert path.parent.as_posix().endswith(ring_folder(ring.partition))
        if ring.instant == FIRST_INSTANT:
            assert initial_ring(ring.partition, ring.first_bucket_count) == ring


def test_first_rings_of_any_size_are_those_of_hudi(vectors: Path) -> None:
    recorded = json.loads((vectors / "consistent_bucket.json").read_bytes())["metadata"]
    assert len(recorded) == 6
    for count, metadata in recorded.items():
        ring = initial_ring(metadata["partitionPath"], int(count))
        raw = metadata.pop("_raw", None)
        assert json.loads(encode_ring(ring)) == metadata
        assert raw is None or encode_ring(ring).decode() == raw


@pytest.mark.parametrize("count", [1, 2, 3, 1000, 32768])
def test_first_rings_reach_the_end_in_growing_steps(count: int) -> None:
    positions = [node.position for node in initial_ring("p", count).nodes]
    assert len(positions) == count
    assert positions == sorted(set(positions))
    assert positions[-1] == RING_MAX


@pytest.mark.parametrize("count", [0, -1, 32769, 10**12])
def test_rings_of_other_sizes_are_refused(count: int) -> None:
    with pytest.raises(InvalidRequestError, match="a ring cannot begin"):
        initial_ring("p", count)


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("00000000000000.hashing_meta", RingFileName(FIRST_INSTANT)),
        (f"{T}.hashing_meta", RingFileName(T)),
        (f"{T}.commit", RingFileName(T, is_commit_mark=True)),
    ],
)
def test_ring_file_name_round_trips(name: str, parsed: RingFileName) -> None:
    assert RingFileName.parse(name) == parsed
    assert parsed.file_name == name


def test_a_ring_file_has_a_commit_mark() -> None:
    assert RingFileName(T).commit_mark.file_name == f"{T}.commit"


@pytest.mark.parametrize("name", ["", ".commit", f".{T}.hashing_meta.crc", "x.hashing_meta", T])
def test_other_files_of_a_ring_folder_are_no_rings(name: str) -> None:
    assert RingFileName.parse(name) is None


def test_a_table_without_partitions_keeps_its_ring_in_the_root() -> None:
    root = ".hoodie/.bucket_index/consistent_hashing_metadata"
    assert (ring_folder(""), ring_folder("a/b")) == (root, f"{root}/a/b")


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.integers(0, RING_MAX)
prefixes = st.uuids().map(str)


@st.composite
def rings(draw: st.DrawFn) -> Ring:
    positions = sorted(draw(st.sets(numbers, min_size=1, max_size=8)))
    nodes = tuple(RingNode(position, draw(prefixes)) for position in positions)
    return Ring(draw(texts), T, draw(numbers), draw(numbers), nodes)


@settings(deadline=None)
@given(rings())
def test_any_ring_round_trips(ring: Ring) -> None:
    data = encode_ring(ring)
    assert decode_ring(data) == ring
    assert json.loads(data)["partitionPath"] == ring.partition  # plain JSON to others


def test_control_characters_are_written_as_hudi_writes_them() -> None:
    ring = replace(initial_ring("p", 1), partition='\x1f\b\t\n\f\r"\\/é😀')
    line = encode_ring(ring).decode().splitlines()[2]
    assert line == r'  "partitionPath" : "\u001F\b\t\n\f\r\"\\/é😀",'


def test_nodes_out_of_order_are_put_in_order() -> None:
    ring = Ring("p", T, 2, 0, (RingNode(9, PREFIX), RingNode(4, PREFIX)))
    assert [node.position for node in decode_ring(encode_ring(ring)).nodes] == [4, 9]


def test_children_of_a_resize_round_trip() -> None:
    nodes = (RingNode(5, None, NodeTag.DELETE), RingNode(9, PREFIX, NodeTag.REPLACE))
    text = encode_nodes(nodes)
    assert decode_nodes(text) == nodes
    assert text == (
        '[ {\n  "value" : 5,\n  "fileIdPrefix" : null,\n  "tag" : "DELETE"\n}, {\n'
        f'  "value" : 9,\n  "fileIdPrefix" : "{PREFIX}",\n  "tag" : "REPLACE"\n}} ]'
    )
    assert (encode_nodes([]), decode_nodes("[ ]")) == ("[ ]", ())


@pytest.mark.parametrize(
    "name",
    ["mor_consistent_hash_split", "mor_consistent_hash_merge", "mor_consistent_hash_pending"],
)
def test_children_in_golden_plans_round_trip_byte_for_byte(golden: GoldenTables, name: str) -> None:
    (path,) = golden.path(name).rglob("*.clustering.requested")
    plan: Any = next(fastavro.reader(BytesIO(path.read_bytes())))
    groups = plan["clusteringPlan"]["inputGroups"]
    texts = [group["extraMetadata"]["clustering.group.child.node"] for group in groups]
    assert texts
    assert [encode_nodes(decode_nodes(text)) for text in texts] == texts


GOOD = json.loads(encode_ring(Ring("p", T, 1, 0, (RingNode(7, PREFIX),))))
NODE = GOOD["nodes"][0]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe\xfd",
        b"null",
        b"[]",
        b"{",
        b"[" * 100_000,
        b'{"nodes":' * 100_000,
        *[json.dumps({k: v for k, v in GOOD.items() if k != key}).encode() for key in GOOD],
        *[
            json.dumps({**GOOD, **cast("dict[str, Any]", change)}).encode()
            for change in [
                {"version": "0"},
                {"version": True},
                {"partitionPath": None},
                {"instant": "yesterday"},
                {"instant": 20260102030405678},
                {"numBuckets": -1},
                {"seqNo": 1.5},
                {"seqNo": float("nan")},
                {"seqNo": 2**31},
                {"nodes": []},
                {"nodes": None},
                {"nodes": {}},
                {"nodes": [None]},
                {"nodes": [NODE, NODE]},
                {"nodes": [{**NODE, "value": -1}]},
                {"nodes": [{**NODE, "value": 2**31}]},
                {"nodes": [{**NODE, "fileIdPrefix": None}]},
                {"nodes": [{**NODE, "fileIdPrefix": "../../x"}]},
                {"nodes": [{**NODE, "fileIdPrefix": ""}]},
                {"nodes": [{**NODE, "fileIdPrefix": 1}]},
                {"nodes": [{**NODE, "tag": "GONE"}]},
                {"nodes": [{**NODE, "tag": []}]},
            ]
        ],
        json.dumps(GOOD).replace("7", "9" * 5000).encode(),
    ],
)
def test_damaged_rings_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptTableError, match="ring of a partition") as caught:
        decode_ring(data, path="x.hashing_meta")
    assert caught.value.path == "x.hashing_meta"


@pytest.mark.parametrize("text", ["", "{}x", "null", "[1]", '[{"value":1}]', "[" * 100_000])
def test_damaged_children_are_refused(text: str) -> None:
    with pytest.raises(CorruptTableError, match="children"):
        decode_nodes(text)


def test_a_huge_ring_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_file, "RING_BYTES_MAX", 100)
    with pytest.raises(CorruptTableError, match="more than 100"):
        decode_ring(encode_ring(initial_ring("p", 1)))
