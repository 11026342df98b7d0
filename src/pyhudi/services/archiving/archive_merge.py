"""Merging archive files: rows are copied from file to file, a few at a time.

Each file is sorted by requested time, and files seldom overlap, so each is read once, from its
begin to its end. Where files overlap, their rows alternate. An instant that is in two of them,
because an archiver was interrupted, is written once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.format.timeline.archive import ARCHIVE_SCHEMA, TIMES
from pyhudi.format.timeline.archive_index import decode_archive_index, decode_contents, decode_times
from pyhudi.storage.objects.timeline_files import missing_timeline_file
from pyhudi.storage.protocol import Storage


def load_times(storage: Storage, path: str) -> pa.Table:
    """Return times and actions of all instants of an archive file."""
    try:
        source = storage.open(path)
    except FileNotFoundError:
        raise missing_timeline_file(path) from None
    with source:
        index = decode_archive_index(source, path)
        tables = list(decode_times(source, path, index, range(len(index.groups))))
    schema = pa.schema([ARCHIVE_SCHEMA.field(name) for name in TIMES])
    return pa.concat_tables(tables).combine_chunks() if tables else schema.empty_table()


class MergedRows:
    """The rows of several archive files as those of one: sorted, and each instant once."""

    def __init__(self, storage: Storage, paths: Sequence[str]) -> None:
        self._storage = storage
        self._paths = paths
        times = [load_times(storage, path) for path in self._paths]
        counts = [table.num_rows for table in times]
        self._file = np.repeat(np.arange(len(counts)), counts)
        self._row = np.concatenate([np.arange(count) for count in counts])
        self._all = pa.concat_tables(times).combine_chunks()
        keys = self._all.append_column("file", pa.array(self._file)).append_column(
            "row", pa.array(self._row)
        )
        names = ("instantTime", "action", "file", "row")
        order = pc.sort_indices(keys, [(name, "ascending") for name in names]).to_numpy()
        self._order = order[_firsts(self._all.take(pa.array(order)))]

    def times(self) -> pa.Table:
        """Return times and actions, as the merged file has them."""
        return self._all.take(pa.array(self._order)).combine_chunks()

    def tables(self) -> Iterator[pa.Table]:
        """Yield whole rows, a few at a time."""
        readers = [_Rows(self._storage, path) for path in self._paths]
        try:
            files, rows = self._file[self._order], self._row[self._order]
            turns = np.flatnonzero(np.diff(files) | (np.diff(rows) != 1)) + 1
            for run in np.split(np.arange(len(files)), turns):
                if len(run):
                    yield from readers[files[run[0]]].between(rows[run[0]], rows[run[-1]] + 1)
        finally:
            for reader in readers:
                reader.close()


def _firsts(sorted_times: pa.Table) -> np.ndarray:
    """Return a mask of the rows that are not of the same instant as the row before."""
    if sorted_times.num_rows == 0:
        return np.zeros(0, dtype=bool)
    same = np.ones(sorted_times.num_rows - 1, dtype=bool)
    for name in ("instantTime", "action"):
        column = sorted_times[name].combine_chunks()
        same &= pc.equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    return np.concatenate([[True], ~same])


class _Rows:
    """One archive file, read from its begin to its end, and from its begin again if needed."""

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage = storage
        self._path = path
        self._source: pa.NativeFile | None = None
        self._restart()

    def _restart(self) -> None:
        self.close()
        self._batches: Iterator[pa.Table] | None = None
        self._buffered = ARCHIVE_SCHEMA.empty_table()
        self._at = 0  # number of the first buffered row

    def between(self, start: int, end: int) -> Iterator[pa.Table]:
        """Yield rows [start, end)."""
        if start < self._at:
            self._restart()  # the file is not sorted, as Hudi may leave it after a merge
        while start < end:
            while start >= self._at + self._buffered.num_rows:
                self._at += self._buffered.num_rows
                self._buffered = self._next()
            offset = start - self._at
            piece = self._buffered.slice(offset, end - start)
            yield piece
            start += piece.num_rows

    def _next(self) -> pa.Table:
        if self._batches is None:
            try:
                self._source = self._storage.open(self._path)
            except FileNotFoundError:
                raise missing_timeline_file(self._path) from None
            index = decode_archive_index(self._source, self._path)
            groups = range(len(index.groups))
            columns = ARCHIVE_SCHEMA.names
            self._batches = decode_contents(self._source, self._path, index, groups, columns)
        return next(self._batches)

    def close(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None
