"""The store's own clock, which all writers share, read through the times it gives to objects.

Writers' clocks disagree, and a verdict such as "that writer has been silent for two minutes" must
not depend on one of them. The time that the store gives to an object shows that its clock had come
that far; between such sightings a steady clock of this machine counts on.
"""

from __future__ import annotations

from typing import Final

from pyhudi.storage.protocol import Storage
from pyhudi.world import World, new_uuid

CLOCK_FOLDER: Final = ".hoodie/.pyhudi/clock"
#: How far ahead of the store's clock a writer's own may move the table's times.
CLOCK_AHEAD_MAX_MS = 600_000
#: How much later than an object's time the store's clock may have been: stores that report whole
#: seconds, and others, whose clock is a tick behind.
_WHOLE_SECONDS_MS, _TICK_MS = 1_000, 10
#: How long a reading may take to count. One that took longer only shows that the store's clock has
#: come so far.
_READING_TAKES_MS = 1_000
_READINGS_MAX = 3
#: How long a reading counts although our own clock, or a time that the store gave to an object
#: since, contradicts it; and how long if nothing does. A steady clock drifts with the other one of
#: its machine, and of the 200 ms that engines' clocks may differ by, one that is 500 parts in a
#: million fast, which is as fast as NTP ever lets one run, uses up 150 meanwhile.
_READING_LASTS_MS, _READ_AGAIN_MS = 10_000, 300_000


class StoreClock:
    """A lower bound of the store's time, exact after a `read_ms`."""

    def __init__(self, storage: Storage, world: World) -> None:
        self.storage = storage
        self.world = world
        self._ahead: int | None = None  # of our steady clock, at least
        self._ahead_max: int | None = None  # by the last reading
        self._read_at = 0
        self._is_vague = False

    def observe(self, modified_ms: int) -> None:
        """Take into account a time that the store gave to an object which we see now."""
        ahead = modified_ms - self.world.elapsed_ms()
        self._ahead = ahead if self._ahead is None else max(self._ahead, ahead)

    def at_least_ms(self) -> int | None:
        """Return the time that the store's clock has certainly reached.

        None before the first sighting.
        """
        return None if self._ahead is None else self._ahead + self.world.elapsed_ms()

    def estimate_ms(self) -> int:
        """Return about the store's time, for a look that must not change anything."""
        return max(self.at_least_ms() or 0, self.world.now_ms())

    def read_ms(self) -> int:
        """Return the store's time now, at the cost of writing and removing an empty object."""
        path = f"{CLOCK_FOLDER}/{new_uuid(self.world)}"
        started = self.world.elapsed_ms()
        self.storage.write(path, b"")
        try:
            found = self.storage.stat(path)
        finally:
            self.storage.delete(path)
        if found is None:  # another process swept it up: the store's time stays unknown
            reached = self.at_least_ms()
            return self.world.now_ms() if reached is None else reached
        # Set, not raised: an object with a time from the future may have misled us before.
        self._read_at = self.world.elapsed_ms()
        self._ahead = found.modified_ms - self._read_at
        late = _TICK_MS if found.modified_ms % 1_000 else _WHOLE_SECONDS_MS
        took = self._read_at - started
        self._is_vague = took > _READING_TAKES_MS
        self._ahead_max = self._ahead + min(took, _READING_TAKES_MS) + late
        return found.modified_ms

    def shared_now_ms(self) -> int:
        """Return this machine's clock, as far as it agrees with the store's.

        For what a foreign engine compares with its own clock. The store's is read every few
        minutes, and sooner if ours is ahead of it or a sighting shows that we are behind.
        """
        for _ in range(_READINGS_MAX):
            if not self._is_in_doubt():
                break
            self.read_ms()
        return self.seen_now_ms()

    def shared_again_ms(self) -> int:
        """Return the shared time after reading the store's clock in any case.

        For a caller that saw times which say that we are behind. A machine that was stopped may
        find both of its clocks where they were.
        """
        self.read_ms()
        return self.shared_now_ms()

    def _is_in_doubt(self) -> bool:
        """True if the last reading may be wrong by now."""
        if self._ahead_max is None:
            return True
        age = self.world.elapsed_ms() - self._read_at
        if age <= _READING_LASTS_MS and not self._is_vague:
            return False
        if age > _READ_AGAIN_MS or self.seen_now_ms() < self.world.now_ms():
            return True
        return self._ahead is not None and self._ahead > self._ahead_max

    def seen_now_ms(self) -> int:
        """Return the shared time by what is known, without a request to the store."""
        now, steady = self.world.now_ms(), self.world.elapsed_ms()
        if self._ahead_max is None:
            return now
        latest = self._ahead_max + steady
        reached = min((self._ahead or 0) + steady, latest)
        return now if reached <= now <= latest else reached

    def bounded_now_ms(self) -> int:
        """Return this machine's clock, unless it is far ahead of the store's."""
        now = self.world.now_ms()
        reached = self.at_least_ms()
        if reached is None or now > reached + CLOCK_AHEAD_MAX_MS:
            reached = self.read_ms()
        return min(now, reached + CLOCK_AHEAD_MAX_MS)
