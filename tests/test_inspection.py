"""Looking at a table in which services are under way, or sick."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

import pyhudi
from memory_tables import TIMELINE, MemoryTable
from pyhudi.engine import cleaning, table_compaction
from pyhudi.engine.compaction_task import CompactionSpec, compact_slice
from pyhudi.format.bucket_config import SimpleBuckets
from pyhudi.format.table_config import TableType
from pyhudi.storage.heartbeats import heartbeat_path

SCHEMA = pa.schema([("id", pa.string()), ("at", pa.int64())])


def made(**definition: Any) -> MemoryTable:
    memory = MemoryTable(SCHEMA, ordering="at", buckets=SimpleBuckets(1), **definition)
    for at in range(1, 4):
        memory.table().upsert(pa.table({"id": ["a"], "at": [at]}, schema=SCHEMA))
    return memory


def requested_file(memory: MemoryTable) -> str:
    [name] = [name for name in memory.names() if name.endswith(".compaction.requested")]
    return f"{TIMELINE}/{name}"


def logs_of_latest(memory: MemoryTable) -> list[int]:
    slices = memory.table("person").inspect.file_slices().to_pylist()
    return [len(found["log_files"]) for found in slices if found["latest"]]


def test_a_pending_compaction_opens_a_slice() -> None:
    memory = made()
    assert logs_of_latest(memory) == [3]
    memory.table().services.compact(plan_only=True)
    assert logs_of_latest(memory) == [0]
    memory.table().upsert(pa.table({"id": ["a"], "at": [9]}, schema=SCHEMA))
    assert logs_of_latest(memory) == [1]


@pytest.mark.parametrize("garbage", [b"", b"no plan", b"Obj\x01"], ids=repr)
def test_slices_are_shown_beside_a_plan_that_cannot_be_read(garbage: bytes) -> None:
    memory = made()
    memory.table().services.compact(plan_only=True)
    memory.storage.write(requested_file(memory), garbage)
    assert logs_of_latest(memory) == [3]


def test_slices_are_shown_beside_an_inflight_file_that_came_late() -> None:
    memory = made()
    memory.table().services.compact(plan_only=True)
    plan = requested_file(memory)
    memory.storage.create(plan.replace(".requested", ".inflight"), b"")
    memory.storage.delete(plan)
    assert logs_of_latest(memory) == [3]


def test_a_store_that_fails_is_told_and_not_taken_for_a_missing_plan() -> None:
    memory = made()
    memory.table().services.compact(plan_only=True)
    person, plan, read = memory.table("person"), requested_file(memory), memory.storage.read

    def failing(path: str, *span: int) -> bytes:
        if path == plan:
            raise pyhudi.UnavailableError("no answer", why="it rains", next_step="Wait")
        return read(path, *span)

    with patch.object(memory.storage, "read", failing), pytest.raises(pyhudi.UnavailableError):
        person.inspect.file_slices()


# ---- who carries plans out


def pending_writers(memory: MemoryTable) -> list[dict[str, Any]]:
    found = memory.table("person").inspect.writers().to_pylist()
    return [row for row in found if row["completed"] is None]


def test_a_plan_that_nobody_carries_out_has_no_sign_of_life() -> None:
    memory = made()
    planned = memory.table().services.compact(plan_only=True).planned
    [row] = pending_writers(memory)
    assert (row["instant"], row["action"], row["job"]) == (planned, "compaction", None)
    assert row["last_sign"] is None
    memory.storage.create(heartbeat_path(str(planned)), b"")  # as Hudi beats
    [row] = pending_writers(memory)
    assert (row["job"], row["last_sign"] is None) == (None, False)


def test_whoever_carries_a_compaction_out_is_shown() -> None:
    memory = made()
    seen: list[list[dict[str, Any]]] = []

    def looked(storage: Any, spec: CompactionSpec, operation: Any) -> Any:
        seen.append(pending_writers(memory))
        return compact_slice(storage, spec, operation)

    with patch.object(table_compaction, "compact_slice", looked):
        done = memory.table(job="nightly", priority=3).services.compact()
    [[row]] = seen
    assert row["instant"] == done.planned
    assert (row["action"], row["job"], row["priority"]) == ("compaction", "nightly", 3)
    assert row["last_sign"] is not None
    assert pending_writers(memory) == []


def test_whoever_carries_a_clean_out_is_shown() -> None:
    memory = made(table_type=TableType.COPY_ON_WRITE)
    seen: list[list[dict[str, Any]]] = []
    execute = cleaning.Cleanings._examined

    def looked(self: Any, *arguments: Any) -> Any:
        seen.append(pending_writers(memory))
        return execute(self, *arguments)

    with patch.object(cleaning.Cleanings, "_examined", looked):
        memory.table(job="nightly").services.clean(pyhudi.CleanPolicy.versions(1))
    [[row]] = seen
    assert (row["action"], row["job"]) == ("clean", "nightly")
    assert row["last_sign"] is not None
    assert pending_writers(memory) == []


@pytest.mark.parametrize("told", [b"\xff\xfe\n\xff{", b"\n[1]", b"\n" + b"x" * 10_000])
def test_a_heartbeat_that_tells_nonsense_tells_nothing(told: bytes) -> None:
    memory = made()
    planned = memory.table().services.compact(plan_only=True).planned
    memory.storage.create(heartbeat_path(str(planned)), told)
    [row] = pending_writers(memory)
    assert (row["job"], row["process"]) == (None, None)


@pytest.mark.parametrize("garbage", [b"", b"junkjunk", b"Obj\x01"], ids=repr)
def test_writers_are_shown_beside_a_commit_that_cannot_be_read(garbage: bytes) -> None:
    memory = made()
    sick = max(name for name in memory.names() if name.endswith(".deltacommit"))
    memory.storage.write(f"{TIMELINE}/{sick}", garbage)
    found = memory.table("person").inspect.writers().to_pylist()
    assert found[0]["instant"] == sick[:17]
    assert [row["rows"] for row in found[:3]] == [0, 1, 1]


@pytest.mark.parametrize("limit", ["a", None, 2.5, -1, True])
def test_a_limit_that_is_no_number_of_rows_is_refused(limit: Any) -> None:
    inspect = made().table().inspect
    for look in (inspect.writers, inspect.conflicts):
        with pytest.raises(pyhudi.InvalidRequestError, match="not a number of rows"):
            look(limit=limit)
