"""The buckets of a table, one row each: what `table.inspect.buckets()` shows.

On a table of consistent buckets the rows are the nodes of each partition's ring. A file group that
is on no ring is listed behind them, because something is wrong with it. On any other table the rows
are the file groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from pyhudi.api.damaged_buckets import damage_words, lost_in_buckets
from pyhudi.errors import CorruptTableError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.bucket_migration import MigratingBuckets
from pyhudi.format.table.ring_file import FIRST_INSTANT, Ring
from pyhudi.format.timeline.instant import Action
from pyhudi.format.timeline.resize_plan import ResizePlan
from pyhudi.index.ring_changes import owner_ranges
from pyhudi.index.simple_bucket import bucket_number
from pyhudi.read.counting import rows_of_slices
from pyhudi.read.load import TableLoader
from pyhudi.read.plan import Now, Question, Reader
from pyhudi.read.rings import Rings, known_by
from pyhudi.session.live_groups import live_slices
from pyhudi.storage.objects.rings import load_all_ring_files
from pyhudi.table.file_group import BaseFile, FileSlice, LogFile
from pyhudi.table.schema import RECORD_KEY
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import CompletionTimes
from pyhudi.timeline.instant_time import utc_moment

BUCKETS = pa.schema(
    [
        ("partition", pa.string()),
        ("bucket", pa.int64()),
        ("range", pa.list_(pa.struct([("first", pa.int64()), ("last", pa.int64())]))),
        ("file_id", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("share", pa.float64()),
        ("last_change", pa.timestamp("ms", "UTC")),
        ("state", pa.string()),
    ]
)

#: How often the table is loaded because a resize completed meanwhile.
LOAD_ATTEMPTS_MAX = 3

RESIZE = "resize"
#: A clustering of another kind is cancelled by the engine that planned it.
_CANCELS = {
    RESIZE: "cancel_resize",
    Action.COMPACTION.value: "cancel_compaction",
    Action.LOGCOMPACTION.value: "cancel_compaction",
}
_NORMAL, _EMPTY, _OFF_RING = "normal", "empty", "on no ring"


@dataclass(frozen=True, slots=True)
class _Bucket:
    group: FileGroupId
    number: int | None = None
    ranges: tuple[tuple[int, int], ...] | None = None
    state: str = _NORMAL


@dataclass(frozen=True, slots=True)
class PlansInTheWay:
    """What pending table services rewrite, in words."""

    named: Mapping[FileGroupId, str]
    unclear: str | None = None  # a plan that cannot be read, and may have any file group
    resizes: tuple[ResizePlan, ...] = ()

    def of(self, group: FileGroupId) -> str | None:
        """Return which plan has the file group, or may have it."""
        return self.named.get(group, self.unclear)


def unclear_plan(name: str, requested: str, damage: CorruptTableError) -> str:
    """Return the state of buckets that a plan may have, and what cancels it."""
    state = f"perhaps in {name} {requested}, whose plan {damage.path!r} cannot be read"
    if (verb := _CANCELS.get(name)) is not None:
        state += f"; table.services.{verb}({requested!r}) cancels it"
    return state


def load_rings(loader: TableLoader, state: TableState) -> dict[str, Ring]:
    """Return the rings in force of the partitions that have one."""
    if isinstance(loader.config.buckets, SimpleBuckets):
        return {}
    rings = Rings(loader.storage, loader.history, known_by(state))
    found = (rings.load(partition) for partition in load_all_ring_files(loader.storage))
    return {loaded.ring.partition: loaded.ring for loaded in found if loaded is not None}


def is_behind(state: TableState, rings: Mapping[str, Ring]) -> bool:
    """True if a resize completed between the load of the state and that of the rings."""
    instants = {ring.instant for ring in rings.values()} - {FIRST_INSTANT}
    return any(not state.timeline.is_committed(instant) for instant in instants)


def bucket_rows(
    loader: TableLoader,
    reader: Reader,
    state: TableState,
    rings: Mapping[str, Ring],
    pending: PlansInTheWay,
    *,
    counts_rows: bool,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each bucket."""
    times = reader.completion_times(state)
    slices = live_slices(state, times)
    damage = dict(lost_in_buckets(loader, state, times, pending.resizes))
    counts: dict[FileGroupId, int] = {}
    if counts_rows and slices:
        plan = reader.plan_snapshot(state, Now(), Question((RECORD_KEY,)), is_damaged=True)
        for group, count in rows_of_slices(loader.storage, plan).items():
            if isinstance(count, int):
                counts[group] = count
            else:
                damage.setdefault(group, damage_words(count.path, count.why))
    totals: dict[str, int] = {}
    for group, slice_ in slices.items():
        totals[group.partition] = totals.get(group.partition, 0) + slice_.bytes
    buckets = loader.config.buckets
    has_numbers = not rings or isinstance(buckets, MigratingBuckets)
    for bucket in _buckets(slices, rings, has_numbers=has_numbers):
        found = slices.get(bucket.group)
        size = 0 if found is None else found.bytes
        total = totals.get(bucket.group.partition)
        last = None if found is None else _last_change(found, times)
        broken = damage.get(bucket.group)
        yield {
            "partition": bucket.group.partition,
            "bucket": bucket.number,
            "range": bucket.ranges and [{"first": a, "last": b} for a, b in bucket.ranges],
            "file_id": bucket.group.file_id,
            "rows": counts.get(bucket.group, 0) if counts_rows and not broken else None,
            "bytes": size,
            "share": size / total if total else None,
            "last_change": last and utc_moment(last, loader.config.zone),
            "state": _state(bucket, pending, broken),
        }


def _state(bucket: _Bucket, pending: PlansInTheWay, broken: str | None) -> str:
    is_plain = bucket.state == _NORMAL
    state = (pending.of(bucket.group) if is_plain else None) or bucket.state
    if broken is None:
        return state
    return broken if state == _NORMAL else f"{state}; {broken}"


def _buckets(
    slices: Mapping[FileGroupId, FileSlice], rings: Mapping[str, Ring], *, has_numbers: bool
) -> Iterator[_Bucket]:
    on_rings: set[FileGroupId] = set()
    grouped: dict[str, list[FileGroupId]] = {partition: [] for partition in rings}
    for group in slices:
        grouped.setdefault(group.partition, []).append(group)
    for partition in sorted(grouped):
        if (ring := rings.get(partition)) is not None:
            for bucket in _nodes(ring):
                on_rings.add(bucket.group)
                yield bucket if bucket.group in slices else replace(bucket, state=_EMPTY)
        for group in sorted(grouped[partition]):
            if ring is None:
                yield _Bucket(group, bucket_number(group.file_id) if has_numbers else None)
            elif group not in on_rings:
                yield _Bucket(group, state=_OFF_RING)


def _nodes(ring: Ring) -> Iterator[_Bucket]:
    for number, node in enumerate(ring.nodes):
        yield _Bucket(FileGroupId(ring.partition, node.file_id), number, owner_ranges(ring, number))


def _last_change(slice_: FileSlice, times: CompletionTimes) -> str:
    """Return when the last write of the slice completed; its request, if that is forgotten."""
    files: list[BaseFile | LogFile] = [*([slice_.base] if slice_.base else []), *slice_.logs]
    requested = (file.name.requested for file in files)
    return max(times.of(time) or time for time in requested)
