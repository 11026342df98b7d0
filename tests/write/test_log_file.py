"""Log files that tasks write: what is in them, where they are cut, and what a second attempt does.

What is written is read back through the front door, from a table whose timeline is made by hand.
"""

from __future__ import annotations

import datetime as dt
import pickle
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from column_types import SCHEMA as ALL_TYPES
from column_types import any_rows, empty_row, full_row
from faulty_storage import FaultyStorage
from handmade import at
from pyhudi.errors import (
    InvalidRequestError,
)
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.files.log_file import BlockType, HeaderKey, LogBlock, decode_blocks
from pyhudi.format.files.partition_metadata import partition_metadata
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.settings import LogBlockFormat
from pyhudi.storage.open import open_storage
from pyhudi.storage.protocol import Storage
from pyhudi.storage.stores.memory import MemoryStorage
from pyhudi.table.schema import META_COLUMNS
from pyhudi.write.files import log_file as log_writer
from pyhudi.write.files.log_file import write_log
from pyhudi.write.files.spec import create_partition_metadata
from written_tables import GROUP, WrittenTable, deletes

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
FORMATS = list(LogBlockFormat)
LOG = f".{GROUP.file_id}_{at(1)}.log.1_0-0-0"


def row(id_: str, ts: int = 1, v: str = "v") -> dict[str, Any]:
    return {"id": id_, "ts": ts, "v": v}


def blocks_of(storage: Storage, path: str) -> list[LogBlock]:
    data = storage.read(path)
    found = list(decode_blocks(lambda start, end: data[start:end], len(data), path))
    return [block for block in found if isinstance(block, LogBlock)]


def made(storage: Storage, schema: pa.Schema = SCHEMA, ordering: str = "ts") -> WrittenTable:
    table = WrittenTable(storage, schema, ordering=ordering)
    table.begin(1)
    return table


# ---- what is in them


@pytest.mark.parametrize("block_format", FORMATS)
def test_rows_of_every_type_are_read_back_equal(memory: Storage, block_format: Any) -> None:
    table = made(memory, ALL_TYPES)
    rows = [full_row("a"), empty_row("b"), full_row("c")]
    spec = table.spec(1, block_format=block_format)
    table.commit(1, write_log(memory, spec, GROUP, rows=table.keyed(rows)))
    assert table.rows() == rows


@pytest.mark.parametrize("block_format", FORMATS)
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=any_rows(5))
def test_any_rows_are_read_back_equal(block_format: Any, rows: list[dict[str, Any]]) -> None:
    storage = open_storage("memory://any-rows")
    for stat in list(storage.list("")):
        storage.delete(stat.path)
    table = made(storage, ALL_TYPES)
    spec = table.spec(1, block_format=block_format)
    table.commit(1, write_log(storage, spec, GROUP, rows=table.keyed(rows)))
    assert table.rows() == sorted(rows, key=lambda found: found["id"])


def test_rows_carry_the_meta_columns_of_a_log(memory: Storage) -> None:
    table = made(memory)
    group = FileGroupId("day=1", GROUP.file_id)
    create_partition_metadata(memory, group.partition, InstantTime(at(1)))
    stats = write_log(memory, table.spec(1), group, rows=table.keyed([row("a"), row("b")]))
    table.commit(1, stats)
    assert table.meta("_hoodie_commit_time") == {"a": at(1), "b": at(1)}
    assert table.meta("_hoodie_partition_path") == {"a": "day=1", "b": "day=1"}
    assert table.meta("_hoodie_file_name") == {"a": GROUP.file_id, "b": GROUP.file_id}


def test_sequence_numbers_tell_all_rows_of_an_instant_apart(memory: Storage) -> None:
    table = made(memory)
    spec = table.spec(1)
    groups = [FileGroupId(partition, GROUP.file_id) for partition in ("x", "y")]
    stats: list[WriteStat] = []
    for number, group in enumerate(groups):
        create_partition_metadata(memory, group.partition, spec.requested)
        first = table.keyed([row(f"{number}{n}") for n in range(5)])
        second = table.keyed([row(f"{number}{n}") for n in range(5, 8)])
        stats += write_log(memory, spec, group, rows=first)
        stats += write_log(memory, spec, group, rows=second, ordinal=1)
    table.commit(1, stats)
    numbers = table.meta("_hoodie_commit_seqno")
    assert len(set(numbers.values())) == len(numbers) == 16
    for text in numbers.values():
        requested, task, counter = text.split("_")
        assert requested == at(1)
        assert task.isdigit()
        assert counter.isdigit()


@pytest.mark.parametrize(
    ("block_format", "block_type"),
    [
        (LogBlockFormat.PARQUET, BlockType.PARQUET_DATA),
        (LogBlockFormat.AVRO, BlockType.AVRO_DATA),
    ],
)
def test_a_block_names_its_instant_and_its_schema(
    memory: Storage, block_format: Any, block_type: BlockType
) -> None:
    table = made(memory)
    spec = table.spec(1, block_format=block_format)
    write_log(memory, spec, GROUP, rows=table.keyed([row("a")]), deletes=deletes("b"))
    data, delete = blocks_of(memory, LOG)
    assert (data.type, delete.type) == (block_type, BlockType.DELETE)
    for block in (data, delete):
        assert set(block.header) == {HeaderKey.INSTANT_TIME, HeaderKey.SCHEMA}
        assert block.instant_time == at(1)
        assert block.header[HeaderKey.SCHEMA] == spec.layout.avro_json
    assert spec.layout.stored.names == [*META_COLUMNS, "id", "ts", "v"]


def test_the_stat_says_what_hudi_says_of_a_log(memory: Storage) -> None:
    table = made(memory)
    [stat] = write_log(
        memory,
        table.spec(1),
        FileGroupId("p", GROUP.file_id),
        rows=table.keyed([row("a"), row("b")]),
        deletes=deletes("c"),
    )
    found = memory.stat(f"p/{LOG}")
    assert found is not None
    assert stat == WriteStat(
        file_id=GROUP.file_id,
        path=f"p/{LOG}",
        prev_commit=at(1),
        num_writes=2,
        num_deletes=1,
        num_update_writes=2,
        total_write_bytes=found.size,
        total_write_errors=0,
        partition_path="p",
        total_log_records=0,
        total_updated_records_compacted=0,
        num_inserts=0,
        total_log_blocks=0,
        total_corrupt_log_block=0,
        total_rollback_blocks=0,
        file_size_in_bytes=found.size,
        log_version=1,
        log_offset=0,
        base_file="",
        log_files=(LOG,),
        total_log_files_compacted=0,
        total_log_read_time_ms=0,
        total_log_size_compacted=0,
        num_updates=0,
    )


@pytest.mark.parametrize("given", ["", "rows", "deletes", "rows and deletes"])
def test_no_records_leave_no_file(memory: Storage, given: str) -> None:
    table = made(memory)
    before = [stat.path for stat in memory.list("")]
    rows = table.keyed([]) if "rows" in given else None
    gone = deletes() if "deletes" in given else None
    assert write_log(memory, table.spec(1), GROUP, rows=rows, deletes=gone) == ()
    assert [stat.path for stat in memory.list("")] == before


def test_a_spec_travels_to_another_process(memory: Storage) -> None:
    spec = made(memory, ALL_TYPES).spec(1, block_format=LogBlockFormat.AVRO)
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert pickle.loads(pickle.dumps(spec)).layout == spec.layout


# ---- deletes

UTC = dt.UTC
ORDERINGS: list[tuple[pa.DataType, Any, Any, Any]] = [
    (pa.int32(), 4, 5, 6),
    (pa.int64(), -(2**60), 0, 2**60),
    (pa.float32(), -0.5, 0.25, 1.5),
    (pa.float64(), -0.1, 0.1, 0.2),
    (pa.string(), "a", "b", "c"),
    (pa.date32(), dt.date(1969, 1, 1), dt.date(2026, 1, 1), dt.date(2026, 1, 2)),
    (pa.decimal128(10, 2), Decimal("-1.01"), Decimal("0.00"), Decimal("1.01")),
    (pa.timestamp("us", "UTC"), *(dt.datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3))),
    (pa.timestamp("us"), *(dt.datetime(2026, 1, day) for day in (1, 2, 3))),
    (pa.timestamp("ms", "UTC"), *(dt.datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3))),
    (pa.bool_(), False, True, True),
]


@pytest.mark.parametrize("ordering", ORDERINGS, ids=lambda kind: str(kind[0]))
def test_a_delete_loses_against_a_newer_row_alone(
    memory: Storage, ordering: tuple[pa.DataType, Any, Any, Any]
) -> None:
    type_, low, middle, high = ordering
    schema = pa.schema([("id", pa.string()), ("ts", type_)])
    table = WrittenTable(memory, schema, ordering="ts")
    table.begin(1)
    rows = table.keyed([{"id": id_, "ts": middle} for id_ in "abc"])
    table.commit(1, write_log(memory, table.spec(1), GROUP, rows=rows))
    table.begin(5)
    gone = deletes("a", "b", "c", ordering=pa.array([low, middle, high], type_))
    table.commit(5, write_log(memory, table.spec(5), GROUP, deletes=gone))
    assert [found["id"] for found in table.rows()] == ["a"]


@pytest.mark.parametrize(
    "ordering", [None, pa.nulls(1, pa.int64()), pa.array([None], pa.struct([("0", pa.int64())]))]
)
def test_a_delete_without_an_ordering_value_beats_what_came_before(
    memory: Storage, ordering: pa.Array | None
) -> None:
    table = made(memory)
    rows = table.keyed([row("a", 9), row("b", 9)])
    table.commit(1, write_log(memory, table.spec(1), GROUP, rows=rows))
    table.begin(5)
    gone = deletes("a", ordering=ordering)
    table.commit(5, write_log(memory, table.spec(5), GROUP, deletes=gone))
    assert table.rows() == [row("b", 9)]


def test_a_delete_block_has_ordering_values_of_one_kind(memory: Storage) -> None:
    # hudi-rs reads no delete block that mixes them.
    table = made(memory)
    rows = table.keyed([row(id_, 5) for id_ in "abcd"])
    table.commit(1, write_log(memory, table.spec(1), GROUP, rows=rows))
    table.begin(5)
    gone = deletes("a", "b", "c", ordering=pa.array([6, None, 4], pa.int64()))
    [stat] = write_log(memory, table.spec(5), GROUP, deletes=gone)
    assert [block.type for block in blocks_of(memory, stat.data_path)] == [BlockType.DELETE] * 2
    assert (stat.num_writes, stat.num_deletes, stat.num_update_writes) == (0, 3, 0)
    table.commit(5, [stat])
    assert [found["id"] for found in table.rows()] == ["c", "d"]


def test_deletes_are_ordered_by_several_fields(memory: Storage) -> None:
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("n", pa.int32())])
    table = WrittenTable(memory, schema, ordering="ts,n")
    table.begin(1)
    rows = table.keyed([{"id": id_, "ts": 5, "n": 5} for id_ in "abcd"])
    table.commit(1, write_log(memory, table.spec(1), GROUP, rows=rows))
    table.begin(5)
    ordering = pa.StructArray.from_arrays(
        [pa.array([5, 5, 4, None], pa.int64()), pa.array([4, 5, 9, None], pa.int32())], ["ts", "n"]
    )
    gone = deletes("a", "b", "c", "d", ordering=ordering)
    table.commit(5, write_log(memory, table.spec(5), GROUP, deletes=gone))
    assert [found["id"] for found in table.rows()] == ["a", "c"]


def test_deletes_of_a_commit_time_table_beat_all_that_came_before(memory: Storage) -> None:
    table = made(memory, ordering="")
    rows = table.keyed([row("a"), row("b")])
    table.commit(1, write_log(memory, table.spec(1), GROUP, rows=rows))
    table.begin(5)
    table.commit(5, write_log(memory, table.spec(5), GROUP, deletes=deletes("b")))
    assert table.rows() == [row("a")]


def test_a_key_among_rows_and_deletes_is_deleted(memory: Storage) -> None:
    table = made(memory)
    rows = table.keyed([row("a", 3), row("b", 3)])
    gone = deletes("a", ordering=pa.array([3], pa.int64()))
    table.commit(1, write_log(memory, table.spec(1), GROUP, rows=rows, deletes=gone))
    assert table.rows() == [row("b", 3)]


# ---- where they are cut


@pytest.mark.parametrize("block_format", FORMATS)
@pytest.mark.parametrize("bytes_max", [1, 3_000, 8_000])
def test_a_long_log_continues_in_the_next_version(
    memory: Storage, block_format: Any, bytes_max: int
) -> None:
    table = made(memory)
    rows = [row(f"{n:03d}", v="x" * n) for n in range(200)]
    spec = table.spec(1, block_format=block_format, log_file_bytes_max=bytes_max)
    stats = write_log(memory, spec, GROUP, rows=table.keyed(rows), deletes=deletes("none"))
    assert len(stats) > 2
    assert [stat.log_version for stat in stats] == list(range(1, len(stats) + 1))
    assert sum(stat.num_writes or 0 for stat in stats) == 200
    assert sum(stat.num_deletes or 0 for stat in stats) == 1
    for stat in stats:
        found = memory.stat(stat.data_path)
        assert found is not None
        assert found.size == stat.file_size_in_bytes
        one_block = len(blocks_of(memory, stat.data_path)) == 1
        assert found.size <= bytes_max or one_block
    table.commit(1, stats)
    assert table.rows() == rows


def test_a_file_holds_several_blocks(memory: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "BLOCK_VALUE_BYTES", 2_000)
    table = made(memory)
    rows = [row(f"{n:03d}", v="x" * n) for n in range(100)]
    [stat] = write_log(memory, table.spec(1), GROUP, rows=table.keyed(rows))
    assert len(blocks_of(memory, LOG)) > 3
    assert stat.num_writes == 100
    table.commit(1, [stat])
    assert table.rows() == rows


def test_a_large_file_is_created_from_a_stream(
    memory: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "_ONE_PIECE_BYTES", 10)
    storage = FaultyStorage(memory)
    table = made(memory)
    stats = write_log(storage, table.spec(1), GROUP, rows=table.keyed([row("a")]))
    assert [(done.name, done.path) for done in storage.trace if done.path == LOG] == [
        ("create_from", LOG)
    ]
    table.commit(1, stats)
    assert table.rows() == [row("a")]


@settings(max_examples=30, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 300), min_size=1, max_size=40),
    bytes_max=st.integers(1, 6_000),
    offset=st.integers(0, 3),
)
def test_the_same_rows_are_always_cut_at_the_same_places(
    lengths: list[int], bytes_max: int, offset: int
) -> None:
    rows = [row(str(n), v="x" * length) for n, length in enumerate(lengths)]
    files = []
    for _ in range(2):
        storage = MemoryStorage(lambda: 0)
        table = WrittenTable(storage, SCHEMA)
        spec = table.spec(1, log_file_bytes_max=bytes_max)
        # The second time the rows are a slice of others, with other buffers behind them.
        padded = table.keyed([row("pad")] * offset + rows)
        given_rows = type(padded)(padded.rows.slice(offset), padded.keys.slice(offset))
        stats = write_log(storage, spec, GROUP, rows=given_rows)
        files.append([storage.read(stat.data_path) for stat in stats])
        offset = 0
    assert files[0] == files[1]


# ---- refusals


REQUIRED = pa.schema([pa.field("id", pa.string(), nullable=False), ("n", pa.int32())])


@pytest.mark.parametrize("block_format", FORMATS)
@pytest.mark.parametrize(
    ("schema", "batch", "message"),
    [
        (
            REQUIRED,
            {"id": pa.array(["a", None]), "n": pa.array([1, 2], pa.int32())},
            "column 'id' cannot be written: it holds a null",
        ),
        (
            pa.schema(
                [
                    ("id", pa.string()),
                    ("s", pa.struct([pa.field("n", pa.int32(), nullable=False)])),
                ]
            ),
            {
                "id": pa.array(["a"]),
                "s": pa.array([{"n": None}], pa.struct([("n", pa.int32())])),
            },
            "column 's' cannot be written: it holds a null in the field 'n'",
        ),
    ],
)
def test_rows_that_do_not_fit_the_table_are_refused_before_anything_is_written(
    memory: Storage,
    block_format: Any,
    schema: pa.Schema,
    batch: dict[str, pa.Array],
    message: str,
) -> None:
    table = made(memory, schema, ordering="")
    before = [stat.path for stat in memory.list("")]
    rows = pa.RecordBatch.from_pydict(batch)
    keyed = type(table.keyed([]))(rows, pa.array(["k"] * rows.num_rows))
    with pytest.raises(InvalidRequestError, match=message):
        write_log(memory, table.spec(1, block_format=block_format), GROUP, rows=keyed)
    assert [stat.path for stat in memory.list("")] == before


@pytest.mark.parametrize(
    "ordering",
    [
        pa.array([[1]], pa.list_(pa.int64())),
        pa.StructArray.from_arrays([pa.array([1]), pa.array([None], pa.int64())], ["a", "b"]),
        pa.array([Decimal("1e20")], pa.decimal128(38, 0)),
    ],
)
def test_ordering_values_that_no_delete_can_hold_are_refused(
    memory: Storage, ordering: pa.Array
) -> None:
    table = made(memory)
    with pytest.raises(InvalidRequestError):
        write_log(memory, table.spec(1), GROUP, deletes=deletes("a", ordering=ordering))


def test_a_row_that_could_not_be_read_back_is_refused(
    memory: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyhudi.format.files.row_blocks.BLOCK_BYTES_MAX", 4_000)
    table = made(memory)
    rows = table.keyed([row("a", v="".join(chr(33 + n * n % 8000) for n in range(4_000)))])
    with pytest.raises(InvalidRequestError, match="a row is too large"):
        write_log(memory, table.spec(1), GROUP, rows=rows)


# ---- partition metadata


@pytest.mark.parametrize(
    ("partition", "path", "depth"),
    [
        ("", ".hoodie_partition_metadata", 0),
        ("day=1", "day=1/.hoodie_partition_metadata", 1),
        ("2026/01/02", "2026/01/02/.hoodie_partition_metadata", 3),
    ],
)
def test_partition_metadata_is_created_once(
    memory: Storage, partition: str, path: str, depth: int
) -> None:
    create_partition_metadata(memory, partition, InstantTime(at(1)))
    data = memory.read(path)
    create_partition_metadata(memory, partition, InstantTime(at(2)))
    assert memory.read(path) == data
    assert data == partition_metadata(partition, InstantTime(at(1)))
    assert f"partitionDepth={depth}\n".encode() in data
