"""Direct markers and lists: which a writer has, and that both are rolled back."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from faulty_storage import Effect, Fault, FaultyStorage
from memory_tables import MemoryTable
from pyhudi.errors import UnavailableError
from pyhudi.format.files.file_names import group_of_path, parse_data_file
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.paths import file_name
from pyhudi.format.table.concurrency_mode import ConcurrencyMode
from pyhudi.format.table.table_config import TableType
from pyhudi.format.timeline.markers import MARKER_ROOT
from pyhudi.write.markers.kind import MarkerServiceWarning

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.string())])
KEYS = [f"k{n}" for n in range(24)]
COW, MOR = TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ


def made(table_type: TableType, **definition: Any) -> MemoryTable:
    given = {"partition_by": "day", "buckets": pyhudi.SimpleBuckets(2), "table_type": table_type}
    table = MemoryTable(SCHEMA, **{**given, **definition})
    table.table().upsert(rows("0"))
    return table


def rows(v: str) -> pa.Table:
    return pa.table(
        {"id": KEYS, "day": [f"d{int(k[1:]) % 2}" for k in KEYS], "v": [v] * len(KEYS)}, SCHEMA
    )


def values(table: MemoryTable) -> set[str]:
    return set(table.table().read(columns=["v"]).to_arrow()["v"].to_pylist())


class Seen(FaultyStorage):
    """Storage that keeps what each object of the marker folders had last."""

    def __init__(self, *faults: Fault, table: MemoryTable) -> None:
        super().__init__(table.storage, faults)
        self.markers: dict[str, bytes] = {}

    def create(self, path: str, data: bytes) -> bool:
        return self._noted(path, data) and super().create(path, data)

    def replace(self, path: str, data: bytes, *, etag: str) -> str | None:
        self._noted(path, data)
        return super().replace(path, data, etag=etag)

    def _noted(self, path: str, data: bytes) -> bool:
        if path.startswith(MARKER_ROOT):
            self.markers[path.removeprefix(MARKER_ROOT)[19:]] = data
        return True


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_a_local_write_lists_the_same_files_that_it_would_announce_one_by_one(
    table_type: TableType,
) -> None:
    announced = []
    for markers in ("direct", "server"):
        table = made(table_type)
        storage = Seen(table=table)
        result = table.table(storage=storage, markers=markers).upsert(rows(markers))
        files = [stat.path for stat in table.storage.list("") if result.instant in stat.path]
        made_in = {(g.partition, g.file_id) for g in map(group_of_path, files) if g is not None}
        assert values(table) == {markers}
        assert not list(table.storage.list(MARKER_ROOT))
        kinds = storage.markers
        if markers == "server":
            assert kinds.pop("MARKERS.type") == b"TIMELINE_SERVER_BASED"
            assert set(kinds) == {"MARKERS0"}
            announced.append({_stem(line) for line in kinds["MARKERS0"].decode().splitlines()})
        else:
            assert set(kinds.values()) == {b""}
            announced.append({_stem(path) for path in kinds})
    assert announced[0] == announced[1]
    assert {(partition, file_id) for partition, file_id, _ in announced[0]} == made_in


def _stem(path: str) -> tuple[str, str, str]:
    """The partition, the file id and the kind of a marker, without the instant."""
    partition, _, name = path.partition("/")
    return partition, name.lstrip(".").partition("_")[0], name.rpartition(".")[2]


@pytest.mark.parametrize("table_type", [COW, MOR])
@pytest.mark.parametrize("markers", ["direct", "server"])
def test_a_writer_that_dies_between_any_two_requests_is_rolled_back(
    table_type: TableType, markers: str
) -> None:
    died = 0
    for nth in itertools.count(1, 5):
        table = made(table_type)
        dead = FaultyStorage(table.storage, [Fault(Effect.FAIL, nth=nth, times=None)])
        try:
            table.table("dead", dead, markers=markers).upsert(rows("dead"))
        except UnavailableError:
            died += 1
        else:
            break
        if values(table) == {"dead"}:
            continue  # it died after it had completed
        table.clock.sleep(200_000)
        table.table("next").upsert(rows("next"))
        assert values(table) == {"next"}, nth
        assert _instants(table) <= _completed(table), nth
    assert died > 5


def _instants(table: MemoryTable) -> set[str]:
    """The instants that data files name."""
    names = (parse_data_file(file_name(stat.path)) for stat in table.storage.list(""))
    return {name.requested for name in names if name is not None}


def _completed(table: MemoryTable) -> set[str]:
    return {name.partition("_")[0] for name in table.names() if "_" in name}


@pytest.mark.parametrize(("markers", "warns"), [("direct", False), ("server", True)])
def test_a_table_that_hudi_writes_too_gets_direct_markers_and_one_warning(
    markers: str, warns: bool
) -> None:
    table = made(MOR, lock=LockKind.STORAGE, concurrency=ConcurrencyMode.OPTIMISTIC)
    storage = Seen(table=table)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        writer = table.table(storage=storage, markers=markers)
        writer.upsert(rows("1"))
        writer.upsert(rows("2"))
    assert values(table) == {"2"}
    assert set(storage.markers.values()) == {b""}
    found = [each for each in caught if each.category is MarkerServiceWarning]
    assert len(found) == int(warns)
    assert all("Apache Hudi" in str(each.message) for each in found)
