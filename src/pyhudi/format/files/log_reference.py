"""A log block that refers to other logs of the same write, in place of rows.

While a virtual resize is pending, a write puts its rows into the logs of the new buckets. The log
of an old bucket then holds one block, which names those logs:

    type     PARQUET_DATA, version 1
    header   INSTANT_TIME and SCHEMA of the write
    content  8 bytes ``#PYHREF1``, then JSON: {"v": 1, "logs": [[name, bytes, crc32], ...]}

Apache Hudi and hudi-rs know such a block by its header, and skip it by its instant where the write
does not belong to the read. Where it does they read the content as parquet, which it is not, and
fail: no reader takes the block for one without rows.

Names are bare: a log lies in the folder of the file that refers to it. They count in their order. A
file group that a virtual resize makes has a mark in its file id (a UUID of version 8), so that
readers know by its name alone that its logs count for nothing before its base file does.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from pyhudi.errors import CorruptTableError
from pyhudi.format.files.file_names import LogFileName, parse_data_file
from pyhudi.format.files.log_file import BlockType, HeaderKey, encode_block

REFERENCE_MAGIC: Final = b"#PYHREF1"
#: What the content of a block takes at most, and how many logs it names.
REFERENCE_BYTES_MAX: Final = 16 << 20
REFERRED_LOGS_MAX: Final = 1 << 16
#: What a log that is referred to has at most. It is read whole, to compare its checksum.
REFERRED_BYTES_MAX: Final = 2 << 30
_VERSION = 1
_CRC_MAX = 0xFFFFFFFF
_MARKED = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}-\d+")


class ReferredLog(NamedTuple):
    """A log that a block refers to."""

    name: str  # bare
    size: int
    crc32: int


def checksum(chunks: Iterable[bytes]) -> int:
    """Return the CRC-32 of these bytes, one chunk after the other."""
    value = 0
    for chunk in chunks:
        value = zlib.crc32(chunk, value)
    return value


def encode_reference(logs: Sequence[ReferredLog], avro_json: str, requested: str) -> bytes:
    """Return the block of a write that names these logs."""
    record = {"v": _VERSION, "logs": logs}
    content = REFERENCE_MAGIC + json.dumps(record, separators=(",", ":")).encode()
    header = {HeaderKey.INSTANT_TIME: requested, HeaderKey.SCHEMA: avro_json}
    assert len(logs) <= REFERRED_LOGS_MAX
    assert len(content) <= REFERENCE_BYTES_MAX
    return encode_block(BlockType.PARQUET_DATA, header, content)


def is_reference(content: bytes) -> bool:
    """True if the content of a parquet block names logs."""
    return content.startswith(REFERENCE_MAGIC)


def decode_reference(content: bytes, path: str, write: str) -> tuple[ReferredLog, ...]:
    """Return the logs that a block of the write names; `path` is the file that the block is in.

    CorruptTableError if the block is damaged, or names what is no log of the write.
    """
    if len(content) > REFERENCE_BYTES_MAX:
        raise _damaged(path, f"it takes {len(content)} bytes")
    try:
        record = json.loads(content[len(REFERENCE_MAGIC) :])
        if record["v"] != _VERSION:
            raise _damaged(path, f"its version {record['v']!r:.40} is not {_VERSION}")
        logs = tuple(ReferredLog(*entry) for entry in record["logs"])
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise _damaged(path, f"its content is not what belongs there ({error!s:.200})") from None
    if not 0 < len(logs) <= REFERRED_LOGS_MAX:
        raise _damaged(path, f"it names {len(logs)} logs")
    for log in logs:
        _check(log, path, write)
    if len({log.name for log in logs}) < len(logs):
        raise _damaged(path, "it names a log twice")
    return logs


def _check(log: ReferredLog, path: str, write: str) -> None:
    if not (isinstance(log.name, str) and type(log.size) is int and type(log.crc32) is int):
        raise _damaged(path, f"{log!r:.200} is no log")
    name = parse_data_file(log.name)
    if not isinstance(name, LogFileName) or name.suffix:
        raise bad_reference(path, log.name, "it is not the name of a log beside that file")
    if name.requested != write:
        raise bad_reference(path, log.name, f"it is of another write than {write}")
    if not is_virtual_child(name.file_id):
        raise bad_reference(path, log.name, "its file group is not of a virtual resize")
    if not (0 < log.size <= REFERRED_BYTES_MAX and 0 <= log.crc32 <= _CRC_MAX):
        raise bad_reference(path, log.name, "its size or its checksum cannot be")


def bad_reference(path: str, referred: str, why: str) -> CorruptTableError:
    """Return the error for a log that a file refers to, and that is not what was referred to."""
    return CorruptTableError(
        f"the log {referred:.300}, to which another file refers, cannot be read",
        why=why,
        next_step="Read again. If the error repeats, restore both files from a copy, or from"
        " versions that the store keeps",
        path=path,
    )


def _damaged(path: str, why: str) -> CorruptTableError:
    return CorruptTableError(
        "a log block that refers to other logs is damaged",
        why=why,
        next_step="Restore the file from a copy, or from versions that the store keeps",
        path=path,
    )


# ---- the mark


def marked_as_virtual(uuid: str) -> str:
    """Return a random UUID with the mark of a file group that a virtual resize makes.

    >>> marked_as_virtual("f2a1c0de-0000-4000-8000-00000000abcd")
    'f2a1c0de-0000-8000-8000-00000000abcd'
    """
    return f"{uuid[:14]}8{uuid[15:]}"


def is_virtual_child(file_id: str) -> bool:
    """True if a virtual resize made the file group.

    Its logs are no part of the table before the resize has completed, but by reference.
    """
    return file_id[14:15] == "8" and _MARKED.fullmatch(file_id) is not None
