"""Which file groups a write touched, and the first of other writes that touched one of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyhudi.conflict.rules import OtherWrite, bucket_place
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.commit_metadata import CommitMetadata


@dataclass(frozen=True, slots=True)
class Overlap:
    """The other write that came first, and one of the file groups that both wrote."""

    other: OtherWrite
    group: FileGroupId


def first_overlap(own: Iterable[FileGroupId], others: Iterable[OtherWrite]) -> Overlap | None:
    """The earliest completed write that touched one of our file groups, or its bucket."""
    places = {bucket_place(group): group for group in own}
    for other in others:
        for group in sorted(other.groups or ()):
            if (mine := places.get(bucket_place(group))) is not None:
                return Overlap(other, mine)
    return None


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
