"""Jobs of tasks, one group at a time: what is refused, which file a group gets, what is in it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from memory_tables import MemoryTable
from pyhudi.api.table import Table
from pyhudi.conflict.schema_to_record import WriteSchemas
from pyhudi.errors import InvalidRequestError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.merge_rules import MergeMode
from pyhudi.format.table.table_config import TableType
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.index.simple_bucket import file_id
from pyhudi.read.lookup import GroupView
from pyhudi.read.plan import Now, Question, Reader
from pyhudi.write import group_files
from pyhudi.write import tasks as group_jobs
from pyhudi.write.begin import ready, write_spec
from pyhudi.write.files.spec import KeyedRows
from pyhudi.write.group_files import EmptyBuckets, Files
from pyhudi.write.intent import (
    Change,
    Keys,
    NewValues,
    PartitionScope,
    Reads,
    WholeRows,
    WriteIntent,
)
from pyhudi.write.plan import Prepared, plan_write
from pyhudi.write.row_shape import RowShape, row_shape
from pyhudi.write.schemas import row_schema
from pyhudi.write.tasks import DeleteTask, FoundDeletesTask, GroupTask, RowsTask, Target, UpdateTask
from pyhudi.write.view import current_slices

SCHEMA = pa.schema(
    [("id", pa.string()), ("day", pa.string()), ("ts", pa.int64()), ("v", pa.float64())]
)
REQUESTED = "20990101000000000"
GROUP = FileGroupId("d0", file_id(0))
COW: dict[str, Any] = {"table_type": TableType.COPY_ON_WRITE}


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    full = [{"id": "a", "day": "d0", "ts": 1, "v": 1.0, **row} for row in rows]
    return pa.RecordBatch.from_pylist(full, SCHEMA)


class Bench(MemoryTable):
    """A table of one bucket a partition, and jobs of a write that has not completed."""

    def __init__(self, **options: Any) -> None:
        given = {"partition_by": "day", "ordering": "ts", "buckets": SimpleBuckets(1), **options}
        super().__init__(SCHEMA, **given)
        self.writing = self.opening("writing")

    def holding(self, *rows: dict[str, Any]) -> Bench:
        self.table().upsert(batch(*rows))
        return self

    def files(self) -> Files:
        session = ready(self.writing)
        slices = current_slices(session)
        bases = {group: s.base for group, s in slices.items() if s.base is not None}
        spec, routing = write_spec(session, REQUESTED), session.groups.routing([])
        return Files(self.storage, spec, session.config, routing, bases)

    def view(self) -> GroupView:
        session = self.writing.session()
        plan = Reader(session.loader).plan_snapshot
        return GroupView.of(plan(session.current.load(), Now(), Question(meta=True)))

    def shape(self, change: Change) -> RowShape:
        session = self.writing.session()
        return row_shape(change, row_schema(session), session.config)

    def rows(self, target: Target, **options: Any) -> RowsTask:
        return RowsTask(self.files(), self.shape(WholeRows()), target, **options)

    def update(self, *columns: str) -> UpdateTask:
        shape = self.shape(NewValues(frozenset(columns)))
        return UpdateTask(self.files(), shape, self.view(), columns)

    def deletes(self, *given: str, unconditional: bool = False, looks: bool = True) -> DeleteTask:
        shape = self.shape(Keys(frozenset(given)))
        view = self.view() if looks else None
        return DeleteTask(self.files(), shape, view, unconditional=unconditional)

    def new_files(self) -> list[str]:
        return [s.path for s in self.storage.list("d0") if REQUESTED in s.path]


def written(
    job: GroupTask, *batches: pa.RecordBatch, partition: str = GROUP.partition
) -> list[WriteStat]:
    prepared = [job.shape.prepare(given) for given in batches]
    rows = iter([KeyedRows(one.rows, one.keys) for one in prepared])
    return list(job.write(FileGroupId(partition, GROUP.file_id), rows))


# -- what is refused, before anything is written

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a null key": ({"id": None}, r"1 of 2 rows have no record key.*row 1"),
    "an empty key": ({"id": ""}, r"1 of 2 rows have no record key"),
    "a null ordering value": ({"ts": None}, r"1 of 2 rows have no ordering value"),
    "a partition that leads out": ({"day": "../x"}, r"cannot be partitions.*\.\./x"),
    "a partition of two levels": ({"day": "a/b"}, r"cannot be partitions"),
    "the table's own folder": ({"day": ".hoodie"}, r"the table's own folder"),
}


@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("kind", ["rows", "update"])
def test_bad_rows_are_refused_with_a_sample(what: str, kind: str) -> None:
    row, message = BAD[what]
    bench = Bench().holding({})
    job: GroupTask = bench.rows(Target.LOG)
    if kind == "update":
        job = bench.update("ts", "v")
    with pytest.raises(InvalidRequestError, match=message):
        job.shape.prepare(batch({}, row))


@pytest.mark.parametrize("what", ["a null key", "an empty key", "a null ordering value"])
def test_bad_keys_are_refused_by_deletes(what: str) -> None:
    row, message = BAD[what]
    bench = Bench().holding({})
    job = bench.deletes(*SCHEMA.names)
    with pytest.raises(InvalidRequestError, match=message):
        job.shape.prepare(batch({}, row))


def test_rows_of_other_partitions_than_the_named_are_refused() -> None:
    bench = Bench()
    job = bench.rows(Target.BASE, partitions=frozenset({"d0"}))
    assert written(job, batch({}))
    with pytest.raises(InvalidRequestError, match="rows of partition 'd1' cannot be written"):
        written(job, batch({"day": "d1"}), partition="d1")


def test_the_ordering_counts_only_where_rows_merge_by_it() -> None:
    by_commit = Bench(merge_mode=MergeMode.COMMIT_TIME_ORDERING)
    job = by_commit.rows(Target.LOG)
    assert job.shape.ordering == ()
    assert job.shape.prepare(batch({"ts": None})).keys.to_pylist() == ["a"]
    bench = Bench()
    assert bench.rows(Target.LOG).shape.ordering == ("ts",)
    assert bench.update("v").shape.ordering == ()
    assert bench.update("v", "ts").shape.ordering == ("ts",)


# -- which file a group gets


@pytest.mark.parametrize(
    ("target", "size_min", "log"),
    [
        (Target.LOG, 1, True),
        (Target.LOAD, 1, False),
        (Target.LOAD, 1 << 20, True),
        (Target.BASE, 1 << 20, False),
        (Target.MERGED_BASE, 1 << 20, False),
    ],
)
def test_the_target_and_the_size_decide_on_the_file(
    target: Target, size_min: int, log: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_jobs, "LOAD_BYTES_MIN", size_min)
    bench = Bench()
    (stat,) = written(bench.rows(target), batch({}), batch({"id": "b"}))
    assert (stat.log_files is not None) is log
    assert stat.num_writes == 2
    assert bench.new_files() == [stat.data_path]


@pytest.mark.parametrize("what", ["a row", "a pending log", "a pending base file"])
def test_a_bucket_that_is_not_known_to_be_empty_gets_a_log(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_jobs, "LOAD_BYTES_MIN", 1)
    bench = Bench().holding({"day": "d9"})
    group = file_id(0)
    if what == "a row":
        bench.holding({})
    elif what == "a pending log":
        bench.storage.create(f"d0/.{group}_20260101000000000.log.1_0-0-0", b"")
    else:
        bench.storage.create(f"d0/{group}_0-0-0_20260101000000000.parquet", b"unsound")
    (stat,) = written(bench.rows(Target.LOAD), batch({"id": "b"}))
    assert stat.log_files is not None


def test_a_file_of_another_attempt_does_not_make_a_bucket_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_jobs, "LOAD_BYTES_MIN", 1)
    bench = Bench()
    files = bench.files()  # both attempts were planned before either wrote
    attempts = [
        written(RowsTask(files, bench.shape(WholeRows()), Target.LOAD), batch({})) for _ in range(2)
    ]
    assert attempts[0] == attempts[1]
    assert len(bench.new_files()) == 1


def test_a_partition_is_listed_once_for_all_of_its_buckets() -> None:
    bench = Bench(buckets=SimpleBuckets(4)).holding({})
    empty = EmptyBuckets(bench.storage, REQUESTED)
    before = [empty.has(FileGroupId("d0", file_id(n))) for n in range(4)]
    assert sorted(before) == [False, True, True, True]
    for stat in list(bench.storage.list("d0")):
        bench.storage.delete(stat.path)
    # What it knows, it keeps; what changes meanwhile is found by the check for conflicts.
    assert not empty.has(FileGroupId("d0", file_id(before.index(False))))


def test_a_group_of_more_rows_than_a_task_should_hold_gets_several_logs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_files, "PIECE_BYTES", 60)
    bench = Bench()
    parts = [batch({"id": f"k{n}"}, {"id": f"m{n}"}) for n in range(5)]
    stats = written(bench.rows(Target.LOG), *parts)
    assert [stat.log_version for stat in stats] == list(range(1, len(stats) + 1))
    assert len(stats) > 1
    assert sum(stat.num_writes or 0 for stat in stats) == 10


def test_rows_are_taken_as_the_base_file_is_written() -> None:
    """A task holds a batch, not a group."""
    bench = Bench()
    job = bench.rows(Target.BASE)
    asked = []

    def parts() -> Iterator[KeyedRows]:
        for number in range(3):
            asked.append(number)
            prepared = job.shape.prepare(batch({"id": f"k{number}"}))
            yield KeyedRows(prepared.rows, prepared.keys)

    stats = job.write(GROUP, parts())
    assert asked == []
    (stat,) = stats
    assert asked == [0, 1, 2]
    assert stat.num_writes == 3


# -- what is in it


def test_an_update_merges_new_values_into_the_rows_that_are_there() -> None:
    bench = Bench().holding({"v": 5.0}, {"id": "b", "v": 6.0, "ts": 3})
    job = bench.update("v")
    given = batch({"id": "b", "v": 9.0}, {"id": "absent"}).select(["v", "day", "id"])
    (stat,) = written(job, given)
    assert stat.num_writes == 1
    assert stat.log_files is not None


@pytest.mark.parametrize("options", [{}, COW], ids=["mor", "cow"])
def test_an_update_of_nothing_that_is_there_writes_no_file(options: dict[str, Any]) -> None:
    bench = Bench(**options).holding({})
    job = bench.update("v")
    given = batch({"id": "absent"}).select(["id", "day", "v"])
    assert written(job, given) == []
    assert written(job, given, partition="d7") == []
    assert bench.new_files() == []


@pytest.mark.parametrize("options", [{}, COW], ids=["mor", "cow"])
def test_a_delete_without_the_partition_is_looked_up_in_all_of_them(
    options: dict[str, Any],
) -> None:
    bench = Bench(**options).holding({}, {"day": "d1"}, {"day": "d2", "id": "b"})
    job = bench.deletes("id", unconditional=False)
    stats = written(job, batch({}, {"id": "absent"}).select(["id"]), partition="")
    assert [stat.partition_path for stat in stats] == ["d0", "d1"]
    assert [stat.num_deletes for stat in stats] == [1, 1]


@pytest.mark.parametrize("options", [{}, COW], ids=["mor", "cow"])
def test_a_delete_of_nothing_that_is_there_writes_no_file(options: dict[str, Any]) -> None:
    bench = Bench(**options).holding({})
    job = bench.deletes("id", "day", unconditional=False)
    assert written(job, batch({"id": "absent"}).select(["id", "day"])) == []
    job = bench.deletes("id", unconditional=False)
    assert written(job, batch({"id": "absent"}).select(["id"]), partition="") == []


def test_a_delete_that_lacks_nothing_needs_no_lookup() -> None:
    bench = Bench().holding({})
    job = bench.deletes("id", "day", "ts", unconditional=False, looks=False)
    (stat,) = written(job, batch({}).select(["id", "day", "ts"]))
    assert stat.num_deletes == 1
    job = bench.deletes("id", "day", unconditional=True, looks=False)
    assert job.shape.prepare(batch({}).select(["id", "day"])).keys.to_pylist() == ["a"]


def test_an_empty_batch_has_the_shape_of_any_other() -> None:
    bench = Bench().holding({})
    jobs: list[tuple[GroupTask, list[str]]] = [
        (bench.rows(Target.LOG), SCHEMA.names),
        (bench.update("v"), ["id", "day", "v"]),
        (bench.deletes("id", "day", unconditional=True, looks=False), ["id", "day"]),
        (bench.deletes("id", unconditional=True), ["id"]),
    ]
    for job, names in jobs:
        full, empty = (
            job.shape.prepare(batch({}).select(names)),
            job.shape.prepare(batch().select(names)),
        )
        assert empty.rows.num_rows == len(empty.keys) == len(empty.paths) == 0
        assert empty.rows.schema == full.rows.schema
        assert empty.paths.type == full.paths.type


# -- jobs travel


@pytest.mark.parametrize("options", [{}, COW], ids=["mor", "cow"])
def test_jobs_travel_to_where_the_rows_are(tmp_path: Any, options: dict[str, Any]) -> None:
    import pyhudi

    kind = "cow" if options else "mor"
    table: Table = pyhudi.create_table(
        tmp_path / "t",
        SCHEMA,
        record_key="id",
        partition_by="day",
        ordering="ts",
        buckets=pyhudi.SimpleBuckets(1),
        table_type=kind,
    )
    table.upsert(batch({}, {"id": "b"}))
    session = table._opening.session()
    changes: dict[str, dict[str, Any]] = {
        "upsert": {},
        "append": {"change": WholeRows(loads=True), "reads": Reads.KEYS},
        "update": {"change": NewValues(frozenset({"v"}))},
        "delete": {"change": Keys(frozenset({"id"}))},
        "overwrite": {"replaces": PartitionScope(frozenset({"d0"}))},
    }
    spec, rows = write_spec(session, REQUESTED), row_schema(session)
    schemas = WriteSchemas(rows.called, rows.rows)
    made = {
        name: plan_write(
            session, WriteIntent(operation="", rows=rows, **given), spec, schemas, Prepared()
        )
        for name, given in changes.items()
    }
    for plan in made.values():
        assert not isinstance(plan.task, FoundDeletesTask)
        job = pickle.loads(pickle.dumps(plan.task))
        assert job.shape.ordering == plan.task.shape.ordering
    job = pickle.loads(pickle.dumps(made["update"].task))
    (stat,) = written(job, batch({"v": 7.0}).select(["id", "day", "v"]))
    assert stat.data_path.startswith("d0/")
