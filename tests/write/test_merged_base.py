"""Copy-on-write: what a rewritten base file holds, and that it is what a reader would merge."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pyhudi
from column_types import SCHEMA as ALL_TYPES
from column_types import any_rows
from faulty_storage import Effect, Fault, FaultyStorage
from handmade import at
from pyhudi.errors import UnavailableError
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.storage.open import open_storage
from pyhudi.storage.protocol import Storage
from pyhudi.table.file_group import BaseFile
from pyhudi.table.merge import MergeRule, NotMine
from pyhudi.write.files.base_file import write_base, write_seed
from pyhudi.write.files.log_file import write_log
from pyhudi.write.files.merged_base import rewrite_base
from pyhudi.write.files.spec import DeleteRows
from written_tables import GROUP, WrittenTable, base_file, deletes

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
COW = {"hoodie.table.type": "COPY_ON_WRITE"}
EVENT_TIME = MergeRule(ordering=("ts",))
COMMIT_TIME = MergeRule()


def row(id_: str, ts: int = 1, v: str | None = "v") -> dict[str, Any]:
    return {"id": id_, "ts": ts, "v": v}


def made(storage: Storage, *, schema: pa.Schema = SCHEMA, ordering: str = "ts") -> WrittenTable:
    return WrittenTable(storage, schema, ordering=ordering, properties=COW)


def committed_base(table: WrittenTable, *rows: dict[str, Any]) -> BaseFile:
    """The first base file, of instant 1."""
    table.begin(1, "commit")
    stat = write_base(table.storage, table.spec(1), GROUP, [table.keyed(rows)])
    table.commit(1, [stat], "commit")
    return base_file(stat)


def counts(stat: WriteStat) -> tuple[int | None, ...]:
    return stat.num_writes, stat.num_inserts, stat.num_update_writes, stat.num_deletes


# ---- what is in it


def test_rows_are_inserted_updated_and_deleted(memory: Storage) -> None:
    table = made(memory)
    previous = committed_base(table, row("a"), row("b"), row("c"), row("d"))
    table.begin(5, "commit")
    stat = rewrite_base(
        memory,
        table.spec(5),
        GROUP,
        previous,
        rows=table.keyed([row("b", 2, "new"), row("c", 0, "late"), row("e", 0, "new")]),
        deletes=deletes("d", "nobody", ordering=pa.array([2, 2], pa.int64())),
        rule=EVENT_TIME,
    )
    assert counts(stat) == (4, 1, 1, 1)
    assert (stat.prev_commit, stat.prev_base_file) == (at(1), previous.name.file_name)
    assert memory.stat(f".hoodie/.temp/{at(5)}/{stat.path}.marker.MERGE") is not None
    assert table.rows() == [row("a"), row("b"), row("c"), row("d")]
    table.commit(5, [stat], "commit")
    assert table.rows() == [row("a"), row("b", 2, "new"), row("c"), row("e", 0, "new")]


def test_untouched_rows_keep_their_meta_columns_but_for_the_file_name(memory: Storage) -> None:
    table = made(memory)
    previous = committed_base(table, row("a"), row("b"))
    before = table.meta("_hoodie_commit_seqno")
    table.begin(5, "commit")
    new = table.keyed([row("b", 2), row("c")])
    stat = rewrite_base(memory, table.spec(5), GROUP, previous, rows=new, rule=EVENT_TIME)
    table.commit(5, [stat], "commit")
    assert table.meta("_hoodie_commit_time") == {"a": at(1), "b": at(5), "c": at(5)}
    after = table.meta("_hoodie_commit_seqno")
    assert after["a"] == before["a"]
    assert after["b"] != before["b"]
    assert len(set(after.values())) == 3
    assert set(table.meta("_hoodie_file_name").values()) == {stat.path}


@pytest.mark.parametrize(
    ("rule", "ordering", "left"),
    [
        (EVENT_TIME, pa.array([0, 1, 2], pa.int64()), ["a"]),
        (EVENT_TIME, pa.array([0, 1, None], pa.int64()), ["a"]),
        (EVENT_TIME, None, []),
        (COMMIT_TIME, None, []),
        (COMMIT_TIME, pa.array([0, 1, 2], pa.int64()), []),
    ],
)
def test_deletes_follow_the_merge_rule(
    memory: Storage, rule: MergeRule, ordering: pa.Array | None, left: list[str]
) -> None:
    table = made(memory, ordering=",".join(rule.ordering))
    previous = committed_base(table, row("a"), row("b"), row("c"))
    table.begin(5, "commit")
    gone = deletes("a", "b", "c", ordering=ordering)
    stat = rewrite_base(memory, table.spec(5), GROUP, previous, deletes=gone, rule=rule)
    assert counts(stat) == (len(left), 0, 0, 3 - len(left))
    table.commit(5, [stat], "commit")
    assert [found["id"] for found in table.rows()] == left


def test_rows_that_say_they_are_deletes_are_no_rows(memory: Storage) -> None:
    schema = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    table = made(memory, schema=schema)
    kept = {**row("a"), "_hoodie_is_deleted": None}
    gone = {**row("b", 2), "_hoodie_is_deleted": True}
    previous = committed_base(table, kept, {**row("b"), "_hoodie_is_deleted": False})
    table.begin(5, "commit")
    new = table.keyed([gone, {**row("c"), "_hoodie_is_deleted": True}])
    stat = rewrite_base(memory, table.spec(5), GROUP, previous, rows=new, rule=EVENT_TIME)
    assert counts(stat) == (1, 0, 0, 1)
    table.commit(5, [stat], "commit")
    assert table.rows() == [kept]


def test_values_that_the_writer_did_not_set_stay_as_they_were(memory: Storage) -> None:
    table = made(memory)
    previous = committed_base(table, row("a", 1, "old"), row("b", 5, None))
    table.begin(5, "commit")
    new = table.keyed([row("a", 2, None), row("b", 2, "late")])
    rule = MergeRule(ordering=("ts",), not_mine=NotMine.NULLS)
    stat = rewrite_base(memory, table.spec(5), GROUP, previous, rows=new, rule=rule)
    assert counts(stat) == (2, 0, 1, 0)
    table.commit(5, [stat], "commit")
    assert table.rows() == [row("a", 2, "old"), row("b", 5, "late")]


def test_a_new_file_group_has_the_rows_merged_among_themselves(memory: Storage) -> None:
    table = made(memory)
    table.begin(1, "commit")
    new = table.keyed([row("a", 2, "second"), row("a", 1, "first"), row("b")])
    gone = deletes("nobody")
    stat = rewrite_base(memory, table.spec(1), GROUP, None, rows=new, deletes=gone, rule=EVENT_TIME)
    assert counts(stat) == (2, 2, 0, 0)
    assert (stat.prev_commit, stat.prev_base_file) == ("null", None)
    assert memory.stat(f".hoodie/.temp/{at(1)}/{stat.path}.marker.CREATE") is not None
    table.commit(1, [stat], "commit")
    assert table.rows() == [row("a", 2, "second"), row("b")]


@pytest.mark.parametrize("given", [{}, {"rows": True}, {"deletes": True}])
def test_a_rewrite_without_changes_keeps_every_row(memory: Storage, given: dict[str, bool]) -> None:
    table = made(memory)
    previous = committed_base(table, row("a"), row("b"))
    table.begin(5, "commit")
    stat = rewrite_base(
        memory,
        table.spec(5),
        GROUP,
        previous,
        rows=table.keyed([]) if given.get("rows") else None,
        deletes=deletes() if given.get("deletes") else None,
        rule=EVENT_TIME,
    )
    assert counts(stat) == (2, 0, 0, 0)
    table.commit(5, [stat], "commit")
    assert table.rows() == [row("a"), row("b")]


def test_a_seeded_group_is_rewritten_like_any_other(memory: Storage) -> None:
    table = made(memory)
    table.begin(1, "commit")
    seed = write_seed(memory, table.spec(1), GROUP)
    table.commit(1, [seed], "commit")
    table.begin(5, "commit")
    new = table.keyed([row("a"), row("b")])
    stat = rewrite_base(memory, table.spec(5), GROUP, base_file(seed), rows=new, rule=EVENT_TIME)
    assert counts(stat) == (2, 2, 0, 0)
    table.commit(5, [stat], "commit")
    assert table.rows() == [row("a"), row("b")]


def test_an_older_file_is_brought_into_the_tables_schema(memory: Storage) -> None:
    older = pa.schema([("id", pa.string()), ("ts", pa.int32())])
    table = WrittenTable(memory, older, ordering="ts", properties=COW)
    previous = committed_base(table, {"id": "a", "ts": 1})
    table.schema = SCHEMA
    table.begin(5, "commit")
    new = table.keyed([row("b", 2**40)])
    stat = rewrite_base(memory, table.spec(5), GROUP, previous, rows=new, rule=EVENT_TIME)
    table.commit(5, [stat], "commit")
    assert table.rows() == [row("a", 1, None), row("b", 2**40)]


# ---- equal to what a reader would merge

_ACTION = st.tuples(st.sampled_from("abcdef"), st.integers(0, 3), st.sampled_from("rdu"))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    base=st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3)),
    actions=st.lists(_ACTION, max_size=8, unique_by=lambda action: action[0]),
    event_time=st.booleans(),
)
def test_a_rewrite_is_what_a_reader_would_merge_from_a_log(
    base: dict[str, int], actions: list[tuple[str, int, str]], event_time: bool
) -> None:
    """The same changes, once as a new base file and once as a log."""
    ordering = "ts" if event_time else ""
    rule = EVENT_TIME if event_time else COMMIT_TIME
    rows = [row(id_, ts, "new") for id_, ts, kind in actions if kind == "r"]
    gone = [(id_, ts if kind == "d" else None) for id_, ts, kind in actions if kind in "du"]
    seen = []
    for copy in (True, False):
        storage = open_storage(f"memory://rewrite-{copy}")
        for found in list(storage.list("")):
            storage.delete(found.path)
        properties = COW if copy else None
        table = WrittenTable(storage, SCHEMA, ordering=ordering, properties=properties)
        previous = committed_base(table, *(row(id_, ts, "old") for id_, ts in base.items()))
        removed = DeleteRows(
            pa.array([id_ for id_, _ in gone], pa.string()),
            pa.array([ts for _, ts in gone], pa.int64()),
        )
        spec, new = table.spec(5), table.keyed(rows)
        if copy:
            table.begin(5, "commit")
            stat = rewrite_base(
                storage, spec, GROUP, previous, rows=new, deletes=removed, rule=rule
            )
            table.commit(5, [stat], "commit")
        else:
            table.begin(5)
            table.commit(5, write_log(storage, spec, GROUP, rows=new, deletes=removed))
        seen.append((table.rows(), table.meta("_hoodie_commit_time")))
    assert seen[0] == seen[1]
    rows_now, times = seen[0]
    kept = sum(time == at(1) for time in times.values())
    fresh = [found["id"] for found in rows_now if times[found["id"]] == at(5)]
    inserts = sum(id_ not in base for id_ in fresh)
    expected = (
        kept + len(fresh),
        inserts,
        len(fresh) - inserts,
        len(base) - kept - len(fresh) + inserts,
    )
    assert counts(stat) == expected


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(old=any_rows(4), new=any_rows(3))
def test_values_of_every_type_survive_a_rewrite(
    old: list[dict[str, Any]], new: list[dict[str, Any]]
) -> None:
    storage = open_storage("memory://rewrite-types")
    for found in list(storage.list("")):
        storage.delete(found.path)
    table = made(storage, schema=ALL_TYPES, ordering="")
    previous = committed_base(table, *old)
    table.begin(5, "commit")
    stat = rewrite_base(
        storage, table.spec(5), GROUP, previous, rows=table.keyed(new), rule=COMMIT_TIME
    )
    table.commit(5, [stat], "commit")
    expected = {found["id"]: found for found in [*old, *new]}
    assert table.rows() == [expected[id_] for id_ in sorted(expected)]


# ---- several attempts


def test_a_second_attempt_says_the_same(memory: Storage) -> None:
    table = made(memory)
    previous = committed_base(table, row("a"), row("b"))
    new = table.keyed([row("b", 2), row("c")])
    first, second = (
        rewrite_base(
            memory,
            table.spec(5),
            GROUP,
            previous,
            rows=new,
            deletes=deletes("a"),
            rule=EVENT_TIME,
        )
        for _ in range(2)
    )
    assert first == second
    assert counts(first) == (2, 1, 1, 1)


def test_a_previous_file_that_vanished_leaves_nothing_behind(memory: Storage) -> None:
    table = made(memory)
    previous = committed_base(table, row("a"))
    memory.delete(previous.path)
    with pytest.raises(UnavailableError, match="is gone"):
        rewrite_base(
            memory,
            table.spec(5),
            GROUP,
            previous,
            rows=table.keyed([row("b")]),
            rule=EVENT_TIME,
        )
    assert not [stat.path for stat in memory.list("") if stat.path.endswith(".parquet")]


@pytest.mark.parametrize("effect", [Effect.FAIL, Effect.LOSE_REPLY])
@pytest.mark.parametrize("operation", [1, 2, 3])
def test_a_call_that_failed_anywhere_succeeds_when_it_is_repeated(
    memory: Storage, effect: Effect, operation: int
) -> None:
    table = made(memory)
    previous = committed_base(table, row("a"), row("b"))
    table.begin(5, "commit")
    new = table.keyed([row("b", 2), row("c")])
    faulty = FaultyStorage(memory, [Fault(effect, nth=operation)])

    def attempt() -> WriteStat:
        return rewrite_base(faulty, table.spec(5), GROUP, previous, rows=new, rule=EVENT_TIME)

    with pytest.raises(UnavailableError):
        attempt()
    stat = attempt()
    assert counts(stat) == (3, 1, 1, 0)
    table.commit(5, [stat], "commit")
    assert pyhudi.open_table(memory.uri).read().to_arrow().num_rows == 3
