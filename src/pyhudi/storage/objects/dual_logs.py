"""Logs in the children of a pending resize: which of them did a write make?

While a resize that Hudi can execute is pending, each write puts its rows into the children as well.
These logs are named by the resize, so that readers hide them until it has completed. Only their
blocks say which write made them. A rollback of the write removes such a log if no block in it is
of another write. What a writer that was killed left unfinished counts for nothing.

Flink gives such blocks the resize's instant. Whose they are cannot be known, so they stay.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyhudi.errors import CorruptTableError
from pyhudi.format.files.file_names import LogFileName, parse_data_file
from pyhudi.format.files.log_file import CorruptSpan, decode_blocks
from pyhudi.format.paths import file_name
from pyhudi.storage.protocol import Storage


def made_by(storage: Storage, write: str, paths: Iterable[str]) -> list[str]:
    """Return those of the files that the write made.

    Files that its own name is on are not looked at, and need not be there.
    """
    return [path for path in paths if is_named_by(path, write) or is_log_of(storage, path, write)]


def is_named_by(path: str, write: str) -> bool:
    """True if it is a data file that the write names."""
    name = parse_data_file(file_name(path))
    return name is not None and name.requested == write


def is_log_of(storage: Storage, path: str, write: str) -> bool:
    """True if it is a log, it is there, and no block of it is of another write."""
    found = storage.stat(path)
    if found is None or not isinstance(parse_data_file(file_name(path)), LogFileName):
        return False

    def read(start: int, end: int) -> bytes:
        return storage.read(path, start, end)

    try:
        blocks = decode_blocks(read, found.size, path)
        whole = (block for block in blocks if not isinstance(block, CorruptSpan))
        return all(block.instant_time == write for block in whole)
    except (FileNotFoundError, CorruptTableError):
        return False  # removed meanwhile, or no log at all
