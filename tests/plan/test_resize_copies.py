"""Which writes a resize owes its children, and what can be told from the copies that are there."""

from __future__ import annotations

from typing import Any

import pytest

from handmade import at
from pyhudi.errors import CorruptTableError
from pyhudi.format.table.ring_file import RING_MAX, NodeTag, RingNode
from pyhudi.format.timeline.commit_metadata import CommitMetadata, WriteStat, stats_by_partition
from pyhudi.format.timeline.resize_plan import GroupChange, InputSlice, ResizePlan
from pyhudi.plan.resizing.copies import FoundCopies, found_copies, owed_copy

RESIZE, WRITE = at(10), at(20)


def change(partition: str, inputs: str, children: str) -> GroupChange:
    slices = tuple(InputSlice(f"{name}-0", None) for name in inputs)
    nodes = tuple(RingNode(RING_MAX - n, name, NodeTag.REPLACE) for n, name in enumerate(children))
    return GroupChange(partition, 0, slices, nodes)


PLAN = ResizePlan((change("p", "a", "xy"), change("p", "cb", "z"), change("q", "d", "vw")))


def log(partition: str, group: str, version: int = 1, **more: Any) -> WriteStat:
    name = f".{group}-0_{WRITE}.log.{version}_0-0-0"
    found: dict[str, Any] = {
        "file_id": f"{group}-0",
        "path": f"{partition}/{name}",
        "partition_path": partition,
        "file_size_in_bytes": 100,
        "log_files": (name,),
        **more,
    }
    return WriteStat(**found)


def metadata(*stats: WriteStat, **more: Any) -> CommitMetadata:
    return CommitMetadata(stats_by_partition(stats), **more)


def test_a_write_beside_the_inputs_owes_nothing() -> None:
    assert owed_copy(PLAN, 1, WRITE, metadata(log("p", "d"), log("q", "a"), log("p", "e"))) is None
    assert owed_copy(PLAN, 1, WRITE, metadata()) is None


def test_logs_come_by_the_place_of_their_input_on_the_ring_then_by_version() -> None:
    stats = [log("p", "b", 2), log("p", "b", 10), log("p", "c"), log("q", "d"), log("p", "a")]
    owed = owed_copy(PLAN, 7, WRITE, metadata(*stats))
    assert owed is not None
    names = {
        number: [
            found.path.rpartition("/")[2][1:].partition("-")[0] + str(found.name.version)
            for found in logs
        ]
        for number, logs in owed.logs.items()
    }
    assert names == {0: ["a1"], 1: ["c1", "b2", "b10"], 2: ["d1"]}
    assert (owed.number, owed.bytes) == (7, 500)
    assert owed.files == 1 * 2 + 3 * 1 + 1 * 2, "one in each child"


def test_row_images_of_change_capture_are_no_rows() -> None:
    name = f".a-0_{WRITE}.log.1_0-0-0.cdc"
    assert owed_copy(PLAN, 1, WRITE, metadata(log("p", "a", path=f"p/{name}"))) is None


@pytest.mark.parametrize(
    "wrote",
    [
        metadata(log("p", "a", path=f"p/a-0_0-0-0_{WRITE}.parquet", log_files=None)),
        metadata(log("p", "a", path=f"p/.a-0_{at(5)}.log.1_0-0-0")),
        metadata(log("p", "a", path="p/anything")),
        metadata(log("p", "a", file_size_in_bytes=None)),
        metadata(log("p", "a", log_files=("one", "two"))),
        metadata(log("p", "e"), partition_to_replace_file_ids={"q": ("d-0",)}),
    ],
    ids=["a base file", "another instant", "no data file", "no size", "several files", "replaced"],
)
def test_what_cannot_be_copied_is_an_error(wrote: CommitMetadata) -> None:
    with pytest.raises(CorruptTableError, match="cannot be copied"):
        owed_copy(PLAN, 1, WRITE, wrote)


def test_replacing_other_groups_is_none_of_our_business() -> None:
    replaced = {"p": ("e-0",), "q": ("a-0",)}
    wrote = metadata(log("p", "a"), partition_to_replace_file_ids=replaced)
    assert owed_copy(PLAN, 1, WRITE, wrote) is not None


# ---- what is there


def copy(group: str, version: int, partition: str = "p", resize: str = RESIZE) -> tuple[str, int]:
    return f"{partition}/.{group}-0_{resize}.log.{version}_0-0-0", version


def test_copies_are_known_by_their_names_alone() -> None:
    files = [
        copy("x", 2001),
        copy("x", 2000),
        copy("y", 1000),
        copy("w", 3000, "q"),
        copy("w", 9000, "p"),  # not a child of this partition
        copy("a", 9000),  # an input
        copy("x", 9000, resize=at(11)),
        (f"p/x-0_0-0-0_{RESIZE}.parquet", 1),
    ]
    found = found_copies(RESIZE, PLAN.groups, files)
    assert {n: [size for _, size in paths] for n, paths in found.paths.items()} == {
        1: [1000],
        2: [2000, 2001],
        3: [3000],
    }
    assert found.last == 3
    assert set(found.before(found.last)) == {1, 2}


def test_no_copy_is_none() -> None:
    assert found_copies(RESIZE, PLAN.groups, []) == FoundCopies({})
    assert FoundCopies({}).last == 0
