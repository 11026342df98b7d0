"""Detect, on a table without a lock, a writer that does not use the decision log.

The log records all that pyhudi's writers do, so the timeline need not be listed for them. Any other
writer is found by times on the timeline that the log does not have. From time to time, all times
are compared that are newer than the first entry this process knows. Before a write completes, those
are compared that may have come while it was pending.
"""

from __future__ import annotations

from collections.abc import Callable

from pyhudi.read.log_view import KnownLog
from pyhudi.storage.objects.timeline_listing import times_after
from pyhudi.storage.protocol import Storage
from pyhudi.timeline.instant_time import shifted_time
from pyhudi.timeline.live import LiveTimeline
from pyhudi.world import World

#: How often to compare all times.
LOOK_AGAIN_MS = 30_000
#: Before a write completes, recent times are compared, unless that was done so shortly before. What
#: was requested more than so long before the write was compared when the write began.
RECENT_AGAIN_MS, RECENT_MS = 1_000, 60_000


class ForeignWriterDetector:
    """Finds instants of other engines, and remembers when it last looked for them."""

    def __init__(self, storage: Storage, folder: str, world: World) -> None:
        self._storage = storage
        self._folder = folder
        self._world = world
        self._compared_at = self._recent_compared_at = 0

    def listed(self, at_ms: int) -> None:
        """Note that the whole timeline was listed, at that steady time."""
        self._compared_at = self._recent_compared_at = at_ms

    def found(
        self,
        known: KnownLog,
        live: LiveTimeline,
        completes: str | None,
        catch_up: Callable[[], KnownLog],
    ) -> str | None:
        """Return a time that no entry brought; None if there is none, or a look is not due.

        `completes` is the instant that is about to complete. `catch_up` reads the log's end again.
        """
        since = self._due_since(known, live, completes)
        if since is None:
            return None
        now = self._world.elapsed_ms()
        if not live.is_ours and now - self._recent_compared_at <= RECENT_AGAIN_MS:
            now, times = self._recent_compared_at, live.times_after(since)
        else:
            times = times_after(self._storage, self._folder, since)
        unknown = times - known.times
        if unknown:
            # Perhaps appended since the log was read: the timeline was listed after it.
            unknown = times - catch_up().times
        self._recent_compared_at = now
        if since == known.first_time:
            self._compared_at = now
        live.is_ours = not unknown
        return min(unknown, default=None)

    def _due_since(self, known: KnownLog, live: LiveTimeline, completes: str | None) -> str | None:
        """Return the time from which on a look is due; None if none is."""
        now = self._world.elapsed_ms()
        if known.first_time is None:
            return None
        if not live.is_ours or now - self._compared_at > LOOK_AGAIN_MS:
            return known.first_time
        if completes is not None and now - self._recent_compared_at > RECENT_AGAIN_MS:
            return max(known.first_time, shifted_time(completes, -RECENT_MS))
        return None
