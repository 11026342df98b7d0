"""Bringing older files into the schema of a read."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from pyhudi.errors import CorruptTableError, UnsupportedTableError
from pyhudi.table.schema import conform, is_promotion, needs_promotion, promoted, table_schema

I32, I64, F32, F64 = pa.int32(), pa.int64(), pa.float32(), pa.float64()

PROMOTIONS: list[tuple[list[Any], pa.DataType, pa.DataType, list[Any]]] = [
    ([1, None], I32, I64, [1, None]),
    ([1], I32, F32, [1.0]),
    ([1], I32, F64, [1.0]),
    ([2**53 + 1], I64, F64, [2.0**53]),
    ([0.1, None], F32, F64, [0.1, None]),  # by its text, not by its bits
    ([1, -5], I32, pa.string(), ["1", "-5"]),
    ([2**40], I64, pa.string(), [str(2**40)]),
    (
        [1.0, 1e10, 1e-5, 0.001, -0.0],
        F64,
        pa.string(),
        ["1.0", "1.0E10", "1.0E-5", "0.001", "-0.0"],
    ),
    ([float("nan"), float("-inf")], F64, pa.string(), ["NaN", "-Infinity"]),
    ([1234567.0, 12345678.0], F64, pa.string(), ["1234567.0", "1.2345678E7"]),
    ([b"ab"], pa.binary(), pa.string(), ["ab"]),
    (["ab"], pa.string(), pa.binary(), [b"ab"]),
    ([Decimal("1.50")], pa.decimal128(5, 2), pa.decimal128(9, 4), [Decimal("1.5000")]),
    ([[1], None], pa.list_(I32), pa.list_(I64), [[1], None]),
    (
        [{"a": 1}, None],
        pa.struct([("a", I32)]),
        pa.struct([("a", I64), ("b", I32)]),
        [{"a": 1, "b": None}, None],
    ),
    ([[("k", 1)], None], pa.map_(pa.string(), I32), pa.map_(pa.string(), I64), [[("k", 1)], None]),
]


@pytest.mark.parametrize(("values", "source", "target", "expected"), PROMOTIONS)
def test_widened_columns_are_read_in_the_new_type(
    values: list[Any], source: pa.DataType, target: pa.DataType, expected: list[Any]
) -> None:
    assert promoted(pa.array(values, source), target, "c", "f").to_pylist() == expected
    padded = pa.concat_arrays([pa.nulls(2, source), pa.array(values, source)])
    assert promoted(padded.slice(2), target, "c", "f").to_pylist() == expected


REFUSED = [
    (I64, I32),
    (F64, F32),
    (F64, I64),
    (pa.string(), I32),
    (pa.date32(), pa.timestamp("us")),
    (pa.decimal128(9, 4), pa.decimal128(9, 2)),
    (pa.decimal128(9, 2), pa.decimal128(9, 4)),
    (pa.timestamp("us", "UTC"), pa.timestamp("us")),
    (pa.list_(I32), I32),
    (pa.struct([("a", I64)]), pa.struct([("a", I32)])),
]


@pytest.mark.parametrize(("source", "target"), REFUSED)
def test_any_other_change_of_type_is_refused_by_column_and_file(
    source: pa.DataType, target: pa.DataType
) -> None:
    assert not is_promotion(source, target)
    with pytest.raises(UnsupportedTableError, match=r"column 'c.*' of 'f\.parquet'"):
        promoted(pa.nulls(1, source), target, "c", "f.parquet")


def test_columns_come_in_the_schemas_order_and_missing_ones_are_null() -> None:
    batch = pa.RecordBatch.from_pydict({"b": [1], "gone": ["x"]})
    schema = pa.schema([("a", pa.string()), ("b", I64)])
    assert conform(batch, schema, "f").to_pylist() == [{"a": None, "b": 1}]


def test_names_of_list_items_and_nullability_are_no_promotion() -> None:
    two_levels = pa.schema([pa.field("l", pa.list_(pa.field("array", I32, nullable=False)))])
    three_levels = pa.schema([("l", pa.list_(pa.field("element", I32)))])
    assert not needs_promotion(two_levels, three_levels)
    assert needs_promotion(two_levels, pa.schema([("l", pa.list_(I64))]))
    assert not needs_promotion(pa.schema([]), three_levels)  # added since: null


def test_a_tables_schema_has_the_meta_columns_first_and_everything_nullable() -> None:
    avro = '{"type":"record","name":"r","fields":[{"name":"id","type":"string"}]}'
    schema = table_schema(avro, "c")
    assert schema.names[:2] == ["_hoodie_commit_time", "_hoodie_commit_seqno"]
    assert schema.field("id").nullable


BAD_SCHEMAS = [
    ("{", "not JSON"),
    ('"string"', "not a record"),
    ('{"type":"record","name":"r"}', "without fields"),
    ('{"type":"record","name":"r","fields":[{"type":"int"}]}', "without a name"),
    ('{"type":"record","name":"r","fields":[{"name":"a","type":"r"}]}', "contains itself"),
    ('{"type":"record","name":"r","fields":[{"name":"a","type":7}]}', "not a type"),
    (
        '{"type":"record","name":"r","fields":[{"name":"a","type":{"type":"fixed","name":"f","size":-1}}]}',
        "size -1",
    ),
    (
        '{"type":"record","name":"r","fields":[{"name":"a","type":{"type":"bytes","logicalType":"decimal","precision":99}}]}',
        "decimal",
    ),
    (
        '{"type":"record","name":"r","fields":[{"name":"a","type":'
        + '{"type":"array","items":' * 100
        + '"int"'
        + "}" * 100
        + "}]}",
        "levels deep",
    ),
]


@pytest.mark.parametrize(("text", "why"), BAD_SCHEMAS)
def test_a_schema_that_cannot_be_used_is_an_error_that_names_the_file(text: str, why: str) -> None:
    with pytest.raises(CorruptTableError, match=why) as caught:
        table_schema(text, "20260101000000000.commit")
    assert caught.value.path == "20260101000000000.commit"


def test_a_union_of_several_types_is_refused_by_name() -> None:
    text = '{"type":"record","name":"r","fields":[{"name":"a","type":["null","int","string"]}]}'
    with pytest.raises(UnsupportedTableError, match="union of 2 types"):
        table_schema(text, "c")
