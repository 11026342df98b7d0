"""`df.write.format("pyhudi")` on Spark 4, with Hudi's own options.

What Spark does with a writer is tested with Spark. What a writer does is tested without: it is
made, asked to write and to commit here, and travels in between, as it does there.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, udf
from pyspark.sql.types import LongType, StringType, StructField, StructType

import pyhudi
from many_writers.scene import HeldWrite, Stop
from pyhudi.errors import (
    ConcurrentSchemaEvolutionError,
    ConflictError,
    EarlyConflictError,
    InvalidRequestError,
    TableNotFoundError,
)
from pyhudi.world import real_world
from pyhudi.write.files.spec import WriteOverError
from pyspark_pyhudi import DefaultSource
from pyspark_pyhudi.writer import PyhudiWriter, Written

pytestmark = pytest.mark.spark

OPERATION = "hoodie.datasource.write.operation"
OPTIONS = {
    "hoodie.table.name": "orders",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "day",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.bucket.index.num.buckets": "2",
}
COLUMNS = ["id", "day", "ts", "note"]
SCHEMA = StructType(
    [StructField(name, LongType() if name == "ts" else StringType()) for name in COLUMNS]
)
Row = tuple[str | None, str, int, str]
ROWS: list[Row] = [(f"k{n}", f"d{n % 2}", 1, "a") for n in range(8)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders"


def rows_of(path: Path) -> list[Row]:
    found = pyhudi.open_table(path).read(columns=COLUMNS).to_arrow().to_pylist()
    return sorted(tuple(row[name] for name in COLUMNS) for row in found)


def files_of(path: Path) -> set[str]:
    """Data files, and what only a write under way needs."""
    found = {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}
    under_way = (".hoodie/.heartbeat/", ".hoodie/.pyhudi/closed/")
    return {f for f in found if not f.startswith(".hoodie/") or f.startswith(under_way)}


def pending_of(path: Path) -> set[str]:
    names = [file.name for file in (path / ".hoodie/timeline").iterdir() if file.is_file()]
    done = {name[:17] for name in names if "_" in name}
    return {name[:17] for name in names} - done


# ---- with Spark


def save(frame: DataFrame, path: Path, **options: str) -> None:
    frame.write.format("pyhudi").options(**OPTIONS, **options).mode("append").save(str(path))


def frame_of(spark: SparkSession, rows: list[Row], columns: int = len(COLUMNS)) -> DataFrame:
    schema = StructType(SCHEMA.fields[:columns])
    return spark.createDataFrame([row[:columns] for row in rows], schema)


def test_a_table_is_created_upserted_and_deleted_from(spark: SparkSession, path: Path) -> None:
    save(frame_of(spark, ROWS), path)
    assert rows_of(path) == ROWS
    assert pyhudi.open_table(path).record_key == ("id",)

    newer: list[Row] = [("k1", "d1", 2, "b"), ("k2", "d0", 0, "too old"), ("k9", "d9", 1, "b")]
    save(frame_of(spark, newer), path)
    changed = {row[0]: row for row in [*ROWS, newer[0], newer[2]]}
    assert rows_of(path) == sorted(changed.values())

    gone: list[Row] = [("k1", "d1", 3, ""), ("k3", "d1", 1, ""), ("k5", "d1", 0, "")]
    save(frame_of(spark, gone, columns=3), path, **{OPERATION: "delete"})
    assert rows_of(path) == sorted(changed[k] for k in changed if k not in ("k1", "k3"))
    assert pending_of(path) == set()


def test_bad_rows_are_shown_and_nothing_is_written(spark: SparkSession, path: Path) -> None:
    table = _table(path)
    before = files_of(path)
    rows = frame_of(spark, [*ROWS, (None, "d0", 1, "bad")]).repartition(2)
    with pytest.raises(PySparkException, match=r"InvalidRequestError: .* no record key: .*id=null"):
        save(rows, path)
    assert (files_of(path), pending_of(path)) == (before, set())
    assert table.read().to_arrow().num_rows == 0


def test_a_task_that_fails_takes_the_whole_write_with_it(spark: SparkSession, path: Path) -> None:
    _table(path)
    before = files_of(path)
    condition = "if(id = 'k7', cast(raise_error('no such note') as string), note)"
    rows = frame_of(spark, ROWS).selectExpr("id", "day", "ts", f"{condition} as note")
    with pytest.raises(PySparkException, match="no such note"):
        save(rows, path)
    assert (files_of(path), pending_of(path)) == (before, set())


def test_a_save_adds_columns_as_hudi_does_and_with_merge_schema_fills_them(
    spark: SparkSession, path: Path
) -> None:
    save(frame_of(spark, ROWS).withColumn("n", col("ts").cast("int")), path)
    wider = frame_of(spark, [("k1", "d1", 2, "b")]).selectExpr("*", "ts << 40 AS n", "'new' AS x")
    save(wider, path)
    shown = pyhudi.open_table(path).read(where="ts = 2").to_arrow().select(["id", "n", "x"])
    assert shown.to_pylist() == [{"id": "k1", "n": 2 << 40, "x": "new"}]

    lacking = wider.drop("note").withColumn("ts", col("ts") + 1).withColumn("y", col("n"))
    with pytest.raises(
        PySparkException, match=r"missing columns 'note'.*\"mergeSchema\", \"true\""
    ):
        save(lacking, path)
    save(lacking, path, mergeSchema="true")
    shown = pyhudi.open_table(path).read(where="ts = 3").to_arrow().select(["note", "x", "y"])
    assert shown.to_pylist() == [{"note": None, "x": "new", "y": 2 << 40}]

    with pytest.raises(PySparkException, match=r"columns that the table does not have: 'z'"):
        save(wider.selectExpr("*", "n AS y", "n AS z"), path, mergeSchema="false")
    assert pending_of(path) == set()


def test_a_write_begins_when_its_input_has_been_shuffled(spark: SparkSession, path: Path) -> None:
    """So it is not taken for dead while a long job computes its rows."""
    _table(path)
    heartbeats = str(path / ".hoodie/.heartbeat")

    # A lambda, for Spark warns of hints that are texts.
    under_way = udf(
        lambda _: str(len(os.listdir(heartbeats)) if os.path.isdir(heartbeats) else 0), "string"
    )
    rows = frame_of(spark, ROWS).withColumn("note", under_way(col("id"))).repartition(2, "day")
    save(rows, path)
    assert [row[3] for row in rows_of(path)] == ["0"] * len(ROWS)


def test_spark_shows_the_error_of_a_wrong_option(spark: SparkSession, path: Path) -> None:
    with pytest.raises(PySparkException, match=r"Did you mean 'hoodie\.table\.type'"):
        save(frame_of(spark, ROWS), path, **{"hoodie.table.typ": "MERGE_ON_READ"})
    assert not path.exists()


# ---- without Spark


def _table(path: Path, **options: Any) -> pyhudi.Table:
    defaults = {"record_key": "id", "partition_by": "day", "ordering": "ts", "name": "orders"}
    schema = pa.schema([(n, pa.int64() if n == "ts" else pa.string()) for n in COLUMNS])
    buckets = pyhudi.SimpleBuckets(2)
    return pyhudi.create_table(
        path,
        schema,
        buckets=buckets,
        **{**defaults, **options},
        upkeep=False,
    )


def writer_of(
    path: Path, columns: int = len(COLUMNS), *, overwrite: bool = False, **options: Any
) -> PyhudiWriter:
    source = DefaultSource({"path": str(path), **OPTIONS, **options})
    writer = source.writer(StructType(SCHEMA.fields[:columns]), overwrite)
    assert isinstance(writer, PyhudiWriter)
    return travelled(writer)


def _operation(name: str) -> dict[str, Any]:
    return {OPERATION: name}


def travelled(writer: PyhudiWriter) -> PyhudiWriter:
    there: PyhudiWriter = pickle.loads(pickle.dumps(writer))
    return there


def written(writer: PyhudiWriter, task: int, *rows: Row) -> Written:
    message = travelled(writer).written(batches(*rows), task, real_world())
    assert message == pickle.loads(pickle.dumps(message)) or message.refusal is not None
    return message


def batches(*rows: Row) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pylist([dict(zip(COLUMNS, row, strict=True)) for row in rows])


_REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown option": ({"hoodie.table.nam": "x"}, r"Did you mean 'hoodie\.table\.name'"),
    "a refused option": ({"hoodie.metadata.enable": "true"}, "does not maintain the metadata"),
    "an option that the table contradicts": (
        {"hoodie.datasource.write.hive_style_partitioning": "true"},
        "there it is 'false'",
    ),
    "mode overwrite": ({"overwrite": True}, r"table\.overwrite\(df, partitions='all'\)"),
    "insert_overwrite": ({OPERATION: "insert_overwrite"}, r"table\.overwrite\(df\)"),
    "insert_overwrite_table": (
        {OPERATION: "insert_overwrite_table"},
        r"table\.overwrite\(df, partitions='all'\)",
    ),
    "delete_partition": (
        {OPERATION: "delete_partition", "hoodie.datasource.write.partitions.to.delete": "d1"},
        r"table\.delete_partitions",
    ),
    "missing columns": ({"columns": 2}, "missing columns 'ts', 'note'"),
    "missing columns that could be filled": (
        {"columns": 3},
        r'missing columns \'note\'.*option\("mergeSchema", "true"\) would write null',
    ),
    "columns of the ordering that could not": (
        {"columns": 2, "mergeSchema": "true"},
        "column 'ts' cannot be left out",
    ),
    "a delete without the ordering": (
        {"columns": 2, OPERATION: "delete"},
        r"table\.delete\(df\)",
    ),
    "a write id that is none": ({"write_id": ""}, "write_id"),
}


@pytest.mark.parametrize("refused", _REFUSED)
def test_what_cannot_be_done_is_refused_before_anything_begins(refused: str, path: Path) -> None:
    _table(path)
    before = {file for file in path.rglob("*") if file.is_file()}
    options, why = _REFUSED[refused]
    with pytest.raises(InvalidRequestError, match=why):
        writer_of(path, **options)
    assert {file for file in path.rglob("*") if file.is_file()} == before


def test_a_copy_on_write_table_is_refused(path: Path) -> None:
    options: dict[str, Any] = {"hoodie.datasource.write.table.type": "COPY_ON_WRITE"}
    with pytest.raises(InvalidRequestError, match=r"copy-on-write.*table\.upsert\(df\)"):
        writer_of(path, **options)
    assert not path.exists()
    _table(path, table_type="cow")
    with pytest.raises(InvalidRequestError, match=r"copy-on-write.*table\.upsert\(df\)"):
        writer_of(path)


def test_a_new_table_must_be_described(path: Path) -> None:
    missing = "hoodie.datasource.write.recordkey.field"
    options = {name: value for name, value in OPTIONS.items() if name != missing}
    with pytest.raises(TableNotFoundError, match=missing):
        DefaultSource({"path": str(path), **options}).writer(SCHEMA, False)
    assert not path.exists()


def test_there_is_nothing_to_delete_where_there_is_no_table(path: Path) -> None:
    with pytest.raises(TableNotFoundError, match="no Hudi table"):
        writer_of(path, **_operation("delete"))
    assert not path.exists()


def test_a_save_without_a_path_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="no table is named"):
        DefaultSource(OPTIONS).writer(SCHEMA, False)


def test_an_option_without_effect_is_told(path: Path) -> None:
    options: dict[str, Any] = {"hoodie.upsert.shuffle.parallelism": "8"}
    with pytest.warns(UserWarning, match=r"hoodie\.upsert\.shuffle\.parallelism has no effect"):
        writer_of(path, **options).abort([])


def test_attempts_of_a_task_write_the_same_files(path: Path) -> None:
    writer = writer_of(path)
    first = written(writer, 3, *ROWS)
    files = files_of(path)
    assert written(writer, 3, *ROWS) == first
    assert files_of(path) == files
    writer.commit([first])
    assert rows_of(path) == ROWS


def test_an_attempt_that_wakes_up_after_the_commit_writes_nothing(path: Path) -> None:
    writer = writer_of(path)
    writer.commit([written(writer, 0, *ROWS)])
    files = files_of(path)
    late = written(writer, 1, ("late", "d5", 1, "x"))
    assert isinstance(late.refusal, WriteOverError)
    assert files_of(path) == files
    assert rows_of(path) == ROWS


def test_a_bad_row_stops_the_other_tasks(path: Path) -> None:
    writer = writer_of(path)
    good = written(writer, 0, *ROWS)
    bad = written(writer, 1, (None, "d0", 1, "bad"))
    stopped = written(writer, 2, ("k8", "d0", 1, "x"))
    assert isinstance(stopped.refusal, WriteOverError)
    with pytest.raises(InvalidRequestError, match="no record key"):
        writer.commit([stopped, good, bad])
    writer.abort([stopped, good, bad])
    assert files_of(path) == set()
    assert pending_of(path) == set()


def test_a_save_that_never_runs_is_rolled_back_when_its_heartbeat_is_old(path: Path) -> None:
    writer = writer_of(path)
    done = written(writer, 0, *ROWS)
    (instant,) = pending_of(path)
    for file in path.rglob(f"*{instant}*"):
        if file.is_file():
            os.utime(file, (0, 0))
    other = writer_of(path)
    other.commit([written(other, 0, ("k1", "d1", 5, "b"))])
    with pytest.raises(ConflictError, match="was not completed"):
        writer.commit([done])
    with pytest.raises(ConflictError, match="rolled back by another writer"):
        writer.commit([done, written(writer, 1, *ROWS)])
    assert rows_of(path) == [("k1", "d1", 5, "b")]
    assert pending_of(path) == set()


def test_a_save_with_a_write_id_is_done_once(path: Path) -> None:
    for note in ("first", "second"):
        writer = writer_of(path, write_id="night 17")
        writer.commit([written(writer, 0, ("k1", "d1", 1, note))])
    assert rows_of(path) == [("k1", "d1", 1, "first")]


def test_a_save_that_is_repeated_is_done_though_its_rows_lack_a_column_by_now(path: Path) -> None:
    for note in ("first", "second"):
        writer = writer_of(path, write_id="night 17")
        writer.commit([written(writer, 0, ("k1", "d1", 1, note))])
        pyhudi.open_table(path).upsert(rows_with("k2", x=7), schema_mode="add")
    assert rows_of(path) == [("k1", "d1", 1, "first"), ("k2", "d0", 1, "a")]


def test_inserts_are_told_as_such(path: Path) -> None:
    writer = writer_of(path, **_operation("bulk_insert"))
    writer.commit([written(writer, 0, *ROWS)])
    assert rows_of(path) == ROWS
    last = max((path / ".hoodie/timeline").glob("*_*.deltacommit"), key=lambda f: f.name[18:])
    assert b"INSERT" in last.read_bytes()


@pytest.mark.parametrize(("tasks", "warned"), [(4, False), (5, True)])
def test_many_files_for_few_groups_are_told(tasks: int, warned: bool, path: Path) -> None:
    writer = writer_of(path)
    done = [written(writer, task, ("k1", "d1", task, "x")) for task in range(tasks)]
    if warned:
        with pytest.warns(UserWarning, match=r"5 log files for 1 file groups.*\.upsert\(df\)"):
            writer.commit(done)
    else:
        writer.commit(done)
    assert rows_of(path) == [("k1", "d1", tasks - 1, "x")]


# ---- the schema


def evolving(path: Path, rows: pa.Table, **options: Any) -> Callable[[], None]:
    """A save whose tasks are done, and which is not yet committed."""
    types = {pa.string(): StringType(), pa.int64(): LongType()}
    schema = StructType([StructField(f.name, types[f.type]) for f in rows.schema])
    writer = DefaultSource({"path": str(path), **OPTIONS, **options}).writer(schema, False)
    assert isinstance(writer, PyhudiWriter)
    message = travelled(writer).written(iter(rows.to_batches()), 0, real_world())
    return lambda: travelled(writer).commit([message])


def rows_with(id_: str, **added: str | int) -> pa.Table:
    return pa.Table.from_pylist([{"id": id_, "day": "d0", "ts": 1, "note": "a", **added}])


def columns_of(path: Path) -> list[str]:
    return [field.name for field in pyhudi.open_table(path).schema.arrow]


FILLING = [
    {"mergeSchema": "true"},
    {"hoodie.datasource.write.reconcile.schema": "true"},
    {"hoodie.write.set.null.for.missing.columns": "true"},
]


@pytest.mark.parametrize("options", FILLING, ids=lambda options: next(iter(options)))
def test_columns_that_a_save_lacks_become_null_if_an_option_says_so(
    path: Path, options: dict[str, str]
) -> None:
    _table(path).upsert(rows_with("k1"))
    evolving(path, rows_with("k2", x=7).drop_columns(["note"]), **options)()
    found = pyhudi.open_table(path).read(columns=["id", "note", "x"]).to_arrow().to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == [
        {"id": "k1", "note": "a", "x": None},
        {"id": "k2", "note": None, "x": 7},
    ]


def test_a_save_that_enforces_the_schema_is_refused_what_the_table_lacks(path: Path) -> None:
    _table(path)
    with pytest.raises(InvalidRequestError, match=r"A save without .* would add 'x'"):
        evolving(path, rows_with("k1", x=7), mergeSchema="false")
    assert pending_of(path) == set()


@pytest.mark.parametrize("ordering", [["ts"], []], ids=["non-blocking", "optimistic"])
def test_a_save_and_another_write_that_add_columns_at_once_both_do(
    path: Path, ordering: list[str]
) -> None:
    table = _table(path, ordering=ordering)
    options: dict[str, str] = {} if ordering else {"hoodie.datasource.write.precombine.field": ""}
    commit = evolving(path, rows_with("k1", x="own"), **options)
    table.upsert(rows_with("k2", y=7), schema_mode="add")
    commit()
    assert columns_of(path)[-2:] == ["y", "x"]
    found = pyhudi.open_table(path).read(columns=["id", "x", "y"]).to_arrow().to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == [
        {"id": "k1", "x": "own", "y": None},
        {"id": "k2", "x": None, "y": 7},
    ]


def test_a_save_that_contradicts_a_column_that_came_meanwhile_is_rolled_back(path: Path) -> None:
    table = _table(path)
    commit = evolving(path, rows_with("k1", x="own"))
    table.upsert(rows_with("k2", x=7), schema_mode="add")
    with pytest.raises(ConcurrentSchemaEvolutionError, match="x: no type holds both"):
        commit()
    assert [row["id"] for row in table.read().to_arrow().to_pylist()] == ["k2"]
    assert pending_of(path) == set()


def test_a_save_of_deletes_keeps_a_column_that_came_meanwhile(path: Path) -> None:
    table = _table(path)
    table.upsert(rows_with("k1"))
    commit = evolving(path, rows_with("k1").drop_columns(["note"]), **_operation("delete"))
    table.upsert(rows_with("k2", x=7), schema_mode="add")
    commit()
    assert columns_of(path)[-1] == "x"
    assert table.read(columns=["id", "x"]).to_arrow().to_pylist() == [{"id": "k2", "x": 7}]


# ---- a write that is ahead


EARLY: dict[str, Any] = {"hoodie.write.concurrency.early.conflict.detection.enable": "true"}
MARKERS: dict[str, Any] = {"hoodie.write.markers.type": "timeline_server_based"}


def test_a_save_whose_tasks_meet_a_write_that_is_ahead_names_it_and_leaves_nothing(
    path: Path,
) -> None:
    table = _table(path, concurrency="optimistic")
    table.upsert(rows_with("k1"))
    rival = HeldWrite(
        lambda: table.update(rows_with("k1").select(["id", "day", "ts"]), columns=["ts"])
    )
    rival.run_to(Stop.WRITTEN)
    before = files_of(path)
    commit = evolving(path, rows_with("k1").drop_columns(["note"]), **_operation("delete"), **EARLY)
    with pytest.raises(EarlyConflictError, match="lost to another write") as caught:
        commit()
    assert caught.value.facts["theirs"]["instant"] == rival.requested
    assert caught.value.facts["strategy"] == "simple_direct"
    assert files_of(path) == before
    rival.finish()
    assert pending_of(path) == set()
    assert table.inspect.conflicts()["found"].to_pylist() == ["early"]


def test_a_save_says_what_no_process_does_for_it(path: Path) -> None:
    _table(path)
    with pytest.warns(UserWarning, match="its markers are direct") as warned:
        writer_of(path, **MARKERS)
    assert len(warned) == 1
    with pytest.warns(UserWarning, match="markers are direct and its tasks look .*simple_direct"):
        writer_of(path, **MARKERS, **EARLY)
