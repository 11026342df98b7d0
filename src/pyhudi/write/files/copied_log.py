"""Copying logs into the file groups that their rows belong to by now.

A resize gives the rows of a bucket to its children. What is in the children's base files was
merged. The logs of a write that completed later are *copied*: block by block, each row and each
delete into the child that owns its position on the ring. A write that completes after the resize
*moves* its own logs in the same way.

    a block of the source          in each child
    rows, whole or a part          those that it owns, in their order, in the block's own schema
    deletes                        those that it owns, in their order, with their ordering values
    rollback, log compaction       not copied: neither lies in a log of one completed write

Nothing is merged. A copy has the type and the header of its block, so it counts for readers exactly
as the block does: by its instant, as whole rows or as parts of rows. Record positions are left out,
because they are of the base file below the original. Rows keep their meta columns but for the name
of the file.

**Names are fixed** by the instant, the child and the source, so all attempts meet on them. The
first to create a file wins, and the others compare how many records it holds. The files of one log
go to storage together; those of the next log follow when they are there.

Memory holds one block, and what a `Spool` holds for each child.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyhudi.errors import CorruptTableError, UnsupportedTableError
from pyhudi.format.files.delete_records import DeleteBatch
from pyhudi.format.files.file_names import FileGroupId, IoType, LogFileName
from pyhudi.format.files.log_file import BlockType, CorruptSpan, LogBlock, decode_blocks
from pyhudi.format.files.row_blocks import (
    BLOCK_VALUE_BYTES,
    block_records,
    block_sized,
    encode_copied_deletes,
    encode_copied_rows,
)
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.index.children import KeyOwners
from pyhudi.plan.resizing.copies import VERSIONS_A_WRITE
from pyhudi.storage.protocol import Storage
from pyhudi.table.file_group import LogFile
from pyhudi.table.log_blocks import (
    LocatedBlock,
    decode_own_deletes,
    decode_own_rows,
    no_data_block,
)
from pyhudi.table.schema import FILE_NAME, RECORD_KEY
from pyhudi.world import Together, one_by_one
from pyhudi.write.files.log_file import stored_counts
from pyhudi.write.files.spec import (
    WRITE_TOKEN,
    WriteSpec,
    create_marker,
    data_path,
    file_stat,
    taken_away,
)
from pyhudi.write.files.split import split_rows
from pyhudi.write.files.spool import Spool

#: A copy that grows beyond this continues in the next piece. It is no setting, because all
#: processes must cut at the same place.
COPY_BYTES_MAX = 1 << 30
#: A source up to this size is read in one request.
_WHOLE_LOG_BYTES = 8 << 20
#: Deletes that are encoded at once, like those of a writer.
_DELETES_A_BLOCK = 1 << 19


@dataclass(frozen=True, slots=True)
class CopyName:
    """How the copies of one write are called, in every file group."""

    requested: InstantTime
    first: int  # the version of the first one
    pieces_max: int | None = VERSIONS_A_WRITE

    @classmethod
    def of_copy(cls, resize: str, number: int) -> CopyName:
        """Name copies of the write that completed as the given one, counted from the plan."""
        return cls(InstantTime(resize), VERSIONS_A_WRITE * number)

    @classmethod
    def of_move(cls, write: str, above: int) -> CopyName:
        """Name the moved logs of a write, by versions above those that its logs have so far.

        It may have logs in the group that they come to, under the same token.
        """
        return cls(InstantTime(write), above + 1, None)

    def of(self, group: FileGroupId, piece: int) -> LogFileName:
        return LogFileName(group.file_id, self.requested, self.first + piece, WRITE_TOKEN)


class SourceGoneError(CorruptTableError):
    """A log that is to be copied is not there, or not all of it."""


def copied_logs(
    storage: Storage,
    name: CopyName,
    sources: Sequence[LogFile],
    owners: KeyOwners,
    together: Together = one_by_one,
) -> list[WriteStat]:
    """Copy the logs of one write, all of one partition, into the file groups that own the records.

    Return a stat for each file. It may be repeated, and by several processes at once. The files of
    one log are created `together`.
    """
    pieces: dict[int, int] = {}
    stats: list[WriteStat] = []
    for source in sources:
        with ExitStack() as stack:
            copy = _SourceCopy(storage, name, source, owners, pieces, stack, together)
            stats += copy.files()
    return stats


@dataclass(slots=True)
class _Records:
    """What a copy holds so far."""

    whole: int = 0
    partial: int = 0
    deletes: int = 0

    def add(self, block: LogBlock, count: int) -> None:
        if block.type is BlockType.DELETE:
            self.deletes += count
        elif block.is_partial:
            self.partial += count
        else:
            self.whole += count

    @property
    def counts(self) -> tuple[int, int]:
        return self.whole + self.partial, self.deletes


@dataclass(slots=True)
class _Copy:
    """The next file of one file group."""

    spool: Spool
    records: _Records

    def add(self, block: LogBlock, data: bytes, count: int) -> None:
        self.spool.write(data)
        self.records.add(block, count)


class _File(NamedTuple):
    """A copy that is to be created."""

    group: FileGroupId
    name: LogFileName
    copy: _Copy


class _SourceCopy:
    """One source, copied into all file groups in one pass."""

    def __init__(
        self,
        storage: Storage,
        name: CopyName,
        source: LogFile,
        owners: KeyOwners,
        pieces: dict[int, int],  # how many files each group has by now
        stack: ExitStack,
        together: Together,
    ) -> None:
        self._storage = storage
        self._name = name
        self._source = source
        self._owners = owners
        self._pieces = pieces
        self._stack = stack
        self._together = together
        self._copies: dict[int, _Copy] = {}

    def files(self) -> Iterator[WriteStat]:
        source = self._source
        blocks = _blocks(self._storage, source.path, source.size, source.name.requested)
        for located, content in blocks:
            parts = (
                self._deletes(located, content)
                if located.block.type is BlockType.DELETE
                else self._rows(located, content)
            )
            for ordinal, data, count in parts:
                copy = self._copies.get(ordinal)
                if copy is not None and copy.spool.size + len(data) > COPY_BYTES_MAX:
                    yield self._created(self._next_file(ordinal))
                self._copy(ordinal).add(located.block, data, count)
        files = [self._next_file(ordinal) for ordinal in sorted(self._copies)]
        yield from self._together(self._created, files)

    def _copy(self, ordinal: int) -> _Copy:
        if ordinal not in self._copies:
            self._copies[ordinal] = _Copy(self._stack.enter_context(Spool()), _Records())
        return self._copies[ordinal]

    # -- splitting

    def _rows(self, located: LocatedBlock, content: bytes) -> Iterator[tuple[int, bytes, int]]:
        rows = decode_own_rows(located, content)
        for ordinal, part in split_rows(rows, self._owners.assign(rows.column(RECORD_KEY))):
            named = _with_file_name(part, self._owners.group(ordinal).file_id)
            for piece in block_sized(named, BLOCK_VALUE_BYTES):
                yield ordinal, encode_copied_rows(piece, located.block), piece.num_rows

    def _deletes(self, located: LocatedBlock, content: bytes) -> Iterator[tuple[int, bytes, int]]:
        batches = decode_own_deletes(located, content)
        for ordinal, part in _split_deletes(batches, self._owners):
            count = sum(len(batch.rows) for batch in part)
            yield ordinal, encode_copied_deletes(part, located.block), count

    # -- creating

    def _next_file(self, ordinal: int) -> _File:
        """Return the copy under the next name of its file group."""
        copy = self._copies.pop(ordinal)
        group, piece = self._owners.group(ordinal), self._pieces.get(ordinal, 0)
        if self._name.pieces_max is not None and piece >= self._name.pieces_max:
            raise _too_many_pieces(group, self._name)
        self._pieces[ordinal] = piece + 1
        return _File(group, self._name.of(group, piece), copy)

    def _created(self, file: _File) -> WriteStat:
        group, name, copy = file
        path = data_path(group.partition, name.file_name)
        create_marker(self._storage, WriteSpec(self._name.requested, ""), path, IoType.CREATE)
        size = self._storage.create_from(path, copy.spool.chunks())
        if size is None:
            size = _winner_size(self._storage, path, self._source, copy.records.counts)
        copy.spool.close()
        return _stat(group, name, size, copy.records)


def _stat(group: FileGroupId, name: LogFileName, size: int, records: _Records) -> WriteStat:
    # Before the parts of rows come stand-ins for those that are new.
    rows, inserts = (records.partial, records.whole) if records.partial else (records.whole, 0)
    stat = log_stat(group, name, size)
    return replace(
        stat,
        num_writes=rows,
        num_inserts=inserts,
        num_update_writes=rows - inserts,
        num_deletes=records.deletes,
    )


def log_stat(group: FileGroupId, name: LogFileName, size: int) -> WriteStat:
    """Return the stat of a copy, without what it counts."""
    return replace(
        file_stat(group, name.file_name, size, writes=0, deletes=0),
        prev_commit=name.requested,
        log_version=name.version,
        log_offset=0,
        base_file="",
        log_files=(name.file_name,),
    )


def copy_stat(
    storage: Storage, partition: str, name: LogFileName, size: int, write: str
) -> WriteStat:
    """Return the stat of a copy that another process made of this write's log."""
    records = _Records()
    for located, content in _blocks(storage, data_path(partition, name.file_name), size, write):
        records.add(located.block, block_records(located.block, content, located.path))
    return _stat(FileGroupId(partition, name.file_id), name, size, records)


def _split_deletes(
    batches: Sequence[DeleteBatch], owners: KeyOwners
) -> Iterator[tuple[int, list[DeleteBatch]]]:
    """Yield the deletes of each file group, in their order, at most so many at once."""
    if not batches:
        return
    found = [owners.assign(batch.record_keys) for batch in batches]
    places = [np.asarray(batch.rows) for batch in batches]
    for ordinal in np.unique(np.concatenate(found)).tolist():
        own = [np.flatnonzero(numbers == ordinal) for numbers in found]
        kept = np.sort(np.concatenate([p[i] for p, i in zip(places, own, strict=True)]))
        for start in range(0, len(kept), _DELETES_A_BLOCK):
            block = kept[start : start + _DELETES_A_BLOCK]
            parts = []
            for batch, place, indices in zip(batches, places, own, strict=True):
                chosen = indices[(place[indices] >= block[0]) & (place[indices] <= block[-1])]
                if len(chosen):
                    parts.append(_taken(batch, chosen, np.searchsorted(block, place[chosen])))
            yield ordinal, parts


def _taken(
    batch: DeleteBatch, indices: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]
) -> DeleteBatch:
    taken = pa.array(indices)
    return replace(
        batch,
        rows=pa.array(rows, pa.int64()),
        record_keys=batch.record_keys.take(taken),
        partition_paths=batch.partition_paths.take(taken),
        ordering=None if batch.ordering is None else batch.ordering.take(taken),
    )


def _with_file_name(rows: pa.RecordBatch, file_id: str) -> pa.RecordBatch:
    index = rows.schema.get_field_index(FILE_NAME)
    if index < 0:
        return rows
    field = rows.schema.field(index)
    names = pa.repeat(pa.scalar(file_id, field.type), rows.num_rows)
    return rows.set_column(index, field, names)


# ---- the source


def _blocks(
    storage: Storage, path: str, size: int, write: str
) -> Iterator[tuple[LocatedBlock, bytes]]:
    """Yield the blocks of a write's log with their contents.

    A reader steps over bytes that hold no whole block. A copy would make that loss permanent.
    """
    whole = _read(storage, path, 0, size) if size <= _WHOLE_LOG_BYTES else None

    def read(start: int, end: int) -> bytes:
        return _read(storage, path, start, end) if whole is None else whole[start:end]

    if not size:
        raise _damaged(path, 0, "it is empty")
    for block in decode_blocks(read, size, path):
        if isinstance(block, CorruptSpan):
            raise _damaged(path, block.start, block.why)
        located = LocatedBlock(path, block)
        if block.type not in _COPIED_TYPES:
            raise no_data_block(located)
        if block.instant_time != write or block.compacted:
            raise _damaged(path, block.start, "a block in it is not of the write that it is of")
        yield located, read(block.content_start, block.content_end)


_COPIED_TYPES = (BlockType.AVRO_DATA, BlockType.PARQUET_DATA, BlockType.DELETE)


def _read(storage: Storage, path: str, start: int, end: int) -> bytes:
    try:
        data = storage.read(path, start, end)
    except FileNotFoundError:
        raise _gone(path, "it is not there") from None
    if len(data) < end - start:
        raise _gone(path, f"{end - start} bytes belong at byte {start}, and {len(data)} are there")
    return data


# ---- errors


def _winner_size(storage: Storage, path: str, source: LogFile, own: tuple[int, int]) -> int:
    """Return the size of the copy that another attempt made, if it can replace this one."""
    found = storage.stat(path)
    if found is None:
        raise taken_away(path)
    try:
        counts = stored_counts(storage, path, found.size, source.name.requested)
    except FileNotFoundError:
        raise taken_away(path) from None
    if counts != own:
        raise _other_copy(path, source.path, counts, own)
    return found.size


def _other_copy(
    path: str, source: str, found: tuple[int, int], own: tuple[int, int]
) -> CorruptTableError:
    why = "it has {} rows and {} deletes, and of {!r} {} and {} belong there"
    return CorruptTableError(
        "another copy has the name of this one",
        why=why.format(*found, source, *own),
        next_step="Find out which program wrote the file. No reader sees it before its instant"
        " completes",
        path=path,
    )


def _damaged(path: str, offset: int, why: str) -> CorruptTableError:
    return CorruptTableError(
        "a log file cannot be copied",
        why=why,
        next_step="Restore the file from a copy, or from versions that the store keeps. Its bucket"
        " is not resized before that",
        path=path,
        offset=offset,
    )


def _gone(path: str, why: str) -> SourceGoneError:
    return SourceGoneError(
        "a log file cannot be copied",
        why=why,
        next_step="Restore the file from a copy, because committed rows are lost with it",
        path=path,
    )


def _too_many_pieces(group: FileGroupId, name: CopyName) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"the logs of a write cannot be copied into {group.file_id!r}",
        why=f"they would be more than {name.pieces_max} files there",
        next_step="Compact the table, and resize it afterwards",
    )
