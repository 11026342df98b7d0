"""Copies of logs in the file groups that their rows belong to by now.

A copy is right if all copies together hold what the source holds, each record with its owner, in
the source's order, in blocks of the same kind, schema and instant.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count, groupby
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from column_types import SCHEMA as ALL_TYPES
from column_types import any_rows
from faulty_storage import FaultyStorage
from golden_tables import GoldenTables
from handmade import at
from pyhudi.errors import CorruptTableError, HudiError, UnsupportedTableError
from pyhudi.format.files.delete_records import delete_batch, encode_delete_records
from pyhudi.format.files.file_names import FileGroupId, LogFileName, parse_data_file
from pyhudi.format.files.log_file import (
    BlockType,
    CorruptSpan,
    HeaderKey,
    decode_blocks,
    encode_block,
)
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.index.ring_layout import RingLayout
from pyhudi.settings import LogBlockFormat
from pyhudi.storage.objects.markers import load_markers
from pyhudi.storage.open import open_storage
from pyhudi.storage.protocol import Storage
from pyhudi.table.file_group import LogFile
from pyhudi.table.log_blocks import LocatedBlock, decode_own_deletes, decode_own_rows
from pyhudi.write.files import copied_log
from pyhudi.write.files.copied_log import Sources, copied_logs
from pyhudi.write.files.copy_name import CopyName
from pyhudi.write.files.copy_source import SourceGoneError
from pyhudi.write.files.log_file import write_log
from pyhudi.write.files.spec import KeyedRows, Part
from ring_children import equal_parts
from written_tables import GROUP, WrittenTable, deletes

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
FORMATS = list(LogBlockFormat)
RESIZE = at(5)
_numbers = count()


HALVES = equal_parts(2)
EIGHTHS = equal_parts(8)


def a_storage() -> Storage:
    return open_storage(f"memory://copied-{next(_numbers)}")


def source(storage: Storage, path: str) -> LogFile:
    name = parse_data_file(path.rpartition("/")[2])
    assert isinstance(name, LogFileName)
    found = storage.stat(path)
    assert found is not None
    return LogFile(path, found.size, name)


def sources(storage: Storage, stats: tuple[WriteStat, ...]) -> list[LogFile]:
    return [source(storage, stat.data_path) for stat in stats]


def blocks_of(storage: Storage, path: str) -> Iterator[tuple[LocatedBlock, bytes]]:
    data = storage.read(path)
    for block in decode_blocks(lambda start, end: data[start:end], len(data), path):
        assert not isinstance(block, CorruptSpan)
        yield LocatedBlock(path, block), data[block.content_start : block.content_end]


def records_of(storage: Storage, path: str) -> Iterator[tuple[Any, ...]]:
    """Each record with all that its block says: kind, instant, schema, and whether it is a part."""
    for located, content in blocks_of(storage, path):
        block = located.block
        says = (block.type, block.instant_time, block.header[HeaderKey.SCHEMA], block.is_partial)
        if block.type is not BlockType.DELETE:
            for row in decode_own_rows(located, content).to_pylist():
                row.pop("_hoodie_file_name")
                yield (*says, row["_hoodie_record_key"], repr(row))
            continue
        found = []
        for batch in decode_own_deletes(located, content):
            values = pa.nulls(len(batch.rows)) if batch.ordering is None else batch.ordering
            places, keys = batch.rows.to_pylist(), batch.record_keys.to_pylist()
            paths = batch.partition_paths.to_pylist()
            for record in zip(places, keys, paths, values.to_pylist(), strict=True):
                found.append((record[0], (*says, record[1], (batch.kind, record[2:]))))
        yield from (record for _, record in sorted(found, key=lambda pair: pair[0]))


def check(storage: Storage, paths: list[str], stats: list[WriteStat], layout: RingLayout) -> None:
    """Hold copies to their sources."""
    expected = [record for path in paths for record in records_of(storage, path)]
    owners = layout.assign(pa.array([record[4] for record in expected], pa.string()))
    by_owner: dict[str, list[Any]] = {}
    for record, owner in zip(expected, owners.tolist(), strict=True):
        by_owner.setdefault(layout.group(owner).file_id, []).append(record)
    found: dict[str, list[Any]] = {}
    for stat in stats:
        found.setdefault(str(stat.file_id), []).extend(records_of(storage, stat.data_path))
    assert found == by_owner
    for stat in stats:
        for located, content in blocks_of(storage, stat.data_path):
            assert set(located.block.header) <= {
                HeaderKey.INSTANT_TIME,
                HeaderKey.SCHEMA,
                HeaderKey.IS_PARTIAL,
            }
            if located.block.type is not BlockType.DELETE:
                names = decode_own_rows(located, content)["_hoodie_file_name"].unique().to_pylist()
                assert names == [stat.file_id]


# ---- what is in them


@pytest.mark.parametrize("block_format", FORMATS)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=any_rows(6), gone=st.lists(st.text("abc", min_size=1, max_size=3)), dated=st.booleans())
def test_the_copies_together_hold_what_the_log_holds(
    block_format: Any, rows: list[dict[str, Any]], gone: list[str], dated: bool
) -> None:
    storage = a_storage()
    table = WrittenTable(storage, ALL_TYPES, ordering="long")
    spec = table.spec(1, block_format=block_format)
    ordering = pa.array(range(len(gone)), pa.int64()) if dated and gone else None
    removed = deletes(*gone, ordering=ordering) if gone else None
    stats = write_log(storage, spec, GROUP, rows=table.keyed(rows), deletes=removed)
    name = CopyName.of_copy(RESIZE, 3)
    copies = copied_logs(storage, [Sources(name, sources(storage, stats), EIGHTHS)])
    check(storage, [stat.data_path for stat in stats], copies, EIGHTHS)


@pytest.mark.parametrize("block_format", FORMATS)
def test_parts_of_rows_and_their_stand_ins_stay_what_they_are(block_format: Any) -> None:
    storage = a_storage()
    columns = [*SCHEMA, pa.field("_hoodie_rank", pa.int32())]
    table = WrittenTable(storage, pa.schema(columns), ordering="ts")
    part = Part(("id",), ("ts",))
    spec = table.spec(1, block_format=block_format, part=part)
    rows = pa.RecordBatch.from_pylist([{"id": f"k{n}", "ts": n} for n in range(20)])
    rows = rows.select(spec.layout.data.names)
    given = KeyedRows(rows, rows.column("id"))
    known = pa.array([f"k{n}" for n in range(0, 20, 2)])
    stats = write_log(storage, spec, GROUP, rows=given, existing_keys=known)
    copies = copied_logs(
        storage, [Sources(CopyName.of_move(at(1), 0), sources(storage, stats), HALVES)]
    )
    check(storage, [stat.data_path for stat in stats], copies, HALVES)
    assert sum(stat.num_writes or 0 for stat in copies) == 20
    assert sum(stat.num_inserts or 0 for stat in copies) == 10


@pytest.mark.parametrize(
    "name",
    [
        "mor_all_types",
        "mor_avro_logs_with_deletes",
        "mor_commit_time_ordering",
        "mor_list_nulls",
        "mor_nbcc",
        "mor_parquet_logs",
        "mor_partial_update",
        "mor_schema_evolved",
    ],
)
def test_logs_that_hudi_wrote_are_copied_too(golden: GoldenTables, name: str) -> None:
    storage, root = a_storage(), golden.path(name)
    logs = [path for path in sorted(root.rglob(".*.log.*")) if ".hoodie/" not in str(path)]
    logs = [path for path in logs if isinstance(parse_data_file(path.name), LogFileName)]
    assert logs
    for path in logs:
        storage.create(path.name, path.read_bytes())
        kinds = [located.block.type for located, _ in blocks_of(storage, path.name)]
        if BlockType.COMMAND in kinds:
            continue
        copies = copied_logs(
            storage, [Sources(CopyName.of_copy(RESIZE, 1), [source(storage, path.name)], HALVES)]
        )
        check(storage, [path.name], copies, HALVES)
        for stat in storage.list(""):
            storage.delete(stat.path)


def test_deletes_of_several_kinds_in_one_block_keep_their_order_and_values() -> None:
    storage = a_storage()
    table = WrittenTable(storage, SCHEMA, ordering="ts")
    stats = write_log(storage, table.spec(1), GROUP, deletes=deletes("a"))
    ((located, _),) = blocks_of(storage, stats[0].data_path)
    places, paths = [[1, 4, 6], [0, 5], [2, 3, 7]], pa.nulls(3, pa.string())
    kinds = [pa.array([1, 2, 3], pa.int64()), None, pa.array(["x", "y", "z"])]
    batches = []
    for rows, ordering in zip(places, kinds, strict=True):
        keys = pa.array([f"key {row}" for row in rows])
        batch = delete_batch(keys, paths.slice(0, len(rows)), ordering)
        batches.append(replace(batch, rows=pa.array(rows, pa.int64())))
    content = encode_delete_records(batches)
    data = encode_block(BlockType.DELETE, located.block.header, content)
    storage.write(stats[0].data_path, data)
    copies = copied_logs(
        storage, [Sources(CopyName.of_copy(RESIZE, 1), sources(storage, stats), HALVES)]
    )
    check(storage, [stat.data_path for stat in stats], copies, HALVES)


def test_record_positions_are_left_out() -> None:
    storage = a_storage()
    table = WrittenTable(storage, SCHEMA, ordering="ts")
    stats = write_log(storage, table.spec(1), GROUP, deletes=deletes("a"))
    ((located, content),) = blocks_of(storage, stats[0].data_path)
    header = {
        **located.block.header,
        HeaderKey.RECORD_POSITIONS: "AAAA",
        HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS: at(0),
    }
    storage.write(stats[0].data_path, encode_block(BlockType.DELETE, header, content))
    copies = copied_logs(
        storage, [Sources(CopyName.of_copy(RESIZE, 1), sources(storage, stats), HALVES)]
    )
    check(storage, [stat.data_path for stat in stats], copies, HALVES)


# ---- names and stats


def some_logs(storage: Storage, groups: int = 2) -> list[LogFile]:
    table = WrittenTable(storage, SCHEMA, ordering="ts")
    found: list[WriteStat] = []
    for number in range(groups):
        group = FileGroupId("", f"{number:08d}-input-0")
        rows = [{"id": f"{number}-{n}", "ts": n, "v": "v"} for n in range(40)]
        found += write_log(
            storage, table.spec(1), group, rows=table.keyed(rows), deletes=deletes(f"{number}-x")
        )
    return sources(storage, tuple(found))


def test_pieces_number_the_logs_in_a_child_from_a_thousand_for_each_completion() -> None:
    storage = a_storage()
    copies = copied_logs(
        storage, [Sources(CopyName.of_copy(RESIZE, 7), some_logs(storage), HALVES)]
    )
    assert sorted(stat.data_path for stat in copies) == [
        f".{child}-child-0_{RESIZE}.log.{version}_0-0-0"
        for child in ("00000000", "00000001")
        for version in (7000, 7001)
    ]


def test_moved_logs_bear_the_write_and_count_from_one() -> None:
    storage = a_storage()
    moved = copied_logs(storage, [Sources(CopyName.of_move(at(1), 0), some_logs(storage), HALVES)])
    assert sorted(stat.data_path for stat in moved) == [
        f".{child}-child-0_{at(1)}.log.{version}_0-0-0"
        for child in ("00000000", "00000001")
        for version in (1, 2)
    ]


def test_a_child_without_records_of_a_log_gets_no_file_and_no_number_is_left_out() -> None:
    storage = a_storage()
    table = WrittenTable(storage, SCHEMA, ordering="ts")
    stats: list[WriteStat] = []
    for number, key in enumerate("abcdef"):
        group = FileGroupId("", f"{number:08d}-input-0")
        stats += write_log(
            storage,
            table.spec(1),
            group,
            rows=table.keyed([{"id": key, "ts": 1, "v": "v"}]),
        )
    copies = copied_logs(
        storage, [Sources(CopyName.of_copy(RESIZE, 1), sources(storage, tuple(stats)), EIGHTHS)]
    )
    assert len(copies) == 6
    for _, own in groupby(sorted(copies, key=lambda s: str(s.file_id)), key=lambda s: s.file_id):
        versions = [stat.log_version for stat in own]
        assert versions == list(range(1000, 1000 + len(versions)))


def test_stats_count_what_is_in_a_file_and_every_file_has_a_marker() -> None:
    storage = a_storage()
    copies = copied_logs(
        storage, [Sources(CopyName.of_copy(RESIZE, 1), some_logs(storage), HALVES)]
    )
    assert sum(stat.num_writes or 0 for stat in copies) == 80
    assert sum(stat.num_deletes or 0 for stat in copies) == 2
    for stat in copies:
        found = storage.stat(stat.data_path)
        assert found is not None
        assert stat.file_size_in_bytes == found.size
    marked = {marker.data_file for marker in load_markers(storage, RESIZE)}
    assert marked == {stat.data_path for stat in copies}


def test_a_copy_larger_than_a_log_may_be_continues_in_the_next_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(copied_log, "COPY_BYTES_MAX", 4_000)
    monkeypatch.setattr(copied_log, "BLOCK_VALUE_BYTES", 500)
    storage = a_storage()
    logs = some_logs(storage)
    copies = copied_logs(storage, [Sources(CopyName.of_copy(RESIZE, 1), logs, HALVES)])
    assert len(copies) > 4
    check(storage, [log.path for log in logs], copies, HALVES)


def test_more_pieces_than_a_completion_has_versions_are_refused() -> None:
    storage = a_storage()
    name = CopyName(InstantTime(RESIZE), 1000, pieces_max=1)
    with pytest.raises(UnsupportedTableError, match="more than 1 files"):
        copied_logs(storage, [Sources(name, some_logs(storage), HALVES)])


# ---- again


def test_a_second_attempt_finds_the_files_and_returns_the_same_stats() -> None:
    storage = a_storage()
    logs, name = some_logs(storage), CopyName.of_copy(RESIZE, 1)
    first = copied_logs(storage, [Sources(name, logs, HALVES)])
    there = {stat.path: storage.read(stat.path) for stat in storage.list("")}
    assert copied_logs(storage, [Sources(name, logs, HALVES)]) == first
    assert {stat.path: storage.read(stat.path) for stat in storage.list("")} == there


class Ordered(FaultyStorage):
    """A storage that knows in which order files were created."""

    def __init__(self) -> None:
        super().__init__(a_storage())
        self.created: list[str] = []

    def create_from(self, path: str, chunks: Iterable[bytes]) -> int | None:
        self.created.append(path)
        return super().create_from(path, chunks)


def test_two_processes_that_copy_at_the_same_time_need_little_more_than_half_as_long() -> None:
    """Each makes the next file in its own order that is not there yet, and they take turns."""
    orders = []
    stats = set()
    for salt in (b"one", b"other"):
        storage = Ordered()
        logs = some_logs(storage, 8)
        storage.created.clear()
        writes = [
            Sources(CopyName.of_copy(RESIZE, n), [log], EIGHTHS) for n, log in enumerate(logs)
        ]
        stats.add(tuple(stat.path for stat in copied_logs(storage, writes, salt=salt)))
        orders.append([path for path in storage.created if f"_{RESIZE}.log." in path])
    assert len(stats) == 1, "the stats come in one order"
    there: set[str] = set()
    turns = 0
    while there != set(orders[0]):
        there |= {next((path for path in order if path not in there), "") for order in orders}
        turns += 1
    assert len(there) > 40
    assert turns <= 0.6 * len(there)


def test_a_file_of_another_release_is_taken_if_it_holds_as_many_records() -> None:
    storage = a_storage()
    logs, name = some_logs(storage, 1), CopyName.of_copy(RESIZE, 1)
    first = copied_logs(storage, [Sources(name, logs, HALVES)])
    path = first[0].data_path
    again = []
    for located, content in blocks_of(storage, path):
        header = {**located.block.header, HeaderKey.BLOCK_IDENTIFIER: "0,1"}
        again.append(encode_block(located.block.type, header, content))
    storage.write(path, b"".join(again))
    second = copied_logs(storage, [Sources(name, logs, HALVES)])
    assert second[0].file_size_in_bytes == len(b"".join(again))
    assert second[1:] == first[1:]


def test_a_file_with_other_records_is_not_taken() -> None:
    storage = a_storage()
    logs, name = some_logs(storage, 1), CopyName.of_copy(RESIZE, 1)
    first = copied_logs(storage, [Sources(name, logs, HALVES)])
    path = next(stat.data_path for stat in first if stat.num_deletes)
    located, content = next(blocks_of(storage, path))
    storage.write(path, encode_block(located.block.type, located.block.header, content))
    with pytest.raises(CorruptTableError, match="another copy"):
        copied_logs(storage, [Sources(name, logs, HALVES)])


# ---- damage


def _cut(data: bytes) -> bytes:
    return data[:-20]


def _no_magic(data: bytes) -> bytes:
    return b"x" + data[1:]


def _empty(_: bytes) -> bytes:
    return b""


def _torn_between(data: bytes) -> bytes:
    return data + data[: len(data) // 2] + data


@pytest.mark.parametrize("damage", [_cut, _no_magic, _empty, _torn_between])
def test_a_damaged_log_is_not_copied(damage: Any) -> None:
    storage = a_storage()
    (log,) = some_logs(storage, 1)
    storage.write(log.path, damage(storage.read(log.path)))
    with pytest.raises(CorruptTableError) as caught:
        copied_logs(
            storage, [Sources(CopyName.of_copy(RESIZE, 1), [source(storage, log.path)], HALVES)]
        )
    assert log.path in str(caught.value)


def test_a_log_that_is_shorter_than_its_commit_says_or_gone_is_not_copied() -> None:
    storage = a_storage()
    (log,) = some_logs(storage, 1)
    name = CopyName.of_copy(RESIZE, 1)
    with pytest.raises(SourceGoneError):
        copied_logs(storage, [Sources(name, [log._replace(size=log.size + 1)], HALVES)])
    storage.delete(log.path)
    with pytest.raises(SourceGoneError):
        copied_logs(storage, [Sources(name, [log], HALVES)])


@pytest.mark.parametrize(
    ("kind", "header"),
    [
        (BlockType.COMMAND, {HeaderKey.INSTANT_TIME: at(1)}),
        (BlockType.HFILE_DATA, {HeaderKey.INSTANT_TIME: at(1)}),
        (BlockType.DELETE, {HeaderKey.INSTANT_TIME: at(2)}),
        (BlockType.DELETE, {HeaderKey.INSTANT_TIME: at(1), HeaderKey.COMPACTED_BLOCK_TIMES: at(0)}),
        (BlockType.AVRO_DATA, {HeaderKey.INSTANT_TIME: at(1)}),
    ],
)
def test_a_block_that_no_write_leaves_in_its_own_log_is_refused(
    kind: BlockType, header: dict[HeaderKey, str]
) -> None:
    storage = a_storage()
    (log,) = some_logs(storage, 1)
    storage.write(log.path, storage.read(log.path) + encode_block(kind, header, b""))
    with pytest.raises(HudiError):
        copied_logs(
            storage, [Sources(CopyName.of_copy(RESIZE, 1), [source(storage, log.path)], HALVES)]
        )


def test_a_block_with_columns_that_its_header_does_not_name_is_refused() -> None:
    storage = a_storage()
    (log,) = some_logs(storage, 1)
    located, content = next(blocks_of(storage, log.path))
    schema = json.loads(located.block.header[HeaderKey.SCHEMA])
    schema["fields"].pop()
    header = {**located.block.header, HeaderKey.SCHEMA: json.dumps(schema)}
    storage.write(log.path, encode_block(located.block.type, header, content))
    with pytest.raises(CorruptTableError, match="not those that its header names"):
        copied_logs(
            storage, [Sources(CopyName.of_copy(RESIZE, 1), [source(storage, log.path)], HALVES)]
        )
