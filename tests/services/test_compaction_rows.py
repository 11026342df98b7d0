"""Compaction is no news to readers: the rows before it are the rows after it, of every table."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import pyhudi
from golden_tables import FOLDER as GOLDEN
from handmade import HandmadeTable, at
from memory_tables import TIMELINE, MemoryTable
from opened_tables import session_on
from pyhudi.commit.proposals import Begin, Decided
from pyhudi.format.avro.schema import avro_record_schema
from pyhudi.format.files.log_file import HeaderKey
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.column_owners import ColumnOwners
from pyhudi.format.table.concurrency_mode import ConcurrencyMode
from pyhudi.format.timeline.instant import Action, InstantTime
from pyhudi.format.timeline.plan_files import CompactionOperation, encode_compaction_plan
from pyhudi.plan.compaction.policy import CompactionPolicy
from pyhudi.plan.scan import CommitFolders
from pyhudi.services.compaction.merge_slice import CompactionSpec, compact_slice
from pyhudi.services.compaction.run import compact, compactions
from pyhudi.session.session import TableSession
from pyhudi.storage.objects.column_owners import declare_owners
from pyhudi.storage.open import open_storage
from pyhudi.storage.stores.memory import MemoryStorage
from pyhudi.table.merge import MergeRule
from pyhudi.table.schema import FILE_NAME
from pyhudi.timeline.completion import only
from pyhudi.world import real_world
from worlds import Clock

AWKWARD = GOLDEN.parent / "awkward"
#: Tables of Hudi's that pyhudi may write, and how many plans are to be executed; of the first
#: one Hudi made the plan, and left it.
HUDI_MADE = {
    "mor_compacted": 1,
    "mor_all_types": 1,
    "mor_archived": 1,
    "mor_avro_logs_with_deletes": 1,
    "mor_commit_time_ordering": 1,
    "mor_nbcc": 1,
    "mor_nbcc_commit_time": 1,
    "mor_parquet_logs": 1,
    "mor_schema_evolved": 1,
    "mor_simple_bucket_v8": 1,
    "mor_with_rollback": 1,
    "mor_changes_over_compaction": 1,
    "mor_deleted_partition": 1,
    "mor_event_time_payload_v8": 1,
    "mor_log_compacted_commit_time": 1,
    "mor_log_compacted_event_time": 1,
    "mor_ordering_long_null": 1,
    "mor_plain_columns": 1,
    "mor_promoted": 1,
    "mor_restored": 1,
    "mor_typed_partitions": 1,
    "mor_duplicates_event_time": 0,
}


def local_session(path: str) -> TableSession:
    return session_on(open_storage(path, None), real_world())


def unpacked(name: str, into: Path) -> Path:
    found = next(folder for folder in (GOLDEN, AWKWARD) if (folder / f"{name}.json").exists())
    with tarfile.open(found / f"{name}.tar.gz") as archive:
        archive.extractall(into, filter="data")
    return into / name


def all_rows(path: str) -> list[str]:
    table = pyhudi.open_table(path).read(meta=True).to_arrow()
    return sorted(map(repr, table.drop_columns([FILE_NAME]).to_pylist()))


@pytest.mark.parametrize("name", HUDI_MADE)
def test_a_table_that_hudi_made_has_the_same_rows_when_compacted(name: str, tmp_path: Path) -> None:
    path = str(unpacked(name, tmp_path))
    before = all_rows(path)
    session = local_session(path)
    done = compact(session)
    assert len(done.results) == HUDI_MADE[name]
    assert (done.planned is None) == (name == "mor_compacted" or not HUDI_MADE[name])
    assert not done.pending
    assert all_rows(path) == before
    compact(session)  # what was written beside Hudi's plan
    assert all_rows(path) == before
    assert compact(session).planned is None
    shutil.rmtree(path)


# -- random histories

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("day", pa.string()),
        ("ts", pa.int64()),
        ("a", pa.string()),
        ("b", pa.list_(pa.int64())),
    ]
)
_keys = st.lists(st.sampled_from("klmnop"), min_size=1, max_size=4, unique=True)
_stamps = st.integers(0, 5)
_steps: st.SearchStrategy[Any] = st.one_of(
    st.tuples(st.just("upsert"), _keys, _stamps),
    st.tuples(st.just("delete"), _keys, _stamps),
    st.tuples(st.just("delete always"), _keys, _stamps),
    st.tuples(st.just("compact"), st.booleans(), st.booleans()),
)
KINDS: dict[str, dict[str, Any]] = {
    "event time": {"ordering": "ts"},
    "commit time": {"concurrency": ConcurrencyMode.OPTIMISTIC},
}


def content(table: MemoryTable) -> list[str]:
    found = table.table("reader").read(meta=True).to_arrow().drop_columns([FILE_NAME])
    return sorted(map(repr, found.to_pylist()))


def step(table: MemoryTable, number: int, deed: str, keys: list[str], stamp: int) -> None:
    rows = pa.Table.from_pylist(
        [
            {"id": key, "day": "d", "ts": stamp, "a": f"{number}{key}", "b": [number, None]}
            for key in keys
        ],
        SCHEMA,
    )
    session = table.table(f"w{number}")
    if deed == "upsert":
        session.upsert(rows)
    elif deed == "delete":
        session.delete(rows.select(["id", "day", "ts"]))
    else:
        session.delete(rows.select(["id", "day"]))


@pytest.mark.parametrize("kind", KINDS)
@given(steps=st.lists(_steps, min_size=2, max_size=8))
@example(steps=[("upsert", ["k"], 1), ("delete always", ["k"], 0), ("compact", True, False)])
@settings(deadline=None, max_examples=15)
def test_any_history_has_the_same_rows_before_and_after(kind: str, steps: list[Any]) -> None:
    """A plan may wait while others write, and each compaction starts where the last one ended.

    Nothing is older than a delete before it, nor than what a delete without a time took away: a
    base file has no place for deletes, so what lost to one in the logs would come back, in Hudi as
    here.
    """
    table = MemoryTable(SCHEMA, partition_by="day", buckets=SimpleBuckets(2), **KINDS[kind])
    newest = newest_delete = 0
    for number, (deed, *given_) in enumerate([*steps, ("compact", True, True)]):
        if deed != "compact":
            keys, stamp = given_
            stamp = max(stamp, newest_delete)
            newest = max(newest, stamp)
            newest_delete = {"delete": stamp, "delete always": newest}.get(deed, newest_delete)
            step(table, number, deed, keys, stamp)
            continue
        before = content(table)
        service = compactions(table.session("c"))
        plans, executes = given_
        if plans:
            service.schedule()
        assert content(table) == before
        for instant in service.pending() if executes else ():
            service.execute(instant.requested)
            assert content(table) == before


# -- rows that several writers join

OWNERS = {"one": ("a",), "two": ("b",)}
_parts: st.SearchStrategy[Any] = st.one_of(
    st.tuples(st.sampled_from(["one", "two"]), _keys, st.booleans()),
    st.tuples(st.just("delete"), _keys, st.booleans()),
    st.tuples(st.just("compact"), st.just([]), st.booleans()),
)


def part(owner: str, keys: list[str], number: int, is_null: bool) -> pa.Table:
    value: Any = None if is_null else (f"v{number}" if owner == "one" else [number])
    [column] = OWNERS[owner]
    schema = pa.schema([SCHEMA.field(name) for name in ("id", "day", column)])
    return pa.Table.from_pylist([{"id": k, "day": "d", column: value} for k in keys], schema)


@given(steps=st.lists(_parts, min_size=2, max_size=9))
@settings(deadline=None, max_examples=25)
def test_joined_rows_are_the_same_however_often_they_are_compacted(steps: list[Any]) -> None:
    schema = pa.schema([field for field in SCHEMA if field.name != "ts"])
    table = MemoryTable(schema, partition_by="day", buckets=SimpleBuckets(1), owners=OWNERS)
    declare_owners(table.storage, ColumnOwners(OWNERS))
    expected: dict[str, dict[str, Any]] = {}
    for number, (deed, keys, flag) in enumerate([*steps, ("compact", [], True)]):
        if deed == "compact":
            compact(table.session("c"))
        elif deed == "delete":
            table.table("d").delete(pa.table({"id": keys}))
            for key in keys:
                expected.pop(key, None)
        else:
            given_ = part(deed, keys, number, flag)
            table.table(f"w{number}").upsert(given_, owner=deed)
            for row in given_.to_pylist():
                known = expected.get(row["id"], {"a": None, "b": None})
                expected[row["id"]] = {**known, **row}
        found = table.table("r").read(columns=["id", "day", "a", "b"]).to_arrow().to_pylist()
        assert len(found) == len(expected)
        assert {row["id"]: row for row in found} == expected


# -- log compaction


def test_a_block_of_a_log_compaction_counts_in_the_place_of_those_it_replaced() -> None:
    """Not after the log that came between: by commit time, that one is the later."""
    schema = pa.schema([("id", pa.string()), ("by", pa.string())])
    made = HandmadeTable(MemoryStorage(Clock()), schema)
    logs = {}
    for number, by, ids in ((1, "one", "kl"), (3, "two", "kl"), (5, "later", "l")):
        block = made.rows_block(number, [{"id": i, "by": by} for i in ids])
        logs[number] = made.log(number, block)
    header = {HeaderKey.COMPACTED_BLOCK_TIMES: f"{at(1)},{at(3)}"}
    made_of_two = made.rows_block(7, [{"id": i, "by": "two"} for i in "kl"], header=header)
    logs[7] = made.log(7, made_of_two)
    spec = CompactionSpec(
        InstantTime(at(20)),
        json.dumps(avro_record_schema(schema, "handmade")),
        MergeRule(),
        only(frozenset(at(number) for number in logs)),
        CommitFolders(TIMELINE, f"{TIMELINE}/history"),
    )
    operation = CompactionOperation(at(1), tuple(logs.values()), None, "f-0", "")
    stat = compact_slice(made.storage, spec, operation)
    assert (stat.num_writes, stat.total_log_blocks, stat.total_log_files_compacted) == (2, 2, 4)
    with made.storage.open(stat.data_path) as source:
        found = pq.read_table(source, columns=["id", "by"]).to_pylist()
    assert {row["id"]: row["by"] for row in found} == {"k": "two", "l": "later"}


def test_a_pending_log_compaction_keeps_its_file_groups_and_is_left_alone() -> None:
    schema = pa.schema([field for field in SCHEMA if field.name != "b"])
    table = MemoryTable(schema, ordering="ts", partition_by="day", buckets=SimpleBuckets(1))
    for number, day in enumerate(("d", "d", "e")):
        row = {"id": "k", "day": day, "ts": number, "a": "x"}
        table.table("w").upsert(pa.Table.from_pylist([row], schema))
    session = table.session("hudi")
    plan = compactions(session).preview(CompactionPolicy(partitions=("d",))).plan
    data = encode_compaction_plan(plan, bytes(16))
    assert isinstance(session.log.append(Begin(Action.LOGCOMPACTION, data)), Decided)
    done = compact(table.session("c"))
    assert [slice_.partition for slice_ in done.preview.slices] == ["e"]
    assert len(done.results) == 1
    assert not done.pending
    assert [name for name in table.pending() if name.endswith(".logcompaction.requested")]
