"""What a process needs to carry a resize out: its plan, the rings it leaves, and their children."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.errors import CorruptTableError, InvalidRequestError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.bucket_config import ConsistentBuckets, SimpleBuckets
from pyhudi.format.table.bucket_migration import MigratingBuckets, ring_settings
from pyhudi.format.table.ring_file import Ring, RingFileName, encode_ring, ring_path
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.resize_plan import ResizePlan, decode_clustering
from pyhudi.index.children import Children
from pyhudi.index.ring_changes import unsound_change
from pyhudi.index.ring_layout import RingLayout
from pyhudi.plan.resizing.rings import rings_after
from pyhudi.session.session import TableSession
from pyhudi.storage.objects.timeline_files import load_timeline_file


@dataclass(frozen=True, slots=True)
class WithoutRing:
    """A partition with simple buckets, of which a resize makes its first ring."""

    buckets: SimpleBuckets
    hash_fields: tuple[str, ...]  # of the ring, every one named


#: The buckets in force of a partition.
LayoutOf = Callable[[str], RingLayout | WithoutRing]


@dataclass(frozen=True, slots=True)
class ResizeWork:
    """A resize that is pending."""

    requested: InstantTime
    plan: ResizePlan
    rings: tuple[Ring, ...]  # as it leaves them, one for each partition
    children: tuple[Children, ...]  # of each change of the plan

    @property
    def groups(self) -> tuple[FileGroupId, ...]:
        """All file groups that it makes."""
        return tuple(group for children in self.children for group in children.groups)

    @property
    def partitions(self) -> tuple[str, ...]:
        return tuple(ring.partition for ring in self.rings)

    @property
    def ring_files(self) -> tuple[tuple[str, bytes], ...]:
        """Paths and bytes of the hashing files that come with its completion."""
        name = RingFileName(self.requested)
        return tuple((ring_path(ring.partition, name), encode_ring(ring)) for ring in self.rings)


def load_resize(log: DecisionLog, requested: str, layout_of: LayoutOf) -> ResizeWork:
    """Load the plan of a pending resize, and lay it on the rings in force.

    CorruptTableError if the plan is damaged, or does not fit the rings. It names the plan's file.
    """
    instant = Instant(InstantTime(requested), Action.CLUSTERING, State.REQUESTED)
    path = log.path(instant)
    try:
        plan = decode_clustering(load_timeline_file(log.storage, path), path)
    except CorruptTableError as error:
        raise unreadable_resize(requested, error) from None
    if not isinstance(plan, ResizePlan):
        raise _no_resize(requested)
    return laid_on_rings(requested, plan, layout_of, path)


def laid_on_rings(requested: str, plan: ResizePlan, layout_of: LayoutOf, path: str) -> ResizeWork:
    """Lay a plan on the rings in force. `path` is that of its file.

    CorruptTableError if it does not fit them.
    """
    try:
        layouts = {partition: layout_of(partition) for partition in plan.by_partition}
        before = {
            partition: layout.buckets if isinstance(layout, WithoutRing) else layout.ring
            for partition, layout in layouts.items()
        }
        rings = rings_after(plan, before, InstantTime(requested))
    except CorruptTableError as error:
        if error.path is not None:
            raise
        raise CorruptTableError(
            error.what, why=error.why, next_step=error.next_step, path=path
        ) from None
    after = {
        partition: RingLayout(ring, layouts[partition].hash_fields)
        for partition, ring in rings.items()
    }
    children = tuple(Children(after[change.partition], change.made) for change in plan.groups)
    return ResizeWork(InstantTime(requested), plan, tuple(rings.values()), children)


def unreadable_resize(requested: str, damage: CorruptTableError) -> CorruptTableError:
    """Return the error of a pending resize whose plan cannot be read."""
    return CorruptTableError(
        f"the resize {requested} cannot be executed",
        why=f"its plan cannot be used: {damage.why}",
        next_step="Nothing was rewritten. Cancel it with"
        f" table.services.cancel_resize({requested!r}), which loses no row, and plan another",
        path=damage.path,
        offset=damage.offset,
    )


def _no_resize(requested: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"the clustering {requested} is not executed",
        why="it sorts or merges files, and does not resize buckets",
        next_step="Execute it with Apache Hudi, which planned it",
    )


def layout_before(session: TableSession, partition: str) -> RingLayout | WithoutRing:
    """Return the buckets in force of a partition that is resized, or gets its first ring."""
    buckets = session.config.buckets
    if not isinstance(buckets, MigratingBuckets) or session.groups.ring(partition) is not None:
        return ring_layout(session, partition)
    return WithoutRing(buckets.before, buckets.after.hash_fields)


def ring_layout(session: TableSession, partition: str) -> RingLayout:
    """Return the layout in force of a partition with consistent buckets."""
    buckets, ring = ring_buckets(session), session.groups.ring(partition)
    if ring is None:
        raise unsound_change(partition, "the partition has no ring")
    return RingLayout(ring, buckets.hash_fields)


def ring_buckets(session: TableSession) -> ConsistentBuckets:
    """Return the table's buckets; InvalidRequestError if they cannot be resized."""
    buckets = ring_settings(session.config.buckets)
    if buckets is not None:
        return buckets
    raise InvalidRequestError(
        f"the table {session.config.name!r} cannot be resized",
        why="its buckets are a fixed number in each partition",
        next_step="Migrate it with table.services.migrate_buckets()",
    )
