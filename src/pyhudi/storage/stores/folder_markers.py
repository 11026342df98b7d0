"""Listings of object stores without the markers that pose as objects.

Some clients leave empty objects whose key ends in a slash, to show a folder (Hadoop's S3A keeps
them). obstore drops the slash, so a marker looks like an empty object of the folder's name, and the
commit files of a Hudi table may be empty too. A name that cannot be an object is left out: the
folder that is listed, one followed by what is in it, one out of order. The marker of a folder with
nothing in it stays in a recursive listing, as an empty object.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyhudi.storage.protocol import ObjectStat


def in_order(found: Iterable[ObjectStat]) -> Iterator[ObjectStat]:
    """Yield the objects in byte order, without markers of folders that hold others."""
    stats = sorted(found, key=lambda stat: stat.path)
    folders: set[str] = set()
    for stat in stats:
        folder = stat.path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return (stat for stat in stats if stat.size > 0 or stat.path not in folders)


def without_markers(found: Iterator[ObjectStat], bound: str) -> Iterator[ObjectStat]:
    """Yield the objects beyond the bound, in order, without recognizable folder markers."""
    held: ObjectStat | None = None
    for stat in found:
        if held is not None and not (held.size == 0 and stat.path.startswith(f"{held.path}/")):
            yield held
            bound = held.path
        held = stat if stat.path > bound else None
    if held is not None:
        yield held
