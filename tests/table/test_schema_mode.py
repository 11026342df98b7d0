"""Rows make a table's schema grow without loss, or are refused by column."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.errors import InvalidRequestError
from pyhudi.format.avro.schema import avro_record_schema, decode_arrow_schema
from pyhudi.settings import SchemaMode
from pyhudi.table.rows.input_rows import conformed
from pyhudi.table.rows.schema_mode import brought_schema, parse_schema_mode
from pyhudi.table.schema import META_COLUMNS, conform, is_promotion

STRICT, ADD, MERGE = SchemaMode.STRICT, SchemaMode.ADD, SchemaMode.MERGE
GROWING = pytest.mark.parametrize("mode", [ADD, MERGE])

INT, LONG, FLOAT, DOUBLE = pa.int32(), pa.int64(), pa.float32(), pa.float64()
TEXT = pa.string()
KEY = pa.field("id", TEXT, nullable=False)


def required(name: str, type_: pa.DataType) -> pa.Field:
    return pa.field(name, type_, nullable=False)


def element(type_: pa.DataType, *, nullable: bool = True) -> pa.DataType:
    return pa.list_(pa.field("element", type_, nullable=nullable))


def text_map(type_: pa.DataType, *, nullable: bool = True) -> pa.DataType:
    return pa.map_(TEXT, pa.field("value", type_, nullable=nullable))


def struct(**fields: pa.DataType) -> pa.DataType:
    return pa.struct(list(fields.items()))


# ---- types


def decimal(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(precision, scale)


#: The table's type, the rows' type, and the table's type then.
WIDENED: list[tuple[pa.DataType, pa.DataType, pa.DataType]] = [
    (INT, LONG, LONG),
    (INT, pa.uint32(), LONG),
    (INT, FLOAT, DOUBLE),
    (INT, pa.float16(), DOUBLE),
    (INT, DOUBLE, DOUBLE),
    (FLOAT, DOUBLE, DOUBLE),
    (INT, pa.dictionary(pa.int8(), LONG), LONG),
    (decimal(5, 2), decimal(7, 2), decimal(7, 2)),
    (decimal(5, 2), decimal(5, 4), decimal(7, 4)),
    (decimal(5, 4), decimal(5, 2), decimal(7, 4)),
    (decimal(5, 2), pa.decimal256(38, 2), decimal(38, 2)),
    (struct(x=INT, y=TEXT), struct(y=TEXT, x=LONG), struct(x=LONG, y=TEXT)),
    (element(INT), pa.large_list(LONG), element(LONG)),
    (element(INT, nullable=False), pa.list_(LONG), element(LONG, nullable=False)),
    (text_map(INT), pa.map_(pa.large_string(), LONG), text_map(LONG)),
    (element(struct(x=text_map(FLOAT))), pa.list_(struct(x=text_map(DOUBLE))), element(
        struct(x=text_map(DOUBLE))
    )),
    (struct(x=INT), struct(x=INT, y=pa.int8()), struct(x=INT, y=INT)),
    (element(struct(x=INT)), pa.list_(struct(z=DOUBLE, x=INT)), element(struct(x=INT, z=DOUBLE))),
    (text_map(struct(x=INT)), text_map(struct(x=INT, y=TEXT)), text_map(struct(x=INT, y=TEXT))),
]  # fmt: skip

#: The table's type and rows' types that change nothing.
KEPT: list[tuple[pa.DataType, pa.DataType]] = [
    (LONG, pa.int8()),
    (LONG, INT),
    (LONG, pa.uint64()),
    (INT, pa.uint64()),
    (DOUBLE, FLOAT),
    (DOUBLE, INT),
    (DOUBLE, LONG),
    (FLOAT, INT),
    (FLOAT, LONG),
    (decimal(7, 4), decimal(5, 2)),
    (decimal(38, 0), decimal(38, 38)),
    (decimal(5, 2), pa.decimal256(76, 2)),
    (decimal(5, 2), INT),
    (INT, pa.null()),
    (struct(x=INT), pa.null()),
    (struct(x=INT), struct(x=pa.null())),
    (element(INT), pa.list_(pa.null())),
    (pa.timestamp("ms"), pa.timestamp("ns")),
    (pa.binary(4), pa.binary()),
    # What cannot become the table's type is refused afterwards, as without a mode.
    (LONG, DOUBLE),
    (LONG, FLOAT),
    (INT, decimal(5, 2)),
    (INT, TEXT),
    (TEXT, INT),
    (TEXT, pa.binary()),
    (pa.date32(), pa.timestamp("us")),
    (element(INT), INT),
    (struct(x=INT), INT),
    (INT, pa.uuid()),
]


@GROWING
@pytest.mark.parametrize(("own", "rows", "then"), WIDENED, ids=str)
def test_a_type_becomes_the_least_that_holds_old_and_new_values(
    own: pa.DataType, rows: pa.DataType, then: pa.DataType, mode: SchemaMode
) -> None:
    table, brought = pa.schema([KEY, ("c", own)]), pa.schema([KEY, ("c", rows)])
    assert brought_schema(table, brought, mode, ["id"]) == pa.schema([KEY, ("c", then)])


@GROWING
@pytest.mark.parametrize(("own", "rows"), KEPT, ids=str)
def test_rows_of_no_wider_type_leave_the_table_as_it_is(
    own: pa.DataType, rows: pa.DataType, mode: SchemaMode
) -> None:
    table = pa.schema([("c", own)])
    assert brought_schema(table, pa.schema([("c", rows)]), mode, []) is table


def test_strict_rows_bring_the_schema_of_the_table_whatever_they_have() -> None:
    table = pa.schema([KEY, ("c", INT)])
    for rows in (pa.schema([("c", LONG), ("_hoodie_x", pa.null())]), pa.schema([])):
        assert brought_schema(table, rows, STRICT, ["id"]) is table


# ---- new columns


@GROWING
def test_new_columns_follow_the_old_ones_nullable_and_in_storable_types(mode: SchemaMode) -> None:
    table = pa.schema([KEY, ("c", INT)])
    rows = pa.schema(
        [
            required("b", pa.uint16()),
            ("c", INT),
            required("a", pa.list_(required("item", pa.date64()))),
            ("m", text_map(struct(x=pa.large_string()), nullable=False)),
            ("s", pa.struct([required("x", pa.timestamp("ns", "Europe/Berlin"))])),
            KEY,
            *((name, TEXT) for name in META_COLUMNS),
        ]
    )
    assert brought_schema(table, rows, mode, ["id"]) == pa.schema(
        [
            KEY,
            ("c", INT),
            ("b", INT),
            ("a", element(pa.date32())),
            ("m", text_map(struct(x=TEXT))),
            ("s", struct(x=pa.timestamp("us", "UTC"))),
        ]
    )


@GROWING
def test_new_fields_inside_old_columns_are_nullable(mode: SchemaMode) -> None:
    old = pa.struct([required("x", INT)])
    new = pa.struct([required("y", element(INT, nullable=False)), required("x", INT)])
    then = pa.struct([required("x", INT), ("y", element(INT))])
    for own, rows, expected in (
        (old, new, then),
        (element(old), element(new), element(then)),
        (text_map(old), text_map(new), text_map(then)),
    ):
        found = brought_schema(pa.schema([("c", own)]), pa.schema([("c", rows)]), mode, [])
        assert found == pa.schema([("c", expected)])


def test_what_does_not_change_keeps_its_nullability_and_metadata() -> None:
    note = {"comment": "as it was"}
    kept = pa.field("kept", INT, nullable=False, metadata=note)
    inner = pa.struct([pa.field("x", INT, metadata=note)])
    own = [kept, pa.field("wider", INT, nullable=False, metadata=note), pa.field("s", inner)]
    table = pa.schema(own, metadata={"of": "the table"})
    rows = pa.schema([("kept", INT), ("wider", LONG), ("s", struct(x=INT, y=INT)), ("new", INT)])
    then = brought_schema(table, rows, ADD, [])
    assert then.field("kept").equals(kept, check_metadata=True)
    wider = pa.field("wider", LONG, nullable=False, metadata=note)
    assert then.field("wider").equals(wider, check_metadata=True)
    assert then.field("s").type.field("x").equals(inner.field("x"), check_metadata=True)
    assert then.metadata == table.metadata


def test_a_table_without_a_schema_takes_that_of_the_rows() -> None:
    rows = pa.schema([required("id", pa.large_string()), ("n", pa.int8()), (META_COLUMNS[0], TEXT)])
    for mode in SchemaMode:
        assert brought_schema(None, rows, mode, ["id"]) == pa.schema([KEY, ("n", INT)])
        with pytest.raises(InvalidRequestError, match=r"'_pyhudi_rank' .*pyhudi's own"):
            brought_schema(None, rows.append(pa.field("_pyhudi_rank", INT)), mode, ["id"])


# ---- refusals


def deep(levels: int) -> pa.DataType:
    type_ = INT
    for _ in range(levels):
        type_ = pa.list_(type_)
    return type_


TABLE = pa.schema(
    [
        KEY,
        ("day", INT),
        ("ts", pa.int32()),
        ("s", pa.struct([required("x", INT), ("y", INT), ("in", struct(k=INT, v=INT))])),
        ("l", element(struct(x=INT))),
    ]
)
FIXED = ("id", "day", "ts", "s.in.k")


def changed(*, without: str = "", **types: pa.DataType) -> pa.Schema:
    """The table's schema as that of rows, with columns added, changed and left out."""
    columns = {field.name: field.type for field in TABLE if field.name != without} | types
    return pa.schema(list(columns.items()))


IN = struct(k=INT, v=INT)

#: What rows bring, and the error.
REFUSED: list[tuple[pa.Schema, str]] = [
    (changed(day=LONG), r"'day' cannot become int64: by 'day' the table finds.*Cast it to int32"),
    (changed(ts=DOUBLE), r"'ts' cannot become double: by 'ts' the table.*Cast it to int32"),
    (
        changed(s=pa.struct([("x", INT), ("y", INT), ("in", struct(k=LONG, v=INT))])),
        r"'s\.in\.k' cannot become int64: by 's\.in\.k' .*Cast it to int32",
    ),
    (changed(t=pa.null()), "'t' .*Give it a type"),
    (changed(l=pa.list_(struct(x=INT, z=pa.null()))), r"'l\.element\.z' .*Give it a type"),
    (changed(t=pa.uint64()), "'t' .*Cast it to int64"),
    (changed(_hoodie_mine=INT), "'_hoodie_mine' .*Hudi's own"),
    (changed(_HOODIE_record_key=TEXT), "'_HOODIE_record_key' .*Hudi's own"),
    (changed(_pyhudi_rank=INT), "'_pyhudi_rank' .*pyhudi's own"),
    (changed(_pyhudi_=INT), "'_pyhudi_' .*pyhudi's own"),
    (changed(__pyhudi_bucket=INT), "'__pyhudi_bucket' .*pyhudi's own"),
    (changed(DAY=INT), "'DAY' .*'day' differs from it only in case.*Rename it to 'day' if"),
    (changed(t=INT, T=INT), "'T' .*'t' differs from it only in case.*Rename one"),
    (
        changed(l=pa.list_(struct(x=INT, X=INT))),
        r"'l\.element\.X' .*'l\.element\.x' differs from it only in case",
    ),
    (changed(**{"t t": INT}), "'t t' .*Rename it"),
    (changed(l=pa.list_(struct(x=INT, é=INT))), r"'l\.element\.é' .*Rename it"),
    (pa.schema([*TABLE, ("t", INT), ("t", INT)]), "'t' .*several have that name"),
    (changed(t=deep(40)), "'t' .*more than 64 levels deep.*flatten"),
    (changed(t=deep(200)), "'t.element.*' .*more than 64 levels deep"),
    (changed(l=pa.list_(struct(x=INT, z=deep(30)))), "'l' .*more than 64 levels deep"),
    (changed(a=INT, b=deep(40), c=deep(41)), "'b' .*more than 64 levels deep"),
]


@GROWING
@pytest.mark.parametrize(("rows", "message"), REFUSED, ids=[pair[1] for pair in REFUSED])
def test_what_no_table_may_have_is_refused_by_column(
    rows: pa.Schema, message: str, mode: SchemaMode
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        brought_schema(TABLE, rows, mode, FIXED)


@GROWING
@pytest.mark.parametrize("fixed", ["c", "c.in"])
def test_a_struct_among_the_fixed_columns_gets_no_field(mode: SchemaMode, fixed: str) -> None:
    table = pa.schema([("c", struct(**{"in": struct(k=INT)}))])
    rows = pa.schema([("c", struct(**{"in": struct(k=INT, new=INT)}))])
    with pytest.raises(InvalidRequestError, match=rf"'c\.in\.new' cannot be added.*'{fixed}"):
        brought_schema(table, rows, mode, [fixed])
    assert brought_schema(table, rows, mode, ["c.in.k", "c.i"]) == rows


def test_the_first_column_past_the_limit_is_named() -> None:
    new = [(f"c{n}", INT) for n in range(12_000)]
    with pytest.raises(InvalidRequestError) as refusal:
        brought_schema(TABLE, pa.schema([*TABLE, *new]), ADD, FIXED)
    named = int(refusal.value.what.split("'")[1].removeprefix("c"))
    assert "more than 10000 fields" in refusal.value.why
    assert len(brought_schema(TABLE, pa.schema([*TABLE, *new[:named]]), ADD, FIXED)) == named + 5
    with pytest.raises(InvalidRequestError, match=f"'c{named}'"):
        brought_schema(TABLE, pa.schema([*TABLE, *new[: named + 1]]), ADD, FIXED)


#: What rows lack, and the error under "merge"; none if the column becomes null.
LACKING: list[tuple[pa.Schema, str | None]] = [
    (changed(without="l"), None),
    (changed(s=pa.struct([("x", INT), ("in", IN)])), None),
    (changed(s=pa.struct([("x", INT), ("in", struct(k=INT))])), None),
    (changed(l=pa.list_(struct(new=INT))), None),
    (changed(s=pa.null()), None),
    (changed(without="id"), "'id' cannot be left out: by 'id' .*Give it in every row"),
    (changed(without="id", ID=TEXT), "'ID' cannot be stored: 'id' differs .* only in case"),
    (changed(without="day"), "'day' cannot be left out: by 'day' "),
    (changed(without="ts"), "'ts' cannot be left out: by 'ts' "),
    (changed(without="s"), "'s' cannot be left out: by 's' "),
    (changed(s=pa.struct([("x", INT), ("y", INT)])), r"'s\.in' cannot be left out: by 's\.in' "),
    (
        changed(s=pa.struct([("x", INT), ("y", INT), ("in", struct(v=INT))])),
        r"'s\.in\.k' cannot be left out: by",
    ),
    (
        changed(s=pa.struct([("y", INT), ("in", IN)])),
        r"'s\.x' cannot be left out: the table requires a value there.*Give it in every row",
    ),
]


@pytest.mark.parametrize(("rows", "message"), LACKING, ids=[str(pair[1]) for pair in LACKING])
def test_rows_may_lack_columns_under_merge_unless_the_table_needs_them(
    rows: pa.Schema, message: str | None
) -> None:
    assert brought_schema(TABLE, rows, STRICT, FIXED) is TABLE
    if message is None:
        assert brought_schema(TABLE, rows, ADD, FIXED).names == TABLE.names  # `conformed` refuses
        brought = brought_schema(TABLE, rows, MERGE, FIXED)
        conformed(pa.RecordBatch.from_pylist([], rows), brought, fills_missing=True)
        return
    with pytest.raises(InvalidRequestError, match=message):
        brought_schema(TABLE, rows, MERGE, FIXED)


@pytest.mark.parametrize("value", ["strict", "add", "merge", *SchemaMode])
def test_a_mode_is_known_by_its_word(value: str) -> None:
    assert parse_schema_mode(value) is SchemaMode(value)


@pytest.mark.parametrize("value", ["Merge", "overwrite", "", None, True, 1, ["add"], b"add"])
def test_other_modes_are_refused_with_those_there_are(value: object) -> None:
    with pytest.raises(InvalidRequestError, match=r"schema_mode=.* 'strict', 'add', 'merge'"):
        parse_schema_mode(value)


# ---- any schema

#: For each type of a table, types of rows whose values it has, perhaps once it is wider.
ALIKE: dict[pa.DataType, list[pa.DataType]] = {
    INT: [INT, pa.int8(), pa.uint32(), LONG, FLOAT, DOUBLE, pa.dictionary(pa.int8(), LONG)],
    LONG: [LONG, pa.uint8(), INT, pa.uint64()],
    FLOAT: [FLOAT, pa.float16(), DOUBLE, INT, LONG],
    DOUBLE: [DOUBLE, FLOAT, pa.int16(), LONG],
    decimal(5, 2): [decimal(5, 2), decimal(4, 3), pa.decimal256(38, 1), INT],
    decimal(38, 4): [decimal(38, 4), decimal(38, 20), decimal(3, 0)],
    TEXT: [TEXT, pa.large_string(), pa.string_view()],
}
NAMES = st.lists(st.sampled_from("abcde"), unique=True, min_size=1, max_size=3)


def inside(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return (
        st.builds(lambda t, n: element(t, nullable=n), types, st.booleans())
        | st.builds(lambda t, n: text_map(t, nullable=n), types, st.booleans())
        | fields_of(types).map(pa.struct)
    )


def fields_of(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[list[pa.Field]]:
    def of(names: list[str]) -> st.SearchStrategy[list[pa.Field]]:
        made = [st.builds(pa.field, st.just(name), types, st.booleans()) for name in names]
        return st.tuples(*made).map(list)

    return NAMES.flatmap(of)


TYPES = st.recursive(st.sampled_from(list(ALIKE)), inside, max_leaves=8)


def rows_for(own: list[pa.Field], draw: Any) -> list[pa.Field]:
    """Columns of rows for such a table: some lack, some are new, in any order and alike types."""
    kept = [field for field in own if not field.nullable or draw(st.integers(0, 3))]
    alike = [
        pa.field(f.name, pa.null(), True)
        if f.nullable and not draw(st.integers(0, 7))
        else pa.field(f.name, type_for(f.type, draw), f.nullable)
        for f in kept
    ]
    taken = {field.name for field in own}
    new = [pa.field(f"new_{f.name}", f.type, f.nullable) for f in draw(fields_of(TYPES))]
    new = [field for field in new if field.name not in taken and draw(st.booleans())]
    mixed = draw(st.permutations([*alike, *new]))
    return mixed or [pa.field("new", INT)]  # rows have columns


def type_for(own: pa.DataType, draw: Any) -> pa.DataType:
    if pa.types.is_struct(own):
        return pa.struct(rows_for(list(own), draw))
    if pa.types.is_list(own):
        item = own.value_field
        return pa.large_list(pa.field("item", type_for(item.type, draw), item.nullable))
    if pa.types.is_map(own):
        item = own.item_field
        return pa.map_(TEXT, pa.field("value", type_for(item.type, draw), item.nullable))
    return draw(st.sampled_from(ALIKE[own]))


def value_of(field: pa.Field, draw: Any) -> Any:
    type_ = field.type
    if field.nullable and (pa.types.is_null(type_) or not draw(st.integers(0, 4))):
        return None
    if pa.types.is_struct(type_):
        return {inner.name: value_of(inner, draw) for inner in type_}
    size = draw(st.integers(0, 3))
    if pa.types.is_map(type_):
        return [(f"k{n}", value_of(type_.item_field, draw)) for n in range(size)]
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return [value_of(type_.value_field, draw) for _ in range(size)]
    return Decimal(size) if pa.types.is_decimal(type_) else size if is_number(type_) else f"{size}"


def is_number(type_: pa.DataType) -> bool:
    return not (pa.types.is_string(type_) or type_ in (pa.large_string(), pa.string_view()))


def batch_of(schema: pa.Schema, draw: Any) -> pa.RecordBatch:
    count = draw(st.integers(0, 4))
    columns = [
        pa.array([value_of(field, draw) for _ in range(count)], field.type) for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def has_all_of(found: Any, expected: Any) -> bool:
    """True if the values are the same, but for fields that are only found, which are null."""
    if isinstance(expected, dict) and isinstance(found, dict):
        rest = (value for name, value in found.items() if name not in expected)
        return all(has_all_of(found[name], value) for name, value in expected.items()) and all(
            value is None for value in rest
        )
    if isinstance(expected, list | tuple) and isinstance(found, list | tuple):
        return len(found) == len(expected) and all(map(has_all_of, found, expected))
    return bool(found == expected)


def is_grown(old: pa.DataType, new: pa.DataType) -> bool:
    """True if the type is the same, a wider one, or has fields after those it had."""
    if pa.types.is_struct(old):
        return pa.types.is_struct(new) and are_grown(list(old), list(new))
    if pa.types.is_list(old):
        return are_grown([old.value_field], [new.value_field])
    if pa.types.is_map(old):
        return new.key_type == TEXT and are_grown([old.item_field], [new.item_field])
    return bool(old == new) or is_promotion(old, new)


def are_grown(old: list[pa.Field], new: list[pa.Field]) -> bool:
    kept = all(
        before.name == after.name
        and before.nullable == after.nullable
        and is_grown(before.type, after.type)
        for before, after in zip(old, new, strict=False)
    )
    return kept and len(new) >= len(old) and all(field.nullable for field in new[len(old) :])


@settings(deadline=None, max_examples=150)
@given(fields_of(TYPES), st.data())
def test_merging_rows_fit_and_no_old_value_is_lost(own: list[pa.Field], data: Any) -> None:
    table, rows = pa.schema(own), pa.schema(rows_for(own, data.draw))
    brought = brought_schema(table, rows, MERGE, [])
    assert are_grown(own, list(brought))
    assert decode_arrow_schema(json.dumps(avro_record_schema(brought, "t")), "") == brought
    assert brought_schema(brought, rows, MERGE, []) is brought  # nothing is left to bring

    batch = batch_of(rows, data.draw)
    result = conformed(batch, brought, fills_missing=True)
    result.validate(full=True)
    assert all(map(has_all_of, result.to_pylist(), batch.to_pylist()))

    old = batch_of(table, data.draw)
    read = conform(old, brought, "an older file")
    assert read.schema == brought
    assert all(map(has_all_of, read.to_pylist(), old.to_pylist()))


NULLS = st.just([pa.field("a", pa.null()), pa.field("n", element(pa.null()))])


def outcome(own: pa.Schema, rows: pa.Schema, mode: SchemaMode) -> pa.Schema | InvalidRequestError:
    try:
        return brought_schema(own, rows, mode, [])
    except InvalidRequestError as refusal:
        return refusal


@settings(deadline=None, max_examples=100)
@given(fields_of(TYPES), fields_of(TYPES) | NULLS, st.sampled_from([ADD, MERGE]))
def test_whatever_rows_bring_the_table_grows_or_a_column_is_named(
    own: list[pa.Field], rows: list[pa.Field], mode: SchemaMode
) -> None:
    found = outcome(pa.schema(own), pa.schema(rows), mode)
    if isinstance(found, InvalidRequestError):
        assert found.what.startswith("column '")
    else:
        assert are_grown(own, list(found))
