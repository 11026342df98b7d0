"""Rows buffered by file group, as far as memory allows.

Input arrives as a stream of batches and is evaluated once. Each batch is checked when it arrives,
so rows that fit in memory are known to be good before anything is written. The file groups of the
rows are known once the write has begun. They may be others when the write begins again; `route`
then moves the rows. A write that is larger than memory spills the largest file groups, each as
another log file of the same instant.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.index.routing import PreparedBatch, RoutedRows, Routing
from pyhudi.table.large_columns import one_batch
from pyhudi.table.rows.latest import latest_per_key
from pyhudi.write.files.spec import KeyedRows
from pyhudi.write.row_shape import RowShape


@dataclass(slots=True)
class _Group:
    """The rows of one file group, in the order in which they arrived."""

    parts: list[RoutedRows] = field(default_factory=list)
    bytes: int = 0

    def add(self, part: RoutedRows, part_bytes: int) -> None:
        self.parts.append(part)
        self.bytes += part_bytes


class RowBuffer:
    """Rows to write, by file group once they are routed."""

    def __init__(self, shape: RowShape) -> None:
        self._shape = shape
        self._routing: Routing | None = None
        self._unrouted: list[PreparedBatch] = []
        self._groups: dict[FileGroupId, _Group] = {}
        self.sizes: dict[str, float] = {}  # the bytes of the rows that have arrived, by partition
        self.bytes = 0

    def fill(self, batches: Iterator[pa.RecordBatch], bytes_max: int | None) -> bool:
        """Take batches until there are `bytes_max` bytes; return True if the batches have ended."""
        for batch in batches:
            self._add(batch)
            if bytes_max is not None and self.bytes >= bytes_max:
                return False
        return True

    def _add(self, rows: pa.RecordBatch) -> None:
        batch = self._shape.prepare(rows)
        if not batch.rows.num_rows:
            return
        for partition, share in _shares(batch.paths):
            size = self.sizes.get(partition, 0.0)
            self.sizes[partition] = size + share * batch.rows.nbytes
        if self._routing is not None:
            self._put(batch, self._routing)
        else:
            self._unrouted.append(batch)
            self.bytes += batch.rows.nbytes

    def _put(self, batch: PreparedBatch, routing: Routing) -> None:
        size, count = batch.rows.nbytes, batch.rows.num_rows
        for part in routing.split(batch):
            part_bytes = max(1, size * part.rows.num_rows // count)
            self._groups.setdefault(part.group, _Group()).add(part, part_bytes)
            self.bytes += part_bytes

    def partitions(self) -> list[str]:
        """Return the partitions of the rows that have arrived."""
        return sorted(self.sizes)

    def route(self, routing: Routing) -> None:
        """Move the rows, and those that follow, to the file groups of this routing."""
        known, self._routing = self._routing, routing
        for partition, size in self.sizes.items():
            routing.layout(partition, size)  # new ones are laid out for all rows that are there
        if known is not None and _agree(known, routing, self.sizes):
            return
        parts = (part for group in self._groups.values() for part in group.parts)
        batches = self._unrouted or [_batch_again(part) for part in parts]
        self._unrouted, self._groups, self.bytes = [], {}, 0
        batches.reverse()
        while batches:  # each batch is freed as soon as it is routed
            self._put(batches.pop(), routing)

    def groups(self) -> frozenset[FileGroupId]:
        """Return the file groups of the rows that were routed."""
        return frozenset(self._groups)

    def taken(self, bytes_left: int = 0) -> Iterator[tuple[FileGroupId, KeyedRows]]:
        """Yield and remove groups until at most `bytes_left` bytes are left; for 0, all groups.

        With a limit, the largest groups come first.
        """
        groups = sorted(self._groups)
        if bytes_left:
            groups.sort(key=lambda group: -self._groups[group].bytes)
        for group in groups:
            if bytes_left and self.bytes <= bytes_left:
                return
            taken = self._groups.pop(group)
            self.bytes -= taken.bytes
            yield group, self._one_per_key(taken.parts)

    def buffered(self) -> Iterator[tuple[FileGroupId, KeyedRows]]:
        """Yield all groups and keep them, because the write may have to be repeated."""
        for group in sorted(self._groups):
            yield group, self._one_per_key(self._groups[group].parts)

    def _one_per_key(self, parts: list[RoutedRows]) -> KeyedRows:
        keys, rows = parts[0].keys, parts[0].rows
        if len(parts) > 1:
            rows = one_batch([part.rows for part in parts])
            keys = pa.concat_arrays([part.keys for part in parts])
        ordering = self._shape.ordering
        keys, rows = latest_per_key(keys, rows, ordering, event_time=bool(ordering))
        return KeyedRows(rows, keys)


def _shares(paths: pa.DictionaryArray) -> Iterator[tuple[str, float]]:
    """Yield the partitions of the rows, each with its share of them."""
    rows = np.bincount(np.asarray(paths.indices))
    used = np.flatnonzero(rows)
    partitions = paths.dictionary.take(pa.array(used)).to_pylist()
    yield from zip(partitions, (rows[used] / len(paths)).tolist(), strict=True)


def _agree(one: Routing, other: Routing, partitions: Collection[str]) -> bool:
    return all(one.layout(partition) == other.layout(partition) for partition in partitions)


def _batch_again(part: RoutedRows) -> PreparedBatch:
    """Return the rows as they were before they were routed."""
    indices = pa.array(np.zeros(len(part.keys), np.int32))
    paths = pa.DictionaryArray.from_arrays(indices, pa.array([part.group.partition]))
    return PreparedBatch(part.rows, part.keys, paths)
