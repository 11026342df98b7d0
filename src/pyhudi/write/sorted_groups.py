"""Sorted batches → the groups in them, one after the other, each key once, in bounded memory.

Rows come sorted by a number, the *place*: its upper bits are a hash of partition and bucket, its
lower bits a hash of the record key. So the rows of a file group come together, and of equal keys
too, and neither a group nor the keys seen so far have to be held: a group is an iterator that is
read to its end before the next one begins.

Hashes may coincide. Two groups of one hash come mixed; the one that is found second waits in memory
until the first has ended. Among rows of one place, keys are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.index.routing import Place, latest_places
from pyhudi.index.simple_bucket import bucket_ids
from pyhudi.table.large_columns import one_batch
from pyhudi.write.files.spec import KeyedRows

#: The bits of a place that the record key's hash has.
KEY_BITS: Final = 20


@dataclass(frozen=True, slots=True)
class Arrived:
    """A batch on its way to the groups of its rows."""

    rows: pa.RecordBatch
    keys: pa.StringArray
    paths: pa.DictionaryArray  # partition paths, each once in the dictionary
    buckets: npt.NDArray[np.int32]
    places: npt.NDArray[np.int64]  # ascending


@dataclass(frozen=True, slots=True)
class _Segment:
    """Rows of one group that lie together in a batch."""

    place: Place
    code: int
    places: npt.NDArray[np.int64]
    keyed: KeyedRows

    def part(self, start: int, end: int) -> _Segment:
        keyed = KeyedRows(self.keyed.rows[start:end], self.keyed.keys[start:end])
        return _Segment(self.place, self.code, self.places[start:end], keyed)


def in_place(rows: KeyedRows, paths: pa.DictionaryArray, buckets: SimpleBuckets) -> Arrived:
    """Rows that come without places: they get some here, and are sorted by them."""
    ids = np.asarray(bucket_ids(rows.keys, buckets.hash_fields, buckets.count))
    groups = np.asarray(paths.indices, np.int64) * buckets.count + ids
    keys = np.asarray(rows.keys.dictionary_encode().indices, np.int64) & ((1 << KEY_BITS) - 1)
    places = (groups << KEY_BITS) | keys
    order = np.argsort(places, kind="stable")
    taken = pa.array(order)
    return Arrived(
        rows.rows.take(taken), rows.keys.take(taken), paths.take(taken), ids[order], places[order]
    )


def grouped(
    arrived: Iterable[Arrived], ordering: Sequence[str]
) -> Iterator[tuple[Place, Iterator[KeyedRows]]]:
    """Each group with its rows, the latest of each key by the ordering columns.

    The rows of a group are read before the next group is asked for.
    """
    segments = (segment for batch in arrived for segment in _segments(batch))
    current = next(segments, None)
    while current is not None:
        run = _Run(current, segments)
        own = run.own()
        yield current.place, _latest(own, ordering)
        for _ in own:
            pass  # whoever stopped early
        for place, held in run.aside.items():
            yield place, _latest(iter(held), ordering)
        current = run.following


class _Run:
    """The segments of one hash: those of the first group now, those of others later."""

    def __init__(self, first: _Segment, segments: Iterator[_Segment]) -> None:
        self._first = first
        self._segments = segments
        self.aside: dict[Place, list[_Segment]] = {}
        self.following: _Segment | None = None

    def own(self) -> Iterator[_Segment]:
        yield self._first
        for segment in self._segments:
            if segment.code != self._first.code:
                self.following = segment
                return
            if segment.place == self._first.place:
                yield segment
            else:
                self.aside.setdefault(segment.place, []).append(segment)


def _segments(batch: Arrived) -> Iterator[_Segment]:
    """The batch, cut wherever the next row is of another group."""
    if not batch.rows.num_rows:
        return
    codes = batch.places >> KEY_BITS
    paths = np.asarray(batch.paths.indices)
    changes = (np.diff(codes) != 0) | (np.diff(paths) != 0) | (np.diff(batch.buckets) != 0)
    bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), len(codes)]
    for start, end in pairwise(bounds):
        yield _Segment(
            (batch.paths.dictionary[int(paths[start])].as_py(), int(batch.buckets[start])),
            int(codes[start]),
            batch.places[start:end],
            KeyedRows(batch.rows[start:end], batch.keys[start:end]),
        )


def _latest(segments: Iterator[_Segment], ordering: Sequence[str]) -> Iterator[KeyedRows]:
    """The latest row of each key: rows of the last place wait for more of that place."""
    held: _Segment | None = None
    for segment in segments:
        if held is not None and held.places[0] == segment.places[0]:
            segment = _one_per_key(_joined(held, segment), ordering)
        elif held is not None:
            yield held.keyed
        start = int(np.searchsorted(segment.places, segment.places[-1]))
        if start:
            yield _one_per_key(segment.part(0, start), ordering).keyed
        held = _one_per_key(segment.part(start, len(segment.places)), ordering)
    if held is not None:
        yield held.keyed


def _one_per_key(segment: _Segment, ordering: Sequence[str]) -> _Segment:
    same = np.diff(segment.places) == 0
    if not same.any():
        return segment
    doubtful = np.concatenate(([False], same)) | np.concatenate((same, [False]))
    rows = np.flatnonzero(doubtful)
    keyed = segment.keyed
    picked = pa.array(rows)
    kept = latest_places(keyed.keys.take(picked), keyed.rows.take(picked), ordering)
    if kept is None:
        return segment
    chosen = np.sort(np.concatenate((np.flatnonzero(~doubtful), rows[kept])))
    taken = pa.array(chosen)
    left = KeyedRows(keyed.rows.take(taken), keyed.keys.take(taken))
    return _Segment(segment.place, segment.code, segment.places[chosen], left)


def _joined(first: _Segment, second: _Segment) -> _Segment:
    return _Segment(
        first.place,
        first.code,
        np.concatenate((first.places, second.places)),
        joined_rows([first.keyed, second.keyed]),
    )


def joined_rows(parts: Sequence[KeyedRows]) -> KeyedRows:
    """All of the rows, in one piece."""
    if len(parts) == 1:
        return parts[0]
    keys = pa.concat_arrays([part.keys for part in parts])
    return KeyedRows(one_batch([part.rows for part in parts]), keys)
