"""A layout of ring nodes, as a resize leaves one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.ring_file import RING_MAX, Ring, RingNode
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.index.consistent_bucket import bucket_ids


class NodeLayout:
    """One file group for each position."""

    def __init__(self, *positions: int, partition: str = "") -> None:
        self.partition = partition
        nodes = tuple(RingNode(end, f"{n:08d}-child") for n, end in enumerate(positions))
        self.ring = Ring(partition, InstantTime("0" * 17), 1, 1, nodes)
        self.size = len(nodes)
        self.assignment = self.ring

    def assign(self, keys: pa.Array) -> npt.NDArray[np.int32]:
        return np.asarray(bucket_ids(keys, ("id",), self.ring))

    def group(self, ordinal: int) -> FileGroupId:
        return FileGroupId(self.partition, self.ring.nodes[ordinal].file_id)

    def ordinal(self, file_id: str) -> int:
        return [node.file_id for node in self.ring.nodes].index(file_id)

    def has(self, group: FileGroupId) -> bool:
        return group in map(self.group, range(self.size))


def equal_parts(count: int, partition: str = "") -> NodeLayout:
    ends = (RING_MAX // count * number for number in range(1, count))
    return NodeLayout(*ends, RING_MAX, partition=partition)
