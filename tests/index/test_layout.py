"""A layout numbers the file groups of a partition, whoever named them."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest

from pyhudi.errors import UnsupportedTableError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.index.layout import SimpleLayout, SimpleRule
from pyhudi.index.simple_bucket import bucket_ids, file_id

BUCKETS = SimpleBuckets(4, ("id",))
RULE = SimpleRule(BUCKETS)
HUDI_ID = "00000002-57eb-4d0f-a1b2-6b1f3c1d2e3f-0"


def test_every_bucket_has_a_group_and_its_number() -> None:
    layout = RULE.layout_of("d", [HUDI_ID, file_id(1)])
    groups = [layout.group(ordinal) for ordinal in range(layout.size)]
    assert [group.file_id for group in groups] == [file_id(0), file_id(1), HUDI_ID, file_id(3)]
    assert [layout.ordinal(group.file_id) for group in groups] == [0, 1, 2, 3]
    assert all(map(layout.has, groups))
    assert layout.ordinal(file_id(2)) == 2


@pytest.mark.parametrize(
    "group",
    [
        FileGroupId("d", file_id(2)),  # another engine's stands there
        FileGroupId("e", HUDI_ID),
        FileGroupId("d", file_id(4)),
        FileGroupId("d", "a60f2d98-9b08-40f7-97c2-e640c52e66c8-2"),
    ],
)
def test_other_groups_are_none_of_its(group: FileGroupId) -> None:
    assert not RULE.layout_of("d", [HUDI_ID]).has(group)


def test_a_file_group_without_a_bucket_is_refused() -> None:
    with pytest.raises(UnsupportedTableError, match="has no bucket"):
        RULE.layout("d").ordinal("a60f2d98-9b08-40f7-97c2-e640c52e66c8-2")


def test_keys_are_assigned_to_buckets() -> None:
    keys = pa.array([f"k{n}" for n in range(50)])
    assigned = RULE.layout("d").assign(keys)
    assert assigned.dtype == np.int32
    assert assigned.tolist() == bucket_ids(keys, ["id"], 4).to_pylist()
    assert RULE.layout("d").assignment == RULE.layout_of("e", [HUDI_ID]).assignment
    assert (
        RULE.layout("d").assignment != SimpleRule(SimpleBuckets(5, ("id",))).layout("d").assignment
    )


def test_only_partitions_in_which_ids_differ_have_a_layout_of_their_own() -> None:
    groups = [FileGroupId("d", HUDI_ID), FileGroupId("d", file_id(0)), FileGroupId("e", file_id(2))]
    assert RULE.layouts_of(groups) == {"d": SimpleLayout("d", BUCKETS, {2: HUDI_ID})}
    assert RULE.layout_of("e", [file_id(n) for n in range(4)]) == RULE.layout("e")


def test_a_layout_travels() -> None:
    layout = RULE.layout_of("d", [HUDI_ID])
    assert pickle.loads(pickle.dumps(layout)) == layout
