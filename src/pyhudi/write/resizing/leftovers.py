"""What a Hudi executor that stopped may have left of a resize that pyhudi completes instead.

Hudi gives base files other names on every run. Of two base files of one bucket and instant readers
take one. And it writes the ring before it makes a file. Both are removed before the resize
completes, under the table's lock, where it has one.
"""

from __future__ import annotations

from collections.abc import Collection

from pyhudi.format.files.file_names import BaseFileName, group_of_path, parse_data_file
from pyhudi.format.paths import file_name
from pyhudi.format.table.ring_file import RING_BYTES_MAX, RingFileName, ring_path
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.storage.protocol import Storage
from pyhudi.write.resizing.work import ResizeWork


def remove_leftovers(storage: Storage, work: ResizeWork, bases: Collection[str]) -> str | None:
    """Remove other base files of the children than these, and rings that are not the plan's.

    Return one of `bases` that is gone, if Hudi has begun anew and removed it.
    """
    children = frozenset(work.groups)
    there: set[str] = set()
    for partition in work.partitions:
        for stat in storage.list_folder(partition).objects:
            name = parse_data_file(file_name(stat.path))
            if isinstance(name, BaseFileName) and name.requested == work.requested:
                there.add(stat.path)
    other = there.difference(bases)
    storage.delete_all(sorted(path for path in other if group_of_path(path) in children))
    for path, data in work.ring_files:
        found = _read(storage, path)
        if found is not None and found != data:
            storage.delete(path)
    return min(set(bases) - there, default=None)


def remove_rings(storage: Storage, partitions: Collection[str], requested: InstantTime) -> None:
    """Remove rings of a resize that was cancelled. A marked one stays, and is for a person to
    judge."""
    for partition in partitions:
        ring, mark = (
            ring_path(partition, RingFileName(requested, is_commit_mark=is_mark))
            for is_mark in (False, True)
        )
        if storage.stat(mark) is None:
            storage.delete(ring)


def _read(storage: Storage, path: str) -> bytes | None:
    try:
        return storage.read(path, 0, RING_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
