"""Hudi's file-system lock: whoever creates `.hoodie/lock` has it, whoever deletes it frees it.

Hudi leaves the file empty, never renews it and never looks whose it is; ours carries our name and
an id, which Hudi skips. So our file is told from any other by its bytes, and only our own is ever
deleted. A lock left by a dead writer stays for ever, unless all writers agree on a number of
minutes after which a file counts as abandoned (`hoodie.write.lock.filesystem.expire`). Where Hudi
would delete an abandoned file and create its own, we replace it by its etag, so that of several
who find it exactly one takes it over.

**What this lock cannot do.** A Java writer deletes the file whenever it closes its lock, taken or
not, and twice when it gives it back. So it may delete ours, and another writer may then come in;
`is_held` finds that out, a moment late. In the same way a rival's file may appear between our last
look and our delete, if a Java writer deleted ours in that moment. Exclusion with Java writers is
therefore best effort, as it is among them.
"""

from __future__ import annotations

import contextlib
import json

from pyhudi.errors import CorruptTableError, InvalidRequestError, UnavailableError
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.storage.locks.lock import (
    MARGIN_MS,
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

_BYTES_MAX = 4 << 10  # what is read of a lock file, whoever wrote it
_NAME_CHARACTERS_MAX = 200
_MINUTE_MS = 60_000


class FileLock:
    """The lock of a table on local disk."""

    kind = LockKind.FILE

    def __init__(self, storage: Storage, world: World, *, expire_minutes: int = 0) -> None:
        """Use the same `expire_minutes` as all writers of the table; 0 is never."""
        if expire_minutes < 0:
            raise InvalidRequestError(
                f"a lock cannot expire after {expire_minutes} minutes",
                why="the number must be positive, or 0 for a lock that never expires",
                next_step="Change it, for all writers of the table",
            )
        self._storage = storage
        self._world = world
        self._expire_ms = expire_minutes * _MINUTE_MS

    def acquire(self, wait_ms: int) -> HeldLock:
        held = _HeldFileLock(self._storage, self._world, self._expire_ms)
        try:
            return wait_for(held.claim, self._world, wait_ms=wait_ms, table_uri=self._storage.uri)
        except BaseException:  # also an interrupt: this lock never ends by itself
            with contextlib.suppress(UnavailableError):
                held.withdraw()
            raise


class _HeldFileLock:
    """One writer's file, from the first attempt to create it."""

    def __init__(self, storage: Storage, world: World, expire_ms: int) -> None:
        self._storage = storage
        self._world = world
        self._expire_ms = expire_ms
        self._body = _encoded_owner(world)
        self._doubtful_since_ms: int | None = None  # of the first write with no clear answer
        self._sent_ms = 0  # on the steady clock, not after the file was created
        self._is_over = False

    def claim(self) -> _HeldFileLock | Taken:
        self._sent_ms = self._world.elapsed_ms()
        try:
            if self._storage.create(LOCK_PATH, self._body):
                return self
        except UnavailableError:
            self._note_doubt()
        found = self._storage.stat(LOCK_PATH)
        stored = self._stored()
        if stored == self._body:  # the reply got lost, now or at an earlier try
            return self._found_mine()
        if found is not None and self._is_expired(found) and self._take_over(found):
            return self
        return _taken(found, stored, self._expire_ms)

    def _note_doubt(self) -> None:
        if self._doubtful_since_ms is None:
            self._doubtful_since_ms = self._sent_ms

    def _found_mine(self) -> _HeldFileLock:
        if self._doubtful_since_ms is not None:
            self._sent_ms = self._doubtful_since_ms
        return self

    def _is_expired(self, found: ObjectStat) -> bool:
        return 0 < self._expire_ms < self._world.now_ms() - found.modified_ms

    def _take_over(self, found: ObjectStat) -> bool:
        assert found.etag is not None, "stat always tells the version"
        try:
            if self._storage.replace(LOCK_PATH, self._body, etag=found.etag) is not None:
                return True
        except UnavailableError:
            self._note_doubt()
        return self._stored() == self._body

    def remaining_ms(self) -> int | None:
        if self._is_over:
            return 0
        if not self._expire_ms:
            return None
        age_ms = self._world.elapsed_ms() - self._sent_ms
        return max(0, self._expire_ms - MARGIN_MS - age_ms)

    def is_held(self) -> bool:
        if self.remaining_ms() != 0 and self._stored() != self._body:
            self._is_over = True
        return self.remaining_ms() != 0

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


def _taken(found: ObjectStat | None, stored: bytes | None, expire_ms: int) -> Taken:
    if found is None:
        return Taken(
            f"{LOCK_PATH!r} changed hands just now, or is not a file",
            "Repeat the call; if it is not a file, move it out of the table",
        )
    why = f"{_owner_name(stored or b'')} has it since {moment(found.modified_ms)}"
    if expire_ms:
        why += f", and may keep it for {expire_ms // _MINUTE_MS} min from then"
    return Taken(
        why,
        "Repeat the call when that writer is done; if it is known to be dead, "
        f"whoever runs it must delete {LOCK_PATH!r}",
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
