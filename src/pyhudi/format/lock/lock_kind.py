"""The kinds of table lock that exist, under the names by which a table records its own."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pyhudi.errors import InvalidRequestError


class LockKind(StrEnum):
    """What the writers of a table exclude each other with. All of them must use the same kind."""

    NONE = "none"  # pyhudi writers alone need none: the decision log is their guard
    IN_PROCESS = "in_process"  # writers in threads of one process
    FILE = "file"  # Hudi's FileSystemBasedLockProvider, for local disk
    STORAGE = "storage"  # Hudi's StorageBasedLockProvider, for object stores
    ZOOKEEPER = "zookeeper"  # Hudi's ZookeeperBasedLockProvider, wherever the table is
    DYNAMODB = "dynamodb"  # Hudi's DynamoDBBasedLockProvider, wherever the table is

    @property
    def is_shared(self) -> bool:
        """True if writers of Apache Hudi can hold the lock, too."""
        return self not in (LockKind.NONE, LockKind.IN_PROCESS)


def parse_lock_kind(given: Any) -> LockKind:
    """Return the kind that the caller's word names."""
    if not isinstance(given, str) or given not in set(LockKind):
        raise InvalidRequestError(
            f"lock={given!r:.100} is not known",
            why=f"it is one of {', '.join(repr(kind.value) for kind in LockKind)}",
            next_step="Change lock",
        )
    return LockKind(given)
