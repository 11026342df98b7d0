"""The lock recorded in a table: detect a change, record the first one, change it.

Both changes are made under the locks they concern, by one conditional write of the properties. That
alone does not stop a writer that has checked before. An entry of the decision log that follows it
does: see `commit.guard`. After a first lock, that entry is the begin of the write for which the
table was opened. A caller of `change_lock` has to append one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from pyhudi.commit.guard import OtherSettings
from pyhudi.errors import ConflictError, UnavailableError
from pyhudi.format.lock.lock_address import LockAddress
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.lock.lock_properties import (
    described_lock,
    has_recorded_lock,
    is_lock_recorded,
    with_lock,
)
from pyhudi.format.table.bucket_config import ConsistentBuckets
from pyhudi.format.table.bucket_migration import MigratingBuckets, is_outdated
from pyhudi.format.table.conflict_strategy import CONFLICT_STRATEGY, Strategy, ring_strategy
from pyhudi.format.table.properties import TableProperties
from pyhudi.format.table.table_config import LOCK_KIND, TableConfig
from pyhudi.plan.writable import is_migrating, with_first_lock
from pyhudi.read.load import load_config
from pyhudi.session.properties import load_properties_file, update_properties
from pyhudi.storage.locks.lock import HeldLock, Lock, LockTakenError
from pyhudi.storage.locks.open_lock import can_guard, is_same_lock, open_lock
from pyhudi.storage.probe import is_atomic_by_construction, verify_atomic_replace
from pyhudi.storage.protocol import Storage
from pyhudi.world import World


def recorded_lock(
    storage: Storage, world: World, config: TableConfig, *, ignore_unusable: bool
) -> Lock | None:
    """Return the table's lock, not yet taken; None if it has none.

    A table that was copied may record a lock that its new storage cannot have. Such a lock guards
    nothing and is ignored on request, so that the table can get another.
    """
    if ignore_unusable and not can_guard(config.lock, storage):
        return None
    return open_lock(config.lock, storage, world, address=config.lock_address)


@contextmanager
def under_recorded_lock(
    storage: Storage, world: World, config: TableConfig, wait_ms: int
) -> Iterator[None]:
    """Hold the table's lock, where it has one, for a change of its properties."""
    lock = recorded_lock(storage, world, config, ignore_unusable=True)
    with ExitStack() as stack:
        _acquired(stack, lock, wait_ms)
        yield


def setting_change(
    storage: Storage, opened: TableConfig, data: bytes | None
) -> OtherSettings | None:
    """Return how the table's settings differ from those with which it was opened, or None.

    `data` are the properties as they were then: mostly they have not changed.
    """
    if data is not None and load_properties_file(storage) == data:
        return None
    now = load_config(storage)
    lock, are_migrating = difference(now, opened), is_outdated(opened.buckets, now.buckets)
    return OtherSettings(lock, are_migrating) if lock or are_migrating else None


def difference(now: TableConfig, opened: TableConfig) -> str | None:
    """Describe how the lock recorded now differs from the other one; None if it does not."""
    is_same = now.lock is opened.lock and now.lock_address in (None, opened.lock_address)
    if is_same or not has_recorded_lock(now):
        return None
    return f"{described_lock(now)}, and not {described_lock(opened)}"


def is_first_lock(config: TableConfig) -> bool:
    """True if the writer was opened with a lock that the table does not record."""
    return config.lock.is_shared and not is_lock_recorded(config)


def record_lock(storage: Storage, world: World, config: TableConfig, wait_ms: int) -> None:
    """Record the first lock of the table, under that lock.

    InvalidRequestError if another writer was first, with another lock.
    """
    lock = _opened(storage, world, config.lock, config.lock_address)
    with ExitStack() as stack:
        _acquired(stack, lock, wait_ms)
        update_properties(storage, lambda values: with_first_lock(values, config), world)


def change_lock(
    storage: Storage,
    world: World,
    before: TableConfig,
    kind: LockKind,
    address: LockAddress | None,
    *,
    wait_ms: int,
) -> None:
    """Record this lock in place of the one before, under both.

    Under the new one alone if they are one lock by two addresses, or if this storage cannot have
    the one before: then no process holds it.
    """
    new, old = _opened(storage, world, kind, address), None
    is_other = (before.lock, before.lock_address) != (kind, address)
    if is_other and can_guard(before.lock, storage):
        old = _opened(storage, world, before.lock, before.lock_address)
    with ExitStack() as stack:
        held = _acquired(stack, new, wait_ms)
        if old is not None:
            with _explained(before, kind):
                if held is None or not is_same_lock(held, old, wait_ms):
                    _acquired(stack, old, wait_ms)
        update_properties(storage, partial(_with_other_lock, before, kind, address), world)


@contextmanager
def _explained(before: TableConfig, kind: LockKind) -> Iterator[None]:
    """Explain what to do if the lock to be replaced cannot be taken: its service may be gone."""
    try:
        yield
    except LockTakenError:
        raise
    except UnavailableError as error:
        if before.lock_address is None:
            raise  # the table's own storage did not answer
        raise UnavailableError(
            f"the lock of the table {before.name!r} was not changed to {kind.value!r}",
            why=f"its present lock, {described_lock(before)}, must be taken for that, and the"
            f" service of that lock does not answer: {error.why}",
            next_step="Repeat the call when it answers. If it never will, stop all writers of the"
            f" table, Java's too, set {LOCK_KIND}=none in its hoodie.properties, delete"
            " hoodie.write.lock.* there, and call again; docs/locks.md describes this",
        ) from error


def _with_other_lock(
    before: TableConfig, kind: LockKind, address: LockAddress | None, values: dict[str, str]
) -> dict[str, str]:
    wanted = _with_strategy(with_lock(values, kind, address), kind)
    now = TableConfig.of(TableProperties(values))
    if kind.is_shared and isinstance(now.buckets, MigratingBuckets):
        raise is_migrating(now, kind)
    is_as_before = (now.lock, now.lock_address) == (before.lock, before.lock_address)
    if values != wanted and not is_as_before:
        raise ConflictError(
            f"the lock of the table {now.name!r} was not changed to {kind.value!r}",
            why=f"it was {described_lock(before)} a moment ago, and another process made it"
            f" {described_lock(now)}",
            next_step="Agree on one lock, and repeat the call if it is this one",
        )
    return wanted


def _with_strategy(values: dict[str, str], kind: LockKind) -> dict[str, str]:
    """Let Hudi's writers complete beside resizes, if they share the table from now on."""
    config = TableConfig.of(TableProperties(values))
    recorded = values.get(CONFLICT_STRATEGY)
    is_usual = recorded in (None, Strategy.SIMPLE.class_name)
    if not (kind.is_shared and is_usual and isinstance(config.buckets, ConsistentBuckets)):
        return values
    return {**values, CONFLICT_STRATEGY: ring_strategy(kind).class_name}


def _opened(
    storage: Storage, world: World, kind: LockKind, address: LockAddress | None
) -> Lock | None:
    lock = open_lock(kind, storage, world, address=address)
    if kind is LockKind.STORAGE and not is_atomic_by_construction(storage):
        verify_atomic_replace(storage, world)  # the store was checked for another lock
    return lock


def _acquired(stack: ExitStack, lock: Lock | None, wait_ms: int) -> HeldLock | None:
    """Acquire the lock until the stack is unwound."""
    if lock is None:
        return None
    held = lock.acquire(wait_ms)
    stack.callback(held.release)
    return held
