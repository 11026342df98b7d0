"""The decision log as objects: finding its end, reading entries, creating the next, pruning.

Which entry may be appended is not known here; only `commit/decision_log.py` appends. Four
operations of storage are used: create if absent, read, list and delete.
"""

from __future__ import annotations

from collections.abc import Set

from pyhudi.errors import UnavailableError
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.decision_entry import (
    CLOSED_FOLDER,
    ENTRY_BYTES_MAX,
    LOG_FOLDER,
    Entry,
    EntryKind,
    decode_entry,
    encode_entry,
    entry_path,
    parse_entry_path,
)
from pyhudi.storage.protocol import ObjectStat, Storage


def load_entry(storage: Storage, n: int) -> Entry | None:
    path = entry_path(n)
    try:
        data = storage.read(path, 0, ENTRY_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    return decode_entry(data, path)


def entries_after(storage: Storage, n: int) -> list[tuple[int, ObjectStat]]:
    """Return the numbers beyond n that exist now, ascending."""
    after = entry_path(n) if n else None
    numbered = ((parse_entry_path(s.path), s) for s in storage.list(LOG_FOLDER, after=after))
    return [(number, stat) for number, stat in numbered if number is not None]


def last_entries(storage: Storage) -> list[tuple[int, ObjectStat]]:
    """Return the numbers in the last folder of the log that has any; the last is the log's tail."""
    for folder in reversed(log_folders(storage)):
        if found := entries_in(storage, folder):
            return found
    return []


def log_folders(storage: Storage) -> tuple[str, ...]:
    """Return the folders of the log, the one with the oldest entries first."""
    return storage.list_folder(LOG_FOLDER).folders


def entries_in(storage: Storage, folder: str) -> list[tuple[int, ObjectStat]]:
    """Return the numbers in one folder of the log, ascending."""
    numbered = ((parse_entry_path(s.path), s) for s in storage.list(folder))
    return [(number, stat) for number, stat in numbered if number is not None]


def completed_by_log(storage: Storage, instants: Set[str]) -> set[str]:
    """Return the instants that completed by what is left of the log.

    Times ascend in the log, so what is older than the instants is not read except for one folder.
    """
    completed: dict[int, str] = {}
    voided: set[int] = set()
    for folder in reversed(log_folders(storage) if instants else ()):
        first = None
        for number, _ in entries_in(storage, folder):
            entry = load_entry(storage, number)
            if entry is None:
                continue  # pruned since
            first = first or entry.time
            if entry.voids is not None:
                voided.add(entry.voids)
            if entry.kind is EntryKind.COMPLETE and (instant := entry.instant) in instants:
                assert instant is not None
                completed[number] = instant
        if first is not None and first < min(instants):
            break
    return {instant for number, instant in completed.items() if number not in voided}


def closed_resizes(storage: Storage) -> list[str]:
    """Return the requested times of resizes that were closed; some may have ended since."""
    return [file_name(stat.path) for stat in storage.list(CLOSED_FOLDER)]


def create_entry(storage: Storage, entry: Entry) -> bool:
    """Take the entry's number; False if another has it. After a lost reply the entry is read."""
    try:
        if storage.create(entry_path(entry.n), encode_entry(entry)):
            return True
    except UnavailableError:
        found = load_entry(storage, entry.n)
        if found is None:
            raise
    else:
        found = load_entry(storage, entry.n)
    return found is not None and found.id == entry.id
