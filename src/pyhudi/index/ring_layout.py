"""The layout of a partition with consistent buckets: one file group for each node of its ring.

The ordinal of a file group is the index of its node. The ring alone names the file groups, so all
writers agree on them, those of Apache Hudi too. A partition that was resized has another ring, with
other nodes: a file group that is on no node of this one has no ordinal here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.bucket_config import CONSISTENT
from pyhudi.format.table.ring_file import FIRST_INSTANT, RING_MAX, Ring, RingNode
from pyhudi.index.consistent_bucket import owners, ring_ends, ring_positions


@dataclass(frozen=True)
class RingLayout:
    """The file groups of a partition, by its ring."""

    ring: Ring
    hash_fields: tuple[str, ...]  # every hash field named

    @property
    def partition(self) -> str:
        return self.ring.partition

    @property
    def size(self) -> int:
        return len(self.ring.nodes)

    @cached_property
    def assignment(self) -> tuple[tuple[str, ...], bytes]:
        return self.hash_fields, self._ends.tobytes()

    @property
    def hashing(self) -> tuple[str, ...]:
        return CONSISTENT, *self.hash_fields

    @cached_property
    def _ends(self) -> npt.NDArray[np.int32]:
        return ring_ends(self.ring)

    @cached_property
    def _ordinals(self) -> dict[str, int]:
        return {node.file_id: ordinal for ordinal, node in enumerate(self.ring.nodes)}

    def hashes(self, keys: pa.Array) -> npt.NDArray[np.int32]:
        return np.asarray(ring_positions(keys, self.hash_fields))

    def place(self, hashes: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        return owners(hashes, self._ends)

    def assign(self, keys: pa.Array) -> npt.NDArray[np.int32]:
        return self.place(self.hashes(keys))

    def group(self, ordinal: int) -> FileGroupId:
        return FileGroupId(self.partition, self.ring.nodes[ordinal].file_id)

    def ordinal(self, file_id: str) -> int | None:
        return self._ordinals.get(file_id)

    def has(self, group: FileGroupId) -> bool:
        return group.partition == self.partition and group.file_id in self._ordinals

    def __reduce__(self) -> tuple[type[RingLayout], tuple[Ring, tuple[str, ...]]]:
        """Travel without what can be computed again."""
        return RingLayout, (self.ring, self.hash_fields)


def coarsest_ring(rings: Iterable[Ring]) -> Ring:
    """Return a ring with the nodes' ends that all of these have.

    The range of each of their nodes lies within one range of it. Its nodes have no file groups.
    """
    ends = [frozenset(node.position for node in ring.nodes) for ring in rings]
    common = sorted(frozenset.intersection(*ends)) if ends else []
    nodes = tuple(RingNode(end, f"{end}") for end in common or [RING_MAX])
    return Ring("", FIRST_INSTANT, len(nodes), 0, nodes)
