"""Hudi's file-system lock: the creator of `.hoodie/lock` has it, and deleting the file frees it.

Hudi leaves the file empty, never renews it and never checks its owner; ours carries our name and
an id, which Hudi skips. So its bytes distinguish our file from any other, and only our own is ever
deleted. A lock left by a dead writer stays for ever: an age after which a file counts as abandoned
(`hoodie.write.lock.filesystem.expire`) is refused where options are read.

**What this lock cannot do.** A Java writer deletes the file whenever it closes its lock, taken or
not, and twice when it releases it. So it may delete ours, and another writer may then come in;
`is_held` finds that out, a moment late. In the same way another writer's file may appear between
our last look and our delete, if a Java writer deleted ours in that moment. Exclusion with Java
writers is therefore best effort, as it is among them.
"""

from __future__ import annotations

import contextlib
import json

from pyhudi.errors import CorruptTableError, UnavailableError
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.storage.locks.lock import (
    RELEASE_PAUSES_MS,
    HeldLock,
    Taken,
    moment,
    quoted,
    wait_for,
)
from pyhudi.storage.protocol import ObjectStat, Storage
from pyhudi.world import World, new_uuid

LOCK_PATH = ".hoodie/lock"

_BYTES_MAX = 4 << 10  # what is read of a lock file, whichever process wrote it
_NAME_CHARACTERS_MAX = 200


class FileLock:
    """The lock of a table on local disk."""

    kind = LockKind.FILE

    def __init__(self, storage: Storage, world: World) -> None:
        self._storage = storage
        self._world = world

    def acquire(self, wait_ms: int) -> HeldLock:
        held = _HeldFileLock(self._storage, self._world)
        try:
            return wait_for(held.claim, self._world, wait_ms=wait_ms, table_uri=self._storage.uri)
        except BaseException:  # also an interrupt: this lock never ends by itself
            with contextlib.suppress(UnavailableError):
                held.withdraw()
            raise


class _HeldFileLock:
    """One writer's file, from the first attempt to create it."""

    def __init__(self, storage: Storage, world: World) -> None:
        self._storage = storage
        self._world = world
        self._body = _encoded_owner(world)
        self._is_over = False

    def claim(self) -> _HeldFileLock | Taken:
        with contextlib.suppress(UnavailableError):  # the file shows whether it was created
            if self._storage.create(LOCK_PATH, self._body):
                return self
        found = self._storage.stat(LOCK_PATH)
        stored = self._stored()
        if stored == self._body:  # the reply got lost, now or at an earlier attempt
            return self
        return _taken(found, stored)

    def remaining_ms(self) -> int | None:
        return 0 if self._is_over else None

    def is_held(self) -> bool:
        self._is_over = self._is_over or self._stored() != self._body
        return not self._is_over

    def release(self) -> None:
        self._is_over = True
        for pause_ms in RELEASE_PAUSES_MS:
            with contextlib.suppress(UnavailableError):
                return self.withdraw()
            self._world.sleep_ms(pause_ms)
        self.withdraw()

    def withdraw(self) -> None:
        """Delete the file if it is ours. After a lost reply it may not be any more."""
        if self._stored() == self._body:
            self._storage.delete(LOCK_PATH)

    def _stored(self) -> bytes | None:
        try:
            return self._storage.read(LOCK_PATH, 0, _BYTES_MAX)
        except (FileNotFoundError, CorruptTableError):  # gone, or a link that leads elsewhere
            return None


def _encoded_owner(world: World) -> bytes:
    owner = {
        "owner": world.label[:_NAME_CHARACTERS_MAX],
        "id": new_uuid(world),
        "since": moment(world.now_ms()),
    }
    return json.dumps(owner).encode()


def _taken(found: ObjectStat | None, stored: bytes | None) -> Taken:
    if found is None:
        return Taken(
            f"{LOCK_PATH!r} changed its owner just now, or is not a file",
            "Repeat the call; if it is not a file, move it out of the table",
        )
    return Taken(
        f"{_owner_name(stored or b'')} has it since {moment(found.modified_ms)}",
        "Repeat the call when that writer is done; if it is known to be dead, "
        f"have its operator delete {LOCK_PATH!r}",
    )


def _owner_name(stored: bytes) -> str:
    """Return what the file says of its owner.

    Any process may have written it, so it is only shown.
    """
    text = stored.decode("utf-8", "replace").strip()
    if not text:
        return "a writer that leaves no name, as Hudi's Java writers do,"
    with contextlib.suppress(ValueError, RecursionError):
        match json.loads(text):
            case {"owner": str(owner)}:
                text = owner
    return quoted(text)
