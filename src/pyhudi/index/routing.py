"""Which rows of a batch go to which file group?

A row goes to the partition of its path, and there to the file group that the partition's layout
assigns to its record key. `Routing` has the layouts for one write; it is made once the write has
begun and travels to its tasks. `split` takes a batch apart in the order of (partition, ordinal), so
that the same rows always make the same files. `targets` only says where each row goes, for rows
that come sorted from elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import ConflictError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.table_config import TableConfig
from pyhudi.index.layout import BucketLayout, LayoutRule
from pyhudi.table.rows.partition_paths import partition_paths
from pyhudi.table.rows.record_keys import record_keys


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """Rows with all that decides where they go."""

    rows: pa.RecordBatch
    keys: pa.StringArray
    paths: pa.DictionaryArray  # partition paths, each once in the dictionary

    def take(self, indices: pa.Array) -> PreparedBatch:
        rows, keys = self.rows.take(indices), self.keys.take(indices)
        return PreparedBatch(rows, keys, self.paths.take(indices))


def prepared(rows: pa.RecordBatch, config: TableConfig) -> PreparedBatch:
    """Return the rows with keys and paths; InvalidRequestError with a sample of wrong ones."""
    return PreparedBatch(rows, record_keys(rows, config), partition_paths(rows, config))


@dataclass(frozen=True, slots=True)
class RoutedRows:
    """The rows of a batch that go to one file group, in the order they came."""

    group: FileGroupId
    keys: pa.StringArray
    rows: pa.RecordBatch


@dataclass(frozen=True)
class Routing:
    """Where the rows of one write go."""

    default: LayoutRule  # of partitions that have no layout of their own
    layouts: Mapping[str, BucketLayout] = field(default_factory=dict)

    def layout(self, partition: str, size: float = 0) -> BucketLayout:
        """Return the layout of a partition; a new one is laid out for `size` bytes."""
        known = self.layouts.get(partition)
        return self.default.layout(partition, size) if known is None else known

    def layouts_of(self, paths: pa.DictionaryArray, size: float = 0) -> dict[int, BucketLayout]:
        """Return the layout of each path of the dictionary that a row has, by its index there.

        New partitions are laid out for `size` bytes in all.
        """
        rows = np.bincount(np.asarray(paths.indices), minlength=len(paths.dictionary))
        used = np.flatnonzero(rows)
        shares = (rows[used] * (size / max(len(paths), 1))).tolist()
        partitions = paths.dictionary.take(pa.array(used)).to_pylist()
        return {
            n: self.layout(partition, share)
            for n, partition, share in zip(used.tolist(), partitions, shares, strict=True)
        }

    @cached_property
    def shared(self) -> BucketLayout | None:
        """A layout that assigns keys as all of them do; None if they differ."""
        if (any_ := self.default.shared) is None:
            return None
        differ = any(known.assignment != any_.assignment for known in self.layouts.values())
        return None if differ else any_

    def ordinals(self, batch: PreparedBatch, size: float | None = None) -> npt.NDArray[np.int32]:
        """Return the ordinal of each row in the layout of its partition.

        New partitions are laid out for `size` bytes in all, by default those of the batch.
        """
        if self.shared is not None:
            return self.shared.assign(batch.keys)
        if not len(batch.keys):
            return np.empty(0, np.int32)
        layouts = self.layouts_of(batch.paths, batch.rows.nbytes if size is None else size)
        numbers = {layout.assignment: n for n, layout in layouts.items()}
        if len(numbers) == 1:
            return layouts[next(iter(numbers.values()))].assign(batch.keys)
        by_path = np.full(len(batch.paths.dictionary), -1)
        for n, layout in layouts.items():
            by_path[n] = numbers[layout.assignment]
        by_row = by_path[np.asarray(batch.paths.indices)]
        order = np.argsort(by_row, kind="stable")
        starts = np.flatnonzero(np.diff(by_row[order], prepend=-1))
        hashes: dict[Hashable, npt.NDArray[np.int32]] = {}
        ordinals = np.empty(len(batch.keys), np.int32)
        for rows in np.split(order, starts[1:]):
            layout = layouts[int(by_row[rows[0]])]
            if layout.hashing not in hashes:
                hashes[layout.hashing] = layout.hashes(batch.keys)
            ordinals[rows] = layout.place(hashes[layout.hashing][rows])
        return ordinals

    def targets(self, batch: PreparedBatch) -> Targets:
        return Targets(self, batch.paths, self.ordinals(batch))

    def split(self, batch: PreparedBatch) -> Iterator[RoutedRows]:
        """Yield the groups of the batch, ordered by partition and ordinal."""
        targets = Targets(self, _sorted_dictionary(batch.paths), self.ordinals(batch))
        codes = targets.codes
        order = np.argsort(codes, kind="stable")
        codes = codes[order]
        keys, rows = batch.keys, batch.rows
        if (np.diff(order) != 1).any():  # rows that are in order already need no copy
            keys, rows = keys.take(pa.array(order)), rows.take(pa.array(order))
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        for start, end in pairwise([*starts.tolist(), len(codes)]):
            group = targets.group(int(order[start]))
            yield RoutedRows(group, keys[start:end], rows[start:end])

    def successor(self, group: FileGroupId) -> FileGroupId:
        """Return the group that now takes the rows of one that an earlier routing had.

        Another engine may have given a bucket its first file, and a file id of its own, since.
        ConflictError if the partition was resized, so that several groups may take them.
        """
        layout = self.layout(group.partition)
        ordinal = layout.ordinal(group.file_id)
        if ordinal is None:
            raise resized(group)
        return layout.group(ordinal)

    def groups_of(self, keys: pa.Array, partitions: Collection[str]) -> Iterator[FileGroupId]:
        """Yield the groups that take one of the keys, in each of the partitions."""
        assigned: dict[Hashable, list[int]] = {}
        hashes: dict[Hashable, npt.NDArray[np.int32]] = {}
        for layout in map(self.layout, partitions):
            if layout.assignment not in assigned:
                if layout.hashing not in hashes:
                    hashes[layout.hashing] = layout.hashes(keys)
                ordinals = layout.place(hashes[layout.hashing])
                assigned[layout.assignment] = np.unique(ordinals).tolist()
            yield from map(layout.group, assigned[layout.assignment])


@dataclass(frozen=True, slots=True)
class Targets:
    """The file group of each row of a batch."""

    routing: Routing
    paths: pa.DictionaryArray
    ordinals: npt.NDArray[np.int32]

    @property
    def codes(self) -> npt.NDArray[np.int64]:
        """A number for each row, the same for those of one group; it grows with the index of the
        partition in the dictionary, then with the ordinal."""
        routing = self.routing
        if (shared := routing.shared) is not None:
            width = shared.size
        else:
            layouts = routing.layouts_of(self.paths).values()
            width = max((layout.size for layout in layouts), default=1)
        codes: npt.NDArray[np.int64] = np.asarray(self.paths.indices, np.int64) * width
        return codes + self.ordinals

    def group(self, row: int) -> FileGroupId:
        layout = self.routing.layout(self.paths[row].as_py())
        return layout.group(int(self.ordinals[row]))

    def take(self, indices: npt.NDArray[np.int64]) -> Targets:
        return Targets(self.routing, self.paths.take(pa.array(indices)), self.ordinals[indices])


def resized(group: FileGroupId) -> ConflictError:
    return ConflictError(
        f"partition {group.partition!r} was resized",
        why=f"the file group {group.file_id}, to which the rows were written, is on its ring no"
        " more",
        next_step="Write again",
    )


def _sorted_dictionary(paths: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return the same paths with their dictionary in byte order."""
    by_path = pc.sort_indices(paths.dictionary)
    rank = np.empty(len(by_path), np.int32)
    rank[np.asarray(by_path)] = np.arange(len(by_path), dtype=np.int32)
    indices = pa.array(rank[np.asarray(paths.indices)])
    return pa.DictionaryArray.from_arrays(indices, paths.dictionary.take(by_path))
