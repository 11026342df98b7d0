"""Heartbeats: how a writer shows that it is alive, as Hudi's writers do.

A heartbeat is an object whose modification time is all that counts. It exists before the instant's
requested file, is written again at half the interval that others allow, and is removed after the
instant completed. A writer that is found silent may still be alive, frozen or cut off; that verdict
only lets others try to abort its instant, and the decision log shows which was first.

A plan that any process may execute has a heartbeat that is *claimed*: of the processes that try at
once, one creates it, or replaces the one that it found silent. It holds a mark of its owner, which
others need not read. A process that finds another mark there has lost the plan to a successor, and
from then on neither beats nor removes the heartbeat.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from pyhudi.errors import HudiError, InvalidRequestError, UnavailableError
from pyhudi.storage.objects.store_clock import StoreClock
from pyhudi.storage.protocol import Storage
from pyhudi.world import World, new_uuid

HEARTBEAT_FOLDER: Final = ".hoodie/.heartbeat"
_OWNER_BYTES_MAX = 8_192


def heartbeat_path(requested: str) -> str:
    return f"{HEARTBEAT_FOLDER}/{requested}"


class Heartbeat:
    """The heartbeat of one instant, written again in the background until it is stopped."""

    def __init__(
        self, storage: Storage, requested: str, description: str = "", *, path: str | None = None
    ) -> None:
        """Prepare the heartbeat.

        `description` names the writer for people, on a line behind the mark. `path` is for what is
        claimed and is no instant.
        """
        self.requested = requested
        self._storage = storage
        self._path = heartbeat_path(requested) if path is None else path
        self._stop: Callable[[], None] | None = None
        self._etag: str | None = None
        self._mark = f"\n{description}".encode() if description else b""  # marks the owner

    def start(self, world: World, interval_ms: int) -> None:
        self._etag = self._storage.write(self._path, self._mark)
        self._stop = world.every(interval_ms // 2, self._beat)

    def claim(
        self, clock: StoreClock, world: World, interval_ms: int, timeout_ms: int | None
    ) -> bool:
        """Start, unless another process has been alive within the timeout.

        Without a timeout, start.

        Of several processes that claim at once, one succeeds, unless the store cannot replace and
        they find an old heartbeat: then two of them may.
        """
        self._mark = new_uuid(world).encode() + self._mark
        if not self._created() and not self._is_ours():
            now = clock.read_ms()  # first: a freeze here then errs towards alive
            found = self._storage.stat(self._path)
            if found is None:
                return False  # it has ended this moment
            if timeout_ms is not None and now - found.modified_ms <= timeout_ms:
                return False
            if not self._taken_over(found.etag):
                return False
        self._stop = world.every(interval_ms // 2, self._beat)
        return True

    def _created(self) -> bool:
        try:
            return self._storage.create(self._path, self._mark)
        except UnavailableError:  # S3's answer when two create at once, and the outcome is open
            if self._storage.stat(self._path) is None:
                raise
            return False

    def _taken_over(self, etag: str | None) -> bool:
        try:
            if etag is not None and self._storage.replace(self._path, self._mark, etag=etag):
                return True
        except InvalidRequestError:  # a store that cannot replace: the last writer has it
            self._storage.write(self._path, self._mark)
        return self._is_ours()

    def _beat(self) -> None:
        """Replace the heartbeat, and never create it.

        A beat may arrive late, when the instant has ended and its heartbeat is removed. Brought
        back, it would let late tasks through the fence of a completed write
        (`storage.objects.write_fence`).
        """
        try:
            etag = self._etag or self._found()
            self._etag = etag and self._storage.replace(self._path, self._mark, etag=etag)
            if etag and self._etag is None:  # a beat of ours arrived that we took for lost
                self._etag = self._found()
        except InvalidRequestError:  # a store that cannot replace: a late beat is the lesser evil
            with suppress(HudiError):
                if self._is_ours():
                    self._storage.write(self._path, self._mark)
        except HudiError:
            self._etag = None
            return  # the next beat may get through; if none does, others will find us silent

    def _found(self) -> str | None:
        found = self._storage.stat(self._path)
        return found.etag if found is not None and self._is_ours() else None

    def _is_ours(self) -> bool:
        """True if no other process has taken it over, or none can: a write's has one owner."""
        if not self._mark:
            return True
        try:
            return self._storage.read(self._path, 0, len(self._mark) + 1) == self._mark
        except FileNotFoundError:
            return False

    def stop(self) -> None:
        """Stop beating. The object stays, so that others find it growing old."""
        if self._stop is not None:
            self._stop()
            self._stop = None

    def end(self) -> None:
        """Stop beating and remove the object.

        The instant has ended, or is free for the next process.
        """
        self.stop()
        if self._is_ours():
            self._storage.delete(self._path)


class WriteHeartbeat:
    """The heartbeat of a write, from the rounds that append its begin until it ends."""

    def __init__(self, storage: Storage, world: World, interval_ms: int) -> None:
        self._storage = storage
        self._world = world
        self._interval_ms = interval_ms
        self._current: Heartbeat | None = None

    def announce(self, requested: str) -> None:
        """Start the heartbeat of the instant that was just begun.

        Called once in each round of the append. If the instant's time changes, the heartbeat of the
        old time ends.
        """
        if self._current is not None:
            if self._current.requested == requested:
                self._current.stop()
            else:
                self._current.end()
        self.follow(requested)
        self.start()

    def follow(self, requested: str) -> None:
        """Take a heartbeat that another process renews, to remove it when the write ends."""
        self._current = Heartbeat(self._storage, requested)

    def start(self) -> None:
        if self._current is not None:
            self._current.start(self._world, self._interval_ms)

    def stop(self) -> None:
        """Stop beating. The object stays."""
        if self._current is not None:
            self._current.stop()

    def end(self) -> None:
        """Stop beating and remove the object."""
        if self._current is not None:
            self._current.end()


def load_owner(storage: Storage, requested: str) -> str:
    """Return how the owner of a claimed heartbeat described itself; "" if it did not."""
    try:
        data = storage.read(heartbeat_path(requested), 0, _OWNER_BYTES_MAX)
    except FileNotFoundError:
        return ""
    return data.partition(b"\n")[2].decode("utf-8", "replace")


def has_recent_sign(clock: StoreClock, timeout_ms: int, *signs: str) -> bool:
    """True if the last sign is no older than the timeout.

    The store's clock is read first: a process that freezes in between errs towards alive.
    """
    now = clock.read_ms()
    sign = last_sign_ms(clock.storage, *signs)
    return sign is not None and now - sign <= timeout_ms


def last_sign_ms(storage: Storage, *signs: str) -> int | None:
    """Return when the store last dated one of the objects; None if none of them is there."""
    found = (storage.stat(path) for path in signs)
    return max((stat.modified_ms for stat in found if stat is not None), default=None)
