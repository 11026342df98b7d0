"""What a task does with the changes of one file group: rows in, files and write stats out.

A task is a value that is sent to where the rows are. Arriving batches are prepared by its shape
(`write.row_shape`); then the task gets one group after the other. Here it is decided which file a
group gets:

- Rows of an upsert go into log files.
- A large load of an empty bucket becomes its first base file, because every reader would have to
  merge a log. Small loads stay logs, which never conflict.
- An overwrite gives each bucket a new base file.
- On a copy-on-write table the previous base file is merged into a new one.

Tasks know a storage and a spec, and nothing of Spark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum
from itertools import chain
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequestError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.table_config import TableConfig
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.plan.scan import ScanPlan, SliceRead, Split
from pyhudi.read.lookup import GroupView
from pyhudi.read.slice import read_split
from pyhudi.table.rows.bad_rows import SAMPLE_ROWS_MAX, sample
from pyhudi.table.schema import PARTITION_PATH, RECORD_KEY, promoted
from pyhudi.write.deletes import LocatedDeletes, is_located, looked_up
from pyhudi.write.files.spec import KeyedRows
from pyhudi.write.group_files import EmptyBuckets, Files
from pyhudi.write.new_keys import only_new
from pyhudi.write.row_shape import RowShape
from pyhudi.write.sorted_groups import joined_rows

#: From this size on, the rows of an empty bucket become a base file.
LOAD_BYTES_MIN = 1 << 20


def is_load(size: int) -> bool:
    """True if this many bytes of rows are enough for a base file."""
    return size >= LOAD_BYTES_MIN


class GroupTask(Protocol):
    """What tasks of a write have in common."""

    files: Files
    shape: RowShape

    def write(self, group: FileGroupId, rows: Iterator[KeyedRows]) -> Iterator[WriteStat]:
        """Write the changes of one group, and read all of them."""
        ...


class Target(StrEnum):
    """Where the rows of a group go."""

    LOG = "log"
    LOAD = "load"  # a base file if the bucket is empty and the rows are many, else a log
    BASE = "base"  # a new base file that replaces all earlier rows
    MERGED_BASE = "merged base"  # a new base file, the previous one merged in


class RowsTask:
    """New rows: upsert, append and overwrite."""

    def __init__(
        self,
        files: Files,
        shape: RowShape,
        target: Target,
        *,
        partitions: frozenset[str] | None = None,
        known: GroupView | None = None,
    ) -> None:
        """Only `partitions` may be written, and no key that is in `known`."""
        self.files = files
        self.shape = shape
        self.target = target
        self.partitions = partitions
        self.known = known
        self._empty = EmptyBuckets(files.storage, files.spec.requested)

    @property
    def is_blind(self) -> bool:
        """True if it reads nothing: then its file groups do not depend on each other."""
        reads = self.known is not None or self.files.existing is not None
        return self.target is Target.LOG and not reads

    def write(self, group: FileGroupId, rows: Iterator[KeyedRows]) -> Iterator[WriteStat]:
        if self.partitions is not None and group.partition not in self.partitions:
            raise _other_partition(group.partition, next(rows), self.files.config)
        if self.known is not None:
            rows = only_new(rows, self.known.keys(self.files.storage, group), self.files.config)
        if self.target is Target.LOAD:
            yield from self._load(group, rows)
        elif self.target is Target.LOG:
            yield from self.files.logs(group, rows)
        elif self.target is Target.BASE:
            yield self.files.base(group, rows)
        else:
            yield from self.files.merged_base(group, rows)

    def _load(self, group: FileGroupId, rows: Iterator[KeyedRows]) -> Iterator[WriteStat]:
        first: list[KeyedRows] = []
        size = 0
        for part in rows:
            first.append(part)
            size += part.rows.nbytes
            if is_load(size):
                break
        if is_load(size) and group not in self.files.virtual and self._empty.has(group):
            yield self.files.base(group, chain(first, rows))
        else:
            yield from self.files.logs(group, chain(first, rows))


def _other_partition(partition: str, rows: KeyedRows, config: TableConfig) -> InvalidRequestError:
    names = (*config.record_key_fields, *config.partition_fields)
    columns = {name: rows.rows.column(name) for name in names}
    shown = sample(range(min(rows.rows.num_rows, SAMPLE_ROWS_MAX)), columns)
    return InvalidRequestError(
        f"rows of partition {partition!r} cannot be written",
        why=f"the overwrite names other partitions; {shown}",
        next_step="Name this partition too, or leave these rows out",
    )


class UpdateTask:
    """New values of some columns, for existing rows; keys that do not exist are ignored."""

    def __init__(
        self, files: Files, shape: RowShape, view: GroupView, columns: Collection[str]
    ) -> None:
        self.files = files
        self.shape = shape
        self._view = view
        self._columns = columns

    def write(self, group: FileGroupId, rows: Iterator[KeyedRows]) -> Iterator[WriteStat]:
        updated = self._updated(group, joined_rows(list(rows)))
        if self.files.is_mor:
            yield from self.files.logs(group, updated)
        elif group in self.files.bases:
            yield from self.files.merged_base(group, updated)

    def _updated(self, group: FileGroupId, new: KeyedRows) -> Iterator[KeyedRows]:
        """Yield the rows of the table that have one of the keys, with the new values."""
        data = self.files.spec.layout.data
        for batch in self._view.rows(self.files.storage, group):
            keys = batch.column(RECORD_KEY)
            at = pc.index_in(keys, value_set=new.keys)
            hit = at.is_valid()
            if not hit.true_count:
                continue
            old, at = batch.filter(hit), at.filter(hit)
            columns = [
                promoted(new.rows.column(field.name), field.type, field.name, "the rows").take(at)
                if field.name in self._columns
                else old.column(field.name)
                for field in data
            ]
            yield KeyedRows(pa.RecordBatch.from_arrays(columns, schema=data), keys.filter(hit))


class DeleteTask:
    """Deletes by key. Columns that were not given are looked up; unknown keys are ignored."""

    def __init__(
        self, files: Files, shape: RowShape, view: GroupView | None, *, unconditional: bool
    ) -> None:
        """`view` is for keys that have to be looked up."""
        self.files = files
        self.shape = shape
        self._view = view
        self._unconditional = unconditional

    def write(self, group: FileGroupId, rows: Iterator[KeyedRows]) -> Iterator[WriteStat]:
        config = self.files.config
        keys = pa.Table.from_batches([part.rows for part in rows])
        if not is_located(keys, config, unconditional=self._unconditional):
            assert self._view is not None
            groups: Iterable[FileGroupId] = [group]
            if PARTITION_PATH not in keys.column_names:
                partitions = self._view.partitions
                record = keys.column(RECORD_KEY).combine_chunks()
                groups = self.files.routing.groups_of(record, partitions)
            found = (rows for g in groups for rows in self._view.rows(self.files.storage, g))
            keys = looked_up(keys, found, config)
        located = LocatedDeletes(keys, unconditional=self._unconditional)
        deletes = located.split(config, self.files.routing)
        for target in sorted(deletes):
            yield from self.files.deletes(target, deletes[target])


class FoundDeletesTask:
    """Deletes of the rows that a read finds, slice by slice."""

    def __init__(self, files: Files, scan: ScanPlan, *, unconditional: bool) -> None:
        self.files = files
        self.scan = scan
        self._unconditional = unconditional

    def write(self, read: SliceRead) -> Iterator[WriteStat]:
        """Delete the rows of one slice."""
        found = list(read_split(self.files.storage, self.scan.spec, Split((read,))))
        if not found:
            return
        located = LocatedDeletes(pa.Table.from_batches(found), self._unconditional)
        deletes = located.split(self.files.config, self.files.routing)
        for group in sorted(deletes):
            yield from self.files.deletes(group, deletes[group])
