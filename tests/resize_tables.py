"""Tables whose buckets can be resized by hand, before a table has rings of its own.

Each partition has one simple bucket, and that bucket is the whole ring: it owns every key. So it
can be split, and readers, who go by the timeline alone, see a table with consistent buckets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from memory_tables import MemoryTable
from pyhudi.commit.proposals import Begin, Decided
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.ring_file import FIRST_INSTANT, RING_MAX, NodeTag, Ring, RingNode
from pyhudi.format.timeline.instant import Action
from pyhudi.format.timeline.resize_plan import (
    GroupChange,
    InputSlice,
    ResizePlan,
    encode_resize_plan,
)
from pyhudi.index.ring_layout import RingLayout
from pyhudi.index.simple_bucket import file_id
from pyhudi.read.plan import Reader
from pyhudi.services.resizing.execute import Resizes
from pyhudi.services.resizing.run import resizes
from pyhudi.session.session import TableSession
from pyhudi.storage.protocol import Storage
from pyhudi.table.file_group import FileSlice
from pyhudi.table.file_slices import latest_slice
from pyhudi.table.schema import FILE_NAME
from pyhudi.timeline.completion import visible_now

_ID = pa.field("id", pa.string(), nullable=False)
SCHEMA = pa.schema([_ID, ("day", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
Row = dict[str, Any]


def one_bucket_ring(partition: str) -> RingLayout:
    prefix = file_id(0).removesuffix("-0")
    nodes = (RingNode(RING_MAX, prefix),)
    return RingLayout(Ring(partition, FIRST_INSTANT, 1, 0, nodes), ("id",))


class ResizeTable(MemoryTable):
    """A table partitioned by `day`."""

    def __init__(self, **definition: Any) -> None:
        asked = {"partition_by": "day", "buckets": SimpleBuckets(1), **definition}
        super().__init__(definition.pop("schema", SCHEMA), **asked)

    def put(self, keys: Sequence[str], stamp: int, day: str = "d", label: str = "w") -> None:
        rows = [{"id": key, "day": day, "ts": stamp, "v": f"{key}{stamp}"} for key in keys]
        self.table(label).upsert(pa.Table.from_pylist(rows, SCHEMA))

    def remove(self, keys: Sequence[str]) -> None:
        self.table("d").delete(pa.table({"id": list(keys)}))

    def rows(self, **read: Any) -> list[str]:
        """What readers see, with meta columns but for the name of the file."""
        found = self.table("r").read(meta=True, **read).to_arrow().drop_columns([FILE_NAME])
        return sorted(map(repr, found.to_pylist()))

    # -- resizes

    def plan(self, parts: int = 4, days: Sequence[str] = ("d",), label: str = "p") -> str:
        """Plan a split of the bucket of each of these partitions; return its requested time."""
        session = self.session(label)
        found = latest_slices(session)
        plan = ResizePlan(tuple(split_into(parts, found[day]) for day in days))
        data = encode_resize_plan(plan, session.storage.uri, bytes(16))
        outcome = session.log.append(Begin(Action.CLUSTERING, data))
        assert isinstance(outcome, Decided), outcome
        assert outcome.entry.instant is not None
        return outcome.entry.instant

    def resizes(self, label: str = "e", storage: Storage | None = None, **settings: Any) -> Resizes:
        """The resizes as one process executes them."""
        return resizes(self.session(label, storage, **settings), layout_of=one_bucket_ring)


def latest_slices(session: TableSession) -> dict[str, FileSlice]:
    """The latest slice of the bucket of each partition."""
    state = session.current.load()
    times = Reader(session.loader).completion_times(state)
    now = visible_now(state.timeline)
    slices = (latest_slice(group, times, now) for group in state.groups())
    return {slice_.partition: slice_ for slice_ in slices if slice_ is not None}


def split_into(parts: int, slice_: FileSlice) -> GroupChange:
    base = slice_.base.name.file_name if slice_.base else None
    logs = tuple(log.name.file_name for log in slice_.logs)
    ends = [RING_MAX // parts * number for number in range(1, parts)]
    children = tuple(
        RingNode(end, f"{slice_.partition}-{number:04d}-child", NodeTag.REPLACE)
        for number, end in enumerate([*ends, RING_MAX])
    )
    return GroupChange(slice_.partition, 0, (InputSlice(slice_.file_id, base, logs),), children)
