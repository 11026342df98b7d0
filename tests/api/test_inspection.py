"""Looking at a table in which services are under way, or sick."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

import pyhudi
from memory_tables import TIMELINE, MemoryTable
from pyhudi.format.avro.schema import avro_record_schema
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.table_config import TableType
from pyhudi.format.timeline.commit_metadata import CommitMetadata, encode_commit_metadata
from pyhudi.services.cleaning import execute as cleaning
from pyhudi.services.compaction import run as table_compaction
from pyhudi.services.compaction.merge_slice import CompactionSpec, compact_slice
from pyhudi.storage.objects.heartbeats import heartbeat_path
from pyhudi.timeline.instant_time import milliseconds_between

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


# -- history


def test_the_history_says_when_who_and_what_the_latest_first() -> None:
    memory = made()
    table = memory.table("person", job="nightly")
    second = table.upsert(pa.table({"id": ["b", "c"], "at": [1, 1]}, schema=SCHEMA))
    table.delete("id = 'b'")
    table.services.compact()
    found = table.history()
    rows = found.to_pylist()
    assert [row["operation"] for row in rows[:3]] == ["COMPACT", "DELETE", "UPSERT"]
    assert [row["completed"] for row in rows] == sorted(
        (row["completed"] for row in rows), reverse=True
    )
    upsert = rows[2]
    assert (upsert["rows"], upsert["deletes"], upsert["files"]) == (2, 0, 1)
    assert (rows[1]["rows"], rows[1]["deletes"]) == (0, 1)
    assert (upsert["job"], upsert["requested"]) == ("nightly", second.requested)
    assert upsert["bytes"] == second.bytes
    assert upsert["completed"].strftime("%Y%m%d%H%M%S%f")[:17] == second.completed
    took_ms = milliseconds_between(second.requested, second.completed)
    assert upsert["seconds"] == took_ms / 1000
    after = table.read(as_of=upsert["completed"]).to_arrow().sort_by("id")
    assert after["id"].to_pylist() == ["a", "b", "c"]
    assert table.history(limit=2).equals(found.slice(0, 2))


def test_a_commit_that_cannot_be_read_has_a_place_in_the_history() -> None:
    memory = made()
    [*_, name] = [name for name in memory.names() if name.endswith(".deltacommit")]
    memory.storage.write(f"{TIMELINE}/{name}", b"no commit")
    [latest, *others] = memory.table().history().to_pylist()
    assert latest["requested"] == name[:17]
    assert (latest["rows"], latest["job"], latest["operation"]) == (None, None, None)
    assert all(row["operation"] for row in others)


def test_the_history_costs_a_request_for_each_commit_that_it_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = made()
    table = memory.table()
    table.history()
    reads: list[str] = []
    real = memory.storage.read

    def noted(path: str, *rest: Any) -> bytes:
        reads.append(path)
        return real(path, *rest)

    monkeypatch.setattr(memory.storage, "read", noted)
    assert len(table.history(limit=2)) == 2
    assert len(reads) == 2
    assert len(table.inspect.writers(limit=2)) == 2
    assert len(reads) == 4


def test_a_history_of_nothing_is_empty() -> None:
    memory = MemoryTable(SCHEMA, ordering="at", buckets=SimpleBuckets(1))
    assert memory.table().history().num_rows == 0
    with pytest.raises(pyhudi.InvalidRequestError, match="not a number of rows"):
        memory.table().history(limit=-1)


# -- the schema's history

WIDE = pa.schema([*SCHEMA, ("extra", pa.int32())])


def recorded(
    memory: MemoryTable,
    schema: pa.Schema | str | None,
    *,
    operation: str = "UPSERT",
    action: str = "deltacommit",
) -> str:
    """Let another engine complete a write without rows; returns its requested time."""
    times = [time for name in memory.names() if name[:1].isdigit() for time in name[:35].split("_")]
    last = max(int(time[:17]) for time in times)
    requested, completed = str(last + 1), str(last + 2)
    for state in ("requested", "inflight"):
        memory.storage.create(f"{TIMELINE}/{requested}.{action}.{state}", b"")
    extra = {"pyhudi.writer": '{"job":"other","host":"there","user":"ann"}'}
    if schema is not None:
        is_text = isinstance(schema, str)
        extra["schema"] = schema if is_text else json.dumps(avro_record_schema(schema, "t"))
    metadata = CommitMetadata({}, extra_metadata=extra, operation_type=operation)
    data = encode_commit_metadata(metadata, bytes(16))
    done = "replacecommit" if action == "clustering" else action
    memory.storage.create(f"{TIMELINE}/{requested}_{completed}.{done}", data)
    memory.clock.ms += 1_000
    return requested


def schema_rows(memory: MemoryTable) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = memory.table("person").inspect.schema_history().to_pylist()
    return found


def test_the_history_of_the_schema_says_who_changed_what_and_when() -> None:
    memory = made()
    second = recorded(memory, WIDE, operation="ALTER_SCHEMA")
    recorded(memory, WIDE)
    recorded(memory, None, operation="DELETE")
    third = recorded(memory, pa.schema([("id", pa.string()), ("at", pa.string())]))
    rows = schema_rows(memory)
    assert [row["completed"] for row in rows] == sorted(row["completed"] for row in rows)
    first = [(each["path"], each["kind"], each["after"]) for each in rows[0]["change"]]
    assert first == [("id", "added", "string"), ("at", "added", "int64")]
    assert [row["instant"] for row in rows[1:]] == [second, third]
    assert rows[1]["change"] == [
        {"path": "extra", "kind": "added", "before": None, "after": "int32"}
    ]
    assert [(c["path"], c["kind"], c["before"], c["after"]) for c in rows[2]["change"]] == [
        ("extra", "dropped", "int32", None),
        ("at", "type", "int64", "string"),
    ]
    who = [(row["operation"], row["job"], row["host"], row["user"]) for row in rows[1:]]
    assert who == [("ALTER_SCHEMA", "other", "there", "ann"), ("UPSERT", "other", "there", "ann")]
    assert [field["name"] for field in json.loads(rows[1]["schema"])["fields"]] == WIDE.names


@pytest.mark.parametrize(
    ("operation", "action"), [("CLUSTER", "clustering"), ("CLUSTER", "deltacommit")]
)
def test_a_table_service_has_no_place_in_the_history_of_the_schema(
    operation: str, action: str
) -> None:
    memory = made()
    recorded(memory, WIDE, operation=operation, action=action)
    assert len(schema_rows(memory)) == 1


def test_archived_writes_stay_in_the_history_of_the_schema() -> None:
    memory = made(lock=LockKind.FILE)  # which the other engine takes
    recorded(memory, WIDE)
    recorded(memory, SCHEMA)
    memory.clock.ms += 1_000
    for at in range(10, 14):
        memory.table().upsert(pa.table({"id": ["a"], "at": [at]}, schema=SCHEMA))
    before = schema_rows(memory)
    assert len(before) == 3
    archived = memory.table().services.archive(
        pyhudi.ArchivePolicy(keep_min=1, keep_max=2, delta_commits=0, grace_ms=0)
    )
    assert {row["instant"] for row in before} < {*archived.archived}
    assert schema_rows(memory) == before


def test_a_schema_that_cannot_be_read_is_shown_as_it_is() -> None:
    memory = made()
    recorded(memory, "no schema")
    recorded(memory, SCHEMA)
    rows = schema_rows(memory)
    assert [row["schema"] for row in rows[1:2]] == ["no schema"]
    assert [row["change"] is None for row in rows] == [False, True, True]


def test_a_commit_that_cannot_be_read_is_left_out_of_the_history_of_the_schema() -> None:
    memory = made()
    sick = recorded(memory, WIDE)
    [name] = [n for n in memory.names() if n.startswith(f"{sick}_")]
    memory.storage.write(f"{TIMELINE}/{name}", b"no commit")
    assert len(schema_rows(memory)) == 1


def test_a_table_without_a_write_has_no_history_of_its_schema() -> None:
    memory = MemoryTable(SCHEMA, ordering="at", buckets=SimpleBuckets(1))
    found = memory.table().inspect.schema_history()
    assert found.num_rows == 0
    assert found.column_names == [
        *("completed", "instant", "operation", "change", "job", "host", "user", "schema")
    ]
