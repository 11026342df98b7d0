"""Which file groups a write touched, and how."""

from __future__ import annotations

from dataclasses import dataclass

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.commit_metadata import CommitMetadata


def touched_groups(metadata: CommitMetadata) -> frozenset[FileGroupId]:
    """Return the file groups that a completed write wrote or replaced."""
    written = (group for group, _ in metadata.group_stats)
    replaced = (
        FileGroupId(partition, file_id)
        for partition, file_ids in metadata.replaced_file_ids.items()
        for file_id in file_ids
    )
    return frozenset((*written, *replaced))


@dataclass(frozen=True, slots=True)
class Footprint:
    """The file groups of a write, by what it did there."""

    groups: frozenset[FileGroupId] = frozenset()  # all of them
    bases: frozenset[FileGroupId] = frozenset()  # where it created a base file
    inserts: frozenset[FileGroupId] = frozenset()  # where it took keys for new
    references: frozenset[FileGroupId] = frozenset()  # where it only refers to rows in others

    @property
    def partitions(self) -> frozenset[str]:
        return frozenset(group.partition for group in self.groups)


def footprint(metadata: CommitMetadata) -> Footprint:
    """Return the footprint of a write with this metadata."""
    stats = list(metadata.group_stats)
    return Footprint(
        touched_groups(metadata),
        frozenset(group for group, stat in stats if stat.log_files is None),
        frozenset(group for group, stat in stats if stat.num_inserts),
        references_of(metadata),
    )


def references_of(metadata: CommitMetadata) -> frozenset[FileGroupId]:
    """Return the file groups in which a write has nothing but references to logs in others."""
    groups = {group for group, _ in metadata.group_stats}
    own = {group for group, stat in metadata.group_stats if not stat.is_reference}
    return frozenset(groups - own)
