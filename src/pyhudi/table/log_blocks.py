"""Which blocks of a slice's log files count, in which order, and what they say.

A log file's name carries the instant that wrote it, but the block's own INSTANT_TIME decides
whether it may be seen: the two differ in files that older writers appended to. Two kinds of blocks
refer to other blocks in the slice: a rollback command removes all blocks of its target instant, and
a block made by log compaction replaces the blocks of the instants it lists, at the position of the
newest of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyhudi.errors import CorruptTableError, UnsupportedTableError
from pyhudi.format.avro.records import decode_avro_content
from pyhudi.format.avro.schema import decode_arrow_schema
from pyhudi.format.files.delete_records import DeleteBatch, decode_delete_records
from pyhudi.format.files.log_file import BlockType, HeaderKey, LogBlock
from pyhudi.format.timeline.instant import is_instant_time
from pyhudi.table.merge import LogDeletes, LogRows, MergeRule
from pyhudi.table.schema import IS_DELETED, OPERATION, RECORD_KEY, conform
from pyhudi.timeline.completion import Visibility

#: A parquet block may inflate to this much whatever its own size is, by the ratio beyond that, and
#: never to more than the maximum.
INFLATED_BYTES_FREE = 64 * 1024 * 1024
INFLATED_RATIO_MAX = 200
INFLATED_BYTES_MAX = 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LocatedBlock:
    """A block and the log file that holds it."""

    path: str
    block: LogBlock


def counting_blocks(blocks: Iterable[LocatedBlock], visibility: Visibility) -> list[LocatedBlock]:
    """Return the blocks to merge, in merge order.

    They come in the order of files and of bytes.
    """
    found = list(blocks)
    # A command counts even if the rollback's own instant did not complete: its target is removed.
    gone = {located.block.rolled_back for located in found}
    seen = [located for located in found if _is_visible(located, visibility)]
    for located in seen:
        if located.block.instant_time not in gone:
            gone.update(located.block.compacted)
    kept = [
        located
        for located in seen
        if located.block.type is not BlockType.COMMAND and located.block.instant_time not in gone
    ]
    if any(located.block.compacted for located in kept):
        kept.sort(key=_merge_position)
    return kept


def _is_visible(located: LocatedBlock, visibility: Visibility) -> bool:
    instant = located.block.instant_time
    if instant is not None and is_instant_time(instant):
        return visibility.sees(instant)
    found = "lacks INSTANT_TIME" if instant is None else f"has INSTANT_TIME {instant[:40]!r}"
    raise CorruptTableError(
        "a log block has no instant time",
        why=f"its header {found}, so it is unknown whether it is committed",
        next_step="Restore the file from a copy, or from versions that the store keeps",
        path=located.path,
        offset=located.block.start,
    )


def _merge_position(located: LocatedBlock) -> str:
    return max(located.block.compacted, default=located.block.instant_time or "")


def decode_log_block(
    located: LocatedBlock, content: bytes, schema: pa.Schema, rule: MergeRule
) -> LogRows | LogDeletes | None:
    """Return the rows or deletes of a block in the schema of the read; None if it is empty."""
    block = located.block
    match block.type:
        case BlockType.AVRO_DATA:
            batch = _avro_rows(located, content)
        case BlockType.PARQUET_DATA:
            known = {*schema.names, IS_DELETED, OPERATION, rule.delete_column or IS_DELETED}
            batch = _parquet_rows(located, content, known)
        case BlockType.DELETE:
            return _deletes(located, content, schema, rule)
        case _:
            raise no_data_block(located)
    if not batch.num_rows:
        return None
    columns = frozenset(batch.schema.names) if block.is_partial else None
    try:
        rows, deleting = conform(batch, schema, located.path), deleting_rows(batch, rule)
    except pa.ArrowException as error:
        raise _unreadable(located, f"its columns do not fit the table's ({error})") from None
    _refuse_null_keys(located, rows.column(RECORD_KEY))
    return LogRows(rows, deleting, columns)


def decode_own_rows(located: LocatedBlock, content: bytes) -> pa.RecordBatch:
    """Return the rows of a data block as it has them, in the schema of its header."""
    own = decode_arrow_schema(_schema_json(located), located.path)
    if located.block.type is BlockType.AVRO_DATA:
        batch = _avro_rows(located, content)
    else:
        batch = _parquet_rows(located, content, None)
        if len(batch.schema.names) != len(own) or {*batch.schema.names} != {*own.names}:
            raise _unreadable(located, "its columns are not those that its header names")
    if RECORD_KEY not in own.names:
        raise _unreadable(located, "its rows have no keys")
    try:
        rows = conform(batch, own, located.path)
    except pa.ArrowException as error:
        raise _unreadable(located, f"its columns do not fit its header ({error})") from None
    _refuse_null_keys(located, rows.column(RECORD_KEY))
    return rows


def decode_own_deletes(located: LocatedBlock, content: bytes) -> list[DeleteBatch]:
    """Return the deletes of a block as it has them."""
    batches = decode_delete_records(content, located.path, located.block.content_start)
    for batch in batches:
        _refuse_null_keys(located, batch.record_keys)
    return batches


def no_data_block(located: LocatedBlock) -> UnsupportedTableError:
    block = located.block
    return UnsupportedTableError(
        f"the log block at byte {block.start} of {located.path!r} is {block.type.name}",
        why="such blocks do not belong to the rows of a data table",
        next_step="Compact the file group with the engine that wrote it",
    )


def _refuse_null_keys(located: LocatedBlock, keys: pa.Array) -> None:
    if keys.null_count:
        raise _unreadable(located, f"{keys.null_count} of its {len(keys)} records have no key")


def block_schema(located: LocatedBlock) -> pa.Schema | None:
    """Return the columns of a block of rows; None of a block of deletes."""
    if located.block.type not in (BlockType.AVRO_DATA, BlockType.PARQUET_DATA):
        return None
    return decode_arrow_schema(_schema_json(located), located.path)


def _schema_json(located: LocatedBlock) -> str:
    try:
        return located.block.header[HeaderKey.SCHEMA]
    except KeyError:
        raise _unreadable(located, "its header has no schema") from None


def _avro_rows(located: LocatedBlock, content: bytes) -> pa.RecordBatch:
    start = located.block.content_start
    return decode_avro_content(content, _schema_json(located), located.path, start)


def _parquet_rows(located: LocatedBlock, content: bytes, known: Set[str] | None) -> pa.RecordBatch:
    """Return the known columns of the rows; None: all that the block has."""
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        _refuse_bomb(located, file.metadata, len(content))
        names = file.schema_arrow.names
        wanted = [name for name in names if known is None or name in known]
        # In batches: `read` would make room for as many rows as the footer says there are.
        batches = list(file.iter_batches(columns=wanted, use_threads=False))
        if sum(batch.num_rows for batch in batches) != file.metadata.num_rows:
            raise _unreadable(located, f"its footer claims {file.metadata.num_rows} rows")
        return _one_batch(pa.Table.from_batches(batches, None if batches else file.schema_arrow))
    # What pyarrow raises for damage, and for names that are not UTF-8.
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(located, f"its parquet content is broken ({error})") from None


def _refuse_bomb(located: LocatedBlock, footer: pq.FileMetaData, size: int) -> None:
    """Raise if the block's footer claims too many bytes.

    A few kilobytes of parquet can expand to gigabytes.
    """
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    claimed = sum(group.total_byte_size for group in groups)
    most = min(INFLATED_BYTES_MAX, max(INFLATED_BYTES_FREE, INFLATED_RATIO_MAX * size))
    if claimed > most:
        raise _unreadable(located, f"it claims {claimed} bytes of rows, and {most} are allowed")


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    columns = [column.combine_chunks() for column in table.columns]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def deleting_rows(batch: pa.RecordBatch, rule: MergeRule) -> pa.BooleanArray:
    """Return which rows are deletes by a flag, by their operation, or by the table's own marker."""
    tests: list[tuple[str | None, object]] = [
        (IS_DELETED, True),
        (OPERATION, "D"),
        (rule.delete_column, rule.delete_value),
    ]
    deletes = pa.repeat(pa.scalar(False), batch.num_rows)
    for name, value in tests:
        index = batch.schema.get_field_index(name) if name is not None else -1
        if index < 0:
            continue
        column = batch.column(index)
        if isinstance(value, str):
            column = column.cast(pa.string())
        elif not pa.types.is_boolean(column.type):
            continue
        deletes = pc.or_(deletes, pc.fill_null(pc.equal(column, pa.scalar(value)), False))
    return deletes


def _deletes(
    located: LocatedBlock, content: bytes, schema: pa.Schema, rule: MergeRule
) -> LogDeletes | None:
    batches = decode_own_deletes(located, content)
    if not batches:
        return None
    parts = [delete_rows_batch(batch, schema, rule) for batch in batches]
    position = pc.sort_indices(pa.concat_arrays([batch.rows for batch in batches]))
    return LogDeletes(
        pa.concat_arrays([part.keys for part in parts]).take(position),
        tuple(
            pa.concat_arrays([part.ordering[n] for part in parts]).take(position)
            for n in range(len(rule.ordering))
        ),
        pa.concat_arrays([part.unconditional for part in parts]).take(position),
    )


def delete_rows_batch(batch: DeleteBatch, schema: pa.Schema, rule: MergeRule) -> LogDeletes:
    """Return the deletes with ordering values of one type, as the table's ordering columns."""
    types = [schema.field(name).type for name in rule.ordering]
    try:
        values = _ordering_columns(batch, len(types))
        ordering = tuple(v.cast(type_) for v, type_ in zip(values, types, strict=True))
        return LogDeletes(batch.record_keys, ordering, batch.unconditional)
    except (pa.ArrowException, ValueError):
        # Values that cannot be compared with the columns: Hudi lets such a delete win.
        nulls = tuple(pa.nulls(len(batch.rows), type_) for type_ in types)
        return LogDeletes(batch.record_keys, nulls, pa.repeat(True, len(batch.rows)))


def _ordering_columns(batch: DeleteBatch, count: int) -> list[pa.Array]:
    if batch.ordering is None:
        return [pa.nulls(len(batch.rows))] * count
    if pa.types.is_struct(batch.ordering.type):
        return list(batch.ordering.flatten())
    if bool(pc.all(batch.unconditional).as_py()):
        # Hudi's int 0 stands for "no value" whatever the column's type is.
        return [pa.nulls(len(batch.rows))] * count
    return [batch.ordering]


def _unreadable(located: LocatedBlock, why: str) -> CorruptTableError:
    return CorruptTableError(
        "a log block cannot be read",
        why=why,
        next_step="Restore the file from a copy, or from versions that the store keeps",
        path=located.path,
        offset=located.block.start,
    )
