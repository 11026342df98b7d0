"""Base files of a resize's children: what the inputs' readers see, each row with its owner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_tables import MemoryTable
from pyhudi.errors import CorruptTableError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.index.children import Children
from pyhudi.index.ring_layout import RingLayout
from pyhudi.plan.scan import CommitFolders, merge_rule
from pyhudi.read.plan import Reader
from pyhudi.services.compaction.merge_slice import CompactionSpec, compact_slice
from pyhudi.services.compaction.run import compact
from pyhudi.services.resizing.child_bases import Rewrite, write_children
from pyhudi.storage.objects.markers import load_markers
from pyhudi.table.file_group import FileSlice
from pyhudi.table.file_slices import latest_slice
from pyhudi.table.schema import FILE_NAME
from pyhudi.timeline.completion import visible_now
from ring_children import equal_parts

SCHEMA = pa.schema(
    [pa.field("id", pa.string(), nullable=False), ("ts", pa.int64()), ("v", pa.string())]
)
REQUESTED = InstantTime("20990101000000000")


def a_table(buckets: int = 1) -> MemoryTable:
    return MemoryTable(SCHEMA, ordering="ts", buckets=SimpleBuckets(buckets))


def put(table: MemoryTable, keys: Sequence[str], stamp: int) -> None:
    rows = [{"id": key, "ts": stamp, "v": f"{key}{stamp}"} for key in keys]
    table.table("w").upsert(pa.Table.from_pylist(rows, SCHEMA))


def slices_of(table: MemoryTable) -> tuple[FileSlice, ...]:
    session = table.session("reader")
    state = session.current.load()
    times = Reader(session.loader).completion_times(state)
    now = visible_now(state.timeline)
    found = (latest_slice(group, times, now) for group in state.groups())
    return tuple(slice_ for slice_ in found if slice_ is not None)


def spec_of(table: MemoryTable) -> CompactionSpec:
    session = table.session("reader")
    return CompactionSpec(
        REQUESTED,
        session.schema.avro(),
        merge_rule(session.config),
        visible_now(session.current.load().timeline),
        CommitFolders.of(session.config),
    )


def rewrite(table: MemoryTable, layout: RingLayout) -> Rewrite:
    children = tuple(layout.group(number) for number in range(layout.size))
    return Rewrite(slices_of(table), Children(layout, children))


def rows_in(table: MemoryTable, stat: WriteStat) -> list[dict[str, Any]]:
    with table.storage.open(stat.data_path) as source:
        found: list[dict[str, Any]] = pq.read_table(source).to_pylist()
        return found


def without_file(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [repr({k: v for k, v in row.items() if k != FILE_NAME}) for row in rows]


def content(table: MemoryTable) -> list[str]:
    return sorted(without_file(table.table("r").read(meta=True).to_arrow().to_pylist()))


def check(table: MemoryTable, layout: RingLayout, stats: Sequence[WriteStat]) -> None:
    found = [rows_in(table, stat) for stat in stats]
    assert sorted(without_file([row for rows in found for row in rows])) == content(table)
    for ordinal, (stat, rows) in enumerate(zip(stats, found, strict=True)):
        assert stat.num_writes == len(rows)
        owners = layout.assign(pa.array([row["_hoodie_record_key"] for row in rows], pa.string()))
        assert set(owners.tolist()) <= {ordinal}
        name = stat.data_path.rpartition("/")[2]
        assert name == f"{layout.group(ordinal).file_id}_0-0-0_{REQUESTED}.parquet"
        assert {row[FILE_NAME] for row in rows} <= {name}


_keys = st.lists(st.sampled_from("klmnopqrst"), min_size=1, max_size=6, unique=True)
_steps = st.lists(
    st.tuples(st.sampled_from(["put", "delete", "compact"]), _keys, st.integers(0, 5))
)


@given(steps=_steps, inputs=st.integers(1, 3), parts=st.sampled_from([1, 2, 5]))
@settings(deadline=None, max_examples=25)
def test_children_hold_what_readers_of_the_inputs_see(
    steps: list[Any], inputs: int, parts: int
) -> None:
    table = a_table(inputs)
    put(table, "kmp", 1)
    for deed, keys, stamp in steps:
        if deed == "put":
            put(table, keys, stamp)
        elif deed == "delete":
            table.table("d").delete(pa.table({"id": keys}))
        else:
            compact(table.session("c"))
    layout = equal_parts(parts)
    check(table, layout, write_children(table.storage, spec_of(table), rewrite(table, layout)))


def test_rows_keep_the_order_that_a_compaction_gives_them() -> None:
    table = a_table()
    put(table, "zyxwvu", 1)
    compact(table.session("c"))
    put(table, "abcxw", 2)
    layout = equal_parts(3)
    stats = write_children(table.storage, spec_of(table), rewrite(table, layout))
    plan = compact(table.session("c"), dry_run=True).preview.plan
    [operation] = plan.operations or ()
    [whole] = [rows_in(table, compact_slice(table.storage, spec_of(table), operation))]
    for ordinal, stat in enumerate(stats):
        keys = pa.array([row["_hoodie_record_key"] for row in whole])
        mine = [
            k for k, o in zip(keys.to_pylist(), layout.assign(keys), strict=True) if o == ordinal
        ]
        assert [row["_hoodie_record_key"] for row in rows_in(table, stat)] == mine


def test_a_child_without_a_row_gets_an_empty_base_file() -> None:
    table = a_table()
    put(table, "k", 1)
    layout = equal_parts(8)
    stats = write_children(table.storage, spec_of(table), rewrite(table, layout))
    assert sorted(stat.num_writes or 0 for stat in stats) == [0] * 7 + [1]
    check(table, layout, stats)


def test_a_bucket_that_was_never_written_becomes_empty_children() -> None:
    table = a_table()
    put(table, "k", 1)
    layout = equal_parts(2)
    nothing = Rewrite((), rewrite(table, layout).children)
    stats = write_children(table.storage, spec_of(table), nothing)
    assert [stat.num_writes for stat in stats] == [0, 0]


def test_every_file_has_a_marker_and_a_second_executor_reads_only_what_is_there() -> None:
    table = a_table(2)
    put(table, "klmnop", 1)
    layout, spec = equal_parts(4), spec_of(table)
    work = rewrite(table, layout)
    first = write_children(table.storage, spec, work)
    marked = {marker.data_file for marker in load_markers(table.storage, REQUESTED)}
    assert marked == {stat.data_path for stat in first}
    for slice_ in work.slices:
        for log in slice_.logs:
            table.storage.delete(log.path)
    assert write_children(table.storage, spec, work) == first
    table.storage.delete(first[2].data_path)
    with pytest.raises(CorruptTableError, match="is gone"):
        write_children(table.storage, spec, work)


def test_an_executor_makes_what_another_did_not_and_keeps_the_rest() -> None:
    table = a_table()
    put(table, "klmnop", 1)
    layout, spec = equal_parts(4), spec_of(table)
    work = rewrite(table, layout)
    first = write_children(table.storage, spec, work)
    before = {stat.path: stat.etag for stat in table.storage.list("")}
    table.storage.delete(first[1].data_path)
    assert write_children(table.storage, spec, work) == first
    after = {stat.path: stat.etag for stat in table.storage.list("")}
    assert {path for path in before if before[path] != after[path]} == {first[1].data_path}


def test_rows_that_belong_to_no_child_are_never_given_away() -> None:
    table = a_table()
    put(table, "klmnop", 1)
    layout = equal_parts(4)
    children = Children(layout, (layout.group(0), layout.group(1)))
    with pytest.raises(CorruptTableError, match="another bucket"):
        write_children(table.storage, spec_of(table), Rewrite(slices_of(table), children))
    assert not [
        s for s in table.storage.list("") if REQUESTED in s.path and "parquet" in s.path[-8:]
    ]


def test_a_file_of_the_plan_that_is_cut_off_is_not_rewritten() -> None:
    table = a_table()
    put(table, "klmnop", 1)
    work = rewrite(table, equal_parts(2))
    spec = spec_of(table)
    sizes = {log.path: log.size + 1 for slice_ in slices_of(table) for log in slice_.logs}
    with pytest.raises(CorruptTableError, match="cannot be executed"):
        write_children(table.storage, replace(spec, sizes=sizes), work)


def test_children_number_the_groups_they_are_given() -> None:
    layout = equal_parts(8)
    keys = pa.array([f"k{n}" for n in range(200)])
    owners = layout.assign(keys)
    chosen = (5, 2)
    children = Children(layout, tuple(map(layout.group, chosen)))
    mine = keys.filter(pa.array([owner in chosen for owner in owners.tolist()]))
    expected = [chosen.index(owner) for owner in layout.assign(mine).tolist()]
    assert children.assign(mine).tolist() == expected
    assert [children.group(n) for n in (0, 1)] == [
        FileGroupId("", layout.group(n).file_id) for n in chosen
    ]
