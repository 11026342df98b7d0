"""Rows from anywhere become the table's rows, without loss or not at all."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.errors import InvalidRequestError
from pyhudi.format.avro.schema import avro_record_schema, decode_arrow_schema
from pyhudi.table.rows import coercion
from pyhudi.table.rows.input_rows import conformed
from pyhudi.table.rows.storable_types import storable_schema
from pyhudi.table.schema import META_COLUMNS

US, UTC = pa.timestamp("us"), pa.timestamp("us", "UTC")


def element(type_: pa.DataType, *, nullable: bool = True) -> pa.DataType:
    return pa.list_(pa.field("element", type_, nullable=nullable))


# ---- the types of a new table

#: Arrow type → the type stored for it.
STORED: list[tuple[pa.DataType, pa.DataType]] = [
    (pa.bool_(), pa.bool_()),
    *((type_, pa.int32()) for type_ in (pa.int8(), pa.int16(), pa.int32())),
    *((type_, pa.int32()) for type_ in (pa.uint8(), pa.uint16())),
    (pa.int64(), pa.int64()),
    (pa.uint32(), pa.int64()),
    (pa.float16(), pa.float32()),
    (pa.float32(), pa.float32()),
    (pa.float64(), pa.float64()),
    *((type_, pa.string()) for type_ in (pa.string(), pa.large_string(), pa.string_view())),
    *((type_, pa.binary()) for type_ in (pa.binary(), pa.large_binary(), pa.binary_view())),
    (pa.binary(16), pa.binary()),
    (pa.date32(), pa.date32()),
    (pa.date64(), pa.date32()),
    *((pa.timestamp(unit), US) for unit in ("s", "ms", "us", "ns")),
    *((pa.timestamp(unit, "Europe/Berlin"), UTC) for unit in ("s", "ms", "us", "ns")),
    (pa.decimal128(38, 38), pa.decimal128(38, 38)),
    (pa.decimal256(38, 2), pa.decimal128(38, 2)),
    (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
    (pa.list_(pa.int8()), element(pa.int32())),
    (
        pa.large_list(pa.field("x", pa.date64(), nullable=False)),
        element(pa.date32(), nullable=False),
    ),
    (pa.list_(pa.float16(), 2), element(pa.float32())),
    (pa.list_view(pa.uint32()), element(pa.int64())),
    (pa.map_(pa.large_string(), pa.int16()), pa.map_(pa.string(), pa.int32())),
    (
        pa.struct([("a", pa.struct([("b", pa.uint8())]))]),
        pa.struct([("a", pa.struct([("b", pa.int32())]))]),
    ),
]


@pytest.mark.parametrize(("given_", "stored"), STORED, ids=[str(pair[0]) for pair in STORED])
def test_a_table_stores_the_documented_type_and_reads_it_back(
    given_: pa.DataType, stored: pa.DataType
) -> None:
    schema = storable_schema(pa.schema([pa.field("c", given_, nullable=False)]))
    assert schema == pa.schema([pa.field("c", stored, nullable=False)])
    avro = json.dumps(avro_record_schema(schema, "t"))
    assert decode_arrow_schema(avro, "") == schema
    assert storable_schema(schema) == schema


def nested(levels: int) -> pa.DataType:
    type_ = pa.int32()
    for _ in range(levels):
        type_ = pa.list_(type_)
    return type_


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([], "has no columns"),
        ([("c", pa.uint64())], "'c' .*uint64. Cast it to int64, or to decimal128"),
        ([("c", pa.null())], "'c' .*null. Give it a type"),
        ([("c", pa.time32("ms"))], "'c' .*Cast it to int64"),
        ([("c", pa.time64("ns"))], "'c' .*pyhudi does not write time64.*Cast it to int64"),
        ([("c", pa.duration("s"))], "'c' .*Cast it to int64"),
        ([("c", pa.month_day_nano_interval())], "'c' .*Cast it to another type"),
        ([("c", pa.decimal256(39, 0))], "'c' .*at most 38 digits"),
        ([("c", pa.decimal128(5, -2))], "'c' .*scale from 0"),
        ([("c", pa.decimal128(5, 6))], "'c' .*scale from 0"),
        ([("c", pa.map_(pa.int32(), pa.int32()))], "'c' .*Cast the keys to string"),
        ([("c", pa.struct([]))], "'c' .*give it a field"),
        ([("c", pa.uuid())], "'c' .*storage type"),
        ([("c", pa.run_end_encoded(pa.int32(), pa.int32()))], "'c' .*Cast it"),
        ([("c", pa.list_(pa.struct([("d", pa.null())])))], r"'c\.element\.d'"),
        ([("c", pa.map_(pa.string(), pa.uint64()))], r"'c\.value'"),
        ([("c", pa.struct([("x y", pa.int32())]))], r"'c\.x y' .*Rename"),
        ([("c", nested(40))], "levels deep.*flatten"),
        ([("c", nested(200))], "levels deep"),
        ([(f"c{n}", pa.int32()) for n in range(10_000)], "more than 10000 fields"),
        ([("c", pa.int32()), ("c", pa.int32())], "'c' .*several have that name"),
        ([("c", pa.int32()), ("C", pa.int32())], "'C' .*'c' differs from it only in case"),
        ([("1c", pa.int32())], "'1c' .*begins with no digit"),
        ([("c.d", pa.int32())], r"'c\.d' .*Rename"),
        ([("é", pa.int32())], "'é' .*Rename"),
        ([("", pa.int32())], "'' .*Rename"),
        ([("_hoodie_record_key", pa.string())], "its schema has no columns"),
        ([("_hoodie_mine", pa.string())], "'_hoodie_mine' .*Hudi's own"),
    ],
)
def test_a_schema_that_no_table_can_have_is_refused(
    fields: list[tuple[str, pa.DataType]], message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        storable_schema(pa.schema(fields))


# ---- rows


def into(array: pa.Array, type_: pa.DataType, *, nullable: bool = True) -> pa.Array:
    schema = pa.schema([pa.field("c", type_, nullable=nullable)])
    result = conformed(pa.RecordBatch.from_arrays([array], ["c"]), schema)
    assert result.schema == schema
    result.validate(full=True)
    return result.column(0)


#: A value in the type it comes in, and the type of the table.
LOSSLESS: list[tuple[Any, pa.DataType, pa.DataType]] = [
    (200, pa.uint8(), pa.int32()),
    (2**31 - 1, pa.int64(), pa.int32()),
    (2**63 - 1, pa.uint64(), pa.int64()),
    (2**53, pa.int64(), pa.float64()),
    (2**24, pa.int32(), pa.float32()),
    (-5, pa.int64(), pa.decimal128(3, 2)),
    (2**64 - 1, pa.uint64(), pa.decimal128(20, 0)),
    (0.5, pa.float64(), pa.float32()),
    (float("inf"), pa.float64(), pa.float32()),
    (0.1, pa.float64(), pa.float64()),
    (Decimal("1.50"), pa.decimal128(20, 2), pa.decimal128(3, 2)),
    (Decimal("1.50"), pa.decimal256(50, 10), pa.decimal128(3, 1)),
    ("é", pa.large_string(), pa.string()),
    ("é", pa.string_view(), pa.string()),
    ("é", pa.dictionary(pa.int8(), pa.string()), pa.string()),
    (b"\xff", pa.binary(1), pa.binary()),
    (b"\xff", pa.binary(), pa.binary(1)),
    (dt.date(2026, 1, 1), pa.date64(), pa.date32()),
    (dt.datetime(2026, 1, 1, 0, 0, 1), pa.timestamp("ns"), US),
    (dt.datetime(2026, 1, 1, tzinfo=dt.UTC), pa.timestamp("s", "Asia/Tokyo"), UTC),
    ([1, None], pa.list_(pa.int64(), 2), element(pa.int32())),
    ([[1], []], pa.large_list(pa.large_list(pa.int64())), element(element(pa.int32()))),
    ([("k", 1)], pa.map_(pa.large_string(), pa.int64()), pa.map_(pa.string(), pa.int32())),
    (
        {"b": 1, "a": "x"},
        pa.struct([("b", pa.int64()), ("a", pa.large_string())]),
        pa.struct([("a", pa.string()), ("b", pa.int32())]),
    ),
]


@pytest.mark.parametrize(("value", "source", "target"), LOSSLESS)
def test_a_value_keeps_its_meaning_in_the_tables_type(
    value: Any, source: pa.DataType, target: pa.DataType
) -> None:
    array = pa.array([None, value, None, value], source)
    want = [None, value, None, value]
    for start in range(5):
        assert into(array[start:], target).to_pylist() == want[start:]


def test_nulls_without_a_type_may_go_anywhere() -> None:
    for type_ in (pa.int32(), element(UTC), pa.struct([("a", pa.string())])):
        assert into(pa.nulls(2), type_) == pa.nulls(2, type_)


def test_nan_is_no_loss() -> None:
    assert np.isnan(into(pa.array([float("nan")]), pa.float32())[0].as_py())


#: Bad values in their type, the table's type, and which of five rows the error must show.
LOSSY: list[tuple[list[Any], pa.DataType, pa.DataType, str]] = [
    ([1, 2**31, 2, 3, -(2**40)], pa.int64(), pa.int32(), r"row 1 \(c=2147483648\), row 4 \(c=-1"),
    ([1, 2**63, 2, 3, 4], pa.uint64(), pa.int64(), r"row 1 \(c=9223372036854775808\)"),
    ([0, 2**53 + 1, 2, 3, 4], pa.int64(), pa.float64(), "row 1 "),
    ([0, 100, 2, 3, 4], pa.int64(), pa.decimal128(3, 1), "row 1 "),
    ([0, 0.1, 2, 3, 1e300], pa.float64(), pa.float32(), r"row 1 \(c=0.1\), row 4 \(c=1e\+300\)"),
    (
        [Decimal("1.23")] * 5,
        pa.decimal128(5, 2),
        pa.decimal128(5, 1),
        r"row 0 .*1 .*row 2 \(c=1.23",
    ),
    ([1000, 1001, 2000, 2001, None], pa.timestamp("ns"), US, r"000001001\), row 3 \(c=1970"),
    ([0, 2**60, 1, 2, 3], pa.timestamp("s", "UTC"), UTC, "row 1 "),
    ([0, 1, 2, 3, 86_400_000], pa.date64(), pa.date32(), "row 1 .*row 2 .*row 3 "),
    ([b"a", b"bc", b"d", None, b"e"], pa.binary(), pa.binary(1), r"row 1 \(c=b'bc'\)"),
    ([[1], [2**40], None, [], [3]], pa.list_(pa.int64()), element(pa.int32()), r"row 1 \(c=\[10"),
    (
        [[], None, [("k", 2**40)], [], []],
        pa.map_(pa.string(), pa.int64()),
        pa.map_(pa.string(), pa.int32()),
        "'c.value'.*row 2 ",
    ),
    (
        [{"a": 1}, None, {"a": 2**40}, None, {"a": 5}],
        pa.struct([("a", pa.int64())]),
        pa.struct([("a", pa.int32())]),
        r"'c\.a'.*row 2 \(c=\{'a': 1099511627776\}\)",
    ),
]


@pytest.mark.parametrize(("values", "source", "target", "message"), LOSSY)
def test_a_value_that_would_change_is_refused_with_its_row(
    values: list[Any], source: pa.DataType, target: pa.DataType, message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message) as refusal:
        into(pa.array(values, source), target)
    assert "do not fit" in refusal.value.what
    assert ", as in row " in refusal.value.why


def test_at_most_three_rows_are_shown_and_long_values_are_cut() -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        into(pa.array([[2**40] * 100] * 1000), element(pa.int32()))
    assert str(refusal.value).count("row ") == 3
    assert len(str(refusal.value)) < 500


def test_a_batch_whose_rows_fit_only_one_by_one_is_to_be_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coercion, "_LIST_VALUES_MAX", 3)
    with pytest.raises(InvalidRequestError, match=r"'c' .* more than 3 values. .*smaller batches"):
        into(pa.array([[1, 2], [3, 4]]), element(pa.int32()))


REQUIRED = pa.field("a", pa.int32(), nullable=False)


@pytest.mark.parametrize(
    ("array", "type_", "message"),
    [
        (pa.array([1, None]), pa.int32(), r"'c' .*row 1 \(c=null\)"),
        (pa.nulls(2), pa.int32(), "'c' .*row 0 .*row 1 "),
        (pa.array([{"a": 1}, {"a": None}]), pa.struct([REQUIRED]), r"'c\.a' .*row 1 "),
        (pa.array([[1], [None]]), element(pa.int32(), nullable=False), r"'c\.element' .*row 1 "),
        (
            pa.array([[("k", 1)], [("k", None)]], pa.map_(pa.string(), pa.int32())),
            pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False)),
            r"'c\.value' .*row 1 ",
        ),
    ],
)
def test_a_null_where_none_may_be_is_refused_with_its_row(
    array: pa.Array, type_: pa.DataType, message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        into(array, type_, nullable=False)


def test_a_null_struct_has_no_required_fields() -> None:
    type_ = pa.struct([REQUIRED])
    assert into(pa.array([None, {"a": 1}], type_), type_).to_pylist() == [None, {"a": 1}]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (pa.string(), pa.int32()),
        (pa.int32(), pa.string()),
        (pa.float64(), pa.int64()),
        (pa.float64(), pa.decimal128(10, 2)),
        (pa.decimal128(10, 2), pa.float64()),
        (pa.bool_(), pa.int32()),
        (pa.int32(), pa.bool_()),
        (pa.string(), pa.binary()),
        (pa.binary(), pa.string()),
        (pa.date32(), US),
        (US, pa.date32()),
        (US, UTC),
        (UTC, US),
        (pa.int64(), UTC),
        (pa.time32("s"), pa.int32()),
        (pa.list_(pa.int32()), pa.int32()),
        (pa.int32(), element(pa.int32())),
        (pa.dictionary(pa.int8(), pa.string()), pa.int32()),
        (pa.uuid(), pa.binary()),
    ],
)
def test_a_type_that_means_something_else_is_refused(
    source: pa.DataType, target: pa.DataType
) -> None:
    with pytest.raises(InvalidRequestError, match=r"types in 'c': .* cannot become .*Cast"):
        into(pa.nulls(0, source), target)


SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int32()), ("s", pa.struct([("x", pa.int32())]))])


def rows(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


ID, N, S = pa.array(["a"]), pa.array([1]), pa.array([{"x": 1}])


def test_columns_come_in_any_order_and_meta_columns_are_left_out() -> None:
    meta = {name: pa.array(["-"]) for name in META_COLUMNS}
    result = conformed(rows(s=S, **meta, n=N, id=ID), SCHEMA)
    assert result.to_pylist() == [{"id": "a", "n": 1, "s": {"x": 1}}]
    assert result.schema == SCHEMA


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (rows(id=ID), "missing columns 'n', 's'"),
        (rows(id=ID, n=N, s=S, t=N, u=N), "columns that the table does not have: 't', 'u'"),
        (rows(id=ID, N=N, s=S), "missing columns 'n'; .*'N'.*rename 'N' to 'n'"),
        (pa.RecordBatch.from_arrays([ID, N, N, S], ["id", "n", "n", "s"]), "several .* 'n'"),
        (rows(id=N, n=ID, s=S), "'id', 'n': id: int64 cannot become string; n: string cannot"),
        (rows(id=ID, n=N, s=pa.array([{"y": 1}])), r"s\.x: it is missing; s\.y: the table has no"),
        (
            rows(id=ID, n=N, s=pa.StructArray.from_arrays([N, N], ["x", "x"])),
            r"s\.x: several fields have that name",
        ),
        (rows(**{f"c{n}": N for n in range(30)}), "and 20 more"),
    ],
)
def test_rows_of_another_shape_are_refused_by_column(batch: pa.RecordBatch, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        conformed(batch, SCHEMA)


# ---- rows that lack columns, and which schema mode would help

NESTED = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("n", pa.int32()),
        ("s", pa.struct([pa.field("x", pa.int32(), nullable=False), ("y", element(pa.int32()))])),
        ("l", element(pa.struct([("x", pa.int32()), ("y", pa.struct([("z", pa.int32())]))]))),
        ("m", pa.map_(pa.string(), pa.struct([("x", pa.int32()), ("y", pa.string())]))),
    ]
)


def test_missing_columns_and_fields_become_null_if_they_are_to_be_filled() -> None:
    x = pa.struct([("x", pa.int64())])
    batch = rows(
        l=pa.array([[{"x": 1}, None], None, []], pa.large_list(x)),
        s=pa.array([None, {"x": 2}, {"x": 3}], x),
        m=pa.array([[("k", {"x": 4})], [], None], pa.map_(pa.string(), x)),
        id=pa.array(["a", "b", "c"]),
    )[1:]
    result = conformed(batch, NESTED, fills_missing=True)
    result.validate(full=True)
    assert result.schema == NESTED
    assert result.to_pylist() == [
        {"id": "b", "n": None, "s": {"x": 2, "y": None}, "l": None, "m": []},
        {"id": "c", "n": None, "s": {"x": 3, "y": None}, "l": [], "m": None},
    ]
    first = conformed(rows(id=ID, l=pa.array([[{"x": 1}, None]])), NESTED, fills_missing=True)
    assert first.column("l").to_pylist() == [[{"x": 1, "y": None}, None]]
    with pytest.raises(InvalidRequestError, match="missing columns 'n', 's', 'm'"):
        conformed(batch.select(["id", "l"]), NESTED)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (rows(n=N), "missing columns 'id'\\. "),
        (rows(id=ID, s=pa.array([{"y": [1]}])), r"'s\.x': s\.x: it is missing\. "),
        (rows(id=ID, t=N), "columns that the table does not have: 't'"),
        (rows(id=ID, s=pa.array([{"x": 1, "t": 1}])), r"s\.t: the table has no such field"),
        (rows(id=ID, s=pa.array([{"x": None}])), r"'s\.x' do not fit: it must not be null"),
        (pa.RecordBatch.from_arrays([ID, N, N], ["id", "n", "n"]), "several columns named 'n'"),
    ],
)
def test_required_and_unknown_columns_are_refused_where_others_are_filled(
    batch: pa.RecordBatch, message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        conformed(batch, NESTED, fills_missing=True)


PLAIN = pa.schema(
    [
        pa.field("id", pa.string()),
        ("n", pa.int32()),
        ("s", pa.struct([("x", pa.int32())])),
        pa.field("must", pa.int32(), nullable=False),
    ]
)
N1, S1 = pa.array([1], pa.int32()), pa.array([{"x": 1}], pa.struct([("x", pa.int32())]))
WIDE = pa.array([2**40])

#: Rows that do not fit, and the advice on schema modes; none where no mode helps.
ADVISED: list[tuple[pa.RecordBatch, str | None]] = [
    (rows(id=ID, n=N1, s=S1, must=N1, t=N, u=N), "add\" would add 't', 'u' to the table"),
    (rows(id=ID, n=WIDE, s=S1, must=N1), "add\" would widen 'n' in the table"),
    (rows(id=ID, n=pa.array([0.5]), s=S1, must=N1), "add\" would widen 'n' in the table"),
    (
        rows(id=ID, n=N1, s=pa.array([{"x": 1, "y": 1}]), must=N1),
        "add\" would widen 's' in the table",
    ),
    # Rows that bring one change may bring others, which are named too.
    (
        rows(id=ID, n=N, s=S1, must=N, t=N),
        "add\" would add 't' to the table and widen 'n', 'must' in the table",
    ),
    (
        rows(id=ID, s=S1, must=N1),
        "merge\" would write null for 'n', in place of any older value",
    ),
    (
        rows(id=ID, s=pa.array([{"y": 1}]), must=N1, t=N),
        "merge\" would add 't' to the table and widen 's' in the table"
        " and write null for 'n', 's.x', in place of any older value",
    ),
    # Names that differ in case are never new columns.
    (rows(id=ID, N=N, s=S1, must=N1), None),
    (rows(id=ID, n=N1, s=pa.array([{"X": 1}]), must=N1), None),
    (rows(id=ID, n=N1, s=S1, must=N1, _hoodie_t=N), None),
    (rows(id=ID, n=N1, s=S1, must=N1, t=pa.nulls(1)), None),
    (rows(n=N1, s=S1, must=N1), None),  # a key
    (rows(id=ID, n=N1, s=S1), None),  # a required column
    (rows(id=ID, n=N1, s=S1, must=pa.array([None], pa.int64())), None),
    (rows(id=ID, n=ID, s=S1, must=N1), None),
    (rows(id=ID, n=ID, s=S1, must=N1, t=N), None),
    (pa.RecordBatch.from_arrays([ID, N, N, S, N], ["id", "n", "n", "s", "must"]), None),
    (rows(id=N, n=N1, s=S1, must=N1), None),
]


@pytest.mark.parametrize(("batch", "advice"), ADVISED)
def test_a_refusal_says_which_schema_mode_would_help_and_what_it_would_do(
    batch: pa.RecordBatch, advice: str | None
) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        conformed(batch, PLAIN, fixed=["id"])
    if advice is None:
        assert "schema_mode" not in str(refusal.value)
    else:
        assert refusal.value.next_step.endswith(f'. schema_mode="{advice}')
    with pytest.raises(InvalidRequestError) as plain:
        conformed(batch, PLAIN)  # for a verb that has no such mode
    assert "schema_mode" not in str(plain.value)
    assert str(refusal.value).startswith(str(plain.value).removesuffix("."))


def test_a_fixed_column_is_never_to_be_widened() -> None:
    with pytest.raises(InvalidRequestError, match="int32") as refusal:
        conformed(rows(id=ID, n=WIDE, s=S1, must=N1), PLAIN, fixed=["n"])
    assert "schema_mode" not in str(refusal.value)


def test_a_pandas_frame_makes_a_table_and_goes_into_it() -> None:
    frame = pd.DataFrame(
        {
            "at": pd.to_datetime(["2026-01-01", None]),
            "kind": pd.Categorical(["a", "b"]),
            "n": np.array([1, 2], np.uint8),
        }
    )
    batch = pa.RecordBatch.from_pandas(frame)
    schema = storable_schema(batch.schema)
    assert schema == pa.schema([("at", US), ("kind", pa.string()), ("n", pa.int32())])
    found = conformed(batch, schema).to_pylist()
    assert found == [
        {"at": dt.datetime(2026, 1, 1), "kind": "a", "n": 1},
        {"at": None, "kind": "b", "n": 2},
    ]


def test_a_polars_frame_makes_a_table_and_goes_into_it() -> None:
    frame = pl.DataFrame(
        {
            "kind": pl.Series(["a", "b", None], dtype=pl.Categorical),
            "size": pl.Series(["s", "l", "s"], dtype=pl.Enum(["s", "l"])),
            "n": pl.Series([1, 2, 3], dtype=pl.UInt32),
            "pair": pl.Series([[1, 2], None, [5, 6]], dtype=pl.Array(pl.Int8, 2)),
            "deep": [[{"text": "x"}], [], None],
        }
    )
    (batch,) = pa.RecordBatchReader.from_stream(frame)
    schema = storable_schema(batch.schema)
    assert [str(field.type) for field in schema] == [
        *("string", "string", "int64", "list<element: int32>"),
        "list<element: struct<text: string>>",
    ]
    assert conformed(batch, schema).to_pylist() == frame.to_dicts()


INTS = st.lists(st.none() | st.integers(-(2**40), 2**40))


@settings(deadline=None, max_examples=50)
@given(INTS)
def test_numbers_come_through_unchanged_or_the_first_that_does_not_is_named(
    values: list[int | None],
) -> None:
    bad = [n for n, v in enumerate(values) if v is not None and not -(2**31) <= v < 2**31]
    array = pa.array(values, pa.int64())
    if not bad:
        assert into(array, pa.int32()).to_pylist() == values
        return
    with pytest.raises(InvalidRequestError) as refusal:
        into(array, pa.int32())
    shown = ", ".join(f"row {n} (c={values[n]})" for n in bad[:3])
    assert f"as in {shown}." in str(refusal.value)


TREES = st.recursive(
    st.just(pa.int16()) | st.just(pa.large_string()) | st.just(pa.timestamp("ns")),
    lambda inner: (
        inner.map(pa.large_list)
        | inner.map(lambda type_: pa.map_(pa.string(), type_))
        | st.lists(inner, min_size=1, max_size=3).map(
            lambda types: pa.struct([(f"f{n}", type_) for n, type_ in enumerate(types)])
        )
    ),
    max_leaves=6,
)


def value_of(type_: pa.DataType, draw: Any) -> Any:
    """Some value of the type, or null."""
    if draw(st.integers(0, 4)) == 0:
        return None
    if pa.types.is_struct(type_):
        return {field.name: value_of(field.type, draw) for field in type_}
    size = draw(st.integers(0, 2))
    if pa.types.is_map(type_):
        return [(f"k{n}", value_of(type_.item_type, draw)) for n in range(size)]
    if pa.types.is_large_list(type_):
        return [value_of(type_.value_type, draw) for _ in range(size)]
    if pa.types.is_timestamp(type_):
        return dt.datetime(2026, 1, 1) + dt.timedelta(microseconds=size)
    return size if pa.types.is_integer(type_) else f"text {size}"


@settings(deadline=None, max_examples=60)
@given(TREES, st.data())
def test_columns_inside_columns_come_through_unchanged(type_: pa.DataType, data: Any) -> None:
    values = [value_of(type_, data.draw) for _ in range(data.draw(st.integers(0, 6)))]
    start = data.draw(st.integers(0, len(values)))
    batch = rows(c=pa.array(values, type_))[start:]
    result = conformed(batch, storable_schema(batch.schema))
    result.validate(full=True)
    assert result.column(0).to_pylist() == values[start:]
