"""Tables of consistent buckets, Hudi's and our own: every kind of write, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import pyhudi
from faulty_storage import FaultyStorage
from golden_tables import unpack
from memory_tables import MemoryTable
from pyhudi.errors import (
    ConflictError,
    CorruptTableError,
    InvalidRequestError,
)
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.bucket_config import ConsistentBuckets, SimpleBuckets
from pyhudi.format.table.column_owners import ColumnOwners
from pyhudi.format.table.ring_file import FIRST_INSTANT, RING_ROOT, initial_ring
from pyhudi.storage.objects.column_owners import declare_owners
from pyhudi.storage.objects.rings import create_first_ring

SCHEMA = pa.schema(
    [("id", pa.string()), ("day", pa.string()), ("ts", pa.int64()), ("n", pa.int64())]
)


def rows(first: int, last: int, ts: int = 1, n: int = 0) -> pa.Table:
    numbers = range(first, last)
    return pa.table(
        {
            "id": [f"k{i}" for i in numbers],
            "day": [f"d{i % 3}" for i in numbers],
            "ts": [ts] * len(numbers),
            "n": [n] * len(numbers),
        },
        schema=SCHEMA,
    )


def bench(**options: Any) -> MemoryTable:
    given = {"partition_by": "day", "ordering": "ts", "buckets": ConsistentBuckets(4), **options}
    return MemoryTable(SCHEMA, **given)


def content(table: pyhudi.Table) -> dict[str, int]:
    found = table.read(columns=["id", "n"]).to_arrow().to_pylist()
    assert len({row["id"] for row in found}) == len(found), "no key is there twice"
    return {row["id"]: row["n"] for row in found}


MODES: dict[str, dict[str, Any]] = {
    "non-blocking": {},
    "optimistic": {"ordering": ()},
    "without partitions": {"partition_by": ()},
    "sized by itself": {"buckets": None},
}


@pytest.mark.parametrize("options", MODES.values(), ids=MODES)
def test_every_kind_of_write_and_service_goes_by_the_rings(options: dict[str, Any]) -> None:
    made = bench(**options)
    table = made.table()
    table.upsert(rows(0, 200))
    table.upsert(rows(100, 300, ts=2, n=2))
    table.append(rows(300, 310))
    table.append(rows(310, 320), require_new_keys=True)
    with pytest.raises(InvalidRequestError, match="in the table already"):
        table.append(rows(5, 6), require_new_keys=True)
    expected = {f"k{i}": 2 if 100 <= i < 300 else 0 for i in range(320)}
    assert content(table) == expected
    table.delete(rows(0, 10, ts=3))
    table.delete(pa.table({"id": ["k11", "none"]}))
    table.delete("n = 2 AND id = 'k250'")
    table.update(rows(20, 30, n=7).append_column("x", pa.nulls(10)), columns=["n"])
    for key in (*range(10), 11, 250):
        del expected[f"k{key}"]
    expected.update({f"k{i}": 7 for i in range(20, 30)})
    assert content(table) == expected
    table.services.compact()
    assert content(made.table("reader")) == expected
    table.upsert(rows(0, 50, ts=4, n=4))
    expected.update({f"k{i}": 4 for i in range(50)})
    assert content(made.table("reader")) == expected
    table.services.run()
    assert content(made.table("reader")) == expected
    assert table.services.verify().findings == ()
    assert table.services.repair() is not None
    table.overwrite(rows(0, 60, ts=9, n=9), partitions="all")
    table.upsert(rows(50, 70, ts=10, n=10))
    assert content(table) == {f"k{i}": 9 if i < 50 else 10 for i in range(70)}
    assert table.services.verify().findings == ()


def test_changes_of_rows_that_are_not_there_lay_out_no_partition() -> None:
    made = bench()
    table = made.table()
    table.upsert(rows(0, 3))
    table.update(rows(0, 3).set_column(1, "day", pa.array(["x"] * 3)), columns=["n"])
    table.delete(pa.table({"id": ["k0"], "day": ["y"]}))
    folders = {s.path.split("/")[-2] for s in made.storage.list(RING_ROOT)}
    assert folders == {"d0", "d1", "d2"}


@pytest.mark.parametrize("days", [("d0", "d1", "d2"), ("d0",)])
def test_keys_are_deleted_in_all_partitions_though_their_rings_differ(
    days: tuple[str, ...],
) -> None:
    made = bench()
    for day, count in zip(("d0", "d1", "d2"), (4, 3, 8), strict=True):
        create_first_ring(made.storage, initial_ring(day, count))
    table = made.table()
    numbers = range(200)
    for day in days:
        table.upsert(rows(0, 200).set_column(1, "day", pa.array([day] * 200)))
    table.delete(pa.table({"id": [f"k{n}" for n in numbers if n % 2]}))
    found = made.table("reader").read(columns=["id", "day"]).to_arrow().to_pylist()
    assert sorted((row["day"], row["id"]) for row in found) == sorted(
        (day, f"k{n}") for day in days for n in numbers if n % 2 == 0
    )


def test_two_owners_write_parts_of_rows() -> None:
    made = MemoryTable(
        SCHEMA.remove(2), partition_by="day", owners={"a": ["n"]}, buckets=ConsistentBuckets(2)
    )
    declare_owners(made.storage, ColumnOwners({"a": ("n",)}))
    table = made.table()
    table.upsert(rows(0, 20, n=5).drop_columns(["ts"]), owner="a")
    table.upsert(rows(10, 30, n=6).drop_columns(["ts"]), owner="a")
    assert content(table) == {f"k{i}": 5 if i < 10 else 6 for i in range(30)}
    table.services.compact()
    assert content(made.table("reader")) == {f"k{i}": 5 if i < 10 else 6 for i in range(30)}


def test_writers_of_one_node_conflict_where_order_counts_and_the_report_names_it() -> None:
    made = bench(ordering=(), buckets=ConsistentBuckets(1))
    made.table().upsert(rows(0, 3))
    session = made.session()
    node = session.groups.ring("d0")
    assert node is not None
    other = made.table("other")
    met: list[int] = []

    class Late(FaultyStorage):
        def create(self, path: str, data: bytes) -> bool:
            if not met and ".log." in path and "/.temp/" not in path:
                met.append(1)
                other.upsert(rows(0, 1, n=3))
            return super().create(path, data)

    late = made.table("late", Late(made.storage), conflict_retries=0)
    with pytest.raises(ConflictError) as caught:
        late.update(rows(0, 1, n=4), columns=["n"])
    assert caught.value.facts["bucket"] is None
    assert caught.value.facts["node"] == node.nodes[0].position
    assert content(made.table()) == {"k0": 3, "k1": 0, "k2": 0}


# ---- Hudi's tables


@pytest.fixture
def copy(tmp_path: Path) -> Any:
    return lambda name: str(unpack(name, tmp_path))


@pytest.mark.parametrize(
    "name", ["mor_consistent_hash", "mor_consistent_hash_split", "mor_consistent_hash_merge"]
)
def test_hudis_tables_are_continued(copy: Any, name: str) -> None:
    """Rows that Hudi placed are found, and updated where they are."""
    uri = copy(name)
    before = pyhudi.open_table(uri).read().to_arrow()
    table = pyhudi.open_table(uri)
    raised = before.set_column(
        before.schema.get_field_index("ver"), "ver", pc.add(before.column("ver"), 100)
    )
    table.upsert(raised)
    after = pyhudi.open_table(uri).read().to_arrow()
    assert after.num_rows == before.num_rows
    assert sorted(after.column("ver").to_pylist()) == sorted(raised.column("ver").to_pylist())
    table.delete(
        raised.slice(0, 2).set_column(
            before.schema.get_field_index("ver"), "ver", pc.add(raised.column("ver")[:2], 1)
        )
    )
    table.services.compact()
    found = pyhudi.open_table(uri)
    assert found.read().to_arrow().num_rows == before.num_rows - 2
    found.overwrite(raised, partitions="all")
    assert pyhudi.open_table(uri).read().to_arrow().num_rows == before.num_rows


def test_another_kind_of_buckets_than_the_tables_is_refused(copy: Any) -> None:
    uri = copy("mor_consistent_hash")
    some = pyhudi.open_table(uri).read().to_arrow()
    with pytest.raises(InvalidRequestError, match="has consistent buckets"):
        pyhudi.open_table(uri, buckets=3).upsert(some)
    pyhudi.open_table(uri, buckets=ConsistentBuckets(3)).upsert(some)
    simple = copy("mor_simple_bucket_v9")
    with pytest.raises(InvalidRequestError, match="has simple buckets"):
        pyhudi.open_table(simple, buckets=ConsistentBuckets()).upsert(some)


# ---- refused


def test_a_recorded_kind_of_buckets_cannot_be_contradicted(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    pyhudi.create_table(uri, SCHEMA, record_key="id", buckets=ConsistentBuckets(2))
    with pytest.raises(InvalidRequestError, match="all its writers must agree"):
        pyhudi.open_table(uri, buckets=2).upsert(rows(0, 1))
    with pytest.raises(pyhudi.TableExistsError, match="buckets"):
        pyhudi.create_table(uri, SCHEMA, record_key="id", buckets=2, exist_ok=True)
    pyhudi.create_table(uri, SCHEMA, record_key="id", exist_ok=True).upsert(rows(0, 1))


def test_a_damaged_ring_stops_writers_and_nothing_is_rewritten() -> None:
    made = bench()
    made.table().upsert(rows(0, 3))
    path = f"{RING_ROOT}/d1/{FIRST_INSTANT}.hashing_meta"
    made.storage.write(path, made.storage.read(path)[:50])
    before = {s.path: s.etag for s in made.storage.list("")}
    with pytest.raises(CorruptTableError, match="partition 'd1'") as caught:
        made.table("b").upsert(rows(0, 3, ts=2))
    assert caught.value.path == path
    after = {s.path: s.etag for s in made.storage.list("")}
    assert {p: e for p, e in after.items() if p in before} == before
    assert len(content(made.table("c"))) == 3
    kinds = {finding.path for finding in made.table("c").services.verify().findings}
    assert kinds == {path}


def test_a_file_group_off_the_ring_stops_writers() -> None:
    made = bench(lock=LockKind.FILE)
    made.table().upsert(rows(0, 3))
    stray = next(s.path for s in made.storage.list("d1") if s.path.endswith(".parquet"))
    other = stray.replace(stray.split("/")[1][:8], "deadbeef")
    made.storage.create(other, made.storage.read(stray))
    with pytest.raises(CorruptTableError, match="out of place"):
        made.table("b").upsert(rows(0, 3, ts=2))


def test_simple_buckets_are_still_a_number() -> None:
    assert bench(buckets=SimpleBuckets(3)).table().upsert(rows(0, 9)).rows == 9
