"""Heartbeats: how a writer says that it is alive, as Hudi's writers do.

A heartbeat is an empty object whose modification time is all that counts. It exists before the
instant's requested file, is written again at half the interval that others allow, and goes after
the instant completed. A writer that is found silent may still be alive, frozen or cut off; that
verdict only lets others try to abort its instant, and the decision log settles who was first.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from pyhudi.errors import HudiError, InvalidRequestError
from pyhudi.storage.protocol import Storage
from pyhudi.world import World

HEARTBEAT_FOLDER: Final = ".hoodie/.heartbeat"


def heartbeat_path(requested: str) -> str:
    return f"{HEARTBEAT_FOLDER}/{requested}"


class Heartbeat:
    """The heartbeat of one instant, kept up in the background until it is stopped."""

    def __init__(self, storage: Storage, requested: str) -> None:
        self._storage = storage
        self._path = heartbeat_path(requested)
        self._stop: Callable[[], None] | None = None
        self._etag: str | None = None

    def start(self, world: World, interval_ms: int) -> None:
        self._etag = self._storage.write(self._path, b"")
        self._stop = world.every(interval_ms // 2, self._beat)

    def _beat(self) -> None:
        """Replace the heartbeat, and never create it.

        A beat may arrive late, when the instant is decided and its heartbeat gone. Brought back, it
        would let late tasks through the fence of a completed write (`storage.write_fence`).
        """
        try:
            etag = self._etag or self._found()
            self._etag = etag and self._storage.replace(self._path, b"", etag=etag)
            if etag and self._etag is None:  # a beat of ours arrived that we took for lost
                self._etag = self._found()
        except InvalidRequestError:  # a store that cannot replace: a late beat is the lesser evil
            with suppress(HudiError):
                self._storage.write(self._path, b"")
        except HudiError:
            self._etag = None
            return  # the next beat may get through; if none does, others will find us silent

    def _found(self) -> str | None:
        found = self._storage.stat(self._path)
        return None if found is None else found.etag

    def stop(self) -> None:
        """No more beats; the object stays, for others to find it growing old."""
        if self._stop is not None:
            self._stop()
            self._stop = None

    def end(self) -> None:
        """No more beats, and none needed: the instant is decided."""
        self.stop()
        self._storage.delete(self._path)


def last_sign_ms(storage: Storage, requested: str, requested_file: str) -> int | None:
    """When the store last heard of the instant's writer; None if there is no trace of it.

    A begin may be carried out by somebody else before its owner's first beat, so the requested
    file counts as a sign of life too.
    """
    found = (storage.stat(path) for path in (heartbeat_path(requested), requested_file))
    return max((stat.modified_ms for stat in found if stat is not None), default=None)
