"""Parquet footers: the same sizes and bounds as pyarrow finds, and no footer is too broken."""

from __future__ import annotations

import datetime as dt
import io
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from golden_tables import GoldenTables
from pyhudi.format.files.parquet_footer import (
    FooterError,
    RowGroup,
    decode_row_groups,
    excessive_claim,
)

UTC_TIME = dt.datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=dt.UTC)

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "flag": (pa.bool_(), [True, False]),
    "int": (pa.int32(), [-5, 2**31 - 1]),
    "long": (pa.int64(), [-(2**63), 2**63 - 1]),
    "float": (pa.float32(), [-0.5, 1.25]),
    "double": (pa.float64(), [1e300, -1e-300]),
    "text": (pa.string(), ["é", "a", "\U0001f600"]),
    "bytes": (pa.binary(), [b"\xff", b"\0"]),
    "fixed": (pa.binary(3), [b"abc", b"abd"]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "time": (pa.time64("us"), [dt.time(1, 2, 3, 4), dt.time(23, 59)]),
    "millis": (pa.timestamp("ms", "UTC"), [UTC_TIME]),
    "micros": (pa.timestamp("us", "UTC"), [UTC_TIME, UTC_TIME.replace(microsecond=1)]),
    "local": (pa.timestamp("us"), [dt.datetime(2026, 1, 2)]),
    "small decimal": (pa.decimal128(5, 2), [Decimal("-1.23"), Decimal("999.99")]),
    "decimal": (pa.decimal128(15, 3), [Decimal("-1.234"), Decimal("5.000")]),
    "large decimal": (pa.decimal128(38, 10), [Decimal("-1.2"), Decimal(10) ** 20]),
    "nulls": (pa.string(), [None, None]),
}


def written(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def decoded(data: bytes) -> tuple[RowGroup, ...]:
    return decode_row_groups(pa.BufferReader(data))


def assert_same_as_pyarrow(data: bytes) -> None:
    file = pq.ParquetFile(pa.BufferReader(data))
    groups = decoded(data)
    assert len(groups) == file.metadata.num_row_groups
    for number, group in enumerate(groups):
        theirs = file.metadata.row_group(number)
        assert group.rows == theirs.num_rows
        assert len(group.columns) == theirs.num_columns
        for leaf, chunk in enumerate(group.columns):
            other = theirs.column(leaf)
            assert chunk.path == other.path_in_schema
            assert chunk.inflated_bytes == other.total_uncompressed_size
            if "." not in chunk.path and other.statistics is not None:
                found = other.statistics
                expected = (found.min, found.max) if found.has_min_max else (None, None)
                bounds = chunk.bounds(file.schema_arrow.field(chunk.path).type)
                assert repr(bounds) == repr(expected)  # by its text NaN equals itself
                assert chunk.null_count == found.null_count


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("as_integer", [False, True])
def test_bounds_are_those_that_pyarrow_reads(name: str, as_integer: bool) -> None:
    type_, values = COLUMNS[name]
    table = pa.table({"x": pa.array([*values, None, *values], type_)})
    data = written(table, row_group_size=3, store_decimal_as_integer=as_integer)
    assert_same_as_pyarrow(data)
    known = [value for value in values if value is not None]
    if known:
        assert decoded(data)[-1].columns[0].bounds(type_) != (None, None)


def test_footers_of_hudis_base_files_are_those_that_pyarrow_reads(golden: GoldenTables) -> None:
    files = [path for name in golden.names for path in golden.path(name).rglob("*.parquet")]
    assert len(files) > 100
    for path in files:
        assert_same_as_pyarrow(path.read_bytes())


def test_a_footer_longer_than_the_first_read_is_read_whole() -> None:
    table = pa.table({f"column{number}": [number] for number in range(2_000)})
    data = written(table)
    assert int.from_bytes(data[-8:-4], "little") > 1 << 16
    assert_same_as_pyarrow(data)


def test_bounds_of_another_width_or_text_that_is_none_say_nothing() -> None:
    chunk = decoded(written(pa.table({"x": pa.array([1, 2], pa.int32())})))[0].columns[0]
    assert chunk.bounds(pa.int32()) == (1, 2)
    assert chunk.bounds(pa.int64()) == (None, None)
    chunk = decoded(written(pa.table({"x": [b"\xff", b"\xfe"]})))[0].columns[0]
    assert chunk.bounds(pa.binary()) == (b"\xfe", b"\xff")
    assert chunk.bounds(pa.string()) == (None, None)


def test_bounds_are_ignored_where_the_footer_gives_no_order() -> None:
    data = written(pa.table({"x": [1, 2]}))
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    orders = b"\x19\x1c\x1c\x00\x00"  # the field after the last: a list of one struct, {1: {}}
    assert data.count(orders, start) == 1
    place = data.index(orders, start)
    unknown = data[: place + 2] + b"\x2c\x00\x00" + data[place + 5 :]  # {2: {}}
    assert decoded(unknown)[0].columns[0].bounds(pa.int64()) == (None, None)
    assert decoded(data)[0].columns[0].bounds(pa.int64()) == (1, 2)


SOUND = written(pa.table({"a": ["x"] * 10, "b": range(10)}), row_group_size=5)


@pytest.mark.parametrize(
    "data",
    [b"", b"PAR1", b"PAR1PAR1", SOUND[:-1], SOUND[:-4] + b"PARE", SOUND[-12:], b"x" * 100],
)
def test_what_does_not_end_as_parquet_is_refused(data: bytes) -> None:
    with pytest.raises(FooterError):
        decoded(data)


@pytest.mark.parametrize("length", [0, 1, 2**31 - 1, 2**32 - 1, len(SOUND)])
def test_a_forged_footer_length_is_refused(length: int) -> None:
    data = SOUND[:-8] + length.to_bytes(4, "little") + SOUND[-4:]
    with pytest.raises(FooterError):
        decoded(data)


def test_a_damaged_footer_is_read_or_refused_and_nothing_else() -> None:
    start = len(SOUND) - 8 - int.from_bytes(SOUND[-8:-4], "little")
    rng = random.Random(7)
    for _ in range(3_000):
        data = bytearray(SOUND)
        for _ in range(rng.choice((1, 1, 4))):
            bit = rng.randrange(start * 8, (len(data) - 8) * 8)
            data[bit // 8] ^= 1 << bit % 8
        try:
            for group in decoded(bytes(data)):
                assert group.rows >= 0
                for chunk in group.columns:
                    chunk.bounds(pa.string())
                    chunk.bounds(pa.int64())
        except FooterError:
            continue


def test_nesting_is_bounded() -> None:
    footer = b"\x1c" * 10_000 + b"\0" * 10_000
    with pytest.raises(FooterError, match="levels deep"):
        decoded(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")


def test_a_claim_counts_the_columns_that_are_read() -> None:
    groups = decoded(SOUND)
    of_a = sum(group.columns[0].inflated_bytes for group in groups)
    assert excessive_claim(groups, ["a"], of_a) is None
    assert excessive_claim(groups, ["a"], of_a - 1) is not None
    assert excessive_claim(groups, [], 10) is None
    assert excessive_claim(groups, [], 9) is not None
