"""First committer wins, by file group and by bucket."""

from __future__ import annotations

import pytest

from pyhudi.conflict.rules import OtherWrite
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.simulate.table.overlap import Overlap, first_overlap

BUCKET_1 = "00000001-0000-0000-0000-000000000000-0"
BUCKET_1_OF_HUDI = "00000001-57eb-4d0f-a1b2-6b1f3c1d2e3f-0"
BUCKET_2 = "00000002-0000-0000-0000-000000000000-0"


def other(*groups: FileGroupId, requested: str = "3", completed: str = "4") -> OtherWrite:
    return OtherWrite(requested, completed, frozenset(groups))


CASES = [
    ("the same file group", FileGroupId("p", "a-0"), FileGroupId("p", "a-0"), True),
    ("another file group", FileGroupId("p", "a-0"), FileGroupId("p", "b-0"), False),
    ("the same file id elsewhere", FileGroupId("p", "a-0"), FileGroupId("q", "a-0"), False),
    ("the same bucket", FileGroupId("p", BUCKET_1), FileGroupId("p", BUCKET_1), True),
    ("its bucket by Hudi", FileGroupId("p", BUCKET_1), FileGroupId("p", BUCKET_1_OF_HUDI), True),
    ("another bucket", FileGroupId("p", BUCKET_1), FileGroupId("p", BUCKET_2), False),
    ("that bucket elsewhere", FileGroupId("p", BUCKET_1), FileGroupId("q", BUCKET_1), False),
]


@pytest.mark.parametrize(("what", "own", "theirs", "overlaps"), CASES, ids=[c[0] for c in CASES])
def test_writes_overlap_in_file_groups_and_buckets(
    what: str, own: FileGroupId, theirs: FileGroupId, overlaps: bool
) -> None:
    found = first_overlap([own], [other(theirs)])
    assert found == (Overlap(other(theirs), own) if overlaps else None)


def test_the_write_that_completed_first_is_named() -> None:
    group = FileGroupId("p", "a-0")
    early, late = other(group, completed="4"), other(group, requested="2", completed="5")
    found = first_overlap([group], [early, late])
    assert found is not None
    assert found.other is early


def test_without_others_there_is_no_overlap() -> None:
    assert first_overlap([FileGroupId("p", "a-0")], []) is None
