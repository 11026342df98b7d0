"""Every crash point of creating, writing, deleting, evolving and rolling back, by the front door.

A process that dies before its nth storage operation is, to the world, one whose every operation
from the nth on fails; one that dies after it loses that reply too. So each action is run once for
each of its operations and each way to die, with the real data plane; then a fresh process writes
and repairs, and the table must be as if the action had happened or as if it had not, with nothing
left behind. Then the same with a second death inside the recovery.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import pyarrow as pa
import pytest

from faulty_storage import Effect, Fault, FaultyStorage
from opened_tables import table_on
from pyhudi.api.table import Table
from pyhudi.errors import HudiError
from pyhudi.format.files.file_names import parse_data_file
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.table_config import TableType
from pyhudi.plan.table_definition import TableDefinition
from pyhudi.read.load import is_table
from pyhudi.session.create import create_table_files
from pyhudi.settings import WriteSettings
from pyhudi.storage.protocol import Storage
from pyhudi.storage.stores.memory import MemoryStorage
from worlds import Clock, still_world

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("ts", pa.int64())])
SETTINGS = WriteSettings()
Content = dict[str, int]  # by key; and a column that was added, if it is there
ADDED = "added"
#: Every so manieth second death is tried, others for each first one; 1 tries them all.
STRIDE = int(os.environ.get("PYHUDI_CRASH_STRIDE", "97"))


def rows(ts: int, *ids: str) -> pa.Table:
    days = ["odd" if int(id_) % 2 else "even" for id_ in ids]
    return pa.table({"id": list(ids), "day": days, "ts": [ts] * len(ids)}, schema=SCHEMA)


def table_at(storage: Storage, clock: Clock, label: str) -> Table:
    return table_on(storage, still_world(clock, label), SETTINGS)


def create(storage: Storage, clock: Clock, table_type: TableType) -> None:
    definition = TableDefinition.of(
        "t",
        SCHEMA,
        record_key="id",
        partition_by="day",
        ordering="ts",
        buckets=SimpleBuckets(2),
        table_type=table_type,
    )
    world = still_world(clock, "creator", seed=clock.ms)
    create_table_files(storage, definition, world, exist_ok=True)


def content(storage: Storage, clock: Clock) -> Content:
    table = table_at(storage, clock, "reader")
    found = table.read(columns=["id", "ts"]).to_arrow()
    rows_ = dict(zip(found["id"].to_pylist(), found["ts"].to_pylist(), strict=True))
    assert len(rows_) == found.num_rows, "a key is there twice"
    return {**rows_, ADDED: 1} if ADDED in table.schema.arrow.names else rows_


@dataclass(frozen=True)
class Case:
    """An action on a table that holds the keys 2 and 4 in one partition."""

    name: str
    act: Callable[[Storage, Clock], object]
    before: Content
    after: Content


BASE: Content = {"2": 1, "4": 1}


def upsert(storage: Storage, clock: Clock) -> object:
    return table_at(storage, clock, "writer").upsert(rows(2, "2", "3", "6"))


def delete(storage: Storage, clock: Clock) -> object:
    return table_at(storage, clock, "writer").delete(pa.table({"id": ["4"]}))


def change_schema(storage: Storage, clock: Clock) -> object:
    with table_at(storage, clock, "writer").update_schema() as change:
        change.add_column(ADDED, pa.int64())
    return change


def upsert_with_a_column(storage: Storage, clock: Clock) -> object:
    wider = rows(2, "3").append_column(ADDED, pa.array([7], pa.int64()))
    return table_at(storage, clock, "writer").upsert(wider, schema_mode="add")


def roll_back(storage: Storage, clock: Clock) -> object:
    clock.sleep(SETTINGS.heartbeat_timeout_ms + 1)
    return table_at(storage, clock, "other").services.repair()


CASES = [
    Case("upsert", upsert, BASE, {"2": 2, "3": 2, "4": 1, "6": 2}),
    Case("delete", delete, BASE, {"2": 1}),
    Case("rollback", roll_back, BASE, BASE),
    Case("schema", change_schema, BASE, {**BASE, ADDED: 1}),
    Case("upsert with a column", upsert_with_a_column, BASE, {**BASE, "3": 2, ADDED: 1}),
]


@cache
def prepared(table_type: TableType, name: str) -> tuple[tuple[str, bytes, int], ...]:
    """Return the objects of the table before the action; for a rollback, with a dead write in
    it."""
    clock = Clock()
    storage = MemoryStorage(lambda: clock.ms)
    create(storage, clock, table_type)
    table_at(storage, clock, "first").upsert(rows(1, "2", "4"))
    if name == "rollback":
        dead = Fault(Effect.FAIL, operation="create", path=".hoodie/timeline/*_*", times=None)
        stuck = Fault(Effect.FAIL, operation="create", path="*/log/*", nth=2, times=None)
        with pytest.raises(HudiError):
            table_at(FaultyStorage(storage, [dead, stuck]), clock, "dead").upsert(rows(9, "2"))
    return tuple((s.path, storage.read(s.path), s.modified_ms) for s in storage.list(""))


def restored(table_type: TableType, name: str) -> tuple[MemoryStorage, Clock]:
    clock = Clock()
    storage = MemoryStorage(lambda: clock.ms)
    for path, data, modified in prepared(table_type, name):
        clock.ms = modified
        storage.write(path, data)
    clock.ms += 1_000
    return storage, clock


def deaths(count: int) -> Iterator[tuple[str, list[Fault]]]:
    for nth in range(1, count + 1):
        yield f"before {nth}", [Fault(Effect.FAIL, nth=nth, times=None)]
        lost = Fault(Effect.LOSE_REPLY, nth=nth)
        yield f"after {nth}", [lost, Fault(Effect.FAIL, nth=nth + 1, times=None)]


def recover(storage: Storage, clock: Clock) -> None:
    """Do what the next process does: write, and repair.

    A begin that was appended and not published looks young when the writer publishes it, so the
    repair comes a heartbeat's time later.
    """
    clock.sleep(SETTINGS.heartbeat_timeout_ms + 1)
    table = table_at(storage, clock, "next")
    table.upsert(rows(1, "8"), schema_mode="merge")
    clock.sleep(SETTINGS.heartbeat_timeout_ms + 1)
    table.services.repair(grace_minutes=0)


def check(storage: MemoryStorage, clock: Clock, case: Case, *, acknowledged: bool) -> None:
    found = content(storage, clock)
    assert found.pop("8") == 1
    allowed = [case.after] if acknowledged else [case.before, case.after]
    assert found in allowed
    assert leftovers(storage) == []


def leftovers(storage: MemoryStorage) -> list[str]:
    """Return what no table needs: files of rolled-back instants, their pending files, and tools of
    writing."""
    names = [s.path.rpartition("/")[2] for s in storage.list(".hoodie/timeline")]
    done = {name[:17] for name in names if "_" in name}
    left = [name for name in names if name[:1].isdigit() and name[:17] not in done]
    for stat in storage.list(""):
        name = parse_data_file(stat.path.rpartition("/")[2])
        if name is not None and name.requested not in done:
            left.append(stat.path)
    for folder in (".temp", ".heartbeat", ".pyhudi/staged", ".pyhudi/clock"):
        left += [s.path for s in storage.list(f".hoodie/{folder}")]
    return left


def died(act: Callable[[], object]) -> bool:
    """True if the action ended in an error, as it must when its process dies."""
    try:
        act()
    except HudiError:
        return True
    return False


every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
every_type = pytest.mark.parametrize("table_type", list(TableType))


def operations(table_type: TableType, case: Case) -> int:
    storage, clock = restored(table_type, case.name)
    counting = FaultyStorage(storage)
    case.act(counting, clock)
    assert content(storage, clock) == case.after
    return len(counting.trace)


@every_type
@every_case
def test_a_crash_at_any_point_leaves_all_of_it_or_nothing(
    table_type: TableType, case: Case
) -> None:
    count = operations(table_type, case)
    assert count > 10
    for when, faults in deaths(count):
        storage, clock = restored(table_type, case.name)
        failed = died(lambda: case.act(FaultyStorage(storage, faults), clock))  # noqa: B023
        try:
            recover(storage, clock)
            check(storage, clock, case, acknowledged=not failed)
        except BaseException as error:
            error.add_note(f"{case.name} on {table_type}, death {when} of {count} operations")
            raise


@every_type
@pytest.mark.parametrize("case", CASES[:-1], ids=lambda case: case.name)  # the last is two of them
def test_a_second_crash_inside_the_recovery_changes_nothing(
    table_type: TableType, case: Case
) -> None:
    """Every first death, each with some second ones, which move on so that all are met."""
    count = operations(table_type, case)
    storage, clock = restored(table_type, case.name)
    counting = FaultyStorage(storage)
    recover(counting, clock)
    second = list(deaths(len(counting.trace) + 30))  # a real recovery has more to do
    for number, (when, faults) in enumerate(deaths(count)):
        for again, more in second[number % STRIDE :: STRIDE]:
            storage, clock = restored(table_type, case.name)
            failed = died(lambda: case.act(FaultyStorage(storage, faults), clock))  # noqa: B023
            died(lambda: recover(FaultyStorage(storage, more), clock))  # noqa: B023
            try:
                recover(storage, clock)
                check(storage, clock, case, acknowledged=not failed)
            except BaseException as error:
                error.add_note(f"{case.name} on {table_type}, death {when}, and again {again}")
                raise


@every_type
def test_a_crash_at_any_point_of_creating_leaves_a_table_or_none(table_type: TableType) -> None:
    clock = Clock()
    counting = FaultyStorage(MemoryStorage(lambda: clock.ms))
    create(counting, clock, table_type)
    for when, faults in deaths(len(counting.trace)):
        storage = MemoryStorage(lambda: clock.ms)
        died(lambda: create(FaultyStorage(storage, faults), clock, table_type))  # noqa: B023
        if is_table(storage):
            assert content(storage, clock) == {}, when
        create(storage, clock, table_type)
        table_at(storage, clock, "writer").upsert(rows(1, "2"))
        assert content(storage, clock) == {"2": 1}, when
