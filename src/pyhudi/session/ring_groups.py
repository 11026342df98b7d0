"""Which file group does each node of a partition's ring have, on a table of consistent buckets?

The ring's file is the answer, and it never changes. A process reads the ring in force of a
partition once, and again when a replace commit has taken one of the partition's file groups out:
then the partition was resized. To a process that slept that commit may be archived. So rings are
also read again when the process lists the timeline anew and finds that instants were archived. A
partition without a ring gets its first one from whichever process writes there first. Its file ids
follow from the number of nodes, and of racing creators the first file wins.

**Complete partitions.** On a table that pyhudi alone writes, a mark of pyhudi's beside a ring says
that every node has a committed file group: a writer sets it when it has seen them all. That spares
every later process the listing of the partition. A resize is planned only where all buckets have
files, so its own ring is marked when its children have their base files. A mark of Apache Hudi's
does not say so: Hudi may have resized the table, although it has no lock, before pyhudi wrote it.
On a table that Hudi may still write, each process lists each partition once.

A write that is sent to other processes takes along which ring each partition has (`PinnedRings`),
and its tasks read the rings of the partitions that they meet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.rollback_targets import RollbackTargets
from pyhudi.errors import ConflictError, CorruptTableError, HudiError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.bucket_config import BUCKET_COUNT, ConsistentBuckets
from pyhudi.format.table.ring_file import FIRST_INSTANT, Ring, initial_ring, ring_folder
from pyhudi.format.table.table_config import TableConfig
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.index.layout import BucketLayout
from pyhudi.index.ring_history import InForce
from pyhudi.index.ring_layout import RingLayout, coarsest_ring
from pyhudi.index.routing import Routing, resized
from pyhudi.read.load import TableLoader
from pyhudi.read.rings import Known, LoadedRing, Rings
from pyhudi.session.live_groups import committed_groups, live_slices, replaced_for_good
from pyhudi.session.replaced_groups import ReplacedGroups, SeenGroups, seen_groups
from pyhudi.storage.objects.rings import (
    create_first_ring,
    load_all_ring_files,
    load_ring,
    write_mark,
)
from pyhudi.storage.protocol import Storage
from pyhudi.table.file_group import FileSlice
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import CompletionTimes

#: Nodes of rings that are sent with a write, so that its tasks need not read them.
_CARRIED_NODES_MAX = 1 << 16
#: How often a partition is looked at whose file groups do not fit its ring.
_LOOKS_MAX = 3


class RingGroups:
    """The rings of a table's partitions."""

    shared = None

    def __init__(
        self,
        storage: Storage,
        config: TableConfig,
        loader: TableLoader,
        log: DecisionLog,
        replaced: ReplacedGroups,
    ) -> None:
        assert isinstance(config.buckets, ConsistentBuckets)
        self._storage = storage
        self._config = config
        self._buckets = config.buckets
        self._log = log
        self._replaced = replaced
        self._rings = Rings(storage, loader.history, _known(log))
        self._known: dict[str, RingLayout] = {}
        self._complete: set[str] = set()
        self._pins: dict[str, InForce] | None = None  # of all partitions, once asked for
        self._seen = SeenGroups()

    count = None
    names_are_known = True

    # -- rings

    def layout(self, partition: str, size: float = 0) -> RingLayout:
        """Return the layout by the ring in force; create the first ring if there is none."""
        known = self._loaded(partition)
        if known is None:
            assert partition or not self._config.partition_fields, "it is not known"
            ring = initial_ring(partition, self._buckets.first_count(size))
            known = RingLayout(create_first_ring(self._storage, ring), self._buckets.hash_fields)
            self._known[partition] = known
        return known

    def existing(self, partition: str) -> RingLayout:
        """Return the layout by the ring in force; where there is none, one that is not stored."""
        known = self._loaded(partition)
        return known or RingLayout(initial_ring(partition, 1), self._buckets.hash_fields)

    def ring(self, partition: str) -> Ring | None:
        self._forget_resized()
        known = self._loaded(partition)
        return None if known is None else known.ring

    def _loaded(self, partition: str) -> RingLayout | None:
        known = self._known.get(partition)
        if known is None and (found := self._load(partition)) is not None:
            known = RingLayout(found.ring, self._buckets.hash_fields)
            self._known[partition] = known
            if found.is_complete and self._is_own:
                self._complete.add(partition)
        return known

    def _load(self, partition: str) -> LoadedRing | None:
        pin = None if self._pins is None else self._pins.get(partition)
        if pin is not None and (ring := load_ring(self._storage, partition, pin.instant)):
            return LoadedRing(ring, pin.is_complete)
        return self._rings.load(partition)

    @property
    def _is_own(self) -> bool:
        """True if pyhudi alone writes the table, as far as its properties say."""
        is_recorded = BUCKET_COUNT in self._config.properties.values
        return is_recorded and not self._config.lock.is_shared

    def _forget_resized(self) -> None:
        """Forget the rings of partitions in which a file group was replaced since the last look."""
        seen = seen_groups(self._log, self._replaced)
        changed = seen.changed_since(self._seen)
        if changed is None:  # any ring may be an old one
            self._known.clear()
            self._complete.clear()
            self._pins = None
        for partition in changed or ():
            self._known.pop(partition, None)
            self._complete.discard(partition)
            if self._pins is not None:
                self._pins.pop(partition, None)
                self._loaded(partition)
        self._seen = seen

    # -- what writes ask

    def prepare(self, sizes: Mapping[str, float]) -> None:
        self._forget_resized()
        for partition, size in sizes.items():
            self.layout(partition, size)

    def load(self, partitions: Collection[str]) -> list[str]:
        self.prepare(dict.fromkeys(partitions, 0))
        return [partition for partition in partitions if partition not in self._complete]

    def layouts(self, partitions: Iterable[str]) -> dict[str, BucketLayout]:
        return {p: self._known[p] for p in partitions if p in self._complete}

    def routing(self, partitions: Iterable[str]) -> Routing:
        return Routing(self, {p: self._known[p] for p in partitions})

    def routing_beside(
        self, groups: Iterable[FileGroupId], *, is_sent: bool, creates: bool
    ) -> Routing:
        self._forget_resized()
        if not is_sent:
            return Routing(RingsOfWrite(self, creates=creates))
        pinned = PinnedRings(self._storage, self._buckets, self.pinned(), creates=creates)
        return Routing(pinned, self._carried())

    def gathering(self, partitions: Iterable[str]) -> RingLayout:
        rings = (self.existing(partition).ring for partition in partitions)
        return RingLayout(coarsest_ring(rings), self._buckets.hash_fields)

    def pinned(self, *, anew: bool = False) -> Mapping[str, InstantTime]:
        """Return the instant of the ring in force of every partition that has one.

        Partitions that are new since they were listed are missing, unless they are listed anew.
        """
        if self._pins is None or anew:
            files = load_all_ring_files(self._storage)
            found = {partition: self._rings.in_force(some) for partition, some in files.items()}
            self._pins = {p: in_force for p, in_force in found.items() if in_force is not None}
        pinned = {partition: pin.instant for partition, pin in self._pins.items()}
        return {**pinned, **{p: known.ring.instant for p, known in self._known.items()}}

    def _carried(self) -> dict[str, BucketLayout]:
        """Return layouts that this process has, so that tasks need not read them."""
        carried: dict[str, BucketLayout] = {}
        nodes = 0
        for partition, known in self._known.items():
            nodes += known.size
            if nodes > _CARRIED_NODES_MAX:
                break
            carried[partition] = known
        return carried

    def node(self, group: FileGroupId) -> int | None:
        known = self._known.get(group.partition)
        ordinal = None if known is None else known.ordinal(group.file_id)
        return None if known is None or ordinal is None else known.ring.nodes[ordinal].position

    def found(self, partition: str) -> dict[int, str]:
        for _ in range(_LOOKS_MAX):
            self._forget_resized()
            layout = self.layout(partition)
            ids = list(committed_groups(self._storage, self._log, self._replaced, partition))
            ordinals = list(map(layout.ordinal, ids))
            if None not in ordinals:
                return {n: id_ for n, id_ in zip(ordinals, ids, strict=True) if n is not None}
            self._log.refresh()  # the partition may be resized just now
        raise _off_ring(partition, ids[ordinals.index(None)], layout.ring)

    def keep(self, partition: str, found: Mapping[int, str]) -> None:
        layout = self._known[partition]
        if len(found) < layout.size:
            return
        self._complete.add(partition)
        if self._is_own:
            write_mark(self._storage, partition, layout.ring.instant, is_complete=True)

    def latest_slices(
        self, state: TableState, times: CompletionTimes
    ) -> dict[FileGroupId, FileSlice]:
        return live_slices(state, times)

    def has_replaced_bucket(self, groups: Iterable[FileGroupId], *, opens_all: bool) -> bool:
        self._forget_resized()
        hidden = self._replaced.load()
        written = set(groups)
        for partition in {group.partition for group in written}:
            if (layout := self._loaded(partition)) is None:
                continue
            nodes = {layout.group(ordinal) for ordinal in range(layout.size)}
            if hidden & (nodes if opens_all else nodes & written):
                return True
        return False

    def error_of_replaced(self, groups: Collection[FileGroupId]) -> HudiError:
        self._forget_resized()
        group = min(groups)
        layout = self._loaded(group.partition)
        is_on_ring = layout is not None and layout.has(group)
        return replaced_for_good(group) if is_on_ring else resized(group)


class _Laid(Protocol):
    """Lays partitions out."""

    def layout(self, partition: str, size: float = 0) -> BucketLayout: ...
    def existing(self, partition: str) -> BucketLayout: ...


@dataclass(frozen=True)
class RingsOfWrite:
    """The ring that each partition has when a write first meets it there.

    The write goes by it to its end, although the partition may be resized meanwhile. For changes of
    rows that are there, none is created.
    """

    groups: _Laid
    creates: bool
    _met: dict[str, BucketLayout] = field(default_factory=dict, compare=False)
    shared: None = None

    def layout(self, partition: str, size: float = 0) -> BucketLayout:
        if (met := self._met.get(partition)) is None:
            groups = self.groups
            met = groups.layout(partition, size) if self.creates else groups.existing(partition)
            self._met[partition] = met
        return met


@dataclass(frozen=True)
class PinnedRings:
    """The ring that each partition had when a write began, for the processes of that write.

    A partition that had none gets its first ring from whichever process meets it first.
    """

    storage: Storage
    buckets: ConsistentBuckets
    instants: Mapping[str, InstantTime]
    creates: bool
    _loaded: dict[str, RingLayout] = field(default_factory=dict, compare=False)
    shared: None = None

    def layout(self, partition: str, size: float = 0) -> RingLayout:
        if (known := self._loaded.get(partition)) is None:
            known = self._loaded[partition] = self._layout(partition, size)
        return known

    def _layout(self, partition: str, size: float) -> RingLayout:
        instant = self.instants.get(partition)
        ring = load_ring(self.storage, partition, instant or FIRST_INSTANT)
        if ring is None:
            if instant is not None:
                raise _resized_since(partition, instant)
            if self.creates:
                first = initial_ring(partition, self.buckets.first_count(size))
                ring = create_first_ring(self.storage, first)
            else:
                ring = initial_ring(partition, 1)  # nothing there can be changed
        return RingLayout(ring, self.buckets.hash_fields)


def _known(log: DecisionLog) -> Known:
    undone = RollbackTargets(log.storage, log.folder)

    def is_undone(requested: str) -> bool:
        return undone.naming(requested, log.live) is not None

    return Known(
        lambda requested: log.live.is_completed(requested),
        lambda requested: requested in log.live.pending,
        is_undone,
        lambda requested: log.live.is_committed(requested),
    )


def _resized_since(partition: str, instant: InstantTime) -> ConflictError:
    return ConflictError(
        f"partition {partition!r} was resized",
        why=f"the ring {instant}, by which the write began to place its rows, is gone",
        next_step="Write again",
    )


def _off_ring(partition: str, file_id: str, ring: Ring) -> CorruptTableError:
    path = f"{ring_folder(partition)}/{ring.file_name}"
    return CorruptTableError(
        f"the file group {file_id} of partition {partition!r} is out of place",
        why=f"it has committed files, and {path} has no node with this file id",
        next_step="Find the writer that does not go by the partition's ring, roll its write back"
        " with Apache Hudi, and write its rows again",
        path=path,
    )
