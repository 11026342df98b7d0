"""`read(where=p)` is filtering `read()`, whatever was merged and pruned on the way."""

from __future__ import annotations

from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyhudi
from handmade import HandmadeTable, at
from pyhudi.plan.predicate.binding import bind
from pyhudi.storage.open import open_storage

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("part", pa.string()),
        ("ts", pa.int64()),
        ("n", pa.int32()),
        ("v", pa.string()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
PARTITIONS = ("x", "y")
_tables = count()

ids = st.sampled_from([f"k{n}" for n in range(6)])
rows = st.fixed_dictionaries(
    {
        "id": ids,
        "ts": st.integers(0, 4),
        "n": st.one_of(st.none(), st.integers(-2, 2)),
        "v": st.one_of(st.none(), st.sampled_from(["", "a", "b", "zz"])),
        "_hoodie_is_deleted": st.sampled_from([None, False, False, True]),
    }
)
many_rows = st.lists(rows, min_size=1, max_size=5)
base_rows = st.lists(rows, max_size=6, unique_by=lambda row: row["id"])
blocks = st.one_of(
    st.tuples(st.just("rows"), many_rows),
    st.tuples(st.just("avro"), many_rows),
    st.tuples(st.just("partial n"), many_rows),
    st.tuples(st.just("partial v"), many_rows),
    st.tuples(st.just("deletes"), st.lists(ids, min_size=1, max_size=3)),
    st.tuples(st.just("timed deletes"), st.lists(ids, min_size=1, max_size=3)),
)
histories = st.tuples(base_rows, st.lists(blocks, max_size=4))

literals = st.sampled_from(["n = 1", "n <> 0", "n IS NULL", "n < 0", "n IN (1, 2)", "n >= 1"])
texts = st.sampled_from(["v = 'a'", "v > 'a'", "v LIKE 'z%'", "v IS NOT NULL", "v <=> NULL"])
keys = st.sampled_from(
    ["id = 'k1'", "id > 'k2'", "id IN ('k0', 'k5')", "NOT id < 'k3'", "id IS NULL", "id <=> NULL"]
)
places = st.sampled_from(["part = 'x'", "part <> 'x'", "part IN ('y', 'q')", "part > 'x'"])
atoms = st.one_of(literals, texts, keys, places)
predicates = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]} AND {pair[1]})"),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]} OR {pair[1]})"),
        inner.map(lambda one: f"NOT ({one})"),
    ),
    max_leaves=5,
)


def made_table(ordering: str, history: dict[str, Any]) -> pyhudi.Table:
    storage = open_storage(f"memory://where-{next(_tables)}")
    table = HandmadeTable(storage, SCHEMA, ordering=ordering, partition_by="part")
    files = [
        table.base(1, [{**row, "part": part} for row in base], partition=part, row_group_rows=2)
        for part, (base, _) in history.items()
        if base
    ]
    table.begin(1)
    table.complete(1, 2, files)
    for part, (_, logs) in history.items():
        for number, (kind, content) in enumerate(logs):
            time = 10 + 2 * number
            path = table.log(time, log_block(table, time, part, kind, content), partition=part)
            table.begin(time)
            table.complete(time, time + 1, [path])
    return pyhudi.open_table(storage.uri)


def log_block(table: HandmadeTable, time: int, part: str, kind: str, content: Any) -> bytes:
    if kind == "deletes":
        return table.deletes_block(time, content)
    if kind == "timed deletes":
        return table.deletes_block(time, content, pa.array([2] * len(content), pa.int64()))
    filled = [{**row, "part": part} for row in content]
    columns = ["ts", kind[-1]] if kind.startswith("partial") else None
    return table.rows_block(time, filled, columns=columns, avro=kind == "avro")


def lines(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.parametrize("ordering", ["ts", ""], ids=["event time", "commit time"])
@given(histories, histories, predicates)
@settings(deadline=None, max_examples=120)
def test_reading_where_a_predicate_holds_equals_filtering_the_whole_read(
    ordering: str, first: Any, second: Any, where: str
) -> None:
    table = made_table(ordering, dict(zip(PARTITIONS, (first, second), strict=True)))
    everything = table.read().to_arrow()
    batch = everything.combine_chunks().to_batches()
    kept = [b.filter(bind(where, everything.schema).mask(b)) for b in batch]
    expected = pa.Table.from_batches(kept, everything.schema)
    assert lines(table.read(where=where).to_arrow()) == lines(expected)
    narrow = table.read(where=where, columns=["id"]).to_arrow()
    assert lines(narrow) == lines(expected.select(["id"]))


def test_a_predicate_on_the_partition_opens_no_other_partition() -> None:
    storage = open_storage(f"memory://where-{next(_tables)}")
    made = HandmadeTable(storage, SCHEMA, ordering="ts", partition_by="part")
    row = {"id": "a", "ts": 1, "n": 1, "v": "", "_hoodie_is_deleted": None}
    files = [made.base(1, [{**row, "part": p}], partition=p) for p in PARTITIONS]
    made.begin(1)
    made.complete(1, 2, files)
    table = pyhudi.open_table(storage.uri)
    plan = table.read(where="part = 'y'").plan
    assert [read.slice.partition for read in plan.reads] == ["y"]
    assert len(table.read(where="n = 1").plan.reads) == 2


def test_row_groups_that_cannot_match_are_not_read() -> None:
    storage = open_storage(f"memory://where-{next(_tables)}")
    schema = pa.schema([("id", pa.string()), ("n", pa.int32())])
    made = HandmadeTable(storage, schema)
    rows = [{"id": f"{n:03}", "n": n} for n in range(100)]
    made.begin(1)
    made.complete(1, 2, [made.base(1, rows, row_group_rows=10)])
    table = pyhudi.open_table(storage.uri)
    batches = list(table.read(where="n BETWEEN 35 AND 36", columns=["n"]).to_batches())
    assert [b.to_pydict() for b in batches] == [{"n": [35, 36]}]

    # With a log on the slice, only the record key may prune: the log may change n.
    made.begin(3)
    made.complete(3, 4, [made.log(3, made.rows_block(3, [{"id": "090", "n": 35}]))])
    found = table.read(where="n BETWEEN 35 AND 36", columns=["id"]).to_arrow()
    assert sorted(found["id"].to_pylist()) == ["035", "036", "090"]
    found = table.read(where="id = '090'", columns=["n"], as_of=at(4)).to_arrow()
    assert found["n"].to_pylist() == [35]
