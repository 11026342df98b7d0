"""Small logs are created together, and a log that refers to others when those are there."""

from __future__ import annotations

import threading
from dataclasses import replace

import pyarrow as pa
import pytest

from faulty_storage import FaultyStorage
from opened_tables import table_on
from pyhudi.api.table import Table
from pyhudi.format.files.log_reference import is_virtual_child
from pyhudi.settings import WriteSettings
from pyhudi.world import real_world
from resize_tables import ResizeTable

KEYS = "klmnopq"


class Meeting(FaultyStorage):
    """Storage that creates no log before so many are under way; a reference waits for no other."""

    def __init__(self, table: ResizeTable, parties: int) -> None:
        super().__init__(table.storage)
        self._barrier = threading.Barrier(parties, timeout=30)
        self._is_virtual = table.is_virtual
        self.events: list[tuple[str, bool]] = []  # data files, and whether they were there

    def create(self, path: str, data: bytes) -> bool:
        name = path.rpartition("/")[2]
        if ".log." not in name or ".hoodie/" in path:
            return super().create(path, data)
        if not self._is_virtual or is_virtual_child(name[1:].partition("_")[0]):
            self._barrier.wait()
        self.events.append((name, False))
        made = super().create(path, data)
        self.events.append((name, True))
        return made


def in_threads(table: ResizeTable, storage: Meeting) -> Table:
    world = replace(table.world("w"), together=real_world().together)
    return table_on(storage, world, WriteSettings())


@pytest.fixture(params=[False, True], ids=["plain", "virtual"])
def table(request: pytest.FixtureRequest) -> ResizeTable:
    return ResizeTable(is_virtual=request.param, ordering="ts")


def test_the_logs_of_several_file_groups_are_under_way_at_once(table: ResizeTable) -> None:
    for day in ("d", "e"):
        table.put(KEYS, 1, day)
    logs = 2
    if table.is_virtual:
        table.plan(2, ("d", "e"))
        logs = 4
    storage = Meeting(table, logs)
    rows = pa.concat_tables([table.made(KEYS, 2, day) for day in ("d", "e")])
    in_threads(table, storage).upsert(rows)
    references = 2 if table.is_virtual else 0
    assert len({name for name, is_there in storage.events if is_there}) == logs + references
    found = table.table("r").read(columns=["id", "day", "v"]).to_arrow().to_pylist()
    expected = [{"id": key, "day": day, "v": f"{key}2"} for day in ("d", "e") for key in KEYS]
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def test_a_log_refers_to_logs_that_are_there() -> None:
    table = ResizeTable(is_virtual=True, ordering="ts")
    table.put(KEYS, 1)
    table.plan(4)
    storage = Meeting(table, 1)
    in_threads(table, storage).upsert(table.made(KEYS, 2))
    *children, begun, ended = storage.events
    assert [name for name, _ in (begun, ended)] == [begun[0]] * 2
    assert not is_virtual_child(begun[0][1:].partition("_")[0])
    assert all(is_virtual_child(name[1:].partition("_")[0]) for name, _ in children)
    assert len({name for name, _ in children}) > 1
