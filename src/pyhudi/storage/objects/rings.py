"""Hashing metadata on storage: which rings does a partition have, and what does each say?

A ring's file is created once and never changes. Of processes that create the first ring of a
partition, one wins; the others take its ring, which may have another number of nodes.

A mark beside it says that the ring is in force, or was. Apache Hudi creates empty ones. A mark that
holds something is pyhudi's, and also says that every node had a committed file group when it was
written. Hudi goes by the names of marks alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyhudi.errors import UnavailableError
from pyhudi.format.table.ring_file import (
    FIRST_INSTANT,
    RING_BYTES_MAX,
    RING_ROOT,
    Ring,
    RingFileName,
    RingFiles,
    decode_own_ring,
    encode_ring,
    ring_folder,
    ring_partition,
    ring_path,
)
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.storage.protocol import ObjectStat, Storage

_COMPLETE = b"complete\n"


def load_ring_files(storage: Storage, partition: str) -> RingFiles:
    """Return which rings the partition has on storage.

    A local folder that changes while it is listed may show a mark and miss the ring, which was
    created before it. A second listing shows both.
    """
    found = _listed(storage, partition)
    return found if found.marks.issubset(found.instants) else _listed(storage, partition)


def _listed(storage: Storage, partition: str) -> RingFiles:
    objects = storage.list_folder(ring_folder(partition)).objects
    return _ring_files(partition, objects)


def load_all_ring_files(storage: Storage) -> dict[str, RingFiles]:
    """Return which rings each partition has on storage."""
    found: dict[str, list[ObjectStat]] = {}
    for stat in storage.list(RING_ROOT):
        partition = ring_partition(stat.path)
        if partition is not None and _name(stat) is not None:
            found.setdefault(partition, []).append(stat)
    files = {partition: _ring_files(partition, stats) for partition, stats in found.items()}
    changing = [p for p, rings in files.items() if not rings.marks.issubset(rings.instants)]
    return {**files, **{partition: load_ring_files(storage, partition) for partition in changing}}


def _ring_files(partition: str, objects: Iterable[ObjectStat]) -> RingFiles:
    named = [(name, stat.size) for stat in objects if (name := _name(stat)) is not None]
    return RingFiles(
        partition,
        tuple(sorted({name.instant for name, _ in named if not name.is_commit_mark})),
        frozenset(name.instant for name, _ in named if name.is_commit_mark),
        frozenset(name.instant for name, size in named if name.is_commit_mark and size),
    )


def _name(stat: ObjectStat) -> RingFileName | None:
    return RingFileName.parse(stat.path.rpartition("/")[2])


def load_ring(storage: Storage, partition: str, instant: InstantTime) -> Ring | None:
    """Return the ring of this instant; None if it has no file.

    CorruptTableError if the file is damaged, or is that of another partition or instant.
    """
    path = ring_path(partition, RingFileName(instant))
    try:
        data = storage.read(path, 0, RING_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    return decode_own_ring(data, partition, instant)


def create_first_ring(storage: Storage, ring: Ring) -> Ring:
    """Create the first ring of a partition, or return the one that another process created."""
    assert ring.instant == FIRST_INSTANT, ring.instant
    path = ring_path(ring.partition, RingFileName(FIRST_INSTANT))
    if storage.create(path, encode_ring(ring)):
        return ring
    found = load_ring(storage, ring.partition, FIRST_INSTANT)
    if found is None:
        raise UnavailableError(
            f"the first ring of partition {ring.partition!r} cannot be read",
            why=f"{path!r} exists and is gone; no program removes it",
            next_step="Write again",
        )
    return found


def write_mark(
    storage: Storage, partition: str, instant: InstantTime, *, is_complete: bool
) -> None:
    """Mark the ring of this instant as one that is in force, or was.

    It `is_complete` if every node has a committed file group.
    """
    path = ring_path(partition, RingFileName(instant, is_commit_mark=True))
    if storage.create(path, _COMPLETE if is_complete else b"") or not is_complete:
        return
    found = storage.stat(path)
    if found is not None and not found.size:
        storage.write(path, _COMPLETE)
