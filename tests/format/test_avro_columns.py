"""Avro content by columns against fastavro, which goes by rows and is the reference here."""

from __future__ import annotations

import io
import json
import random
import struct
import time
from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden_tables import GoldenTables
from pyhudi.errors import CorruptTableError, UnsupportedTableError
from pyhudi.format.avro import records as avro_records
from pyhudi.format.avro.layout import RecordLayout
from pyhudi.format.avro.leaves import NullColumn
from pyhudi.format.avro.records import decode_avro_content, encode_avro_content
from pyhudi.format.avro.schema import avro_record_schema, decode_arrow_schema
from pyhudi.format.avro.types import AvroError, Record, linked_type
from pyhudi.format.files.log_file import BlockType, HeaderKey, LogBlock, decode_blocks

PATH = "p/.f_20240101000000000.log.1_0-0-0"
OFFSET = 1000
MANY = 100  # more lists than are gone through one by one
INT64 = (-(1 << 63), (1 << 63) - 1)
TAGS = pa.list_(pa.string())
COUNTS = pa.map_(pa.string(), pa.int32())
ITEM = pa.struct([pa.field("x", pa.float64(), nullable=False), pa.field("y", pa.binary())])
ITEMS = pa.list_(ITEM)


def record_of(*types: Any) -> dict[str, Any]:
    fields = [{"name": f"c{n}", "type": type_} for n, type_ in enumerate(types)]
    return {"type": "record", "name": "r", "fields": fields}


def content_of(records: list[bytes]) -> bytes:
    framed = b"".join(struct.pack(">i", len(record)) + record for record in records)
    return struct.pack(">ii", 3, len(records)) + framed


def encoded_rows(schema: Any, rows: list[dict[str, Any]]) -> bytes:
    parsed = fastavro.parse_schema(without_logical_types(schema), _write_hint=False)
    records = []
    for row in rows:
        sink = io.BytesIO()
        fastavro.schemaless_writer(sink, parsed, row)
        records.append(sink.getvalue())
    return content_of(records)


def decode(content: bytes, schema: Any) -> pa.RecordBatch:
    return decode_avro_content(content, json.dumps(schema), PATH, OFFSET)


# -- the reference ---------------------------------------------------------------------------------


def without_logical_types(schema: Any, *, but: str = "") -> Any:
    """Stored values: fastavro would make Python dates and times of them."""
    if isinstance(schema, list):
        return [without_logical_types(item, but=but) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: without_logical_types(value, but=but)
        for key, value in schema.items()
        if key not in ("default", "doc") and (key != "logicalType" or value == but)
    }


def decode_by_rows(content: bytes, schema: Any) -> pa.RecordBatch:
    parsed = fastavro.parse_schema(without_logical_types(schema, but="decimal"), _write_hint=False)
    arrow = decode_arrow_schema(json.dumps(schema), PATH)
    source = io.BytesIO(content)
    _, number = struct.unpack(">ii", source.read(8))
    rows: list[Any] = []
    for _ in range(number):
        (length,) = struct.unpack(">i", source.read(4))
        end = source.tell() + length
        rows.append(fastavro.schemaless_reader(source, parsed, None))
        assert source.tell() == end
    return pa.RecordBatch.from_arrays(
        [pa.array([with_pairs(row[f.name], f.type) for row in rows], f.type) for f in arrow],
        schema=arrow,
    )


def with_pairs(value: Any, type_: pa.DataType) -> Any:
    """The value with maps as lists of pairs, which is how Arrow takes them."""
    if value is None or not pa.types.is_nested(type_):
        return value
    if pa.types.is_map(type_):
        return [(key, with_pairs(item, type_.item_type)) for key, item in value.items()]
    if pa.types.is_struct(type_):
        return {field.name: with_pairs(value[field.name], field.type) for field in type_}
    return [with_pairs(item, type_.value_type) for item in value]


def texts(batch: pa.RecordBatch) -> tuple[str, str]:
    """The types and values, to compare where a NaN may be, which equals nothing."""
    return str(batch.schema), repr(batch.to_pylist())


# -- schemas with values that fit them -------------------------------------------------------------

Typed = tuple[Any, st.SearchStrategy[Any]]  # a type, and its stored values as fastavro takes them


def _decimal(precision: int) -> st.SearchStrategy[int]:
    return st.integers(1 - 10**precision, 10**precision - 1)


def _in_bytes(number: int, size: int = 0) -> bytes:
    return number.to_bytes(size or number.bit_length() // 8 + 1, "big", signed=True)


INTS, LONGS = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(*INT64)
PLAIN: list[Typed] = [
    ("boolean", st.booleans()),
    ("int", INTS),
    ("long", LONGS),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("bytes", st.binary(max_size=300)),
    ("string", st.text(max_size=100)),
    ({"type": "string", "avro.java.string": "String"}, st.text(max_size=3)),
    ({"type": "int", "logicalType": "date"}, st.integers(-700_000, 2_900_000)),
    ({"type": "int", "logicalType": "time-millis"}, st.integers(0, 86_399_999)),
    ({"type": "long", "logicalType": "time-micros"}, st.integers(0, 86_399_999_999)),
    *(
        ({"type": "long", "logicalType": f"{local}timestamp-{unit}"}, LONGS)
        for local in ("", "local-")
        for unit in ("millis", "micros")
    ),
    ({"type": "string", "logicalType": "uuid"}, st.uuids().map(str)),
    ({"type": "fixed", "size": 3}, st.binary(min_size=3, max_size=3)),
    ({"type": "enum", "symbols": ["A", "LONGER", "C"]}, st.sampled_from(["A", "LONGER", "C"])),
    *(
        (
            {"type": "fixed", "size": size, "logicalType": "decimal", "precision": p, "scale": s},
            _decimal(p).map(partial(_in_bytes, size=size)),
        )
        for p, s, size in ((4, 2, 2), (10, 0, 5), (38, 10, 16), (38, 38, 19))
    ),
    *(
        (
            {"type": "bytes", "logicalType": "decimal", "precision": p, "scale": 1},
            _decimal(p).map(_in_bytes),
        )
        for p in (3, 38)
    ),
]


def _composed(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    def record(fields: list[Typed]) -> Typed:
        values = {f"c{n}": strategy for n, (_, strategy) in enumerate(fields)}
        return record_of(*(type_ for type_, _ in fields)), st.fixed_dictionaries(values)

    def array(item: Typed) -> Typed:
        return {"type": "array", "items": item[0]}, st.lists(item[1], max_size=5)

    def map_(value: Typed) -> Typed:
        keys = st.text(max_size=3)
        return {"type": "map", "values": value[0]}, st.dictionaries(keys, value[1], max_size=4)

    def union(value: Typed, shape: str) -> Typed:
        if isinstance(value[0], list):
            return value
        branches = {"T?": ["null", value[0]], "?T": [value[0], "null"], "T": [value[0]]}
        return branches[shape], value[1] if shape == "T" else st.none() | value[1]

    return (
        st.builds(record, st.lists(inner, min_size=1, max_size=4))
        | st.builds(array, inner)
        | st.builds(map_, inner)
        | st.builds(union, inner, st.sampled_from(["T?", "T?", "?T", "T"]))
    )


TYPES = st.recursive(
    st.sampled_from(PLAIN) | st.just((["null"], st.none())), _composed, max_leaves=8
)


def with_names(schema: Any, numbers: Iterator[int]) -> Any:
    """The schema with a name of its own for every type that must have one."""
    if isinstance(schema, list):
        return [with_names(item, numbers) for item in schema]
    if not isinstance(schema, dict):
        return schema
    named = {key: with_names(value, numbers) for key, value in schema.items()}
    if schema.get("type") in ("record", "enum", "fixed"):
        named["name"] = f"n{next(numbers)}"
    return named


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, list[dict[str, Any]]]:
    fields = draw(st.lists(TYPES, min_size=1, max_size=4))
    schema = with_names(record_of(*(type_ for type_, _ in fields)), count())
    row = st.fixed_dictionaries({f"c{n}": values for n, (_, values) in enumerate(fields)})
    rows = draw(st.lists(row, max_size=6))
    return schema, rows * draw(st.sampled_from([1, 1, MANY]))


@settings(deadline=None, max_examples=200)
@given(cases())
def test_columns_equal_the_rows_that_fastavro_reads(case: tuple[Any, list[dict[str, Any]]]) -> None:
    schema, rows = case
    content = encoded_rows(schema, rows)
    batch = decode(content, schema)
    batch.validate(full=True)
    assert batch.equals(decode_by_rows(content, schema), check_metadata=True)


@settings(deadline=None, max_examples=100)
@given(cases())
def test_decoded_columns_can_be_written_to_parquet(case: tuple[Any, list[dict[str, Any]]]) -> None:
    schema, rows = case
    table = pa.Table.from_batches([decode(encoded_rows(schema, rows), schema)])
    try:
        pq.write_table(table, pa.BufferOutputStream())
    except pa.ArrowNotImplementedError:  # null columns inside of others
        assert "null" in str(table.schema)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(LONGS, LONGS.map(lambda n: n % 300)), min_size=1))
def test_numbers_of_every_length_are_read(pairs: list[tuple[int, int]]) -> None:
    schema = record_of("long", "long")
    rows = [{"c0": a, "c1": b} for a, b in pairs]
    assert decode(encoded_rows(schema, rows), schema).to_pylist() == rows


def test_chunks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    schema, content = sample(40)
    whole = decode(content, schema)
    for size in (1, 100, 1000):
        monkeypatch.setattr(avro_records, "_CHUNK_BYTES", size)
        assert decode(content, schema).equals(whole)


def test_content_without_records_has_all_columns() -> None:
    schema, _ = sample(1)
    batch = decode(content_of([]), schema)
    assert batch.num_rows == 0
    assert batch.schema == decode_arrow_schema(json.dumps(schema), PATH)


def avro_blocks(data: bytes) -> Iterator[LogBlock]:
    for block in decode_blocks(lambda start, end: data[start:end], len(data), PATH):
        if isinstance(block, LogBlock) and block.type in (BlockType.AVRO_DATA, BlockType.CDC_DATA):
            yield block


def test_all_avro_blocks_of_the_golden_tables_equal_the_reference(golden: GoldenTables) -> None:
    seen = 0
    files = (file for name in golden.names for file in golden.path(name).rglob(".*.log.*"))
    for data in (file.read_bytes() for file in files if file.suffix != ".crc"):
        for block in avro_blocks(data):
            content = data[block.content_start : block.content_end]
            schema = json.loads(block.header[HeaderKey.SCHEMA])
            assert texts(decode(content, schema)) == texts(decode_by_rows(content, schema))
            seen += 1
    assert seen > 100


@pytest.mark.parametrize("copies", [1, MANY])
@pytest.mark.parametrize(
    ("type_", "stored", "value"),
    [
        ({"type": "array", "items": "long"}, "03 04 02 04 02 06 00", [1, 2, 3]),
        ({"type": "array", "items": ["null", "string"]}, "01 06 02 02 61 02 00 00", ["a", None]),
        (
            {"type": "map", "values": "long"},
            "01 06 02 61 04 01 06 02 62 06 00",
            [("a", 2), ("b", 3)],
        ),
        ({"type": "map", "values": "long"}, "02 02 61 04 02 02 61 06 00", [("a", 3)]),
        ({"type": "map", "values": "long"}, "00", []),
    ],
    ids=["sized-blocks", "sized-nulls", "sized-entries", "last-of-a-key", "empty"],
)
def test_lists_in_blocks_are_read(type_: Any, stored: str, value: Any, copies: int) -> None:
    stored_records = [bytes.fromhex(stored)] * copies
    batch = decode(content_of(stored_records), record_of(type_))
    assert batch.column(0).to_pylist() == [value] * copies


def test_a_null_has_no_bytes() -> None:
    assert NullColumn().skip_one(b"", 7) == 7


def test_named_types_can_be_used_again() -> None:
    point = {"type": "record", "name": "point", "fields": [{"name": "x", "type": "int"}]}
    schema = record_of(point, ["null", "point"], {"type": "array", "items": "point"})
    row = {"c0": {"x": 1}, "c1": {"x": 2}, "c2": [{"x": 3}]}
    assert decode(encoded_rows(schema, [row]), schema).to_pylist() == [row]


def test_rows_come_back_from_encoded_content() -> None:
    inner = pa.struct([pa.field("m", pa.map_(pa.string(), pa.list_(COUNTS))), ("n", pa.int32())])
    value = {"m": [("k", [[("a", 1), ("b", None)], None]), ("l", None)], "n": 7}
    values = pa.array([value, None, {"m": None, "n": None}, {"m": [], "n": 1}], inner)
    batch = pa.RecordBatch.from_pydict({"c": values, "d": pa.array(["x", None, "", "é"])})
    schema = avro_record_schema(batch.schema, "t")
    assert decode(encode_avro_content([batch, batch[:1]], schema), schema).to_pylist() == [
        *batch.to_pylist(),
        *batch[:1].to_pylist(),
    ]


# -- refusals --------------------------------------------------------------------------------------

ARRAY = {"type": "array", "items": "long"}
DECIMAL = {"logicalType": "decimal", "precision": 4, "scale": 2}
FIXED_DECIMAL = {"type": "fixed", "name": "f", "size": 17, **DECIMAL}


@pytest.mark.parametrize("copies", [1, MANY])
@pytest.mark.parametrize(
    ("type_", "stored", "why"),
    [
        ("long", "", "past the end"),
        ("long", "80", "past the end"),
        ("long", "00 00", "ends before"),
        ("long", "ff ff ff ff ff ff ff ff ff 02", "64 bits"),
        ("long", "80 80 80 80 80 80 80 80 80 80 00", "64 bits"),
        ("int", "80 80 80 80 10", "32 bits"),
        ("boolean", "02", "boolean"),
        ("double", "00 00 00 00 00 00 00", "past the end"),
        ("string", "01", "length"),
        ("string", "04 61", "past the end"),
        ("string", "fe ff ff ff ff ff ff ff ff 01 61", "length"),
        ("string", "02 ff", "UTF-8"),
        ("string", "06 ed a0 80", "UTF-8"),
        (["null", "string"], "04", "branch"),
        (["null", "string"], "01", "branch"),
        (["null"], "02", "branch"),
        (ARRAY, "02 02", "past the end"),
        (ARRAY, "04 02", "past the end|more items"),
        (ARRAY, "ff ff ff ff ff ff ff ff ff 01 02 02", "items"),
        (ARRAY, "01", "past the end"),
        ({"type": "array", "items": ["null", "long"]}, "02 06 00", "branch"),
        ({"type": "array", "items": "string"}, "02 01 00", "length"),
        ({"type": "map", "values": "long"}, "02 02 ff 02 00", "UTF-8"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, "02", "symbols"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, "01", "symbols"),
        ({"type": "bytes", **DECIMAL}, "00", "no bytes"),
        ({"type": "bytes", **DECIMAL}, "04 27 10", "more than 4 digits"),
        (FIXED_DECIMAL, "01" + 16 * "00", "128 bits"),
        (FIXED_DECIMAL, "00 80" + 15 * "00", "128 bits"),
    ],
)
def test_the_first_malformed_record_is_named(
    type_: Any, stored: str, why: str, copies: int
) -> None:
    schema = {**record_of(["null", record_of(type_)]), "name": "outer"}
    good = content_of([b"\x00"] * copies)[8:]
    bad = content_of([b"\x02" + bytes.fromhex(stored)] * 2)[8:]
    with pytest.raises(CorruptTableError, match=why) as refusal:
        decode(struct.pack(">ii", 3, copies + 2) + good + bad, schema)
    assert refusal.value.path == PATH
    assert refusal.value.offset == OFFSET + 8 + len(good)


def test_a_record_is_first_bad_even_if_a_later_one_is_bad_in_an_earlier_field() -> None:
    records = [b"\x01\x00"] * 9
    records[3] = b"\x01\x02"  # bad in the second field
    records[7] = b"\x02\x00"  # bad in the first
    with pytest.raises(CorruptTableError) as refusal:
        decode(content_of(records), record_of("boolean", ["null"]))
    assert refusal.value.offset == OFFSET + 8 + 3 * 6


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("00000003", "shorter"),
        ("00000003 ffffffff", "cannot be"),
        ("00000003 00000002 00000001 00", "cannot be"),
        ("00000003 00000001 00000002 00", "record 1 of 1 overruns"),
        ("00000003 00000001 ffffffff 00", "record 1 of 1 overruns"),
        ("00000003 00000002 00000002 0000 0000", "record 2 of 2 is missing"),
        ("00000003 00000001 00000001 00 00", "left behind"),
        ("00000003 00000000 00", "left behind"),
    ],
)
def test_records_must_fill_the_content(content: str, why: str) -> None:
    with pytest.raises(CorruptTableError, match=why):
        decode(bytes.fromhex(content), record_of("long"))


def test_another_content_version_is_not_read() -> None:
    with pytest.raises(UnsupportedTableError, match="version 2"):
        decode(struct.pack(">ii", 2, 0), record_of("long"))


def _doubling(levels: int) -> Any:
    """A small schema that stands for 2 ** levels columns."""
    type_: Any = {"type": "record", "name": "t0", "fields": [{"name": "c0", "type": "long"}]}
    for level in range(1, levels):
        fields = [{"name": "a", "type": type_}, {"name": "b", "type": f"t{level - 1}"}]
        type_ = {"type": "record", "name": f"t{level}", "fields": fields}
    return type_


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (record_of({"type": "array", "items": "null"}), "no bytes"),
        (record_of({"type": "map", "values": "null"}), "no bytes"),
        (record_of({"type": "array", "items": {**record_of(), "name": "e"}}), "without fields"),
        (record_of("other"), "not defined"),
        (_doubling(25), "10000 fields"),
    ],
)
def test_schemas_that_a_few_bytes_could_abuse_are_refused(schema: Any, why: str) -> None:
    with pytest.raises(CorruptTableError, match=why) as refusal:
        decode(content_of([]), schema)
    assert refusal.value.path == PATH


@pytest.mark.parametrize(
    ("avro", "arrow"),
    [
        ("int", pa.field("c1", pa.int32())),
        ({"type": "fixed", "name": "f", "size": 3}, pa.field("c0", pa.binary(4))),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, pa.field("c0", pa.int32())),
    ],
)
def test_a_layout_needs_the_arrow_form_of_its_record(avro: Any, arrow: pa.Field) -> None:
    record = linked_type(record_of(avro))
    assert isinstance(record, Record)
    with pytest.raises(AvroError, match="two types"):
        RecordLayout(record, pa.schema([arrow]))


def test_unions_of_two_types_are_not_read() -> None:
    with pytest.raises(UnsupportedTableError, match="union of 2 types"):
        decode(content_of([]), record_of(["null", "int", "string"]))


@pytest.mark.parametrize(
    ("type_", "stored"),
    [
        (["null", {"type": "fixed", "name": "f", "size": 1 << 20}], b"\x00"),
        ({"type": "enum", "name": "e", "symbols": ["A" * (1 << 20)]}, b"\x00"),
        (["null", record_of(*["long"] * 1000)], b"\x00"),
    ],
)
def test_values_without_bytes_of_their_own_take_bounded_memory(
    type_: Any, stored: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(avro_records, "_ALLOWANCE", 5 << 20)
    schema = {**record_of(type_), "name": "outer"}
    assert decode(content_of([stored] * 4), schema).num_rows == 4
    with pytest.raises(CorruptTableError, match="too much memory"):
        decode(content_of([stored] * 1000), schema)


# -- mutations -------------------------------------------------------------------------------------


def sample(rows: int) -> tuple[Any, bytes]:
    """Content with every kind of type, of which any damage is detected or harmless."""
    columns = {
        "id": pa.array(range(0, rows * 1_000_003, 1_000_003), pa.int64()),
        "name": pa.array([None if n % 3 else f"näme {n}" for n in range(rows)]),
        "flag": pa.array([n % 2 == 0 for n in range(rows)]),
        "day": pa.array(range(rows), pa.date32()),
        "price": pa.array([n % 99 for n in range(rows)], pa.decimal128(4, 2)),
        "tags": pa.array([["a", None, "bcd"][: n % 4] for n in range(rows)], TAGS),
        "counts": pa.array([[("k", n), ("l", None)][: n % 3] for n in range(rows)], COUNTS),
        "items": pa.array([[{"x": 0.5, "y": b"\xff"}] * (n % 3) for n in range(rows)], ITEMS),
        "code": pa.array([b"abc"] * rows, pa.binary(3)),
    }
    batch = pa.RecordBatch.from_pydict(columns)
    schema = avro_record_schema(batch.schema, "t")
    return schema, encode_avro_content([batch], schema)


def mutated(content: bytes, dice: random.Random) -> bytes:
    """The content with some damage behind its version."""
    data = bytearray(content)
    place = dice.randrange(4, len(data))
    match dice.randrange(5):
        case 0:
            data[place] ^= 1 << dice.randrange(8)
        case 1:
            del data[place:]
        case 2:  # a number that is large, or too long
            data[place : place + 10] = b"\xff" * dice.randrange(1, 12) + bytes([dice.randrange(4)])
        case 3:
            data[place] = dice.randrange(256)
        case 4:
            data[place : place + dice.randrange(9)] = dice.randbytes(dice.randrange(9))
    return bytes(data)


def test_damaged_content_is_refused_or_read_as_fastavro_reads_it() -> None:
    dice = random.Random(20240101)
    samples = [sample(rows) for rows in (1, 5, 150)]
    refused = 0
    for _ in range(1500):
        schema, content = dice.choice(samples)
        damaged = mutated(content, dice)
        begun = time.process_time()
        try:
            batch = decode(damaged, schema)
        except CorruptTableError:
            refused += 1
            continue
        finally:
            assert time.process_time() - begun < 1
        batch.validate(full=True)
        assert texts(batch) == texts(decode_by_rows(damaged, schema))
    assert 500 < refused < 1500
