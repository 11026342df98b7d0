"""Blocks that refer to other logs, and the blocks of those in their place.

While a virtual resize is pending, the log of an old bucket names logs in the new ones, which hold
the rows (`format.files.log_reference`). A reader follows it wherever it counts the block that names
them. So it decides by the state that it reads alone, and needs no listing for it.

What is named was written before the write completed, and goes later than the file that names it. If
it is not there as it was named, rows are missing: an error that names both files, never fewer rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from pyhudi.errors import CorruptTableError
from pyhudi.format.files.log_file import BlockType, CorruptSpan, LogBlock, decode_blocks
from pyhudi.format.files.log_reference import (
    REFERENCE_BYTES_MAX,
    ReferredLog,
    bad_reference,
    checksum,
    decode_reference,
    is_reference,
)
from pyhudi.storage.protocol import Storage
from pyhudi.table.log_blocks import LocatedBlock

#: What a log that refers to others takes at most: its header has the table's schema.
REFERENCE_FILE_BYTES_MAX: Final = 2 * REFERENCE_BYTES_MAX
_READ_BYTES: Final = 8 << 20
_TYPES = (BlockType.AVRO_DATA, BlockType.PARQUET_DATA, BlockType.DELETE)


def followed(
    storage: Storage, blocks: Iterable[tuple[LocatedBlock, bytes]]
) -> Iterator[tuple[LocatedBlock, bytes]]:
    """Yield the blocks with their contents, and in the place of a reference what it names."""
    for located, content in blocks:
        if located.block.type is BlockType.PARQUET_DATA and is_reference(content):
            write = located.block.instant_time or ""
            for log in decode_reference(content, located.path, write):
                yield from _blocks(storage, log, located.path, write)
        else:
            yield located, content


def referred_paths(storage: Storage, path: str, write: str) -> frozenset[str]:
    """Return the paths of the logs that a write's log refers to; none if it is gone.

    CorruptTableError if it holds anything else.
    """
    try:
        data = storage.read(path, 0, REFERENCE_FILE_BYTES_MAX)
    except FileNotFoundError:
        return frozenset()  # a reader that needs it finds that out
    found: list[ReferredLog] = []
    for block in decode_blocks(lambda start, end: data[start:end], len(data), path):
        content = b"" if isinstance(block, CorruptSpan) else _content(block, data)
        if isinstance(block, CorruptSpan) or not is_reference(content):
            raise _no_reference(path)
        found += decode_reference(content, path, write)
    return frozenset(_beside(path, log.name) for log in found)


def _content(block: LogBlock, data: bytes) -> bytes:
    return data[block.content_start : block.content_end]


def _no_reference(path: str) -> CorruptTableError:
    return CorruptTableError(
        "a log without records refers to no other logs",
        why="its commit counts no rows and no deletes in it, and a block in it is not a reference",
        next_step="Restore the file from a copy, or from versions that the store keeps",
        path=path,
    )


def load_referred(storage: Storage, log: ReferredLog, referring: str) -> bytes:
    """Return the bytes of a log; CorruptTableError if they are not those that were referred to."""
    path = _beside(referring, log.name)
    chunks = []
    try:
        for start in range(0, log.size + 1, _READ_BYTES):  # one byte more than there should be
            chunks.append(storage.read(path, start, min(start + _READ_BYTES, log.size + 1)))
    except FileNotFoundError:
        raise bad_reference(referring, log.name, "the file is gone") from None
    if (size := sum(map(len, chunks))) != log.size:
        more = "more" if size > log.size else f"{size} bytes"
        why = f"the file has {more}, and {log.size} bytes were referred to"
        raise bad_reference(referring, log.name, why)
    if checksum(chunks) != log.crc32:
        raise bad_reference(referring, log.name, "its checksum differs: the file was changed")
    return b"".join(chunks)


def _blocks(
    storage: Storage, log: ReferredLog, referring: str, write: str
) -> Iterator[tuple[LocatedBlock, bytes]]:
    data, path = load_referred(storage, log, referring), _beside(referring, log.name)
    for block in decode_blocks(lambda start, end: data[start:end], len(data), path):
        if isinstance(block, CorruptSpan):
            raise bad_reference(referring, log.name, block.why)
        content = _content(block, data)
        is_own = block.instant_time == write and block.type in _TYPES and not block.compacted
        if not is_own or is_reference(content):
            why = f"a block in it is no row or delete of the write {write}"
            raise bad_reference(referring, log.name, why)
        yield LocatedBlock(path, block), content


def _beside(path: str, name: str) -> str:
    folder, slash, _ = path.rpartition("/")
    return f"{folder}{slash}{name}"
