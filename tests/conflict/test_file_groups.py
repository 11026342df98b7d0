"""The file groups that a write touched."""

from __future__ import annotations

from pyhudi.conflict.file_groups import touched_groups
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.commit_metadata import CommitMetadata, WriteStat


def test_written_and_replaced_file_groups_are_touched() -> None:
    metadata = CommitMetadata(
        partition_to_write_stats={"p": (WriteStat(file_id="a-0"), WriteStat(file_id="a-0"))},
        partition_to_replace_file_ids={"q": ("b-0",)},
    )
    assert touched_groups(metadata) == {FileGroupId("p", "a-0"), FileGroupId("q", "b-0")}
    assert touched_groups(CommitMetadata()) == frozenset()
