"""Reading slices, beside the data: splits in, Arrow batches out.

These functions know a storage, a spec and a split, and nothing of Spark or of the process they run
in; the local engine and Spark tasks call the very same ones. A base file streams through in
batches, so a task holds the logs of one slice and one batch of its base file.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyhudi.errors import CorruptTableError, InvalidRequestError, UnavailableError
from pyhudi.format.files.log_file import BlockType, CorruptSpan, decode_blocks
from pyhudi.format.files.parquet_footer import RowGroup, decode_row_groups
from pyhudi.plan.changes import READ_AGAIN
from pyhudi.plan.predicate.binding import BoundPredicate, ColumnRange
from pyhudi.plan.scan import CommitFolders, ReadSpec, ScanPlan, SliceRead, Split
from pyhudi.read.batch_size import batch_rows
from pyhudi.read.referred_logs import followed
from pyhudi.read.torn_log import load_committed_file
from pyhudi.storage.protocol import Storage
from pyhudi.table.committed_files import CommittedFile, LostFile, lost_file_error
from pyhudi.table.file_group import BaseFile, FileSlice, LogFile
from pyhudi.table.log_blocks import LocatedBlock, block_schema, counting_blocks, decode_log_block
from pyhudi.table.merge import LogDeletes, LogRows, MergedLogs, fold_logs, merge_slice
from pyhudi.table.schema import COMMIT_TIME, RECORD_KEY, conform
from pyhudi.table.schema_changes import ChangeKind, column_changes
from pyhudi.timeline.completion import Visibility

BATCH_ROWS = 1 << 17
#: A log file up to this size is read in one request; of larger ones, blocks are read singly.
_WHOLE_LOG_BYTES = 8 * 1024 * 1024


class CorruptBlockWarning(UserWarning):
    """Bytes of a log file that hold no whole block were skipped, as the format demands."""


@dataclass(slots=True)
class Tally:
    """What was read of one slice, for callers that record it. Complete when all its rows are
    read."""

    base_rows: int = 0
    records: int = 0  # of all log blocks, deletes included
    blocks: int = 0
    block_bytes: int = 0
    rollback_blocks: int = 0
    corrupt_blocks: int = 0
    logs: MergedLogs | None = None  # None if there are no logs to merge

    def counted(self, base: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in base:
            self.base_rows += batch.num_rows
            yield batch


def read_split(
    storage: Storage, spec: ReadSpec, split: Split, tally: Tally | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a split, in the spec's output schema. A tally is for a split of one
    slice."""
    for read in split.reads:
        for batch in _slice_rows(storage, spec, read, tally or Tally()):
            finished = _finished(batch, spec, read)
            if finished.num_rows:
                yield finished


def read_rows(
    storage: Storage, plan: ScanPlan, limit: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a plan, one slice after the other; with a limit, reading stops there."""
    batches = (b for split in plan.splits() for b in read_split(storage, plan.spec, split))
    if limit is None:
        yield from batches
        return
    # Take no batch that is not needed.
    while limit > 0 and (batch := next(batches, None)) is not None:
        yield batch.slice(0, limit)
        limit -= batch.num_rows


def _slice_rows(
    storage: Storage, spec: ReadSpec, read: SliceRead, tally: Tally
) -> Iterator[pa.RecordBatch]:
    slice_ = read.slice
    if read.keys_in:
        return _changed_rows(storage, spec, read)
    if not slice_.logs:
        plain = _base_rows(storage, slice_.base, spec.plain, _file_predicate(spec, read))
        return tally.counted(plain)
    blocks = read_log_blocks(storage, slice_.logs, spec, spec.visibility, tally)
    instants = spec.row_instants
    changed = _keys(blocks) if spec.by_keys else None
    if spec.row_instants is not None and any(isinstance(b, LogRows) and b.columns for b in blocks):
        if read.whole is None or spec.whole_visibility is None:
            raise _lost_past(slice_)
        slice_, instants = read.whole, None
        blocks = read_log_blocks(storage, slice_.logs, spec, spec.whole_visibility)
    # A partial row has its key columns from the base row, so no base row may be left out.
    whole = all(isinstance(block, LogDeletes) or block.columns is None for block in blocks)
    predicate = spec.key_predicate if whole else None
    base = tally.counted(_base_rows(storage, slice_.base, spec.merged, predicate, spec.may_lack))
    # For changes, older rows that a compaction carried along are removed before they can win.
    base = (_of_instants(batch, instants) for batch in base)
    if not blocks:
        return base
    tally.logs = fold_logs(blocks, spec.merged, spec.rule)
    merged = merge_slice(base, tally.logs, spec.rule)
    return merged if changed is None else (_of_keys(batch, changed, spec) for batch in merged)


def _changed_rows(storage: Storage, spec: ReadSpec, read: SliceRead) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a slice as of the range's end that changed in other slices."""
    assert spec.whole_visibility is not None
    logs = [log for slice_ in read.keys_in for log in slice_.logs]
    changed = _keys(read_log_blocks(storage, logs, spec, spec.visibility))
    blocks = read_log_blocks(storage, read.slice.logs, spec, spec.whole_visibility)
    rows = _base_rows(storage, read.slice.base, spec.merged, None, spec.may_lack)
    if blocks:
        rows = merge_slice(rows, fold_logs(blocks, spec.merged, spec.rule), spec.rule)
    return (_of_keys(batch, changed, spec) for batch in rows)


def _lost_past(slice_: FileSlice) -> InvalidRequestError:
    return InvalidRequestError(
        "the changes of this range are no longer complete",
        why=f"{slice_.logs[0].path!r} holds parts of rows, and cleaning removed the rest",
        next_step=READ_AGAIN,
    )


def _keys(blocks: Sequence[LogRows | LogDeletes]) -> pa.Array:
    found = [block.rows.column(RECORD_KEY) for block in blocks if isinstance(block, LogRows)]
    return pa.concat_arrays([pa.array([], pa.string()), *found])


def _of_keys(batch: pa.RecordBatch, keys: pa.Array, spec: ReadSpec) -> pa.RecordBatch:
    """Return the rows with one of the keys, and those of an overwrite of the range."""
    times = pa.array(sorted(spec.row_instants or ()), pa.string())
    by_key = pc.is_in(batch.column(RECORD_KEY), value_set=keys)
    return batch.filter(pc.or_(by_key, pc.is_in(batch.column(COMMIT_TIME), value_set=times)))


def _file_predicate(spec: ReadSpec, read: SliceRead) -> BoundPredicate | None:
    """Return the predicate, unless it is about a column that the file lacks, or has otherwise."""
    if spec.predicate is None or spec.predicate.columns.isdisjoint(dict(read.constants)):
        return spec.predicate
    return None


def _of_instants(batch: pa.RecordBatch, instants: frozenset[str] | None) -> pa.RecordBatch:
    """Return the rows that these instants wrote; all rows without instants."""
    if instants is None:
        return batch
    times = pa.array(sorted(instants), pa.string())
    return batch.filter(pc.is_in(batch.column(COMMIT_TIME), value_set=times))


def _finished(batch: pa.RecordBatch, spec: ReadSpec, read: SliceRead) -> pa.RecordBatch:
    """Filter merged rows and select the output columns."""
    for name, value in read.constants:
        index = batch.schema.get_field_index(name)
        if index >= 0:
            column = pa.repeat(pa.scalar(value, batch.schema.field(index).type), batch.num_rows)
            batch = batch.set_column(index, batch.schema.field(index), column)
    if not (spec.by_keys and (read.slice.logs or read.keys_in)):  # else they are chosen already
        batch = _of_instants(batch, spec.row_instants)
    if spec.predicate is not None:
        batch = batch.filter(spec.predicate.mask(batch))
    return batch.select(spec.output.names)


# ---- base files


def _base_rows(
    storage: Storage,
    base: BaseFile | None,
    schema: pa.Schema,
    predicate: BoundPredicate | None,
    may_lack: frozenset[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    if base is None:
        return
    with _opened(storage, base.path) as source:
        try:
            file = pq.ParquetFile(source, pre_buffer=False)
            groups = _row_groups(source, file, schema, predicate)
            if not groups:
                return  # older Arrows cannot read a file without row groups, such as a seed
            found = file.schema_arrow.names
            _refuse_lost_columns(base.path, file.schema_arrow, schema, may_lack)
            # If the file is too old for all of them, another column gives the number of rows.
            names = [name for name in found if name in schema.names] or found[:1]
            missing = sum(file.metadata.row_group(group).num_rows for group in groups)
            size = batch_rows(file.metadata, groups, names, BATCH_ROWS)
            for batch in file.iter_batches(size, row_groups=groups, columns=names):
                missing -= batch.num_rows
                yield conform(batch, schema, base.path)
        # What pyarrow raises for damage, and for names and statistics that make no sense.
        except (pa.ArrowException, OSError, ValueError, LookupError) as error:
            raise _broken_base(base.path, f"it is not sound parquet ({error})") from error
        if missing:
            raise _broken_base(base.path, f"{missing} rows that its footer claims are missing")


def _refuse_lost_columns(
    path: str, found: pa.Schema, schema: pa.Schema, may_lack: frozenset[str] | None
) -> None:
    """Raise CorruptTableError if a rewrite would lose the values of a column.

    A writer that checks nothing may record an old schema, and take a column out of the table that
    another writer has added.
    """
    if may_lack is None:
        return
    names = {*schema.names}
    if lost := [f.name for f in found if f.name not in names | may_lack and not _is_hudis(f.name)]:
        raise _would_be_lost(path, lost[0], str(found.field(lost[0]).type))
    nested = [field for field in found if field.type.num_fields and field.name in names]
    if not nested:
        return
    within = pa.schema([schema.field(field.name) for field in nested])
    for change in column_changes(pa.schema(nested), within):
        if change.kind is ChangeKind.DROPPED and change.path not in may_lack:
            raise _would_be_lost(path, change.path, change.before or "")


def _is_hudis(name: str) -> bool:
    return name.startswith("_hoodie_")


def _would_be_lost(path: str, column: str, type_: str) -> CorruptTableError:
    return CorruptTableError(
        f"the values of column {column!r} would be lost",
        why="the file has it, the table's schema does not, and no commit records that it was"
        " dropped: another engine has recorded an older schema",
        next_step=f"Bring it back as {type_} with table.update_schema() and"
        " union_by_name, and delete it there afterwards if it is not wanted"
        " (docs/differences.md)",
        path=path,
    )


def load_base_row_count(storage: Storage, base: BaseFile) -> int:
    """Return how many rows a base file has, by its footer."""
    with _opened(storage, base.path) as source:
        try:
            return int(pq.ParquetFile(source, pre_buffer=False).metadata.num_rows)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _broken_base(base.path, f"it is not sound parquet ({error})") from error


def load_base_schema(storage: Storage, base: BaseFile) -> pa.Schema:
    """Return the columns of a base file."""
    with _opened(storage, base.path) as source:
        try:
            schema = pq.read_schema(source)
            names = schema.names
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _broken_base(base.path, f"it is not sound parquet ({error})") from error
    if len(set(names)) != len(names):
        raise _broken_base(base.path, "it has several columns of one name")
    return schema


def _opened(storage: Storage, path: str) -> pa.NativeFile:
    try:
        return storage.open(path)
    except FileNotFoundError:
        raise UnavailableError(
            f"{path!r} is gone",
            why="it was cleaned, or its write rolled back, after this read was planned",
            next_step="Read again, or retain more commits when cleaning",
        ) from None


def _row_groups(
    source: pa.NativeFile,
    file: pq.ParquetFile,
    schema: pa.Schema,
    predicate: BoundPredicate | None,
) -> list[int]:
    """Return the row groups that may hold a matching row, judged by their statistics."""
    every = list(range(file.metadata.num_row_groups))
    if predicate is None:
        return every
    arrow = file.schema_arrow
    # Statistics of a column that is promoted while it is read would be of another type.
    types = {
        name: arrow.field(name).type
        for name in predicate.columns & {*arrow.names} & {*schema.names}
        if arrow.field(name).type == schema.field(name).type
    }
    if not types:
        return every
    groups = decode_row_groups(source)
    return [n for n in every if predicate.may_match(_group_ranges(groups[n], types))]


def _group_ranges(group: RowGroup, types: dict[str, pa.DataType]) -> dict[str, ColumnRange]:
    return {
        chunk.path: ColumnRange(*chunk.bounds(types[chunk.path]), chunk.null_count, group.rows)
        for chunk in group.columns
        if chunk.path in types
    }


def _broken_base(path: str, why: str) -> CorruptTableError:
    return CorruptTableError(
        "a base file cannot be read",
        why=why,
        next_step="Restore the file from a copy, or from versions that the store keeps",
        path=path,
    )


# ---- log files


def read_log_blocks(
    storage: Storage,
    logs: Sequence[LogFile],
    spec: ReadSpec,
    visibility: Visibility,
    tally: Tally | None = None,
) -> list[LogRows | LogDeletes]:
    """Return the rows and deletes of the visible blocks of a slice's log files, in merge order."""
    tally = tally or Tally()
    sources = {log.path: _LogSource(storage, log, spec.commits) for log in logs}
    placed = [block for log in logs for block in sources[log.path].blocks()]
    counting = counting_blocks(placed, visibility)
    if spec.may_lack is not None:
        for block in counting:
            if (found := block_schema(block)) is not None:
                _refuse_lost_columns(block.path, found, spec.merged, spec.may_lack)
    contents = (
        (block, sources[block.path].read(block.block.content_start, block.block.content_end))
        for block in counting
    )
    decoded = (
        decode_log_block(block, content, spec.merged, spec.rule)
        for block, content in followed(storage, contents)
    )
    found = [block for block in decoded if block is not None]
    tally.blocks = len(counting)
    tally.block_bytes = sum(b.block.content_end - b.block.content_start for b in counting)
    tally.records = sum(
        block.rows.num_rows if isinstance(block, LogRows) else len(block.keys) for block in found
    )
    tally.rollback_blocks = sum(b.block.type is BlockType.COMMAND for b in placed)
    tally.corrupt_blocks = sum(source.corrupt for source in sources.values())
    return found


class _LogSource:
    """One log file. A small one is read whole, once."""

    def __init__(self, storage: Storage, log: LogFile, commits: CommitFolders | None) -> None:
        self._storage = storage
        self._log = log
        self._commits = commits
        self._whole: bytes | None = None
        self.corrupt = 0  # spans that hold no whole block, once all blocks were read

    def blocks(self) -> Iterator[LocatedBlock]:
        path = self._log.path
        if self._log.size <= _WHOLE_LOG_BYTES:
            self._whole = self._fetch(0, None)
        size = self._log.size if self._whole is None else len(self._whole)
        if not size:
            self._step_over(CorruptSpan(0, 0, "the file is empty"), size)
        for found in decode_blocks(self.read, size, path):
            if isinstance(found, CorruptSpan):
                self._step_over(found, size)
            else:
                yield LocatedBlock(path, found)

    def _step_over(self, span: CorruptSpan, size: int) -> None:
        """Warn of bytes that hold no block.

        CorruptTableError at the end of a file that a commit names: what is missing there was
        committed. In the middle of such a file, an attempt failed that was repeated behind it.
        """
        if span.end == size and self._commits is not None:
            named = load_committed_file(self._storage, self._commits, self._log)
            if named is not None:
                raise _torn_log(named, span, size)
        self.corrupt += 1
        warnings.warn(
            f"bytes {span.start} to {span.end} of {self._log.path!r} hold no whole log block"
            f" ({span.why}) and are skipped",
            CorruptBlockWarning,
            stacklevel=2,
        )

    def read(self, start: int, end: int) -> bytes:
        if self._whole is not None:
            return self._whole[start:end]
        data = self._fetch(start, end)
        if len(data) != end - start:
            raise CorruptTableError(
                "a log file is shorter than its listing said",
                why=f"{end - start} bytes were requested and {len(data)} are there",
                next_step="Read again; if the error repeats, restore the file from a copy",
                path=self._log.path,
                offset=start,
            )
        return data

    def _fetch(self, start: int, end: int | None) -> bytes:
        try:
            return self._storage.read(self._log.path, start, end)
        except FileNotFoundError:
            raise UnavailableError(
                f"{self._log.path!r} is gone",
                why="it was cleaned, or its write rolled back, after this read was planned",
                next_step="Read again, or retain more commits when cleaning",
            ) from None


def _torn_log(file: CommittedFile, span: CorruptSpan, size: int) -> CorruptTableError:
    if not size or size < (file.size or 0):
        lost = LostFile(file.path, file.commit, file.size, size)
        return lost_file_error(lost, "a log file cannot be read")
    return CorruptTableError(
        "a log file cannot be read",
        why=f"the write {file.commit} committed it, and its end is not a whole block ({span.why})",
        next_step="Restore the file from a copy, or from versions that the store keeps. Before that"
        " do not compact the table, which would make the loss permanent",
        path=file.path,
        offset=span.start,
    )
