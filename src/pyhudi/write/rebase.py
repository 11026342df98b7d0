"""The rows of a write's own files, which a rebase writes again under another instant.

A write that met a conflict no longer has its input: it was a stream, or Spark would have to compute
it again and might compute other rows. But all of its rows are in its files, which no reader sees.

If nothing else has changed, the rows of a file group stay together. In a partition that was resized
meanwhile each row is placed by its key again (`rebased_logs`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.files.log_file import CorruptSpan, decode_blocks
from pyhudi.format.table.column_owners import RANK_COLUMN, ROW_RANK
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.read.batch_size import batch_rows
from pyhudi.storage.protocol import Storage
from pyhudi.table.log_blocks import LocatedBlock, decode_log_block
from pyhudi.table.merge import LogRows, MergeRule
from pyhudi.table.rows.row_layout import RowLayout
from pyhudi.table.schema import RECORD_KEY, conform
from pyhudi.write.buffer import RowBuffer
from pyhudi.write.files.spec import KeyedRows, not_whole, taken_away
from pyhudi.write.plan import WritePlan
from pyhudi.write.spill import spilled_logs
from pyhudi.write.tasks import FoundDeletesTask

_BATCH_ROWS = 1 << 16


def files_by_group(stats: Iterable[WriteStat]) -> dict[FileGroupId, tuple[str, ...]]:
    """Return the files with rows of each group, in the order in which they were written."""
    found: dict[FileGroupId, list[WriteStat]] = {}
    for stat in stats:
        if stat.is_reference:
            continue
        group = FileGroupId(stat.partition_path or "", stat.file_id or "")
        found.setdefault(group, []).append(stat)
    return {
        group: tuple(s.data_path for s in sorted(files, key=lambda s: s.log_version or 0))
        for group, files in found.items()
    }


def rebased_rows(storage: Storage, layout: RowLayout, paths: Iterable[str]) -> Iterator[KeyedRows]:
    """Yield the rows of these files, batch by batch; the blocks of a log one after the other."""
    for path in paths:
        read = _base_rows if path.endswith(".parquet") else _log_rows
        try:
            for batch in read(storage, layout.stored, path):
                batch = _without_placeholders(batch, layout)
                keys = batch.column(RECORD_KEY)
                yield KeyedRows(batch.select(layout.data.names), keys)
        except FileNotFoundError:
            raise taken_away(path) from None


def rebased_logs(
    plan: WritePlan, stats: Iterable[WriteStat], bytes_max: int
) -> Iterator[WriteStat]:
    """Write the rows of these files as logs, each where its key belongs by now."""
    assert not isinstance(plan.task, FoundDeletesTask)
    layout, storage = plan.spec.layout, plan.files.storage
    files = files_by_group(stats).values()
    batches = (part.rows for paths in files for part in rebased_rows(storage, layout, paths))
    return spilled_logs(plan.files, RowBuffer(plan.task.shape), batches, bytes_max)


def _without_placeholders(batch: pa.RecordBatch, layout: RowLayout) -> pa.RecordBatch:
    """Return partial rows without their placeholder rows, which are made again when written."""
    if RANK_COLUMN not in layout.stored.names or RANK_COLUMN in layout.data.names:
        return batch
    return batch.filter(pc.equal(batch.column(RANK_COLUMN), ROW_RANK))


def _base_rows(storage: Storage, schema: pa.Schema, path: str) -> Iterator[pa.RecordBatch]:
    with storage.open(path) as source:
        file = pq.ParquetFile(source)
        groups = range(file.metadata.num_row_groups)
        size = batch_rows(file.metadata, groups, file.schema_arrow.names, _BATCH_ROWS)
        for batch in file.iter_batches(size):
            yield conform(batch, schema, path)


def _log_rows(storage: Storage, schema: pa.Schema, path: str) -> Iterator[pa.RecordBatch]:
    found = storage.stat(path)
    if found is None:
        raise taken_away(path)
    for block in decode_blocks(lambda start, end: storage.read(path, start, end), found.size, path):
        if isinstance(block, CorruptSpan):
            raise not_whole(path, block.why)
        content = storage.read(path, block.content_start, block.content_end)
        rows = decode_log_block(LocatedBlock(path, block), content, schema, MergeRule())
        assert isinstance(rows, LogRows), "deletes are never rebased"
        yield rows.rows
