"""Hudi's storage lock: a lease in one object, which changes by conditional writes alone.

1. Look. The lease counts unless it was released or its end has passed. While another's lease
   counts, wait.
2. Else write our own: if there is no object, with create; over another lease, with replace by the
   etag that was seen. A process that loses that race looks again.
3. Renew in the background, each time over our own last etag. If the object is no longer ours, the
   lock is lost for good. If the store does not answer, try again next time.
4. Release by writing the same lease as expired, again over our own etag. The object stays.

**Unknown outcomes.** A write whose reply is lost may have been made, may be made later, or never.
So after every write without a clear answer, the object is read: a lease with our owner, which is
new for each acquisition, is ours however it got there. No two bodies are the same, because the end
of the lease always grows: S3's etag is a hash of the content, and equal bodies would be one
version. The etag is read before the body: if they are of two versions, the etag is the older, and
writing over it fails.

**Clocks.** The end of a lease is a time of its owner's clock, and Hudi's writers compare it with
their own, with 500 ms to spare. We go by the store's clock where ours differs from it, for our own
lease and for another's, so that a wrong clock here neither takes a living owner's lease nor offers
ours to others. An owner whose clock is slow renews a lease with an end that has passed: an owner
that wrote it within the last minute, by the store's clock, is alive. A Java writer whose clock is
fast by most of a lease (300 s) does take over ours while we live; we find out at our next renewal
or look. An owner stops early, `MARGIN_MS` before the end. It counts by that clock and by the steady
clock since it began, whichever is later, so that it never outstays a lease because a clock was set
back or the machine was suspended.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace

from pyhudi.errors import CorruptTableError, HudiError, InvalidRequestError, UnavailableError
from pyhudi.format.lock.lease import (
    LEASE_BYTES_MAX,
    LEASE_PATH,
    Lease,
    decode_lease,
    encode_lease,
)
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.storage.locks.held_lease import HeldLease
from pyhudi.storage.locks.lock import MARGIN_MS, HeldLock, Taken, moment, quoted, wait_for
from pyhudi.storage.objects.store_clock import StoreClock
from pyhudi.storage.protocol import Storage
from pyhudi.world import World, new_uuid

VALIDITY_MS = 300_000  # Hudi's defaults
RENEW_MS = 30_000
CLOCK_DRIFT_MS = 500  # how long after its end Hudi still honours another's lease
ALIVE_MS = 2 * RENEW_MS  # how long an owner counts as alive after a renewal


class StorageLock:
    """The lock of a table in an object store."""

    kind = LockKind.STORAGE

    def __init__(
        self,
        storage: Storage,
        world: World,
        *,
        validity_ms: int = VALIDITY_MS,
        renew_ms: int = RENEW_MS,
    ) -> None:
        if renew_ms < 1_000 or validity_ms < max(10_000, 10 * renew_ms):
            raise InvalidRequestError(
                f"a lease of {validity_ms} ms cannot be renewed every {renew_ms} ms",
                why="Hudi asks for at least 1 s between renewals, and a lease ten times as long",
                next_step="Change the numbers",
            )
        self._storage = storage
        self._world = world
        self._clock = StoreClock(storage, world)
        self._validity_ms = validity_ms
        self._renew_ms = renew_ms

    def acquire(self, wait_ms: int) -> HeldLock:
        held = _HeldStorageLock(self._storage, self._world, self._clock, self._validity_ms)
        try:
            wait_for(held.claim, self._world, wait_ms=wait_ms, table_uri=self._storage.uri)
        except BaseException:  # also an interrupt, or all would wait for the lease to end
            held.withdraw()
            raise
        held.keep(self._renew_ms)
        return held


@dataclass(frozen=True, slots=True)
class _Found:
    """The lock object as it was seen: what it says, and the version that says so."""

    lease: Lease
    etag: str
    modified_ms: int


def _found(storage: Storage) -> _Found | None:
    stat = storage.stat(LEASE_PATH)
    if stat is None:
        return None
    try:
        data = storage.read(LEASE_PATH, 0, LEASE_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    assert stat.etag is not None, "stat always has the version"
    return _Found(decode_lease(data), stat.etag, stat.modified_ms)


class _HeldStorageLock(HeldLease[_Found]):
    def __init__(self, storage: Storage, world: World, clock: StoreClock, validity_ms: int) -> None:
        super().__init__(world)
        self._storage = storage
        self._clock = clock
        self._validity_ms = validity_ms
        self._owner = new_uuid(world)
        self._steady_origin_ms: int | None = None  # by the store's clock; None before the first try
        self._last_end_ms = 0  # of the leases sent so far, the latest
        self._first_seen_ms: dict[str, int] = {}  # by owner, while waiting

    def claim(self) -> _HeldStorageLock | Taken:
        if self._steady_origin_ms is None:
            self._steady_origin_ms = self._clock.shared_now_ms() - self._world.elapsed_ms()
        found = self._load()
        if not self._is_usable(found):
            if found is not None and self._counts(found):
                return self._taken(found)
            found = self._sent(self._next_lease(), over=found)
        if not self._is_usable(found):
            return self._taken(found)
        self._mine = found
        return self

    def _load(self) -> _Found | None:
        return _found(self._storage)

    def _is_mine(self, found: _Found | None) -> bool:
        return found is not None and found.lease.owner == self._owner and not found.lease.expired

    def _counts(self, found: _Found) -> bool:
        """True if a lease is to be waited for: by Hudi's rule, or because its owner is alive."""
        lease = found.lease
        if lease.expired or lease.owner == self._owner:
            return False
        end = max(lease.valid_until_ms + CLOCK_DRIFT_MS, found.modified_ms + ALIVE_MS)
        return self._clock.shared_now_ms() <= end

    def _next_lease(self) -> Lease:
        self._last_end_ms = max(self._now_ms() + self._validity_ms, self._last_end_ms + 1)
        return Lease(False, self._last_end_ms, self._owner)

    def _now_ms(self) -> int:
        assert self._steady_origin_ms is not None
        steady_ms = self._steady_origin_ms + self._world.elapsed_ms()
        return max(self._clock.seen_now_ms(), steady_ms)

    def _left_ms(self, found: _Found | None) -> int:
        if found is None:
            return 0
        return max(0, found.lease.valid_until_ms - MARGIN_MS - self._now_ms())

    def _sent(self, lease: Lease, *, over: _Found | None) -> _Found | None:
        """Return the lock object after an attempt to write the lease.

        Ours, or the one in the way.
        """
        data = encode_lease(lease)
        with contextlib.suppress(UnavailableError):  # unknown, so we look
            if over is None:
                self._storage.create(LEASE_PATH, data)  # gives no etag, so we look as well
            elif etag := self._storage.replace(LEASE_PATH, data, etag=over.etag):
                return _Found(lease, etag, self._world.now_ms())
        return self._load()

    def _taken(self, found: _Found | None) -> Taken:
        if found is None or not self._counts(found):
            return Taken("its owner changed just now", "Repeat the call")
        lease = found.lease
        seen_ms = min(self._world.now_ms(), found.modified_ms)
        since = moment(self._first_seen_ms.setdefault(lease.owner, seen_ms))
        return Taken(
            f"the owner {quoted(lease.owner)} has it since {since} or earlier, renewed it last at "
            f"{moment(found.modified_ms)}, and may keep it until {moment(lease.valid_until_ms)}",
            "Repeat the call when that writer is done; if it is dead its lease ends at that time, "
            f"and only its operator should delete {LEASE_PATH!r}",
        )

    def keep(self, renew_ms: int) -> None:
        """Renew the lease in the background until it is released or lost."""
        self._stop_renewing = self._world.every(renew_ms, self._renew)

    def _renew(self) -> None:
        if self.remaining_ms() == 0:
            return  # too late to renew: another process may be taking it over
        try:
            found = self._sent(self._next_lease(), over=self._mine)
        except CorruptTableError:
            found = None
        except HudiError:
            return  # unknown; several renewals fit into a lease
        if self._is_mine(found):
            self._mine = found
        else:
            self._is_over = True

    def _give_back(self) -> None:
        """Try once to write our lease as expired; `_mine` is None when there is none left."""
        if self._mine is None:
            return
        try:
            found = self._sent(replace(self._mine.lease, expired=True), over=self._mine)
        except CorruptTableError:
            found = None
        except HudiError:
            return
        self._mine = found if self._is_mine(found) else None

    def withdraw(self) -> None:
        """After a failed acquisition, release what a write of unknown outcome may have got us."""
        self._is_over = True
        if self._last_end_ms:
            with contextlib.suppress(HudiError):
                found = self._load()
                self._mine = found if self._is_mine(found) else None
                self._give_back()
