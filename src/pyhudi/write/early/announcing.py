"""Announce a file and look for rivals, as the strategy says: before the marker, and under a claim.

    1  the claim of the file group is taken            strategies with claims
    2  the rivals' markers are looked at               strategies by which tasks look
    3  the place is put into a filter                  strategies with filters
    4  the marker is stored

A file for which the write cannot have to yield is announced by 3 and 4 alone. Others may have to
yield to this write for it, and would not find it if the filter had only some of the files.

On a table whose lock is in ZooKeeper all steps are taken under the lock that Hudi's writers take
for the same file group. Their strategy releases it before the marker is there; ours afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from pyhudi.conflict.announced import Met
from pyhudi.conflict.file_groups import Footprint
from pyhudi.errors import HudiError
from pyhudi.format.files.file_names import FileGroupId, MarkerName
from pyhudi.format.lock.lock_address import ZookeeperAddress
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.storage.locks.lock import HeldLock
from pyhudi.storage.locks.zookeeper_lock import ZookeeperLock
from pyhudi.storage.objects.claims import Claim, Place, claim_path, clear_claims, taken
from pyhudi.storage.objects.marker_filters import MarkerFilters
from pyhudi.storage.objects.rival_markers import AnnouncedFile
from pyhudi.storage.protocol import Storage
from pyhudi.write.early.check import EarlyCheck
from pyhudi.write.files.announcing import Announcing, Verdict

#: How long a task waits for ZooKeeper's lock of a file group. Without it the claim has to do.
LOCK_WAIT_MS = 5_000
#: How long a task does not ask for one again after it waited in vain: it may have thousands of
#: files, and may never reach ZooKeeper.
LOCK_REST_MS = 60_000


@dataclass(frozen=True, slots=True)
class LookingMarkers:
    """Markers that are stored in some way, with looks at rivals before."""

    check: EarlyCheck
    inner: Announcing
    lock: ZookeeperAddress | None = None  # the table's
    filters: MarkerFilters = field(default_factory=MarkerFilters, compare=False)

    def announce(self, storage: Storage, requested: InstantTime, marker: MarkerName, /) -> Verdict:
        group, looks = marker.file_group, self.check.looks
        groups = frozenset([group])
        made = Footprint(groups, groups if marker.is_of_base else frozenset())
        if not self.check.stance.in_question(made).groups:
            return self._stored(storage, requested, marker)
        with self._locked(storage, group):
            met = self._claimed(storage, made, marker) if looks.claims else None
            if met is None and looks.by_task:
                met = self.check.met(storage, made, group.partition)
            if met is not None:
                if looks.claims:  # no marker says where it is
                    clear_claims(storage, requested, [self.check.stance.place(group)])
                return met
            return self._stored(storage, requested, marker)

    def _stored(self, storage: Storage, requested: InstantTime, marker: MarkerName) -> Verdict:
        """Store the marker, in the filter first: it has all or nothing of what a task announces."""
        if self.check.looks.filters_first:
            self.filters.add(storage, requested, self.check.stance.place(marker.file_group))
        return self.inner.announce(storage, requested, marker)

    def _claimed(self, storage: Storage, made: Footprint, marker: MarkerName) -> Met | None:
        """Take the claim of the file's group; return the conflict with the write that has it."""
        stance, check = self.check.stance, self.check
        place = stance.place(marker.file_group)
        found: list[Met] = []

        def judge(claim: Claim, since_ms: int) -> Place:
            theirs = claim.marker.file_group
            rival = next((r for r in check.rivals if r.requested == claim.requested), None)
            if rival is None or stance.place(theirs) != place or check.is_silent(rival):
                return Place.OVER
            path, is_base = claim.marker.data_file, claim.marker.is_of_base
            file = AnnouncedFile(path, theirs, place, is_base, since_ms)
            if (met := check.judged(storage, stance.own(made), rival, [file])) is not None:
                found.append(met)
                return Place.AHEAD
            return Place.OVER if check.is_silent(rival) else Place.BESIDE

        taken(storage, claim_path(place), Claim(stance.requested, marker), judge)
        return found[-1] if found else None

    @contextmanager
    def _locked(self, storage: Storage, group: FileGroupId) -> Iterator[None]:
        held = self._lock_of(storage, group)
        try:
            yield
        finally:
            if held is not None:
                held.release()

    def _lock_of(self, storage: Storage, group: FileGroupId) -> HeldLock | None:
        """Take ZooKeeper's lock of a file group, if the table's lock is there and it can be had."""
        if self.lock is None:
            return None
        world, seen = self.check.world(), self.check.seen
        if world.elapsed_ms() < seen.lock_again_ms:
            return None
        key = f"{group.partition}/{group.file_id}".lstrip("/")
        address = replace(self.lock, lock_key=key)
        try:
            return ZookeeperLock(storage, world, address).acquire(LOCK_WAIT_MS)
        except HudiError:  # it only keeps Hudi's writers from looking at this moment
            seen.rest_from_locks(until_ms=world.elapsed_ms() + LOCK_REST_MS)
            return None
