"""Log files: a plain sequence of blocks, each framed by a magic and two lengths.

    offset  size  field
    0       6     magic ``#HUDI#``
    6       8     H: bytes that follow this field up to the end of the block
    14      4     log format version (1)
    18      4     block type
    22      var   header map
            8     content length
            var   content
            var   footer map
    end-8   8     T = H + 6: the block's bytes from the magic up to, not including, this field

Integers are big-endian. A writer may die in the middle of a block, and the next writer of the
same file goes on behind it, so a reader has to step over what is broken: a block is corrupt when
it runs past the end of the file, when T disagrees with H, or when neither a magic nor the end of
the file follows it. The reader then looks for the next magic and goes on there. Everything else
that does not fit (a header that overruns its block, an unknown block type) is not a torn write but
damage, and is an error.

Lengths are compared with the bytes that are there before anything is read or allocated.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from pyhudi.errors import CorruptTableError, UnsupportedTableError

MAGIC = b"#HUDI#"
FORMAT_VERSION = 1
BLOCK_BYTES_MAX = 512 * 1024 * 1024
HEADER_ENTRIES_MAX = 64
#: A torn write leaves one span, and one more for each magic among the bytes that it did write.
CORRUPT_SPANS_MAX = 1000

_PREFIX = struct.Struct(">6sQ")  # magic, H
_LONG = struct.Struct(">Q")
_INT = struct.Struct(">i")
_VERSION_AND_TYPE = struct.Struct(">ii")
_ENTRY = struct.Struct(">ii")
#: version, type, two empty maps, content length, T: the least that H can cover.
_SMALLEST_BODY = 8 + 4 + 8 + 4 + 8
_SEARCH_CHUNK = 1 << 20
#: A header is mostly the Avro schema; one read usually takes all of it.
_HEADER_READ = 1 << 16

ReadRange = Callable[[int, int], bytes]
"""Bytes [start, end) of a file."""


class BlockType(IntEnum):
    COMMAND = 0
    DELETE = 1
    CORRUPT = 2
    AVRO_DATA = 3
    HFILE_DATA = 4
    PARQUET_DATA = 5
    CDC_DATA = 6


class HeaderKey(IntEnum):
    INSTANT_TIME = 0
    TARGET_INSTANT_TIME = 1
    SCHEMA = 2
    COMMAND_BLOCK_TYPE = 3
    COMPACTED_BLOCK_TIMES = 4
    RECORD_POSITIONS = 5
    BLOCK_IDENTIFIER = 6
    IS_PARTIAL = 7
    BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS = 8


Header = Mapping[HeaderKey, str]


@dataclass(frozen=True, slots=True)
class LogBlock:
    """A whole block. Its content stays in the file until a caller reads it."""

    start: int
    end: int
    type: BlockType
    header: Header
    content_start: int
    content_end: int
    footer: Header = field(default_factory=dict)

    @property
    def instant_time(self) -> str | None:
        return self.header.get(HeaderKey.INSTANT_TIME)

    @property
    def is_partial(self) -> bool:
        return self.header.get(HeaderKey.IS_PARTIAL, "").lower() == "true"

    @property
    def rolled_back(self) -> str | None:
        """Return the instant that this block rolls back, if it is a rollback command."""
        if self.type is not BlockType.COMMAND:
            return None
        return self.header.get(HeaderKey.TARGET_INSTANT_TIME)

    @property
    def compacted(self) -> tuple[str, ...]:
        """The instants whose blocks this one replaces (log compaction)."""
        times = self.header.get(HeaderKey.COMPACTED_BLOCK_TIMES, "")
        return tuple(time for time in times.split(",") if time)


@dataclass(frozen=True, slots=True)
class CorruptSpan:
    """Bytes without a whole block, left by a writer that died while it wrote."""

    start: int
    end: int
    why: str


def decode_blocks(read: ReadRange, size: int, path: str) -> Iterator[LogBlock | CorruptSpan]:
    """Walk a log file's blocks in order, without reading their contents."""
    start, spans = 0, 0
    while start < size:
        prefix = read(start, min(start + _PREFIX.size, size))
        if prefix[: len(MAGIC)] != MAGIC[: len(prefix)]:
            # Only the first block can get here: every later start was found by its magic.
            raise CorruptTableError(
                "not a Hudi log file",
                why=f"it begins with {prefix[:6]!r} where the magic {MAGIC!r} belongs",
                next_step="Restore the file from a copy, or from versions that the store keeps",
                path=path,
                offset=start,
            )
        end, broken = _block_end(prefix, start, size, read)
        if broken:
            spans += 1
            if spans > CORRUPT_SPANS_MAX:
                raise _damaged(path, start, f"more than {CORRUPT_SPANS_MAX} here are not whole")
            start, span = _after_corrupt(read, start, size, broken)
            yield span
            continue
        yield _decode_block(read, start, end, path)
        start = end


def _block_end(prefix: bytes, start: int, size: int, read: ReadRange) -> tuple[int, str]:
    """Return where the block ends, and why it is corrupt if it is."""
    if len(prefix) < _PREFIX.size:
        return size, "the file ends inside a block's first 14 bytes"
    length = _PREFIX.unpack(prefix)[1]
    end = start + _PREFIX.size + length
    if end > size:
        return size, f"the block claims {length} bytes and the file ends before"
    if length < _SMALLEST_BODY:
        return end, f"the block claims {length} bytes, fewer than any block has"
    tail = read(end - _LONG.size, min(end + len(MAGIC), size))
    if _LONG.unpack_from(tail)[0] != length + len(MAGIC):
        return end, "the lengths at the block's two ends disagree"
    following = tail[_LONG.size :]
    if following and following != MAGIC:
        return end, "no block follows where this one ends"
    return end, ""


def _after_corrupt(read: ReadRange, start: int, size: int, why: str) -> tuple[int, CorruptSpan]:
    """Return the next magic behind a corrupt block's own, or the end of the file."""
    position = start + 1
    while position < size:
        chunk = read(position, min(position + _SEARCH_CHUNK, size))
        found = chunk.find(MAGIC)
        if found >= 0:
            return position + found, CorruptSpan(start, position + found, why)
        if position + len(chunk) >= size:
            break
        position += len(chunk) - len(MAGIC) + 1
    return size, CorruptSpan(start, size, why)


def _decode_block(read: ReadRange, start: int, end: int, path: str) -> LogBlock:
    body = start + _PREFIX.size
    limit = end - _LONG.size
    if end - start > BLOCK_BYTES_MAX:
        raise UnsupportedTableError(
            f"the log block at byte {start} of {path!r} is too large",
            why=f"it has {end - start} bytes and at most {BLOCK_BYTES_MAX} are read at once",
            next_step="Compact the file group with the engine that wrote it",
        )
    cursor = _Cursor(read, body, limit, path)
    version, number = _VERSION_AND_TYPE.unpack(cursor.take(_VERSION_AND_TYPE.size))
    if version != FORMAT_VERSION:
        raise _damaged(path, body, f"log format version {version} is not {FORMAT_VERSION}")
    try:
        block_type = BlockType(number)
    except ValueError:
        raise _damaged(path, body + 4, f"there is no block type {number}") from None
    header = cursor.header()
    content_length = _LONG.unpack(cursor.take(_LONG.size))[0]
    content_start = cursor.position
    if content_length > limit - content_start:
        raise _damaged(path, content_start - 8, f"content of {content_length} bytes overruns it")
    cursor.position = content_start + content_length
    footer = cursor.header()
    if cursor.position != limit:
        raise _damaged(path, cursor.position, f"{limit - cursor.position} bytes are left over")
    return LogBlock(
        start, end, block_type, header, content_start, content_start + content_length, footer
    )


class _Cursor:
    """Reads a block's small parts in order, and never past the block."""

    def __init__(self, read: ReadRange, position: int, limit: int, path: str) -> None:
        self.position = position
        self._read = read
        self._limit = limit
        self._path = path
        self._buffer = b""
        self._buffer_start = position

    def take(self, size: int) -> bytes:
        if size < 0 or size > self._limit - self.position:
            raise _damaged(self._path, self.position, f"a part of {size} bytes overruns it")
        offset = self.position - self._buffer_start
        if offset < 0 or offset + size > len(self._buffer):
            ahead = min(self.position + max(size, _HEADER_READ), self._limit)
            self._buffer = self._read(self.position, ahead)
            self._buffer_start, offset = self.position, 0
        self.position += size
        return self._buffer[offset : offset + size]

    def header(self) -> dict[HeaderKey, str]:
        count = _INT.unpack(self.take(_INT.size))[0]
        if not 0 <= count <= HEADER_ENTRIES_MAX:
            raise _damaged(self._path, self.position - 4, f"a header of {count} entries")
        entries: dict[HeaderKey, str] = {}
        for _ in range(count):
            at = self.position
            ordinal, length = _ENTRY.unpack(self.take(_ENTRY.size))
            try:
                entries[HeaderKey(ordinal)] = self.take(length).decode()
            except ValueError:
                raise _damaged(self._path, at, f"header entry {ordinal} is not text") from None
        return entries


def _damaged(path: str, offset: int, why: str) -> CorruptTableError:
    return CorruptTableError(
        "a log block is damaged",
        why=why,
        next_step="Restore the file from a copy, or from versions that the store keeps",
        path=path,
        offset=offset,
    )


def encode_block(
    block_type: BlockType, header: Header, content: bytes, footer: Header | None = None
) -> bytes:
    """Return one whole block. Header entries keep the order of the mapping."""
    body = b"".join(
        (
            _VERSION_AND_TYPE.pack(FORMAT_VERSION, block_type),
            _encode_header(header),
            _LONG.pack(len(content)),
            content,
            _encode_header(footer or {}),
        )
    )
    length = len(body) + _LONG.size
    return _PREFIX.pack(MAGIC, length) + body + _LONG.pack(length + len(MAGIC))


def _encode_header(header: Header) -> bytes:
    parts = [_INT.pack(len(header))]
    for key, value in header.items():
        text = value.encode()
        parts += (_ENTRY.pack(key, len(text)), text)
    return b"".join(parts)
