"""`table.inspect.buckets()`: every bucket with its range, size and state."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from counted_storage import CountedStorage
from golden_tables import GoldenTables
from many_writers.services_by_hand import begin_service, plan_clustering
from memory_tables import MemoryTable
from pyhudi.api.inspected_buckets import BUCKETS
from pyhudi.commit.proposals import Close, Decided
from pyhudi.format.files.file_names import FileGroupId, parse_data_file
from pyhudi.format.table.bucket_config import ConsistentBuckets, SimpleBuckets
from pyhudi.format.table.ring_file import RING_MAX, RING_ROOT, Ring, encode_ring, initial_ring
from pyhudi.format.timeline.instant import Action, InstantTime
from pyhudi.format.timeline.resize_plan import encode_resize_plan
from pyhudi.index.ring_changes import merge, ring_after
from pyhudi.plan.resizing.choose import RingLimits, SizedPartition, plan_resize
from pyhudi.plan.resizing.policy import ResizePolicy
from pyhudi.read.plan import Reader
from pyhudi.session.live_groups import live_slices
from resize_tables import ResizeTable
from sized_rings import facts

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("at", pa.int64())])


def bench(buckets: Any) -> MemoryTable:
    memory = MemoryTable(SCHEMA, partition_by="day", ordering="at", buckets=buckets)
    for at, count in ((1, 60), (2, 10)):
        days = ["mo" if n % 3 else "tu" for n in range(count)]
        rows = {"id": [f"k{n}" for n in range(count)], "day": days, "at": [at] * count}
        memory.table().upsert(pa.table(rows, schema=SCHEMA))
    return memory


def shown(table: pyhudi.Table, **how: Any) -> list[dict[str, Any]]:
    found = table.inspect.buckets(**how)
    assert found.schema == BUCKETS
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def ranges(rows: list[dict[str, Any]]) -> list[list[tuple[int, int]]]:
    return [[(r["first"], r["last"]) for r in row["range"]] for row in rows]


@pytest.mark.parametrize("buckets", [SimpleBuckets(4), ConsistentBuckets(4)], ids=repr)
def test_every_bucket_is_shown_with_its_rows_and_bytes(buckets: Any) -> None:
    memory = bench(buckets)
    table = memory.table("looker")
    rows = shown(table)
    assert [(row["partition"], row["bucket"]) for row in rows] == [
        (day, n) for day in ("mo", "tu") for n in range(4)
    ]
    assert sum(row["rows"] for row in rows) == 60 == table.read().count()
    files = table.inspect.file_slices().to_pylist()
    assert {row["file_id"]: row["bytes"] for row in rows if row["partition"] == "mo"} == {
        f["file_id"]: f["bytes"] for f in files if f["latest"] and f["partition"] == "mo"
    }
    for day in ("mo", "tu"):
        assert sum(r["share"] for r in rows if r["partition"] == day) == pytest.approx(1)
    assert {row["state"] for row in rows} == {"normal"}
    last = table.history(limit=1).to_pylist()[0]["completed"]
    assert max(row["last_change"] for row in rows) == last
    assert min(row["last_change"] for row in rows) <= last


def test_consistent_buckets_have_ranges_that_cover_the_ring_and_simple_ones_have_none() -> None:
    rows = shown(bench(ConsistentBuckets(4)).table())
    for day in ("mo", "tu"):
        found = sorted(
            r for part in ranges([x for x in rows if x["partition"] == day]) for r in part
        )
        assert found[0][0] == 0
        assert found[-1][1] == RING_MAX
        assert all(a[1] + 1 == b[0] for a, b in pairwise(found))
    assert {row["range"] is None for row in shown(bench(SimpleBuckets(4)).table())} == {True}


@pytest.mark.parametrize(
    "name", ["mor_consistent_hash", "mor_consistent_hash_split", "mor_consistent_hash_merge"]
)
def test_hudis_rings_are_shown_as_they_are_in_force(golden: GoldenTables, name: str) -> None:
    table = pyhudi.open_table(str(golden.path(name)))
    rows = shown(table)
    assert sum(row["rows"] for row in rows) == table.read().count()
    assert {row["state"] for row in rows} <= {"normal", "empty"}
    width = sum(last - first + 1 for part in ranges(rows) for first, last in part)
    assert width == (RING_MAX + 1) * len({row["partition"] for row in rows})
    if name == "mor_consistent_hash_merge":
        assert ranges(rows) == [[(0, 536870912), (536870913, RING_MAX)]]


def test_buckets_of_a_pending_resize_name_it(golden: GoldenTables) -> None:
    table = golden.path("mor_consistent_hash_pending")
    (plan,) = (table / ".hoodie/timeline").glob("*.clustering.requested")
    rows = shown(pyhudi.open_table(str(table)))
    states = {row["state"] for row in rows}
    assert f"in resize {plan.name.partition('.')[0]}" in states
    assert not any(row["state"] == "on no ring" for row in rows)


def test_buckets_of_any_pending_plan_name_it() -> None:
    memory = bench(ConsistentBuckets(2))
    session = memory.session("planner")
    state = session.current.load()
    slices = live_slices(state, Reader(session.loader).completion_times(state))
    mine = {g.file_id: s for g, s in slices.items() if g.partition == "mo"}
    ring = initial_ring("mo", 2)
    given = facts(SizedPartition(ring, mine))
    preview = plan_resize(given, ResizePolicy(), RingLimits(1, 9), {})
    data = encode_resize_plan(preview.plan(iter("abc")), session.storage.uri, bytes(16))
    resize = begin_service(session, Action.CLUSTERING, data)
    group = FileGroupId("tu", shown(memory.table())[2]["file_id"])
    clustering = plan_clustering(memory.session("other"), [group])
    states = [row["state"] for row in shown(memory.table())]
    assert states == [
        *[f"in resize {resize.requested}"] * 2,
        f"in clustering {clustering.requested}",
        "normal",
    ]
    outcome = session.log.append(Close(resize.requested))
    assert isinstance(outcome, Decided)
    closed = [row["state"] for row in shown(memory.table())]
    assert closed == [*[f"in resize {resize.requested}, closed"] * 2, *states[2:]]
    path = session.log.path(session.log.live.pending[resize.requested])
    memory.storage.write(path, b"x")
    unclear = (
        f"perhaps in resize {resize.requested}, whose plan {path!r} cannot be read;"
        f" table.services.cancel_resize({resize.requested!r}) cancels it"
    )
    damaged = [row["state"] for row in shown(memory.table())]
    assert damaged == [unclear, unclear, f"in clustering {clustering.requested}", unclear]


def test_a_bucket_without_files_is_empty_and_a_group_on_no_ring_is_named(
    golden: GoldenTables, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    shutil.copytree(golden.path("mor_consistent_hash_split"), table)
    ring_file = max((table / RING_ROOT).rglob("*.hashing_meta"))
    lost = ring_file.read_text().replace("325a6b3a-f4fb", "aaaaaaaa-f4fb")
    ring_file.write_text(lost)
    rows = {row["file_id"][:8]: row for row in shown(pyhudi.open_table(str(table)))}
    assert rows["aaaaaaaa"]["state"] == "empty"
    assert (rows["aaaaaaaa"]["rows"], rows["aaaaaaaa"]["bytes"]) == (0, 0)
    assert rows["aaaaaaaa"]["last_change"] is None
    assert rows["325a6b3a"]["state"] == "on no ring"
    assert rows["325a6b3a"]["range"] is None
    assert rows["325a6b3a"]["rows"]


def test_without_rows_no_data_file_is_opened() -> None:
    memory = bench(ConsistentBuckets(2))
    storage = CountedStorage(memory.storage)
    rows = shown(memory.table("looker", storage.as_storage()), rows=False)
    assert {row["rows"] for row in rows} == {None}
    names = (request.path.rpartition("/")[2] for request in storage.requests)
    assert not any(map(parse_data_file, names))
    shown(memory.table("looker", storage.as_storage()))
    names = (request.path.rpartition("/")[2] for request in storage.requests)
    assert any(map(parse_data_file, names))


def test_a_table_without_rows_has_no_buckets_yet() -> None:
    memory = MemoryTable(SCHEMA, partition_by="day", ordering="at", buckets=ConsistentBuckets(2))
    assert shown(memory.table()) == []


def test_a_ring_that_is_newer_than_the_table_is_shown_with_what_there_is() -> None:
    """Another process may be about to complete its resize: the table is loaded again, and then
    shown as it is."""
    memory = bench(ConsistentBuckets(2))
    later = "20991231000000000"
    made: Ring = ring_after(
        initial_ring("mo", 2), [merge(initial_ring("mo", 2), range(2), "m")], InstantTime(later)
    )
    memory.storage.write(f"{RING_ROOT}/mo/{later}.hashing_meta", encode_ring(made))
    memory.storage.write(f"{RING_ROOT}/mo/{later}.commit", b"")
    rows = shown(memory.table())
    assert [row["state"] for row in rows if row["partition"] == "mo"] == [
        "empty",
        "on no ring",
        "on no ring",
    ]


def lost(data: bytes) -> bytes | None:
    return None


def cut_off(data: bytes) -> bytes | None:
    return data[:-30]


def changed(data: bytes) -> bytes | None:
    middle = len(data) // 2
    return (
        data[:middle] + bytes(byte ^ 255 for byte in data[middle : middle + 9]) + data[middle + 9 :]
    )


@pytest.mark.parametrize("is_base", [True, False], ids=["base", "log"])
@pytest.mark.parametrize("damage", [lost, cut_off, changed])
def test_a_damaged_input_of_a_resize_that_cannot_be_finished_is_named(
    damage: Callable[[bytes], bytes | None], is_base: bool
) -> None:
    memory = ResizeTable(is_virtual=True, ordering="ts")
    memory.put("klmn", 1)
    memory.put("op", 1, day="e")
    if is_base:
        memory.table("compactor").services.compact()
    [path] = [s.path for s in memory.storage.list("d") if (".log." not in s.path) == is_base][-1:]
    requested = memory.plan()
    memory.put("kx", 2)
    whole, damaged = memory.storage.read(path), damage(memory.storage.read(path))
    if damaged is None:
        memory.storage.delete(path)
    else:
        memory.storage.write(path, damaged)
    assert memory.table("keeper").services.run(keep_going=True).errors

    [broken, sound] = shown(memory.table("looker"))
    assert broken["state"].startswith(f"in resize {requested}; damaged: {path!r}: ")
    assert broken["rows"] is None
    assert (sound["rows"], sound["state"]) == (2, "normal")
    table = memory.table("looker")
    for _ in range(2):  # the second time it knows the commits
        [unopened, _] = shown(table, rows=False)
        assert ("damaged" in unopened["state"]) == (damage is not changed)

    memory.storage.write(path, whole)
    assert shown(memory.table("looker"))[0]["state"] == f"in resize {requested}"
    assert memory.resizes().execute(requested) is not None


def test_a_damaged_bucket_is_named_and_the_others_are_counted() -> None:
    memory = bench(SimpleBuckets(2))
    [path, *_] = [s.path for s in memory.storage.list("mo") if ".log." in s.path]
    memory.storage.write(path, memory.storage.read(path)[:-30])
    [broken, *others] = shown(memory.table("looker"))
    assert broken["state"].startswith(f"damaged: {path!r}: ")
    assert broken["rows"] is None
    assert [row["state"] for row in others] == ["normal"] * 3
    assert all(row["rows"] for row in others)
