"""Tables of consistent buckets whose resizes are planned by hand, bucket by bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any

import pyarrow as pa

from memory_tables import MemoryTable
from pyhudi.commit.proposals import Begin, Decided
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.files.log_reference import marked_as_virtual
from pyhudi.format.table.bucket_config import ConsistentBuckets
from pyhudi.format.table.concurrency_mode import ConcurrencyMode
from pyhudi.format.table.ring_file import Ring
from pyhudi.format.timeline.instant import Action
from pyhudi.format.timeline.resize_plan import (
    GroupChange,
    InputSlice,
    ResizePlan,
    encode_resize_plan,
)
from pyhudi.index.ring_changes import RingChange, arc_of, equal_points, merge, split
from pyhudi.read.plan import Reader
from pyhudi.services.resizing.execute import Resizes
from pyhudi.services.resizing.run import resizes
from pyhudi.session.session import TableSession
from pyhudi.storage.protocol import Storage
from pyhudi.table.file_group import FileSlice
from pyhudi.table.schema import FILE_NAME

_IDS = count()  # no two buckets share one, in whichever copy of a table
_ID = pa.field("id", pa.string(), nullable=False)
#: Definitions of tables in both modes.
MODES: dict[str, dict[str, Any]] = {
    "event time": {"ordering": "ts"},
    "commit time": {"concurrency": ConcurrencyMode.OPTIMISTIC},
}
SCHEMA = pa.schema([_ID, ("day", pa.string()), ("ts", pa.int64()), ("v", pa.string())])


class ResizeTable(MemoryTable):
    """A table partitioned by `day`, with one bucket in each partition at first."""

    def __init__(self, *, initial: int = 1, is_virtual: bool = False, **definition: Any) -> None:
        self.is_virtual = is_virtual  # whether its resizes are
        buckets = ConsistentBuckets(initial=initial)
        schema = definition.pop("schema", SCHEMA)
        super().__init__(schema, **{"partition_by": "day", "buckets": buckets, **definition})

    def put(self, keys: Iterable[str], stamp: int, day: str = "d", label: str = "w") -> None:
        self.table(label).upsert(self.made(keys, stamp, day))

    def made(self, keys: Iterable[str], stamp: int, day: str = "d") -> pa.Table:
        rows = [{"id": key, "day": day, "ts": stamp, "v": f"{key}{stamp}"} for key in keys]
        return pa.Table.from_pylist(rows, SCHEMA)

    def remove(self, keys: Iterable[str]) -> None:
        self.table("d").delete(pa.table({"id": list(keys)}))

    def rows(self, **read: Any) -> list[str]:
        """What readers see, with meta columns but for the name of the file."""
        found = self.table("r").read(meta=True, **read).to_arrow().drop_columns([FILE_NAME])
        return sorted(map(repr, found.to_pylist()))

    def changed(self, since: str | None, until: str | None) -> list[str]:
        """The rows that changed, as `rows` has them."""
        changes = self.table("r").changes(since=since, until=until, meta=True)
        return sorted(map(repr, changes.to_arrow().drop_columns([FILE_NAME]).to_pylist()))

    def values(self) -> dict[str, str]:
        """Key → value of each row; every key is there once."""
        found = self.table("r").read(columns=["id", "v"]).to_arrow().to_pylist()
        values = {row["id"]: row["v"] for row in found}
        assert len(values) == len(found)
        return values

    # -- resizes

    def plan(
        self,
        parts: int = 4,
        days: Sequence[str] = ("d",),
        label: str = "p",
        *,
        is_dual: bool = False,
    ) -> str:
        """Plan a split of every bucket of these partitions; return its requested time.

        `is_dual`: Hudi can execute it, too.
        """
        return self._begin(label, days, lambda ring: self._splits(ring, parts), is_dual=is_dual)

    def plan_merge(self, day: str = "d", label: str = "p") -> str:
        """Plan a merge of all buckets of a partition into one."""
        return self._begin(
            label, (day,), lambda ring: [merge(ring, range(len(ring.nodes)), self._new_id())]
        )

    def _splits(self, ring: Ring, parts: int) -> list[RingChange]:
        return splits(ring, parts, self._new_id)

    def _new_id(self) -> str:
        number = next(_IDS)
        if self.is_virtual:
            return marked_as_virtual(f"{number:08x}-0000-4000-8000-{number:012x}")
        return f"{number:08d}-0000-0000-0000-child"

    def _begin(
        self, label: str, days: Sequence[str], changes_of: Any, *, is_dual: bool = False
    ) -> str:
        return begin_resize(self.session(label), days, changes_of, is_dual=is_dual)

    def resizes(self, label: str = "e", storage: Storage | None = None, **settings: Any) -> Resizes:
        """The resizes as one process executes them."""
        return resizes(self.session(label, storage, **settings))


class Beside:
    """A storage through which an executor works, and a writer beside it at some moments."""

    def __init__(self, table: ResizeTable, deeds: dict[str, Any]) -> None:
        self._storage: Storage = table.storage
        self._deeds = deeds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def create(self, path: str, data: bytes) -> bool:
        self._meet(path)
        return self._storage.create(path, data)

    def create_from(self, path: str, chunks: Any) -> int | None:
        self._meet(path)
        return self._storage.create_from(path, chunks)

    def _meet(self, path: str) -> None:
        for part in [part for part in self._deeds if part in path]:
            self._deeds.pop(part)()


def splits(ring: Ring, parts: int, new_id: Callable[[], str]) -> list[RingChange]:
    """Split every bucket of the ring."""
    return [
        split(
            ring,
            node,
            equal_points(arc_of(ring, node), parts),
            [new_id() for _ in range(parts)],
        )
        for node in range(len(ring.nodes))
    ]


def begin_resize(
    session: TableSession,
    days: Sequence[str],
    changes_of: Callable[[Ring], Iterable[RingChange]],
    *,
    is_dual: bool = False,
) -> str:
    """Plan changes of the rings of these partitions; return the requested time."""
    slices = latest_slices(session)
    changes: list[GroupChange] = []
    for day in days:
        ring = session.groups.ring(day)
        assert ring is not None
        changes += (_planned(ring, change, slices) for change in changes_of(ring))
    plan = ResizePlan(tuple(changes), is_dual)
    data = encode_resize_plan(plan, session.storage.uri, bytes(16))
    outcome = session.log.append(Begin(Action.CLUSTERING, data))
    assert isinstance(outcome, Decided), outcome
    assert outcome.entry.instant is not None
    return outcome.entry.instant


def latest_slices(session: TableSession) -> dict[FileGroupId, FileSlice]:
    """The latest slice of each file group that readers see."""
    state = session.current.load()
    times = Reader(session.loader).completion_times(state)
    return session.groups.latest_slices(state, times)


def _planned(ring: Ring, change: RingChange, slices: dict[FileGroupId, FileSlice]) -> GroupChange:
    inputs = []
    for prefix in change.inputs:
        slice_ = slices.get(FileGroupId(ring.partition, f"{prefix}-0"))
        base = slice_.base.name.file_name if slice_ and slice_.base else None
        logs = tuple(log.name.file_name for log in slice_.logs) if slice_ else ()
        inputs.append(InputSlice(f"{prefix}-0", base, logs))
    number = ring.sequence_number
    return GroupChange(ring.partition, number, tuple(inputs), change.children)
