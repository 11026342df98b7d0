"""May a write that was lost be tried again, and when?

**A write that goes first**, by its priority or because ours yields to it (`conflict.announced`), is
waited for until it ends, or is found dead and rolled back. A dead writer seems alive until its
heartbeat is too old. So the wait for each such write lasts that long and no longer, because a
writer that is alive may take hours.

**A resize** of the write's buckets is nothing that its caller has to avoid. Repeating a write
because of one is not limited by `conflict_retries`. A partition rests between two resizes, so the
write is not overtaken each time.
"""

from __future__ import annotations

from pyhudi.commit.transaction import Lost
from pyhudi.conflict.rules import Retry
from pyhudi.errors import ConflictError
from pyhudi.session.open import OpenTable
from pyhudi.session.session import TableSession
from pyhudi.world import jittered_ms
from pyhudi.write.begin import ready

#: How long to wait for another write that is pending, the first time and at most; in between, twice
#: as long each time.
LATER_MS, LATER_MAX_MS = 1_000, 30_000
#: How often to check whether a write that goes first has ended.
LOOK_MS = 5_000


class Retries:
    """The retries of one write."""

    def __init__(self, table: OpenTable) -> None:
        self._table = table
        self.count = 0  # of all repetitions
        self._counted = 0  # of those that conflict_retries limits
        self._waited_for: set[str] = set()

    def may_follow(self, lost: Lost) -> bool:
        """True if the write may be tried again after it was lost in this way."""
        is_left = self._counted < self._table.settings.conflict_retries
        return (is_left or not lost.is_counted) and lost.retry is not Retry.NO

    def reopened_after(self, lost: Lost) -> TableSession:
        """Open the table again, after the other pending write has had some time to end."""
        if lost.retry is Retry.LATER:
            other = lost.waits_for
            if other is not None and other not in self._waited_for:
                self._waited_for.add(other)
                self._wait_for(other)
            else:
                world = self._table.world
                longer = LATER_MS << min(self.count, 10)
                world.sleep_ms(jittered_ms(world, min(longer, LATER_MAX_MS)))
        self.count += 1
        self._counted += lost.is_counted
        return ready(self._table)  # the other may be dead now, and the table may have another lock

    def _wait_for(self, other: str) -> None:
        world, settings = self._table.world, self._table.settings
        # A dead writer can seem alive until its heartbeat times out, and one check more, because
        # its clock is only estimated.
        end = world.elapsed_ms() + settings.heartbeat_timeout_ms + LOOK_MS
        pause = LATER_MS
        while not self._has_ended(other) and world.elapsed_ms() < end:
            world.sleep_ms(jittered_ms(world, pause))
            pause = min(2 * pause, LOOK_MS)

    def _has_ended(self, other: str) -> bool:
        try:
            live = ready(self._table).log.live  # with the lock that the table has by now
            return other not in live.pending or other in live.rolled_back_by
        except ConflictError:  # the table got another lock at this moment; the next check uses it
            return False
