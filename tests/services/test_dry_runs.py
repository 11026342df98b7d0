"""A dry run writes nothing: no clock's object, no test of the store, not what others decided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

import pyhudi
from faulty_storage import Effect, Fault, FaultyStorage
from memory_tables import MemoryTable
from pyhudi.api.table import Table
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.session import open as opening

SCHEMA = pa.schema([("id", pa.string()), ("at", pa.int64())])
READS = {"stat", "read", "read_ranges", "open", "list", "list_folder"}
SERVICES: dict[str, Callable[[Table], object]] = {
    "run": lambda table: table.services.run(dry_run=True),
    "compact": lambda table: table.services.compact(dry_run=True),
    "clean": lambda table: table.services.clean(dry_run=True),
    "archive": lambda table: table.services.archive(dry_run=True),
}
HOURS = pyhudi.Upkeep(clean=pyhudi.CleanPolicy.hours(1))


def rows(at: int) -> pa.Table:
    return pa.table({"id": ["a", f"k{at}"], "at": [at, at]}, schema=SCHEMA)


def made(**definition: Any) -> MemoryTable:
    memory = MemoryTable(SCHEMA, ordering="at", buckets=SimpleBuckets(1), **definition)
    table = memory.table()
    for at in range(1, 36):
        table.upsert(rows(at))
        memory.clock.ms += 60_000
    return memory


def written(memory: MemoryTable, look: Callable[[Table], object]) -> list[str]:
    """What a process that has just opened the table writes for it."""
    storage = FaultyStorage(memory.storage)
    look(memory.table("person", storage))
    assert storage.trace
    return [f"{call.name} {call.path}" for call in storage.trace if call.name not in READS]


@pytest.fixture(scope="module")
def old() -> MemoryTable:
    return made()


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("has_consumer", [False, True], ids=["alone", "consumer"])
def test_a_dry_run_writes_nothing(old: MemoryTable, service: str, has_consumer: bool) -> None:
    if has_consumer:
        old.table().consumers.register("billing")
    assert written(old, SERVICES[service]) == []
    assert written(old, lambda table: table.services.run(HOURS, dry_run=True)) == []


def test_a_printed_dry_run_does_not_grow_with_the_commits() -> None:
    memory = made()
    table = memory.table("person")
    few = len(str(table.services.run(dry_run=True)).splitlines())
    for at in range(36, 136):
        memory.table().upsert(rows(at))
    assert len(str(table.services.run(dry_run=True)).splitlines()) <= few + 10
    assert few < 30


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("lock", [LockKind.NONE, LockKind.STORAGE], ids=lambda kind: kind.value)
def test_an_entry_that_another_process_did_not_apply_is_left_to_others(
    service: str, lock: LockKind
) -> None:
    memory = made(lock=lock)
    crashed = FaultyStorage(
        memory.storage, [Fault(Effect.FAIL, "create", "*.deltacommit.requested", times=None)]
    )
    with pytest.raises(pyhudi.HudiError):
        memory.table("crashed", crashed).upsert(rows(99))
    names = memory.names()
    memory.clock.ms += 600_000  # a lock that it held is over
    assert written(memory, SERVICES[service]) == []
    assert memory.names() == names
    memory.table("next").upsert(rows(100))
    assert len(set(memory.names()) - set(names)) > 3  # the begin that was left, and its own write


def test_a_store_is_put_to_the_test_before_the_first_write_and_not_by_a_dry_run() -> None:
    memory = made()
    memory.storage.delete(opening.PROBED)
    probed: list[str] = []
    with (
        patch.object(opening, "is_atomic_by_construction", lambda _: False),
        patch.object(opening, "verify_atomic_create", lambda *_: probed.append("create")),
    ):
        table = memory.table("person")
        for look in SERVICES.values():
            look(table)
        assert memory.storage.stat(opening.PROBED) is None
        assert probed == []
        table.upsert(rows(100))
        assert memory.storage.stat(opening.PROBED) is not None
        assert probed == ["create"]


def test_a_write_after_a_dry_run_in_the_same_process_knows_all() -> None:
    memory = made()
    table, other = memory.table("person"), memory.table("other")
    for at in range(50, 54):
        table.services.run(dry_run=True)
        other.upsert(rows(at))
        table.services.compact(dry_run=True)
        table.upsert(rows(at + 100))
    found = set(memory.table("reader").read(columns=["id"]).to_arrow().column("id").to_pylist())
    assert {f"k{at}" for at in (*range(50, 54), *range(150, 154))} <= found
