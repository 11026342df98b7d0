"""Hudi's file-system lock: rivals, Java writers, leftovers, garbage and failing disks.

A Java writer is played by what it does to the file: it creates it empty, and deletes whatever is
there when it closes its lock.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from faulty_storage import Effect, Fault, FaultyStorage
from locking_world import MINUTE_MS, Universe
from pyhudi.errors import (
    CorruptTableError,
    HudiError,
    InvalidRequestError,
    UnavailableError,
)
from pyhudi.storage.locks.file_lock import LOCK_PATH, FileLock
from pyhudi.storage.protocol import Storage
from pyhudi.storage.stores.memory import MemoryStorage

EFFECTS = [Effect.FAIL, Effect.LOSE_REPLY]


@pytest.fixture
def universe() -> Universe:
    return Universe()


@pytest.fixture
def memory(universe: Universe) -> MemoryStorage:
    return universe.memory()


def taken_by_java(storage: Storage) -> None:
    assert storage.create(LOCK_PATH, b"")


def time_out(lock: FileLock) -> UnavailableError:
    with pytest.raises(UnavailableError) as caught:
        lock.acquire(2_000)
    return caught.value


def test_file_is_where_hudi_looks_and_tells_people_who_made_it(
    memory: MemoryStorage, universe: Universe
) -> None:
    FileLock(memory, universe.world("alice, process 7")).acquire(0)
    assert LOCK_PATH == ".hoodie/lock"
    body = json.loads(memory.read(LOCK_PATH))
    assert body["owner"] == "alice, process 7"
    assert body["since"] == "2023-11-14T22:13:20.000+00:00"
    assert len(body["id"]) == 36


def test_taking_and_giving_back_is_one_create_one_look_and_one_delete(
    memory: MemoryStorage, universe: Universe
) -> None:
    counted = FaultyStorage(memory)
    FileLock(counted, universe.world()).acquire(0).release()
    assert [operation.name for operation in counted.trace] == ["create", "read", "delete"]


def test_time_out_names_our_own_kind_by_name(memory: MemoryStorage, universe: Universe) -> None:
    FileLock(memory, universe.world("alice, process 7")).acquire(0)
    error = time_out(FileLock(memory, universe.world("bob")))
    assert error.why == "'alice, process 7' has it since 2023-11-14T22:13:20.000+00:00"
    assert error.next_step == (
        "Repeat the call when that writer is done; if it is known to be dead, "
        "have its operator delete '.hoodie/lock'"
    )


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"", "a writer that leaves no name, as Hudi's Java writers do, has it"),
        (b" \n", "a writer that leaves no name"),
        (b'{"lockThreadName":"main"}', '\'{"lockThreadName":"main"}\' has it'),
        (b'{"owner":null}', "'{\"owner\":null}' has it"),
        (b'{"owner":"forged\\u001b[2J\\ud800"}', r"'forged\x1b[2J\ud800' has it"),
        (b'{"owner":"s3://me:pw@host"}', "'s3://***@host' has it"),
        (b"\xff\x00\xfe", r"'�\x00�' has it"),
        (b"[" * 100_000, "'[[["),
        (b"x" * 10_000_000, "'xxxx"),
    ],
)
def test_foreign_bodies_are_shown_and_never_trusted(
    memory: MemoryStorage, universe: Universe, body: bytes, shown: str
) -> None:
    memory.create(LOCK_PATH, body)
    universe.pass_ms(MINUTE_MS)
    error = time_out(FileLock(memory, universe.world()))
    assert error.why.startswith(shown)
    assert error.why.endswith("since 2023-11-14T22:13:20.000+00:00")
    assert len(error.why) < 400
    assert memory.read(LOCK_PATH) == body


@pytest.mark.parametrize("skew_ms", [-10 * MINUTE_MS, 0, 10 * MINUTE_MS])
def test_file_of_a_dead_writer_stays_for_ever_by_default(
    memory: MemoryStorage, universe: Universe, skew_ms: int
) -> None:
    taken_by_java(memory)
    universe.pass_ms(365 * 24 * 60 * MINUTE_MS)
    time_out(FileLock(memory, universe.world(skew_ms=skew_ms)))
    assert memory.read(LOCK_PATH) == b""


def test_the_lock_is_no_lease(memory: MemoryStorage, universe: Universe) -> None:
    held = FileLock(memory, universe.world()).acquire(0)
    universe.pass_ms(10_000 * MINUTE_MS)
    assert held.remaining_ms() is None
    assert held.is_held()


@pytest.mark.parametrize("left", [None, b"", b'{"owner":"bob"}'], ids=["gone", "java's", "bob's"])
def test_loss_to_a_third_party_is_found_and_the_new_file_left_alone(
    memory: MemoryStorage, universe: Universe, left: bytes | None
) -> None:
    held = FileLock(memory, universe.world()).acquire(0)
    memory.delete(LOCK_PATH)  # a Java writer closing its lock
    if left is not None:
        memory.create(LOCK_PATH, left)
    assert not held.is_held()
    assert held.remaining_ms() == 0
    held.release()
    assert (memory.stat(LOCK_PATH) is None) == (left is None)
    assert left is None or memory.read(LOCK_PATH) == left


def test_lost_lock_stays_lost_even_if_its_file_comes_back(
    memory: MemoryStorage, universe: Universe
) -> None:
    held = FileLock(memory, universe.world()).acquire(0)
    body = memory.read(LOCK_PATH)
    memory.write(LOCK_PATH, b"")
    assert not held.is_held()
    memory.write(LOCK_PATH, body)
    assert not held.is_held()
    assert held.remaining_ms() == 0


def test_unlock_after_a_loss_nobody_noticed_leaves_the_new_owner(
    memory: MemoryStorage, universe: Universe
) -> None:
    first = FileLock(memory, universe.world("alice")).acquire(0)
    memory.delete(LOCK_PATH)
    second = FileLock(memory, universe.world("bob")).acquire(0)
    first.release()
    assert second.is_held()


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("nth", range(1, 8))
def test_one_failed_operation_never_costs_or_leaks_the_lock(
    memory: MemoryStorage, universe: Universe, effect: Effect, nth: int
) -> None:
    storage = FaultyStorage(memory, [Fault(effect, nth=nth)])
    held = FileLock(storage, universe.world("alice")).acquire(10_000)
    with pytest.raises(UnavailableError):
        FileLock(memory, universe.world("bob")).acquire(0)
    held.release()
    assert memory.stat(LOCK_PATH) is None


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("nth", range(1, 5))
def test_crashed_writer_leaves_nothing_or_a_file_with_its_name(
    memory: MemoryStorage, universe: Universe, effect: Effect, nth: int
) -> None:
    faults = [Fault(effect, nth=nth), Fault(Effect.FAIL, nth=nth + 1, times=None)]
    lock = FileLock(FaultyStorage(memory, faults), universe.world("the dead"))
    try:
        lock.acquire(3_000).release()
    except UnavailableError:
        universe.frozen.add("the dead")
    if memory.stat(LOCK_PATH) is not None:
        error = time_out(FileLock(memory, universe.world("bob")))
        assert error.why.startswith("'the dead' has it since 2023")
        memory.delete(LOCK_PATH)  # an operator
    assert FileLock(memory, universe.world("bob")).acquire(0).is_held()


def test_writer_that_gave_up_takes_back_a_file_created_behind_its_back(
    memory: MemoryStorage, universe: Universe
) -> None:
    faults = [Fault(Effect.LOSE_REPLY, "create"), Fault(Effect.FAIL, "stat", times=None)]
    with pytest.raises(UnavailableError, match=r"stat of '\.hoodie/lock' failed"):
        FileLock(FaultyStorage(memory, faults), universe.world()).acquire(3_000)
    assert memory.stat(LOCK_PATH) is None


def test_file_that_cannot_be_deleted_is_no_silent_matter(
    memory: MemoryStorage, universe: Universe
) -> None:
    """It would block the table for ever, so whoever holds it must hear of it, and may repeat."""
    storage = FaultyStorage(memory, [Fault(Effect.FAIL, "delete", times=4)])
    held = FileLock(storage, universe.world()).acquire(0)
    with pytest.raises(UnavailableError):
        held.release()
    assert universe.naps_ms == [1_000, 2_000, 4_000]
    assert not held.is_held()
    held.release()
    assert memory.stat(LOCK_PATH) is None


def test_disk_that_does_not_answer_is_not_taken_for_a_held_lock(
    memory: MemoryStorage, universe: Universe
) -> None:
    storage = FaultyStorage(memory)
    held = FileLock(storage, universe.world()).acquire(0)
    blind = FaultyStorage(memory, [Fault(Effect.FAIL, "read")])
    held._storage = blind  # type: ignore[attr-defined]
    with pytest.raises(UnavailableError):
        held.is_held()
    assert held.is_held()


def test_symbolic_link_in_the_place_of_the_lock_is_refused(
    local: Storage, universe: Universe, tmp_path: Path
) -> None:
    hoodie = tmp_path / "table" / ".hoodie"
    hoodie.mkdir(parents=True)
    (tmp_path / "canary").write_bytes(b"sings")
    (hoodie / "lock").symlink_to(tmp_path / "canary")
    with pytest.raises(CorruptTableError, match="symbolic link"):
        FileLock(local, universe.world()).acquire(1_000)
    assert (tmp_path / "canary").read_bytes() == b"sings"


def test_lock_swapped_for_a_link_is_lost_and_not_followed(
    local: Storage, universe: Universe, tmp_path: Path
) -> None:
    held = FileLock(local, universe.world()).acquire(0)
    place = tmp_path / "table" / ".hoodie" / "lock"
    place.rename(tmp_path / "copy")
    place.symlink_to(tmp_path / "copy")
    assert not held.is_held()
    held.release()
    assert (tmp_path / "copy").exists()


def test_folder_in_the_place_of_the_lock_ends_in_a_time_out(
    local: Storage, universe: Universe, tmp_path: Path
) -> None:
    (tmp_path / "table" / ".hoodie" / "lock").mkdir(parents=True)
    error = time_out(FileLock(local, universe.world()))
    assert "is not a file" in error.why


def test_file_truncated_by_a_java_writer_is_lost(
    local: Storage, universe: Universe, tmp_path: Path
) -> None:
    held = FileLock(local, universe.world()).acquire(0)
    (tmp_path / "table" / ".hoodie" / "lock").write_bytes(b"")
    assert not held.is_held()
    held.release()
    assert local.stat(LOCK_PATH) is not None


def test_read_only_table_is_an_error_at_once(memory: MemoryStorage, universe: Universe) -> None:
    class ReadOnly(FaultyStorage):
        def create(self, path: str, data: bytes) -> bool:
            raise InvalidRequestError("no", why="read-only", next_step="Allow it")

    with pytest.raises(HudiError, match="read-only"):
        FileLock(ReadOnly(memory), universe.world()).acquire(60_000)
    assert universe.naps_ms == []


def test_who_is_interrupted_while_the_lock_is_taken_leaves_none(
    memory: MemoryStorage, universe: Universe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file never ends by itself: everybody would wait until a person deletes it."""
    create = memory.create

    def interrupted(path: str, data: bytes) -> bool:
        create(path, data)
        raise KeyboardInterrupt

    monkeypatch.setattr(memory, "create", interrupted)
    with pytest.raises(KeyboardInterrupt):
        FileLock(memory, universe.world()).acquire(0)
    assert memory.stat(LOCK_PATH) is None
