"""Is the owner of an instant alive? Its signs of life answer that, by the store's clock.

A sign is an object that the owner writes: its heartbeat, its requested file. The verdict is a
guess, because a silent process may be frozen. So it only lets others try to abort an instant or to
execute a plan, and the decision log settles which of them was first.

The age of a sign is measured by the store's clock, never by the clock of the machine that asks. The
clock is read before the signs: a process that freezes in between finds younger signs, and errs
towards alive.
"""

from __future__ import annotations

from collections.abc import Container

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.format.timeline.instant import Instant, State
from pyhudi.settings import WriteSettings
from pyhudi.storage.objects.heartbeats import has_recent_sign, heartbeat_path, last_sign_ms


class Liveness:
    """Finds out which owners are alive, for one process and table."""

    def __init__(self, log: DecisionLog, settings: WriteSettings) -> None:
        self._log = log
        self._timeout_ms = settings.heartbeat_timeout_ms
        self._alive_until: dict[str, int] = {}  # instant → steady time before which it is alive

    # -- an owner, by its signs

    def is_alive(self, *signs: str) -> bool:
        """True if the last sign is no older than the timeout."""
        return has_recent_sign(self._log.clock, self._timeout_ms, *signs)

    def seems_alive(self, *signs: str) -> bool:
        """True if the owner is alive by an estimate of the store's time, which changes nothing."""
        return self._seems_recent(last_sign_ms(self._log.storage, *signs))

    def _seems_recent(self, sign: int | None) -> bool:
        return self._log.clock.estimate_ms() - (sign or 0) <= self._timeout_ms

    # -- the writer of a pending instant

    def is_writer_alive(self, instant: Instant) -> bool:
        """True if the writer is alive. Cheap, because every write asks it of all others.

        A writer that was found alive is not looked at again before its last sign can be too old.
        """
        world, clock = self._log.world, self._log.clock
        elapsed = world.elapsed_ms()
        if elapsed < self._alive_until.get(instant.requested, elapsed):
            return True
        sign = self._writer_sign_ms(instant)
        if sign is None:
            return False
        clock.observe(sign)
        reached = clock.at_least_ms() or sign
        age = max(reached, world.now_ms()) - sign
        if age > self._timeout_ms:
            # Both are only hints that a closer look is worth its cost. The verdict is by the
            # store's clock.
            now = clock.read_ms()
            sign = self._writer_sign_ms(instant)
            age = self._timeout_ms + 1 if sign is None else now - sign
        if age > self._timeout_ms:
            return False
        self._alive_until[instant.requested] = elapsed + self._timeout_ms - max(0, age)
        return True

    def seems_writer_alive(self, instant: Instant) -> bool:
        """True if the writer is alive by an estimate of the store's time, which changes nothing."""
        return self._seems_recent(self._writer_sign_ms(instant))

    def forget_all_but(self, pending: Container[str]) -> None:
        """Forget what was found about instants that are not pending any more."""
        self._alive_until = {r: t for r, t in self._alive_until.items() if r in pending}

    def _writer_sign_ms(self, instant: Instant) -> int | None:
        """Return when the store last heard of the writer; None if there is no trace of it.

        Another process may publish a begin before its owner's first heartbeat, so the requested
        file is a sign, too.
        """
        requested_file = self._log.path(instant.in_state(State.REQUESTED))
        signs = heartbeat_path(instant.requested), requested_file
        sign = last_sign_ms(self._log.storage, *signs)
        if sign is None:
            self._log.refresh()  # its begin may not have been published yet
            sign = last_sign_ms(self._log.storage, *signs)
        return sign
