"""What the table holds for some file groups. Tasks read it beside the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.plan.scan import ReadSpec, ScanPlan, SliceRead, Split
from pyhudi.read.slice import read_split
from pyhudi.storage.protocol import Storage
from pyhudi.table.schema import RECORD_KEY


class GroupView:
    """The rows of each file group at one time: a plan that is sent with a task."""

    def __init__(self, spec: ReadSpec, reads: Mapping[FileGroupId, SliceRead]) -> None:
        self._spec = spec
        self._reads = reads

    @classmethod
    def of(cls, plan: ScanPlan) -> GroupView:
        reads = {FileGroupId(r.slice.partition, r.slice.file_id): r for r in plan.reads}
        return cls(plan.spec, reads)

    def rows(self, storage: Storage, group: FileGroupId) -> Iterator[pa.RecordBatch]:
        if group in self._reads:
            yield from read_split(storage, self._spec, Split((self._reads[group],)))

    def keys(self, storage: Storage, group: FileGroupId) -> pa.Array:
        """Return the record keys of a group."""
        found = [batch.column(RECORD_KEY) for batch in self.rows(storage, group)]
        return pa.concat_arrays(found) if found else pa.array([], pa.string())

    @property
    def partitions(self) -> list[str]:
        return sorted({group.partition for group in self._reads})
