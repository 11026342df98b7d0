"""Rows go to the file group that the layout of their partition assigns to their key."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.errors import InvalidRequestError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.properties import TableProperties
from pyhudi.format.table.table_config import TableConfig
from pyhudi.index.layout import SimpleRule
from pyhudi.index.routing import PreparedBatch, RoutedRows, Routing, prepared
from pyhudi.index.simple_bucket import bucket_ids, bucket_of_file, file_id


def config(keys: str = "id", partitions: str = "day") -> TableConfig:
    return TableConfig.of(
        TableProperties(
            {
                "hoodie.table.name": "t",
                "hoodie.table.type": "MERGE_ON_READ",
                "hoodie.table.version": "9",
                "hoodie.table.recordkey.fields": keys,
                "hoodie.table.partition.fields": partitions,
                "hoodie.table.ordering.fields": "ts",
                "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
            }
        )
    )


def batch_of(rows: Sequence[tuple[str, str | None, int]]) -> pa.RecordBatch:
    ids, days, order = ([row[at] for row in rows] for at in range(3))
    types = {"id": pa.string(), "day": pa.string(), "n": pa.int64()}
    columns = zip((ids, days, order), types.values(), strict=True)
    return pa.RecordBatch.from_arrays([pa.array(v, t) for v, t in columns], list(types))


ROWS = st.lists(
    st.tuples(st.text(min_size=1, max_size=3), st.none() | st.sampled_from("zéa_ "), st.just(0))
).map(lambda rows: [(key, day, n) for n, (key, day, _) in enumerate(rows)])

HUDI_ID = "00000002-57eb-4d0f-a1b2-6b1f3c1d2e3f-0"


def simple(count: int, *hash_fields: str) -> Routing:
    return Routing(SimpleRule(SimpleBuckets(count, hash_fields or ("id",))))


def split(batch: pa.RecordBatch, count: int, **of_config: str) -> list[RoutedRows]:
    return list(simple(count).split(prepared(batch, config(**of_config))))


@settings(deadline=None, max_examples=50)
@given(ROWS, st.integers(1, 5))
def test_every_row_is_in_its_group_once_in_the_order_it_came(
    rows: list[tuple[str, str | None, int]], count: int
) -> None:
    groups = split(batch_of(rows), count)
    names = [(routed.group.partition.encode(), routed.group.file_id) for routed in groups]
    assert names == sorted(set(names))
    for routed in groups:
        assert len(routed.keys) == routed.rows.num_rows > 0
        assert routed.keys.to_pylist() == routed.rows.column("id").to_pylist()
        (bucket,) = set(bucket_ids(routed.keys, ["id"], count).to_pylist())
        assert routed.group.file_id == file_id(bucket)
        days = {day or "__HIVE_DEFAULT_PARTITION__" for day in routed.rows["day"].to_pylist()}
        assert days == {routed.group.partition}
        numbers = routed.rows.column("n").to_pylist()
        assert numbers == sorted(numbers)
    assert sorted(n for g in groups for n in g.rows.column("n").to_pylist()) == [*range(len(rows))]


def shown(groups: list[RoutedRows]) -> list[tuple[FileGroupId, list[str], list[int]]]:
    return [(g.group, g.keys.to_pylist(), g.rows.column("n").to_pylist()) for g in groups]


def test_groups_are_the_same_however_rows_are_cut() -> None:
    rows = [(f"k{n % 7}", f"d{n % 3}", n) for n in range(50)]
    whole = batch_of([("x", "y", -1), *rows, ("x", "y", -1)])
    assert shown(split(whole[1:51], 4)) == shown(split(batch_of(rows), 4))


def test_a_batch_of_one_group_is_not_copied() -> None:
    batch = batch_of([("a", "d", 0), ("b", "d", 1)])
    (routed,) = split(batch, 1)
    assert routed.rows.column("n").buffers()[1].address == batch.column("n").buffers()[1].address


def test_no_rows_make_no_groups() -> None:
    assert split(batch_of([]), 4) == []
    assert list(halves().split(prepared(batch_of([]), config()))) == []


def test_rows_of_an_unpartitioned_table_have_the_empty_path() -> None:
    (routed,) = split(batch_of([("a", "d", 0)]), 4, partitions="")
    assert routed.group.partition == ""


COMPOSITE = pa.RecordBatch.from_pydict({"id": ["1"] * 2, "nm": ["a", "b"], "day": ["d"] * 2})


def test_hash_fields_keep_keys_together() -> None:
    batch = prepared(COMPOSITE, config("id,nm"))
    assert [routed.keys.to_pylist() for routed in simple(997, "id").split(batch)] == [
        ["id:1,nm:a", "id:1,nm:b"]
    ]
    assert len(list(simple(997, "id", "nm").split(batch))) == 2


def test_bad_rows_are_found_before_the_first_group_is_given() -> None:
    with pytest.raises(InvalidRequestError, match="row 1"):
        prepared(batch_of([("a", "d", 0), ("", "d", 1)]), config())


# ---- file groups that other engines named


def test_rows_go_to_the_group_that_a_bucket_has() -> None:
    rule = SimpleRule(SimpleBuckets(4, ("id",)))
    routing = Routing(rule, rule.layouts_of([FileGroupId("d", HUDI_ID), known(0)]))
    rows = [(f"k{n}", day, n) for n in range(50) for day in "de"]
    found = [routed.group for routed in routing.split(prepared(batch_of(rows), config()))]
    ours = [file_id(bucket) for bucket in range(4)]
    theirs = [HUDI_ID if bucket == 2 else id_ for bucket, id_ in enumerate(ours)]
    assert found == [
        FileGroupId(day, id_) for day, ids in (("d", theirs), ("e", ours)) for id_ in ids
    ]


def known(bucket: int) -> FileGroupId:
    return FileGroupId("d", file_id(bucket))


def test_a_group_that_an_earlier_routing_had_has_a_successor() -> None:
    rule = SimpleRule(SimpleBuckets(4, ("id",)))
    routing = Routing(rule, rule.layouts_of([FileGroupId("d", HUDI_ID)]))
    assert routing.successor(known(2)) == FileGroupId("d", HUDI_ID)
    assert routing.successor(known(1)) == known(1)
    assert simple(4).successor(FileGroupId("d", HUDI_ID)) == known(2)


# ---- partitions that differ


@dataclass(frozen=True)
class HalfLayout:
    """Two groups: of keys before a letter, and of the others."""

    partition: str
    letter: str
    size = 2

    @property
    def assignment(self) -> str:
        return self.letter

    @property
    def hashing(self) -> str:
        return self.letter

    def hashes(self, keys: pa.Array) -> npt.NDArray[np.int32]:
        return np.array([key >= self.letter for key in keys.to_pylist()], np.int32)

    def place(self, hashes: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        return hashes

    def assign(self, keys: pa.Array) -> npt.NDArray[np.int32]:
        return self.place(self.hashes(keys))

    def group(self, ordinal: int) -> FileGroupId:
        return FileGroupId(self.partition, f"{self.letter}-{ordinal}")

    def ordinal(self, file_id: str) -> int:
        return int(file_id.rpartition("-")[2])

    def has(self, group: FileGroupId) -> bool:
        return group == self.group(self.ordinal(group.file_id))


def halves() -> Routing:
    own = {"m": HalfLayout("m", "m"), "t": HalfLayout("t", "t")}
    return Routing(SimpleRule(SimpleBuckets(3, ("id",))), own)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.sampled_from("almstz"), st.sampled_from("mtx"))))
def test_each_partition_goes_by_its_own_layout(rows: list[tuple[str, str]]) -> None:
    batch = prepared(batch_of([(key, day, n) for n, (key, day) in enumerate(rows)]), config())
    routing = pickle.loads(pickle.dumps(halves()))
    found = list(routing.split(batch))
    assert sorted(n for routed in found for n in routed.rows["n"].to_pylist()) == [
        *range(len(rows))
    ]
    assert len({routed.group for routed in found}) == len(found)
    for routed in found:
        layout = routing.layout(routed.group.partition)
        ordinal = layout.ordinal(routed.group.file_id)
        assert set(layout.assign(routed.keys).tolist()) == {ordinal}
        assert set(routed.rows["day"].to_pylist()) == {routed.group.partition}
    targets = routing.targets(batch)
    by_row = {n: routed.group for routed in found for n in routed.rows["n"].to_pylist()}
    assert [targets.group(row) for row in range(len(rows))] == [by_row[n] for n in range(len(rows))]


def test_keys_have_a_group_in_every_partition() -> None:
    keys = pa.array(["a", "p"])
    found = list(halves().groups_of(keys, ["m", "t", "x"]))
    buckets = sorted(set(bucket_ids(keys, ["id"], 3).to_pylist()))
    assert found[:3] == [FileGroupId("m", "m-0"), FileGroupId("m", "m-1"), FileGroupId("t", "t-0")]
    assert [bucket_of_file(group.file_id) for group in found[3:]] == buckets


def test_layouts_are_shared_only_where_they_assign_alike() -> None:
    assert halves().shared is None
    rule = SimpleRule(SimpleBuckets(4, ("id",)))
    named = Routing(rule, rule.layouts_of([FileGroupId("d", HUDI_ID)]))
    assert named.shared == rule.layout("")


def test_a_batch_may_be_cut_before_it_is_routed() -> None:
    batch = prepared(batch_of([("a", "d", 0), ("b", "e", 1), ("c", "d", 2)]), config())
    some = batch.take(pa.array([2, 1]))
    assert isinstance(some, PreparedBatch)
    want = batch_of([("c", "d", 2), ("b", "e", 1)])
    assert shown(list(simple(2).split(some))) == shown(split(want, 2))
