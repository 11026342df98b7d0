"""Partitions of a consistent table as planning sees them: rings, and rows as positions alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyhudi.format.files.file_names import BaseFileName, FileGroupId
from pyhudi.format.table.ring_file import Ring, initial_ring
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.format.timeline.resize_plan import ResizePlan
from pyhudi.index.consistent_bucket import bucket_of
from pyhudi.plan.pending_plans import PendingPlans
from pyhudi.plan.resizing.changes import ResizePreview
from pyhudi.plan.resizing.choose import ResizeFacts, RingLimits, SizedPartition, plan_resize
from pyhudi.plan.resizing.policy import ResizePolicy
from pyhudi.plan.resizing.rings import rings_after
from pyhudi.table.file_group import BaseFile, FileSlice

NOW = "20260102030405678"
NO_PLANS = PendingPlans({})
LIMITS = RingLimits(1, 4096)


def slice_of(partition: str, file_id: str, size: int) -> FileSlice:
    name = BaseFileName(file_id, "0-0-0", InstantTime("20260101000000000"))
    base = BaseFile(f"{partition}/{name.file_name}", size, name)
    return FileSlice(partition, file_id, name.requested, base, ())


def sized(ring: Ring, sizes: Mapping[int, int], resized: str | None = None) -> SizedPartition:
    """The partition whose buckets, by their numbers, have these many bytes."""
    ids = {ring.nodes[number].file_id: size for number, size in sizes.items()}
    slices = {id_: slice_of(ring.partition, id_, size) for id_, size in ids.items()}
    return SizedPartition(ring, slices, resized)


def facts(
    *partitions: SizedPartition,
    plans: PendingPlans = NO_PLANS,
    clusterings: Mapping[str, str] | None = None,
) -> ResizeFacts:
    by_path = {each.ring.partition: each for each in partitions}
    return ResizeFacts(by_path, plans, clusterings or {}, NOW)


@dataclass
class RowsOnRing:
    """Rows of one byte each, which a resize moves to their new owners."""

    positions: npt.NDArray[np.int64]
    ring: Ring
    limits: RingLimits = LIMITS
    sample_max: int = 16_384
    new_ids: Iterator[str] = field(default_factory=lambda: (f"c{n}" for n in count()))

    @classmethod
    def first(cls, positions: npt.NDArray[np.int64], buckets: int, **other: object) -> RowsOnRing:
        return cls(positions, initial_ring("p", buckets), **other)  # type: ignore[arg-type]

    @property
    def owners(self) -> npt.NDArray[np.int32]:
        return np.asarray(bucket_of(pa.array(self.positions, pa.int32()), self.ring))

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        return np.bincount(self.owners, minlength=len(self.ring.nodes))

    @property
    def facts(self) -> ResizeFacts:
        return facts(sized(self.ring, {n: int(size) for n, size in enumerate(self.sizes)}))

    def preview(self, policy: ResizePolicy) -> ResizePreview:
        """Plan as a service does: with samples of those buckets that are to be split."""
        samples: dict[FileGroupId, npt.NDArray[np.int64]] = {}
        owners = self.owners
        numbers = {node.file_id: number for number, node in enumerate(self.ring.nodes)}
        while True:
            preview = plan_resize(self.facts, policy, self.limits, samples)
            if not preview.unsampled:
                return preview
            for group in preview.unsampled:
                rows = self.positions[owners == numbers[group.file_id]]
                step = max(1, len(rows) // self.sample_max)
                samples[group] = rows[::step]

    def resized(self, plan: ResizePlan) -> RowsOnRing:
        instant = InstantTime(f"2026010203040{self.ring.sequence_number:04d}")
        ring = rings_after(plan, {"p": self.ring}, instant)["p"]
        return RowsOnRing(self.positions, ring, self.limits, self.sample_max, self.new_ids)

    def round(self, policy: ResizePolicy) -> RowsOnRing:
        preview = self.preview(policy)
        return self.resized(preview.plan(self.new_ids)) if preview.changes else self
