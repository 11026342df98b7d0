"""The blocks of a log that is copied.

Nothing of it may be missing, or the copy would lose it for good.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyhudi.errors import CorruptTableError
from pyhudi.format.files.log_file import (
    BlockType,
    CorruptSpan,
    decode_blocks,
)
from pyhudi.storage.protocol import Storage
from pyhudi.table.log_blocks import (
    LocatedBlock,
    no_data_block,
)

#: A source up to this size is read in one request.
_WHOLE_LOG_BYTES = 8 << 20


class SourceGoneError(CorruptTableError):
    """A log that is to be copied is not there, or not all of it."""


def source_blocks(
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
