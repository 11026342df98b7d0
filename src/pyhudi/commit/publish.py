"""Publishing entries of the decision log: the one place that writes to Hudi's timeline.

An entry fixes the name and the bytes of the file that it creates. So it may be published twice,
late, or by two processes at once: the second finds the file there, and that is success.

An abort removes its target's inflight file if a Java writer began the target, because that writer
completes only what is inflight. A target of pyhudi keeps the file: the log is its fence, and Hudi,
should it finish the rollback, deletes files only of instants that are inflight. A plan is removed
altogether, because Hudi executes any plan that it finds.
"""

from __future__ import annotations

from pyhudi.errors import CorruptTableError
from pyhudi.format.avro.container import CONTAINER_BYTES_MAX
from pyhudi.format.timeline.commit_metadata import decode_inflight_commit
from pyhudi.format.timeline.decision_entry import Entry, Target, begun_files, entry_path
from pyhudi.format.timeline.instant import Instant, InstantTime, State
from pyhudi.format.timeline.writer_identity import WRITER_KEY
from pyhudi.storage.protocol import Storage
from pyhudi.timeline.live import PLANNED_ACTIONS


def has_effect(storage: Storage, timeline_folder: str, entry: Entry) -> bool:
    """True if the entry was published."""
    assert entry.creates is not None
    return storage.stat(f"{timeline_folder}/{entry.creates.name}") is not None


def publish(storage: Storage, timeline_folder: str, entry: Entry) -> None:
    """Create the file of the entry, or find it created."""
    if entry.creates is None:
        return
    if entry.target is not None:
        _fence_off(storage, timeline_folder, entry.target)  # first of all
    path = f"{timeline_folder}/{entry.creates.name}"
    data = _bytes(storage, timeline_folder, entry)
    if data is None:
        return
    if entry.whole and not has_effect(storage, timeline_folder, entry):
        for name in begun_files(entry):
            storage.create(f"{timeline_folder}/{name}", b"")
    if storage.create(path, data):
        return
    try:
        found = storage.read(path, 0, entry.creates.size + 1)
    except FileNotFoundError:
        return  # it was there, and its instant has been rolled back since
    if not entry.creates.is_of(found):
        raise CorruptTableError(
            "a timeline file differs from the decision log",
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
    elif not _is_ours(storage, inflight):
        storage.delete(inflight)


def _is_ours(storage: Storage, inflight: str) -> bool:
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


def _bytes(storage: Storage, timeline_folder: str, entry: Entry) -> bytes | None:
    """Return the bytes to create; None if the owner made the file, and removed what it staged."""
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
    if has_effect(storage, timeline_folder, entry) or _has_successor(storage, entry):
        return None
    raise CorruptTableError(
        f"entry {entry.n} of the decision log cannot be published",
        why="the bytes staged for it are missing or damaged",
        next_step="Restore the object from a copy of the table",
        path=made.staged,
    )
