"""Consistent buckets, held to what Hudi's own class answered and to tables it wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from golden_tables import GoldenTables
from pyhudi.format.files.file_names import BaseFileName, parse_data_file
from pyhudi.format.hashing import xxhash32
from pyhudi.format.table.ring_file import RING_MAX, Ring, RingNode, decode_ring, initial_ring
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.index.consistent_bucket import bucket_ids, bucket_of, ring_positions


def record_keys(path: Path) -> pa.Array:
    return pq.ParquetFile(path).read(columns=["_hoodie_record_key"]).column(0).combine_chunks()


def recorded(vectors: Path, group: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((vectors / "consistent_bucket.json").read_bytes())[
        group
    ]
    return found


def ring(*positions: int) -> Ring:
    nodes = tuple(RingNode(position, f"n{position}") for position in positions)
    return Ring("p", InstantTime("0" * 14), len(nodes), 0, nodes)


def test_recorded_positions_and_owners_are_reproduced(vectors: Path) -> None:
    cases = recorded(vectors, "vectors")
    assert len(cases) == 58
    for case in cases:
        positions = ring_positions(pa.array([case["record_key"]]), case["hash_fields"])
        assert positions.to_pylist() == [case["masked"]]
        for count, owner in case["bucket"].items():
            first = initial_ring(f"p{count}", int(count))
            (index,) = bucket_of(positions, first).to_pylist()
            assert first.nodes[index].position == owner["value"]
            assert first.nodes[index].file_id == owner["file_id"]


@pytest.mark.parametrize("name", ["initial", "after_split", "after_merge"])
def test_keys_of_a_real_table_lie_where_they_were_found(vectors: Path, name: str) -> None:
    stored = decode_ring((vectors / "hashing_meta" / f"{name}.hashing_meta.json").read_bytes())
    cases = recorded(vectors, "real_table_vectors")
    keys = pa.array([case["record_key"] for case in cases])
    assert ring_positions(keys, ["id"]).to_pylist() == [case["masked"] for case in cases]
    owners = bucket_ids(keys, ["id"], stored).to_pylist()
    assert [stored.nodes[i].file_id for i in owners] == [case[name] for case in cases]


@pytest.mark.parametrize("name", ["mor_consistent_hash_split", "mor_consistent_hash_merge"])
def test_golden_rows_lie_in_the_file_group_of_their_node(golden: GoldenTables, name: str) -> None:
    table = golden.path(name)
    stored = decode_ring(max(table.rglob("*.hashing_meta")).read_bytes())
    files = [p for p in table.rglob("*.parquet") if ".hoodie" not in p.parts]
    assert files
    for path in files:
        file = parse_data_file(path.name)
        assert isinstance(file, BaseFileName)
        keys = record_keys(path)
        owners = {stored.nodes[i].file_id for i in bucket_ids(keys, ["id"], stored).to_pylist()}
        assert owners == {file.file_id}


@pytest.mark.parametrize(
    ("nodes", "position", "owner"),
    [
        ((10, 20, RING_MAX), 0, 0),
        ((10, 20, RING_MAX), 10, 0),  # a node owns its own position
        ((10, 20, RING_MAX), 11, 1),
        ((10, 20, RING_MAX), 20, 1),
        ((10, 20, RING_MAX), 21, 2),
        ((10, 20, RING_MAX), RING_MAX, 2),
        ((10, 20), 21, 0),  # above the last node: round to the first
        ((10, 20), RING_MAX, 0),
        ((10,), 0, 0),
        ((10,), 10, 0),
        ((10,), 11, 0),
        ((0, 5), 0, 0),
    ],
)
def test_the_next_node_owns_a_position(nodes: tuple[int, ...], position: int, owner: int) -> None:
    assert bucket_of(pa.array([position], pa.int32()), ring(*nodes)).to_pylist() == [owner]


@pytest.mark.parametrize(
    ("keys", "fields", "same_as"),
    [
        (["id:1,name:a"], ["id", "name"], "1a"),  # joined without a separator
        (["id:1,name:__null__"], ["id", "name"], "1null"),
        (["id:1,name:__null__"], ["name"], "null"),
        (["id:1,name:__empty__"], ["id", "name"], "1"),
        (["id:1,name:a"], ["missing"], "id:1,name:a"),
        (["id:1,name:a", "5"], ["id", "name"], "1a"),  # beside a key of another shape
    ],
)
@pytest.mark.parametrize("arrow_type", [pa.string(), pa.large_string()])
def test_values_are_joined_before_hashing(
    keys: list[str], fields: list[str], same_as: str, arrow_type: pa.DataType
) -> None:
    found = ring_positions(pa.array(keys, arrow_type), fields)
    assert found[0].as_py() == xxhash32(same_as.encode()) & RING_MAX


def test_no_keys_have_no_positions() -> None:
    assert len(bucket_ids(pa.array([], pa.string()), ["id"], ring(1))) == 0
