"""The rings of a toy table, and the few functions of production that look into data files.

Rings, plans, names of copies, and everything that decides about them are those of production. So
are the keys' places on a ring. Only the bytes of rows are not: a resize reads and copies rows, and
for that it is shown the rows of a toy table as blocks of a log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from unittest.mock import patch

import pyarrow as pa

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.files.log_file import BlockType, HeaderKey, LogBlock
from pyhudi.format.table.ring_file import Ring
from pyhudi.index.children import KeyOwners
from pyhudi.index.consistent_bucket import ring_positions
from pyhudi.index.layout import BucketLayout, SimpleLayout
from pyhudi.read import plan
from pyhudi.services.resizing import schedule
from pyhudi.simulate.table.rows import (
    KEYS,
    Placing,
    Row,
    decode_reference,
    decode_rows,
    encode_rows,
    group_of,
    partition_of,
)
from pyhudi.simulate.table.table import RECORD_KEY, GoneError, load_rows
from pyhudi.storage.objects import dual_logs
from pyhudi.storage.protocol import Storage
from pyhudi.table.file_group import FileSlice, LogFile
from pyhudi.table.log_blocks import LocatedBlock
from pyhudi.write import schema_change
from pyhudi.write.files import copied_log
from pyhudi.write.files.copy_source import SourceGoneError
from pyhudi.write.resizing import bases


@cache
def position_of(key: str) -> int:
    """Return the place of a key on the ring of its partition."""
    return int(ring_positions(pa.array([key]), RECORD_KEY)[0].as_py())


def group_on(ring: Ring, key: str) -> FileGroupId:
    """Return the file group that owns the key, in the plainest way."""
    ends = [node.position for node in ring.nodes]
    node = ring.nodes[bisect_left(ends, position_of(key)) % len(ends)]
    return FileGroupId(ring.partition, node.file_id)


def placing_by(layout_of: Callable[[str], BucketLayout]) -> Placing:
    """Return where keys belong by these layouts, each of which is asked for once."""
    known: dict[str, BucketLayout] = {}

    def group(key: str) -> FileGroupId:
        partition = partition_of(key)
        if partition not in known:
            known[partition] = layout_of(partition)
        layout = known[partition]
        if isinstance(layout, SimpleLayout):
            return group_of(key)
        return layout.group(int(layout.assign(pa.array([key]))[0]))

    return group


# -- rows for production


@contextmanager
def rows_are_toys() -> Iterator[None]:
    """Let resizes read and copy the rows of toy tables."""
    with ExitStack() as stack:
        for replacement in (
            patch.object(copied_log, "source_blocks", _blocks),
            patch.object(copied_log, "_rows", _parts),
            patch.object(copied_log, "_deletes", _parts),
            patch.object(copied_log, "stored_counts", _stored_counts),
            patch.object(copied_log, "block_records", _block_records),
            patch.object(schema_change, "copied_write", _copied_write),
            patch.object(bases, "_load_rows", _load_row_count),
            patch.object(schedule, "sample_keys", _sample_keys),
            patch.object(dual_logs, "is_log_of", _is_log_of),
            patch.object(plan, "referred_paths", _referred_paths),
        ):
            stack.enter_context(replacement)
        yield


def _blocks(
    storage: Storage, path: str, size: int, write: str
) -> Iterator[tuple[LocatedBlock, bytes]]:
    """Yield the rows of a log as blocks: placeholders for new keys, partial or whole rows,
    deletes."""
    rows = _source_rows(storage, path)
    if strange := {row.requested for row in rows} - {write}:
        raise AssertionError(f"{path} has rows of {sorted(strange)}, not of {write}")
    parts = [row for row in rows if row.cells is not None]
    whole = [row for row in rows if row.cells is None and not row.is_deleted]
    deletes = [row for row in rows if row.is_deleted]
    fresh = [row for row in parts if row.is_fresh]
    for type_, is_partial, its in (
        (BlockType.PARQUET_DATA, False, whole),
        (BlockType.PARQUET_DATA, True, parts),
        (BlockType.DELETE, False, deletes),
    ):
        if its:
            header = {HeaderKey.IS_PARTIAL: "true"} if is_partial else {}
            yield _located(path, type_, header), encode_rows(its)
    if fresh:  # they have no bytes of their own, and are counted
        yield (
            _located(path, BlockType.PARQUET_DATA, {HeaderKey.SCHEMA: "placeholders"}),
            (encode_rows(fresh)),
        )


def _located(path: str, type_: BlockType, header: dict[HeaderKey, str]) -> LocatedBlock:
    return LocatedBlock(path, LogBlock(0, 0, type_, header, 0, 0))


def _is_placeholders(block: LogBlock) -> bool:
    return HeaderKey.SCHEMA in block.header


def _source_rows(storage: Storage, path: str) -> list[Row]:
    try:
        return load_rows(storage, path)
    except GoneError as error:
        raise SourceGoneError(
            error.what, why=error.why, next_step="Read again", path=path
        ) from None


def _parts(
    located: LocatedBlock, content: bytes, owners: KeyOwners
) -> Iterator[tuple[int, bytes, int]]:
    """Yield the rows that each owner gets: its ordinal, bytes and count."""
    found: dict[int, list[Row]] = {}
    for row in decode_rows(content):
        ordinal = int(owners.assign(pa.array([row.key]))[0])
        found.setdefault(ordinal, []).append(row)
    for ordinal, rows in sorted(found.items()):
        data = b"" if _is_placeholders(located.block) else encode_rows(rows)
        yield ordinal, data, len(rows)


def _stored_counts(storage: Storage, path: str, size: int, write: str) -> tuple[int, int]:
    counts = {True: 0, False: 0}
    for located, content in _blocks(storage, path, size, write):
        counts[located.block.type is BlockType.DELETE] += len(decode_rows(content))
    return counts[False], counts[True]


def _block_records(block: LogBlock, content: bytes, path: str) -> int:
    return len(decode_rows(content))


def _copied_write(storage: Storage, copy: LogFile) -> str | None:
    try:
        return load_rows(storage, copy.path)[0].requested
    except GoneError:
        return None


def _load_row_count(storage: Storage, requested: str, path: str) -> int | None:
    try:
        return len(decode_rows(storage.read(path)))
    except FileNotFoundError:
        return None


def _is_log_of(storage: Storage, path: str, write: str) -> bool:
    try:
        return all(row.requested == write for row in load_rows(storage, path))
    except GoneError:
        return False


def _referred_paths(storage: Storage, path: str, write: str) -> frozenset[str]:
    try:
        names = decode_reference(storage.read(path))
    except FileNotFoundError:
        return frozenset()
    return frozenset(f"{path.rpartition('/')[0]}/{name}" for name in names)


def _sample_keys(storage: Storage, slice_: FileSlice) -> pa.Array:
    base = () if slice_.base is None else (slice_.base,)
    keys = {row.key for file in (*base, *slice_.logs) for row in load_rows(storage, file.path)}
    return pa.array(sorted(keys), pa.string())


def all_groups(rings: Sequence[Ring]) -> list[FileGroupId]:
    """Return the file groups of all nodes."""
    return [FileGroupId(ring.partition, node.file_id) for ring in rings for node in ring.nodes]


def keys_of(partition: str) -> list[str]:
    return [key for key in KEYS if partition_of(key) == partition]
