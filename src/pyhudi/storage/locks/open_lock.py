"""From the kind of lock that a table records to the lock."""

from __future__ import annotations

from pyhudi.errors import InvalidRequestError
from pyhudi.format.lock.lock_address import (
    DynamodbAddress,
    LockAddress,
    ZookeeperAddress,
    require_fitting_address,
)
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.storage.locks.dynamodb_lock import DynamodbLock
from pyhudi.storage.locks.file_lock import FileLock
from pyhudi.storage.locks.lock import HeldLock, Lock
from pyhudi.storage.locks.process_lock import InProcessLock
from pyhudi.storage.locks.storage_lock import StorageLock
from pyhudi.storage.locks.zookeeper_lock import ZookeeperLock
from pyhudi.storage.protocol import Storage
from pyhudi.world import World


def open_lock(
    kind: LockKind, storage: Storage, world: World, *, address: LockAddress | None = None
) -> Lock | None:
    """Return the table's lock, not yet taken; None if it has none.

    Whatever Hudi refuses is refused here: a file lock on an object store, and a storage lock on
    local disk. Storage in memory is neither and takes every kind. A lock that a service keeps can
    be used everywhere, and needs its address.
    """
    require_fitting_address(kind, address)
    if not can_guard(kind, storage):
        raise _refusal(kind, storage)
    match kind:
        case LockKind.NONE:
            return None
        case LockKind.IN_PROCESS:
            return InProcessLock(storage, world)
        case LockKind.FILE:
            return FileLock(storage, world)
        case LockKind.STORAGE:
            return StorageLock(storage, world)
        case LockKind.ZOOKEEPER:
            assert isinstance(address, ZookeeperAddress), "it fits"
            return ZookeeperLock(storage, world, address)
        case LockKind.DYNAMODB:
            assert isinstance(address, DynamodbAddress), "it fits"
            return DynamodbLock(storage, world, address)


def can_guard(kind: LockKind, storage: Storage) -> bool:
    """True if there can be a lock of this kind there. If not, no engine holds one."""
    scheme = storage.uri.partition(":")[0]
    match kind:
        case LockKind.FILE:
            return scheme in ("file", "memory")
        case LockKind.STORAGE:
            return scheme != "file"
        case _:
            return True


def is_same_lock(held: HeldLock, other: Lock, wait_ms: int) -> bool:
    """True if the other lock is the held one, by another address of the same service.

    UnavailableError if the service does not answer for as long as we wait.
    """
    if isinstance(other, ZookeeperLock | DynamodbLock):
        return other.is_taken_by(held, wait_ms)
    return False


def _refusal(kind: LockKind, storage: Storage) -> InvalidRequestError:
    is_file = kind is LockKind.FILE
    where = "local disk" if is_file else "object stores"
    better = LockKind.STORAGE.value if is_file else LockKind.FILE.value
    return InvalidRequestError(
        f"the lock {kind.value!r} cannot guard {storage.uri}",
        why=f"it is for {where} alone, and Hudi's Java writers refuse it elsewhere as well",
        next_step=f"Use {better!r}, for all writers of the table; one that was copied here with"
        f" its old lock gets it by table.alter.use_lock({better!r})",
    )
