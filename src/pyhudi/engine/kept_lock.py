"""The lock that a table keeps: noticing that it changed, writing the first one down, changing it.

Both changes are made under the locks they concern, by one conditional write of the properties. That
alone stops nobody who has checked before. An entry of the decision log that follows it does: see
`engine.table_lease`. Behind a first lock that is the begin of the write for which the table was
opened; whoever calls `change_lock` has to decide one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from pyhudi.engine.load import load_config
from pyhudi.engine.properties_file import load_properties_file, update_properties
from pyhudi.engine.table_lease import SHARED_LOCKS
from pyhudi.errors import ConflictError
from pyhudi.format.kept_lock import described_lock, keeps_lock, tells_lock, with_lock
from pyhudi.format.lock_address import LockAddress
from pyhudi.format.lock_kind import LockKind
from pyhudi.format.properties import TableProperties
from pyhudi.format.table_config import TableConfig
from pyhudi.plan.writable import with_first_lock
from pyhudi.storage.lock import Lock
from pyhudi.storage.open_lock import open_lock
from pyhudi.storage.probe import is_true_by_construction, require_true_replace
from pyhudi.storage.protocol import Storage
from pyhudi.world import World


def lock_change(storage: Storage, opened: TableConfig, data: bytes | None) -> str | None:
    """How the kept lock differs from the one with which the table was opened, if it does.

    `data` are the properties as they were then: mostly they still are.
    """
    if data is not None and load_properties_file(storage) == data:
        return None
    return difference(load_config(storage), opened)


def difference(now: TableConfig, opened: TableConfig) -> str | None:
    """How the lock that the table tells now differs from the other one, for people."""
    is_same = now.lock is opened.lock and now.lock_address in (None, opened.lock_address)
    if is_same or not tells_lock(now):
        return None
    return f"{described_lock(now)}, and not {described_lock(opened)}"


def is_first_lock(config: TableConfig) -> bool:
    """Whether the writer was told a lock that the table does not tell the next one."""
    return config.lock in SHARED_LOCKS and not keeps_lock(config)


def record_lock(storage: Storage, world: World, told: TableConfig, wait_ms: int) -> None:
    """Write the first lock of the table down, under that lock.

    InvalidRequestError if another writer was first, with another lock.
    """
    lock = _opened(storage, world, told.lock, told.lock_address)
    with _held([lock], wait_ms):
        update_properties(storage, lambda values: with_first_lock(values, told), world)


def change_lock(
    storage: Storage,
    world: World,
    before: TableConfig,
    kind: LockKind,
    address: LockAddress | None,
    *,
    wait_ms: int,
) -> None:
    """Let the table keep this lock instead of the one before, under both."""
    locks = [_opened(storage, world, kind, address)]
    if (before.lock, before.lock_address) != (kind, address):
        locks.append(_opened(storage, world, before.lock, before.lock_address))
    with _held(locks, wait_ms):
        update_properties(storage, partial(_with_other_lock, before, kind, address), world)


def _with_other_lock(
    before: TableConfig, kind: LockKind, address: LockAddress | None, values: dict[str, str]
) -> dict[str, str]:
    wanted = with_lock(values, kind, address)
    now = TableConfig.of(TableProperties(values))
    is_as_before = (now.lock, now.lock_address) == (before.lock, before.lock_address)
    if values != wanted and not is_as_before:
        raise ConflictError(
            f"the table {now.name!r} was not given the lock {kind.value!r}",
            why=f"it was {described_lock(before)} a moment ago, and somebody made it"
            f" {described_lock(now)}",
            next_step="Agree on one lock, and call again if it is this",
        )
    return wanted


def _opened(
    storage: Storage, world: World, kind: LockKind, address: LockAddress | None
) -> Lock | None:
    lock = open_lock(kind, storage, world, address=address)
    if kind is LockKind.STORAGE and not is_true_by_construction(storage):
        require_true_replace(storage, world)  # the test of the store was for another lock
    return lock


@contextmanager
def _held(locks: list[Lock | None], wait_ms: int) -> Iterator[None]:
    with ExitStack() as stack:
        for lock in locks:
            if lock is not None:
                stack.callback(lock.acquire(wait_ms).release)
        yield
