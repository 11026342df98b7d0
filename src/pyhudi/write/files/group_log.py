"""The log of one file group, in as many calls as it takes.

Beside a virtual resize the rows of a bucket that it replaces go into its children at once: into one
log for each child, which holds the rows of this bucket alone. The bucket itself then gets a log
that refers to them (`format.files.log_reference`). Of a merge, several buckets have rows of one
child. The write tokens of their logs differ by the place of the bucket in the plan.

The logs of the children do not depend on each other, and are created together. The log that refers
to them comes when they are there, for it names their sizes and checksums.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.files.log_reference import ReferredLog
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.index.children import Children
from pyhudi.storage.protocol import Storage
from pyhudi.world import Together
from pyhudi.write.files.log_file import (
    WrittenLog,
    write_log,
    write_log_files,
    write_reference,
)
from pyhudi.write.files.spec import DeleteRows, KeyedRows, WriteSpec
from pyhudi.write.files.split import indices_by_owner


@dataclass(frozen=True, slots=True)
class VirtualInput:
    """A bucket that a pending virtual resize replaces."""

    resize: str  # its requested time
    place: int  # among the buckets that the same children replace, from 1
    children: Children


class GroupLog(Protocol):
    """The log of one file group."""

    def write(
        self,
        *,
        rows: KeyedRows | None = None,
        deletes: DeleteRows | None = None,
        existing_keys: pa.Array | None = None,
        more: bool = False,
    ) -> Sequence[WriteStat]:
        """Write rows and deletes, as `write_log` does; return a stat for each file."""
        ...

    def end(self) -> Sequence[WriteStat]:
        """Write what comes after the last rows."""
        ...


class PlainLog:
    """A log that holds its rows."""

    def __init__(self, storage: Storage, spec: WriteSpec, group: FileGroupId) -> None:
        self._storage = storage
        self._spec = spec
        self._group = group
        self._count = 0

    def write(
        self,
        *,
        rows: KeyedRows | None = None,
        deletes: DeleteRows | None = None,
        existing_keys: pa.Array | None = None,
        more: bool = False,
    ) -> Sequence[WriteStat]:
        stats = write_log(
            self._storage,
            self._spec,
            self._group,
            rows=rows,
            deletes=deletes,
            existing_keys=existing_keys,
            ordinal=self._count,
            more=more,
        )
        self._count += len(stats)
        return stats

    def end(self) -> Sequence[WriteStat]:
        return ()


class VirtualLog:
    """A log whose rows are in the children of a virtual resize."""

    def __init__(
        self,
        storage: Storage,
        spec: WriteSpec,
        group: FileGroupId,
        replaced: VirtualInput,
        together: Together,
    ) -> None:
        self._storage = storage
        self._together = together
        self._spec = spec
        self._own = spec.for_input(replaced.place)
        self._group = group
        self._children = replaced.children
        self._counts: dict[int, int] = {}
        self._referred: list[ReferredLog] = []

    def write(
        self,
        *,
        rows: KeyedRows | None = None,
        deletes: DeleteRows | None = None,
        existing_keys: pa.Array | None = None,
        more: bool = False,
    ) -> Sequence[WriteStat]:
        rows_of = {} if rows is None else dict(_split_rows(rows, self._children))
        deletes_of = {} if deletes is None else dict(_split_deletes(deletes, self._children))

        def written(ordinal: int) -> tuple[WrittenLog, ...]:
            return write_log_files(
                self._storage,
                self._own,
                self._children.group(ordinal),
                rows=rows_of.get(ordinal),
                deletes=deletes_of.get(ordinal),
                existing_keys=existing_keys,
                ordinal=self._counts.get(ordinal, 0),
                more=more,
            )

        ordinals = sorted({*rows_of, *deletes_of})
        stats: list[WriteStat] = []
        for ordinal, files in zip(ordinals, self._together(written, ordinals), strict=True):
            self._counts[ordinal] = self._counts.get(ordinal, 0) + len(files)
            self._referred += (file.referred(self._storage) for file in files)
            stats += (file.stat for file in files)
        return stats

    def end(self) -> Sequence[WriteStat]:
        if not self._referred:
            return ()
        return (write_reference(self._storage, self._spec, self._group, self._referred),)


def _split_rows(rows: KeyedRows, children: Children) -> Iterator[tuple[int, KeyedRows]]:
    if not len(rows.keys):
        return
    for owner, found in indices_by_owner(children.assign(rows.keys)):
        if len(found) == len(rows.keys):
            yield owner, rows
        else:
            indices = pa.array(found)
            yield owner, KeyedRows(rows.rows.take(indices), rows.keys.take(indices))


def _split_deletes(deletes: DeleteRows, children: Children) -> Iterator[tuple[int, DeleteRows]]:
    if not len(deletes.keys):
        return
    for owner, found in indices_by_owner(children.assign(deletes.keys)):
        indices, ordering = pa.array(found), deletes.ordering
        taken = None if ordering is None else ordering.take(indices)
        yield owner, DeleteRows(deletes.keys.take(indices), taken)
