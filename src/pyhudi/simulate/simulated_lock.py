"""The lock of a table that a Java writer shares, as good as a lock can be.

Nobody who lives loses it. Whoever crashes holding it blocks the others until the lease is over.
That is what the guarantee for such tables rests on; a lock that a living holder can lose gives
less, and is not simulated here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyhudi.format.lock_kind import LockKind
from pyhudi.storage.lock import HeldLock, Taken, wait_for

if TYPE_CHECKING:
    from pyhudi.simulate.simulation import Process

LEASE_MS = 20_000
LOCK_PATH = ".hoodie/.locks/table_lock"


class SharedLock:
    """The lock itself: who has it."""

    def __init__(self) -> None:
        self.holder: _Held | None = None

    def of(self, process: Process) -> ProcessLock:
        return ProcessLock(self, process)


class ProcessLock:
    """The lock as one process asks for it."""

    kind = LockKind.STORAGE

    def __init__(self, shared: SharedLock, process: Process) -> None:
        self._shared = shared
        self._process = process

    def acquire(self, wait_ms: int) -> HeldLock:
        world, uri = self._process.world, self._process.storage.uri
        return wait_for(self._claim, world, wait_ms=wait_ms, table_uri=uri)

    def _claim(self) -> _Held | Taken:
        self._process.pause("lock", LOCK_PATH)
        holder = self._shared.holder
        if holder is not None and not holder.is_over():
            return Taken(f"{holder.owner} has it", "Wait")
        self._shared.holder = _Held(self._shared, self._process)
        return self._shared.holder


class _Held:
    def __init__(self, shared: SharedLock, process: Process) -> None:
        self._shared = shared
        self._process = process
        self._taken_ms = process.scheduler.now_ms

    @property
    def owner(self) -> str:
        return self._process.name

    def is_over(self) -> bool:
        age_ms = self._process.scheduler.now_ms - self._taken_ms
        return self._process.crashed and age_ms >= LEASE_MS

    def remaining_ms(self) -> int | None:
        return None

    def is_held(self) -> bool:
        return self._shared.holder is self

    def release(self) -> None:
        self._process.pause("unlock", LOCK_PATH)
        if self._shared.holder is self:
            self._shared.holder = None
