"""The decision log as objects: finding its end, reading entries, creating the next, pruning.

What may be decided is not known here; `engine/decide.py` is the one place that decides. Only four
things are asked of storage: create if absent, read, list and delete.
"""

from __future__ import annotations

from pyhudi.errors import UnavailableError
from pyhudi.format.log_entry import (
    ENTRY_BYTES_MAX,
    LOG_FOLDER,
    Entry,
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
    """The numbers beyond n that are there now, ascending."""
    after = entry_path(n) if n else None
    numbered = ((parse_entry_path(s.path), s) for s in storage.list(LOG_FOLDER, after=after))
    return [(number, stat) for number, stat in numbered if number is not None]


def last_entries(storage: Storage) -> list[tuple[int, ObjectStat]]:
    """The numbers in the last folder of the log that has any; the last is the log's tail."""
    for folder in reversed(storage.list_folder(LOG_FOLDER).folders):
        numbered = ((parse_entry_path(s.path), s) for s in storage.list(folder))
        if found := [(number, stat) for number, stat in numbered if number is not None]:
            return found
    return []


def create_entry(storage: Storage, entry: Entry) -> bool:
    """Take the entry's number; False if another has it. A lost reply is looked up."""
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
