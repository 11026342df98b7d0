"""Rings as a resize leaves them."""

from __future__ import annotations

from pyhudi.format.table.ring_file import RING_MAX, Ring, RingNode
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.index.ring_layout import RingLayout


def equal_parts(count: int, partition: str = "") -> RingLayout:
    ends = [*(RING_MAX // count * number for number in range(1, count)), RING_MAX]
    nodes = tuple(RingNode(end, f"{number:08d}-child") for number, end in enumerate(ends))
    return RingLayout(Ring(partition, InstantTime("0" * 17), 1, 1, nodes), ("id",))
