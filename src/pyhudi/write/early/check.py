"""Does a write yield now? Its rivals' markers are loaded, and the rules judge them.

    load     what each rival has announced near our files: one partition of it, or all of it; where
             the strategy says so its filters first, and the markers only if they do not deny it
    decide   `conflict.announced`, by the rules of every completion
    confirm  on a conflict only: is the rival alive, by the store's clock? Is the plan still there?

A look that fails finds nothing. The next one does, or the check at the end of the write.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace

from pyhudi.commit.concurrent import SEED_KEY
from pyhudi.commit.validation import Checks, own_write
from pyhudi.conflict.announced import Met, announced_conflict, place_of
from pyhudi.conflict.early_strategies import Looks
from pyhudi.conflict.file_groups import Footprint
from pyhudi.conflict.rules import Conflict, OtherWrite, OwnWrite, WriteKind
from pyhudi.errors import HudiError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.conflict_strategy import Strategy
from pyhudi.format.timeline.commit_metadata import decode_inflight_commit
from pyhudi.format.timeline.writer_identity import parse_writer
from pyhudi.settings import WriteSettings
from pyhudi.storage.objects.heartbeats import has_recent_sign, heartbeat_path
from pyhudi.storage.objects.marker_filters import RivalFilters
from pyhudi.storage.objects.rival_markers import AnnouncedFile, Place, RivalMarkers
from pyhudi.storage.objects.store_clock import StoreClock
from pyhudi.storage.objects.timeline_files import load_timeline_file
from pyhudi.storage.protocol import Storage
from pyhudi.world import World
from pyhudi.write.early.rivals import Rival
from pyhudi.write.intent import PartitionScope


@dataclass(frozen=True, slots=True)
class Stance:
    """Our write as the rules see it, but for its files. It is sent to tasks."""

    requested: str
    checks: Checks  # without what only the write's own process can ask
    replaces: PartitionScope | None
    settings: WriteSettings  # with the numbers alone that the rules need
    is_mor: bool
    is_blind: bool  # nothing is lost with its logs: they are committed again, or read again

    @property
    def by_number(self) -> bool:
        return self.checks.is_numbered and self.checks.strategy is not Strategy.SIMPLE

    def place(self, group: FileGroupId) -> Place:
        return place_of(group, by_number=self.by_number)

    def own(self, made: Footprint) -> OwnWrite:
        """Return the write with these files."""
        scope = self.replaces
        checks = replace(self.checks, replaces=None if scope is None else scope.of(made.partitions))
        return own_write(self.requested, made, checks, is_mor=self.is_mor, settings=self.settings)

    def in_question(self, made: Footprint) -> Footprint:
        """Return the files because of which the write may have to yield."""
        return Footprint(made.bases, made.bases) if self.is_blind else made


class Seen:
    """What one process knows of the rivals from earlier looks."""

    def __init__(self, stance: Stance) -> None:
        self.markers = RivalMarkers(stance.place)
        self.filters = RivalFilters()
        self.writers: dict[str, tuple[int, bool]] = {}  # priority, and whether it is a seed
        self.silent_until: dict[str, int] = {}  # found dead, and not asked again before this
        self.lock_again_ms = 0  # no lock of a file group is asked for before this

    def rest_from_locks(self, *, until_ms: int) -> None:
        """Note that a lock of a file group was asked for in vain."""
        self.lock_again_ms = until_ms


@dataclass(frozen=True, slots=True)
class EarlyCheck:
    """The looks of one process for the rivals of one write."""

    looks: Looks
    stance: Stance
    rivals: tuple[Rival, ...]
    timeout_ms: int  # a rival without a sign of life for longer is dead
    world: Callable[[], World]  # of the process that looks
    seen: Seen = field(compare=False)

    def elsewhere(self, world: Callable[[], World]) -> EarlyCheck:
        """Return the check for another thread."""
        return replace(self, seen=Seen(self.stance), world=world)

    def met(self, storage: Storage, made: Footprint, partition: str | None = None) -> Met | None:
        """Return the conflict because of which the write yields, which has files in these groups.

        With `partition`, all of them lie there, and no other one is looked at.
        """
        made = self.stance.in_question(made)
        if not made.groups:
            return None
        own = self.stance.own(made)
        for rival in self.rivals:
            if self.is_silent(rival):
                continue
            files = [] if rival.is_plan else self._announced(storage, rival, own, partition)
            if (found := self.judged(storage, own, rival, files)) is not None:
                return found
        return None

    # -- load

    def _announced(
        self, storage: Storage, rival: Rival, own: OwnWrite, partition: str | None
    ) -> list[AnnouncedFile]:
        """Return what a rival has announced near our files."""
        seen, place = self.seen, self.stance.place
        places = {place(group) for group in own.touched}
        replaced = own.replaces or (lambda _: False)
        try:
            if self.looks.filters_first:
                asked = {p for p in places if not replaced(p[0])}
                asked |= {(p[0], "") for p in places if replaced(p[0])}
                if seen.filters.deny(storage, rival.requested, asked):
                    return []
            files = (
                seen.markers.everywhere(storage, rival.requested)
                if partition is None
                else seen.markers.in_partition(storage, rival.requested, partition)
            )
            return [f for f in files if f.place in places or replaced(f.group.partition)]
        except (HudiError, OSError):
            return []

    # -- decide

    def judged(
        self, storage: Storage, own: OwnWrite, rival: Rival, files: Collection[AnnouncedFile]
    ) -> Met | None:
        """Return the conflict with a rival that has announced these files, if it is in the way."""
        other = _other(rival, files)
        if other.groups is not None and not other.groups:
            return None
        try:
            found = self._conflict(storage, own, rival, other)
            clock = StoreClock(storage, self.world())
            if found is None or not self._stands(clock, rival):
                return None
        except (HudiError, OSError):
            return None
        met = self._met(found, files, clock.at_least_ms())
        return met if self.looks.is_judged(met.facts) else None

    def _conflict(
        self, storage: Storage, own: OwnWrite, rival: Rival, other: OtherWrite
    ) -> Conflict | None:
        strategy = self.stance.checks.strategy
        if announced_conflict(own, replace(other, priority=own.priority), strategy) is None:
            return None
        if rival.is_plan:
            other = replace(other, priority=own.priority)
        else:
            priority, is_seed = self._writer(storage, rival)
            kind = WriteKind.SEED if is_seed else other.kind
            other = replace(other, priority=priority, kind=kind)
        return announced_conflict(own, other, strategy)

    def _met(self, found: Conflict, files: Iterable[AnnouncedFile], now_ms: int | None) -> Met:
        wanted = self.stance.place(found.group)
        file = next((f for f in files if f.place == wanted), None)
        since_ms = None if file is None or now_ms is None else file.since_ms
        return Met(
            found.other.requested,
            found.other.kind,
            found.rule,
            found.group,
            found.other.priority,
            "" if file is None else file.path,
            None if since_ms is None or now_ms is None else max(0, now_ms - since_ms),
            self.looks.name,
        )

    # -- confirm

    def _writer(self, storage: Storage, rival: Rival) -> tuple[int, bool]:
        """Return the priority of a rival, and whether it is a seed, by its inflight file."""
        known = self.seen.writers.get(rival.requested)
        if known is None:
            try:
                metadata = decode_inflight_commit(
                    load_timeline_file(storage, rival.path), rival.path
                )
            except HudiError:
                return 0, False  # not there yet, or gone
            extra = None if metadata is None else metadata.extra_metadata
            known = parse_writer(extra).priority, (extra or {}).get(SEED_KEY) == "true"
            self.seen.writers[rival.requested] = known
        return known

    def _stands(self, clock: StoreClock, rival: Rival) -> bool:
        """True if the rival is alive, or the plan still there."""
        if rival.is_plan:
            return clock.storage.stat(rival.path) is not None
        if has_recent_sign(clock, self.timeout_ms, heartbeat_path(rival.requested)):
            return True
        again_ms = clock.world.elapsed_ms() + self.timeout_ms // 4
        self.seen.silent_until[rival.requested] = again_ms
        return False

    def is_silent(self, rival: Rival) -> bool:
        """True if the rival was found dead a short while ago."""
        until = self.seen.silent_until.get(rival.requested)
        return until is not None and self.world().elapsed_ms() < until


def _other(rival: Rival, files: Iterable[AnnouncedFile]) -> OtherWrite:
    groups = frozenset(file.group for file in files)
    bases = frozenset(file.group for file in files if file.is_base)
    all_groups = None if rival.groups is None else rival.groups | groups
    return OtherWrite(rival.requested, None, all_groups, rival.kind, removals=bases)
