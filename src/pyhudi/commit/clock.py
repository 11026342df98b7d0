"""The times that decisions bring, each later than all that the table has.

On a table of our own any clock will do, for whoever comes next reads the timeline. One that is
fast pulls all later times forward, so it is bounded. A foreign engine reads its own clock alone:
beside it we go by the store's clock where ours contradicts it, and publish nothing that is later
than what that engine's clock shows next.
"""

from __future__ import annotations

from collections.abc import Set
from datetime import tzinfo

from pyhudi.commit.append_attempt import AppendAttempt
from pyhudi.commit.proposals import NothingDecidedError
from pyhudi.commit.time_zone import TableZone
from pyhudi.storage.objects.store_clock import StoreClock
from pyhudi.timeline.instant_time import clock_time, following_time, milliseconds_between

#: How long to wait, on a table of two engines, until the clock has come as far as its times.
AHEAD_WAIT_MAX_MS = 60_000


class TableTimes:
    """New times of one table, by one process's clock."""

    def __init__(
        self, clock: StoreClock, zone: tzinfo | None, folder: str, *, is_shared: bool, skew_ms: int
    ) -> None:
        """`zone` is the timeline's, None for this machine's own; `folder` is where it lies."""
        self._clock = clock
        self._zone = zone
        self._zones = TableZone(clock.storage, folder, clock.world, zone)
        self._is_shared = is_shared
        self._skew_ms = skew_ms

    def after(self, highest: str) -> str:
        """A time that is later than the highest one."""
        clock = self._clock
        now_ms = clock.shared_now_ms() if self._is_shared else clock.bounded_now_ms()
        now = clock_time(now_ms, self._zone)
        return now if now > highest else following_time(highest)

    def must_wait(self, highest: str, tried: AppendAttempt, ours: Set[str]) -> bool:
        """Whether the table's times are ahead of the clock that the other engine has too.

        An error says so if that would take long, or comes of a zone. `ours` are times of the log.
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
        """How long it takes until the clock of another engine must have passed the highest time.

        Whatever we publish is later than that, and so might be later than what a writer publishes
        next whose clock is right: its rows would be behind ours, and lost.
        """
        now = clock_time(self._clock.shared_now_ms() + self._skew_ms, self._zone)
        if highest > now:  # or it is we who are behind
            now = clock_time(self._clock.shared_again_ms() + self._skew_ms, self._zone)
        return milliseconds_between(now, highest) if highest > now else 0

    def _ahead_error(self, highest: str, ahead_ms: int) -> NothingDecidedError:
        next_step = "Look which writer gave that time, and set the clock of its machine"
        here = ""
        if not self._zones.is_local:
            # Not all of Hudi looks up the table's zone before it gives times.
            next_step += " (or its zone: the timeline is in UTC, -Duser.timezone=UTC)"
        else:
            now = clock_time(self._clock.seen_now_ms(), self._zone)
            here = f", which is {now} in our time zone"
            next_step += ". The timeline is in local time: all writers must run in one zone (TZ). "
            next_step += "Where clocks were just set back for the winter, wait"
        return NothingDecidedError(
            f"the table at {self._clock.storage.uri} cannot be written beside another engine",
            why=f"its latest time, {highest}, is {ahead_ms / 1000:.1f} s ahead of the store's "
            f"clock{here}, so a writer of the other engine whose clock is right would be taken for "
            "an earlier one",
            next_step=f"{next_step}; in {ahead_ms / 1000:.1f} s the table can be written again, "
            "unless more such times come",
        )
