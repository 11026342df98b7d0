"""Holding the table's lock. It guards a table that a Java writer may lock too; else it is advisory.

The table's lock may be changed while a process writes the table. The process that changes it
appends an entry to the log afterwards. So a process looks up the recorded lock whenever it finds
entries of others, before it appends behind them or publishes the last one. It never does either
with an outdated lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import tzinfo

from pyhudi.errors import UnavailableError
from pyhudi.storage.locks.lock import HeldLock, Lock
from pyhudi.timeline.instant_time import clock_time
from pyhudi.world import World

#: How many times the expected skew of clocks is waited out.
SKEW_WAITS_MAX = 10
#: How long to wait for an advisory lock.
ADVISORY_WAIT_MS = 3_000


@dataclass(frozen=True, slots=True)
class OtherSettings:
    """How what a table records differs from what a process opened it with."""

    lock: str | None = None  # in words, if it is another one
    are_buckets_migrating: bool = False  # since then: rows may be in the wrong place


class TableLease:
    """The lock of one table, taken again and again by one process."""

    def __init__(
        self,
        lock: Lock | None,
        world: World,
        *,
        wait_ms: int,
        skew_ms: int,
        zone: tzinfo | None,
        now_ms: Callable[[], int],
        look_up: Callable[[], OtherSettings | None] = lambda: None,
    ) -> None:
        """`now_ms` is the time that the other engine's clock has too, but for the skew. `look_up`
        returns how the settings recorded in the table differ from those of the process."""
        self._lock = lock
        self._now_ms = now_ms
        self._world = world
        self._wait_ms = wait_ms
        self._skew_ms = skew_ms
        self._zone = zone
        self._slowest_ms = 0
        self._look_up = look_up
        self.has_new_entries = True  # others have appended since the settings were looked up
        self.other: OtherSettings | None = None  # as they were found then

    def change(self) -> str | None:
        """Return how the table's lock has changed; it is looked up only where that can matter."""
        self.other = self._look_up() if self.has_new_entries else None
        self.has_new_entries = self.other is not None
        return None if self.other is None else self.other.lock

    @property
    def is_migrating(self) -> bool:
        """True if the table's buckets are being migrated, by the last look, since it was opened."""
        return self.other is not None and self.other.are_buckets_migrating

    def may_go_on(self, held: HeldLock | None) -> bool:
        """True if this lock is still the table's, and ours. For work that no entry decides.

        A process that changes a lock takes it first, and has nothing to take where there is none.
        """
        if not self.is_safe(held):
            return False
        return held is not None or (found := self._look_up()) is None or found.lock is None

    @property
    def is_shared(self) -> bool:
        """True if a foreign engine may write the table, so that the lock guards it."""
        return self._lock is not None and self._lock.kind.is_shared

    @contextmanager
    def held(self, highest: Callable[[], str]) -> Iterator[HeldLock | None]:
        """Hold the lock; yield it if it guards the table. `highest` is the latest time we
        published."""
        held = self._acquired()
        try:
            yield held if self.is_shared else None
        finally:
            if held is not None:
                self._release(held, highest)

    def _release(self, held: HeldLock, highest: Callable[[], str]) -> None:
        try:
            self._wait_out_skew(highest())  # published by us, for others, or before an error
        except (KeyboardInterrupt, SystemExit):
            self._wait_out_skew(highest())  # what is published stays, so the wait must be completed
            raise
        finally:
            held.release()

    def _acquired(self) -> HeldLock | None:
        if self._lock is None:
            return None
        if self.is_shared:
            return self._lock.acquire(self._wait_ms)
        try:
            return self._lock.acquire(min(self._wait_ms, ADVISORY_WAIT_MS))
        except UnavailableError:
            return None  # it only saves lost races

    def _wait_out_skew(self, highest: str) -> None:
        """Keep the lock until a Java writer must read a later time from its clock.

        It reads its clock, not the timeline.
        """
        if not self.is_shared or not highest:
            return
        for _ in range(SKEW_WAITS_MAX):
            if clock_time(self._now_ms() - self._skew_ms, self._zone) > highest:
                return
            self._world.sleep_ms(max(1, self._skew_ms))

    def took(self, ms: int) -> None:
        """Record how long the last publication took. `is_safe` requires three times as much."""
        self._slowest_ms = max(self._slowest_ms // 2, ms)

    def is_safe(self, held: HeldLock | None) -> bool:
        """True if the lock, where it guards the table, will outlast the next publication."""
        if held is None:
            return True
        remaining = held.remaining_ms()
        if remaining is not None and remaining <= 3 * self._slowest_ms:
            self._slowest_ms //= 2  # or one slow moment would stop this process for ever
            return False
        return held.is_held()
