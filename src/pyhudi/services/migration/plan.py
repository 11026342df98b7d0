"""Which partitions still have simple buckets, and what plan gives one of them its first ring?

The plan is a resize: it replaces all buckets of one partition by the nodes of a ring, cut as a new
partition's first ring is. It is proposed and adjusted as every plan of a resize.
"""

from __future__ import annotations

from typing import Any

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.bucket_migration import MigratingBuckets
from pyhudi.index.simple_bucket import bucket_number
from pyhudi.plan.resizing.changes import FirstRing, LeftAlone, ResizePreview
from pyhudi.plan.resizing.choose import in_partition
from pyhudi.plan.resizing.policy import ResizePolicy
from pyhudi.services.resizing.run import planning_of
from pyhudi.services.resizing.schedule import ResizePlanning, TableNow
from pyhudi.session.session import TableSession
from pyhudi.table.file_group import FileSlice
from pyhudi.write.view import current_slices, state_and_rings


class FirstRingPlanning(ResizePlanning):
    """Makes the plan that gives one partition its first ring."""

    def __init__(self, buckets: MigratingBuckets, partition: str, **given: Any) -> None:
        super().__init__(**given)
        self._buckets = buckets
        self._partition = partition

    def planned(self, now: TableNow, policy: ResizePolicy) -> ResizePreview:
        found = now.latest_slices().get(self._partition, {})
        slices = [found[file_id] for file_id in sorted(found)]  # as their numbers are
        size = sum(slice_.bytes for slice_ in slices)
        why = self._obstacle(slices, now)
        if why is None and policy.input_bytes_max is not None and size > policy.input_bytes_max:
            why = "it is larger than what one plan may read"
        if why is not None:
            left = (LeftAlone(_group(slice_), slice_.bytes, why) for slice_ in slices)
            return ResizePreview((), tuple(left))
        count = self._buckets.after.first_count(size)
        return ResizePreview((FirstRing(self._partition, tuple(slices), count),), ())

    def _obstacle(self, slices: list[FileSlice], now: TableNow) -> str | None:
        """Return why the partition cannot get a ring now; None if it can."""
        if plan := now.clusterings().get(self._partition):
            return in_partition(plan)
        if self._rings.ring(self._partition) is not None:
            return "it has a ring since a moment ago"
        numbers = [bucket_number(slice_.file_id) for slice_ in slices]
        if numbers != list(range(self._buckets.before.count)):
            return f"it has not one file group for each of {self._buckets.before.count} buckets"
        holder = now.plans.holders()
        return next((held for each in slices if (held := holder(_group(each))) is not None), None)


def first_ring_planning(session: TableSession, partition: str) -> FirstRingPlanning:
    buckets = session.config.buckets
    assert isinstance(buckets, MigratingBuckets)
    return planning_of(session, FirstRingPlanning, buckets=buckets, partition=partition)


def simple_partitions(session: TableSession) -> list[str]:
    """Return the partitions that have simple buckets right now."""
    with session.exclusive:
        slices = current_slices(session, state_and_rings(session))
        partitions = sorted({group.partition for group in slices})
        return [partition for partition in partitions if session.groups.ring(partition) is None]


def _group(slice_: FileSlice) -> FileGroupId:
    return FileGroupId(slice_.partition, slice_.file_id)
