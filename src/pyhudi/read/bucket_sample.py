"""A sample of the record keys in a file slice, to see where on the ring its rows lie.

Each file gives keys in proportion to its size. They are taken at equal distances, from row groups
and logs at equal distances, because keys that lie together may have hash fields in common. Nothing
is merged: a key of the base file that a log updates is counted twice, as its bytes are. At most a
few row groups are read, one column of them, and a few blocks of logs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pyhudi.errors import CorruptTableError, UnavailableError
from pyhudi.format.files.log_file import BlockType, CorruptSpan, decode_blocks
from pyhudi.read.batch_size import batch_rows
from pyhudi.storage.protocol import Storage
from pyhudi.table.file_group import BaseFile, FileSlice, LogFile
from pyhudi.table.log_blocks import LocatedBlock, decode_log_block
from pyhudi.table.merge import LogRows, MergeRule
from pyhudi.table.schema import RECORD_KEY

#: With so many, each of 64 shares is off by a sixteenth of itself, as a rule.
KEYS_MAX: Final = 16_384
ROW_GROUPS_MAX: Final = 4
LOGS_MAX: Final = 16
#: After so many bytes of blocks no further one is read; the first one always is.
LOG_BYTES_MAX: Final = 64 * 1024 * 1024

_BATCH_ROWS = 1 << 17
_SCHEMA = pa.schema([(RECORD_KEY, pa.string())])
_ROWS = (BlockType.AVRO_DATA, BlockType.PARQUET_DATA, BlockType.DELETE)

_T = TypeVar("_T")


def sample_keys(storage: Storage, slice_: FileSlice, keys_max: int = KEYS_MAX) -> pa.StringArray:
    """Return some record keys of the slice, about `keys_max` at most."""
    parts: list[pa.Array] = [pa.array([], pa.string())]
    total = max(1, slice_.bytes)
    if slice_.base is not None:
        parts += _base_keys(storage, slice_.base, -(-keys_max * slice_.base.size // total))
    logs = _spread(slice_.logs, LOGS_MAX)
    left = LOG_BYTES_MAX
    of_logs = keys_max * sum(log.size for log in slice_.logs) / total
    of_byte = of_logs / max(1, sum(log.size for log in logs))
    for log in logs:
        for read, keys in _log_keys(storage, log, left):
            left -= read
            parts.append(_every(keys, math.ceil(of_byte * read)))
    return pa.concat_arrays([part.cast(pa.string()) for part in parts])


def _spread(items: Sequence[_T], most: int) -> list[_T]:
    """Return at most so many of the items, at equal distances."""
    if len(items) <= most:
        return list(items)
    return [items[(2 * n + 1) * len(items) // (2 * most)] for n in range(most)]


def _every(keys: pa.Array, wanted: int) -> pa.Array:
    """Return about as many keys as wanted, at equal distances."""
    step = max(1, -(-len(keys) // max(1, wanted)))
    return keys.take(pa.array(np.arange(step // 2, len(keys), step)))


def _base_keys(storage: Storage, base: BaseFile, wanted: int) -> Iterator[pa.Array]:
    try:
        with storage.open(base.path) as source:
            file = pq.ParquetFile(source, pre_buffer=False)
            groups = _spread(range(file.metadata.num_row_groups), ROW_GROUPS_MAX)
            rows = sum(file.metadata.row_group(group).num_rows for group in groups)
            if not rows:
                return
            size = batch_rows(file.metadata, groups, [RECORD_KEY], _BATCH_ROWS)
            for batch in file.iter_batches(size, row_groups=groups, columns=[RECORD_KEY]):
                yield _every(batch.column(0), -(-wanted * len(batch) // rows))
    except FileNotFoundError:
        raise _gone(base.path) from None
    except (pa.ArrowException, OSError, ValueError, LookupError) as error:
        raise CorruptTableError(
            "a base file cannot be read",
            why=f"it is not sound parquet ({error})",
            next_step="Restore the file from a copy, or from versions that the store keeps",
            path=base.path,
        ) from error


def _log_keys(storage: Storage, log: LogFile, bytes_max: int) -> Iterator[tuple[int, pa.Array]]:
    """Yield the keys of blocks, each with the bytes that were read for it."""

    def read(start: int, end: int) -> bytes:
        try:
            return storage.read(log.path, start, end)
        except FileNotFoundError:
            raise _gone(log.path) from None

    if bytes_max <= 0:
        return
    for block in decode_blocks(read, log.size, log.path):
        if isinstance(block, CorruptSpan) or block.type not in _ROWS:
            continue
        content = read(block.content_start, block.content_end)
        bytes_max -= len(content)
        found = decode_log_block(LocatedBlock(log.path, block), content, _SCHEMA, MergeRule())
        if found is not None:
            keys = found.rows.column(RECORD_KEY) if isinstance(found, LogRows) else found.keys
            yield len(content), keys
        if bytes_max <= 0:
            return


def _gone(path: str) -> UnavailableError:
    return UnavailableError(
        f"{path!r} is gone",
        why="it was cleaned, or its write rolled back, after the table was listed",
        next_step="Repeat the call",
    )
