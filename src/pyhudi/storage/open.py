"""From the address of a table to its storage."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping

from pyhudi.errors import InvalidRequestError
from pyhudi.storage.paths import Location
from pyhudi.storage.protocol import Storage
from pyhudi.storage.redaction import redacted
from pyhudi.storage.stores.local_disk import LocalStorage
from pyhudi.storage.stores.memory import MemoryStorage
from pyhudi.storage.stores.object_store import ObstoreStorage

SCHEMES = ("file", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "memory")

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):/")
_FILE = re.compile(r"file:(?://(?:localhost)?)?(/(?!/).*)\Z", re.IGNORECASE | re.DOTALL)

_memories: dict[str, MemoryStorage] = {}
_memories_lock = threading.Lock()


class _NamedMemory(MemoryStorage):
    """Storage in memory that has a name. A copy of it is the same one, found by that name."""

    def __reduce__(self) -> tuple[object, ...]:
        return open_storage, (self.uri,)


def open_storage(uri: str, options: Mapping[str, str] | None = None) -> Storage:
    """Return the storage whose root the address names, without reading anything.

    A plain path is local disk. `memory:

    name` is one storage per name in this process.
    """
    match = _SCHEME.match(uri)
    scheme = match[1].lower() if match else "file"
    if scheme not in SCHEMES:
        raise InvalidRequestError(
            "the address of the table cannot be opened",
            why=f"there is no storage for the scheme {scheme!r}",
            next_step=f"Use a plain path or one of {', '.join(SCHEMES)}",
        )
    if scheme not in ("file", "memory"):
        return ObstoreStorage(uri, options)
    if options:
        raise InvalidRequestError(
            f"{redacted(uri)!r} cannot be opened",
            why=f"{scheme} takes no storage options, but got {', '.join(sorted(options))}",
            next_step="Leave them out",
        )
    return _memory(uri) if scheme == "memory" else LocalStorage(_local_root(uri))


def _local_root(uri: str) -> str:
    match = _FILE.match(uri)
    root = match[1] if match else "" if _SCHEME.match(uri) else uri
    if not root or "\0" in root:
        raise InvalidRequestError(
            f"{redacted(uri)!r} cannot be opened",
            why="it names no folder on this machine",
            next_step="Give a path, or file:/// and an absolute path",
        )
    return root


def _memory(uri: str) -> MemoryStorage:
    name = Location.parse(uri).uri
    with _memories_lock:
        if name not in _memories:
            _memories[name] = _NamedMemory(lambda: time.time_ns() // 1_000_000, uri=name)
        return _memories[name]
