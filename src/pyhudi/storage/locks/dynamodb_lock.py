"""Hudi's DynamoDB lock: a lease in one item, as Amazon's lock client for Java keeps it.

1. Look. No item, or a released one: the lock is free. Else another process has it, for as long as
   its record version changes within the lease that the item names.
2. A waiter has to observe that itself: it notes the version and when it saw it first, by its
   own steady clock, and takes the lock over once that version has stood for longer than the lease.
   No clock is compared with another's.
3. Take it by a put on the condition that nothing, or that very version, is there.
4. Renew six times a lease by giving the item a new version, on the condition that owner and
   version are ours. If they are not, the lock is lost for good.
5. Release by deleting the item, on the same condition, as Hudi's writers do.

**Unknown outcomes.** After every write without a clear answer the item is read: one of our owner,
which is new for each acquisition, is ours however it got there. Its lease counts from when the
write of that very version was sent, since no waiter can have seen it earlier.

**Clocks.** An owner counts its lease from before it sent the version, a waiter from after it read
it, both by steady clocks. So an owner stops first, whatever the time of day; `MARGIN_MS` is for
steady clocks that go at different speeds.

A waiter that came when a dead owner's lease had hardly begun waits longer than requested: else a
writer that waits no longer than a lease lasts would never get the lock of a dead one. So once an
owner has missed a renewal for half its lease, the waiter stays for the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyhudi.errors import CorruptTableError, HudiError, UnavailableError
from pyhudi.format.lock.lock_address import DynamodbAddress
from pyhudi.format.lock.lock_item import LockItem
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.storage.locks.dynamodb_items import DynamodbItems, require_boto3
from pyhudi.storage.locks.held_lease import HeldLease
from pyhudi.storage.locks.lock import MARGIN_MS, HeldLock, Taken, moment, quoted, wait_for
from pyhudi.storage.protocol import Storage
from pyhudi.world import World, new_uuid

LEASE_MS = 60_000  # Hudi's default
RENEWALS_PER_LEASE = 6
PATIENCE_MAX_MS = 600_000  # no item may keep a waiter for longer than it requested plus this

_LABEL_CHARACTERS_MAX = 200


@dataclass(slots=True)
class _Watched:
    """The version that a waiter sees, and since when. It outlives one attempt to get the lock."""

    version: str = ""
    since_ms: int = 0  # on the steady clock
    owner: str = ""
    owner_since_ms: int = 0  # on the wall clock, for people

    def age_ms(self, item: LockItem, now_ms: int) -> int:
        """Return for how long this version has been seen, up to a moment after it was read."""
        if item.version != self.version:
            self.version, self.since_ms = item.version, now_ms
        return now_ms - self.since_ms

    def met_ms(self, item: LockItem, now_ms: int) -> int:
        """When this owner was first seen."""
        if item.owner != self.owner:
            self.owner, self.owner_since_ms = item.owner, now_ms
        return self.owner_since_ms


class DynamodbLock:
    """The lock of a table whose writers have agreed on an item."""

    kind = LockKind.DYNAMODB

    def __init__(
        self,
        storage: Storage,
        world: World,
        address: DynamodbAddress,
        *,
        client: Any = None,
        lease_ms: int = LEASE_MS,
    ) -> None:
        if client is None:
            require_boto3()
        self._table_uri = storage.uri
        self._world = world
        self._address = address
        self._client = client
        self._lease_ms = lease_ms
        self._items: DynamodbItems | None = None  # it costs a while to set up the first
        self._watched = _Watched()

    def _opened(self) -> DynamodbItems:
        if self._items is None:
            self._items = DynamodbItems(self._address, self._client)
        return self._items

    def acquire(self, wait_ms: int) -> HeldLock:
        held = _HeldDynamodbLock(self._opened(), self._world, self._lease_ms, self._watched)
        try:
            wait_for(held.claim, self._world, wait_ms=wait_ms, table_uri=self._table_uri)
        except BaseException:
            held.withdraw()
            raise
        held.keep()
        return held

    def is_taken_by(self, held: HeldLock, wait_ms: int) -> bool:
        """True if it is the lock that was taken, perhaps through another endpoint.

        An owner belongs to one acquisition: if the item is ours, it is the same item.
        """
        if not isinstance(held, _HeldDynamodbLock):
            return False
        items = self._opened()
        return wait_for(
            lambda: held.is_that(items.load()),
            self._world,
            wait_ms=wait_ms,
            table_uri=self._table_uri,
        )


class _HeldDynamodbLock(HeldLease[LockItem]):
    def __init__(
        self, items: DynamodbItems, world: World, lease_ms: int, watched: _Watched
    ) -> None:
        super().__init__(world)
        self._items = items
        self._lease_ms = lease_ms
        self._watched = watched
        self._owner = f"{world.label[:_LABEL_CHARACTERS_MAX]}, {new_uuid(world)}"
        self._sent_ms: dict[str, int] = {}  # of our versions: when each was sent

    # -- getting it

    def claim(self) -> _HeldDynamodbLock | Taken:
        found = self._items.load()
        seen_ms = self._world.elapsed_ms()
        if not self._is_usable(found):
            if found is not None and not self._is_free(found, seen_ms):
                return self._taken(found, seen_ms)
            found = self._sent(over=found)
        if not self._is_usable(found):
            return self._taken(found, self._world.elapsed_ms())
        self._adopt(found)
        return self

    def _is_mine(self, found: LockItem | None) -> bool:
        return found is not None and found.owner == self._owner and not found.is_released

    def is_that(self, found: LockItem | None) -> bool:
        return self._is_mine(found)

    def _load(self) -> LockItem | None:
        return self._items.load()

    def _is_free(self, found: LockItem, seen_ms: int) -> bool:
        if found.is_released or found.owner == self._owner:
            return True
        return self._watched.age_ms(found, seen_ms) > found.lease_ms

    def _new_item(self) -> LockItem:
        version = new_uuid(self._world)
        self._sent_ms[version] = self._world.elapsed_ms()
        return LockItem(self._owner, self._lease_ms, version)

    def _sent(self, *, over: LockItem | None) -> LockItem | None:
        """Return the item after an attempt to write ours: ours, or the one in the way."""
        item = self._new_item()
        try:
            if self._items.put(item, over=over):
                return item
        except UnavailableError:
            found = self._items.load()  # the write may have been made all the same
            if found is None:
                raise
            return found
        return self._items.load()

    def _taken(self, found: LockItem | None, seen_ms: int) -> Taken:
        if found is None or found.is_released or found.owner == self._owner:
            return Taken("its owner changed just now", "Repeat the call")
        age_ms = self._watched.age_ms(found, seen_ms)
        since_ms = self._watched.met_ms(found, self._world.now_ms())
        rest_ms = found.lease_ms + 1 - age_ms
        is_late = found.lease_ms < 2 * age_ms and rest_ms <= PATIENCE_MAX_MS
        return Taken(
            f"the owner {quoted(found.owner)} has it since {moment(since_ms)} or earlier, and"
            f" renewed it last {age_ms} ms ago or earlier; it may keep it for {found.lease_ms} ms"
            " from then",
            "Repeat the call when that writer is done; if it is dead its lease ends by itself",
            worth_ms=rest_ms if is_late else 0,
        )

    def _adopt(self, found: LockItem | None) -> None:
        """Take an item of ours as the current one, and forget what was sent before the last one.

        The last one stays: another thread may be reading right now how long it lasts.
        """
        assert found is not None
        last = self._mine or found
        self._mine = found
        since_ms = min(self._sent_ms.get(item.version, 0) for item in (last, found))
        self._sent_ms = {v: ms for v, ms in self._sent_ms.items() if ms >= since_ms}

    # -- keeping it

    def keep(self) -> None:
        """Renew the lease in the background until it is released or lost."""
        self._stop_renewing = self._world.every(self._lease_ms // RENEWALS_PER_LEASE, self._renew)

    def _renew(self) -> None:
        for _ in range(2):  # the version that counts may be one whose reply got lost
            if self.remaining_ms() == 0 or self._mine is None:
                return  # too late to renew: another process may be taking it over
            try:
                renewed = self._new_item()
                if self._items.renew(self._mine, renewed.version):
                    return self._adopt(renewed)
                found = self._items.load()
            except CorruptTableError:
                found = None
            except HudiError:
                return  # unknown; several renewals fit into a lease
            if not self._is_mine(found):
                self._is_over = True
                return
            self._adopt(found)

    def _left_ms(self, found: LockItem | None) -> int:
        sent_ms = None if found is None else self._sent_ms.get(found.version)
        if found is None or sent_ms is None:
            return 0
        margin_ms = min(MARGIN_MS, found.lease_ms // 4)
        until_ms = sent_ms + found.lease_ms - margin_ms
        return max(0, until_ms - self._world.elapsed_ms())

    # -- releasing it

    def _give_back(self) -> None:
        """Try to delete our item; `_mine` is None when there is none left."""
        for _ in range(2):
            if self._mine is None:
                return
            try:
                found = None if self._items.delete(self._mine) else self._items.load()
            except CorruptTableError:
                found = None
            except HudiError:
                return
            self._mine = found if self._is_mine(found) else None

    def withdraw(self) -> None:
        """After a failed acquisition, release what a write of unknown outcome may have got us."""
        self._is_over = True
        if not self._sent_ms:
            return
        try:
            found = self._items.load()
        except HudiError:
            return
        self._mine = found if self._is_mine(found) else None
        self._give_back()
