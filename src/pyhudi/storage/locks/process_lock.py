"""A lock among the writers of one table in this process only.

The holders lie in one dictionary for the whole process, by the address of the table. Its
`setdefault` is atomic, so it is all the exclusion that is needed, and nothing here waits except
through the world. A lock ends with its process; a forked child begins without any, since the holder
lives on in the parent.
"""

from __future__ import annotations

import os

from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.storage.locks.lock import HeldLock, Taken, moment, wait_for
from pyhudi.storage.protocol import Storage
from pyhudi.world import World

_holders: dict[str, _HeldInProcessLock] = {}
os.register_at_fork(after_in_child=_holders.clear)


class InProcessLock:
    """The lock of all tables of this process that have the same address."""

    kind = LockKind.IN_PROCESS

    def __init__(self, storage: Storage, world: World) -> None:
        self._table_uri = storage.uri
        self._world = world

    def acquire(self, wait_ms: int) -> HeldLock:
        return wait_for(self._claim, self._world, wait_ms=wait_ms, table_uri=self._table_uri)

    def _claim(self) -> _HeldInProcessLock | Taken:
        mine = _HeldInProcessLock(self._table_uri, self._world.label, self._world.now_ms())
        holder = _holders.setdefault(self._table_uri, mine)
        if holder is mine:
            return mine
        return Taken(
            f"another writer of this process ({holder.label}) has it since "
            f"{moment(holder.since_ms)}",
            "Repeat the call when that writer is done; if it hangs, end this process",
        )


class _HeldInProcessLock:
    def __init__(self, table_uri: str, label: str, since_ms: int) -> None:
        self.label = label
        self.since_ms = since_ms
        self._table_uri = table_uri

    def remaining_ms(self) -> int | None:
        return None if self.is_held() else 0

    def is_held(self) -> bool:
        return _holders.get(self._table_uri) is self

    def release(self) -> None:
        if self.is_held():  # and only we can change that
            del _holders[self._table_uri]
