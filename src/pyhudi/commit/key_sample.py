"""The record keys in a data file, for the sample that a conflict error shows.

A base file also has rows that it took over from its predecessor. They carry the time of the write
that brought them, and are not compared here. A compaction has only such rows.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyhudi.errors import HudiError
from pyhudi.format.files.file_names import parse_data_file
from pyhudi.format.files.log_file import CorruptSpan, decode_blocks
from pyhudi.format.paths import file_name
from pyhudi.read.referred_logs import followed
from pyhudi.storage.protocol import Storage
from pyhudi.table.log_blocks import LocatedBlock, decode_log_block
from pyhudi.table.merge import LogDeletes, LogRows, MergeRule
from pyhudi.table.schema import COMMIT_TIME, RECORD_KEY

#: Larger files are not read for a sample.
_FILE_BYTES_MAX = 16 << 20
_FILES_MAX = 4
_ROWS_MAX = 1_000_000
_SCHEMA = pa.schema([(RECORD_KEY, pa.string())])


def shared_keys(
    storage: Storage, own: list[str], theirs: list[str], count: int, *, is_compaction: bool = False
) -> list[str] | None:
    """Return some keys that both wrote, or that a compaction has; None if they are unknown.

    The sample is optional in an error message, so no failure here is raised.
    """
    if not own or not theirs or len(own) > _FILES_MAX or len(theirs) > _FILES_MAX:
        return None
    try:
        ours = _keys(storage, own, with_carried=False)
        others = _keys(storage, theirs, with_carried=is_compaction)
    except (HudiError, pa.ArrowException, OSError, ValueError, LookupError, MemoryError):
        return None
    if ours is None or others is None:
        return None
    found = pc.unique(ours.filter(pc.is_in(ours, value_set=others)))
    return list(pc.drop_null(found).slice(0, count).to_pylist())


def _keys(storage: Storage, paths: list[str], *, with_carried: bool) -> pa.Array | None:
    parts = [pa.array([], pa.string())]
    for path in paths:
        found = storage.stat(path)
        if found is None or found.size > _FILE_BYTES_MAX:
            return None
        if path.endswith(".parquet"):
            parts += _base_keys(storage, path, with_carried=with_carried)
        else:
            parts += _log_keys(storage, path, found.size)
    return pa.concat_arrays([part.cast(pa.string()) for part in parts])


def _base_keys(storage: Storage, path: str, *, with_carried: bool) -> list[pa.Array]:
    name = parse_data_file(file_name(path))
    if name is None:
        raise ValueError("not the name of a data file")
    with storage.open(path) as source:
        file = pq.ParquetFile(source)
        if file.metadata.num_rows > _ROWS_MAX:
            raise ValueError("too many rows for a sample")
        if not file.metadata.num_row_groups:
            return []
        batches = file.iter_batches(columns=[COMMIT_TIME, RECORD_KEY], use_threads=False)
        if not with_carried:
            own = pa.scalar(name.requested)
            batches = (b.filter(pc.equal(b.column(COMMIT_TIME), own)) for b in batches)
        return [batch.column(RECORD_KEY) for batch in batches]


def _block_keys(block: LogRows | LogDeletes) -> pa.Array:
    return block.rows.column(RECORD_KEY) if isinstance(block, LogRows) else block.keys


def _log_keys(storage: Storage, path: str, size: int) -> list[pa.Array]:
    data = storage.read(path, 0, size)
    parts = []
    whole = (
        (LocatedBlock(path, block), data[block.content_start : block.content_end])
        for block in decode_blocks(lambda start, end: data[start:end], size, path)
        if not isinstance(block, CorruptSpan)
    )
    for block, content in followed(storage, whole):
        found = decode_log_block(block, content, _SCHEMA, MergeRule())
        if found is not None:
            parts.append(_block_keys(found))
    return parts
