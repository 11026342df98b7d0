"""A committed file that is gone, empty or cut is an error, and no service makes the loss permanent.

Reads and writes know what the commits say that they have read; services read all that matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from many_writers.services_by_hand import archive
from memory_tables import TIMELINE, MemoryTable
from pyhudi.api.table import Table
from pyhudi.commit.proposals import Begin, Decided
from pyhudi.format.files.file_names import parse_data_file
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.table_config import TableType
from pyhudi.format.timeline.instant import Action
from pyhudi.format.timeline.plan_files import CompactionPlan, encode_compaction_plan
from pyhudi.plan.cleaning import CleanPolicy
from pyhudi.services.cleaning.execute import table_cleanings
from pyhudi.services.compaction.run import compact, compactions

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.int64())])


def rows(*ids: int, at: int = 1) -> pa.Table:
    return pa.table({"id": ids, "at": [at] * len(ids)}, schema=SCHEMA)


def written(table_type: str = "mor", writes: int = 3, **more: Any) -> MemoryTable:
    """A table of one bucket, and a write for each row."""
    definition = {"ordering": "at", "buckets": SimpleBuckets(1), **more}
    kind = TableType.COPY_ON_WRITE if table_type == "cow" else TableType.MERGE_ON_READ
    memory = MemoryTable(SCHEMA, table_type=kind, **definition)
    for number in range(writes):
        memory.clock.sleep(1000)
        memory.table().upsert(rows(number))
    return memory


def data_files(memory: MemoryTable, kind: str) -> list[str]:
    """Paths of log files or base files, in the order of their writes."""
    paths = [stat.path for stat in memory.storage.list("") if kind in stat.path]
    return sorted((path for path in paths if not path.startswith(".hoodie/")), key=commit_of)


def commit_of(path: str) -> str:
    name = parse_data_file(path)
    assert name is not None
    return name.requested


def gone(memory: MemoryTable, path: str) -> None:
    memory.storage.delete(path)


def emptied(memory: MemoryTable, path: str) -> None:
    memory.storage.write(path, b"")


def cut(memory: MemoryTable, path: str) -> None:
    memory.storage.write(path, memory.storage.read(path)[:-20])


Damage = Callable[[MemoryTable, str], None]
DAMAGES: dict[str, tuple[Damage, str]] = {
    "gone": (gone, "is gone"),
    "empty": (emptied, "is empty"),
    "cut": (cut, "bytes, and [0-9]+ were written"),
}
damages = pytest.mark.parametrize(("damage", "why"), DAMAGES.values(), ids=DAMAGES)


def ids(table: Table) -> list[int]:
    return sorted(table.read(columns=["id"]).to_arrow()["id"].to_pylist())


def everything(memory: MemoryTable) -> dict[str, bytes]:
    """What a refusal must leave as it is; the store's clock leaves nothing."""
    return {stat.path: memory.storage.read(stat.path) for stat in memory.storage.list("")}


# ---- reads


@damages
@pytest.mark.parametrize("table_type", ["mor", "cow"])
def test_a_read_does_not_miss_the_rows_of_the_last_write(
    damage: Damage, why: str, table_type: str
) -> None:
    memory = written(table_type)
    path = data_files(memory, ".log." if table_type == "mor" else ".parquet")[-1]
    damage(memory, path)
    reads: list[Callable[[Table], object]] = [
        lambda table: table.read(),
        lambda table: table.read(as_of="20300101000000000"),
        lambda table: table.changes(),
    ]
    of_commit = f"the write {commit_of(path)}"
    for read in reads:
        with pytest.raises(pyhudi.CorruptTableError, match=f"{of_commit}.*{why}") as caught:
            read(memory.table("reader"))
        assert caught.value.path == path


@damages
def test_a_read_knows_every_write_that_it_saw_complete(damage: Damage, why: str) -> None:
    memory = written(writes=1)
    reader = memory.table("reader")
    assert ids(reader) == [0]
    for number in (1, 2):
        memory.table().upsert(rows(number))
        assert ids(reader) == [*range(number + 1)]
    damage(memory, data_files(memory, ".log.")[-2])
    memory.table().upsert(rows(3))  # so that it lists the folder again
    with pytest.raises(pyhudi.CorruptTableError, match=why):
        reader.read()


def test_a_read_optimized_read_needs_no_log() -> None:
    memory = written()
    gone(memory, data_files(memory, ".log.")[-1])
    assert memory.table("reader").read(columns=["id"], read_optimized=True).to_arrow().num_rows == 0


def test_a_file_of_the_past_that_is_lost_is_an_error_only_where_it_is_needed() -> None:
    memory = written("cow")
    reader = memory.table("reader")
    first, last = memory.table("x").inspect.timeline()["completed"].to_pylist()[-2:]
    gone(memory, data_files(memory, ".parquet")[-2])
    assert ids(memory.table("other")) == [0, 1, 2]
    reader.changes()  # reads all commits
    with pytest.raises(pyhudi.CorruptTableError, match="is gone"):
        reader.read(as_of=first)
    assert reader.read(as_of=last, columns=["id"]).to_arrow().num_rows == 3


def test_changes_say_of_a_file_whether_it_was_cleaned_or_is_gone() -> None:
    memory = written("cow", writes=5)
    table = memory.table("x")
    assert table.services.clean(CleanPolicy.commits(2)).files
    with pytest.raises(pyhudi.InvalidRequestError, match="or has removed it"):
        table.changes(until=table.inspect.timeline()["completed"].to_pylist()[1])
    gone(memory, data_files(memory, ".parquet")[-1])
    with pytest.raises(pyhudi.CorruptTableError, match="is gone"):
        memory.table("y").changes()


# ---- services


@damages
@pytest.mark.parametrize("number", [0, 1, 2], ids=["first", "second", "last"])
def test_a_compaction_is_not_planned_over_a_lost_file(
    damage: Damage, why: str, number: int
) -> None:
    memory = written()
    path = data_files(memory, ".log.")[number]
    damage(memory, path)
    before = everything(memory)
    with pytest.raises(pyhudi.CorruptTableError, match=f"cannot be compacted.*{why}") as caught:
        memory.table("service").services.compact()
    assert caught.value.path == path
    assert everything(memory) == before


@damages
def test_a_compaction_that_was_planned_is_not_carried_out_over_a_lost_file(
    damage: Damage, why: str
) -> None:
    memory = written()
    [planned] = memory.table().services.compact(plan_only=True).pending
    damage(memory, data_files(memory, ".log.")[1])
    before = data_files(memory, ".parquet")
    with pytest.raises(pyhudi.CorruptTableError, match=f"compaction {planned} .*{why}"):
        memory.table("service").services.compact()
    assert data_files(memory, ".parquet") == before
    assert memory.table("service").services.compact(dry_run=True).pending == (planned,)


def test_a_plan_that_another_engine_made_without_the_lost_file_is_not_carried_out() -> None:
    memory = written()
    lost = data_files(memory, ".log.")[1]
    session = memory.session("other")
    [operation] = compactions(session).preview().plan.operations or ()
    logs = tuple(p for p in operation.delta_file_paths or () if p != lost)
    assert len(logs) == 2
    operation = replace(operation, delta_file_paths=logs)
    plan = encode_compaction_plan(CompactionPlan((operation,)), bytes(16))
    outcome = session.log.append(Begin(Action.COMPACTION, plan))
    assert isinstance(outcome, Decided)
    gone(memory, lost)
    before = data_files(memory, ".parquet")
    other = memory.session("b")
    with pytest.raises(pyhudi.CorruptTableError, match=r"cannot be executed.*is gone") as caught:
        compact(other, plans=False).or_raise()
    assert caught.value.path == lost
    assert data_files(memory, ".parquet") == before


@damages
def test_a_compaction_knows_files_of_archived_writes(damage: Damage, why: str) -> None:
    memory = written(writes=4)
    path = data_files(memory, ".log.")[1]
    times = sorted({name[:17] for name in memory.names() if name[:1].isdigit()})
    archive(memory.storage, TIMELINE, times[-1])
    assert ids(memory.table("reader")) == [0, 1, 2, 3]
    damage(memory, path)
    with pytest.raises(pyhudi.CorruptTableError, match=why) as caught:
        memory.table("service").services.compact()
    assert caught.value.path == path


@damages
def test_a_file_group_that_lost_a_file_is_not_cleaned(damage: Damage, why: str) -> None:
    memory = written("cow", writes=5)
    path = data_files(memory, ".parquet")[-1]
    damage(memory, path)
    before = everything(memory)
    with pytest.raises(pyhudi.CorruptTableError, match=f"cannot be cleaned.*{why}") as caught:
        memory.table("service").services.clean(CleanPolicy.versions(1))
    assert caught.value.path == path
    assert everything(memory) == before


def test_a_clean_that_was_planned_removes_nothing_from_a_file_group_that_lost_a_file() -> None:
    memory = written("cow", writes=5)
    session = memory.session("planner")
    assert table_cleanings(session).schedule(CleanPolicy.versions(1)) is not None
    gone(memory, data_files(memory, ".parquet")[-1])
    before = data_files(memory, ".parquet")
    with pytest.raises(pyhudi.CorruptTableError, match=r"cannot be cleaned.*is gone"):
        memory.table("service").services.clean(CleanPolicy.versions(1))
    assert data_files(memory, ".parquet") == before


def test_what_was_cleaned_or_compacted_away_is_not_lost() -> None:
    memory = written(writes=4)
    service = memory.table("service")
    for number in range(10, 14):
        service.services.compact()
        service.services.clean(CleanPolicy.commits(1))
        service.upsert(rows(number))
        assert ids(memory.table("reader")) == ids(service) == [0, 1, 2, 3, *range(10, number + 1)]


# ---- writes that rewrite a base file


WRITES: dict[str, Callable[[Table], object]] = {
    "upsert": lambda table: table.upsert(rows(0)),
    "append": lambda table: table.append(rows(9)),
    "update": lambda table: table.update(rows(0), columns=["at"]),
    "delete by key": lambda table: table.delete(rows(0)),
    "delete by predicate": lambda table: table.delete("id = 0"),
}


@damages
@pytest.mark.parametrize("verb", WRITES)
def test_a_base_file_is_not_rewritten_from_one_that_is_lost(
    damage: Damage, why: str, verb: str
) -> None:
    memory = written("cow")
    damage(memory, data_files(memory, ".parquet")[-1])
    before = data_files(memory, ".parquet")
    with pytest.raises(pyhudi.CorruptTableError, match=why):
        WRITES[verb](memory.table("b"))
    assert not memory.pending()
    assert data_files(memory, ".parquet") == before


def test_an_overwrite_needs_nothing_of_what_it_takes_away() -> None:
    memory = written("cow")
    gone(memory, data_files(memory, ".parquet")[-1])
    table = memory.table("b")
    table.overwrite(rows(7), partitions="all")
    assert ids(table) == [7]


# ---- what looks lost and is not


def test_a_restore_under_way_is_no_loss() -> None:
    memory = written("cow")
    gone(memory, data_files(memory, ".parquet")[-1])
    memory.storage.create(f"{TIMELINE}/20290101000000000.restore.requested", b"")
    with pytest.raises(pyhudi.UnavailableError, match="the restore 20290101000000000 is pending"):
        memory.table("b").read()
