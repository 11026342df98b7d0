"""Which rows of a batch go to which file group?

A row goes to the partition of its path, and there to the file group that the partition's layout
assigns to its record key. `Routing` has the layouts for one write; it is made once the write has
begun and travels to its tasks. `split` takes a batch apart in the order of (partition, ordinal), so
that the same rows always make the same files. `targets` only says where each row goes, for rows
that come sorted from elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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

    def layout(self, partition: str) -> BucketLayout:
        known = self.layouts.get(partition)
        return self.default.layout(partition) if known is None else known

    def layouts_of(self, paths: pa.DictionaryArray) -> list[BucketLayout]:
        """Return the layout of each partition of the dictionary."""
        return [self.layout(path) for path in paths.dictionary.to_pylist()]

    @cached_property
    def shared(self) -> BucketLayout | None:
        """A layout that assigns keys as all of them do; None if they differ."""
        any_ = self.default.layout("")
        differ = any(known.assignment != any_.assignment for known in self.layouts.values())
        return None if differ else any_

    def ordinals(self, batch: PreparedBatch) -> npt.NDArray[np.int32]:
        """Return the ordinal of each row in the layout of its partition."""
        if self.shared is not None:
            return self.shared.assign(batch.keys)
        layouts = self.layouts_of(batch.paths)
        numbers = {layout.assignment: n for n, layout in enumerate(layouts)}
        by_path = np.array([numbers[layout.assignment] for layout in layouts], np.int64)
        by_row = by_path[np.asarray(batch.paths.indices)]
        ordinals = np.empty(len(batch.keys), np.int32)
        for number in numbers.values():
            rows = np.flatnonzero(by_row == number)
            ordinals[rows] = layouts[number].assign(batch.keys.take(pa.array(rows)))
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
        """
        layout = self.layout(group.partition)
        return layout.group(layout.ordinal(group.file_id))

    def groups_of(self, keys: pa.Array, partitions: Collection[str]) -> Iterator[FileGroupId]:
        """Yield the groups that take one of the keys, in each of the partitions."""
        assigned: dict[object, list[int]] = {}
        for layout in map(self.layout, partitions):
            if layout.assignment not in assigned:
                assigned[layout.assignment] = np.unique(layout.assign(keys)).tolist()
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
        layouts = [routing.shared] if routing.shared else routing.layouts_of(self.paths)
        width = max((layout.size for layout in layouts), default=1)
        codes: npt.NDArray[np.int64] = np.asarray(self.paths.indices, np.int64) * width
        return codes + self.ordinals

    def group(self, row: int) -> FileGroupId:
        layout = self.routing.layout(self.paths[row].as_py())
        return layout.group(int(self.ordinals[row]))

    def take(self, indices: npt.NDArray[np.int64]) -> Targets:
        return Targets(self.routing, self.paths.take(pa.array(indices)), self.ordinals[indices])


def _sorted_dictionary(paths: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return the same paths with their dictionary in byte order."""
    by_path = pc.sort_indices(paths.dictionary)
    rank = np.empty(len(by_path), np.int32)
    rank[np.asarray(by_path)] = np.arange(len(by_path), dtype=np.int32)
    indices = pa.array(rank[np.asarray(paths.indices)])
    return pa.DictionaryArray.from_arrays(indices, paths.dictionary.take(by_path))
