"""Writing base files: whole ones from rows, and empty ones that open a file group.

A base file is streamed. Row groups are encoded as rows arrive, and are sent to storage as they are
encoded. Memory holds one row group, and a bloom filter of at most 32 MB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq

from pyhudi.format.files.base_file import KeyDigest
from pyhudi.format.files.file_names import BaseFileName, FileGroupId, IoType
from pyhudi.format.files.piece_sink import PieceSink
from pyhudi.format.files.row_blocks import ParquetEncoder, block_sized
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.storage.protocol import Storage
from pyhudi.table.file_group import BaseFile
from pyhudi.table.rows.row_layout import RowLayout, RowOrigin, moved_rows, row_layout, stored_rows
from pyhudi.table.schema import RECORD_KEY
from pyhudi.write.files.spec import (
    KeyedRows,
    WriteSpec,
    attempts_disagree,
    create_marker,
    data_path,
    file_stat,
    not_whole,
    taken_away,
)

#: A row group ends when it holds this much. Readers skip row groups, and hold one at a time.
ROW_GROUP_ROWS = 1 << 20
ROW_GROUP_BYTES = 64 << 20

#: What Hudi records as the previous commit if there is none: this text.
_NO_COMMIT = "null"


def write_base(
    storage: Storage,
    spec: WriteSpec,
    group: FileGroupId,
    rows: Iterable[KeyedRows | pa.RecordBatch],
    *,
    previous: BaseFile | None = None,
) -> WriteStat:
    """Write a base file of these rows. A record batch has its meta columns and keeps them.

    `previous` is the base file that this one replaces. The rows count as inserts. A caller that
    knows more about them corrects the stat.
    """
    file = _BaseFile(spec, group, rows)
    io_type = IoType.CREATE if previous is None else IoType.MERGE
    create_marker(storage, spec, file.path, io_type)
    chunks = file.chunks()
    size = storage.create_from(file.path, chunks)
    if size is None:
        for _ in chunks:
            pass  # a store may see that the name is taken before it has read all chunks
        size = winner_size(storage, file.path, file.rows)
    return _base_stat(file, size, previous)


def write_seed(storage: Storage, spec: WriteSpec, group: FileGroupId) -> WriteStat:
    """Write a group's first base file, without a row. It opens the group's first slice."""
    file = _BaseFile(spec, group, ())
    create_marker(storage, spec, file.path, IoType.CREATE)
    data = _empty_base(spec.avro_schema)
    size = len(data) if storage.create(file.path, data) else winner_size(storage, file.path, 0)
    return _base_stat(file, size, None)


@lru_cache(maxsize=16)
def _empty_base(avro_schema: str) -> bytes:
    """Return a base file without rows: the same for every group and instant of a schema."""
    return b"".join(_encoded(row_layout(avro_schema), ()))


class _BaseFile:
    """A base file while it is written: its name, and the number of its rows so far."""

    def __init__(
        self, spec: WriteSpec, group: FileGroupId, rows: Iterable[KeyedRows | pa.RecordBatch]
    ) -> None:
        self.group = group
        self.name = BaseFileName(group.file_id, spec.write_token, spec.requested).file_name
        self.path = data_path(group.partition, self.name)
        self.rows = 0
        self._layout = spec.layout
        self._origin = RowOrigin(spec.requested, group, self.name)
        self._given = rows

    def chunks(self) -> Iterator[bytes]:
        return _encoded(self._layout, self._stored())

    def _stored(self) -> Iterator[pa.RecordBatch]:
        for given in self._given:
            if isinstance(given, KeyedRows):
                batch = stored_rows(self._layout, given.rows, given.keys, self._origin, self.rows)
            else:
                batch = moved_rows(self._layout, given, self.name)
            self.rows += batch.num_rows
            yield batch


def _base_stat(file: _BaseFile, size: int, previous: BaseFile | None) -> WriteStat:
    return base_stat(file.group, file.name, file.rows, size, previous)


def base_stat(
    group: FileGroupId, name: str, rows: int, size: int, previous: BaseFile | None
) -> WriteStat:
    """Return the write stat of a base file whose rows all count as inserts."""
    stat = file_stat(group, name, size, writes=rows, deletes=0)
    return replace(
        stat,
        num_inserts=rows,
        prev_commit=_NO_COMMIT if previous is None else previous.name.requested,
        prev_base_file=None if previous is None else previous.name.file_name,
    )


def winner_size(storage: Storage, path: str, rows: int) -> int:
    """Return the size of the file that another attempt left, if it can replace this attempt's."""
    found = storage.stat(path)
    if found is None:
        raise taken_away(path)
    try:
        with storage.open(path) as source:
            stored = pq.read_metadata(source).num_rows
    except FileNotFoundError:
        raise taken_away(path) from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise not_whole(path, f"it is not sound parquet ({error})") from None
    if stored != rows:
        why = f"the file has {stored} rows, and this attempt has {rows}"
        raise attempts_disagree(path, why)
    return found.size


# ---- encoding


def _encoded(layout: RowLayout, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Yield the bytes of a base file, piece by piece."""
    encoder = BaseFileEncoder(layout)
    for batch in batches:
        yield from encoder.add(batch)
    yield from encoder.finish()


class BaseFileEncoder:
    """The bytes of a base file while its rows arrive. It holds one row group."""

    def __init__(self, layout: RowLayout) -> None:
        self.rows = 0
        self._layout = layout
        self._sink = PieceSink()
        self._parquet = ParquetEncoder(self._sink, layout.stored)
        self._keys = KeyDigest()
        self._buffered: list[pa.RecordBatch] = []
        self._buffered_rows = self._buffered_bytes = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        """Take rows in the layout of the file, and yield the bytes of row groups that are full."""
        for piece in block_sized(batch, ROW_GROUP_BYTES):
            self.rows += piece.num_rows
            self._buffered.append(piece)
            self._buffered_rows += piece.num_rows
            self._buffered_bytes += piece.nbytes
            if self._buffered_rows >= ROW_GROUP_ROWS or self._buffered_bytes >= ROW_GROUP_BYTES:
                yield self._row_group()

    def finish(self) -> Iterator[bytes]:
        """Yield the rest of the bytes, with the footer."""
        if self._buffered_rows:
            yield self._row_group()
        self._parquet.close(self._keys.footer(self._layout.avro_json))
        yield self._sink.taken()

    def _row_group(self) -> bytes:
        table = pa.Table.from_batches(self._buffered)
        self._buffered, self._buffered_rows, self._buffered_bytes = [], 0, 0
        self._parquet.write(table)
        self._keys.add(table.column(RECORD_KEY).combine_chunks())
        return self._sink.taken()
