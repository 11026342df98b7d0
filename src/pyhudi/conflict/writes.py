"""May this write complete, given what other writes completed since it began?

First committer wins (RFC-22, and Hudi's default strategy): two writes whose lifetimes overlap must
not both have written one file group. The later to complete is the one that asks here. A write that
only appended log files in the non-blocking mode never asks: its rows merge with anybody's.

In a bucket index the bucket is what must not be shared: engines that race to write the first file
of a bucket give it different file ids.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyhudi.format.commit_metadata import CommitMetadata
from pyhudi.format.file_names import FileGroupId

_BUCKET_DIGITS = 8


@dataclass(frozen=True, slots=True)
class OtherWrite:
    """A write that completed while ours was under way."""

    requested: str
    completed: str
    groups: frozenset[FileGroupId]
    passes_logs: bool = False  # it is no conflict for a write that only appends logs


@dataclass(frozen=True, slots=True)
class Overlap:
    """The other write that came first, and one of the file groups that both wrote."""

    other: OtherWrite
    group: FileGroupId


def first_overlap(own: Iterable[FileGroupId], others: Iterable[OtherWrite]) -> Overlap | None:
    """The earliest completed write that touched one of our file groups, or its bucket."""
    places = {_place(group): group for group in own}
    for other in others:
        for group in sorted(other.groups):
            if (mine := places.get(_place(group))) is not None:
                return Overlap(other, mine)
    return None


def _place(group: FileGroupId) -> tuple[str, str]:
    bucket = group.file_id[:_BUCKET_DIGITS]
    is_bucket = len(bucket) == _BUCKET_DIGITS and bucket.isascii() and bucket.isdigit()
    return group.partition, bucket if is_bucket else group.file_id


def touched_groups(metadata: CommitMetadata) -> frozenset[FileGroupId]:
    """The file groups that a completed write wrote or replaced."""
    written = (
        FileGroupId(partition, stat.file_id or "")
        for partition, stats in metadata.write_stats.items()
        for stat in stats
    )
    replaced = (
        FileGroupId(partition, file_id)
        for partition, file_ids in metadata.replaced_file_ids.items()
        for file_id in file_ids
    )
    return frozenset((*written, *replaced))
