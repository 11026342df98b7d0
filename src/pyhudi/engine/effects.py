"""Carrying decisions out: the one place that publishes on Hudi's timeline.

An entry of the decision log fixes the name and the bytes of its effect. So it may be carried out
twice, late, or by two processes at once: the second finds the file there, and that is success.

An abort takes its target's inflight file away from a Java writer, which completes only what is
inflight. A target of ours keeps it: the log is its fence, and Hudi, should it be the one to finish
the rollback, deletes files only of what is inflight.
"""

from __future__ import annotations

from pyhudi.errors import CorruptTableError
from pyhudi.format.avro_container import CONTAINER_BYTES_MAX
from pyhudi.format.commit_metadata import decode_inflight_commit
from pyhudi.format.instant import Instant, InstantTime, State
from pyhudi.format.log_entry import Entry
from pyhudi.format.writer_identity import WRITER_KEY
from pyhudi.storage.protocol import Storage


def has_effect(storage: Storage, timeline_folder: str, entry: Entry) -> bool:
    """Whether the entry was carried out."""
    assert entry.creates is not None
    return storage.stat(f"{timeline_folder}/{entry.creates.name}") is not None


def carry_out(storage: Storage, timeline_folder: str, entry: Entry) -> None:
    """Make the entry's effect, or find it made."""
    if entry.creates is None:
        return
    if entry.target is not None:
        action, requested = entry.target.action, InstantTime(entry.target.instant)
        inflight = Instant(requested, action, State.INFLIGHT)
        _fence_off(storage, f"{timeline_folder}/{inflight.file_name}")  # first of all
    path = f"{timeline_folder}/{entry.creates.name}"
    data = _bytes(storage, timeline_folder, entry)
    if data is None or storage.create(path, data):
        return
    try:
        found = storage.read(path, 0, entry.creates.size + 1)
    except FileNotFoundError:
        return  # it was there, and its instant has been rolled back since
    if not entry.creates.is_of(found):
        raise CorruptTableError(
            "a timeline file is not what was decided",
            why=f"entry {entry.n} of the decision log gives it other bytes",
            next_step="Find out who wrote it before anything else is written",
            path=path,
        )


def _fence_off(storage: Storage, inflight: str) -> None:
    """Let no Java writer complete what this inflight file is of."""
    try:
        data = storage.read(inflight, 0, CONTAINER_BYTES_MAX + 1)
    except FileNotFoundError:
        return
    try:
        found = decode_inflight_commit(data, inflight)
    except CorruptTableError:
        found = None  # whoever wrote it was not us
    if found is None or WRITER_KEY not in (found.extra_metadata or {}):
        storage.delete(inflight)


def _bytes(storage: Storage, timeline_folder: str, entry: Entry) -> bytes | None:
    """The bytes to create; None if the owner made the file, and removed what it staged."""
    made = entry.creates
    assert made is not None
    if made.inline is not None:
        return made.inline
    assert made.staged is not None
    try:
        data = storage.read(made.staged, 0, made.size + 1)
    except FileNotFoundError:
        data = b""
    if made.is_of(data):
        return data
    if has_effect(storage, timeline_folder, entry):
        return None
    raise CorruptTableError(
        f"entry {entry.n} of the decision log cannot be carried out",
        why="the bytes staged for it are missing or damaged",
        next_step="Restore the object from a copy of the table",
        path=made.staged,
    )
