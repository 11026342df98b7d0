"""The times that decisions bring, each later than all that the table has.

On a table of our own any clock will do, for whoever comes next reads the timeline. One that is
fast pulls all later times forward, so it is bounded. A foreign engine reads its own clock alone:
beside it we go by the store's clock where ours contradicts it, and publish nothing that is later
than what that engine's clock shows next.
"""

from __future__ import annotations

from datetime import tzinfo

from pyhudi.errors import UnavailableError
from pyhudi.storage.store_clock import StoreClock
from pyhudi.timeline.instant_time import clock_time, following_time, milliseconds_between

#: How long to wait, on a table of two engines, until the clock has come as far as its times.
AHEAD_WAIT_MAX_MS = 60_000


class TableTimes:
    """New times of one table, by one process's clock."""

    def __init__(
        self, clock: StoreClock, zone: tzinfo | None, *, is_shared: bool, skew_ms: int
    ) -> None:
        self._clock = clock
        self._zone = zone
        self._is_shared = is_shared
        self._skew_ms = skew_ms

    def after(self, highest: str) -> str:
        """A time that is later than the highest one."""
        clock = self._clock
        now_ms = clock.shared_now_ms() if self._is_shared else clock.bounded_now_ms()
        now = clock_time(now_ms, self._zone)
        return now if now > highest else following_time(highest)

    def wait_ms(self, highest: str) -> int:
        """How long it takes until the clock of another engine must have passed the highest time.

        Whatever we publish is later than that, and so might be later than what a writer publishes
        next whose clock is right: its rows would be behind ours, and lost.
        """
        if not self._is_shared:
            return 0
        now = clock_time(self._clock.shared_now_ms() + self._skew_ms, self._zone)
        if highest > now:  # or it is we who are behind
            now = clock_time(self._clock.shared_again_ms() + self._skew_ms, self._zone)
        return milliseconds_between(now, highest) if highest > now else 0


def ahead_error(uri: str, highest: str, ahead_ms: int) -> UnavailableError:
    return UnavailableError(
        f"the table at {uri} cannot be written beside another engine",
        why=f"its latest time, {highest}, is {ahead_ms / 1000:.1f} s ahead of the store's clock, "
        "so a writer of the other engine whose clock is right would be taken for an earlier one",
        next_step="Look which writer gave that time, and set the clock of its machine; in "
        f"{ahead_ms / 1000:.1f} s the table can be written again",
    )
