"""Which file groups a write touched."""

from __future__ import annotations

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
