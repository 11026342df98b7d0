"""Writing log files: the rows and deletes of one instant for one file group.

Rows come first and deletes after them, as Hudi writes them. So the delete wins if a caller names a
key in both and their ordering values do not decide. A block of partial rows comes after a block of
placeholder rows for those whose keys are new, as `format.table.column_owners` requires.

A log that grows beyond its limit continues in the next version. Where it is cut depends on the rows
alone. But another attempt may get its rows in another order, and then it cuts its files elsewhere.
The first file of one attempt and the second of another would lose some rows and duplicate others.
So if there is more than one file, an attempt accepts another's file only if it equals its own to
the byte. A single file it accepts if it holds as many records as its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.format.files.file_names import FileGroupId, IoType, LogFileName
from pyhudi.format.files.log_file import BlockType, CorruptSpan, decode_blocks
from pyhudi.format.files.log_reference import ReferredLog, checksum, encode_reference
from pyhudi.format.files.row_blocks import (
    BLOCK_VALUE_BYTES,
    block_records,
    block_sized,
    encode_deletes_block,
    encode_rows_block,
)
from pyhudi.format.paths import file_name
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.storage.protocol import Storage
from pyhudi.table.rows.row_layout import (
    RowLayout,
    RowOrigin,
    placeholder_rows,
    stored_partial_rows,
    stored_rows,
)
from pyhudi.table.schema import RECORD_KEY
from pyhudi.write.files.spec import (
    DeleteRows,
    KeyedRows,
    WriteSpec,
    attempts_disagree,
    create_marker,
    data_path,
    file_stat,
    not_whole,
    taken_away,
)

#: Files up to this size are created from one piece of memory.
_ONE_PIECE_BYTES = 8 << 20
#: Leaves room for the rows of one call among the sequence numbers of a file group.
_ROWS_A_FILE = 1 << 32
_ROWS_A_PLACE = 1 << 40
_ROWS_A_TASK = 1 << 44


@dataclass(frozen=True, slots=True)
class _Block:
    data: bytes
    rows: int = 0
    inserts: int = 0  # of the rows, those that are known to be new
    deletes: int = 0
    placeholder_rows: int = 0


@dataclass(frozen=True, slots=True)
class _LogFile:
    blocks: tuple[_Block, ...]

    @property
    def size(self) -> int:
        return sum(len(block.data) for block in self.blocks)

    @property
    def rows(self) -> int:
        return sum(block.rows for block in self.blocks)

    @property
    def inserts(self) -> int:
        return sum(block.inserts for block in self.blocks)

    @property
    def counts(self) -> tuple[int, int]:
        """Records of data blocks, placeholder rows among them, and deletes."""
        records = self.rows + sum(block.placeholder_rows for block in self.blocks)
        return records, sum(block.deletes for block in self.blocks)


def write_log(
    storage: Storage,
    spec: WriteSpec,
    group: FileGroupId,
    *,
    rows: KeyedRows | None = None,
    deletes: DeleteRows | None = None,
    existing_keys: pa.Array | None = None,
    ordinal: int = 0,
    more: bool = False,
) -> tuple[WriteStat, ...]:
    """Write rows and deletes to a file group; return a write stat for each file, if any."""
    written = write_log_files(
        storage,
        spec,
        group,
        rows=rows,
        deletes=deletes,
        existing_keys=existing_keys,
        ordinal=ordinal,
        more=more,
    )
    return tuple(file.stat for file in written)


def write_log_files(
    storage: Storage,
    spec: WriteSpec,
    group: FileGroupId,
    *,
    rows: KeyedRows | None,
    deletes: DeleteRows | None,
    existing_keys: pa.Array | None,
    ordinal: int,
    more: bool,
) -> tuple[WrittenLog, ...]:
    """Write rows and deletes to a file group; return its files, if any.

    For partial rows, `existing_keys` are the keys that the file group has.

    A caller with more rows than memory calls several times, with `more` while others follow, and
    with `ordinal` the number of stats it already has for the group. Then every attempt must give
    the same rows in the same order.
    """
    batch = None if rows is None else _stored(spec, group, rows, ordinal)
    blocks = [*_row_blocks(spec, batch, existing_keys), *_delete_blocks(spec, group, deletes)]
    files = list(_rolled(blocks, spec.log_file_bytes_max))
    alone = len(files) == 1 and ordinal == 0 and not more
    written = []
    for version, file in enumerate(files, start=ordinal + 1):
        name = LogFileName(group.file_id, spec.requested, version, spec.write_token)
        written.append(_written(storage, spec, _LogFileTarget(group, name, alone), file))
    return tuple(written)


def write_reference(
    storage: Storage, spec: WriteSpec, group: FileGroupId, logs: Sequence[ReferredLog]
) -> WriteStat:
    """Write a log that refers to other logs of the write, and has no records."""
    block = _Block(encode_reference(logs, spec.layout.avro_json, spec.requested))
    file = _LogFile((block,))
    name = LogFileName(group.file_id, spec.requested, 1, spec.write_token)
    path = data_path(group.partition, name.file_name)
    create_marker(storage, spec, path, IoType.CREATE)
    if not _created(storage, path, file):
        found = storage.stat(path)
        if found is None:
            raise taken_away(path)
        if found.size != file.size or not _is_same(storage, path, file):
            raise attempts_disagree(path, "it refers to other logs")
    return _log_stat(group, name, file, file.size)


def _stored(spec: WriteSpec, group: FileGroupId, rows: KeyedRows, ordinal: int) -> pa.RecordBatch:
    origin = RowOrigin(spec.requested, group, group.file_id)
    first = spec.task * _ROWS_A_TASK + spec.place * _ROWS_A_PLACE + ordinal * _ROWS_A_FILE
    stored = stored_rows if spec.part is None else stored_partial_rows
    return stored(spec.layout, rows.rows, rows.keys, origin, first)


def _row_blocks(
    spec: WriteSpec, batch: pa.RecordBatch | None, existing_keys: pa.Array | None
) -> Iterator[_Block]:
    pieces = () if batch is None else block_sized(batch, _block_bytes(spec))
    for piece in pieces:
        if spec.part is None:
            yield _Block(_encoded(spec, spec.layout, piece), rows=piece.num_rows)
            continue
        assert existing_keys is not None, "partial rows need the keys that exist"
        fresh = piece.filter(pc.invert(pc.is_in(piece.column(RECORD_KEY), value_set=existing_keys)))
        if fresh.num_rows:
            whole = placeholder_rows(spec.whole_layout, fresh, spec.part.identity)
            yield _Block(_encoded(spec, spec.whole_layout, whole), placeholder_rows=whole.num_rows)
        data = _encoded(spec, spec.layout, piece, is_partial=True)
        yield _Block(data, rows=piece.num_rows, inserts=fresh.num_rows)


def _encoded(
    spec: WriteSpec, layout: RowLayout, batch: pa.RecordBatch, *, is_partial: bool = False
) -> bytes:
    avro, block_format = layout.avro_json, spec.block_format
    return encode_rows_block(batch, avro, spec.requested, block_format, is_partial=is_partial)


def _delete_blocks(
    spec: WriteSpec, group: FileGroupId, deletes: DeleteRows | None
) -> Iterator[_Block]:
    for part in () if deletes is None else deletes.by_kind():
        # A batch that is split needs a second column: the key again, if there is no ordering value.
        columns = [part.keys, part.keys if part.ordering is None else part.ordering]
        batch = pa.RecordBatch.from_arrays(columns, names=["key", "ordering"])
        for piece in block_sized(batch, _block_bytes(spec)):
            keys, ordering = piece.columns
            data = encode_deletes_block(
                keys,
                group.partition,
                None if part.ordering is None else ordering,
                spec.whole_layout.avro_json,
                spec.requested,
            )
            yield _Block(data, deletes=len(keys))


def _block_bytes(spec: WriteSpec) -> int:
    return min(BLOCK_VALUE_BYTES, spec.log_file_bytes_max)


def _rolled(blocks: Iterable[_Block], bytes_max: int) -> Iterator[_LogFile]:
    """Yield the blocks as files of at least one block, each of at most `bytes_max` if it can be."""
    file: list[_Block] = []
    size = 0
    for block in blocks:
        if file and size + len(block.data) > bytes_max:
            yield _LogFile(tuple(file))
            file, size = [], 0
        file.append(block)
        size += len(block.data)
    if file:
        yield _LogFile(tuple(file))


@dataclass(frozen=True, slots=True)
class _LogFileTarget:
    """The name of one file of the log, and whether it is the whole log."""

    group: FileGroupId
    name: LogFileName
    alone: bool

    @property
    def path(self) -> str:
        return data_path(self.group.partition, self.name.file_name)

    @property
    def next_path(self) -> str:
        following = self.name._replace(version=self.name.version + 1)
        return data_path(self.group.partition, following.file_name)


@dataclass(frozen=True, slots=True)
class WrittenLog:
    """A log file that this attempt created, or that it found."""

    stat: WriteStat
    _own: _LogFile | None  # None: another attempt was first

    def referred(self, storage: Storage) -> ReferredLog:
        """Return the file as another one refers to it."""
        path, size = self.stat.data_path, self.stat.file_size_in_bytes or 0
        if self._own is not None:
            crc32 = checksum(block.data for block in self._own.blocks)
        else:
            try:
                starts = range(0, size, _ONE_PIECE_BYTES)
                crc32 = checksum(storage.read(path, s, s + _ONE_PIECE_BYTES) for s in starts)
            except FileNotFoundError:
                raise taken_away(path) from None
        return ReferredLog(file_name(path), size, crc32)


def _written(
    storage: Storage, spec: WriteSpec, target: _LogFileTarget, file: _LogFile
) -> WrittenLog:
    create_marker(storage, spec, target.path, IoType.CREATE)
    if _created(storage, target.path, file):
        return WrittenLog(_log_stat(target.group, target.name, file, file.size), file)
    size = _winner_size(storage, target, file)
    return WrittenLog(_log_stat(target.group, target.name, file, size), None)


def _log_stat(group: FileGroupId, name: LogFileName, file: _LogFile, size: int) -> WriteStat:
    rows, deletes = file.rows, file.counts[1]
    stat = file_stat(group, name.file_name, size, writes=rows, deletes=deletes)
    return replace(
        stat,
        # Whether the key of a whole row existed before is not known. Hudi, too, counts all rows for
        # a bucket that has a file as updates.
        num_inserts=file.inserts,
        num_update_writes=rows - file.inserts,
        prev_commit=name.requested,
        log_version=name.version,
        log_offset=0,
        base_file="",
        log_files=(name.file_name,),
    )


def _created(storage: Storage, path: str, file: _LogFile) -> bool:
    chunks = [block.data for block in file.blocks]
    if file.size <= _ONE_PIECE_BYTES:
        return storage.create(path, b"".join(chunks))
    return storage.create_from(path, chunks) is not None


# ---- another attempt was first


def _winner_size(storage: Storage, target: _LogFileTarget, file: _LogFile) -> int:
    """Return the size of the existing file, if it can replace this attempt's."""
    path = target.path
    found = storage.stat(path)
    if found is None:
        raise taken_away(path)
    try:
        if found.size == file.size and _is_same(storage, path, file):
            return file.size
        counts = stored_counts(storage, path, found.size, target.name.requested)
    except FileNotFoundError:
        raise taken_away(path) from None
    if counts != file.counts:
        why = "the file has {} rows and {} deletes, and this attempt has {} and {}"
        raise attempts_disagree(path, why.format(*counts, *file.counts))
    if not target.alone or storage.stat(target.next_path) is not None:
        raise attempts_disagree(path, "its records differ, and it is not the whole log")
    return found.size


def _is_same(storage: Storage, path: str, file: _LogFile) -> bool:
    start = 0
    for block in file.blocks:
        if storage.read(path, start, start + len(block.data)) != block.data:
            return False
        start += len(block.data)
    return True


def stored_counts(storage: Storage, path: str, size: int, instant: str) -> tuple[int, int]:
    """Return the numbers of rows and deletes in an existing file, whose blocks are of the
    instant."""
    counts = {True: 0, False: 0}  # by whether they are deletes
    for block in decode_blocks(lambda start, end: storage.read(path, start, end), size, path):
        if isinstance(block, CorruptSpan):
            raise not_whole(path, block.why)
        if block.instant_time != instant:
            raise not_whole(path, f"a block in it is of the instant {block.instant_time}")
        content = storage.read(path, block.content_start, block.content_end)
        counts[block.type is BlockType.DELETE] += block_records(block, content, path)
    if not size:
        raise not_whole(path, "it is empty")
    return counts[False], counts[True]
