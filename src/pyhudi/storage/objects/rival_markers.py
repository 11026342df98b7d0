"""What other writes have announced, for a look that is repeated: in one partition, or everywhere.

Markers are objects of their own, lines of lists, or both in one folder, as the writer made them.
A list is read again only if it has changed. One that is damaged, half-written or too long counts
as empty, and is read again at the next look; a rollback refuses it (`storage.objects.markers`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from pyhudi.errors import HudiError
from pyhudi.format.files.file_names import FileGroupId, MarkerName
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.format.timeline.markers import MARKER_ROOT, is_marker_list, marker_folder
from pyhudi.storage.objects.markers import markers_in
from pyhudi.storage.protocol import ObjectStat, Storage

_Version: TypeAlias = tuple[str | None, int, int]


@dataclass(frozen=True, slots=True)
class AnnouncedFile:
    """A data file that an instant has announced."""

    marker: MarkerName
    group: FileGroupId
    since_ms: int  # by the store's clock; of a list, when it was last written


class RivalMarkers:
    """The markers of other instants, as far as they can be read."""

    def __init__(self) -> None:
        self._lists: dict[str, tuple[_Version, tuple[tuple[MarkerName, FileGroupId], ...]]] = {}

    def in_partition(
        self, storage: Storage, requested: str, partition: str
    ) -> Iterator[AnnouncedFile]:
        """Yield the files of one partition. Folders of other ones are not listed."""
        root = marker_folder(InstantTime(requested))
        folder = storage.list_folder(root)
        objects = folder.objects
        if partition and f"{root}/{partition.partition('/')[0]}" in map(_bare, folder.folders):
            objects += storage.list_folder(f"{root}/{partition}").objects
        yield from (f for f in self._files(storage, requested, objects) if _lies_in(f, partition))

    def everywhere(self, storage: Storage, requested: str) -> Iterator[AnnouncedFile]:
        """Yield the files of all partitions."""
        root = marker_folder(InstantTime(requested))
        yield from self._files(storage, requested, tuple(storage.list(root)))

    def _files(
        self, storage: Storage, requested: str, objects: tuple[ObjectStat, ...]
    ) -> Iterator[AnnouncedFile]:
        start = len(MARKER_ROOT) + 1 + len(requested) + 1
        for stat in objects:
            found = (
                self._listed(storage, requested, stat)
                if is_marker_list(stat.path[start:])
                else _read(storage, requested, stat)
            )
            for marker, group in found or ():
                yield AnnouncedFile(marker, group, stat.modified_ms)

    def _listed(
        self, storage: Storage, requested: str, stat: ObjectStat
    ) -> tuple[tuple[MarkerName, FileGroupId], ...]:
        version = stat.etag, stat.size, stat.modified_ms
        known = self._lists.get(stat.path)
        if known is not None and known[0] == version:
            return known[1]
        found = _read(storage, requested, stat)
        if found is not None:
            self._lists[stat.path] = version, found
        return found or ()


def _read(
    storage: Storage, requested: str, stat: ObjectStat
) -> tuple[tuple[MarkerName, FileGroupId], ...] | None:
    """Return the markers in an object of the marker folder; None if it cannot be read."""
    try:
        found = markers_in(storage, requested, stat)
    except (HudiError, OSError):  # its instant may have ended since it was listed
        return None
    return tuple((marker, marker.file_group) for marker in found)


def _lies_in(file: AnnouncedFile, partition: str) -> bool:
    return file.group.partition == partition


def _bare(folder: str) -> str:
    return folder.rstrip("/")
