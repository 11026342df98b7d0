"""A column that a writer of another engine took out: every process learns of it, and by which."""

from __future__ import annotations

import json
import warnings

import pyarrow as pa
import pytest

import pyhudi
from counted_storage import CountedStorage
from meddled_storage import Meddled
from memory_tables import TIMELINE, MemoryTable
from pyhudi.commit.proposals import Begin
from pyhudi.conflict.gone_columns import LOST_KEY
from pyhudi.errors import HudiError
from pyhudi.format.timeline.commit_metadata import decode_commit_metadata
from pyhudi.format.timeline.instant import Action
from pyhudi.session.write_schema import LOOK_BACK
from read.test_schema_in_force import NARROW, WIDE, drop, foreign, rows, shared_table

EAGER = pyhudi.CompactionPolicy(min_delta_commits=1)
INNER = pa.struct([("a", pa.int32()), ("b", pa.int32())])


def last_commit(made: MemoryTable) -> str:
    """The instant that completed last."""
    done = [name for name in made.names() if "_" in name]
    return max(done, key=lambda name: name[18:35])[:17]


def lost_by_record(made: MemoryTable) -> dict[str, str]:
    """What the last commit says of lost columns."""
    [name] = [name for name in made.names() if name.startswith(f"{last_commit(made)}_")]
    data = made.storage.read(f"{TIMELINE}/{name}", 0, 1 << 20)
    found: dict[str, str] = json.loads(
        (decode_commit_metadata(data, name).extra_metadata or {}).get(LOST_KEY, "{}")
    )
    return found


def with_values() -> MemoryTable:
    """A shared table with a column that has values in a base file and in a log."""
    made = shared_table()
    table = made.table("evolver")
    table.upsert(rows("b", schema=WIDE), schema_mode="add")
    table.services.compact(EAGER)
    table.upsert(rows("c", schema=WIDE))
    return made


def test_a_new_process_warns_of_a_column_that_another_engine_took_out_and_names_its_commit() -> (
    None
):
    made = with_values()
    foreign(made, WIDE)
    foreign(made, NARROW)
    culprit = last_commit(made)
    foreign(made, NARROW)  # it only repeats what it found
    with pytest.warns(pyhudi.SchemaWarning, match=f"{culprit} took the column 'w' out"):
        made.table("new").upsert(rows("d"))


def test_a_new_process_does_not_compact_a_lost_column_away() -> None:
    made = with_values()
    foreign(made, NARROW)
    new = made.table("new")
    with (
        pytest.warns(pyhudi.SchemaWarning, match="'w' out of the table"),
        pytest.raises(pyhudi.CorruptTableError, match="values of column 'w' would be lost"),
    ):
        new.services.compact(EAGER)
    again = made.table("again")
    with (
        pytest.warns(pyhudi.SchemaWarning, match="'w' out of the table"),
        again.update_schema() as change,
    ):
        change.union_by_name(pa.schema([("w", pa.int64())]))
    assert not made.table("c").services.compact(EAGER).errors
    read = made.table("reader").read(columns=["id", "w"]).to_arrow().sort_by("id").to_pylist()
    assert [row["w"] for row in read] == [None, 7, 7]


@pytest.mark.parametrize("where", ["base file", "log"])
def test_a_field_of_a_struct_that_was_lost_is_not_compacted_away(where: str) -> None:
    outer = pa.schema([*NARROW, ("s", pa.struct([INNER.field("a")]))])
    made = shared_table()
    with made.table("evolver").update_schema() as change:
        change.add_column("s", INNER)
    rows_of_both = pa.table({"id": ["b"], "v": ["x"], "s": pa.array([{"a": 1, "b": 2}], INNER)})
    made.table("evolver").upsert(rows_of_both)
    if where == "base file":
        made.table("evolver").services.compact(EAGER)
        made.table("evolver").delete("id = 'a'")
    foreign(made, outer)
    with (
        pytest.warns(pyhudi.SchemaWarning, match=r"'s\.b' out of the table"),
        pytest.raises(pyhudi.CorruptTableError, match=r"values of column 's\.b' would be lost"),
    ):
        made.table("new").services.compact(EAGER)
    with (
        pytest.warns(pyhudi.SchemaWarning),
        made.table("again").update_schema() as change,
    ):
        change.add_column("s.b", "int")
    with made.table("later").update_schema() as change:
        change.delete_column("s.b")
    assert not made.table("c").services.compact(EAGER).errors


def test_what_was_lost_stays_on_record_until_it_is_back() -> None:
    """Commits of pyhudi carry it, so a process that comes later learns of it, too."""
    made = with_values()
    foreign(made, NARROW)
    culprit = last_commit(made)
    with pytest.warns(pyhudi.SchemaWarning):
        made.table("first").upsert(rows("d"))
    assert lost_by_record(made) == {"w": culprit}
    with pytest.warns(pyhudi.SchemaWarning, match=culprit):
        made.table("second").upsert(rows("e"))
    foreign(made, NARROW)
    third = made.table("third")
    with pytest.warns(pyhudi.SchemaWarning, match=culprit), third.update_schema() as change:
        change.union_by_name(WIDE)
    assert lost_by_record(made) == {}
    with made.table("fourth").update_schema() as change:
        change.delete_column("w")
    assert lost_by_record(made) == {}
    made.table("fifth").upsert(rows("f"))


def test_a_process_warns_once() -> None:
    made = with_values()
    foreign(made, NARROW)
    table = made.table("new")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for key in "def":
            table.upsert(rows(key))
            foreign(made, NARROW)
    assert [warning.category for warning in caught] == [pyhudi.SchemaWarning]


def test_a_column_that_goes_while_a_write_runs_is_warned_of_when_that_completes() -> None:
    made = with_values()
    storage = Meddled(made.storage, ".log.", lambda: foreign(made, NARROW))
    with pytest.warns(pyhudi.SchemaWarning, match="'w' out of the table") as caught:
        made.table("own", storage).upsert(rows("d", schema=WIDE))
    assert storage.is_done
    assert len(caught) == 1
    assert list(lost_by_record(made)) == ["w"]


@pytest.mark.parametrize("many", [3, 4 * LOOK_BACK])
def test_finding_what_is_gone_costs_a_new_process_no_more_behind_many_commits(many: int) -> None:
    costs = []
    for count in (2, many):
        made = with_values()
        drop_v(made)
        for _ in range(count):
            foreign(made, pa.schema([NARROW.field("id"), WIDE.field("w")]))
        storage = CountedStorage(made.storage)
        schema = made.session("new", storage.as_storage()).schema
        with storage.counting() as counts:
            now = schema.now()
        assert now is not None
        assert [name for name, _ in now.dropped] == ["v"]
        assert now.lost == ()
        costs.append(sum(counts.values()))
    assert costs[0] == costs[1]


def drop_v(made: MemoryTable) -> None:
    with made.table("dropper").update_schema() as change:
        change.delete_column("v")


def test_behind_many_commits_of_another_engine_the_oldest_in_sight_is_named() -> None:
    made = with_values()
    for _ in range(LOOK_BACK + 2):
        foreign(made, NARROW)
    storage = CountedStorage(made.storage)
    schema = made.session("new", storage.as_storage()).schema
    with storage.counting() as counts, pytest.warns(pyhudi.SchemaWarning):
        schema.now()
    assert counts["read"] <= LOOK_BACK + 6


def test_a_column_that_was_dropped_is_not_lost() -> None:
    made = shared_table()
    drop(made)
    foreign(made, NARROW)
    made.table("new").upsert(rows("c"))
    assert lost_by_record(made) == {}
    assert not made.table("c").services.compact(EAGER).errors


@pytest.mark.parametrize("text", ['{"w": 3}', '{"": "x"}', '["w"]', "{", '{"a..b": "x"}'])
def test_a_damaged_record_of_lost_columns_is_refused_by_name(text: str) -> None:
    made = shared_table()
    foreign(made, NARROW, extra={LOST_KEY: text})
    with pytest.raises(HudiError, match="lost columns of a commit cannot be read"):
        made.table("new").upsert(rows("b"))
    assert made.pending() == []


def test_what_is_gone_is_not_known_behind_more_entries_of_services_than_are_read() -> None:
    """The limit that docs/differences.md gives."""
    made = with_values()
    foreign(made, NARROW)
    service = made.session("service").log
    for _ in range(LOOK_BACK):
        service.append(Begin(Action.CLEAN))
    new = made.session("new").schema.now()
    assert new is not None
    assert new.lost == ()
    with pytest.raises(pyhudi.CorruptTableError, match="values of column 'w' would be lost"):
        made.table("again").services.compact(EAGER)


def test_a_commit_carries_no_more_lost_columns_than_can_be_read_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pyhudi.conflict.gone_columns.GONE_BYTES_MAX", 60)
    made = with_values()
    with made.table("evolver").update_schema() as change:
        change.add_column("x", "int").add_column("y", "int")
    foreign(made, NARROW)
    with pytest.warns(pyhudi.SchemaWarning) as caught:
        made.table("new").upsert(rows("d"))
    assert len(caught) == 3
    assert list(lost_by_record(made)) == ["w"]
    with pytest.warns(pyhudi.SchemaWarning, match="'w' out of the table"):
        made.table("later").upsert(rows("e"))
