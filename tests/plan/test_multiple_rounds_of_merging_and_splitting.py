"""RFC-42, test plan: multiple rounds of merging and splitting, here of positions alone.

Rows lie in file groups. A round moves only the rows of the buckets that it replaces, each to the
child that owns it. Afterwards every row must lie where a writer would look for it.
"""

from __future__ import annotations

from itertools import count

import numpy as np
import numpy.typing as npt
import pytest

from pyhudi.format.table.ring_file import Ring, decode_ring, encode_ring, initial_ring
from pyhudi.format.timeline.resize_plan import (
    ResizePlan,
    decode_resize_plan,
    encode_resize_plan,
)
from pyhudi.index.ring_changes import RING_SIZE
from pyhudi.plan.resizing.choose import RingLimits
from pyhudi.plan.resizing.policy import ResizePolicy
from sized_rings import RowsOnRing

TARGET = 4096
ROUNDS = 200
LIMITS = RingLimits(2, 48)
pytestmark = pytest.mark.filterwarnings("ignore:target_bytes")


class StoredRows:
    """The rows of each file group of a partition."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.groups: dict[str, npt.NDArray[np.int64]] = {}
        self._ids = (f"c{n}" for n in count())

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        return np.sort(np.concatenate([*self.groups.values(), np.empty(0, np.int64)]))

    def write(self, positions: npt.NDArray[np.int64]) -> None:
        owners = RowsOnRing(positions, self.ring).owners
        for number in np.unique(owners):
            id_ = self.ring.nodes[number].file_id
            old = self.groups.get(id_, np.empty(0, np.int64))
            self.groups[id_] = np.concatenate([old, positions[owners == number]])

    def delete(self, share: float, random: np.random.Generator) -> None:
        for id_, rows in self.groups.items():
            self.groups[id_] = rows[random.random(len(rows)) >= share]

    def round(self, policy: ResizePolicy) -> ResizePlan:
        partition = RowsOnRing(self.rows, self.ring, LIMITS, new_ids=self._ids)
        plan = partition.preview(policy).plan(self._ids)
        stored = decode_resize_plan(encode_resize_plan(plan, "s3://t", b"0" * 16), "x")
        if stored is not None:
            assert stored == plan
            self.execute(stored, partition.resized(stored).ring)
        return plan

    def execute(self, plan: ResizePlan, after: Ring) -> None:
        for change in plan.groups:
            moved = [self.groups.pop(group.file_id, None) for group in change.inputs]
            rows = np.concatenate([np.empty(0, np.int64), *(r for r in moved if r is not None)])
            owners = RowsOnRing(rows, after).owners
            children = {group.file_id for group in change.made}
            for number in np.unique(owners):
                id_ = after.nodes[number].file_id
                assert id_ in children
                self.groups[id_] = rows[owners == number]
        self.ring = decode_ring(encode_ring(after))

    def check(self) -> None:
        numbers = {node.file_id: number for number, node in enumerate(self.ring.nodes)}
        for id_, rows in self.groups.items():
            assert (RowsOnRing(rows, self.ring).owners == numbers[id_]).all()


@pytest.mark.parametrize("seed", [1, 2])
def test_rows_stay_with_the_owners_of_their_rings_through_200_random_rounds(seed: int) -> None:
    random = np.random.default_rng(seed)
    stored = StoredRows(initial_ring("p", 4))
    splits = merges = wide = 0
    counts = set()
    is_growing = True
    for number in range(ROUNDS):
        if is_growing:
            size = int(random.integers(1, 12 * TARGET))
            low = int(random.integers(0, RING_SIZE // 2))
            width = int(random.choice([RING_SIZE // 2, RING_SIZE // 50]))
            stored.write(random.integers(low, low + width, size))
        else:
            stored.delete(float(random.uniform(0.1, 0.6)), random)
        before, sequence = stored.rows, stored.ring.sequence_number
        policy = ResizePolicy(
            target_bytes=TARGET,
            split=str(random.choice(["even", "middle"])),
            bytes_max=int(random.choice([2 * TARGET, 1 << 40])),
            buckets_max=int(random.choice([3, 1000])),
            rest_seconds=0,
        )
        plan = stored.round(policy)
        stored.check()
        assert np.array_equal(stored.rows, before)
        assert LIMITS.least <= len(stored.ring.nodes) <= LIMITS.most
        assert stored.ring.sequence_number == sequence + bool(plan.groups)
        splits += sum(len(change.inputs) == 1 for change in plan.groups)
        merges += sum(len(change.inputs) > 1 for change in plan.groups)
        wide += any(len(change.made) > 2 for change in plan.groups)
        counts.add(len(stored.ring.nodes))
        if len(before) > 80 * TARGET or number == ROUNDS - 40:
            is_growing = False
        elif len(before) < TARGET and number < ROUNDS - 40:
            is_growing = True
    assert min(splits, merges, wide) >= 10
    assert {LIMITS.least, LIMITS.most} <= counts
