"""RFC-42's first test: initialising of tables. Whoever writes a partition first makes its ring.

Any number of processes may do so at once, in any number of partitions. The bytes are those that
Apache Hudi writes, so that it may be one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pyarrow as pa
import pytest

from golden_tables import GoldenTables
from memory_tables import MemoryTable
from pyhudi.format.table.bucket_config import ConsistentBuckets
from pyhudi.format.table.ring_file import (
    FIRST_INSTANT,
    RING_ROOT,
    decode_ring,
    encode_ring,
    initial_ring,
)
from pyhudi.storage.objects.rings import create_first_ring, load_all_ring_files, load_ring

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("ts", pa.int64())])


def rows(ids: Sequence[str], days: Sequence[str], ts: int = 1) -> pa.Table:
    pairs = [(id_, day) for day in days for id_ in ids]
    columns = {"id": [i for i, _ in pairs], "day": [d for _, d in pairs], "ts": [ts] * len(pairs)}
    return pa.table(columns, schema=SCHEMA)


KEYS = [f"k{n}" for n in range(40)]


def bench(partition_by: str | tuple[str, ...] = "day", **options: object) -> MemoryTable:
    return MemoryTable(SCHEMA, **{"partition_by": partition_by, "ordering": "ts", **options})


def content(table: MemoryTable) -> list[tuple[str, str, int]]:
    found = table.table("reader").read(columns=["day", "id", "ts"]).to_arrow().to_pylist()
    return sorted((row["day"], row["id"], row["ts"]) for row in found)


@pytest.mark.parametrize("count", [1, 4, 7])
@pytest.mark.parametrize("days", [["mo"], [f"d{n}" for n in range(12)], ["ä", "x y"]])
def test_every_partition_gets_the_first_ring_of_hudi(count: int, days: list[str]) -> None:
    table = bench(buckets=ConsistentBuckets(count))
    table.table().upsert(rows(KEYS, days))
    assert sorted(load_all_ring_files(table.storage)) == sorted(days)
    for day in days:
        data = table.storage.read(f"{RING_ROOT}/{day}/{FIRST_INSTANT}.hashing_meta")
        assert data == encode_ring(initial_ring(day, count))
        ring = decode_ring(data)
        bases = {s.path.split("/")[-1] for s in table.storage.list(day)}
        for node in ring.nodes:
            assert any(name.startswith(f"{node.file_id}_") for name in bases), "each is opened"
    assert content(table) == sorted((day, key, 1) for day in days for key in KEYS)


def test_a_table_without_partitions_has_its_ring_in_the_root() -> None:
    table = bench((), buckets=ConsistentBuckets(3))
    table.table().upsert(rows(KEYS, ["mo"]))
    data = table.storage.read(f"{RING_ROOT}/{FIRST_INSTANT}.hashing_meta")
    assert data == encode_ring(initial_ring("", 3))
    assert len(content(table)) == len(KEYS)


@pytest.mark.parametrize("name", ["mor_consistent_hash", "mor_consistent_hash_split"])
def test_first_rings_are_equal_to_those_that_hudi_made(golden: GoldenTables, name: str) -> None:
    for path in golden.path(name).rglob(f"{FIRST_INSTANT}.hashing_meta"):
        ring = decode_ring(path.read_bytes())
        table = bench("day" if ring.partition else (), buckets=ConsistentBuckets(len(ring.nodes)))
        table.table().upsert(rows(["a"], [ring.partition or "mo"]))
        folder = f"{RING_ROOT}/{ring.partition}" if ring.partition else RING_ROOT
        assert table.storage.read(f"{folder}/{FIRST_INSTANT}.hashing_meta") == path.read_bytes()


@pytest.mark.parametrize("ordering", ["ts", ()], ids=["non-blocking", "optimistic"])
def test_racing_creators_all_write_by_the_ring_of_the_first(
    ordering: str | tuple[str, ...],
) -> None:
    table = bench(ordering=ordering)
    writers = 6
    together = Barrier(writers)

    def write(n: int) -> None:
        process = table.table(f"w{n}", conflict_retries=20)
        given = rows([f"{n}-{key}" for key in KEYS], ["mo", "tu"])
        together.wait()
        process.upsert(given)

    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(write, range(writers)))
    expected = sorted(
        (day, f"{n}-{key}", 1) for day in ("mo", "tu") for n in range(writers) for key in KEYS
    )
    assert content(table) == expected
    assert table.table("late").services.verify().findings == ()


def test_of_creators_that_bring_different_sizes_the_first_wins_and_the_others_place_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = bench()
    first, second = table.table("first"), table.table("second")
    monkeypatch.setattr(ConsistentBuckets, "first_count", lambda self, size: 2 if met else 8)
    met: list[str] = []
    create = create_first_ring

    def late(storage: object, ring: object) -> object:
        if not met:
            met.append("first")
            first.upsert(rows(KEYS, ["mo"]))
        return create(storage, ring)  # type: ignore[arg-type]

    monkeypatch.setattr("pyhudi.session.ring_groups.create_first_ring", late)
    second.upsert(rows(KEYS, ["mo"], ts=2))
    ring = load_ring(table.storage, "mo", FIRST_INSTANT)
    assert ring is not None
    assert len(ring.nodes) == 2
    assert content(table) == sorted(("mo", key, 2) for key in KEYS)
    assert table.table("late").services.verify().findings == ()


def test_the_first_write_sizes_each_partition_by_what_it_brings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pyhudi.format.table.bucket_config.TARGET_BYTES", 1000)
    table = bench()
    few, many = rows(KEYS[:10], ["few"]), rows([f"k{n}" for n in range(1000)], ["many"])
    table.table().upsert(pa.concat_tables([few, many]))
    counts = {
        day: len(ring.nodes)
        for day in ("few", "many")
        if (ring := load_ring(table.storage, day, FIRST_INSTANT)) is not None
    }
    assert counts["few"] == 1
    assert counts["many"] == 32


def test_a_creator_that_died_leaves_its_ring_to_the_next() -> None:
    table = bench(buckets=ConsistentBuckets(4))
    ring = initial_ring("mo", 4)
    table.storage.create(f"{RING_ROOT}/mo/{ring.file_name}", encode_ring(ring))
    table.table().upsert(rows(KEYS, ["mo"]))
    assert content(table) == sorted(("mo", key, 1) for key in KEYS)
