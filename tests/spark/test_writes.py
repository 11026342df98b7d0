"""Writes from Spark leave what the same writes without Spark would, and evaluate their input once.

The tables are read by the local engine.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

import pyhudi
from pyhudi.api.inputs import is_spark_frame
from pyhudi.errors import ConflictError, InvalidRequestError
from pyhudi.spark import shuffle as placing
from pyhudi.spark import write
from pyhudi.storage.objects.progress import PROGRESS_FOLDER, clear_progress
from pyhudi.storage.protocol import Storage
from pyhudi.table.partitions import DEFAULT_PARTITION

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [("id", pa.string()), ("day", pa.string()), ("ts", pa.int64()), ("v", pa.int32())]
)
COLUMNS = "id string, day string, ts long, v int"
Row = tuple[Any, Any, Any, Any]
Content = dict[tuple[str, str], tuple[int, int | None]]


def create(path: Path, schema: pa.Schema = SCHEMA, **options: Any) -> pyhudi.Table:
    given: dict[str, Any] = {
        "record_key": "id",
        "partition_by": "day",
        "ordering": "ts",
        "buckets": pyhudi.SimpleBuckets(2),
        **options,
    }
    return pyhudi.create_table(
        path,
        schema,
        **given,
        upkeep=False,
    )


def local(*rows: Row) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, r, strict=True)) for r in rows], SCHEMA)


def content(table: pyhudi.Table) -> Content:
    found = pyhudi.open_table(table.uri).read(columns=SCHEMA.names).to_arrow().to_pylist()
    by_key = {(row["day"], row["id"]): (row["ts"], row["v"]) for row in found}
    assert len(by_key) == len(found), "a key is there twice"
    return by_key


def data_files(path: Path) -> set[str]:
    kinds = (".parquet", ".log.")
    found = (p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file())
    return {name for name in found if ".hoodie/" not in name and any(k in name for k in kinds)}


def states(table: pyhudi.Table) -> set[tuple[str, str]]:
    found = pyhudi.open_table(table.uri).inspect.timeline().to_pylist()
    return {(row["action"], row["state"]) for row in found}


class Inputs:
    """Frames that note each time that one of their partitions is evaluated."""

    def __init__(self, session: SparkSession, folder: Path) -> None:
        self._session = session
        self._folder = folder
        self._notes: list[tuple[Path, int]] = []

    def rows(self, *rows: Row, parts: int = 3) -> DataFrame:
        return self.noted(self._session.createDataFrame(list(rows), COLUMNS).repartition(parts))

    def noted(self, frame: DataFrame) -> DataFrame:
        note = self._folder / f"evaluated{len(self._notes)}"
        self._notes.append((note, frame.rdd.getNumPartitions()))
        name = str(note)

        def evaluated(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with open(name, "a") as file:
                file.write("once\n")
            yield from batches

        return frame.mapInArrow(evaluated, frame.schema)

    def evaluations(self) -> list[int]:
        """For each frame, how often one of its partitions was evaluated."""
        return [len(n.read_text().split()) if n.exists() else 0 for n, _ in self._notes]

    def check(self) -> None:
        """Each frame was evaluated once: all of its partitions, none of them twice."""
        assert self.evaluations() == [parts for _, parts in self._notes]


@pytest.fixture
def inputs(spark: SparkSession, tmp_path: Path) -> Inputs:
    return Inputs(spark, tmp_path)


# -- every verb


def rows_of(ids: str, day: str, ts: int, v: int | None) -> list[Row]:
    return [(id_, day, ts, v) for id_ in ids]


def model(ids: str, day: str, ts: int, v: int | None) -> Content:
    return {(day, id_): (ts, v) for id_ in ids}


@pytest.mark.spark35
@pytest.mark.parametrize(("kind", "size"), [("mor", 0.0), ("cow", float("inf"))])
def test_every_verb_leaves_what_a_model_would_and_evaluates_its_input_once(
    spark: SparkSession,
    inputs: Inputs,
    tmp_path: Path,
    kind: str,
    size: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether Spark takes the inputs for tiny, which skip the shuffle, or for large."""
    monkeypatch.setattr(placing, "estimated_bytes", lambda frame: size)
    table = create(tmp_path / "t", table_type=kind)
    copies = [("a", "d0", 1, 5), ("a", "d0", 9, 6), ("a", "d0", 3, 7)]
    first = table.upsert(
        inputs.rows(*copies, *rows_of("bc", "d0", 1, 1), *rows_of("bc", "d1", 1, 1))
    )
    a = {("d0", "a"): (9, 6)}
    assert content(table) == a | model("bc", "d0", 1, 1) | model("bc", "d1", 1, 1)
    assert first.rows == 5

    table.append(inputs.rows(*rows_of("de", "d0", 1, 1), *rows_of("a", "d0", 2, 0)))
    held = a | model("bcde", "d0", 1, 1) | model("bc", "d1", 1, 1)
    assert content(table) == held, "a row that is older than what is there loses"

    update = inputs.rows(*rows_of("bx", "d0", 0, None), *rows_of("a", "d9", 0, None))
    table.update(update.select("v", "id", "day"), columns=["v"])
    held |= {("d0", "b"): (1, None)}
    assert content(table) == held

    table.delete(inputs.rows(*rows_of("cx", "d0", 0, 0)).select("id"))
    held = {key: row for key, row in held.items() if key[1] != "c"}
    assert content(table) == held
    table.delete(inputs.rows(*rows_of("bx", "d1", 0, 0)).select("day", "id"), unconditional=True)
    del held["d1", "b"]
    table.delete(inputs.rows(("a", "d0", 8, 0), ("d", "d0", 8, 0)).select("id", "day", "ts"))
    del held["d0", "d"]  # and not a, which is newer than that delete
    assert content(table) == held
    table.delete("v IS NULL OR id = 'none'", spark=spark)
    del held["d0", "b"]
    before = content(table)
    assert before == held

    touched = table.overwrite(inputs.rows(*rows_of("pq", "d2", 1, 1)))
    assert content(table) == held | model("pq", "d2", 1, 1)
    table.overwrite(inputs.rows(*rows_of("ar", "d0", 0, 2)), partitions=["d0", "d1"])
    assert content(table) == model("ar", "d0", 0, 2) | model("pq", "d2", 1, 1)
    table.delete_partitions(["d2"])
    assert content(table) == model("ar", "d0", 0, 2)
    table.overwrite(inputs.rows(*rows_of("z", "d3", 1, 1)), partitions="all")
    assert content(table) == model("z", "d3", 1, 1)

    old = table.read(as_of=touched, columns=SCHEMA.names).to_arrow().num_rows
    assert old == len(before) + 2
    assert {state for _, state in states(table)} == {"completed"}
    inputs.check()


@pytest.mark.spark35
def test_an_input_that_is_shuffled_is_evaluated_once(
    spark: SparkSession, inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placing, "TINY_BYTES", -1)
    table = create(tmp_path / "t")
    number = F.col("id")
    plain = spark.range(400, numPartitions=4).select(
        F.concat(F.lit("k"), number % 200).alias("id"),
        F.concat(F.lit("d"), number % 5).alias("day"),
        number.alias("ts"),
        (number % 7).cast("int").alias("v"),
    )
    table.upsert(inputs.noted(plain))
    assert content(table) == {(f"d{n % 5}", f"k{n % 200}"): (n, n % 7) for n in range(200, 400)}, (
        "of two rows with one key, the later one"
    )
    table.delete(inputs.noted(plain.where("id < 'k15'").select("id")))
    assert content(table).keys() == {
        (f"d{n % 5}", f"k{n}") for n in range(200) if not f"k{n}" < "k15"
    }
    inputs.check()


def test_a_large_load_becomes_base_files_and_small_buckets_beside_it_logs(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = create(tmp_path / "t")
    large = spark.range(90_000).select(
        F.concat(F.lit("key"), F.col("id")).alias("id"),
        F.lit("d0").alias("day"),
        F.col("id").alias("ts"),
        F.lit(1).alias("v"),
    )
    small = spark.createDataFrame([("z", "d1", 1, 1)], COLUMNS)
    result = table.append(large.unionByName(small))
    assert result.rows == 90_001
    written = [name for name in data_files(tmp_path / "t") if result.instant in name]
    assert sorted(name[:3] + name[-3:] for name in written) == ["d0/uet", "d0/uet", "d1/0-0"]
    assert table.read(columns=["id"]).to_arrow().num_rows == 90_001


# -- input that cannot be written

BAD: dict[str, tuple[Row, str]] = {
    "a null key": ((None, "d0", 1, 1), "have no record key"),
    "an empty key": (("", "d0", 1, 1), "have no record key"),
    "a null ordering value": (("x", "d0", None, 1), "have no ordering value.*'ts'"),
    "a partition that leads out": (("x", "../x", 1, 1), r"cannot be partitions.*\.\./x"),
    "a number that does not fit": (("x", "d0", 1, 1 << 40), "1099511627776"),
}


@pytest.mark.parametrize("bad", BAD)
def test_bad_rows_stop_the_write_before_anything_is_visible(
    spark: SparkSession, tmp_path: Path, bad: str
) -> None:
    table = create(tmp_path / "t")
    table.upsert(local(*rows_of("ab", "d0", 1, 1)))
    before, files = content(table), data_files(tmp_path / "t")
    row, message = BAD[bad]
    good = [*rows_of("cdefgh", "d0", 2, 2), *rows_of("cdefgh", "d1", 2, 2)]
    frame = spark.createDataFrame([*good, row], COLUMNS.replace("v int", "v long"))
    with pytest.raises(InvalidRequestError, match=message):
        table.upsert(frame.repartition(3))
    assert content(table) == before
    assert data_files(tmp_path / "t") == files
    assert {state for _, state in states(table)} == {"completed"}
    if bad == "a null key":  # nothing stays in the way of the next write
        table.upsert(spark.createDataFrame(good, COLUMNS))
        assert len(content(table)) == 14


WRONG = {
    "a missing key": ("ts, day, v", "missing columns 'id'"),
    "a missing ordering": ("id, day, v", "missing columns 'ts'"),
    "a strange column": ("id, day, ts, v, 1 AS more", "does not have: 'more'"),
    "the wrong case": ("id AS ID, day, ts, v", "rename 'ID' to 'id'"),
    "a type of its own": ("id, day, ts, id AS v", "string cannot become int32"),
    "a type that Hudi lacks": ("id, day, ts, make_interval(1) AS v", "Hudi has no type"),
    "a column twice": ("id, day, ts, v, v", "several columns named 'v'"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_columns_are_refused_before_anything_begins(
    inputs: Inputs, tmp_path: Path, wrong: str
) -> None:
    table = create(tmp_path / "t")
    columns, message = WRONG[wrong]
    frame = inputs.rows(("a", "d0", 1, 1)).selectExpr(*columns.split(", "))
    with pytest.raises(InvalidRequestError, match=message):
        table.upsert(frame)
    assert inputs.evaluations() == [0]
    assert states(table) == set()


@pytest.mark.parametrize(
    ("columns", "message"),
    [(["day", "v"], "'id'"), (["id", "v"], "'day'"), (["id", "day"], "'v'")],
    ids=str,
)
def test_an_update_needs_the_key_the_partition_and_the_new_values(
    inputs: Inputs, tmp_path: Path, columns: list[str], message: str
) -> None:
    table = create(tmp_path / "t")
    with pytest.raises(InvalidRequestError, match=f"missing columns {message}"):
        table.update(inputs.rows(("a", "d0", 1, 1)).select(columns), columns=["v"])
    assert inputs.evaluations() == [0]


def test_a_delete_needs_the_key(inputs: Inputs, tmp_path: Path) -> None:
    table = create(tmp_path / "t")
    with pytest.raises(InvalidRequestError, match="the column 'id' is missing"):
        table.delete(inputs.rows(("a", "d0", 1, 1)).select("day", "ts"))
    assert inputs.evaluations() == [0]


def test_rows_outside_of_the_named_partitions_are_refused(inputs: Inputs, tmp_path: Path) -> None:
    table = create(tmp_path / "t")
    table.upsert(local(*rows_of("ab", "d0", 1, 1), *rows_of("ab", "d1", 1, 1)))
    before = content(table)
    with pytest.raises(InvalidRequestError, match=r"rows of partition 'd1'.*id='y'"):
        table.overwrite(inputs.rows(("x", "d0", 1, 1), ("y", "d1", 1, 1)), partitions=["d0"])
    assert content(table) == before


def test_a_key_that_does_not_fit_is_told_with_a_sample(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int32()), ("v", pa.int32())])
    table = create(tmp_path / "t", schema, partition_by=(), ordering=())
    frame = spark.createDataFrame([(1, 1), (1 << 40, 2)], "id long, v int")
    with pytest.raises(InvalidRequestError, match="1099511627776"):
        table.upsert(frame)
    assert table.read().to_arrow().num_rows == 0
    table.upsert(frame.where("v = 1"))
    assert table.read(columns=["id"]).to_arrow().to_pylist() == [{"id": 1}]


def test_keys_that_must_be_new_are_refused_with_a_sample(inputs: Inputs, tmp_path: Path) -> None:
    table = create(tmp_path / "t")
    table.upsert(local(*rows_of("ab", "d0", 1, 1)))
    with pytest.raises(InvalidRequestError, match=r"in the table already.*'b'"):
        table.append(inputs.rows(*rows_of("bc", "d0", 2, 2)), require_new_keys=True)
    table.append(inputs.rows(*rows_of("c", "d0", 2, 2)), require_new_keys=True)
    assert content(table) == model("ab", "d0", 1, 1) | model("c", "d0", 2, 2)


# -- values


def test_null_empty_and_the_default_name_are_one_partition(inputs: Inputs, tmp_path: Path) -> None:
    table = create(tmp_path / "t")
    days = [None, "", DEFAULT_PARTITION]
    table.upsert(inputs.rows(*((f"k{n}", day, 1, n) for n, day in enumerate(days)), parts=1))
    table.upsert(inputs.rows(*(("k9", day, n, n) for n, day in enumerate(days)), parts=3))
    found = table.read(columns=["_hoodie_partition_path", "id", "v"]).to_arrow().to_pylist()
    assert {row["_hoodie_partition_path"] for row in found} == {DEFAULT_PARTITION}
    assert {row["id"]: row["v"] for row in found} == {"k0": 0, "k1": 1, "k2": 2, "k9": 2}
    assert len(found) == 4


WIDE = pa.schema(
    [
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("money", pa.decimal128(20, 4)),
        ("data", pa.binary()),
        ("ratio", pa.float64()),
        ("flag", pa.bool_()),
        ("tags", pa.list_(pa.string())),
        ("sizes", pa.map_(pa.string(), pa.int64())),
        ("inner", pa.struct([("x", pa.int32()), ("more", pa.list_(pa.float64()))])),
    ]
)


def wide_row(number: int) -> dict[str, Any]:
    hours = dt.timedelta(hours=number)
    return {
        "at": dt.datetime(2026, 3, 8, 0, 30, 0, 123456, tzinfo=dt.UTC) + hours,
        "local": dt.datetime(2026, 3, 8, 0, 30, 0, 654321) + hours,
        "day": dt.date(2026, 3, 8),
        "money": Decimal("-12345678.9012") + number,
        "data": bytes([0, 255, number]),
        "ratio": 0.1 * number,
        "flag": bool(number % 2),
        "tags": ["a", None, ""] if number % 3 else None,
        "sizes": [("k", number if number % 2 else None)] if number % 4 else [],
        "inner": {"x": number, "more": [0.5, None]} if number % 5 else None,
    }


@pytest.mark.spark35
@pytest.mark.parametrize("key", ["at", "local", "money"])
def test_values_of_all_types_are_kept_in_any_time_zone(
    spark: SparkSession, tmp_path: Path, key: str
) -> None:
    """Also as a key: written again, from Spark and without it, each row is found again."""
    from pyhudi.spark.types import spark_schema

    rows = [wide_row(number) for number in range(24)]  # a day in which New York lacks an hour
    table = create(tmp_path / "t", WIDE, record_key=key, ordering=(), partition_by="day")
    tuples = [tuple(dict(v) if n == "sizes" else v for n, v in row.items()) for row in rows]
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        table.upsert(spark.createDataFrame(tuples, spark_schema(WIDE)))
        assert read_wide(table, key) == rows
        table.upsert(pa.Table.from_pylist(rows[:12], WIDE))
        table.upsert(spark.createDataFrame(tuples[6:18], spark_schema(WIDE)))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert read_wide(table, key) == rows


def read_wide(table: pyhudi.Table, key: str) -> list[dict[str, Any]]:
    found = table.read(columns=WIDE.names).to_arrow().to_pylist()
    return sorted(found, key=lambda row: row[key])


# -- sizes


@pytest.mark.parametrize("kind", ["mor", "cow"])
def test_an_empty_frame_writes_nothing_and_an_overwrite_with_it_empties(
    inputs: Inputs, tmp_path: Path, kind: str
) -> None:
    table = create(tmp_path / "t", table_type=kind)
    table.upsert(local(*rows_of("ab", "d0", 1, 1)))
    files = data_files(tmp_path / "t")
    empty = inputs.rows(("a", "d0", 1, 1)).where("id = 'none'")
    assert table.upsert(empty).rows == 0
    table.delete(empty.select("id"))
    table.overwrite(empty)
    assert content(table) == model("ab", "d0", 1, 1)
    assert data_files(tmp_path / "t") == files
    table.overwrite(empty, partitions="all")
    assert content(table) == {}


def test_a_small_write_may_touch_many_partitions(spark: SparkSession, tmp_path: Path) -> None:
    table = create(tmp_path / "t", buckets=pyhudi.SimpleBuckets(1))
    rows = [(f"k{n}", f"d{n:03}", 1, n) for n in range(300)]
    result = table.upsert(spark.createDataFrame(rows, COLUMNS))
    assert (result.rows, result.files) == (300, 300)
    assert content(table) == {(day, id_): (ts, v) for id_, day, ts, v in rows}


# -- repeated and rival writes


@pytest.mark.spark35
def test_a_repeated_call_with_a_write_id_does_not_evaluate_its_input(
    inputs: Inputs, tmp_path: Path
) -> None:
    table = create(tmp_path / "t")
    rows = rows_of("ab", "d0", 1, 1)
    first = table.upsert(inputs.rows(*rows), write_id="job 7")
    again = pyhudi.open_table(table.uri).upsert(inputs.rows(*rows), write_id="job 7")
    assert (again.instant, again.rows) == (first.instant, first.rows)
    assert inputs.evaluations()[1] == 0
    with pytest.raises(InvalidRequestError):
        table.delete(inputs.rows(*rows).select("id"), write_id="job 7")
    assert content(table) == model("ab", "d0", 1, 1)


@pytest.mark.spark35
def test_a_table_is_made_for_a_frame_of_which_no_row_is_computed(
    tmp_path: Path, spark: SparkSession
) -> None:
    columns = ["cast(id as string) as id", "cast(raise_error('computed') as int) as v"]
    frame = spark.range(3).selectExpr(*columns)
    table = pyhudi.create_table(
        tmp_path / "table",
        frame,
        record_key="id",
        buckets=2,
        upkeep=False,
    )
    assert table.schema.arrow == pa.schema([("id", pa.string()), ("v", pa.int32())])


def meddled(frame: DataFrame, uri: str, rival: Row) -> DataFrame:
    """The frame; while it is evaluated, somebody else writes the row."""

    def rivalled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyhudi

        names = ["id", "day", "ts", "v"]
        table = pyhudi.open_table(uri)
        row = [dict(zip(names, rival, strict=True))]
        table.upsert(pa.Table.from_pylist(row, table.schema.arrow))
        yield from batches

    return frame.coalesce(1).mapInArrow(rivalled, frame.schema)


@pytest.mark.parametrize(
    ("options", "verb", "is_conflict"),
    [
        ({"concurrency": "optimistic"}, "upsert", False),  # written again from its own files
        ({"table_type": "cow"}, "upsert", True),
        ({}, "upsert", False),
        ({}, "update", True),
        ({}, "overwrite", True),
    ],
    ids=str,
)
def test_a_rival_of_the_same_bucket_is_a_conflict_where_it_must_be(
    inputs: Inputs, tmp_path: Path, options: dict[str, Any], verb: str, is_conflict: bool
) -> None:
    table = create(tmp_path / "t", buckets=pyhudi.SimpleBuckets(1), **options)
    table.upsert(local(*rows_of("ab", "d0", 1, 1)))
    files = data_files(tmp_path / "t")
    frame = meddled(inputs.rows(("a", "d0", 2, 2)), table.uri, ("n", "d0", 1, 1))
    arguments: dict[str, Any] = {"columns": ["v"]} if verb == "update" else {}
    if not is_conflict:
        getattr(table, verb)(frame, **arguments)
        assert content(table) == model("bn", "d0", 1, 1) | model("a", "d0", 2, 2)
        return
    with pytest.raises(ConflictError):
        getattr(table, verb)(frame, **arguments)
    assert content(table) == model("abn", "d0", 1, 1)
    assert len(data_files(tmp_path / "t") - files) == 1, "the rival's file alone"
    inputs.check()


def test_the_frames_of_this_session_are_known(spark: SparkSession) -> None:
    assert is_spark_frame(spark.range(1))
    assert not is_spark_frame(spark.range(1).toPandas())
    assert not is_spark_frame(spark)


def test_whoever_asks_is_told_how_far_a_write_is(spark: SparkSession, tmp_path: Path) -> None:
    told: list[pyhudi.Progress] = []
    table = create(tmp_path / "t", progress=told.append)
    frame = spark.createDataFrame([(f"k{n}", "d0", n, n) for n in range(50)], COLUMNS)
    result = table.upsert(frame)
    assert told[-1].last
    assert (told[-1].rows, told[-1].files) == (50, result.files)
    assert told[-1].bytes == result.bytes
    assert list((tmp_path / "t/.hoodie/.pyhudi").glob("progress/*")) == []


def test_tasks_leave_word_of_their_progress_where_the_driver_finds_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleared: list[str] = []

    def note(storage: Storage, requested: str) -> None:
        cleared.append(storage.list(PROGRESS_FOLDER).__iter__().__next__().path)
        clear_progress(storage, requested)

    monkeypatch.setattr(write, "clear_progress", note)
    table = create(tmp_path / "t", progress=lambda _: None)
    result = table.upsert(spark.createDataFrame([("k", "d0", 1, 1)], COLUMNS))
    assert cleared == [f"{PROGRESS_FOLDER}/{result.instant}.0"]


@pytest.mark.parametrize("columns", ["zzz string", "id string, day string, ts long, v boolean"])
def test_a_frame_without_rows_is_checked_as_any_other(
    spark: SparkSession, tmp_path: Path, columns: str
) -> None:
    table = create(tmp_path / "t")
    table.upsert(local(("a", "d0", 1, 1)))
    files = sorted(path for path in (tmp_path / "t").rglob("*"))
    frame = spark.createDataFrame([], columns)
    for verb in (
        table.upsert,
        table.append,
        partial(table.append, require_new_keys=True),
        partial(table.update, columns=["v"]),
        table.delete,
        table.overwrite,
    ):
        with pytest.raises(InvalidRequestError):
            verb(frame)
    assert sorted(path for path in (tmp_path / "t").rglob("*")) == files
