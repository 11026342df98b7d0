"""Hashing metadata on storage: which rings does a partition have, and what does each say?

A ring's file is created once and never changes. Of processes that create the first ring of a
partition, one wins; the others take its ring, which may have another number of nodes.
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
from pyhudi.storage.protocol import Storage


def load_ring_files(storage: Storage, partition: str) -> RingFiles:
    """Return which rings the partition has on storage.

    A local folder that changes while it is listed may show a mark and miss the ring, which was
    created before it. A second listing shows both.
    """
    found = _listed(storage, partition)
    return found if found.marks.issubset(found.instants) else _listed(storage, partition)


def _listed(storage: Storage, partition: str) -> RingFiles:
    objects = storage.list_folder(ring_folder(partition)).objects
    names = (RingFileName.parse(stat.path.rpartition("/")[2]) for stat in objects)
    return _ring_files(partition, (name for name in names if name is not None))


def load_all_ring_files(storage: Storage) -> dict[str, RingFiles]:
    """Return which rings each partition has on storage."""
    found: dict[str, list[RingFileName]] = {}
    for stat in storage.list(RING_ROOT):
        name = RingFileName.parse(stat.path.rpartition("/")[2])
        partition = ring_partition(stat.path)
        if name is not None and partition is not None:
            found.setdefault(partition, []).append(name)
    files = {partition: _ring_files(partition, names) for partition, names in found.items()}
    changing = [p for p, rings in files.items() if not rings.marks.issubset(rings.instants)]
    return {**files, **{partition: load_ring_files(storage, partition) for partition in changing}}


def _ring_files(partition: str, names: Iterable[RingFileName]) -> RingFiles:
    found = sorted(set(names), key=lambda name: name.instant)
    return RingFiles(
        partition,
        tuple(name.instant for name in found if not name.is_commit_mark),
        frozenset(name.instant for name in found if name.is_commit_mark),
    )


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


def write_mark(storage: Storage, partition: str, instant: InstantTime) -> None:
    """Mark the ring of this instant as one that is in force, or was."""
    storage.create(ring_path(partition, RingFileName(instant, is_commit_mark=True)), b"")
