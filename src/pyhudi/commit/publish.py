"""Publishing entries of the decision log: the one place that writes to Hudi's timeline.

An entry fixes the name and the bytes of each file that it creates. So it may be published twice,
late, or by two processes at once: the second finds the file there, and that is success. The rings
of a resize are created before its completed file, and never after it: once the resize is visible,
rings that it brought may be cleaned.

An abort removes its target's inflight file if a Java writer began the target, because that writer
completes only what is inflight. A target of pyhudi keeps the file: the log is its fence, and Hudi,
should it finish the rollback, deletes files only of instants that are inflight. A plan is removed
altogether, because Hudi executes any plan that it finds; and what closed a resize goes with it.
"""

from __future__ import annotations

from pyhudi.errors import CorruptTableError
from pyhudi.format.avro.container import CONTAINER_BYTES_MAX
from pyhudi.format.table.ring_file import decode_ring
from pyhudi.format.timeline.commit_metadata import decode_commit_metadata, decode_inflight_commit
from pyhudi.format.timeline.decision_entry import (
    Creation,
    Entry,
    Target,
    begun_files,
    closed_path,
    effect_path,
    entry_path,
    ring_partition,
)
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.writer_identity import WRITER_KEY
from pyhudi.storage.protocol import Storage
from pyhudi.timeline.live import PLANNED_ACTIONS


def has_effect(storage: Storage, timeline_folder: str, entry: Entry) -> bool:
    """True if the entry was published."""
    return storage.stat(effect_path(timeline_folder, entry)) is not None


def publish(storage: Storage, timeline_folder: str, entry: Entry) -> None:
    """Create what the entry creates, or find it created; the file that applies it comes last."""
    if entry.creates is None:
        return
    if entry.target is not None:
        _fence_off(storage, timeline_folder, entry.target)  # first of all
    data = _bytes(storage, timeline_folder, entry, entry.creates)
    if data is None:
        return
    if (entry.whole or entry.also) and not has_effect(storage, timeline_folder, entry):
        for name in begun_files(entry):
            storage.create(f"{timeline_folder}/{name}", b"")
        if not _create_rings(storage, timeline_folder, entry, data):
            return
    _create(storage, effect_path(timeline_folder, entry), entry, entry.creates, data)


def _create_rings(storage: Storage, timeline_folder: str, entry: Entry, completed: bytes) -> bool:
    """Create the rings of a resize; False if the entry turns out to be published.

    The entry's bytes show that they are rings of partitions in which the resize replaces buckets.
    """
    if not entry.also:
        return True
    rings: list[tuple[Creation, bytes]] = []
    for made in entry.also:
        data = _bytes(storage, timeline_folder, entry, made)
        if data is None:
            return False
        rings.append((made, data))
    path = effect_path(timeline_folder, entry)
    replaced = decode_commit_metadata(completed, path).replaced_file_ids
    for made, data in rings:
        ring = decode_ring(data, made.name)
        of_path = ring_partition(made.name, entry.instant)
        if ring.partition != of_path or ring.instant != entry.instant or of_path not in replaced:
            raise CorruptTableError(
                f"entry {entry.n} of the decision log cannot be published",
                why=f"the ring that it brings is not one of partition {of_path!r} and"
                f" {entry.instant}",
                next_step="Find the program that appended it before anything else is written",
                path=made.name,
            )
    for made, data in rings:
        _create(storage, made.name, entry, made, data)
    return True


def _create(storage: Storage, path: str, entry: Entry, made: Creation, data: bytes) -> None:
    if storage.create(path, data):
        return
    try:
        found = storage.read(path, 0, made.size + 1)
    except FileNotFoundError:
        return  # it was there, and its instant has been rolled back or archived since
    if not made.is_of(found):
        raise CorruptTableError(
            "a file differs from the decision log",
            why=f"entry {entry.n} of the decision log gives it other bytes",
            next_step="Find the program that wrote it before anything else is written",
            path=path,
        )


def _fence_off(storage: Storage, timeline_folder: str, target: Target) -> None:
    """Make sure that no Java writer completes the target, nor executes its plan."""
    late = Instant(InstantTime(target.instant), target.action, State.INFLIGHT)
    inflight = f"{timeline_folder}/{late.file_name}"
    if target.action in PLANNED_ACTIONS:
        plan = late.in_state(State.REQUESTED)
        storage.delete(inflight)
        storage.delete(f"{timeline_folder}/{plan.file_name}")
        if target.action is Action.CLUSTERING:
            storage.delete(closed_path(target.instant))
    elif not is_own(storage, inflight):
        storage.delete(inflight)


def is_own(storage: Storage, inflight: str) -> bool:
    """True if the inflight file records a pyhudi writer."""
    try:
        data = storage.read(inflight, 0, CONTAINER_BYTES_MAX + 1)
        found = decode_inflight_commit(data, inflight)
    except (FileNotFoundError, CorruptTableError):
        return False
    return found is not None and WRITER_KEY in (found.extra_metadata or {})


def _has_successor(storage: Storage, entry: Entry) -> bool:
    """True if the log went on: then the entry was published, and its file removed since."""
    return storage.stat(entry_path(entry.n + 1)) is not None


def _bytes(storage: Storage, timeline_folder: str, entry: Entry, made: Creation) -> bytes | None:
    """Return the bytes to create; None if the owner published, and removed what it staged."""
    if made.inline is not None:
        return made.inline
    assert made.staged is not None
    try:
        data = storage.read(made.staged, 0, made.size + 1)
    except FileNotFoundError:
        data = b""
    if made.is_of(data):
        return data
    if has_effect(storage, timeline_folder, entry) or _has_successor(storage, entry):
        return None
    raise CorruptTableError(
        f"entry {entry.n} of the decision log cannot be published",
        why="the bytes staged for it are missing or damaged",
        next_step="Restore the object from a copy of the table",
        path=made.staged,
    )
