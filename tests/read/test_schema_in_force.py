"""Which schema is in force: one answer, for readers and writers, and none that undoes another."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType

import pyarrow as pa
import pytest

import pyhudi
from meddled_storage import Meddled
from memory_tables import TIMELINE, MemoryTable
from pyhudi.api.table import Table
from pyhudi.format.avro.schema import avro_record_schema
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.table_config import CREATE_SCHEMA, TableType
from pyhudi.format.timeline.commit_metadata import CommitMetadata, encode_commit_metadata
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.read.schema_in_force import RecordedSchema, last_recorded
from pyhudi.session.properties import update_properties
from pyhudi.storage.locks.file_lock import LOCK_PATH

NARROW = pa.schema([pa.field("id", pa.string(), nullable=False), ("v", pa.string())])
WIDE = pa.schema([*NARROW, ("w", pa.int32())])


def avro(schema: pa.Schema) -> str:
    return json.dumps(avro_record_schema(schema, "t"))


def rows(*ids: str, schema: pa.Schema = NARROW) -> pa.Table:
    return pa.table({"id": ids, "v": ["x"] * len(ids), "w": [7] * len(ids)}).select(schema.names)


def shared_table(**definition: object) -> MemoryTable:
    """A table that another engine may write too, with one row."""
    buckets = pyhudi.SimpleBuckets(1)
    made = MemoryTable(NARROW, buckets=buckets, lock=LockKind.FILE, **definition)
    made.table("first").upsert(rows("a"))
    return made


def foreign(
    made: MemoryTable,
    schema: pa.Schema | None,
    *,
    began: Action = Action.DELTACOMMIT,
    operation: str = "UPSERT",
    requested: str | None = None,
    extra: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Let another engine commit a write without rows, which records the schema, if there is one."""
    last = max(name[:17] for name in made.names() if name[:1].isdigit())
    done = max([last, *(name[18:35] for name in made.names() if "_" in name)])
    requested = requested or str(int(done) + 1)
    completed = str(int(max(done, requested)) + 1)
    for state in (State.REQUESTED, State.INFLIGHT):
        name = Instant(InstantTime(requested), began, state).file_name
        made.storage.create(f"{TIMELINE}/{name}", b"")
    known = {} if schema is None else {"schema": avro(schema)}
    metadata = CommitMetadata({}, extra_metadata={**known, **extra}, operation_type=operation)
    data = encode_commit_metadata(metadata, bytes(16))
    made.storage.create(f"{TIMELINE}/{requested}_{completed}.{began.completed_as.value}", data)
    made.clock.ms += 1_000


# ---- the rule


def instant(time: int, action: Action = Action.DELTACOMMIT) -> Instant:
    requested = InstantTime(f"{time:017d}")
    return Instant(requested, action, State.COMPLETED, InstantTime(f"{time + 1000:017d}"))


@pytest.mark.parametrize(
    ("commits", "services", "expected"),
    [
        ([(1, "S1", "UPSERT"), (2, "S2", "UPSERT")], {}, "S2"),
        ([(1, "S1", "UPSERT"), (2, None, "DELETE")], {}, "S1"),
        # What completes last is a service: it keeps the schema that it was planned with.
        ([(2, "S2", "UPSERT"), (1, "S1", "CLUSTER")], {1: Action.CLUSTERING}, "S2"),
        ([(2, "S2", "UPSERT"), (1, "S1", "COMPACT")], {1: Action.COMPACTION}, "S2"),
        # Its beginning is not known any more: its operation says that it is a service.
        ([(2, "S2", "UPSERT"), (1, "S1", "CLUSTER")], {}, "S2"),
        ([(2, "S2", "UPSERT"), (1, "S1", "LOG_COMPACT")], {}, "S2"),
        ([(1, "S1", "COMPACT")], {1: Action.COMPACTION}, "S1"),
        ([(1, "S1", "CLUSTER"), (2, "S2", "CLUSTER")], {}, "S2"),
        ([(1, None, "UPSERT")], {}, None),
        ([], {}, None),
    ],
)
def test_the_schema_in_force_is_the_last_that_a_write_recorded(
    commits: list[tuple[int, str | None, str]], services: dict[int, Action], expected: str | None
) -> None:
    known = {
        instant(time): CommitMetadata(
            {}, extra_metadata={"schema": schema} if schema else {}, operation_type=operation
        )
        for time, schema, operation in commits
    }
    began = {f"{time:017d}": action for time, action in services.items()}
    found = last_recorded(known, began, known.__getitem__)
    assert (found and found.avro_json) == expected


def test_a_service_does_not_change_the_schema_that_was_known_before_it() -> None:
    before = RecordedSchema(instant(1), "S2")
    service = CommitMetadata({}, extra_metadata={"schema": "S1"}, operation_type="CLUSTER")
    assert last_recorded([instant(2)], {}, lambda _: service, before) is before


# ---- reader and writer


def test_reader_and_writer_agree_after_a_clustering_that_completed_late() -> None:
    made = shared_table()
    last = max(name[18:35] for name in made.names() if "_" in name)
    clustering = str(int(last) + 1)
    for state in ("requested", "inflight"):
        made.storage.create(f"{TIMELINE}/{clustering}.clustering.{state}", b"")
    foreign(made, WIDE, requested=str(int(last) + 2))
    foreign(made, NARROW, began=Action.CLUSTERING, operation="CLUSTER", requested=clustering)

    table = made.table("b")
    assert table.schema.data_columns == ["id", "v", "w"]
    with pytest.raises(pyhudi.InvalidRequestError, match="missing columns 'w'"):
        table.upsert(rows("b"))
    table.upsert(rows("c", schema=WIDE))
    assert made.table("d").schema.data_columns == ["id", "v", "w"]
    read = made.table("d").read(columns=["id", "w"]).to_arrow().sort_by("id").to_pylist()
    assert read == [{"id": "a", "w": None}, {"id": "c", "w": 7}]


def test_a_writer_takes_the_schema_of_base_files_where_no_commit_has_one() -> None:
    made = MemoryTable(NARROW, buckets=pyhudi.SimpleBuckets(1), table_type=TableType.COPY_ON_WRITE)
    made.table("a").upsert(rows("a"))
    for name in [n for n in made.names() if "_" in n]:
        path = f"{TIMELINE}/{name}"
        made.storage.delete(path)
        made.storage.create(path, encode_commit_metadata(CommitMetadata({}), bytes(16)))

    def forgotten(values: dict[str, str]) -> dict[str, str]:
        return {key: value for key, value in values.items() if key != CREATE_SCHEMA}

    update_properties(made.storage, forgotten, made.world("b"))
    table = made.table("b")
    assert table.schema.data_columns == ["id", "v"]
    table.upsert(rows("b"))
    assert made.table("c").read(columns=["id"]).to_arrow().num_rows == 2


# ---- a schema that changes while a write runs

VERBS: dict[str, Callable[[Table], pyhudi.WriteResult]] = {
    "upsert": lambda t: t.upsert(rows("b")),
    "append": lambda t: t.append(rows("b")),
    "append of new keys": lambda t: t.append(rows("b"), require_new_keys=True),
    "update": lambda t: t.update(rows("a"), columns=["v"]),
    "overwrite": lambda t: t.overwrite(rows("b")),
    "stream": lambda t: t.upsert(
        pa.RecordBatchReader.from_batches(NARROW, (rows(i).to_batches()[0] for i in "bcd"))
    ),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("moment", ["-0_", LOCK_PATH], ids=["after the begin", "before it"])
def test_a_write_keeps_a_column_that_another_one_adds_while_it_runs(verb: str, moment: str) -> None:
    made = shared_table()
    storage = Meddled(made.storage, moment, lambda: foreign(made, WIDE))
    settings = {"buffer_bytes_max": 1} if verb == "stream" else {}
    VERBS[verb](made.table("b", storage, **settings))
    assert storage.is_done
    table = made.table("c")
    assert table.schema.data_columns == ["id", "v", "w"]
    assert set(table.read(columns=["w"]).to_arrow()["w"].to_pylist()) == {None}
    table.upsert(rows("z", schema=WIDE))
    found = made.table("d").read(where="id = 'z'", columns=["w"]).to_arrow()
    assert found["w"].to_pylist() == [7]
    assert made.pending() == []


def test_a_delete_that_meets_a_new_schema_records_it() -> None:
    made = shared_table()
    storage = Meddled(made.storage, ".log.", lambda: foreign(made, WIDE))
    result = made.table("b", storage).delete("id = 'a'")
    assert (storage.is_done, result.retries) == (True, 0)
    assert made.table("c").schema.data_columns == ["id", "v", "w"]
    assert made.table("c").read(columns=["id"]).to_arrow().num_rows == 0


def test_a_contradiction_of_schemas_is_kept_for_inspection() -> None:
    made = shared_table()
    storage = Meddled(made.storage, ".log.", lambda: foreign(made, WIDE))
    text = rows("b").append_column("w", pa.array(["text"]))
    with pytest.raises(pyhudi.ConcurrentSchemaEvolutionError) as caught:
        made.table("b", storage).upsert(text, schema_mode="add")
    (noted,) = made.table("c").inspect.conflicts().to_pylist()
    assert noted["rule"] == "schema_evolved"
    facts = caught.value.facts
    assert [c["column"] for c in facts["columns"]] == ["w"]
    assert [c["path"] for c in facts["changes"]["ours"]] == ["w"]
    assert set(facts["schemas"]) == {"start", "now", "own"}
    assert made.table("c").read(columns=["id"]).to_arrow().to_pylist() == [{"id": "a"}]
    assert made.pending() == []


def test_a_damaged_schema_in_another_commit_refuses_the_write_and_names_the_commit() -> None:
    made = shared_table()

    def damage() -> None:
        foreign(made, NARROW, extra={"schema": "{"})

    storage = Meddled(made.storage, ".log.", damage)
    with pytest.raises(pyhudi.CorruptTableError, match=r"deltacommit"):
        made.table("b", storage).upsert(rows("b"))
    assert storage.is_done
    assert made.pending() == []


def test_a_column_that_a_careless_writer_takes_out_is_warned_of_and_not_compacted_away() -> None:
    """A non-blocking writer of Hudi checks nothing, and may record an old schema."""
    made = shared_table()
    table = made.table("long")
    table.upsert(rows("b", schema=WIDE), schema_mode="add")
    table.upsert(rows("c", schema=WIDE))
    foreign(made, NARROW)
    with pytest.warns(pyhudi.SchemaWarning, match="'w' out of the table"):
        table.upsert(rows("d"))
    with pytest.raises(pyhudi.CorruptTableError, match="values of column 'w' would be lost"):
        table.services.compact(pyhudi.CompactionPolicy(min_delta_commits=1))
    with table.update_schema() as change:
        change.union_by_name(pa.schema([*NARROW, ("w", pa.int64())]))
    assert not table.services.compact(pyhudi.CompactionPolicy(min_delta_commits=1)).errors
    read = made.table("d").read(columns=["id", "w"]).to_arrow().sort_by("id").to_pylist()
    assert [row["w"] for row in read] == [None, 7, 7, None]


@pytest.mark.parametrize(
    ("between", "refused"),
    [("long", pa.timestamp("us", "UTC")), ("string", pa.binary())],
    ids=["long to timestamp", "text to bytes"],
)
def test_promotions_that_update_column_refuses_would_leave_older_files_unreadable(
    between: str, refused: pa.DataType
) -> None:
    """Hudi reads each of the two steps, and no engine both of them at once."""
    made = shared_table()
    table = made.table("own")
    ints = rows("b", schema=WIDE).cast(WIDE)
    table.upsert(ints, schema_mode="add")
    with table.update_schema() as change:
        change.update_column("w", between)
    with (
        table.update_schema() as change,
        pytest.raises(pyhudi.InvalidRequestError, match="'w' cannot become"),
    ):
        change.update_column("w", refused)
    assert made.table("reader").read(columns=["w"]).to_arrow().num_rows == 2
    foreign(made, pa.schema([*NARROW, ("w", refused)]))
    with pytest.raises(pyhudi.UnsupportedTableError, match="the file has int32"):
        made.table("reader").read(columns=["w"]).to_arrow()


# ---- a column that was dropped, beside another engine


def drop(made: MemoryTable) -> None:
    """Bring a column with a row, and drop it."""
    table = made.table("dropper")
    table.upsert(rows("b", schema=WIDE).cast(WIDE), schema_mode="add")
    with table.update_schema() as change:
        change.delete_column("w")


def by_other(made: MemoryTable) -> None:
    foreign(made, NARROW)


def by_us(made: MemoryTable) -> None:
    made.table("c").upsert(rows("c"))


def by_us_amid_other(made: MemoryTable) -> None:
    storage = Meddled(made.storage, ".log.", lambda: by_other(made))
    made.table("c", storage).upsert(rows("c"))
    assert storage.is_done


def compaction(made: MemoryTable) -> None:
    made.table("c").services.compact(pyhudi.CompactionPolicy(min_delta_commits=1))


AFTER_DROP: dict[str, tuple[Callable[[MemoryTable], None], ...]] = {
    "nothing": (),
    "a commit of another engine": (by_other,),
    "two, and one of pyhudi": (by_other, by_other, by_us),
    "one of pyhudi, and one of another engine": (by_us, by_other),
    "one of pyhudi that meets one of another engine": (by_us_amid_other,),
    "a compaction by pyhudi, and one of another engine": (compaction, by_other),
}


@pytest.mark.parametrize("case", AFTER_DROP)
def test_a_dropped_column_stays_dropped_though_another_engine_records_no_drops(case: str) -> None:
    """Its name stays taken while files hold its values, and compaction takes them away."""
    made = shared_table()
    drop(made)
    for step in AFTER_DROP[case]:
        step(made)
    late = made.table("late")
    with pytest.raises(pyhudi.HudiError, match="dropped"):
        late.upsert(rows("d", schema=WIDE), schema_mode="add")
    with (
        late.update_schema() as change,
        pytest.raises(pyhudi.InvalidRequestError, match="files may still hold its values"),
    ):
        change.add_column("w", pa.int32())
    late.services.compact(pyhudi.CompactionPolicy(min_delta_commits=1))
    assert made.table("reader").schema.data_columns == ["id", "v"]
    assert made.pending() == []


def test_a_dropped_column_that_another_engine_brings_back_is_not_compacted_away() -> None:
    made = shared_table()
    drop(made)
    table = made.table("late")
    foreign(made, WIDE)
    table.services.compact(pyhudi.CompactionPolicy(min_delta_commits=1))
    read = made.table("reader").read(columns=["id", "w"]).to_arrow().sort_by("id").to_pylist()
    assert read == [{"id": "a", "w": None}, {"id": "b", "w": 7}]
    table.upsert(rows("d", schema=WIDE))
    foreign(made, NARROW)  # and takes it away
    with pytest.warns(pyhudi.SchemaWarning, match="'w' out of the table"):
        table.upsert(rows("e"))


def test_a_schema_that_another_engine_spells_differently_is_no_change() -> None:
    made = shared_table()
    nullable = pa.schema([field.with_nullable(True) for field in NARROW])
    storage = Meddled(made.storage, ".log.", lambda: foreign(made, nullable))
    assert made.table("b", storage).upsert(rows("b")).retries == 0
    assert storage.is_done


def test_a_commit_whose_schema_cannot_be_read_refuses_the_write_and_leaves_nothing() -> None:
    made = shared_table()

    def evolve_on_read() -> None:
        foreign(made, NARROW, extra={"latest_schema": "[{}]"})

    storage = Meddled(made.storage, ".log.", evolve_on_read)
    with pytest.raises(pyhudi.UnsupportedTableError, match="schema-on-read"):
        made.table("b", storage).upsert(rows("b"))
    assert storage.is_done
    assert made.pending() == []


def test_a_writer_forgets_a_schema_that_a_restore_has_undone() -> None:
    made = shared_table()
    before, table = set(made.names()), made.table("long")
    foreign(made, WIDE)
    table.upsert(rows("b", schema=WIDE))  # the writer knows the wide schema now
    undone = {name[:17] for name in set(made.names()) - before}
    last = max(name[18:35] for name in made.names() if "_" in name)
    for stat in list(made.storage.list("")):
        in_place = stat.path.startswith(TIMELINE) or not stat.path.startswith(".hoodie")
        if in_place and any(time in stat.path for time in undone):
            made.storage.delete(stat.path)
    made.storage.create(f"{TIMELINE}/{int(last) + 5}_{int(last) + 9}.restore", b"")
    made.clock.ms += 10_000
    assert made.table("fresh").schema.data_columns == ["id", "v"]
    table.delete("id = 'none'")
    assert made.table("fresh").schema.data_columns == ["id", "v"]
    table.upsert(rows("c"))
    assert made.table("fresh").read(columns=["id"]).to_arrow().num_rows == 2
