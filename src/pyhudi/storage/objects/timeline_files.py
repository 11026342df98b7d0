"""Timeline files, read whole: no more of one than its decoder accepts, and an error if it was
removed.

A file's size is its writer's choice, so no file is read without a bound; the one byte beyond it
shows the decoder that the file is too large. And the timeline changes while it is read: between a
listing and a read, archiving or a rollback may remove a file.
"""

from __future__ import annotations

from pyhudi.errors import UnavailableError
from pyhudi.format.avro.container import CONTAINER_BYTES_MAX
from pyhudi.storage.protocol import Storage


def load_timeline_file(storage: Storage, path: str, bytes_max: int = CONTAINER_BYTES_MAX) -> bytes:
    """Return the file's bytes, up to one more than the bound.

    UnavailableError if the file is not there.
    """
    try:
        return storage.read(path, 0, bytes_max + 1)
    except FileNotFoundError:
        raise missing_timeline_file(path) from None


def missing_timeline_file(path: str) -> UnavailableError:
    return UnavailableError(
        f"{path!r} is gone",
        why="it was archived, cleaned or rolled back since the timeline was listed, or it is lost",
        next_step="Read again; if the error stays, restore the file from a copy of the table",
    )
