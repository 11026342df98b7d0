"""Cutting rows into blocks by the size of their values, and counting what a block holds."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from column_types import SCHEMA, any_rows, full_row
from pyhudi.errors import CorruptTableError
from pyhudi.format.avro.schema import avro_record_schema
from pyhudi.format.files.log_file import BlockType, LogBlock, decode_blocks, encode_block
from pyhudi.format.files.row_blocks import (
    block_records,
    block_sized,
    encode_deletes_block,
    encode_rows_block,
    value_bytes,
)
from pyhudi.settings import LogBlockFormat

AVRO = json.dumps(avro_record_schema(SCHEMA, "t"))
TIME = "20260101000000001"


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def only_block(data: bytes) -> tuple[LogBlock, bytes]:
    [block] = decode_blocks(lambda start, end: data[start:end], len(data), "log")
    assert isinstance(block, LogBlock)
    return block, data[block.content_start : block.content_end]


@settings(max_examples=20, deadline=None)
@given(before=any_rows(3), rows=any_rows(4))
def test_the_size_of_values_does_not_depend_on_where_they_lie(
    before: list[dict[str, Any]], rows: list[dict[str, Any]]
) -> None:
    batch = batch_of(rows)
    size = value_bytes(batch)
    assert value_bytes(batch_of(before + rows).slice(len(before))) == size
    assert value_bytes(batch_of(rows + before).slice(0, len(rows))) == size
    taken = batch.take(pa.array(range(len(rows)), pa.int64()))
    assert value_bytes(taken) == size
    # The shortcut for small batches rests on this.
    assert size <= batch.nbytes


@settings(max_examples=50, deadline=None)
@given(lengths=st.lists(st.integers(0, 100), max_size=50), bytes_max=st.integers(1, 500))
def test_pieces_are_small_or_single_rows_and_together_all_rows(
    lengths: list[int], bytes_max: int
) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(["x" * n for n in lengths], pa.string())], ["v"])
    pieces = list(block_sized(batch, bytes_max))
    assert all(piece.num_rows == 1 or value_bytes(piece) <= bytes_max for piece in pieces)
    assert pa.Table.from_batches(pieces, batch.schema) == pa.Table.from_batches([batch])


@pytest.mark.parametrize("count", [1, 3, 1_500])
@pytest.mark.parametrize("block_format", list(LogBlockFormat))
def test_the_rows_of_a_block_are_counted(block_format: LogBlockFormat, count: int) -> None:
    rows = batch_of([full_row(str(n)) for n in range(count)])
    block, content = only_block(encode_rows_block(rows, AVRO, TIME, block_format))
    assert block_records(block, content, "log") == count


@pytest.mark.parametrize("ordering", [None, pa.array([1, 2], pa.int64())])
def test_the_deletes_of_a_block_are_counted(ordering: pa.Array | None) -> None:
    data = encode_deletes_block(pa.array(["a", "b"]), "p", ordering, AVRO, TIME)
    block, content = only_block(data)
    assert block.type is BlockType.DELETE
    assert block_records(block, content, "log") == 2


@pytest.mark.parametrize(
    ("block_type", "content"),
    [
        (BlockType.PARQUET_DATA, b"PAR1"),
        (BlockType.AVRO_DATA, b"\0"),
        (BlockType.DELETE, b"\0"),
        (BlockType.CDC_DATA, b""),
    ],
)
def test_a_block_that_cannot_be_counted_is_corrupt(block_type: BlockType, content: bytes) -> None:
    block, found = only_block(encode_block(block_type, {}, content))
    with pytest.raises(CorruptTableError):
        block_records(block, found, "log")
