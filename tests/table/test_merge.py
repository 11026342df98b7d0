"""Merging, against a model that folds one record after the other in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.table.merge import (
    LogDeletes,
    LogRows,
    MergeRule,
    NotMine,
    fold_logs,
    merge_slice,
)

SCHEMA = pa.schema(
    [
        ("_hoodie_record_key", pa.string()),
        ("ts", pa.int64()),
        ("a", pa.string()),
        ("b", pa.int32()),
    ]
)
COLUMNS = tuple(SCHEMA.names)


@dataclass(frozen=True)
class Row:
    key: str
    ts: int | None
    a: str | None
    b: int | None
    deletes: bool = False

    @property
    def values(self) -> dict[str, Any]:
        return dict(zip(COLUMNS, (self.key, self.ts, self.a, self.b), strict=True))


@dataclass(frozen=True)
class Delete:
    key: str
    ts: int | None  # None: a commit-time delete


@dataclass(frozen=True)
class Block:
    entries: tuple[Row, ...] | tuple[Delete, ...]
    columns: tuple[str, ...] | None = None  # of a partial block, besides the key


# ---- the model


@dataclass
class State:
    """One record while it is folded: its columns by name, or a delete."""

    ts: int | None
    values: dict[str, Any] | None  # None: deleted
    commit_time: bool = False
    of_delete_block: bool = False
    unset: dict[str, Any] = field(default_factory=dict)  # shown where nobody sets the column


def lowest(ts: int | None) -> float:
    return float("-inf") if ts is None else ts


def entry_state(block: Block, entry: Row | Delete, rule: MergeRule) -> State:
    if isinstance(entry, Delete):
        return State(entry.ts, None, commit_time=entry.ts is None, of_delete_block=True)
    if entry.deletes:
        return State(entry.ts, None, commit_time=bool(rule.ordering) and entry.ts is None)
    columns = COLUMNS if block.columns is None else ("_hoodie_record_key", *block.columns)
    values = {name: entry.values[name] for name in columns}
    return row_state(values, rule)


def row_state(values: dict[str, Any], rule: MergeRule) -> State:
    mine = {k: v for k, v in values.items() if is_mine(v, rule)}
    return State(values["ts"], mine, unset={k: v for k, v in values.items() if k not in mine})


def is_mine(value: Any, rule: MergeRule) -> bool:
    if rule.not_mine is NotMine.NULLS:
        return value is not None
    return not (rule.not_mine is NotMine.MARKER and value == rule.marker)


def combined(old: State, new: State, rule: MergeRule) -> State:
    if rule.ordering and old.commit_time and new.of_delete_block:
        return old  # gone already
    newer = not rule.ordering or new.commit_time or old.commit_time
    newer = newer or lowest(new.ts) >= lowest(old.ts)
    high, low = (new, old) if newer else (old, new)
    if high.values is None or low.values is None:
        return high
    return State(high.ts, {**low.values, **high.values}, unset={**high.unset, **low.unset})


def model_rows(base: Sequence[Row], blocks: Sequence[Block], rule: MergeRule) -> list[Any]:
    folded: dict[str, State] = {}
    for block in blocks:
        for entry in block.entries:
            state = entry_state(block, entry, rule)
            old = folded.get(entry.key)
            folded[entry.key] = state if old is None else combined(old, state, rule)
    rows = []
    for row in base:
        met = folded.pop(row.key, None)
        before = row_state(row.values, rule)
        after = before if met is None else combined(before, met, rule)
        if after.values is not None:
            rows.append(dict.fromkeys(COLUMNS) | after.unset | after.values)
    left = (s for s in folded.values() if s.values is not None)
    rows += [dict.fromkeys(COLUMNS) | s.unset | (s.values or {}) for s in left]
    return sorted(rows, key=repr)


# ---- the real thing


def log_block(block: Block) -> LogRows | LogDeletes:
    if block.entries and isinstance(block.entries[0], Delete):
        ordering = pa.array([entry.ts for entry in block.entries], pa.int64())
        keys = pa.array([entry.key for entry in block.entries])
        return LogDeletes(keys, (ordering,), ordering.is_null())
    rows = [entry for entry in block.entries if isinstance(entry, Row)]
    batch = pa.RecordBatch.from_pylist([row.values for row in rows], SCHEMA)
    columns = None
    if block.columns is not None:
        columns = frozenset({"_hoodie_record_key", *block.columns})
        nulls = [n for n in COLUMNS if n not in columns]
        for name in nulls:
            index = batch.schema.get_field_index(name)
            batch = batch.set_column(
                index, SCHEMA.field(name), pa.nulls(len(rows), SCHEMA.field(name).type)
            )
    return LogRows(batch, pa.array([row.deletes for row in rows], pa.bool_()), columns)


def merged_rows(base: Sequence[Row], blocks: Sequence[Block], rule: MergeRule) -> list[Any]:
    logs = [log_block(block) for block in blocks]
    if not rule.ordering:
        logs = [
            LogDeletes(log.keys, (), log.unconditional) if isinstance(log, LogDeletes) else log
            for log in logs
        ]
    batches = [
        pa.RecordBatch.from_pylist([row.values for row in base[n : n + 2]], SCHEMA)
        for n in range(0, len(base), 2)
    ]
    found = merge_slice(batches, fold_logs(logs, SCHEMA, rule), rule)
    return sorted((row for batch in found for row in batch.to_pylist()), key=repr)


keys = st.sampled_from("pqrst")
stamps = st.one_of(st.none(), st.integers(0, 4))
rows = st.builds(
    Row,
    keys,
    stamps,
    st.one_of(st.none(), st.just("?"), st.text("xyz", max_size=2)),
    st.one_of(st.none(), st.integers(0, 3)),
    st.sampled_from([False, False, False, True]),
)
whole_blocks = st.builds(Block, st.lists(rows, min_size=1, max_size=4).map(tuple))
delete_blocks = st.builds(
    Block, st.lists(st.builds(Delete, keys, stamps), min_size=1, max_size=3).map(tuple)
)
partial_blocks = st.builds(
    lambda entries, columns: Block(tuple(entries), ("ts", *columns)),
    st.lists(rows, min_size=1, max_size=4),
    st.sampled_from([("a",), ("b",), ("a", "b"), ()]),
)
base_rows = st.lists(
    st.builds(Row, keys, stamps, st.one_of(st.none(), st.just("?"), st.text("xyz")), stamps),
    max_size=5,
    unique_by=lambda row: row.key,
)

RULES = {
    "commit time": MergeRule(),
    "event time": MergeRule(("ts",)),
    "commit time, nulls are not mine": MergeRule((), NotMine.NULLS),
    "event time, nulls are not mine": MergeRule(("ts",), NotMine.NULLS),
    "event time, a marker is not mine": MergeRule(("ts",), NotMine.MARKER, "?"),
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@given(base=base_rows, blocks=st.lists(st.one_of(whole_blocks, delete_blocks), min_size=1))
@settings(deadline=None, max_examples=150)
def test_merging_whole_rows_equals_folding_them_one_by_one(
    rule: MergeRule, base: list[Row], blocks: list[Block]
) -> None:
    assert merged_rows(base, blocks, rule) == model_rows(base, blocks, rule)


@pytest.mark.parametrize("name", ["commit time", "event time"])
@given(
    base=base_rows,
    blocks=st.lists(st.one_of(whole_blocks, delete_blocks, partial_blocks), min_size=1),
)
@settings(deadline=None, max_examples=200)
def test_merging_partial_rows_equals_folding_them_one_by_one(
    name: str, base: list[Row], blocks: list[Block]
) -> None:
    assert merged_rows(base, blocks, RULES[name]) == model_rows(base, blocks, RULES[name])


EVENT_TIME, COMMIT_TIME = RULES["event time"], RULES["commit time"]
BASE = [Row("p", 10, "1", 1)]

#: What Hudi 1.2.0 does with partial blocks, as measured on its own tables.
PARTIAL = [
    ("late against the base", EVENT_TIME, [("a", 5, "2")], ("1", 1, 10)),
    ("a tie", EVENT_TIME, [("a", 10, "2")], ("2", 1, 10)),
    ("a later, then b earlier", EVENT_TIME, [("a", 20, "2"), ("b", 15, 3)], ("2", 3, 20)),
    ("explicit null", EVENT_TIME, [("a", 30, None)], (None, 1, 30)),
    ("commit time, then earlier", COMMIT_TIME, [("a", 20, "2"), ("b", 15, 3)], ("2", 3, 15)),
    ("commit time, late", COMMIT_TIME, [("a", 5, "2")], ("2", 1, 5)),
    ("commit time, explicit null", COMMIT_TIME, [("a", 30, None)], (None, 1, 30)),
]


@pytest.mark.parametrize(
    ("rule", "logs", "row"), [p[1:] for p in PARTIAL], ids=[p[0] for p in PARTIAL]
)
def test_partial_blocks_merge_as_hudi_merges_them(
    rule: MergeRule, logs: list[tuple[str, int, Any]], row: tuple[Any, ...]
) -> None:
    blocks = [
        Block((Row("p", ts, **{"a": None, "b": None, column: value}),), ("ts", column))
        for column, ts, value in logs
    ]
    a, b, ts = row
    (found,) = merged_rows(BASE, blocks, rule)
    assert (found["a"], found["b"], found["ts"]) == (a, b, ts)


#: Base row ts=5, then one delete block: what is left of it.
DELETES = [
    ("an older delete loses", 4, 1),
    ("a delete of the same time wins", 5, 0),
    ("a newer delete wins", 6, 0),
    ("a delete without time wins", None, 0),
]


@pytest.mark.parametrize(("ts", "left"), [d[1:] for d in DELETES], ids=[d[0] for d in DELETES])
def test_deletes_compare_by_ordering_value(ts: int | None, left: int) -> None:
    found = merged_rows([Row("p", 5, "x", 1)], [Block((Delete("p", ts),))], EVENT_TIME)
    assert len(found) == left


def test_a_delete_of_a_deleted_record_says_nothing_new() -> None:
    # The commit-time delete stays, and it beats a base row that the second delete would not.
    blocks = [Block((Delete("p", None),)), Block((Delete("p", 1),))]
    assert merged_rows([Row("p", 5, "old", 1)], blocks, EVENT_TIME) == []
    blocks.append(Block((Row("p", 5, "new", 1),)))
    (found,) = merged_rows([Row("p", 5, "old", 1)], blocks, EVENT_TIME)
    assert found["a"] == "new"


def test_meta_columns_may_come_from_a_late_row() -> None:
    schema = pa.schema([("_hoodie_commit_time", pa.string()), *SCHEMA])
    rule = MergeRule(("ts",), NotMine.NULLS, latest_meta=True)

    def batch(commit: str, ts: int, a: str | None) -> pa.RecordBatch:
        row = {"_hoodie_commit_time": commit, **Row("p", ts, a, None).values}
        return pa.RecordBatch.from_pylist([row], schema)

    logs = [LogRows(batch(c, ts, "log"), pa.array([False])) for c, ts in (("2", 4), ("3", 3))]
    merged = merge_slice([batch("1", 5, None)], fold_logs(logs, schema, rule), rule)
    rows = [row for found in merged for row in found.to_pylist()]
    assert rows == batch("3", 5, "log").to_pylist()


def test_an_old_base_row_comes_back_when_a_lower_insert_follows_a_commit_time_delete() -> None:
    # Hudi and hudi-rs both do this: the logs fold to the insert, which loses against the base.
    blocks = [Block((Delete("p", None),)), Block((Row("p", 1, "new", 1),))]
    (found,) = merged_rows([Row("p", 5, "old", 1)], blocks, EVENT_TIME)
    assert found["a"] == "old"


def test_only_the_first_of_duplicate_base_rows_meets_the_log() -> None:
    base = [Row("p", 1, "x", 1), Row("q", 1, "y", 1), Row("p", 1, "z", 1)]
    found = merged_rows(base, [Block((Delete("p", 2),))], EVENT_TIME)
    assert sorted(row["a"] for row in found) == ["y", "z"]


#: How often the log names the key, and which of its three base rows are left as they were.
NAMED = [(1, ["y", "z"]), (2, ["z"]), (3, []), (4, [])]


@pytest.mark.parametrize(("times", "left"), NAMED)
def test_as_many_duplicates_meet_the_log_as_one_block_names(times: int, left: list[str]) -> None:
    base = [Row("p", 1, a, 1) for a in "xyz"]
    block = Block(tuple(Row("p", 2, "new", n) for n in range(times)))
    found = merged_rows(base, [block], EVENT_TIME)
    assert sorted(row["a"] for row in found if row["a"] != "new") == left
    assert sum(row["a"] == "new" for row in found) == 3 - len(left)
    deleted = merged_rows(base, [Block((Delete("p", 2),) * times)], EVENT_TIME)
    assert sorted(row["a"] for row in deleted) == left


def test_a_marker_that_replaces_nothing_stays() -> None:
    rule = RULES["event time, a marker is not mine"]
    (found,) = merged_rows([], [Block((Row("p", 1, "?", 1),))], rule)
    assert found["a"] == "?"
