"""The store's own clock, which all writers share, read through the times it gives to objects.

Writers' clocks disagree, and a verdict such as "that writer has been silent for two minutes" must
not depend on whose clock is asked. Every object that we see the store date tells that its clock
had come that far; between such sightings a steady clock of this machine goes on counting.
"""

from __future__ import annotations

from pyhudi.storage.protocol import Storage
from pyhudi.world import World, new_uuid

_FOLDER = ".hoodie/.pyhudi/clock"
#: How far ahead of the store's clock a writer's own may pull the table's times.
CLOCK_AHEAD_MAX_MS = 600_000


class StoreClock:
    """A lower bound of the store's time, exact after a `read_ms`."""

    def __init__(self, storage: Storage, world: World) -> None:
        self._storage = storage
        self._world = world
        self._ahead: int | None = None  # of our steady clock, at least

    def observe(self, modified_ms: int) -> None:
        """The store gave this time to an object that we see now."""
        ahead = modified_ms - self._world.elapsed_ms()
        self._ahead = ahead if self._ahead is None else max(self._ahead, ahead)

    def at_least_ms(self) -> int | None:
        """What the store's clock has reached for certain; None before the first sighting."""
        return None if self._ahead is None else self._ahead + self._world.elapsed_ms()

    def glimpse_ms(self) -> int:
        """About the store's time: for a look that must not change anything."""
        return max(self.at_least_ms() or 0, self._world.now_ms())

    def read_ms(self) -> int:
        """The store's time now, at the cost of writing and removing an empty object."""
        path = f"{_FOLDER}/{new_uuid(self._world)}"
        self._storage.write(path, b"")
        try:
            found = self._storage.stat(path)
        finally:
            self._storage.delete(path)
        if found is None:  # somebody swept it up: the store tells nothing
            reached = self.at_least_ms()
            return self._world.now_ms() if reached is None else reached
        # Set, not raised: an object with a time from the future may have misled us before.
        self._ahead = found.modified_ms - self._world.elapsed_ms()
        return found.modified_ms

    def bounded_now_ms(self) -> int:
        """This machine's clock, unless it is far ahead of the store's."""
        now = self._world.now_ms()
        reached = self.at_least_ms()
        if reached is None or now > reached + CLOCK_AHEAD_MAX_MS:
            reached = self.read_ms()
        return min(now, reached + CLOCK_AHEAD_MAX_MS)
