"""A table whose timeline was lost is neither read nor written; one that is gone is not empty."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import pyhudi
from memory_tables import TIMELINE, MemoryTable
from pyhudi.api.table import Table
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.read.load import load_config
from pyhudi.storage.protocol import Folder

SCHEMA = pa.schema([("id", pa.string()), ("at", pa.int64())])


def rows(at: int) -> pa.Table:
    return pa.table({"id": ["a"], "at": [at]}, schema=SCHEMA)


@pytest.fixture
def lost() -> MemoryTable:
    """It has rows of two writes, and a file of one that failed."""
    memory = MemoryTable(SCHEMA, ordering="at", buckets=SimpleBuckets(1))
    memory.table().upsert(rows(1))
    [log] = [stat.path for stat in memory.storage.list("") if ".log." in stat.path]
    memory.table().upsert(rows(2))
    memory.storage.create(f"{log[:-5]}9-9-9", b"of a write that failed")
    for stat in list(memory.storage.list(TIMELINE)):
        memory.storage.delete(stat.path)
    return memory


VERBS: dict[str, Callable[[Table], object]] = {
    "upsert": lambda table: table.upsert(rows(3)),
    "delete": lambda table: table.delete(rows(3).select(["id"])),
    "run": lambda table: table.services.run(),
    "repair": lambda table: table.services.repair(),
    "compact": lambda table: table.services.compact(),
    "clean": lambda table: table.services.clean(),
}


@pytest.mark.parametrize("has_log", [True, False], ids=["with its decision log", "without"])
@pytest.mark.parametrize("verb", VERBS)
def test_nobody_writes_to_a_table_that_lost_its_timeline(
    lost: MemoryTable, verb: str, has_log: bool
) -> None:
    for stat in list(lost.storage.list(".hoodie/.pyhudi") if not has_log else ()):
        lost.storage.delete(stat.path)
    before = [stat.path for stat in lost.storage.list("")]
    with pytest.raises(pyhudi.CorruptTableError, match=f"no completed write.*Put {TIMELINE} back"):
        VERBS[verb](lost.table("b"))
    assert [stat.path for stat in lost.storage.list("")] == before


READS: dict[str, Callable[[Table], object]] = {
    "read": lambda table: table.read(),
    "read in the past": lambda table: table.read(as_of="20300101000000000"),
    "changes": lambda table: table.changes(),
    "schema": lambda table: table.schema,
    "inspect": lambda table: table.inspect.file_slices(),
}


@pytest.mark.parametrize("verb", READS)
def test_a_table_that_lost_its_timeline_does_not_read_as_empty(
    lost: MemoryTable, verb: str
) -> None:
    with pytest.raises(pyhudi.CorruptTableError, match=f"no completed write.*Put {TIMELINE} back"):
        READS[verb](lost.table("b"))


@pytest.mark.parametrize("rounds", [0, 1], ids=["of no row yet", "with rows"])
@pytest.mark.parametrize("verb", READS)
def test_a_table_that_was_removed_after_it_was_opened_is_the_error_of_opening_it(
    verb: str, rounds: int
) -> None:
    memory = MemoryTable(SCHEMA, ordering="at", buckets=SimpleBuckets(1))
    for _ in range(rounds):
        memory.table().upsert(rows(1))
    table = memory.table("b")
    for stat in list(memory.storage.list("")):
        memory.storage.delete(stat.path)
    with pytest.raises(pyhudi.InvalidRequestError, match="there is no Hudi table at") as opened:
        load_config(memory.storage)
    with pytest.raises(type(opened.value)) as caught:
        READS[verb](table)
    assert str(caught.value) == str(opened.value)


def test_a_table_without_a_write_reads_as_empty() -> None:
    memory = MemoryTable(SCHEMA, ordering="at", buckets=SimpleBuckets(1))
    assert memory.table().read(columns=["id"]).to_arrow().num_rows == 0


def test_a_reader_that_meets_the_first_write_in_its_listing_lists_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = MemoryTable(SCHEMA, ordering="at", buckets=SimpleBuckets(1))
    other, list_folder = memory.table("b"), memory.storage.list_folder

    def meanwhile(path: str) -> Folder:
        seen = list_folder(path)
        if path == TIMELINE:
            monkeypatch.undo()
            other.upsert(rows(1))
        return seen

    reader = memory.table("a")
    monkeypatch.setattr(memory.storage, "list_folder", meanwhile)
    assert reader.read(columns=["at"]).to_arrow().to_pylist() == [{"at": 1}]


#: What may lie in a folder before a table is created there. None of it is Hudi's.
STRAY = [
    ".DS_Store",
    "_SUCCESS",
    ".gitkeep",
    "README.md",
    ".hoodie_partition_metadata",
    "export.parquet",
    ".ipynb_checkpoints/orders-checkpoint.ipynb",
]


@pytest.mark.parametrize("table_type", ["mor", "cow"])
def test_files_that_are_not_hudis_do_not_stop_the_first_write(
    tmp_path: Path, table_type: str
) -> None:
    for path in STRAY:
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(b"")
    table = pyhudi.create_table(
        tmp_path,
        SCHEMA,
        record_key="id",
        ordering="at",
        buckets=SimpleBuckets(1),
        table_type=table_type,
    )
    assert table.read(columns=["at"]).to_arrow().num_rows == 0
    table.upsert(rows(1))
    table.services.run()
    table.services.repair(grace_minutes=0)
    assert table.read(columns=["at"]).to_arrow().to_pylist() == [{"at": 1}]
    assert all((tmp_path / path).exists() for path in STRAY)


def test_a_timeline_that_was_put_back_is_written_on() -> None:
    memory = MemoryTable(SCHEMA, ordering="at", buckets=SimpleBuckets(1))
    memory.table().upsert(rows(1))
    kept = {stat.path: memory.storage.read(stat.path) for stat in memory.storage.list(TIMELINE)}
    for path in kept:
        memory.storage.delete(path)
    table = memory.table("b")
    with pytest.raises(pyhudi.CorruptTableError):
        table.upsert(rows(2))
    for path, data in kept.items():
        memory.storage.create(path, data)
    table.upsert(rows(2))
    assert table.read(columns=["at"]).to_arrow().to_pylist() == [{"at": 2}]


def test_a_table_that_another_begins_at_this_moment_is_not_taken_for_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = MemoryTable(SCHEMA, ordering="at", buckets=SimpleBuckets(1))
    other, list_folder = memory.table("b"), memory.storage.list_folder

    def meanwhile(path: str) -> Folder:
        seen = list_folder(path)
        if path == TIMELINE:
            monkeypatch.undo()
            other.upsert(rows(1))
        return seen

    monkeypatch.setattr(memory.storage, "list_folder", meanwhile)
    memory.table("a").upsert(rows(2))
    assert memory.table("c").read(columns=["at"]).to_arrow().to_pylist() == [{"at": 2}]
