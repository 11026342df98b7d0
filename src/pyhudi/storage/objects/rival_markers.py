"""What other writes have announced, for a look that is repeated: in one partition, or everywhere.

Markers are objects of their own, lines of lists, or both in one folder, as the writer made them.
A list is read again only if it has changed. One that is damaged, half-written or too long counts
as empty, and is read again at the next look; a rollback refuses it (`storage.objects.markers`).

A write may have a hundred thousand markers, so each name is parsed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from pyhudi.errors import HudiError
from pyhudi.format.files.file_names import BaseFileName, FileGroupId, IoType, parse_data_file
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.format.timeline.markers import is_marker_list, marker_folder
from pyhudi.storage.objects.markers import MARKER_LIST_BYTES_MAX
from pyhudi.storage.protocol import ObjectStat, Storage

_Version: TypeAlias = tuple[str | None, int, int]
#: A partition and a bucket or a file group: by what two writes meet.
Place: TypeAlias = tuple[str, str]

_IO_TYPES = frozenset(io_type.value for io_type in IoType)


class AnnouncedFile(NamedTuple):
    """A data file that an instant has announced."""

    path: str
    group: FileGroupId
    place: Place
    is_base: bool
    since_ms: int  # by the store's clock; of a list, when it was last written


class RivalMarkers:
    """The markers of other instants, as far as they can be read."""

    def __init__(self, place: Callable[[FileGroupId], Place]) -> None:
        self._place = place
        self._lists: dict[str, tuple[_Version, list[AnnouncedFile]]] = {}

    def in_partition(
        self, storage: Storage, requested: str, partition: str
    ) -> Iterator[AnnouncedFile]:
        """Yield the files of one partition. Folders of other ones are not listed."""
        root = marker_folder(InstantTime(requested))
        folder = storage.list_folder(root)
        objects = folder.objects
        first = partition.partition("/")[0]
        if partition and any(each.rstrip("/") == f"{root}/{first}" for each in folder.folders):
            objects += storage.list_folder(f"{root}/{partition}").objects
        for file in self._files(storage, requested, objects):
            if file.group.partition == partition:
                yield file

    def everywhere(self, storage: Storage, requested: str) -> Iterator[AnnouncedFile]:
        """Yield the files of all partitions."""
        root = marker_folder(InstantTime(requested))
        yield from self._files(storage, requested, tuple(storage.list(root)))

    def _files(
        self, storage: Storage, requested: str, objects: tuple[ObjectStat, ...]
    ) -> Iterator[AnnouncedFile]:
        start = len(marker_folder(InstantTime(requested))) + 1
        for stat in objects:
            name = stat.path[start:]
            if is_marker_list(name):
                yield from self._listed(storage, requested, stat)
            elif (file := self._parsed(name, requested, stat.modified_ms)) is not None:
                yield file

    def _listed(self, storage: Storage, requested: str, stat: ObjectStat) -> list[AnnouncedFile]:
        version = stat.etag, stat.size, stat.modified_ms
        known = self._lists.get(stat.path)
        if known is not None and known[0] == version:
            return known[1]
        if stat.size > MARKER_LIST_BYTES_MAX:
            return []
        try:
            text = storage.read(stat.path, 0, MARKER_LIST_BYTES_MAX).decode()
        except (HudiError, OSError, UnicodeDecodeError):  # its instant may have ended meanwhile
            return []
        lines = (line.rstrip("\r") for line in text.split("\n") if line.strip())
        found = [self._parsed(line, requested, stat.modified_ms) for line in lines]
        files = [file for file in found if file is not None]
        if len(files) < len(found):
            return []
        self._lists[stat.path] = version, files
        return files

    def _parsed(self, name: str, requested: str, since_ms: int) -> AnnouncedFile | None:
        """Return the file that a marker names; None for what is no marker of this instant."""
        path, _, io_type = name.rpartition(".marker.")
        partition, _, name = path.rpartition("/")
        file = parse_data_file(name) if io_type in _IO_TYPES else None
        if file is None:
            return None
        is_base = isinstance(file, BaseFileName)
        if is_base and file.requested != requested:  # a log may be named by another instant
            return None
        group = FileGroupId(partition, file.file_id)
        return AnnouncedFile(path, group, self._place(group), is_base, since_ms)
