"""From the kind of lock that a table records to the lock."""

from __future__ import annotations

from pyhudi.errors import InvalidRequestError
from pyhudi.format.lock_address import (
    DynamodbAddress,
    LockAddress,
    ZookeeperAddress,
    require_fitting_address,
)
from pyhudi.format.lock_kind import LockKind
from pyhudi.storage.dynamodb_lock import DynamodbLock
from pyhudi.storage.file_lock import FileLock
from pyhudi.storage.lock import Lock
from pyhudi.storage.process_lock import InProcessLock
from pyhudi.storage.protocol import Storage
from pyhudi.storage.storage_lock import StorageLock
from pyhudi.storage.zookeeper_lock import ZookeeperLock
from pyhudi.world import World


def open_lock(
    kind: LockKind,
    storage: Storage,
    world: World,
    *,
    address: LockAddress | None = None,
    expire_minutes: int = 0,
) -> Lock | None:
    """The table's lock, not yet taken; None if it has none.

    Refused is what Hudi refuses: a file lock on an object store, and a storage lock on local disk.
    Storage in memory is neither and takes every kind. A lock that a service keeps is fine
    everywhere, and needs its address. `expire_minutes` is for the file lock.
    """
    require_fitting_address(kind, address)
    scheme = storage.uri.partition(":")[0]
    match kind:
        case LockKind.NONE:
            return None
        case LockKind.IN_PROCESS:
            return InProcessLock(storage, world)
        case LockKind.FILE:
            if scheme not in ("file", "memory"):
                raise _refusal(kind, storage, "it is for local disk alone", LockKind.STORAGE)
            return FileLock(storage, world, expire_minutes=expire_minutes)
        case LockKind.STORAGE:
            if scheme == "file":
                raise _refusal(kind, storage, "it is for object stores alone", LockKind.FILE)
            return StorageLock(storage, world)
        case LockKind.ZOOKEEPER:
            assert isinstance(address, ZookeeperAddress), "it fits"
            return ZookeeperLock(storage, world, address)
        case LockKind.DYNAMODB:
            assert isinstance(address, DynamodbAddress), "it fits"
            return DynamodbLock(storage, world, address)


def _refusal(kind: LockKind, storage: Storage, why: str, better: LockKind) -> InvalidRequestError:
    return InvalidRequestError(
        f"the lock {kind.value!r} cannot guard {storage.uri}",
        why=f"{why}, and Hudi's Java writers refuse it elsewhere as well",
        next_step=f"Use {better.value!r}, for all writers of the table",
    )
