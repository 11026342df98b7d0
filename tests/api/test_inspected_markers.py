"""`table.inspect.markers()`: who has announced which file, and whether it is alive."""

from __future__ import annotations

from typing import Any

import pytest

import pyhudi
from many_writers.scene import COW, NBCC, OCC, HeldWrite, Scene, Stop, rows
from pyhudi.errors import CorruptTableError
from pyhudi.format.table.bucket_config import ConsistentBuckets, SimpleBuckets
from pyhudi.index.simple_bucket import file_id
from pyhudi.storage.objects import markers
from pyhudi.storage.objects.markers import load_markers

KEYS = [f"k{n}" for n in range(24)]


def made(**definition: Any) -> Scene:
    scene = Scene(**{"buckets": SimpleBuckets(2), **definition})
    scene.table("before").upsert(rows("old", *KEYS))
    return scene


def held(scene: Scene, label: str, *ids: str, **settings: Any) -> HeldWrite:
    given = rows(label, *ids, ts=2)
    return scene.hold(label, lambda table: table.upsert(given), Stop.WRITTEN, **settings)


def board(scene: Scene) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = scene.table("looking").inspect.markers().to_pylist()
    return found


def test_a_table_on_which_no_process_writes_has_an_empty_board() -> None:
    table = made(**NBCC).table().inspect.markers()
    assert table.num_rows == 0
    assert {"instant", "job", "partition", "file_id", "announced", "alive"} <= {*table.schema.names}


def test_each_file_that_a_pending_write_has_announced_is_a_row() -> None:
    scene = made(**NBCC)
    began_ms = scene.clock.ms
    writer = held(scene, "a", *KEYS, job="nightly", priority=3)
    now_ms = scene.clock.ms
    shown = board(scene)
    assert [(row["partition"], row["file_id"], row["bucket"]) for row in shown] == [
        ("mo", file_id(0), 0),
        ("mo", file_id(1), 1),
    ]
    data = {stat.path for stat in scene.storage.list("mo")}
    for row in shown:
        assert (row["job"], row["priority"], row["action"]) == ("nightly", 3, "deltacommit")
        assert (row["file"], row["alive"], row["problem"]) == ("log", True, None)
        assert row["path"] in data
        assert row["instant"] in row["path"]
        for seen in ("announced", "last_sign"):
            assert began_ms <= row[seen].timestamp() * 1000 <= now_ms
    writer.finish()
    assert board(scene) == []


def test_base_files_are_told_from_logs_and_nodes_from_buckets() -> None:
    scene = made(**COW)
    writer = held(scene, "a", *KEYS)
    assert {row["file"] for row in board(scene)} == {"base"}
    writer.finish()
    scene = made(**NBCC, buckets=ConsistentBuckets(2))
    writer = held(scene, "a", *KEYS)
    shown = board(scene)
    assert [row["bucket"] for row in shown] == [None, None]
    places = scene.table("ours").plan_upsert(rows("a", *KEYS)).places().to_pylist()
    assert len({row["node"] for row in shown}) == 2
    columns = ("partition", "file_id", "node")
    assert [[row[name] for name in columns] for row in shown] == [
        [row[name] for name in columns] for row in places
    ]
    writer.finish()


def test_a_writer_that_was_silent_for_too_long_counts_as_dead() -> None:
    scene = made(**OCC)
    held(scene, "silent", KEYS[0])
    scene.clock.sleep(10 * 60_000)
    assert [row["alive"] for row in board(scene)] == [False]
    patient = scene.table("looking", heartbeat_misses=100).inspect.markers()
    assert patient["alive"].to_pylist() == [True]


def test_a_look_changes_nothing() -> None:
    scene = made(**NBCC)
    writer = held(scene, "a", *KEYS)
    before = list(scene.storage.list(""))
    board(scene)
    assert list(scene.storage.list("")) == before
    writer.finish()


def lists(scene: Scene, instant: str, number: int, data: bytes) -> None:
    scene.storage.write(f".hoodie/.temp/{instant}/MARKERS{number}", data)


def test_the_lists_of_hudi_are_read_as_markers_are() -> None:
    scene = made(**NBCC)
    writer = held(scene, "a", KEYS[0])
    [one] = board(scene)
    instant = one["instant"]
    name = f"tu/{file_id(1)}_0-0-0_{instant}.parquet.marker.CREATE\n"
    scene.storage.write(f".hoodie/.temp/{instant}/MARKERS.type", b"TIMELINE_SERVER_BASED")
    lists(scene, instant, 0, name.encode())
    listed = [row for row in board(scene) if row["partition"] == "tu"]
    assert [(row["file_id"], row["file"]) for row in listed] == [(file_id(1), "base")]
    assert len(board(scene)) == 2
    for stat in list(scene.storage.list(f".hoodie/.temp/{instant}/MARKERS")):
        scene.storage.delete(stat.path)
    writer.finish()


GARBAGE = [
    b"\xff\xfe",
    b"no marker\n",
    b"../../outside.parquet.marker.CREATE\n",
    b"mo/00000000-0000-0000-0000-000000000000-0_0-0-0_20200101000000000.parquet.marker.CREATE\n",
]


def test_a_list_that_cannot_be_read_hides_neither_its_writer_nor_others() -> None:
    for garbage in GARBAGE:
        scene = made(**NBCC)
        sick, sound = held(scene, "sick", KEYS[0]), held(scene, "sound", KEYS[1])
        first, second = sorted({row["instant"] for row in board(scene)})
        lists(scene, first, 0, garbage)
        good = f"tu/{file_id(1)}_0-0-0_{first}.parquet.marker.CREATE\n".encode()
        lists(scene, first, 1, good)
        shown = board(scene)
        problems = [row for row in shown if row["problem"] is not None]
        assert [(row["instant"], row["path"]) for row in problems] == [(first, None)]
        assert [row["partition"] for row in shown if row["instant"] == first] == ["mo", "tu", None]
        assert [row["partition"] for row in shown if row["instant"] == second] == ["mo"]
        with pytest.raises(CorruptTableError):  # in a rollback
            load_markers(scene.storage, first)
        for number in (0, 1):
            scene.storage.delete(f".hoodie/.temp/{first}/MARKERS{number}")
        sick.finish()
        sound.finish()


def test_a_list_that_is_too_long_is_refused_and_not_read_in_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = made(**NBCC)
    writer = held(scene, "a", KEYS[0])
    [one] = board(scene)
    line = f"tu/{file_id(1)}_0-0-0_{one['instant']}.parquet.marker.CREATE\n".encode()
    lists(scene, one["instant"], 0, line * 2)
    monkeypatch.setattr(markers, "MARKER_LIST_BYTES_MAX", len(line))
    [first, second] = board(scene)
    assert first == one
    assert "cannot be read" in second["problem"]
    with pytest.raises(CorruptTableError):
        load_markers(scene.storage, one["instant"])
    scene.storage.delete(f".hoodie/.temp/{one['instant']}/MARKERS0")
    writer.finish()


def test_an_executed_plan_is_shown_with_the_process_that_executes_it() -> None:
    scene = made(**NBCC)
    policy = pyhudi.CompactionPolicy(trigger_delta_commits=1)
    scene.table("service").services.compact(policy, plan_only=True)
    assert board(scene) == []  # it has announced nothing
    [plan] = {name[:17] for name in scene.pending()}
    marker = f"mo/{file_id(0)}_0-0-0_{plan}.parquet.marker.CREATE"
    scene.storage.create(f".hoodie/.temp/{plan}/{marker}", b"")
    [row] = board(scene)
    assert (row["action"], row["last_sign"], row["alive"]) == ("compaction", None, False)
