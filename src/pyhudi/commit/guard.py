"""Holding the table's lock: a guard where a Java writer may take it too, else a courtesy.

The table may get another lock while a process writes it. Whoever changes it decides an entry of the
log afterwards, so a process that looks up the kept lock whenever it finds entries of others, before
it decides behind them or carries out the last one, never does either with a lock of the past.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import tzinfo

from pyhudi.errors import UnavailableError
from pyhudi.storage.locks.lock import HeldLock, Lock
from pyhudi.timeline.instant_time import clock_time
from pyhudi.world import World

#: How many times the expected skew of clocks is waited out.
SKEW_WAITS_MAX = 10
#: How long to wait for a lock that guards nothing.
COURTESY_WAIT_MS = 3_000


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
        look_up: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`now_ms` is the time that the other engine's clock has too, but for the skew. `look_up`
        says how the lock that the table keeps differs from this one, if it does."""
        self._lock = lock
        self._now_ms = now_ms
        self._world = world
        self._wait_ms = wait_ms
        self._skew_ms = skew_ms
        self._zone = zone
        self._slowest_ms = 0
        self._look_up = look_up
        self.has_news = True  # whether others have decided since the kept lock was looked up

    def change(self) -> str | None:
        """How the table's lock has changed; looked up only where that can matter."""
        found = self._look_up() if self.has_news else None
        self.has_news = found is not None
        return found

    def may_go_on(self, held: HeldLock | None) -> bool:
        """For work that no entry decides: whether this lock is still the table's, and ours.

        Whoever changes a lock takes it first, and finds nothing to take where there is none.
        """
        return self.is_safe(held) and (held is not None or self._look_up() is None)

    @property
    def is_shared(self) -> bool:
        """Whether a foreign engine may write the table, so that the lock guards it."""
        return self._lock is not None and self._lock.kind.is_shared

    @contextmanager
    def held(self, highest: Callable[[], str]) -> Iterator[HeldLock | None]:
        """The lock, if it guards the table; `highest` is the latest time that we published."""
        held = self._acquired()
        try:
            yield held if self.is_shared else None
        finally:
            if held is not None:
                self._give_back(held, highest)

    def _give_back(self, held: HeldLock, highest: Callable[[], str]) -> None:
        try:
            self._wait_out_skew(highest())  # published by us, for others, or with an error
        except (KeyboardInterrupt, SystemExit):
            self._wait_out_skew(highest())  # what is published stays, so this wait does too
            raise
        finally:
            held.release()

    def _acquired(self) -> HeldLock | None:
        if self._lock is None:
            return None
        if self.is_shared:
            return self._lock.acquire(self._wait_ms)
        try:
            return self._lock.acquire(min(self._wait_ms, COURTESY_WAIT_MS))
        except UnavailableError:
            return None  # it only saves lost races

    def _wait_out_skew(self, highest: str) -> None:
        """A Java writer reads its clock, not the timeline: keep the lock until it must see more."""
        if not self.is_shared or not highest:
            return
        for _ in range(SKEW_WAITS_MAX):
            if clock_time(self._now_ms() - self._skew_ms, self._zone) > highest:
                return
            self._world.sleep_ms(max(1, self._skew_ms))

    def took(self, ms: int) -> None:
        """A publication took so long; the next one may."""
        self._slowest_ms = max(self._slowest_ms // 2, ms)

    def is_safe(self, held: HeldLock | None) -> bool:
        """Whether the lock, where it guards the table, will outlive what we are about to do."""
        if held is None:
            return True
        remaining = held.remaining_ms()
        if remaining is not None and remaining <= 3 * self._slowest_ms:
            self._slowest_ms //= 2  # or one slow moment would stop this process for good
            return False
        return held.is_held()
