"""Detecting, on a timeline in local time, that other writers run in another time zone.

The digits of such a timeline (Hudi's default) do not name their zone. If they are written an hour
to the east of the other writers, they are an hour ahead, and whatever the others write next is
taken for earlier, and hidden. But the store dates each file when it is written, and a completed
file carries the time of that moment. Where the two differ by whole quarters of an hour, as zones
do, the zones differ.
"""

from __future__ import annotations

from collections.abc import Set
from datetime import UTC, tzinfo

from pyhudi.commit.proposals import NothingDecidedError
from pyhudi.errors import CorruptTableError
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.instant import Instant, is_timeline_file
from pyhudi.storage.protocol import Storage
from pyhudi.timeline.instant_time import clock_time, milliseconds_between, shifted_time
from pyhudi.world import World

#: Zones differ by multiples of this, and by a day and two hours at most (from -12:00 to +14:00).
_QUARTER_MS, _APART_MAX_MS = 900_000, 93_600_000
#: How much wrong clocks and a slow store may add to it.
_TOLERANCE_MS = 120_000
#: How old a file may be and still show in which zone others write.
FRESH_MS = 3_600_000
#: How often to check; a check is a listing of the timeline.
LOOK_AGAIN_MS = 60_000


class TableZone:
    """Compares one process's zone with those of a table's other writers."""

    def __init__(self, storage: Storage, folder: str, world: World, zone: tzinfo | None) -> None:
        """`zone` is the timeline's, None for this machine's own."""
        self._storage = storage
        self._folder = folder
        self._world = world
        self._zone = zone
        self._looked_at: int | None = None

    @property
    def is_local(self) -> bool:
        return self._zone is not UTC

    def require_same(self, now_ms: int, ours: Set[str], *, is_ahead: bool) -> None:
        """Refuse to write if others do in another zone; `now_ms` is the store's time.

        `ours` are times that are known to be of this engine: an entry that one process appended may
        be published by another much later. If the table `is_ahead` of that time, a check is due.
        """
        if not self.is_local or not (is_ahead or self._is_due()):
            return
        apart = self._apart_ms(now_ms, ours)
        if apart is not None:
            raise _zone_error(self._storage.uri, *apart, clock_time(now_ms, self._zone))
        # Not before: a writer that was refused and tries again is refused again.
        self._looked_at = self._world.elapsed_ms()

    def _is_due(self) -> bool:
        if self._looked_at is None:
            return True
        return self._world.elapsed_ms() - self._looked_at > LOOK_AGAIN_MS

    def _apart_ms(self, now_ms: int, ours: Set[str]) -> tuple[str, int] | None:
        """Return a recent time from another zone, and how far that zone is ahead of ours.

        None also if any recent file is off by something else than a zone: then files were copied,
        or clocks are wrong, and the times of files prove nothing.
        """
        latest: tuple[int, str, int] | None = None
        for stat in self._storage.list_folder(self._folder).objects:
            name = file_name(stat.path)
            if stat.modified_ms < now_ms - FRESH_MS or not is_timeline_file(name):
                continue
            # A requested file may be written long after its time: a plan takes a while to make.
            completed = Instant.parse(name).completed
            if completed is None or completed in ours:
                continue
            try:
                ahead_ms = self._ahead_ms(completed, stat.modified_ms)
            except CorruptTableError:  # digits that are not a date
                return None
            apart_ms = round(ahead_ms / _QUARTER_MS) * _QUARTER_MS
            if abs(ahead_ms - apart_ms) > _TOLERANCE_MS or abs(apart_ms) > _APART_MAX_MS:
                return None
            if apart_ms:
                latest = max(latest or (0, "", 0), (stat.modified_ms, completed, apart_ms))
        return None if latest is None else latest[1:]

    def _ahead_ms(self, time: str, modified_ms: int) -> int:
        """Return how far the time is ahead of the file's; negative if it is behind."""
        now = clock_time(modified_ms, self._zone)
        # Summer time may have begun or ended between the two.
        before = shifted_time(clock_time(modified_ms - _TOLERANCE_MS, self._zone), _TOLERANCE_MS)
        return min(milliseconds_between(now, time), milliseconds_between(before, time), key=abs)


def _zone_error(uri: str, time: str, apart_ms: int, now: str) -> NothingDecidedError:
    hours, minutes = divmod(abs(apart_ms) // 60_000, 60)
    side = "ahead of" if apart_ms > 0 else "behind"
    return NothingDecidedError(
        f"the table at {uri} cannot be written in this process's time zone",
        why="its timeline is in local time, and another writer's zone is "
        f"{hours}:{minutes:02d} h {side} ours, in which it is {now} now: it completed {time}, "
        "which differs by so much from the time that the store gave to that file",
        next_step="Set TZ of this process to the zone of the other writers. If theirs was wrong, "
        f"the table can be written {FRESH_MS // 60_000} minutes after the last write in it",
    )
