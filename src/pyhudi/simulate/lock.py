"""The lock of a table that a Java writer shares, as good as a lock can be, or almost.

A process that crashes while it holds the lock blocks the others until the lease is over. No live
process loses it: that is what the guarantee for such tables rests on.

A frail lock may be lost by a live holder in one way: a listing that takes longer than the lease
lets another process in. A holder that checks again before it publishes finds out in time. A lock
that is lost between that check and the next create gives less, and is not simulated; nor is one
that a Java writer loses, because it does not check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.simulate.faults import LISTINGS
from pyhudi.storage.locks.lock import HeldLock, Taken, wait_for

if TYPE_CHECKING:
    from pyhudi.simulate.simulation import Process

LEASE_MS = 20_000
LOCK_PATH = ".hoodie/.locks/table_lock"


class SharedLock:
    """The lock itself: its holder, and whether a slow holder may lose it."""

    def __init__(self, *, is_frail: bool = False) -> None:
        self.holder: _Held | None = None
        self._is_frail = is_frail

    def of(self, process: Process, *, asks_again: bool = False) -> ProcessLock:
        """Return the lock for a process; `asks_again`: it checks the lock before it publishes."""
        return ProcessLock(self, process, can_lose=self._is_frail and asks_again)


class ProcessLock:
    """The lock as one process uses it."""

    kind = LockKind.STORAGE

    def __init__(self, shared: SharedLock, process: Process, *, can_lose: bool) -> None:
        self._shared = shared
        self._process = process
        self._can_lose = can_lose

    def acquire(self, wait_ms: int) -> HeldLock:
        world, uri = self._process.world, self._process.storage.uri
        return wait_for(self._claim, world, wait_ms=wait_ms, table_uri=uri)

    def _claim(self) -> _Held | Taken:
        self._process.pause("lock", LOCK_PATH)
        holder = self._shared.holder
        if holder is not None and not holder.is_over():
            return Taken(f"{holder.owner} has it", "Wait")
        self._shared.holder = _Held(self._shared, self._process, self._can_lose)
        return self._shared.holder


class _Held:
    def __init__(self, shared: SharedLock, process: Process, can_lose: bool) -> None:
        self._shared = shared
        self._process = process
        self._taken_ms = process.scheduler.now_ms
        self._actor = process.scheduler.current if can_lose else None

    @property
    def owner(self) -> str:
        return self._process.name

    def is_over(self) -> bool:
        age_ms = self._process.scheduler.now_ms - self._taken_ms
        return age_ms >= LEASE_MS and (self._process.crashed or self._is_listing)

    @property
    def _is_listing(self) -> bool:
        return self._actor is not None and self._actor.pending.operation in LISTINGS

    def remaining_ms(self) -> int | None:
        return None

    def is_held(self) -> bool:
        return self._shared.holder is self

    def release(self) -> None:
        self._process.pause("unlock", LOCK_PATH)
        if self._shared.holder is self:
            self._shared.holder = None
