"""Which writes a resize owes its children, and what can be told from the copies that are there."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handmade import at
from pyhudi.errors import CorruptTableError
from pyhudi.format.files.file_names import LogFileName
from pyhudi.format.table.ring_file import RING_MAX, NodeTag, RingNode
from pyhudi.format.timeline.commit_metadata import CommitMetadata, WriteStat, stats_by_partition
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.format.timeline.resize_plan import GroupChange, InputSlice, ResizePlan
from pyhudi.plan.resizing.copies import (
    PORTION_BYTES,
    PORTION_FILES,
    FoundCopies,
    OwedCopy,
    first_uncertain,
    found_copies,
    next_portion,
    owed_copy,
)
from pyhudi.table.file_group import LogFile

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


def test_beside_a_resize_that_hudi_can_execute_what_was_written_twice_is_not_owed() -> None:
    child = log("p", "x", path=f"p/.x-0_{RESIZE}.log.1_3-5-7")
    both = metadata(log("p", "a"), child, log("p", "b"))
    owed = owed_copy(PLAN, 1, WRITE, both, RESIZE)
    assert owed is not None
    assert {number: len(logs) for number, logs in owed.logs.items()} == {1: 1}, "it wrote b once"
    assert owed_copy(PLAN, 1, WRITE, metadata(log("p", "a"), child), RESIZE) is None


def test_what_writers_put_into_children_is_no_copy() -> None:
    files = [
        (f"p/.x-0_{RESIZE}.log.{version}_{token}", 10)
        for version, token in (
            (1, "0-0-0"),
            (5_002, "0000-0-0"),
            (1, "3-905-1819"),
            (5_000, "0-0-0"),
        )
    ]
    found = found_copies(RESIZE, PLAN.groups, files)
    assert found == FoundCopies({5: ((f"p/.x-0_{RESIZE}.log.5000_0-0-0", 10),)})


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


def owed(number: int, files: int, size: int = 0) -> OwedCopy:
    source = LogFile("p/a", size, LogFileName("a-0", InstantTime(WRITE), 1, "0-0-0"))
    return OwedCopy(number, WRITE, {0: (source,)}, files)


@pytest.mark.parametrize(
    ("sizes", "count"),
    [
        ([(1, 0)] * (PORTION_FILES + 9), PORTION_FILES),
        ([(40, 0)] * 9, 3),
        ([(2 * PORTION_FILES, 0), (1, 0)], 1),
        ([(1, PORTION_BYTES // 2)] * 3, 2),
        ([(1, 2 * PORTION_BYTES), (1, 0)], 1),
    ],
)
def test_a_portion_has_as_many_writes_as_fit_and_at_least_one(
    sizes: list[tuple[int, int]], count: int
) -> None:
    writes = [owed(number, *each) for number, each in enumerate(sizes, 1)]
    assert len(next_portion(writes)) == count
    assert not next_portion([])


@given(
    files=st.lists(st.sampled_from([1, 9, 50, 100, 300]), min_size=1, max_size=30),
    starts=st.lists(st.integers(0, 29), max_size=4),
    data=st.data(),
)
def test_writes_that_count_as_whole_are_whole_wherever_processes_began_and_stopped(
    files: list[int], starts: list[int], data: st.DataObject
) -> None:
    """Each process begins where the writes so far are whole, and stops inside some portion."""
    writes = [owed(number, each) for number, each in enumerate(files, 1)]
    whole, begun = 0, set[int]()
    for start in [0, *starts]:
        left = writes[min(start, whole) :]
        for _ in range(data.draw(st.integers(0, 5))):
            portion = next_portion(left)
            left = left[len(portion) :]
            begun |= {each.number for each in portion}
            whole = max([whole, *(each.number for each in portion)])
        begun |= {data.draw(st.sampled_from(list(next_portion(left)))).number} if left else set()
    if begun:
        first = first_uncertain(reversed(writes[: max(begun)]))
        assert first is not None
        assert first <= whole + 1


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
