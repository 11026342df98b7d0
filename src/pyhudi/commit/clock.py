"""The times of new entries, each later than all times of the table.

On a table that only pyhudi writes any clock will do, since the next writer reads the timeline. A
fast clock moves all later times forward, so it is bounded. A foreign engine reads only its own
clock. Beside one, a process uses the store's clock where its own contradicts it, and publishes
nothing later than what that engine's clock shows next.
"""

from __future__ import annotations

from collections.abc import Set
from datetime import tzinfo

from pyhudi.commit.append_rounds import AppendRounds
from pyhudi.commit.proposals import NothingDecidedError
from pyhudi.commit.time_zone import TableZone
from pyhudi.storage.objects.store_clock import StoreClock
from pyhudi.timeline.instant_time import clock_time, following_time, milliseconds_between

#: How long to wait, on a table of two engines, until the clock reaches the table's times.
AHEAD_WAIT_MAX_MS = 60_000


class TableTimes:
    """New times of one table, by one process's clock."""

    def __init__(
        self, clock: StoreClock, zone: tzinfo | None, folder: str, *, is_shared: bool, skew_ms: int
    ) -> None:
        """`zone` is the timeline's, None for this machine's own; `folder` holds the timeline."""
        self._clock = clock
        self._zone = zone
        self._zones = TableZone(clock.storage, folder, clock.world, zone)
        self._is_shared = is_shared
        self._skew_ms = skew_ms

    def after(self, highest: str) -> str:
        """Return a time that is later than the highest one."""
        clock = self._clock
        now_ms = clock.shared_now_ms() if self._is_shared else clock.bounded_now_ms()
        now = clock_time(now_ms, self._zone)
        return now if now > highest else following_time(highest)

    def must_wait(self, highest: str, tried: AppendRounds, ours: Set[str]) -> bool:
        """True if the table's times are ahead of the clock that the other engine has too.

        Raise if the wait would take long, or if a time zone is the cause. `ours` are times of the
        log.
        """
        if not self._is_shared:
            return False
        tried.waits_ms = self._wait_ms(highest)
        self._zones.require_same(self._clock.seen_now_ms(), ours, is_ahead=tried.waits_ms > 0)
        tried.waited_ms += tried.waits_ms
        if tried.waited_ms > AHEAD_WAIT_MAX_MS:
            raise self._ahead_error(highest, tried.waits_ms)
        return tried.waits_ms > 0

    def _wait_ms(self, highest: str) -> int:
        """Return how long it takes until the clock of another engine must have passed the highest
        time.

        Every entry of ours is published later than that time. It might so be later than what a
        writer with a right clock publishes next: the rows of that writer would be behind ours, and
        lost.
        """
        now = clock_time(self._clock.shared_now_ms() + self._skew_ms, self._zone)
        if highest > now:  # unless it is this process that is behind
            now = clock_time(self._clock.shared_again_ms() + self._skew_ms, self._zone)
        return milliseconds_between(now, highest) if highest > now else 0

    def _ahead_error(self, highest: str, ahead_ms: int) -> NothingDecidedError:
        next_step = "Find the writer that chose that time, and set the clock of its machine"
        here = ""
        if not self._zones.is_local:
            # Not every part of Hudi looks up the table's zone before it chooses a time.
            next_step += " (or its zone: the timeline is in UTC, -Duser.timezone=UTC)"
        else:
            now = clock_time(self._clock.seen_now_ms(), self._zone)
            here = f", which is {now} in our time zone"
            next_step += ". The timeline is in local time, so run all writers in one zone (TZ). "
            next_step += "If clocks were just set back for the winter, wait"
        return NothingDecidedError(
            f"the table at {self._clock.storage.uri} cannot be written beside another engine",
            why=f"its latest time, {highest}, is {ahead_ms / 1000:.1f} s ahead of the store's "
            f"clock{here}, so a writer of the other engine whose clock is right would be taken for "
            "an earlier one",
            next_step=f"{next_step}; in {ahead_ms / 1000:.1f} s the table can be written again, "
            "unless more such times come",
        )
