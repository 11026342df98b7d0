"""A lease that its owner renews until it is released: what leases of all kinds have in common.

The renewal runs beside the writer. It alone changes `_mine` until `release` has stopped it, and
`_is_over` only ever becomes True, so no guard is needed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from pyhudi.errors import CorruptTableError
from pyhudi.storage.locks.lock import RELEASE_PAUSES_MS
from pyhudi.world import World

Found = TypeVar("Found")  # the lease as the store has it


class HeldLease(ABC, Generic[Found]):
    """One writer's lease, from the first attempt to get it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._mine: Found | None = None
        self._is_over = False
        self._stop_renewing = _nothing

    @abstractmethod
    def _load(self) -> Found | None:
        """Return the lease in the store now; None if there is none."""

    @abstractmethod
    def _is_mine(self, found: Found | None) -> bool:
        """True if it belongs to this acquisition and was not released."""

    @abstractmethod
    def _left_ms(self, found: Found | None) -> int:
        """Return for how long its owner may rely on it."""

    @abstractmethod
    def _give_back(self) -> None:
        """Try once to release; `_mine` is None when there is nothing left to release."""

    def _is_usable(self, found: Found | None) -> bool:
        return self._is_mine(found) and self._left_ms(found) > 0

    def remaining_ms(self) -> int:
        left_ms = 0 if self._is_over else self._left_ms(self._mine)
        if left_ms == 0:
            self._is_over = True  # for good, even if the clock is set back
        return left_ms

    def is_held(self) -> bool:
        if self.remaining_ms() == 0:
            return False
        try:
            found = self._load()
        except CorruptTableError:
            found = None
        if not self._is_mine(found):
            self._is_over = True
        return self.remaining_ms() > 0

    def release(self) -> None:
        self._is_over = True
        self._stop_renewing()
        self._stop_renewing = _nothing
        for pause_ms in (*RELEASE_PAUSES_MS, 0):
            self._give_back()
            if self._mine is None:
                return
            self._world.sleep_ms(pause_ms)


def _nothing() -> None:
    """Do nothing, as the stop of a renewal that does not run."""
