from __future__ import annotations

import io
import struct
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden_tables import NAMES, GoldenTables
from pyhudi.errors import CorruptTableError, InvalidRequestError, UnsupportedTableError
from pyhudi.format.avro.encoding import write_long
from pyhudi.format.files.delete_records import (
    DeleteBatch,
    OrderingKind,
    decode_delete_records,
    delete_batch,
    encode_delete_records,
)
from pyhudi.format.files.log_file import BlockType, LogBlock, decode_blocks

PATH = "p/.f_1.log.1_0-1-0"

# The schema as Hudi has it, for fastavro to write what our decoder reads.
WRAPPED = {
    "BooleanWrapper": "boolean",
    "IntWrapper": "int",
    "LongWrapper": "long",
    "FloatWrapper": "float",
    "DoubleWrapper": "double",
    "BytesWrapper": "bytes",
    "StringWrapper": "string",
    "DateWrapper": "int",
    "DecimalWrapper": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15},
    "TimeMicrosWrapper": "long",
    "TimestampMicrosWrapper": "long",
    "LocalDateWrapper": "int",
}


def wrapper(name: str) -> Any:
    return record(name, value=WRAPPED[name])


def record(name: str, **fields: Any) -> Any:
    named = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "fields": named}


def array(items: Any) -> Any:
    return {"type": "array", "items": items}


SIMPLE = [name for name in WRAPPED if name != "LocalDateWrapper"]
PARTS = ["null", *SIMPLE, wrapper("LocalDateWrapper")]
ORDERING_VALUES = [
    "null",
    *map(wrapper, SIMPLE),
    record("ArrayWrapper", wrappedValues=["null", array(PARTS)]),
]
DELETE = record(
    "HoodieDeleteRecord",
    recordKey=["null", "string"],
    partitionPath=["null", "string"],
    orderingVal=ORDERING_VALUES,
)
LIST = fastavro.parse_schema(record("HoodieDeleteRecordList", deleteRecordList=array(DELETE)))


def content_of(*orderings: Any) -> bytes:
    """What Hudi would write for deletes with these wrapped ordering values."""
    deletes = [
        {"recordKey": f"k{n}", "partitionPath": "p", "orderingVal": value}
        for n, value in enumerate(orderings)
    ]
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, LIST, {"deleteRecordList": deletes})
    body = sink.getvalue()
    return struct.pack(">ii", 3, len(body)) + body


def delete_blocks(table: Path) -> list[bytes]:
    found: list[bytes] = []
    for path in table.rglob(".*.log.*"):
        data = path.read_bytes()
        found += deletes_in(data, path.name)
    return found


def deletes_in(data: bytes, name: str) -> list[bytes]:
    blocks = decode_blocks(lambda start, end: data[start:end], len(data), name)
    return [
        data[block.content_start : block.content_end]
        for block in blocks
        if isinstance(block, LogBlock) and block.type is BlockType.DELETE
    ]


def test_golden_delete_blocks_decode_and_encode_to_the_same_bytes(golden: GoldenTables) -> None:
    kinds = set()
    for name in NAMES:
        for content in delete_blocks(golden.path(name)):
            batches = decode_delete_records(content, PATH, 0)
            kinds |= {batch.kind for batch in batches}
            assert encode_delete_records(batches) == content
    assert kinds == {OrderingKind.INT, OrderingKind.LONG}


def test_delete_operation_of_hudi_is_unconditional(golden: GoldenTables) -> None:
    contents = delete_blocks(golden.path("mor_avro_logs_with_deletes"))
    flags = {
        batch.kind: set(batch.unconditional.to_pylist())
        for content in contents
        for batch in decode_delete_records(content, PATH, 0)
    }
    assert flags == {OrderingKind.INT: {True}, OrderingKind.LONG: {False}}


WRAPPED_VALUES = [
    (None, None, None),
    (("BooleanWrapper", {"value": True}), pa.bool_(), True),
    (("IntWrapper", {"value": -7}), pa.int32(), -7),
    (("LongWrapper", {"value": 2**62}), pa.int64(), 2**62),
    (("FloatWrapper", {"value": 1.5}), pa.float32(), 1.5),
    (("DoubleWrapper", {"value": -0.1}), pa.float64(), -0.1),
    (("BytesWrapper", {"value": b"\xff"}), pa.binary(), b"\xff"),
    (("StringWrapper", {"value": "é"}), pa.string(), "é"),
    (("DateWrapper", {"value": -1}), pa.date32(), "1969-12-31"),
    (("DecimalWrapper", {"value": Decimal("-12.5")}), pa.decimal128(30, 15), Decimal("-12.5")),
    (("TimeMicrosWrapper", {"value": 1_000_000}), pa.time64("us"), "00:00:01"),
    (("TimestampMicrosWrapper", {"value": -1}), pa.timestamp("us", "UTC"),
     "1969-12-31 23:59:59.999999+00:00"),
]  # fmt: skip


@pytest.mark.parametrize(("wrapped", "type_", "value"), WRAPPED_VALUES)
def test_every_wrapper_has_its_arrow_type(wrapped: Any, type_: Any, value: Any) -> None:
    content = content_of(wrapped, wrapped)
    (batch,) = decode_delete_records(content, PATH, 0)
    assert encode_delete_records([batch]) == content
    assert batch.record_keys.to_pylist() == ["k0", "k1"]
    assert batch.partition_paths.to_pylist() == ["p", "p"]
    if type_ is None:
        assert batch.ordering is None
        assert batch.unconditional.to_pylist() == [True, True]
    else:
        assert batch.ordering is not None
        assert batch.ordering.type == type_
        first = batch.ordering.to_pylist()[0]
        assert (str(first) if isinstance(value, str) and value != "é" else first) == value
        assert batch.unconditional.to_pylist() == [False, False]


def test_only_null_and_the_int_zero_are_unconditional() -> None:
    zero = {"value": 0}
    content = content_of(
        None, ("IntWrapper", zero), ("LongWrapper", zero), ("IntWrapper", {"value": 1})
    )
    batches = decode_delete_records(content, PATH, 0)
    flags = {
        row: flag
        for batch in batches
        for row, flag in zip(batch.rows.to_pylist(), batch.unconditional.to_pylist(), strict=True)
    }
    assert flags == {0: True, 1: True, 2: False, 3: False}


def test_kinds_are_grouped_and_keep_their_rows() -> None:
    long, text = ("LongWrapper", {"value": 5}), ("StringWrapper", {"value": "x"})
    content = content_of(long, text, long, None, text)
    batches = decode_delete_records(content, PATH, 0)
    assert [(b.kind, b.rows.to_pylist()) for b in batches] == [
        (OrderingKind.LONG, [0, 2]),
        (OrderingKind.STRING, [1, 4]),
        (OrderingKind.NULL, [3]),
    ]
    assert encode_delete_records(batches) == content
    assert encode_delete_records(batches[::-1]) == content


def test_several_ordering_fields_are_a_struct() -> None:
    def several(*values: Any) -> Any:
        return ("ArrayWrapper", {"wrappedValues": list(values)})

    pair = several(("LongWrapper", {"value": 5}), ("LocalDateWrapper", {"value": 1}))
    half = several(("LongWrapper", {"value": 6}), None)
    content = content_of(pair, half, pair)
    whole, partial = decode_delete_records(content, PATH, 0)
    assert whole.part_kinds == (OrderingKind.LONG, OrderingKind.LOCAL_DATE)
    assert whole.ordering is not None
    assert partial.ordering is not None
    assert whole.ordering.type == pa.struct([("0", pa.int64()), ("1", pa.date32())])
    assert partial.ordering.to_pylist() == [{"0": 6, "1": None}]
    assert partial.rows.to_pylist() == [1]
    assert encode_delete_records([whole, partial]) == content


def test_empty_list_round_trips() -> None:
    content = content_of()
    assert decode_delete_records(content, PATH, 0) == []
    assert encode_delete_records([]) == content == struct.pack(">ii", 3, 1) + b"\0"


def scaled(unscaled: int) -> Decimal:
    """The decimal of scale 15 with these digits; arithmetic would round it to 28 of them."""
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -15))


KEYS = st.none() | st.text(max_size=9)
MICROS = st.integers(-(2**53), 2**53)
ORDERING = st.one_of(
    st.tuples(st.just(pa.bool_()), st.booleans()),
    st.tuples(st.just(pa.int32()), st.integers(-(2**31), 2**31 - 1)),
    st.tuples(st.just(pa.int64()), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just(pa.float32()), st.floats(width=32, allow_nan=False)),
    st.tuples(st.just(pa.float64()), st.floats(allow_nan=False)),
    st.tuples(st.just(pa.binary()), st.binary(max_size=9)),
    st.tuples(st.just(pa.string()), st.text(max_size=9)),
    st.tuples(st.just(pa.date32()), st.dates()),
    st.tuples(st.just(pa.time64("us")), st.times()),
    st.tuples(st.just(pa.timestamp("us", "UTC")), MICROS),
    st.tuples(
        st.just(pa.decimal128(30, 15)),
        st.integers(1 - 10**30, 10**30 - 1).map(scaled),
    ),
)


@given(st.lists(st.tuples(KEYS, KEYS), min_size=1, max_size=5), ORDERING)
@settings(deadline=None, max_examples=200)
def test_batch_round_trips(keys: list[tuple[Any, Any]], ordering: tuple[Any, Any]) -> None:
    type_, value = ordering
    record_keys = pa.array([key for key, _ in keys], pa.string())
    partitions = pa.array([partition for _, partition in keys], pa.string())
    column = pa.array([value] * len(keys), type_)
    simple = delete_batch(record_keys, partitions, column)
    assert simple.ordering == column
    several = delete_batch(record_keys, partitions, pa.StructArray.from_arrays(
        [column, column], names=["a", "b"]))  # fmt: skip
    for batch in (simple, several):
        assert decode_delete_records(encode_delete_records([batch]), PATH, 0) == [batch]


@given(st.integers(1 - 10**30, 10**30 - 1))
@settings(deadline=None, max_examples=100)
def test_decimals_take_the_bytes_that_java_takes(unscaled: int) -> None:
    column = pa.array([scaled(unscaled)], pa.decimal128(30, 15))
    batch = delete_batch(pa.array(["k0"]), pa.array(["p"]), column)
    fewest = next(n for n in range(1, 17) if -(1 << 8 * n - 1) <= unscaled < 1 << 8 * n - 1)
    stored = unscaled.to_bytes(fewest, "big", signed=True)
    assert encode_delete_records([batch])[8:] == (
        b"\x02\x02\x04k0\x02\x02p" + bytes([18, 2 * fewest]) + stored + b"\0"
    )


def test_deletes_without_ordering_are_written_as_hudi_writes_them() -> None:
    batch = delete_batch(pa.array(["a", "b"]), pa.array(["p", "p"]), None)
    assert batch.unconditional.to_pylist() == [True, True]
    assert encode_delete_records([batch])[8:] == (
        b"\x04" + b"\x02\x02a\x02\x02p\x04\x00" + b"\x02\x02b\x02\x02p\x04\x00" + b"\0"
    )


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([1], pa.int8()), OrderingKind.INT),
        (pa.array([1], pa.int16()), OrderingKind.INT),
        (pa.array([Decimal("1.5")], pa.decimal128(5, 2)), OrderingKind.DECIMAL),
        (pa.array([1], pa.timestamp("ms", "UTC")), OrderingKind.TIMESTAMP_MICROS),
        (pa.array([1], pa.timestamp("us")), OrderingKind.TIMESTAMP_MICROS),
    ],
)
def test_near_types_are_widened(column: pa.Array, kind: OrderingKind) -> None:
    batch = delete_batch(pa.array(["k"]), pa.array(["p"]), column)
    assert batch.kind is kind
    assert decode_delete_records(encode_delete_records([batch]), PATH, 0) == [batch]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1], pa.uint64()),
        pa.array([[1]], pa.list_(pa.int64())),
        pa.array([None], pa.int64()),
        pa.array([{"a": 1, "b": None}], pa.struct([("a", pa.int64()), ("b", pa.int64())])),
        pa.array([None], pa.struct([("a", pa.int64())])),
        pa.array([1], pa.timestamp("ns")),
        pa.array([Decimal("1e20")], pa.decimal128(38, 0)),
    ],
)
def test_ordering_that_hudi_cannot_hold_is_refused(column: pa.Array) -> None:
    with pytest.raises(InvalidRequestError):
        delete_batch(pa.array(["k"]), pa.array(["p"]), column)


# Refusals ----------------------------------------------------------------------------------------


def number(value: int) -> bytes:
    out = bytearray()
    write_long(value, out)
    return bytes(out)


def headed(body: bytes, version: int = 3, size: int | None = None) -> bytes:
    return struct.pack(">ii", version, len(body) if size is None else size) + body


KEY = b"\x02\x02k\x02\x02p"
FORGED = {
    "nothing": b"",
    "half a head": b"\0\0\0",
    "version 0": headed(b"\0", version=0),
    "version 4": headed(b"\0", version=4),
    "negative size": headed(b"\0", size=-1),
    "size beyond the end": headed(b"\0", size=2),
    "bytes behind the size": headed(b"\0\0", size=1),
    "no list": headed(b""),
    "bytes behind the list": headed(b"\0\0"),
    "absurd count": headed(number(2**60) + b"\0"),
    "count beyond the bytes": headed(number(3) + KEY + b"\0\0"),
    "third branch of a key": headed(number(1) + b"\x04" + b"\0\0\0"),
    "absurd key": headed(number(1) + b"\x02" + number(2**60) + b"\0\0"),
    "negative key": headed(number(1) + b"\x02" + number(-9) + b"\0\0"),
    "key that is not text": headed(number(1) + b"\x02\x02\xff\0\0\0"),
    "unknown wrapper": headed(number(1) + KEY + number(13) + b"\0"),
    "negative wrapper": headed(number(1) + KEY + number(-1) + b"\0"),
    "int of 33 bits": headed(number(1) + KEY + number(2) + number(2**33) + b"\0"),
    "boolean of 3": headed(number(1) + KEY + number(1) + b"\3" + b"\0"),
    "cut double": headed(number(1) + KEY + number(5) + b"\0\0\0"),
    "decimal of no bytes": headed(number(1) + KEY + number(9) + number(0) + b"\0"),
    "decimal of 17 bytes": headed(number(1) + KEY + number(9) + number(17) + b"\1" * 17 + b"\0"),
    "decimal of 31 digits": headed(number(1) + KEY + number(9) + number(16) + b"\x7f" * 16 + b"\0"),
    "array that is null": headed(number(1) + KEY + number(12) + b"\0" + b"\0"),
    "array of nothing": headed(number(1) + KEY + number(12) + b"\2\0" + b"\0"),
    "array of absurd count": headed(number(1) + KEY + number(12) + b"\2" + number(2**60) + b"\0"),
    "array in an array": headed(number(1) + KEY + number(12) + b"\2" + number(1) + number(13)),
}


@pytest.mark.parametrize("content", FORGED.values(), ids=FORGED)
def test_forged_content_is_refused_by_place_and_at_once(content: bytes) -> None:
    begun = time.process_time()
    with pytest.raises(CorruptTableError) as caught:
        decode_delete_records(content, PATH, 77)
    assert time.process_time() - begun < 1
    assert (caught.value.path, caught.value.offset) == (PATH, 77)


@pytest.mark.parametrize("version", [1, 2])
def test_kryo_content_is_unsupported_by_name(version: int) -> None:
    with pytest.raises(UnsupportedTableError, match="Kryo"):
        decode_delete_records(headed(b"\0", version=version), PATH, 0)


@given(st.binary(max_size=60))
@settings(deadline=None, max_examples=200)
def test_any_content_decodes_or_is_refused(body: bytes) -> None:
    try:
        batches = decode_delete_records(headed(body), PATH, 0)
    except CorruptTableError:
        return
    assert all(isinstance(batch, DeleteBatch) for batch in batches)
