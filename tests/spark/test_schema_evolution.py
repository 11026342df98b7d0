"""Writes from Spark that evolve the schema, alone and beside others that do.

The tables are read by the local engine.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import pyhudi
from pyhudi.spark import shuffle
from pyhudi.spark.write import SparkExecutor

pytestmark = pytest.mark.spark

S = pa.struct([("a", pa.int32())])
SCHEMA = pa.schema(
    [("id", pa.string()), ("day", pa.string()), ("ts", pa.int64()), ("v", pa.int32()), ("s", S)]
)
KEYS = ("id", "day", "ts")
FIRST = {"v": 1, "s": {"a": 1}}

#: Columns as Spark calls them, and the value that each row of a test has there.
VALUES: dict[str, tuple[str, Any]] = {
    "v": ("int", 2),
    "wide v": ("bigint", 1 << 40),
    "x": ("string", "new"),
    "s": ("struct<a: int>", {"a": 2}),
    "more s": ("struct<a: int, b: string>", {"a": 2, "b": "new"}),
    "other s": ("struct<b: string>", {"b": "new"}),
}
INT, LONG, TEXT = pa.int32(), pa.int64(), pa.string()
MORE_S = pa.struct([("a", INT), ("b", TEXT)])

Between = Callable[[Callable[[], object]], None]


def create(path: Path, table_type: str = "mor", **options: Any) -> pyhudi.Table:
    given = {"record_key": "id", "partition_by": "day", "ordering": "ts", **options}
    buckets = pyhudi.SimpleBuckets(2)
    table = pyhudi.create_table(
        path,
        SCHEMA,
        buckets=buckets,
        table_type=table_type,
        **given,
        upkeep=False,
    )
    table.upsert(arrow("k0", "k1"))
    return table


def arrow(*ids: str, ts: int = 1, **added: tuple[pa.DataType, Any]) -> pa.Table:
    schema = pa.schema([*SCHEMA, *((name, type_) for name, (type_, _) in added.items())])
    values = {**FIRST, **{name: value for name, (_, value) in added.items()}}
    return pa.Table.from_pylist([{"id": i, "day": day(i), "ts": ts, **values} for i in ids], schema)


def day(id_: str) -> str:
    return f"d{int(id_[1:]) % 2}"


def frame(spark: SparkSession, names: str, *ids: str) -> DataFrame:
    """Rows of these keys with the values by these names, which are separated by commas."""
    chosen = [(name.strip(), *VALUES[name.strip()]) for name in names.split(",")]
    rows = [(i, day(i), 2, *(value for _, _, value in chosen)) for i in ids]
    columns = [f"{name.split()[-1]} {type_}" for name, type_, _ in chosen]
    return spark.createDataFrame(rows, ", ".join(["id string, day string, ts long", *columns]))


def content(table: pyhudi.Table) -> dict[str, dict[str, Any]]:
    found = pyhudi.open_table(table.uri).read().to_arrow().to_pylist()
    rows = {row["id"]: {n: v for n, v in row.items() if n not in KEYS} for row in found}
    assert len(rows) == len(found), "a key is there twice"
    return rows


def columns(table: pyhudi.Table) -> dict[str, pa.DataType]:
    found = pyhudi.open_table(table.uri).schema.arrow
    return {field.name: field.type for field in found if field.name not in KEYS}


def pending(table: pyhudi.Table) -> list[Any]:
    found = pyhudi.open_table(table.uri).inspect.timeline().to_pylist()
    return [row for row in found if not row["completed"]]


@pytest.fixture
def shuffled(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Has every frame shuffled, as large ones are."""
    return lambda: monkeypatch.setattr(shuffle, "TINY_BYTES", -1)


# ---- one write

#: Type of the table, verb, mode, columns of the frame, whether it is shuffled, and the columns of
#: the table afterwards.
WRITES: list[tuple[str, str, str, str, bool, dict[str, pa.DataType]]] = [
    ("mor", "upsert", "add", "v, s, x", True, {"v": INT, "s": S, "x": TEXT}),
    ("cow", "upsert", "add", "wide v, s", False, {"v": LONG, "s": S}),
    ("cow", "upsert", "merge", "v, other s", True, {"v": INT, "s": MORE_S}),
    ("mor", "append", "merge", "more s, x", False, {"v": INT, "s": MORE_S, "x": TEXT}),
    ("cow", "append", "add", "wide v, more s", True, {"v": LONG, "s": MORE_S}),
    ("mor", "append", "add", "s, wide v", True, {"v": LONG, "s": S}),
    ("mor", "overwrite", "add", "more s, wide v", True, {"v": LONG, "s": MORE_S}),
    ("cow", "overwrite", "merge", "x", False, {"v": INT, "s": S, "x": TEXT}),
]


@pytest.mark.parametrize("write", WRITES, ids=lambda write: " ".join(map(str, write[:5])))
def test_a_frame_brings_its_columns_and_types_to_the_table(
    spark: SparkSession, tmp_path: Path, shuffled: Callable[[], None], write: Any
) -> None:
    table_type, verb, mode, names, is_shuffled, expected = write
    table = create(tmp_path / "t", table_type)
    if is_shuffled:
        shuffled()
    getattr(table, verb)(frame(spark, names, "k1", "k3", "k5"), schema_mode=mode)
    assert columns(table) == expected
    given = {n.split()[-1]: VALUES[n][1] for n in names.split(", ")}
    if names.endswith("other s"):
        given["s"] = {"a": None, "b": "new"}
    row = {**dict.fromkeys(expected), **given}
    found = content(table)
    assert {key: found[key] for key in ("k1", "k3", "k5")} == dict.fromkeys(("k1", "k3", "k5"), row)
    old = {**dict.fromkeys(expected), **FIRST}
    if "b" in str(expected["s"]):
        old["s"] = {"a": 1, "b": None}
    assert found["k0"] == old
    assert len(found) == 4


@pytest.mark.spark35
def test_the_mode_of_the_settings_counts_for_frames_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    create(tmp_path / "t")
    settings = pyhudi.WriteSettings(schema_mode="merge")  # type: ignore[arg-type]
    table = pyhudi.open_table(tmp_path / "t", write_settings=settings)
    table.upsert(frame(spark, "x", "k1"))
    assert content(table)["k1"] == {"v": None, "s": None, "x": "new"}
    shown = table.read().to_spark(spark).where("x = 'new'").select("id", "v").collect()
    assert [tuple(row) for row in shown] == [("k1", None)]


STRICT: dict[str, tuple[str, str]] = {
    "v, s, x": ("columns that the table does not have: 'x'", """schema_mode="add" would add 'x'"""),
    "v, more s": ("the table's types in 's", "schema_mode=\"add\" would widen 's'"),
    "s": ("missing columns 'v'", """schema_mode="merge" would write null for 'v'"""),
}


@pytest.mark.parametrize("names", STRICT)
def test_a_frame_that_is_refused_comes_with_the_mode_that_takes_it(
    spark: SparkSession, tmp_path: Path, names: str
) -> None:
    table = create(tmp_path / "t")
    with pytest.raises(pyhudi.InvalidRequestError) as refusal:
        table.upsert(frame(spark, names, "k1"))
    why, advice = STRICT[names]
    assert why in str(refusal.value)
    assert advice in str(refusal.value)
    assert columns(table) == {"v": pa.int32(), "s": S}


def test_values_that_a_task_refuses_come_with_the_mode_that_takes_them(
    spark: SparkSession, tmp_path: Path, shuffled: Callable[[], None]
) -> None:
    shuffled()
    table = create(tmp_path / "t")
    with pytest.raises(pyhudi.InvalidRequestError, match="would widen 'v' in the table"):
        table.upsert(frame(spark, "wide v, s", "k1", "k2"))
    assert pending(table) == []


# ---- beside others


def adds_a_column(table: pyhudi.Table) -> None:
    table.upsert(arrow("k1", "k9", y=(pa.int32(), 5)), schema_mode="add")


def adds_the_same_column(table: pyhudi.Table) -> None:
    table.upsert(arrow("k1", "k9", x=(pa.string(), "theirs")), schema_mode="add")


def widens(table: pyhudi.Table) -> None:
    rows = arrow("k1", "k9")
    table.upsert(rows.set_column(3, "v", pa.array([1 << 41] * 2)), schema_mode="add")


def drops(table: pyhudi.Table) -> None:
    with table.update_schema() as change:
        change.delete_column("v")
    table.upsert(arrow("k1", "k9").drop_columns(["v"]))


#: What the other writer does → columns afterwards, and the row that only it wrote.
OTHERS: dict[str, tuple[Callable[[pyhudi.Table], None], str, dict[str, Any]]] = {
    "adds a column": (adds_a_column, "v s y x", {**FIRST, "y": 5, "x": None}),
    "adds the same column": (adds_the_same_column, "v s x", {**FIRST, "x": "theirs"}),
    "widens a column": (widens, "v s x", {"v": 1 << 41, "s": {"a": 1}, "x": None}),
    "drops a column": (drops, "s x", {"s": {"a": 1}, "x": None}),
}


@pytest.mark.spark35
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("kind", ["optimistic", "optimistic with avro blocks", "non-blocking"])
def test_rows_of_a_frame_and_columns_of_both_are_there_if_another_evolves_meanwhile(
    spark: SparkSession,
    tmp_path: Path,
    between: Between,
    shuffled: Callable[[], None],
    kind: str,
    other: str,
) -> None:
    """On the optimistic table both write one file group, so the rows of the frame are rebased."""
    shuffled()
    is_optimistic = kind.startswith("optimistic")
    create(tmp_path / "t", ordering=() if is_optimistic else "ts")
    blocks: Any = "avro" if "avro" in kind else "parquet"
    settings = pyhudi.WriteSettings(log_block_format=blocks)
    table = pyhudi.open_table(tmp_path / "t", write_settings=settings)
    act, names, theirs = OTHERS[other]
    between(lambda: act(pyhudi.open_table(tmp_path / "t")))
    result = table.upsert(frame(spark, "v, s, x", "k1", "k3"), schema_mode="add")
    assert result.retries == is_optimistic
    assert list(columns(table)) == names.split()
    own = {"v": 2, "s": {"a": 2}, "x": "new", "y": None}
    row = {name: own[name] for name in names.split()}
    found = content(table)
    assert (found["k1"], found["k3"], found["k9"]) == (row, row, theirs)
    assert pending(table) == []
    table.services.compact(spark=None if is_optimistic else spark)
    assert content(table) == found


@pytest.mark.parametrize("other", OTHERS)
def test_tasks_write_rows_of_an_earlier_schema_if_another_evolves_before_the_begin(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    table = create(tmp_path / "t", "cow" if other.startswith("adds") else "mor")
    act, names, theirs = OTHERS[other]
    made = SparkExecutor.__init__

    def meddled(self: SparkExecutor, *arguments: Any) -> None:
        made(self, *arguments)
        monkeypatch.undo()
        act(pyhudi.open_table(tmp_path / "t"))

    monkeypatch.setattr(SparkExecutor, "__init__", meddled)
    table.upsert(frame(spark, "v, s, x", "k1", "k3"), schema_mode="add")
    assert list(columns(table)) == names.split()
    own = {"v": 2, "s": {"a": 2}, "x": "new", "y": None}
    row = {name: own[name] for name in names.split()}
    found = content(table)
    assert (found["k1"], found["k3"], found["k9"]) == (row, row, theirs)


VERBS: dict[str, tuple[Callable[[pyhudi.Table, SparkSession], object], dict[str, Any] | None]] = {
    "update": (
        lambda t, spark: t.update(frame(spark, "v", "k0"), columns=["v"]),
        {"v": 2, "s": {"a": 1}, "y": None},
    ),
    "delete by key": (lambda t, spark: t.delete(frame(spark, "v", "k0").drop("v")), None),
    "delete by predicate": (lambda t, spark: t.delete("id = 'k0'", spark=spark), None),
    "overwrite": (
        lambda t, spark: t.overwrite(frame(spark, "v, s", "k0")),
        {"v": 2, "s": {"a": 2}, "y": None},
    ),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("table_type", ["mor", "cow"])
def test_no_verb_from_spark_undoes_a_column_that_is_added_while_it_runs(
    spark: SparkSession, tmp_path: Path, between: Between, verb: str, table_type: str
) -> None:
    table = create(tmp_path / "t", table_type)
    between(lambda: adds_a_column(pyhudi.open_table(tmp_path / "t")))
    write, left = VERBS[verb]
    write(table, spark)
    assert list(columns(table)) == ["v", "s", "y"]
    found = content(table)
    assert found.get("k0") == left
    assert (found["k1"]["y"], found["k9"]["y"]) == (5, 5)


@pytest.mark.parametrize("kind", ["optimistic", "non-blocking"])
def test_a_frame_that_contradicts_what_another_did_meanwhile_is_refused_and_leaves_nothing(
    spark: SparkSession, tmp_path: Path, between: Between, kind: str
) -> None:
    create(tmp_path / "t", ordering=() if kind == "optimistic" else "ts")
    settings = pyhudi.WriteSettings(schema_strategy="simple", job="hourly")
    table = pyhudi.open_table(tmp_path / "t", write_settings=settings)
    between(lambda: adds_a_column(pyhudi.open_table(tmp_path / "t")))
    with pytest.raises(pyhudi.ConcurrentSchemaEvolutionError) as refusal:
        table.upsert(frame(spark, "v, s, x", "k1", "k3"), schema_mode="add")
    assert refusal.value.facts["rule"] == "schema_evolved"
    assert list(columns(table)) == ["v", "s", "y"]
    assert "k3" not in content(table)
    assert pending(table) == []
