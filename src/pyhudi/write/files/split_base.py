"""Base files of several file groups, from one pass over the rows of all of them.

A resize takes the rows of a bucket, or of some neighbours, and gives each to the child that owns
it. The rows stream through once. A writer for each child encodes what belongs there, and holds one
row group. Storage takes a file as one stream, so what is encoded waits in a `Spool`, and the files
are created when the pass is over.

A child without rows gets an empty base file, which opens its first slice. As all base files, these
have fixed names: whichever process makes one, the others find it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack

import pyarrow as pa

from pyhudi.format.files.file_names import BaseFileName, FileGroupId, IoType
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.index.children import KeyOwners
from pyhudi.storage.protocol import Storage
from pyhudi.table.rows.row_layout import RowLayout, moved_rows
from pyhudi.table.schema import FILE_NAME, RECORD_KEY
from pyhudi.write.files.base_file import BaseFileEncoder, base_stat, winner_size
from pyhudi.write.files.spec import WriteSpec, create_marker, data_path
from pyhudi.write.files.split import split_rows
from pyhudi.write.files.spool import Spool


def write_bases(
    storage: Storage,
    spec: WriteSpec,
    groups: Sequence[FileGroupId],
    owners: KeyOwners,
    rows: Iterable[pa.RecordBatch],
) -> tuple[WriteStat, ...]:
    """Write a base file for each group, the first ordinals of `owners`; return their stats.

    The rows have their meta columns, and keep them but for the name of the file.
    """
    with ExitStack() as stack:
        files = [_ChildFile(spec, group, stack.enter_context(Spool())) for group in groups]
        for file in files:
            create_marker(storage, spec, file.path, IoType.CREATE)
        for batch in rows:
            # The name of the file is replaced: it would be split for nothing.
            kept = batch.select([name for name in batch.schema.names if name != FILE_NAME])
            for ordinal, part in split_rows(kept, owners.assign(batch.column(RECORD_KEY))):
                files[ordinal].add(part)
        return tuple(file.created(storage) for file in files)


class _ChildFile:
    """One of the files while it is written."""

    def __init__(self, spec: WriteSpec, group: FileGroupId, spool: Spool) -> None:
        self._spool = spool
        self._group = group
        self._layout: RowLayout = spec.layout
        self._name = BaseFileName(group.file_id, spec.write_token, spec.requested).file_name
        self._encoder = BaseFileEncoder(self._layout)

    @property
    def path(self) -> str:
        return data_path(self._group.partition, self._name)

    def add(self, rows: pa.RecordBatch) -> None:
        for data in self._encoder.add(moved_rows(self._layout, rows, self._name)):
            self._spool.write(data)

    def created(self, storage: Storage) -> WriteStat:
        for data in self._encoder.finish():
            self._spool.write(data)
        count = self._encoder.rows
        size = storage.create_from(self.path, self._spool.chunks())
        if size is None:
            size = winner_size(storage, self.path, count)
        self._spool.close()
        return base_stat(self._group, self._name, count, size, None)
