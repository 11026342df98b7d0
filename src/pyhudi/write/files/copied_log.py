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

A write beside a resize that Hudi can execute *writes twice*: it puts its own logs into the children
in the same way before it completes, in files that the resize names.

**Names are fixed** by the instant, the child and the source, so all attempts meet on them. The
first to create a file wins, and the others compare how many records it holds. The files of several
small logs, or of a large one, go to storage together; those of the next logs follow when they are
there.

Memory holds a block of each log that is copied at once, and what a `Spool` holds for each file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyhudi.errors import CorruptTableError, UnsupportedTableError
from pyhudi.format.files.delete_records import DeleteBatch
from pyhudi.format.files.file_names import FileGroupId, IoType, LogFileName
from pyhudi.format.files.log_file import (
    BlockType,
    HeaderKey,
    LogBlock,
    decode_blocks,
)
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
from pyhudi.storage.protocol import Storage
from pyhudi.table.file_group import FileGroupFiles, LogFile
from pyhudi.table.log_blocks import (
    LocatedBlock,
    decode_own_deletes,
    decode_own_rows,
)
from pyhudi.table.schema import FILE_NAME, RECORD_KEY
from pyhudi.world import Together, one_by_one
from pyhudi.write.files.copy_name import CopyName
from pyhudi.write.files.copy_source import source_blocks
from pyhudi.write.files.log_file import stored_counts
from pyhudi.write.files.spec import (
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
#: What logs that are copied at once have together, unless it is one log.
_AT_ONCE_BYTES = 8 << 20
#: Deletes that are encoded at once, like those of a writer.
_DELETES_A_BLOCK = 1 << 19


@dataclass(frozen=True, slots=True)
class Sources:
    """Logs of one write, all of one partition, and the file groups that own their records."""

    name: CopyName
    logs: Sequence[LogFile]
    owners: KeyOwners
    announced: int = 0  # pieces in each file group of which a list of markers tells


def copied_logs(
    storage: Storage, sources: Sequence[Sources], together: Together = one_by_one, salt: bytes = b""
) -> list[WriteStat]:
    """Copy logs into the file groups that own their records. Return a stat for each file.

    It may be repeated, and by several processes at once. The files of so many logs as memory has
    room for are created `together`, in an order that depends on the salt: of processes that make
    the same copies at the same time, each then makes others first, and finds the rest there.
    """
    pieces: dict[tuple[int, int], int] = {}  # files so far, by place of the sources and group
    stats: list[WriteStat] = []
    logs = [(place, log) for place, each in enumerate(sources) for log in each.logs]
    for portion in _portions(logs):
        with ExitStack() as stack:

            def split(
                placed: tuple[int, LogFile], stack: ExitStack = stack
            ) -> Sequence[tuple[int, _Copy]]:
                return _split(storage, placed[1], sources[placed[0]].owners, stack)

            copies = together(split, portion)
            files = [
                _file(sources[place], place, log, ordinal, copy, pieces)
                for (place, log), found in zip(portion, copies, strict=True)
                for ordinal, copy in found
            ]
            stats += _created(storage, files, together, salt)
    return stats


def _portions(logs: Sequence[tuple[int, LogFile]]) -> Iterator[Sequence[tuple[int, LogFile]]]:
    """Yield the logs that are copied at once: some small ones, or a large one."""
    begin, size = 0, 0
    for end, (_, log) in enumerate(logs):
        size += log.size
        if size > _AT_ONCE_BYTES and end > begin:
            yield logs[begin:end]
            begin, size = end, log.size
    if begin < len(logs):
        yield logs[begin:]


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
    """What becomes one file of one file group."""

    spool: Spool
    records: _Records

    def add(self, block: LogBlock, data: bytes, count: int) -> None:
        self.spool.write(data)
        self.records.add(block, count)


class _File(NamedTuple):
    """A copy that is to be created."""

    group: FileGroupId
    name: LogFileName
    source: LogFile
    copy: _Copy
    is_announced: bool
    announced_by: InstantTime  # the instant whose markers name it

    @property
    def path(self) -> str:
        return data_path(self.group.partition, self.name.file_name)


def _split(
    storage: Storage, source: LogFile, owners: KeyOwners, stack: ExitStack
) -> Sequence[tuple[int, _Copy]]:
    """Return the copies of one log in one pass: the ordinal of the file group of each, in order."""
    copies: dict[int, list[_Copy]] = {}
    blocks = source_blocks(storage, source.path, source.size, source.name.requested)
    for located, content in blocks:
        parts = (
            _deletes(located, content, owners)
            if located.block.type is BlockType.DELETE
            else _rows(located, content, owners)
        )
        for ordinal, data, count in parts:
            found = copies.setdefault(ordinal, [])
            if not found or found[-1].spool.size + len(data) > COPY_BYTES_MAX:
                found.append(_Copy(stack.enter_context(Spool()), _Records()))
            found[-1].add(located.block, data, count)
    return [(ordinal, copy) for ordinal in sorted(copies) for copy in copies[ordinal]]


def _rows(
    located: LocatedBlock, content: bytes, owners: KeyOwners
) -> Iterator[tuple[int, bytes, int]]:
    rows = decode_own_rows(located, content)
    for ordinal, part in split_rows(rows, owners.assign(rows.column(RECORD_KEY))):
        named = _with_file_name(part, owners.group(ordinal).file_id)
        for piece in block_sized(named, BLOCK_VALUE_BYTES):
            yield ordinal, encode_copied_rows(piece, located.block), piece.num_rows


def _deletes(
    located: LocatedBlock, content: bytes, owners: KeyOwners
) -> Iterator[tuple[int, bytes, int]]:
    batches = decode_own_deletes(located, content)
    for ordinal, part in _split_deletes(batches, owners):
        count = sum(len(batch.rows) for batch in part)
        yield ordinal, encode_copied_deletes(part, located.block), count


def _file(
    sources: Sources,
    place: int,
    log: LogFile,
    ordinal: int,
    copy: _Copy,
    pieces: dict[tuple[int, int], int],
) -> _File:
    """Return the copy under the next name of its file group."""
    name, group = sources.name, sources.owners.group(ordinal)
    piece = pieces.get((place, ordinal), 0)
    if name.pieces_max is not None and piece >= name.pieces_max:
        raise _too_many_pieces(group, name)
    pieces[place, ordinal] = piece + 1
    return _File(
        group, name.of(group, piece), log, copy, piece < sources.announced, name.announced_by
    )


def _created(
    storage: Storage, files: Sequence[_File], together: Together, salt: bytes
) -> list[WriteStat]:
    """Create the files in the order that the salt gives. Return their stats in their own order."""

    def created(place: int) -> WriteStat:
        group, name, source, copy, is_announced, announced_by = files[place]
        path = files[place].path
        if not is_announced:
            create_marker(storage, WriteSpec(announced_by, ""), path, IoType.CREATE)
        size = storage.create_from(path, copy.spool.chunks())
        if size is None:
            size = _winner_size(storage, path, source, copy.records.counts)
        copy.spool.close()
        stat = _stat(group, name, size, copy.records)
        return replace(stat, prev_commit=announced_by)

    def rank(place: int) -> bytes:
        return blake2b(files[place].path.encode(), digest_size=8, key=salt).digest()

    order = sorted(range(len(files)), key=rank) if salt else range(len(files))
    stats = dict(zip(order, together(created, order), strict=True))
    return [stats[place] for place in range(len(files))]


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
    for located, content in source_blocks(
        storage, data_path(partition, name.file_name), size, write
    ):
        records.add(located.block, block_records(located.block, content, located.path))
    return _stat(FileGroupId(partition, name.file_id), name, size, records)


def copies_in(group: FileGroupFiles) -> tuple[LogFile, ...]:
    """Return the copies that a resize made in a file group: its base file there has their name."""
    bases = {base.name.requested for base in group.bases}
    return tuple(log for log in group.logs if log.name.requested in bases)


def copied_write(storage: Storage, copy: LogFile) -> str | None:
    """Return the write of which the log is a copy; None if it is gone, "" if it does not say."""
    blocks = decode_blocks(partial(storage.read, copy.path), copy.size, copy.path)
    try:
        block = next(blocks, None)
    except FileNotFoundError:
        return None
    return block.header.get(HeaderKey.INSTANT_TIME, "") if isinstance(block, LogBlock) else ""


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


def _too_many_pieces(group: FileGroupId, name: CopyName) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"the logs of a write cannot be copied into {group.file_id!r}",
        why=f"they would be more than {name.pieces_max} files there",
        next_step="Compact the table, and resize it afterwards",
    )
