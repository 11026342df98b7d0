"""What changes of the schema meet: writers under way, other engines, strategies that are wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from meddled_storage import Meddled
from memory_tables import TIMELINE, MemoryTable
from pyhudi.conflict.strategy_result import unfit_result
from pyhudi.format.table.table_config import CREATE_SCHEMA
from pyhudi.format.timeline.commit_metadata import SCHEMA_KEY, encode_commit_metadata
from pyhudi.read.log_view import KnownLog
from pyhudi.session.properties import update_properties
from schema_scenarios import S1, TABLES, metadata, recorded, rows, schema_of
from write.test_schema_evolution import ByHand, amid, columns, evolving_table, seen


def test_a_change_keeps_what_the_latest_writer_adds_that_it_began_beside() -> None:
    made = evolving_table("non-blocking")
    block = made.table("own").update_schema()

    def enter() -> None:
        block.__enter__().add_column("y", pa.int32())

    storage = Meddled(made.storage, ".log.", enter)
    made.table("other", storage).upsert(rows("first", "vx"), schema_mode="add")
    block.__exit__(None, None, None)
    assert list(columns(made)) == ["v", "x", "y"]


def test_a_dropped_name_is_not_given_anew_while_a_write_that_has_the_column_is_pending() -> None:
    """Its file would hold text where the table has a number."""
    schema = schema_of("vx")
    buckets = pyhudi.SimpleBuckets(1)
    made = MemoryTable(schema, partition_by="day", buckets=buckets, **TABLES["copy on write"])

    def give_anew() -> None:
        with made.table("other").update_schema() as change:
            change.delete_column("x")
        with (
            made.table("other").update_schema() as change,
            pytest.raises(pyhudi.InvalidRequestError, match="'x' cannot be added again"),
        ):
            change.add_column("x", pa.int64())

    storage = Meddled(made.storage, "-0_", give_anew)
    made.table("own", storage).upsert(rows("own", "vx"))
    assert storage.is_done
    assert seen(made) == {"own": {"v": 1}}


def without_x() -> MemoryTable:
    """A table from which a column was dropped that a file has."""
    made = evolving_table("non-blocking")
    made.table("own").upsert(rows("own", "vx"), schema_mode="add", write_id="one")
    with made.table("own").update_schema() as change:
        change.delete_column("x")
    return made


def test_a_dropped_name_is_not_given_anew_in_another_case() -> None:
    made = without_x()
    given = rows("own", "vx").rename_columns(["id", "day", "ts", "v", "X"])
    with pytest.raises(pyhudi.InvalidRequestError, match="'X' cannot be added again"):
        made.table("own").upsert(given, schema_mode="add")


def test_a_write_that_completed_is_not_refused_for_a_column_that_was_dropped_since() -> None:
    again = without_x().table("own").upsert(rows("own", "vx"), schema_mode="add", write_id="one")
    assert again.repeated


def by_another_engine(made: MemoryTable) -> None:
    """Let the last commit be one of another engine: it has the schema, and nothing of pyhudi's."""
    last = recorded(made.storage)[-1][0]
    found = metadata(made.storage, last)
    extra = {SCHEMA_KEY: (found.extra_metadata or {})[SCHEMA_KEY]}
    data = encode_commit_metadata(replace(found, extra_metadata=extra), bytes(16))
    made.storage.write(f"{TIMELINE}/{last.file_name}", data)


@pytest.fixture
def _files_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log does not have the commits of another engine, so their files are read."""
    monkeypatch.setattr(KnownLog, "metadata", lambda *_: None)
    monkeypatch.setattr(KnownLog, "schema_of", lambda *_: None)


@pytest.mark.usefixtures("_files_only")
def test_a_dropped_name_stays_taken_after_a_commit_of_another_engine() -> None:
    made = without_x()
    made.table("other").upsert(rows("theirs"))
    by_another_engine(made)
    for _ in range(2):
        with (
            made.table("late").update_schema() as change,
            pytest.raises(pyhudi.InvalidRequestError, match="'x' cannot be added again"),
        ):
            change.add_column("x", pa.string())
        made.table("own").upsert(rows("own"))


@pytest.mark.usefixtures("_files_only")
def test_a_dropped_name_stays_taken_after_another_engine_commits_while_a_write_runs() -> None:
    made = without_x()

    def other() -> None:
        made.table("other").upsert(rows("theirs"))
        by_another_engine(made)

    made.table("own", amid(made, "non-blocking", other)).upsert(rows("own"))
    with pytest.raises(pyhudi.InvalidRequestError, match="'x' cannot be added again"):
        made.table("late").upsert(rows("own", "vx"), schema_mode="add")


def test_a_name_that_no_file_holds_any_more_is_given_anew_beside_another_write() -> None:
    schema, buckets = schema_of("vx"), pyhudi.SimpleBuckets(1)
    made = MemoryTable(schema, partition_by="day", buckets=buckets, **TABLES["copy on write"])
    with made.table("own").update_schema() as change:
        change.delete_column("x")
    made.table("own").upsert(rows("first"))
    with made.table("own").update_schema() as change:
        change.add_column("x", pa.int64())
        made.table("other").upsert(rows("theirs"))
    assert columns(made)["x"] == pa.int64()


# ---- documentation


def test_documentation_alone_is_a_change_that_is_recorded() -> None:
    made = evolving_table("non-blocking")
    before = len(recorded(made.storage))
    for _ in range(2):
        with made.table("own").update_schema() as change:
            change.update_column("v", doc="what it is worth")
    assert len(recorded(made.storage)) == before + 1
    assert "what it is worth" in (recorded(made.storage)[-1][1] or "")


def test_a_write_under_way_does_not_undo_documentation() -> None:
    made = evolving_table("non-blocking")

    def document() -> None:
        with made.table("other").update_schema() as change:
            change.update_column("v", doc="what it is worth")

    made.table("own", amid(made, "non-blocking", document)).upsert(rows("own"))
    assert "what it is worth" in (recorded(made.storage)[-1][1] or "")


@pytest.mark.parametrize("kind", TABLES)
def test_a_file_has_what_avro_says_of_a_column_if_others_evolve_since_the_begin(kind: str) -> None:
    """Avro, and so Hudi, does not read text in a log as the symbol of an enum."""
    made = evolving_table(kind)
    symbols = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
    avro = json.loads(recorded(made.storage)[-1][1] or "")
    avro["fields"].append({"name": "e", "type": ["null", symbols], "default": None})

    def with_enum(values: dict[str, str]) -> dict[str, str]:
        return {**values, CREATE_SCHEMA: json.dumps(avro)}

    made = MemoryTable(S1, partition_by="day", buckets=pyhudi.SimpleBuckets(1), **TABLES[kind])
    update_properties(made.storage, with_enum, made.world("first"))
    e = pa.field("e", pa.string())
    given = rows("first").append_column(e, pa.array(["A"]))
    made.table("first").upsert(given)
    theirs = rows("theirs", "vx").append_column(e, pa.array(["B"]))
    other = made.table("other")
    storage = Meddled(made.storage, ".requested", lambda: other.upsert(theirs, schema_mode="merge"))
    before = {stat.path for stat in made.storage.list("day of first")}
    made.table("own", storage).update(given.select(["id", "day", "v"]), columns=["v"])
    [new] = {stat.path for stat in made.storage.list("day of first")} - before
    assert b'"enum"' in made.storage.read(new)


# ---- schemas that no table can have


def test_columns_that_are_too_many_together_refuse_the_later_write_and_leave_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pyhudi.format.avro.schema.FIELDS_MAX", 22)
    made = evolving_table("non-blocking")

    def many(id_: str, letter: str) -> pa.Table:
        table, one = rows(id_), pa.array([1], pa.int32())
        for number in range(10):
            table = table.append_column(f"{letter}{number}", one)
        return table

    other = made.table("other")
    storage = amid(made, "optimistic", lambda: other.upsert(many("a", "a"), schema_mode="add"))
    with pytest.raises(pyhudi.InvalidRequestError, match="changed schema cannot be recorded"):
        made.table("own", storage).upsert(many("b", "b"), schema_mode="add")
    assert made.pending() == []
    assert len(columns(made)) == 1 + 10


UNFIT: dict[str, tuple[Callable[[pa.Schema], pa.Schema], str]] = {
    "one name twice": (lambda now: now.append(pa.field("v", pa.string())), "'v' and 'v'"),
    "names alike": (lambda now: now.append(pa.field("V", pa.string())), "'v' and 'V'"),
    "a reserved name": (lambda now: now.append(pa.field("_hoodie_x", pa.int32())), "_hoodie_x"),
    "a key of another type": (lambda now: now.set(0, pa.field("id", pa.int64())), "'id'"),
    "a narrower type": (lambda now: now.set(3, pa.field("v", pa.bool_())), "'v' is bool"),
    "a required column": (
        lambda now: now.append(pa.field("z", pa.int32(), nullable=False)),
        "'z' requires a value",
    ),
    "a column that is required by now": (
        lambda now: now.set(3, now.field("v").with_nullable(False)),
        "'v' requires a value",
    ),
    "a key that may be null": (lambda now: now.set(0, pa.field("id", pa.string())), "'id'"),
    "a name that Avro has not": (lambda now: now.append(pa.field("a b", pa.int32())), "'a b'"),
    "names alike inside": (
        lambda now: now.append(pa.field("s", pa.struct([("a", pa.int32()), ("A", pa.int32())]))),
        r"'s\.A' cannot be stored",
    ),
    "a type that is not stored": (
        lambda now: now.append(pa.field("u", pa.duration("s"))),
        "'u' cannot be stored: pyhudi does not write duration",
    ),
    "a type that is stored as another": (
        lambda now: now.append(pa.field("u", pa.dictionary(pa.int8(), pa.string()))),
        "'u' is dictionary.*stored as string",
    ),
    "too many levels": (
        lambda now: now.append(pa.field("d", deep(65))),
        "more than 64 levels deep",
    ),
}


def deep(levels: int) -> pa.DataType:
    type_ = pa.int32()
    for _ in range(levels):
        type_ = pa.struct([("f", type_)])
    return type_


#: Field of a struct column → what a strategy makes of the column, and the error.
UNFIT_INSIDE: dict[str, tuple[pa.DataType, str]] = {
    "narrower": (pa.struct([("a", pa.int32()), ("l", pa.list_(pa.int64()))]), r"'s\.a' is int32"),
    "narrower in a list": (
        pa.struct([("a", pa.int64()), ("l", pa.list_(pa.int32()))]),
        r"'s\.l\.element' is int32",
    ),
    "required": (
        pa.struct([pa.field("a", pa.int64(), nullable=False), ("l", pa.list_(pa.int64()))]),
        r"'s\.a' requires a value",
    ),
    "new and required": (
        pa.struct([("a", pa.int64()), pa.field("n", pa.int64(), nullable=False)]),
        r"'s\.n' requires a value",
    ),
    "another kind": (pa.list_(pa.int64()), "'s' is list"),
}


@pytest.mark.parametrize("case", UNFIT_INSIDE)
def test_what_a_strategy_does_inside_of_a_column_is_judged_too(case: str) -> None:
    type_, message = UNFIT_INSIDE[case]
    old = pa.field("s", pa.struct([("a", pa.int64()), ("l", pa.list_(pa.int64()))]))
    now = pa.schema([("id", pa.string()), old])
    result = pa.schema([("id", pa.string()), old.with_type(type_)])
    strategy = ByHand(lambda _: result)
    assert unfit_result(now, now, now, strategy, ["id"]) is None
    why = unfit_result(result, now, now.append(pa.field("x", pa.string())), strategy, ["id"])
    assert why is not None
    assert re.search(message, why)


def test_a_strategy_cannot_take_back_the_type_that_the_rows_of_the_write_have() -> None:
    made = evolving_table("non-blocking")
    table = made.table("own", schema_strategy=ByHand(lambda given: given["now"]))
    with pytest.raises(pyhudi.InvalidRequestError, match="'v' is int32, and values of int64"):
        table.upsert(rows("own", "V"), schema_mode="add")
    assert made.pending() == []


NO_CONTRADICTIONS: list[Any] = [(), "v", (("v",),), ((1, 2),), None]


@pytest.mark.parametrize("columns_", NO_CONTRADICTIONS, ids=repr)
def test_a_contradiction_that_names_no_column_is_refused(columns_: Any) -> None:
    made = evolving_table("non-blocking")
    strategy = ByHand(lambda _: pyhudi.SchemaContradiction(columns_))
    with pytest.raises(pyhudi.InvalidRequestError, match="not pairs of a path and a reason"):
        made.table("own", schema_strategy=strategy).upsert(rows("own", "vx"), schema_mode="add")
    assert made.pending() == []


@pytest.mark.parametrize("case", UNFIT)
def test_a_schema_of_a_strategy_that_no_table_can_have_names_the_column(case: str) -> None:
    unfit, message = UNFIT[case]
    made = evolving_table("non-blocking")
    table = made.table("own", schema_strategy=ByHand(lambda given: unfit(given["now"])))
    with pytest.raises(pyhudi.InvalidRequestError, match=message):
        table.upsert(rows("own", "vx"), schema_mode="add")
    assert list(columns(made)) == ["v"]
    assert made.pending() == []


def test_more_dropped_names_than_a_commit_can_carry_are_refused_and_leave_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = without_x()
    made.table("own").upsert(rows("own", "vy"), schema_mode="add")
    monkeypatch.setattr("pyhudi.conflict.gone_columns.GONE_BYTES_MAX", 40)
    block = made.table("own").update_schema()
    block.__enter__().delete_column("y")
    with pytest.raises(pyhudi.InvalidRequestError, match=r"'y' cannot be dropped.*services\.clean"):
        block.__exit__(None, None, None)
    assert list(columns(made)) == ["v", "y"]
    assert made.pending() == []


def test_a_strategy_that_makes_another_schema_each_time_is_not_followed_for_ever() -> None:
    made = evolving_table("non-blocking")

    def growing(given: Any) -> pa.Schema:
        return given["now"].append(pa.field(f"c{len(given['now'])}", pa.string()))

    storage = amid(made, "non-blocking", lambda: made.table("later").upsert(rows("later")))
    table = made.table("own", storage, schema_strategy=ByHand(growing))
    with pytest.raises(pyhudi.InvalidRequestError, match="each time another one came"):
        table.upsert(rows("own", "vx"), schema_mode="add")
    assert made.pending() == []
