"""Sorted batches → the file groups in them, one after the other, each key once, in bounded memory.

Rows are sorted by a number, the *sort key*. Its upper bits are a hash of the file group, its lower
bits a hash of the record key. So the rows of a file group are adjacent, and within it the rows of
equal keys. Neither a group nor the keys seen so far have to be buffered: a group is an iterator
that is read to its end before the next one begins.

Hashes may coincide. The rows of two groups with one hash are mixed. Those of the group that is
found second wait in memory until the first group has ended. Among rows of one sort key, record keys
are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.index.routing import PreparedBatch, Routing, Targets
from pyhudi.table.large_columns import one_batch
from pyhudi.table.rows.latest import latest_indices
from pyhudi.write.files.spec import KeyedRows

#: The number of bits that the record key's hash has in a sort key.
KEY_BITS: Final = 20


@dataclass(frozen=True, slots=True)
class KeyedBatch:
    """A batch with the file groups and sort keys of its rows."""

    rows: KeyedRows
    targets: Targets
    sort_keys: npt.NDArray[np.int64]  # ascending


@dataclass(frozen=True, slots=True)
class _Segment:
    """Adjacent rows of one group in a batch."""

    group: FileGroupId
    code: int
    sort_keys: npt.NDArray[np.int64]
    keyed: KeyedRows

    def part(self, start: int, end: int) -> _Segment:
        keyed = KeyedRows(self.keyed.rows[start:end], self.keyed.keys[start:end])
        return _Segment(self.group, self.code, self.sort_keys[start:end], keyed)


def sorted_by_group(batch: PreparedBatch, routing: Routing) -> KeyedBatch:
    """Return the rows of a batch with sort keys, sorted by them."""
    targets = routing.targets(batch)
    keys = np.asarray(batch.keys.dictionary_encode().indices, np.int64) & ((1 << KEY_BITS) - 1)
    sort_keys = (targets.codes << KEY_BITS) | keys
    order = np.argsort(sort_keys, kind="stable")
    taken = pa.array(order)
    rows = KeyedRows(batch.rows.take(taken), batch.keys.take(taken))
    return KeyedBatch(rows, targets.take(order), sort_keys[order])


def grouped(
    batches: Iterable[KeyedBatch], ordering: Sequence[str]
) -> Iterator[tuple[FileGroupId, Iterator[KeyedRows]]]:
    """Yield each group with its rows: the latest of each key by the ordering columns.

    The caller reads the rows of a group before it asks for the next group.
    """
    segments = (segment for batch in batches for segment in _segments(batch))
    current = next(segments, None)
    while current is not None:
        run = _Run(current, segments)
        own = run.own()
        yield current.group, _latest(own, ordering)
        for _ in own:
            pass  # rows of the group that the caller did not read
        for group, buffered in run.aside.items():
            yield group, _latest(iter(buffered), ordering)
        current = run.following


class _Run:
    """The segments of one hash: those of the first group now, those of the others later."""

    def __init__(self, first: _Segment, segments: Iterator[_Segment]) -> None:
        self._first = first
        self._segments = segments
        self.aside: dict[FileGroupId, list[_Segment]] = {}
        self.following: _Segment | None = None

    def own(self) -> Iterator[_Segment]:
        yield self._first
        for segment in self._segments:
            if segment.code != self._first.code:
                self.following = segment
                return
            if segment.group == self._first.group:
                yield segment
            else:
                self.aside.setdefault(segment.group, []).append(segment)


def _segments(batch: KeyedBatch) -> Iterator[_Segment]:
    """Yield the segments of the batch, split wherever the next row is of another group."""
    keyed = batch.rows
    if not keyed.rows.num_rows:
        return
    codes = batch.sort_keys >> KEY_BITS
    changes = (np.diff(codes) != 0) | (np.diff(batch.targets.codes) != 0)
    bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), len(codes)]
    for start, end in pairwise(bounds):
        yield _Segment(
            batch.targets.group(start),
            int(codes[start]),
            batch.sort_keys[start:end],
            KeyedRows(keyed.rows[start:end], keyed.keys[start:end]),
        )


def _latest(segments: Iterator[_Segment], ordering: Sequence[str]) -> Iterator[KeyedRows]:
    """Yield the latest row of each key. Rows of the last sort key wait for more rows of it."""
    buffered: _Segment | None = None
    for segment in segments:
        if buffered is not None and buffered.sort_keys[0] == segment.sort_keys[0]:
            segment = _one_per_key(_joined(buffered, segment), ordering)
        elif buffered is not None:
            yield buffered.keyed
        start = int(np.searchsorted(segment.sort_keys, segment.sort_keys[-1]))
        if start:
            yield _one_per_key(segment.part(0, start), ordering).keyed
        buffered = _one_per_key(segment.part(start, len(segment.sort_keys)), ordering)
    if buffered is not None:
        yield buffered.keyed


def _one_per_key(segment: _Segment, ordering: Sequence[str]) -> _Segment:
    same = np.diff(segment.sort_keys) == 0
    if not same.any():
        return segment
    doubtful = np.concatenate(([False], same)) | np.concatenate((same, [False]))
    rows = np.flatnonzero(doubtful)
    keyed = segment.keyed
    picked = pa.array(rows)
    latest = latest_indices(keyed.keys.take(picked), keyed.rows.take(picked), ordering)
    if latest is None:
        return segment
    chosen = np.sort(np.concatenate((np.flatnonzero(~doubtful), rows[latest])))
    taken = pa.array(chosen)
    left = KeyedRows(keyed.rows.take(taken), keyed.keys.take(taken))
    return _Segment(segment.group, segment.code, segment.sort_keys[chosen], left)


def _joined(first: _Segment, second: _Segment) -> _Segment:
    return _Segment(
        first.group,
        first.code,
        np.concatenate((first.sort_keys, second.sort_keys)),
        joined_rows([first.keyed, second.keyed]),
    )


def joined_rows(parts: Sequence[KeyedRows]) -> KeyedRows:
    """Return all of the rows as one batch."""
    if len(parts) == 1:
        return parts[0]
    keys = pa.concat_arrays([part.keys for part in parts])
    return KeyedRows(one_batch([part.rows for part in parts]), keys)
