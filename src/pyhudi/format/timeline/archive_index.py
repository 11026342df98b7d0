"""What an archive file holds, by its footer, so that only the needed part of it is read.

A file may hold a hundred thousand instants, and most of its bytes are metadata that a question
rarely needs. Its footer has the bounds of the times and actions of each row group; a row group
whose bounds say that it cannot have what is wanted is not read. Contents are read a few instants at
a time, so memory does not grow with a row group, which Hudi makes as large as the file.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyhudi.format.files.parquet_footer import RowGroup, decode_row_groups, excessive_claim
from pyhudi.format.timeline.archive import (
    ARCHIVE_SCHEMA,
    INFLATED_BYTES_MAX,
    INFLATED_RATIO_MAX,
    TIMES,
    damaged_archive,
)

#: Instants whose contents are held at once.
BATCH_INSTANTS: Final = 100
_STREAM_BYTES: Final = 1 << 20

Bounds: TypeAlias = tuple[str, str] | None  # None if the footer does not say
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RowGroupBounds:
    """A row group: how many instants, and between which values they lie."""

    rows: int
    requested: Bounds
    completed: Bounds
    actions: Bounds
    chunks: RowGroup  # what the footer claims


@dataclass(frozen=True, slots=True)
class ArchiveIndex:
    """The row groups of one archive file."""

    groups: tuple[RowGroupBounds, ...]

    def with_requested(self, times: Sequence[str]) -> list[int]:
        """Return the row groups that may hold one of these requested times, which are sorted."""
        return self._where(
            lambda group: group.requested,
            lambda low, high: bisect_left(times, low) < bisect_right(times, high),
        )

    def with_completed(self, since: str, until: str) -> list[int]:
        """Return the row groups that may hold an instant which completed in (since, until]."""
        return self._where(
            lambda group: group.completed, lambda low, high: low <= until and since < high
        )

    def with_action(self, action: str) -> list[int]:
        return self._where(lambda group: group.actions, lambda low, high: low <= action <= high)

    def _where(
        self, bounds: Callable[[RowGroupBounds], Bounds], may: Callable[[str, str], bool]
    ) -> list[int]:
        found = ((number, bounds(group)) for number, group in enumerate(self.groups))
        return [number for number, pair in found if pair is None or may(*pair)]


def decode_archive_index(source: pa.NativeFile, path: str) -> ArchiveIndex:
    """Return the index of an open archive file."""
    groups = _read(path, lambda: decode_row_groups(source))
    return ArchiveIndex(tuple(map(_bounds, groups)))


def _bounds(group: RowGroup) -> RowGroupBounds:
    found = {chunk.path: chunk for chunk in group.columns}
    bounds: list[Bounds] = []
    for name in TIMES:
        chunk = found.get(name)
        if chunk is None or chunk.least is None or chunk.greatest is None:
            bounds.append(None)
        else:
            pair = chunk.least.decode("latin-1"), chunk.greatest.decode("latin-1")
            # What lacks its completion time counts as completed when requested.
            is_whole = name != "completionTime" or chunk.null_count == 0
            bounds.append(pair if is_whole else None)
    requested, completed, actions = bounds
    return RowGroupBounds(group.rows, requested, completed, actions, group)


def decode_times(
    source: pa.NativeFile, path: str, index: ArchiveIndex, groups: Sequence[int]
) -> Iterator[pa.Table]:
    """Yield times and actions of the instants of each of these row groups."""
    bytes_max = min(INFLATED_BYTES_MAX, INFLATED_RATIO_MAX * source.size())
    _refuse_excess(index, groups, TIMES, bytes_max, path)
    file = _read(path, lambda: pq.ParquetFile(source))
    for group in groups:
        yield _checked(_read(path, partial(_row_group, file, group)), TIMES, path)


def _row_group(file: pq.ParquetFile, group: int) -> pa.Table:
    return file.read_row_group(group, list(TIMES), use_threads=False)


def decode_contents(
    source: pa.NativeFile,
    path: str,
    index: ArchiveIndex,
    groups: Sequence[int],
    columns: Sequence[str],
) -> Iterator[pa.Table]:
    """Yield these columns of the instants of these row groups, a few instants at a time."""
    _refuse_excess(index, groups, columns, INFLATED_RATIO_MAX * source.size(), path)
    file = _read(path, lambda: pq.ParquetFile(source, buffer_size=_STREAM_BYTES, pre_buffer=False))
    batches = _read(
        path,
        lambda: file.iter_batches(
            BATCH_INSTANTS, row_groups=list(groups), columns=list(columns), use_threads=False
        ),
    )
    while (batch := _read(path, lambda: next(batches, None))) is not None:
        yield _checked(pa.Table.from_batches([batch]), columns, path)


def _refuse_excess(
    index: ArchiveIndex, groups: Sequence[int], columns: Sequence[str], bytes_max: int, path: str
) -> None:
    claim = excessive_claim([index.groups[n].chunks for n in groups], columns, bytes_max)
    if claim:
        raise damaged_archive("an archive file cannot be decoded", claim, path)


def _checked(table: pa.Table, columns: Sequence[str], path: str) -> pa.Table:
    if missing := [name for name in columns if name not in table.schema.names]:
        raise damaged_archive("an archive file cannot be decoded", f"it lacks {missing}", path)
    schema = pa.schema([ARCHIVE_SCHEMA.field(name) for name in columns])
    cast = _read(path, lambda: table.select(list(columns)).cast(schema))
    if "instantTime" in columns and cast["instantTime"].null_count:
        raise damaged_archive(
            "an archive file cannot be decoded", "an instant lacks its time", path
        )
    if "completionTime" not in columns or "instantTime" not in columns:
        return cast
    # Instants of upgraded tables may lack it: they count as completed when requested.
    completed = pc.coalesce(cast["completionTime"], cast["instantTime"])
    return cast.set_column(
        cast.schema.get_field_index("completionTime"), "completionTime", completed
    )


def _read(path: str, read: Callable[[], _T]) -> _T:
    try:
        return read()
    # pyarrow reports damage with either, and a column that is missing or null with the last two.
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        why = f"pyarrow says {str(error)[:200]!r}"
        raise damaged_archive("an archive file cannot be decoded", why, path) from None
