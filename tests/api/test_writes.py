"""The verbs that write, from the front door: any mix of them leaves what a dictionary would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_tables import MemoryTable
from pyhudi.errors import InvalidRequestError
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.concurrency_mode import ConcurrencyMode
from pyhudi.format.table.table_config import TableType

SCHEMA = pa.schema(
    [("id", pa.string()), ("day", pa.string()), ("ts", pa.int64()), ("v", pa.int64())]
)
Key = tuple[str, str]
Content = dict[Key, tuple[int, int | None]]
KINDS: dict[str, dict[str, Any]] = {
    "nbcc": {"ordering": "ts"},
    "occ": {"ordering": "ts", "concurrency": ConcurrencyMode.OPTIMISTIC},
    "by commit": {},
    "cow": {"ordering": "ts", "table_type": TableType.COPY_ON_WRITE},
}


def rows(*given: tuple[str, str, int, int | None]) -> pa.Table:
    names = SCHEMA.names
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in given], SCHEMA)


class Bench(MemoryTable):
    def __init__(self, kind: str = "nbcc", **options: Any) -> None:
        given = {"partition_by": "day", "buckets": SimpleBuckets(2), **KINDS[kind], **options}
        super().__init__(SCHEMA, **given)
        self.mine = self.table()

    def content(self) -> Content:
        read = self.table("reader").read(columns=SCHEMA.names)
        found = read.to_arrow().to_pylist()
        by_key = {(row["day"], row["id"]): (row["ts"], row["v"]) for row in found}
        assert len(by_key) == len(found), "a key is there twice"
        return by_key


# -- any mix of verbs

_ROW = st.tuples(st.sampled_from("abcdef"), st.sampled_from(["d0", "d1", "d2"]), st.integers(0, 9))
_ROWS = st.lists(_ROW, max_size=6)
_DAYS = st.lists(st.sampled_from(["d0", "d1", "d2"]), min_size=1, max_size=3)
_VERBS = st.one_of(
    st.tuples(st.sampled_from(["upsert", "append", "update", "delete", "all", "touched"]), _ROWS),
    st.tuples(st.just("named"), st.tuples(_DAYS, _ROWS)),
    st.tuples(st.just("delete_partitions"), _DAYS),
    st.tuples(st.just("delete_where"), st.sampled_from("abcdef")),
)


def latest(given: list[tuple[str, str, int, int | None]]) -> Content:
    """One row of each key: the greatest time, the later of equals."""
    found: Content = {}
    for id_, day, ts, v in given:
        if (day, id_) not in found or ts >= found[day, id_][0]:
            found[day, id_] = (ts, v)
    return found


def applied(bench: Bench, model: Content, verb: str, what: Any, step: int) -> Content:
    """Do it to both. Each step is later than those before it."""
    table = bench.mine
    if verb == "delete_partitions":
        table.delete_partitions(what)
        return {key: row for key, row in model.items() if key[0] not in what}
    if verb == "delete_where":
        table.delete(f"id = '{what}'")
        return {key: row for key, row in model.items() if key[1] != what}
    days, plain = what if verb == "named" else ([], what)
    plain = [row for row in plain if verb != "named" or row[1] in days]
    # Times rise, within a step too, so that tables with and without an ordering agree.
    full = [(id_, day, step * 100 + n, v) for n, (id_, day, v) in enumerate(plain)]
    given, new = rows(*full), latest(full)
    if verb in ("upsert", "append"):
        getattr(table, verb)(given)
        return model | new
    if verb == "update":
        table.update(given, columns=["v", "ts"])
        return {key: new.get(key, row) for key, row in model.items()}
    if verb == "delete":
        table.delete(given.select(["id", "day"]))
        return {key: row for key, row in model.items() if key not in new}
    table.overwrite(given, partitions=days if verb == "named" else verb)
    gone = {"all": {"d0", "d1", "d2"}, "named": set(days), "touched": {key[0] for key in new}}[verb]
    return {key: row for key, row in model.items() if key[0] not in gone} | new


@pytest.mark.parametrize("kind", KINDS)
@given(st.lists(_VERBS, min_size=1, max_size=6))
@settings(max_examples=15, deadline=None)
def test_any_mix_of_verbs_leaves_what_a_dictionary_would(
    kind: str, verbs: list[tuple[str, Any]]
) -> None:
    bench = Bench(kind)
    model: Content = {}
    for step, (verb, what) in enumerate(verbs, start=1):
        model = applied(bench, model, verb, what, step)
        assert bench.content() == model, (verb, what)
    assert bench.pending() == []


# -- updates


@pytest.mark.parametrize("kind", KINDS)
def test_an_update_leaves_the_other_columns_alone(kind: str) -> None:
    bench = Bench(kind)
    bench.mine.upsert(rows(("a", "d0", 5, 1), ("b", "d0", 5, 1)))
    bench.mine.update(rows(("a", "d0", 0, None)), columns=["v"])  # its ts is not asked for
    assert bench.content() == {("d0", "a"): (5, None), ("d0", "b"): (5, 1)}


def test_an_update_that_is_older_than_the_row_loses_as_any_row_would() -> None:
    bench = Bench()
    bench.mine.upsert(rows(("a", "d0", 5, 1)))
    bench.mine.update(rows(("a", "d0", 4, 9)), columns=["v", "ts"])
    assert bench.content() == {("d0", "a"): (5, 1)}
    bench.mine.update(rows(("a", "d0", 6, 9)), columns=["v", "ts"])
    assert bench.content() == {("d0", "a"): (6, 9)}


def test_of_several_updates_of_a_row_the_latest_counts() -> None:
    bench = Bench()
    bench.mine.upsert(rows(("a", "d0", 1, 1)))
    bench.mine.update(rows(("a", "d0", 7, 7), ("a", "d0", 3, 3)), columns=["v", "ts"])
    assert bench.content() == {("d0", "a"): (7, 7)}
    bench.mine.update(rows(("a", "d0", 0, 8), ("a", "d0", 0, 9)), columns=["v"])
    assert bench.content() == {("d0", "a"): (7, 9)}, "without an ordering value, the last one"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("v", "not a list of names"),
        ([5], "not a list of names"),
        ([], "columns is empty"),
        (["w"], "the table has no such column"),
        (["id"], "identify the row"),
        (["v", "day"], "identify the row"),
        (["_hoodie_commit_time"], "the table has no such column"),
    ],
)
def test_columns_that_cannot_be_updated_are_refused(columns: Any, message: str) -> None:
    bench = Bench()
    bench.mine.upsert(rows(("a", "d0", 1, 1)))
    with pytest.raises(InvalidRequestError, match=message):
        bench.mine.update(rows(("a", "d0", 2, 2)), columns=columns)
    assert bench.content() == {("d0", "a"): (1, 1)}


@pytest.mark.parametrize("missing", ["id", "day", "v"])
def test_an_update_needs_the_key_the_partition_and_the_new_values(missing: str) -> None:
    bench = Bench()
    bench.mine.upsert(rows(("a", "d0", 1, 1)))
    given = rows(("a", "d0", 2, 2)).drop_columns([missing])
    with pytest.raises(InvalidRequestError, match=f"missing columns '{missing}'"):
        bench.mine.update(given, columns=["v"])
    assert bench.pending() == []


# -- partitions


@pytest.mark.parametrize(
    ("partitions", "message"),
    [("d0", r"Write partitions=\['d0'\]"), ("ALL", "is not known"), ([], "names none")],
)
def test_partitions_are_words_or_a_list(partitions: Any, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        Bench().mine.overwrite(rows(), partitions=partitions)


def test_partitions_of_a_table_without_any_cannot_be_named() -> None:
    bench = Bench(partition_by=())
    bench.mine.upsert(rows(("a", "d0", 1, 1)))
    with pytest.raises(InvalidRequestError, match="the table is not partitioned"):
        bench.mine.overwrite(rows(), partitions=["d0"])
    with pytest.raises(InvalidRequestError, match="the table is not partitioned"):
        bench.mine.delete_partitions(["d0"])
    bench.mine.overwrite(rows(("b", "d0", 0, 1)))
    assert bench.content() == {("d0", "b"): (0, 1)}


# -- bad rows and repeated calls, for every verb

VERBS: dict[str, Callable[[Any, Any, str | None], Any]] = {
    "upsert": lambda table, given, id_: table.upsert(given, write_id=id_),
    "append": lambda table, given, id_: table.append(given, write_id=id_),
    "new keys": lambda table, given, id_: table.append(given, require_new_keys=True, write_id=id_),
    "update": lambda table, given, id_: table.update(given, columns=["v", "ts"], write_id=id_),
    "delete": lambda table, given, id_: table.delete(given, write_id=id_),
    "overwrite": lambda table, given, id_: table.overwrite(given, write_id=id_),
}
BAD_ROWS = {
    "key": ((None, "d0", 1, 1), "no record key"),
    "ordering": (("x", "d0", None, 1), "no ordering value"),
    "partition": (("x", "../x", 1, 1), "cannot be partitions"),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("what", BAD_ROWS)
def test_a_bad_row_stops_the_write_and_leaves_no_file(verb: str, what: str) -> None:
    bench = Bench()
    bench.mine.upsert(rows(("a", "d0", 1, 1)))
    before = [s.path for s in bench.storage.list("d0")]
    row, message = BAD_ROWS[what]
    with pytest.raises(InvalidRequestError, match=message):
        VERBS[verb](bench.mine, rows(("z", "d0", 9, 9), row), None)  # type: ignore[arg-type]
    assert bench.content() == {("d0", "a"): (1, 1)}
    assert [s.path for s in bench.storage.list("d0")] == before
    assert bench.pending() == []


EMPTY = {
    "other columns": (pa.table({"zzz": pa.array([], pa.string())}), "'?zzz'?|missing"),
    "no columns": (pa.table({}), "missing"),
    "other types": (SCHEMA.set(3, pa.field("v", pa.bool_())).empty_table(), "bool cannot become"),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("what", EMPTY)
def test_a_frame_without_rows_is_checked_as_any_other(verb: str, what: str) -> None:
    bench = Bench()
    bench.mine.upsert(rows(("a", "d0", 1, 1)))
    before = {stat.path for stat in bench.storage.list("")}
    given, message = EMPTY[what]
    with pytest.raises(InvalidRequestError, match=message):
        VERBS[verb](bench.mine, given, None)
    assert {stat.path for stat in bench.storage.list("")} == before
    sound = VERBS[verb](bench.mine, SCHEMA.empty_table(), None)
    assert (sound.rows, sound.deletes) == (0, 0)
    assert bench.content() == {("d0", "a"): (1, 1)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_says_when_the_write_was_requested_and_when_it_completed(kind: str) -> None:
    bench = Bench(kind)
    bench.mine.upsert(rows(("a", "d0", 1, 1)))
    result = bench.mine.upsert(rows(("b", "d0", 1, 1)))
    states = bench.table().inspect.timeline().to_pylist()
    assert (result.requested, result.completed) in [
        (row["requested"], row["completed"]) for row in states
    ]
    assert result.requested == result.instant < result.completed
    seen = [bench.table().read(as_of=time, columns=["id"]) for time in (result.requested, result)]
    assert [scan.to_arrow().num_rows for scan in seen] == [1, 2]


#: Verb → what it counts as rows and deletes, in logs and in base files.
COUNTS: dict[str, tuple[Callable[[Any], Any], tuple[int, int], tuple[int, int]]] = {
    "late row": (lambda table: table.upsert(rows(("a", "d0", 1, 7))), (1, 0), (0, 0)),
    "late delete": (lambda table: table.delete(rows(("a", "d0", 1, 7))), (0, 1), (0, 0)),
    "delete of an absent key": (
        lambda table: table.delete(rows(("z", "d0", 9, 7))),
        (0, 1),
        (0, 0),
    ),
    "new row": (lambda table: table.upsert(rows(("b", "d0", 1, 7))), (1, 0), (1, 0)),
    "delete": (lambda table: table.delete(rows(("a", "d0", 9, 7))), (0, 1), (0, 1)),
}


@pytest.mark.parametrize("what", COUNTS)
def test_counts_are_of_what_was_written(what: str) -> None:
    act, in_logs, in_base_files = COUNTS[what]
    for kind, counts in (("nbcc", in_logs), ("cow", in_base_files)):
        bench = Bench(kind)
        bench.mine.upsert(rows(("a", "d0", 5, 1)))
        result = act(bench.mine)
        assert (result.rows, result.deletes) == counts, kind


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", ["nbcc", "cow"])
def test_a_repeated_call_with_one_write_id_writes_once(verb: str, kind: str) -> None:
    bench = Bench(kind)
    bench.mine.upsert(rows(("a", "d0", 1, 1)))
    given = rows(("z", "d0", 9, 9))
    first = VERBS[verb](bench.mine, given, "job 7")
    after = bench.content()
    bench.mine.upsert(rows(("z", "d0", 20, 20), ("a", "d0", 20, 20)))
    later = bench.content()
    again = VERBS[verb](bench.table("again"), given, "job 7")
    assert (again.instant, again.completed) == (first.instant, first.completed)
    assert (first.repeated, again.repeated) == (False, True)
    assert bench.content() == later != after
