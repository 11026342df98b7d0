"""What pending writes and plans have announced, one row each file: `table.inspect.markers()`.

A look only: nothing is written, not even to read the store's clock. What cannot be read of one
writer is a row of that writer, and hides no other one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa

from pyhudi.errors import HudiError
from pyhudi.format.table.bucket_config import ConsistentBuckets, SimpleBuckets
from pyhudi.format.timeline.instant import Instant, State
from pyhudi.index.simple_bucket import bucket_number
from pyhudi.read.load import TableLoader
from pyhudi.read.rings import Rings, known_by
from pyhudi.storage.objects.heartbeats import heartbeat_path, last_sign_ms
from pyhudi.storage.objects.markers import Announced, load_announced
from pyhudi.storage.objects.store_clock import StoreClock
from pyhudi.table.state import TableState
from pyhudi.timeline.timeline import WRITE_ACTIONS
from pyhudi.wording import storable
from pyhudi.world import World

#: The writer of an instant.
WRITER = [
    ("job", pa.string()),
    ("host", pa.string()),
    ("user", pa.string()),
    ("process", pa.int64()),
    ("priority", pa.int64()),
]
MARKERS = pa.schema(
    [
        ("instant", pa.string()),
        ("action", pa.string()),
        *WRITER,
        ("partition", pa.string()),
        ("file_id", pa.string()),
        ("bucket", pa.int64()),
        ("node", pa.int64()),
        ("file", pa.string()),
        ("path", pa.string()),
        ("announced", pa.timestamp("ms", "UTC")),
        ("last_sign", pa.timestamp("ms", "UTC")),
        ("alive", pa.bool_()),
        ("problem", pa.string()),
    ]
)


def marker_rows(
    loader: TableLoader,
    state: TableState,
    pending: Iterable[Instant],
    writer_of: Callable[[Instant], Mapping[str, Any]],
    world: World,
    timeout_ms: int,
) -> list[dict[str, Any]]:
    """Return a row for each file that one of the pending instants has announced.

    A process without a sign of life for longer than the timeout counts as dead.
    """
    storage, clock = loader.storage, StoreClock(loader.storage, world)
    rows: list[dict[str, Any]] = []
    for instant in pending:
        announced = load_announced(storage, instant.requested)
        if announced.is_empty:
            continue
        last_sign = last_sign_ms(storage, *_signs(loader, instant))
        if last_sign is not None:
            clock.observe(last_sign)
        known = writer_of(instant)
        writer = {name: known.get(name) for name in ("instant", "action", *dict(WRITER))}
        rows += _rows(announced, {**writer, "last_sign": last_sign}, loader)
    nodes = _nodes(loader, state, {row["partition"] for row in rows if "partition" in row})
    now = clock.estimate_ms()
    for row in rows:
        last_sign = row["last_sign"]
        row["node"] = nodes.get((row.get("partition"), row.get("file_id")))
        row["alive"] = last_sign is not None and now - last_sign <= timeout_ms
    return rows


def _signs(loader: TableLoader, instant: Instant) -> Iterator[str]:
    """Yield what shows that the owner of the instant is alive.

    Another process may publish a begin before its owner's first heartbeat. A plan says nothing of
    the process that executes it.
    """
    yield heartbeat_path(instant.requested)
    if instant.action in WRITE_ACTIONS:
        yield f"{loader.timeline_folder}/{instant.in_state(State.REQUESTED).file_name}"


def _rows(
    announced: Announced, writer: Mapping[str, Any], loader: TableLoader
) -> Iterator[dict[str, Any]]:
    has_numbers = isinstance(loader.config.buckets, SimpleBuckets)
    for marker in sorted(announced.since_ms, key=lambda marker: marker.path):
        group = marker.file_group
        yield {
            **writer,
            "partition": storable(group.partition),
            "file_id": group.file_id,
            "bucket": bucket_number(group.file_id) if has_numbers else None,
            "file": "base" if marker.is_of_base else "log",
            "path": storable(marker.data_file),
            "announced": announced.since_ms[marker],
        }
    if announced.damage is not None:
        yield {**writer, "problem": storable(str(announced.damage))}


def _nodes(
    loader: TableLoader, state: TableState, partitions: Collection[str]
) -> dict[tuple[Any, Any], int]:
    """Return the position of each file group that is on the ring of one of the partitions."""
    found: dict[tuple[Any, Any], int] = {}
    if not isinstance(loader.config.buckets, ConsistentBuckets):
        return found
    rings = Rings(loader.storage, loader.history, known_by(state))
    for partition in sorted(partitions):
        with suppress(HudiError):  # a ring that cannot be read hides no writer
            loaded = rings.load(partition)
            for node in () if loaded is None else loaded.ring.nodes:
                found[partition, node.file_id] = node.position
    return found
