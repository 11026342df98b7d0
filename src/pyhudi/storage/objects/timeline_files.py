"""Timeline files, taken whole: no more of one than its decoder accepts, and with a word if it left.

A file's size is its writer's choice, so no file is asked for without a bound; the one byte beyond
it tells the decoder that the file is too large. And the timeline moves on while it is read: between
a listing and a read, archiving or a rollback may take a file away.
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
        next_step="Read again; if it stays so, restore the file from a copy of the table",
    )
