"""How large are the buckets, as far as a process knows without a request?

It knows the sizes of the last listing that it looked at, and what its own commits have added since.
What other processes add it does not know until the next listing. So this is a hint: it says when
planning a resize is worth a listing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.commit_metadata import WriteStat


class BucketSizes:
    """The sizes of buckets, and the largest of those that this process wrote to since a listing."""

    def __init__(self) -> None:
        self._bytes: dict[FileGroupId, int] = {}
        self.largest = 0

    def listed(self, sizes: Mapping[FileGroupId, int]) -> None:
        """Take the sizes of a listing in place of what was known."""
        self._bytes, self.largest = dict(sizes), 0

    def wrote(self, stats: Iterable[WriteStat]) -> None:
        """Add the files of a write that completed."""
        for stat in stats:
            group = FileGroupId(stat.partition_path or "", stat.file_id or "")
            size = self._bytes.get(group, 0) + (stat.total_write_bytes or 0)
            self._bytes[group] = size
            self.largest = max(self.largest, size)
