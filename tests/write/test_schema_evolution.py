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
from meddled_storage import Meddled
from memory_tables import MemoryTable
from pyhudi.api.table import Table
from pyhudi.commit.transaction import Transaction
from pyhudi.write.begin import ready
from pyhudi.write.intent import WriteIntent
from pyhudi.write.schemas import row_schema
from schema_scenarios import (
    CELLS,
    KEYS,
    S1,
    SCENARIOS,
    TABLES,
    begin,
    definition,
    metadata,
    play,
    recorded,
    requires_one_schema,
    rows,
)


def evolving_table(kind: str, *, has_schema: bool = True) -> MemoryTable:
    made = MemoryTable(S1, **definition(kind))
    begin(made, has_schema=has_schema)
    return made


def amid(made: MemoryTable, kind: str, act: Callable[[], Any]) -> Meddled:
    """Storage on which the act happens after a write has begun, and before it completes."""
    return Meddled(made.storage, "-0_" if kind == "copy on write" else ".log.", act)


def rows_with(id_: str, v: pa.DataType, value: int = 1) -> pa.Table:
    """One row with a v of another type."""
    return rows(id_).set_column(3, "v", pa.array([value], v))


def files(made: MemoryTable) -> set[str]:
    return {found.path for found in made.storage.list("")}


def seen(made: MemoryTable) -> dict[str, dict[str, Any]]:
    read = made.table("reader").read().to_arrow().to_pylist()
    return {row["id"]: {n: v for n, v in row.items() if n not in KEYS.names} for row in read}


def columns(made: MemoryTable) -> dict[str, pa.DataType]:
    arrow = made.table("reader").schema.arrow
    return {field.name: field.type for field in arrow if field.name not in KEYS.names}


# ---- the eight scenarios of the RFC


@pytest.mark.parametrize(("number", "kind", "strategy"), CELLS)
def test_a_scenario_of_the_rfc_ends_as_its_table_says(
    number: int, kind: str, strategy: str
) -> None:
    scenario, made = SCENARIOS[number], MemoryTable(S1, **definition(kind))
    error = play(made, number, kind, strategy)
    assert (error is not None) is scenario.is_refused(strategy)
    assert error is None or error.facts["rule"] == "schema_evolved"
    found = made.table("reader").read().to_arrow()
    assert found.sort_by("id").equals(scenario.end(strategy).sort_by("id"))
    requires_one_schema(made.storage)
    assert made.pending() == []


@pytest.mark.parametrize("kind", TABLES)
def test_the_first_rows_of_tasks_elsewhere_give_a_table_its_schema(kind: str) -> None:
    made = evolving_table(kind, has_schema=False)
    opening = made.opening("own")
    given = rows("own", "vx")
    schema = row_schema(ready(opening), given.schema)
    intent = WriteIntent(operation="UPSERT", rows=schema)
    written_as_by_spark(made.table("own"), given, intent)
    assert list(columns(made)) == ["v", "x"]
    assert seen(made)["own"] == {"v": 1, "x": "x"}
    requires_one_schema(made.storage)


REQUIRED = pa.field("r", pa.int32(), nullable=False)


def with_required(id_: str) -> pa.Table:
    return rows(id_).append_column(REQUIRED, pa.array([7], pa.int32()))


@pytest.mark.parametrize("moment", ["before the begin", "after it"])
@pytest.mark.parametrize("kind", TABLES)
def test_first_rows_without_a_column_that_other_first_rows_require_are_never_written(
    kind: str, moment: str
) -> None:
    """Row 3: either the other write is refused, or this one, which names the column."""
    made = evolving_table(kind, has_schema=False)
    results: list[str] = []
    lacking: list[dict[str, str]] = []

    def other() -> None:
        try:
            made.table("other").upsert(with_required("theirs"))
            results.append("theirs")
        except pyhudi.InvalidRequestError:
            pass  # the seeds of this write have brought its schema

    before = Meddled(made.storage, ".pyhudi/log/", other)
    storage = before if moment == "before the begin" else amid(made, kind, other)
    try:
        made.table("own", storage).upsert(rows("own", "vy"))
        results.append("own")
    except pyhudi.ConcurrentSchemaEvolutionError as error:
        lacking += error.facts["columns"]
    assert storage.is_done
    assert len(results) == 1
    assert [column["column"] for column in lacking] == (["r"] if results == ["theirs"] else [])
    assert list(seen(made)) == results
    assert made.pending() == []
    requires_one_schema(made.storage)


@pytest.mark.parametrize("moment", ["before the begin", "after it"])
def test_what_first_rows_require_and_other_first_rows_lack_becomes_nullable(moment: str) -> None:
    made = evolving_table("copy on write", has_schema=False)

    def other() -> None:
        made.table("other").upsert(rows("theirs", "vy"))

    before = Meddled(made.storage, ".pyhudi/log/", other)
    storage = before if moment == "before the begin" else amid(made, "copy on write", other)
    made.table("own", storage).upsert(with_required("own"))
    assert storage.is_done
    now = made.session("new").schema.now()
    assert now is not None
    assert now.arrow.names == [*S1.names, "y", "r"]
    assert now.arrow.field("r").nullable
    assert not now.arrow.field("id").nullable
    assert seen(made) == {
        "own": {"v": 1, "y": None, "r": 7},
        "theirs": {"v": 1, "y": 5, "r": None},
    }
    requires_one_schema(made.storage)


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
    storage = amid(made, kind, lambda: other.upsert(rows_with("theirs", theirs), schema_mode="add"))
    table = made.table("own", storage)
    if joined is None:
        with pytest.raises(pyhudi.ConcurrentSchemaEvolutionError, match="v: no type holds both"):
            table.upsert(rows_with("own", own), schema_mode="add")
        joined = theirs
    else:
        table.upsert(rows_with("own", own), schema_mode="add")
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
    made.table("own", later).upsert(rows_with("own", pa.int64(), 1 << 40), schema_mode="add")
    assert seen(made)["own"]["v"] == 1 << 40
    done = [metadata(made.storage, instant) for instant, _ in recorded(made.storage)]
    operations = [commit.operation_type for commit in done]
    assert operations.count("ALTER_SCHEMA") == 1
    requires_one_schema(made.storage)


@pytest.mark.parametrize("kind", TABLES)
def test_a_write_that_meets_no_later_request_evolves_by_itself(kind: str) -> None:
    made = evolving_table(kind)
    before = len(recorded(made.storage))
    made.table("own").upsert(rows("first", "vx"), schema_mode="add")
    assert len(recorded(made.storage)) == before + 1


# ---- between the call, the begin and a retry


@pytest.mark.parametrize("kind", TABLES)
def test_columns_that_are_added_between_the_call_and_the_begin_stay(kind: str) -> None:
    made = evolving_table(kind)
    table = made.table("own")

    def batches() -> Any:
        given = rows("own", "vy")
        yield from given.to_batches()
        made.table("other").upsert(rows("theirs", "vx"), schema_mode="add")

    given = rows("own", "vy")
    reader = pa.RecordBatchReader.from_batches(given.schema, batches())
    table.upsert(reader, schema_mode="add")
    assert list(columns(made)) == ["v", "x", "y"]
    found = seen(made)
    assert (found["own"]["y"], found["own"]["x"], found["theirs"]["x"]) == (5, None, "x")


def test_a_repeated_write_does_not_undo_what_evolved_meanwhile() -> None:
    made = evolving_table("optimistic")

    def other() -> None:
        made.table("other").upsert(rows("first", "vx"), schema_mode="add")  # the same file group

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
        lambda: made.table("other").upsert(rows("theirs", "vx"), schema_mode="add"),
    )
    VERBS[verb](made.table("own", storage))
    assert storage.is_done
    assert list(columns(made)) == ["v", "x"]
    assert seen(made)["theirs"]["x"] == "x"
    requires_one_schema(made.storage)


# ---- schema modes


@pytest.mark.parametrize("kind", TABLES)
def test_merged_rows_may_lack_columns_which_become_null(kind: str) -> None:
    made = evolving_table(kind)
    given = rows("own", "vx").drop_columns(["v"])
    made.table("own").upsert(given, schema_mode="merge")
    assert seen(made)["own"] == {"v": None, "x": "x"}
    made.table("own", schema_mode="merge").upsert(rows("more").drop_columns(["v"]))
    assert seen(made)["more"] == {"v": None, "x": None}


def test_strict_rows_are_refused_as_before_and_nothing_begins() -> None:
    made = evolving_table("non-blocking")
    before = made.names()
    with pytest.raises(pyhudi.InvalidRequestError, match="columns that the table does not have"):
        made.table("own").upsert(rows("own", "vx"))
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
def test_a_strategy_that_fails_refuses_the_change_and_leaves_nothing(case: str) -> None:
    result, message = BAD[case]
    made = evolving_table("non-blocking")
    table = made.table("own", schema_strategy=ByHand(result))
    with pytest.raises(pyhudi.HudiError, match=message):
        table.upsert(rows("own", "vx"), schema_mode="add")
    assert list(columns(made)) == ["v"]
    assert made.pending() == []
    before = files(made)
    with pytest.raises(pyhudi.HudiError, match=message), table.update_schema() as change:
        change.add_column("x", pa.string())
    assert files(made) == before


def test_a_strategy_of_the_users_own_decides() -> None:
    made = evolving_table("non-blocking")
    table = made.table("own", schema_strategy=ByHand(lambda given: given["now"]))
    table.upsert(rows("own", "vx"), schema_mode="add")
    assert list(columns(made)) == ["v"]
    assert seen(made)["own"] == {"v": 1}


# ---- changes without rows


@pytest.mark.parametrize("kind", TABLES)
def test_a_change_without_rows_is_one_commit_and_none_if_nothing_changes(kind: str) -> None:
    made = evolving_table(kind)
    table, before = made.table("own"), len(recorded(made.storage))
    with table.update_schema() as change:
        change.add_column("x", pa.string())
        change.update_column("v", pa.int64())
    assert columns(made) == {"v": pa.int64(), "x": pa.string()}
    assert len(recorded(made.storage)) == before + 1
    with table.update_schema():
        pass
    with suppress(ZeroDivisionError), table.update_schema() as change:
        change.add_column("y", pa.string())
        _ = 1 / 0
    assert len(recorded(made.storage)) == before + 1
    assert seen(made)["first"] == {"v": 1, "x": None}
    requires_one_schema(made.storage)


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
    done = sorted(recorded(made.storage), key=lambda write: write[0].completed or "")
    *_, (altered, _), (_, last) = done
    assert metadata(made.storage, altered).operation_type == "ALTER_SCHEMA"
    fields = {field["name"]: field.get("doc") for field in json.loads(last or "")["fields"]}
    assert fields == {"id": None, "day": None, "ts": None, "v": "what v is"}
    requires_one_schema(made.storage)


@pytest.mark.parametrize("has_rows", [True, False], ids=["with rows", "never written"])
def test_a_dry_run_shows_changes_and_writers_and_commits_nothing(has_rows: bool) -> None:
    """A write that failed is not rolled back by it either."""
    made = MemoryTable(S1, **definition("non-blocking"))
    if has_rows:
        made.table("first").upsert(rows("first"))
    failed = made.session("failed")
    pending = Transaction.begin(failed.log, failed.settings, failed.action, failed.recovery)
    made.clock.sleep(10 * 3_600_000)
    before = files(made)
    block = made.table("own").update_schema(dry_run=True)
    with block as change:
        change.add_column("x", pa.string())
    assert [(c.path, c.kind) for c in block.changes] == [("x", "added")]
    assert block.writers is not None
    assert block.writers["instant"].to_pylist() == [pending.requested]
    assert block.result is None
    assert files(made) == before


def test_a_dry_run_sees_what_was_changed_since_the_last_one() -> None:
    made = evolving_table("non-blocking")
    table = made.table("own")
    for process, name in [(table, "x"), (made.table("other"), "y"), (table, "z")]:
        with table.update_schema(dry_run=True) as change:
            change.add_column(name, pa.string())
        with process.update_schema() as change:
            change.add_column(name, pa.string())
        with (
            table.update_schema(dry_run=True) as change,
            pytest.raises(pyhudi.InvalidRequestError, match="there is a column of that name"),
        ):
            change.add_column(name, pa.string())
    assert list(columns(made)) == ["v", "x", "y", "z"]


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_that_was_never_written_has_no_commit_until_something_changes(kind: str) -> None:
    made = MemoryTable(S1, **definition(kind))
    before = files(made)
    with made.table("own").update_schema():
        pass
    with suppress(ZeroDivisionError), made.table("own").update_schema() as change:
        change.add_column("y", pa.string())
        _ = 1 / 0
    assert files(made) == before
    with made.table("own").update_schema() as change:
        change.add_column("x", pa.string())
    assert list(columns(made)) == ["v", "x"]
    made.table("own").upsert(rows("own", "vx"))
    assert seen(made)["own"] == {"v": 1, "x": "x"}
    requires_one_schema(made.storage)


def test_a_change_that_another_write_made_meanwhile_returns_a_time_at_which_it_is_there() -> None:
    made = evolving_table("non-blocking")
    block = made.table("own").update_schema()
    with block as change:
        with made.table("other").update_schema() as other:
            other.add_column("x", pa.string())
        change.add_column("x", pa.string())
    assert block.result is not None
    assert block.result.repeated
    assert "x" in made.table("reader").read(as_of=block.result.completed).to_arrow().column_names


def test_a_change_without_rows_joins_what_a_write_evolved_meanwhile() -> None:
    made = evolving_table("non-blocking")
    with made.table("own").update_schema() as change:
        change.add_column("y", pa.int32())
        made.table("other").upsert(rows("theirs", "vx"), schema_mode="add")
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
    made.table("other", storage).upsert(rows("theirs", "vx"), schema_mode="add")
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

    made.table("own", Meddled(made.storage, ".log.", end)).upsert(rows("own", "vx"))
    assert any(".commit" in name for name in made.names())
    assert list(columns(made)) == ["v", "x"]
    requires_one_schema(made.storage)


@pytest.mark.parametrize("kind", TABLES)
def test_a_dropped_column_is_not_brought_back_by_rows_nor_by_a_later_change(kind: str) -> None:
    made = evolving_table(kind)
    made.table("own").upsert(rows("own", "vx"), schema_mode="add")
    with made.table("own").update_schema() as change:
        change.delete_column("x")
    assert seen(made)["own"] == {"v": 1}
    before = made.names()
    with pytest.raises(pyhudi.InvalidRequestError, match=r"'x' cannot be added again.* dropped at"):
        made.table("own").upsert(rows("more", "vx"), schema_mode="add")
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
    made.table("own").upsert(rows("own", "vx"), schema_mode="add")

    def drop() -> None:
        with made.table("other").update_schema() as change:
            change.delete_column("x")

    storage = Meddled(made.storage, ".log.", drop)
    made.table("own", storage).upsert(rows("late", "vx"))
    assert storage.is_done
    assert list(columns(made)) == ["v"]
    assert seen(made)["late"] == {"v": 1}
