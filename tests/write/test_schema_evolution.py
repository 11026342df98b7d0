"""Writes that evolve the schema, beside others that do (RFC-82)."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from as_by_spark import written_as_by_spark
from faulty_storage import FaultyStorage
from meddled_storage import Meddled
from memory_tables import TIMELINE, MemoryTable
from pyhudi.api.table import Table
from pyhudi.format.table.table_config import CREATE_SCHEMA, TableType
from pyhudi.format.timeline.commit_metadata import CommitMetadata, decode_commit_metadata
from pyhudi.format.timeline.instant import Instant
from pyhudi.read.schema_in_force import recorded_by_write
from pyhudi.session.properties import update_properties
from pyhudi.timeline.timeline import WRITE_ACTIONS
from pyhudi.write.begin import ready
from pyhudi.write.intent import WriteIntent
from pyhudi.write.schemas import row_schema

KEYS = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("day", pa.string(), nullable=False),
        pa.field("ts", pa.int64(), nullable=False),
    ]
)
S1 = pa.schema([*KEYS, ("v", pa.int32())])
X, Y = pa.field("x", pa.string()), pa.field("y", pa.int32())
ROW = {"id": "", "day": "", "ts": 1, "v": 1, "x": "x", "y": 5}

TABLES: dict[str, dict[str, Any]] = {
    "copy on write": {"ordering": "ts", "table_type": TableType.COPY_ON_WRITE},
    "optimistic": {},
    "non-blocking": {"ordering": "ts"},
}


def evolving_table(kind: str, *, has_schema: bool = True) -> MemoryTable:
    definition = {
        "partition_by": "day",
        "buckets": pyhudi.SimpleBuckets(1),
        **TABLES[kind],
    }
    made = MemoryTable(S1, **definition)
    if has_schema:
        made.table("first").upsert(rows("first"))
    else:

        def forgotten(values: dict[str, str]) -> dict[str, str]:
            return {key: value for key, value in values.items() if key != CREATE_SCHEMA}

        update_properties(made.storage, forgotten, made.world("first"))
    return made


def amid(made: MemoryTable, kind: str, act: Callable[[], Any]) -> Meddled:
    """Storage on which the act happens after a write has begun, and before it completes."""
    return Meddled(made.storage, "-0_" if kind == "copy on write" else ".log.", act)


def rows(id_: str, *added: pa.Field, v: pa.DataType | None = None) -> pa.Table:
    """One row in a partition of its own, so that no two writes meet in a file group."""
    fields = [field if field.name != "v" or v is None else pa.field("v", v) for field in S1]
    schema = pa.schema([*fields, *added])
    values = {**ROW, "id": id_, "day": f"day of {id_}"}
    return pa.Table.from_pylist([{name: values[name] for name in schema.names}], schema)


def wide(id_: str, value: int = 1 << 40) -> pa.Table:
    table = rows(id_, v=pa.int64())
    return table.set_column(3, "v", pa.array([value], pa.int64()))


def seen(made: MemoryTable) -> dict[str, dict[str, Any]]:
    read = made.table("reader").read().to_arrow().to_pylist()
    return {row["id"]: {n: v for n, v in row.items() if n not in KEYS.names} for row in read}


def columns(made: MemoryTable) -> dict[str, pa.DataType]:
    arrow = made.table("reader").schema.arrow
    return {field.name: field.type for field in arrow if field.name not in KEYS.names}


def recorded(made: MemoryTable) -> list[tuple[Instant, str | None]]:
    """The completed writes, with the schema that each recorded."""
    done = [Instant.parse(name) for name in made.names() if "_" in name]
    done = [instant for instant in done if instant.action in WRITE_ACTIONS]
    return [(instant, recorded_by_write(metadata(made, instant))) for instant in done]


def metadata(made: MemoryTable, instant: Instant) -> CommitMetadata:
    path = f"{TIMELINE}/{instant.file_name}"
    return decode_commit_metadata(made.storage.read(path), path)


def requires_one_schema(made: MemoryTable) -> None:
    """Hudi's readers go by the greatest request, and RFC-82 by the greatest completion."""
    writes = [(instant, schema) for instant, schema in recorded(made) if schema is not None]
    by_request = max(writes, key=lambda write: write[0].requested)[1]
    by_completion = max(writes, key=lambda write: write[0].completed or "")[1]
    assert by_request == by_completion


# ---- the eight scenarios of the RFC

#: Scenario → whether the table has S1 at the start, what the other write adds to it, what the own
#: one adds, and the columns afterwards by strategy; None where the own write fails.
SCENARIOS: dict[int, tuple[bool, tuple[pa.Field, ...] | None, tuple[pa.Field, ...], Any, Any]] = {
    1: (False, None, (), "v", "v"),
    2: (False, (), (), "v", "v"),
    3: (False, (X,), (Y,), None, "vxy"),
    4: (True, None, (), "v", "v"),
    5: (True, None, (X,), "vx", "vx"),
    6: (True, (X,), (), "vx", "vx"),
    7: (True, (X,), (X,), "vx", "vx"),
    8: (True, (X,), (Y,), None, "vxy"),
}


@pytest.mark.parametrize("strategy", ["simple", "reconcile"])
@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("number", SCENARIOS)
def test_a_scenario_of_the_rfc_ends_as_its_table_says(
    number: int, kind: str, strategy: str
) -> None:
    has_schema, theirs, own, *outcomes = SCENARIOS[number]
    expected = outcomes[strategy == "reconcile"]
    made = evolving_table(kind, has_schema=has_schema)

    def other() -> None:
        if theirs is not None:
            made.table("other").upsert(rows("theirs", *theirs), schema_mode="add")

    # On a table without a schema, the seed of the write brings it.
    mark = "copy on write" if number == 3 else kind
    storage = amid(made, mark, other)
    table = made.table("own", storage, schema_strategy=strategy)
    if expected is None:
        with pytest.raises(pyhudi.ConcurrentSchemaEvolutionError) as caught:
            table.upsert(rows("own", *own), schema_mode="add")
        assert caught.value.facts["rule"] == "schema_evolved"
        assert "own" not in seen(made)
        expected = "vx"
    else:
        table.upsert(rows("own", *own), schema_mode="add")
        found = seen(made)["own"]
        assert {name: found[name] for name in [f.name for f in own]} == {
            field.name: ROW[field.name] for field in own
        }
    assert storage.is_done
    assert "".join(columns(made)) == expected
    if theirs:
        assert seen(made)["theirs"]["x"] == "x"
    requires_one_schema(made)
    assert made.pending() == []


@pytest.mark.parametrize("kind", TABLES)
def test_the_first_rows_of_tasks_elsewhere_give_a_table_its_schema(kind: str) -> None:
    made = evolving_table(kind, has_schema=False)
    opening = made.opening("own")
    given = rows("own", X)
    schema = row_schema(ready(opening), given.schema)
    intent = WriteIntent(operation="UPSERT", rows=schema)
    written_as_by_spark(made.table("own"), given, intent)
    assert list(columns(made)) == ["v", "x"]
    assert seen(made)["own"] == {"v": 1, "x": "x"}
    requires_one_schema(made)


# ---- types

WIDENED: dict[str, tuple[pa.DataType, pa.DataType, pa.DataType | None]] = {
    "both to long": (pa.int64(), pa.int64(), pa.int64()),
    "one to long, one to double": (pa.int64(), pa.float64(), None),
}


@pytest.mark.parametrize("case", WIDENED)
@pytest.mark.parametrize("kind", TABLES)
def test_a_column_that_two_writes_widen_gets_a_type_that_holds_both_or_one_fails(
    kind: str, case: str
) -> None:
    theirs, own, joined = WIDENED[case]
    made = evolving_table(kind)
    other = made.table("other")
    storage = amid(made, kind, lambda: other.upsert(rows("theirs", v=theirs), schema_mode="add"))
    table = made.table("own", storage)
    if joined is None:
        with pytest.raises(pyhudi.ConcurrentSchemaEvolutionError, match="v: no type holds both"):
            table.upsert(rows("own", v=own), schema_mode="add")
        joined = theirs
    else:
        table.upsert(rows("own", v=own), schema_mode="add")
        assert seen(made)["own"]["v"] == 1
    assert columns(made)["v"] == joined
    assert seen(made)["first"]["v"] == 1


@pytest.mark.parametrize("kind", TABLES)
def test_a_type_that_is_widened_behind_a_later_request_comes_first_in_a_commit_of_its_own(
    kind: str,
) -> None:
    """Hudi's readers would read 0 for the wide value."""
    made = evolving_table(kind)
    later = amid(made, kind, lambda: made.table("later").upsert(rows("later")))
    made.table("own", later).upsert(wide("own"), schema_mode="add")
    assert seen(made)["own"]["v"] == 1 << 40
    operations = [metadata(made, instant).operation_type for instant, _ in recorded(made)]
    assert operations.count("ALTER_SCHEMA") == 1
    requires_one_schema(made)


@pytest.mark.parametrize("kind", TABLES)
def test_a_write_that_meets_no_later_request_evolves_by_itself(kind: str) -> None:
    made = evolving_table(kind)
    before = len(recorded(made))
    made.table("own").upsert(rows("first", X), schema_mode="add")
    assert len(recorded(made)) == before + 1


# ---- between the call, the begin and a retry


@pytest.mark.parametrize("kind", TABLES)
def test_columns_that_are_added_between_the_call_and_the_begin_stay(kind: str) -> None:
    made = evolving_table(kind)
    table = made.table("own")

    def batches() -> Any:
        given = rows("own", Y)
        yield from given.to_batches()
        made.table("other").upsert(rows("theirs", X), schema_mode="add")

    given = rows("own", Y)
    reader = pa.RecordBatchReader.from_batches(given.schema, batches())
    table.upsert(reader, schema_mode="add")
    assert list(columns(made)) == ["v", "x", "y"]
    found = seen(made)
    assert (found["own"]["y"], found["own"]["x"], found["theirs"]["x"]) == (5, None, "x")


def test_a_repeated_write_does_not_undo_what_evolved_meanwhile() -> None:
    made = evolving_table("optimistic")

    def other() -> None:
        made.table("other").upsert(rows("first", X), schema_mode="add")  # the same file group

    storage = amid(made, "optimistic", other)
    result = made.table("own", storage).update(
        pa.table({"id": ["first"], "day": ["day of first"], "v": pa.array([7], pa.int32())}),
        columns=["v"],
    )
    assert result.retries == 1
    assert list(columns(made)) == ["v", "x"]
    assert seen(made)["first"] == {"v": 7, "x": "x"}


VERBS: dict[str, Callable[[Table], object]] = {
    "upsert": lambda t: t.upsert(rows("own")),
    "append of new keys": lambda t: t.append(rows("own"), require_new_keys=True),
    "delete by key": lambda t: t.delete(rows("first").select(["id", "day", "ts"])),
    "delete by predicate": lambda t: t.delete("id = 'first'"),
    "overwrite": lambda t: t.overwrite(rows("own")),
    "delete of partitions": lambda t: t.delete_partitions(["day of first"]),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", TABLES)
def test_no_verb_undoes_a_column_that_is_added_while_it_runs(kind: str, verb: str) -> None:
    made = evolving_table(kind)
    storage = Meddled(
        made.storage,
        ".requested",
        lambda: made.table("other").upsert(rows("theirs", X), schema_mode="add"),
    )
    VERBS[verb](made.table("own", storage))
    assert storage.is_done
    assert list(columns(made)) == ["v", "x"]
    assert seen(made)["theirs"]["x"] == "x"
    requires_one_schema(made)


# ---- what it costs


@pytest.mark.parametrize("size", ["in the log", "staged"])
def test_no_commit_of_others_is_read_while_the_schema_stays(
    size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if size == "staged":  # bytes that are too large for an entry
        monkeypatch.setattr("pyhudi.commit.proposals.INLINE_BYTES_MAX", 10)
    made = evolving_table("non-blocking")
    other = made.table("other")
    other.upsert(rows("theirs"))
    counted = FaultyStorage(made.storage)

    def others() -> None:
        for _ in range(30):
            other.upsert(rows("theirs"))
        counted.trace.clear()

    table = made.table("own", Meddled(counted, ".log.", others))
    table.upsert(rows("own"))
    read = [done.path for done in counted.trace if done.name in ("read", "open")]
    assert [path for path in read if path.startswith(TIMELINE)] == []


# ---- schema modes


@pytest.mark.parametrize("kind", TABLES)
def test_merged_rows_may_lack_columns_which_become_null(kind: str) -> None:
    made = evolving_table(kind)
    given = rows("own", X).drop_columns(["v"])
    made.table("own").upsert(given, schema_mode="merge")
    assert seen(made)["own"] == {"v": None, "x": "x"}
    made.table("own", schema_mode="merge").upsert(rows("more").drop_columns(["v"]))
    assert seen(made)["more"] == {"v": None, "x": None}


def test_strict_rows_are_refused_as_before_and_nothing_begins() -> None:
    made = evolving_table("non-blocking")
    before = made.names()
    with pytest.raises(pyhudi.InvalidRequestError, match="columns that the table does not have"):
        made.table("own").upsert(rows("own", X))
    assert made.names() == before


class ByHand:
    """A strategy of a user's own."""

    def __init__(self, result: Callable[[dict[str, Any]], Any]) -> None:
        self._result = result

    def resolve(self, start: pa.Schema | None, now: pa.Schema | None, own: pa.Schema) -> Any:
        return self._result({"start": start, "now": now, "own": own})


def _fails(_: object) -> object:
    raise RuntimeError("no idea")


BAD: dict[str, tuple[Callable[[Any], Any], str]] = {
    "raises": (_fails, "RuntimeError: no idea"),
    "no schema": (lambda _: "x", "it returned a str"),
    "no key": (lambda given: given["now"].remove(0), "lacks 'id'"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_strategy_that_fails_refuses_the_write_and_leaves_nothing(case: str) -> None:
    result, message = BAD[case]
    made = evolving_table("non-blocking")
    table = made.table("own", schema_strategy=ByHand(result))
    with pytest.raises(pyhudi.HudiError, match=message):
        table.upsert(rows("own", X), schema_mode="add")
    assert list(columns(made)) == ["v"]
    assert made.pending() == []


def test_a_strategy_of_the_users_own_decides() -> None:
    made = evolving_table("non-blocking")
    table = made.table("own", schema_strategy=ByHand(lambda given: given["now"]))
    table.upsert(rows("own", X), schema_mode="add")
    assert list(columns(made)) == ["v"]
    assert seen(made)["own"] == {"v": 1}


# ---- changes without rows


@pytest.mark.parametrize("kind", TABLES)
def test_a_change_without_rows_is_one_commit_and_none_if_nothing_changes(kind: str) -> None:
    made = evolving_table(kind)
    table, before = made.table("own"), len(recorded(made))
    with table.update_schema() as change:
        change.add_column("x", pa.string())
        change.update_column("v", pa.int64())
    assert columns(made) == {"v": pa.int64(), "x": pa.string()}
    assert len(recorded(made)) == before + 1
    with table.update_schema():
        pass
    with suppress(ZeroDivisionError), table.update_schema() as change:
        change.add_column("y", pa.string())
        _ = 1 / 0
    assert len(recorded(made)) == before + 1
    assert seen(made)["first"] == {"v": 1, "x": None}
    requires_one_schema(made)


@pytest.mark.parametrize("kind", TABLES)
def test_documentation_that_is_given_while_a_write_runs_stays(kind: str) -> None:
    """No column changes, so nothing but the mark in the log tells the write of it."""
    made = evolving_table(kind)

    def document() -> None:
        with made.table("other").update_schema() as change:
            change.update_column("v", doc="what v is")

    storage = amid(made, kind, document)
    made.table("own", storage).upsert(rows("own"))
    assert storage.is_done
    *_, (altered, _), (_, last) = sorted(recorded(made), key=lambda write: write[0].completed or "")
    assert metadata(made, altered).operation_type == "ALTER_SCHEMA"
    fields = {field["name"]: field.get("doc") for field in json.loads(last or "")["fields"]}
    assert fields == {"id": None, "day": None, "ts": None, "v": "what v is"}
    requires_one_schema(made)


def test_a_dry_run_shows_changes_and_writers_and_commits_nothing() -> None:
    made = evolving_table("non-blocking")
    names = made.names()
    block = made.table("own").update_schema(dry_run=True)
    with block as change:
        change.add_column("x", pa.string())
    assert [(c.path, c.kind) for c in block.changes] == [("x", "added")]
    assert block.writers is not None
    assert block.result is None
    assert made.names() == names


def test_a_change_without_rows_joins_what_a_write_evolved_meanwhile() -> None:
    made = evolving_table("non-blocking")
    with made.table("own").update_schema() as change:
        change.add_column("y", pa.int32())
        made.table("other").upsert(rows("theirs", X), schema_mode="add")
    assert list(columns(made)) == ["v", "x", "y"]
    block = made.table("own").update_schema()
    block.__enter__().add_column("z", pa.int32())
    with made.table("other").update_schema() as theirs:
        theirs.add_column("z", pa.string())
    with pytest.raises(pyhudi.ConcurrentSchemaEvolutionError):
        block.__exit__(None, None, None)


@pytest.mark.parametrize("kind", TABLES)
def test_a_change_keeps_the_column_of_a_write_that_had_begun_just_before(kind: str) -> None:
    """The begin is the last entry of the log then, and the write no less one of the others."""
    made = evolving_table(kind)
    block = made.table("own").update_schema()
    storage = amid(made, kind, lambda: block.__enter__().add_column("y", pa.int32()))
    made.table("other", storage).upsert(rows("theirs", X), schema_mode="add")
    assert storage.is_done
    block.__exit__(None, None, None)
    assert list(columns(made)) == ["v", "x", "y"]
    assert seen(made)["theirs"] == {"v": 1, "x": "x", "y": None}


def test_a_compaction_of_the_schema_before_does_not_undo_a_change() -> None:
    """It read the schema before the change, and ends while a write runs that began after it."""
    made = evolving_table("non-blocking")
    made.table("other").upsert(rows("first"))
    has_begun, may_end = Event(), Event()

    def wait() -> None:
        has_begun.set()
        assert may_end.wait(20)

    storage = Meddled(made.storage, "-0_", wait)
    compaction = Thread(target=made.table("compactor", storage).services.compact)
    compaction.start()
    assert has_begun.wait(20)
    with made.table("other").update_schema() as change:
        change.add_column("x", pa.string())

    def end() -> None:
        may_end.set()
        compaction.join()

    made.table("own", Meddled(made.storage, ".log.", end)).upsert(rows("own", X))
    assert any(".commit" in name for name in made.names())
    assert list(columns(made)) == ["v", "x"]
    requires_one_schema(made)


@pytest.mark.parametrize("kind", TABLES)
def test_a_dropped_column_is_not_brought_back_by_rows_nor_by_a_later_change(kind: str) -> None:
    made = evolving_table(kind)
    made.table("own").upsert(rows("own", X), schema_mode="add")
    with made.table("own").update_schema() as change:
        change.delete_column("x")
    assert seen(made)["own"] == {"v": 1}
    before = made.names()
    with pytest.raises(pyhudi.InvalidRequestError, match=r"'x' cannot be added again.* dropped at"):
        made.table("own").upsert(rows("more", X), schema_mode="add")
    assert made.names() == before
    made.table("own").upsert(rows("more"))
    with (
        made.table("late").update_schema() as change,
        pytest.raises(pyhudi.InvalidRequestError, match="'x'"),
    ):
        change.add_column("x", pa.string())
    assert made.pending() == []


def test_a_write_under_way_does_not_bring_a_dropped_column_back() -> None:
    made = evolving_table("non-blocking")
    made.table("own").upsert(rows("own", X), schema_mode="add")

    def drop() -> None:
        with made.table("other").update_schema() as change:
            change.delete_column("x")

    storage = Meddled(made.storage, ".log.", drop)
    made.table("own", storage).upsert(rows("late", X))
    assert storage.is_done
    assert list(columns(made)) == ["v"]
    assert seen(made)["late"] == {"v": 1}
