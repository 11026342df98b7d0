"""Copy-on-write: the next base file of a file group, from the previous one and the changes.

It is made by a merge. The previous base file is merged with the new rows and deletes by the same
rule by which the reader of a merge-on-read table would merge them from a log. What that reader
would show is written. Rows that no change affects keep their meta columns, except for the name of
the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.format.files.delete_records import delete_batch
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.plan.scan import ReadSpec, SliceRead, Split
from pyhudi.read.slice import read_split
from pyhudi.storage.protocol import Storage
from pyhudi.table.file_group import BaseFile, FileSlice
from pyhudi.table.log_blocks import delete_rows_batch, deleting_rows
from pyhudi.table.merge import Kind, LogDeletes, LogRows, MergeRule, fold_logs, merge_slice
from pyhudi.table.rows.row_layout import RowOrigin, stored_rows
from pyhudi.table.schema import COMMIT_TIME, RECORD_KEY, with_meta_columns
from pyhudi.timeline.completion import only
from pyhudi.write.files.base_file import write_base
from pyhudi.write.files.spec import DeleteRows, KeyedRows, WriteSpec


def rewrite_base(
    storage: Storage,
    spec: WriteSpec,
    group: FileGroupId,
    previous: BaseFile | None,
    *,
    rows: KeyedRows | None = None,
    deletes: DeleteRows | None = None,
    rule: MergeRule,
) -> WriteStat:
    """Write the group's next base file: the previous one with rows and deletes merged in.

    Without a previous one the rows are merged among themselves, and deletes have no effect.
    """
    merge = _Merge(storage, spec, group, previous, rule)
    stat = write_base(storage, spec, group, merge.rows(rows, deletes), previous=previous)
    return replace(
        stat,
        num_inserts=merge.inserts,
        num_update_writes=merge.written - merge.inserts,
        num_deletes=merge.read + merge.inserts - (stat.num_writes or 0),
    )


class _Merge:
    """Merges rows, and counts inserts, updates and deletes on the way."""

    def __init__(
        self,
        storage: Storage,
        spec: WriteSpec,
        group: FileGroupId,
        previous: BaseFile | None,
        rule: MergeRule,
    ) -> None:
        self.read = 0  # rows of the previous base file
        self.inserts = 0  # new rows whose key is not in that file
        self.written = 0  # rows that carry the new instant
        self._storage, self._spec, self._group = storage, spec, group
        self._previous, self._rule = previous, rule
        # A column that is required now may be null in an older file until the merge is done.
        self._schema = with_meta_columns(spec.layout.data)

    def rows(self, rows: KeyedRows | None, deletes: DeleteRows | None) -> Iterator[pa.RecordBatch]:
        changes: list[LogRows | LogDeletes] = [*self._new_rows(rows), *self._deletes(deletes)]
        if not changes:
            yield from self._base()
            return
        logs = fold_logs(changes, self._schema, self._rule)
        met = np.zeros(len(logs.keys), dtype=bool)
        requested = pa.scalar(self._spec.requested)
        for batch in merge_slice(self._meeting(logs.keys, met), logs, self._rule):
            self.written += pc.equal(batch.column(COMMIT_TIME), requested).true_count
            yield batch
        self.inserts = int(np.count_nonzero(~met & (logs.kinds == Kind.ROW)))

    def _meeting(self, keys: pa.Array, met: npt.NDArray[np.bool_]) -> Iterator[pa.RecordBatch]:
        """Yield the previous base file, and note which of the changed keys it has."""
        for batch in self._base():
            found = pc.index_in(batch.column(RECORD_KEY), value_set=keys).drop_null()
            met[np.asarray(found)] = True
            yield batch

    def _base(self) -> Iterator[pa.RecordBatch]:
        base, group, schema = self._previous, self._group, self._schema
        if base is None:
            return
        instant = base.name.requested
        slice_ = FileSlice(group.partition, group.file_id, instant, base, ())
        spec = ReadSpec(schema, schema, schema, self._rule, only(frozenset({instant})))
        for batch in read_split(self._storage, spec, Split((SliceRead(slice_),))):
            self.read += batch.num_rows
            yield batch

    def _new_rows(self, rows: KeyedRows | None) -> Iterator[LogRows]:
        if rows is None or not rows.rows.num_rows:
            return
        origin = RowOrigin(self._spec.requested, self._group, "")  # the writer adds the name
        batch = stored_rows(self._spec.layout, rows.rows, rows.keys, origin, 0)
        nullable = pa.RecordBatch.from_arrays(batch.columns, schema=self._schema)
        yield LogRows(nullable, deleting_rows(nullable, self._rule))

    def _deletes(self, deletes: DeleteRows | None) -> Iterator[LogDeletes]:
        for part in () if deletes is None or not len(deletes.keys) else deletes.by_kind():
            paths = pa.nulls(len(part.keys), pa.string())
            batch = delete_batch(part.keys, paths, part.ordering)
            yield delete_rows_batch(batch, self._schema, self._rule)
