from __future__ import annotations

import io
import json
import time
import zlib
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.errors import CorruptTableError
from pyhudi.format.avro.container import (
    Container,
    damaged_container,
    decode_container,
    encode_container,
    new_container,
)
from pyhudi.format.avro.decoding import MALFORMED, CompiledDecoder
from pyhudi.format.avro.encoding import compiled_encoder, write_bytes, write_long
from pyhudi.format.avro.types import linked_type, parse_schema

SYNC = bytes(range(16))
PATH = ".hoodie/timeline/1.commit"
LONG_COUNT = 2**60


def decode_record(data: bytes, path: str) -> tuple[Any, Any]:
    """Return the writer's schema, as JSON data, and the one record."""
    container = decode_container(data, path)
    try:
        linked = parse_schema(container.schema_json)
        record = CompiledDecoder(linked, linked, {})(container.body)
    except MALFORMED as error:
        raise damaged_container(path, str(error)) from None
    return json.loads(container.schema_json), record


def encode_record(schema: Any, record: Any, sync: bytes) -> bytes:
    body = bytearray()
    compiled_encoder(linked_type(schema), {})(record, body)
    return encode_container(new_container(schema, bytes(body), sync))


EVERYTHING = {
    "type": "record",
    "name": "Everything",
    "namespace": "a.b",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "small", "type": "int"},
        {"name": "large", "type": "long"},
        {"name": "single", "type": "float"},
        {"name": "double", "type": "double"},
        {"name": "raw", "type": "bytes"},
        {"name": "text", "type": {"type": "string", "avro.java.string": "String"}},
        {"name": "color", "type": {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}},
        {"name": "four", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "maybe", "type": ["null", "string"]},
        {"name": "surely", "type": ["long", "null"]},
        {"name": "inner", "type": {"type": "record", "name": "Inner", "fields": [
            {"name": "only", "type": "long"}]}},
        {"name": "inners", "type": {"type": "array", "items": "Inner"}},
        {"name": "table", "type": {"type": "map", "values": {"type": "array", "items": "string"}}},
    ],
}  # fmt: skip
INNERS = st.fixed_dictionaries({"only": st.integers(-(2**63), 2**63 - 1)})
RECORDS = st.fixed_dictionaries(
    {
        "flag": st.booleans(),
        "small": st.integers(-(2**31), 2**31 - 1),
        "large": st.integers(-(2**63), 2**63 - 1),
        "single": st.floats(width=32, allow_nan=False),
        "double": st.floats(allow_nan=False),
        "raw": st.binary(max_size=300),
        "text": st.text(max_size=300),
        "color": st.sampled_from(["RED", "BLUE"]),
        "four": st.binary(min_size=4, max_size=4),
        "maybe": st.none() | st.text(max_size=9),
        "surely": st.none() | st.integers(-9, 9),
        "inner": INNERS,
        "inners": st.lists(INNERS, max_size=4).map(tuple),
        "table": st.dictionaries(
            st.text(max_size=5), st.lists(st.text(max_size=5), max_size=3).map(tuple), max_size=4
        ),
    }
)


def lists(value: Any) -> Any:
    """The value with tuples as lists, as fastavro has them."""
    if isinstance(value, dict):
        return {key: lists(item) for key, item in value.items()}
    return [lists(item) for item in value] if isinstance(value, tuple) else value


@given(RECORDS)
@settings(deadline=None, max_examples=150)
def test_record_round_trips_and_fastavro_agrees(record: dict[str, Any]) -> None:
    data = encode_record(EVERYTHING, record, SYNC)
    assert decode_record(data, PATH) == (EVERYTHING, record)
    assert list(fastavro.reader(io.BytesIO(data))) == [lists(record)]


@given(RECORDS, st.sampled_from(["null", "deflate"]))
@settings(deadline=None, max_examples=100)
def test_container_of_fastavro_is_read(record: dict[str, Any], codec: str) -> None:
    sink = io.BytesIO()
    fastavro.writer(sink, fastavro.parse_schema(EVERYTHING), [lists(record)], codec=codec)
    assert decode_record(sink.getvalue(), PATH)[1] == record


def test_container_keeps_its_header_and_sync_marker() -> None:
    header = (("user", b"\x00\xff"), ("avro.schema", b'"string"'), ("avro.codec", b"null"))
    container = Container(header, SYNC, b"\x02x")
    assert decode_container(encode_container(container), PATH) == container


def test_blocks_with_a_byte_size_are_read() -> None:
    schema = {"type": "record", "name": "R", "fields": [
        {"name": "a", "type": {"type": "array", "items": "long"}}]}  # fmt: skip
    body = number(-2) + number(2) + number(7) + number(8) + number(1) + number(9) + b"\0"
    assert decode_record(framed(schema, body), PATH)[1] == {"a": (7, 8, 9)}


# Refusals: forged containers, schemas and bodies -------------------------------------------------


def number(value: int) -> bytes:
    out = bytearray()
    write_long(value, out)
    return bytes(out)


def sized(value: bytes) -> bytes:
    out = bytearray()
    write_bytes(value, out)
    return bytes(out)


def framed(schema: Any, body: bytes, codec: bytes | None = None) -> bytes:
    text = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    items = [(b"avro.schema", text)] + ([(b"avro.codec", codec)] if codec else [])
    header = number(len(items)) + b"".join(sized(k) + sized(v) for k, v in items) + b"\0"
    return b"Obj\x01" + header + SYNC + number(1) + sized(body) + SYNC


def one_field(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}


def deflated(data: bytes) -> bytes:
    squeezer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return squeezer.compress(data) + squeezer.flush()


def nested(levels: int) -> Any:
    kind: Any = "long"
    for _ in range(levels):
        kind = {"type": "array", "items": kind}
    return kind


def doubling(levels: int) -> Any:
    """Each record holds the one before twice: the tree is tiny, what it stands for is not."""
    fields: list[Any] = [{"name": "f0", "type": {"type": "record", "name": "R0", "fields": [
        {"name": "x", "type": "long"}]}}]  # fmt: skip
    for level in range(1, levels):
        halves = [{"name": half, "type": f"R{level - 1}"} for half in "ab"]
        record = {"type": "record", "name": f"R{level}", "fields": halves}
        fields.append({"name": f"f{level}", "type": record})
    return {"type": "record", "name": "Top", "fields": fields}


RECURSIVE = {"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]}
LONGS = one_field({"type": "array", "items": "long"})
GOOD = framed(one_field("string"), sized(b"text"))

FRAMES = {
    "garbage": b"\xff" * 1000,
    "only the magic": b"Obj\x01",
    "another format": b"PAR1" + GOOD[4:],
    "header with absurd count": b"Obj\x01" + number(LONG_COUNT) + GOOD[5:],
    "header with smallest count": b"Obj\x01" + number(-(2**63)) + GOOD[5:],
    "key with absurd length": b"Obj\x01" + number(1) + number(LONG_COUNT) + GOOD[6:],
    "key with negative length": b"Obj\x01" + number(1) + number(-5) + GOOD[6:],
    "key that is not text": b"Obj\x01" + number(1) + sized(b"\xff") + GOOD[6:],
    "no schema": b"Obj\x01" + b"\0" + SYNC + number(1) + sized(b"") + SYNC,
    "another sync marker": GOOD[:-1] + b"\xee",
    "bytes behind the end": GOOD + b"\0",
    "second block": GOOD + number(1) + sized(b"\0") + SYNC,
    "no record": framed(LONGS, b"").replace(SYNC + b"\x02", SYNC + b"\x00"),
    "two records": GOOD.replace(SYNC + b"\x02", SYNC + b"\x04"),
    "absurd number of records": GOOD.replace(SYNC + b"\x02", SYNC + number(LONG_COUNT)),
    "unknown codec": framed(one_field("string"), sized(b"x"), b"snappy"),
    "not deflate": framed(one_field("string"), b"\xff\xff\xff", b"deflate"),
    "cut deflate": framed(one_field("string"), deflated(sized(b"x" * 99))[:-4], b"deflate"),
    "deflate bomb": framed(one_field("bytes"), deflated(bytes(50_000_000)), b"deflate"),
}
SCHEMAS = {
    "not json": framed(b"{", b""),
    "not text": framed(b"\xff\xfe", b""),
    "json 100,000 deep": framed(b"[" * 100_000, b""),
    "too long": framed(b" " * (16 * 1024 * 1024 + 1), b""),
    "900 levels": framed(one_field(nested(450)), b""),  # below where JSON itself gives up
    "10,000 levels": framed(b'{"type":"array","items":' * 10_000 + b'"int"' + b"}" * 10_000, b""),
    "65 levels": framed(one_field(nested(64)), b"\0"),
    "levels behind names": framed(doubling(70), b"\0"),
    "1,000,000 fields": framed(
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}] * 100_000}, b""
    ),
    "contains itself": framed(RECURSIVE, b"\x02" * 100_000 + b"\0"),
    "array of nulls": framed(one_field({"type": "array", "items": "null"}), number(LONG_COUNT)),
    "array of empty records": framed(
        one_field({"type": "array", "items": {"type": "record", "name": "E", "fields": []}}),
        number(LONG_COUNT) + b"\0",
    ),
    "array of nothing fixed": framed(
        one_field({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}),
        number(LONG_COUNT) + b"\0",
    ),
    "map of nulls": framed(one_field({"type": "map", "values": {"type": "null"}}), b"\0"),
    "fixed of absurd size": framed(one_field({"type": "fixed", "name": "F", "size": 2**60}), b"x"),
    "fixed of no size": framed(one_field({"type": "fixed", "name": "F", "size": "4"}), b"x"),
    "enum of numbers": framed(one_field({"type": "enum", "name": "E", "symbols": [1]}), b"\0"),
    "unknown name": framed(one_field("Missing"), b"\0"),
    "number as type": framed(one_field(7), b"\0"),
    "empty union": framed(one_field([]), b"\0"),
    "union in a union": framed(one_field(["null", ["null", "int"]]), b"\0"),
    "field without a name": framed({"type": "record", "name": "R", "fields": [{}]}, b"\0"),
    "field twice": framed({**LONGS, "fields": LONGS["fields"] * 2}, b"\0\0"),
    "record without a name": framed({"type": "record", "fields": []}, b"\0"),
    "name defined twice": framed(
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": LONGS}]}, b"\0"
    ),
}
BODIES = {
    "empty": framed(LONGS, b""),
    "absurd count": framed(LONGS, number(LONG_COUNT) + b"\0"),
    "smallest count": framed(LONGS, number(-(2**63)) + number(0) + b"\0"),
    "count beyond the bytes": framed(LONGS, number(4) + b"\0\0"),
    "count without an end": framed(LONGS, number(1) + number(1)),
    "map with absurd count": framed(one_field({"type": "map", "values": "long"}), number(2**40)),
    "absurd length of text": framed(one_field("string"), number(LONG_COUNT)),
    "negative length of text": framed(one_field("string"), number(-1)),
    "absurd length of bytes": framed(one_field("bytes"), number(LONG_COUNT)),
    "negative length of bytes": framed(one_field("bytes"), number(-1)),
    "text beyond the end": framed(one_field("string"), number(9) + b"x"),
    "text that is not utf-8": framed(one_field("string"), sized(b"\xff")),
    "number of 700 bits": framed(one_field("long"), b"\xff" * 100 + b"\0"),
    "number of a million bytes": framed(one_field("long"), b"\x80" * 1_000_000 + b"\0"),
    "number of 65 bits": framed(one_field("long"), b"\xff" * 9 + b"\x03"),
    "int of 33 bits": framed(one_field("int"), number(2**32)),
    "boolean of 2": framed(one_field("boolean"), b"\x02"),
    "cut double": framed(one_field("double"), b"\0" * 7),
    "third branch of two": framed(one_field(["null", "long"]), number(2)),
    "negative branch": framed(one_field(["null", "long", "int"]), number(-1)),
    "branch beyond three": framed(one_field(["null", "long", "int"]), number(3)),
    "symbol beyond the last": framed(
        one_field({"type": "enum", "name": "E", "symbols": ["A"]}), number(1)
    ),
    "bytes behind the record": framed(one_field("long"), b"\0\0"),
}


FORGED = [
    pytest.param(data, id=f"{part}: {name}")
    for part, table in (("frame", FRAMES), ("schema", SCHEMAS), ("body", BODIES))
    for name, data in table.items()
]


@pytest.mark.parametrize("data", FORGED)
def test_forged_container_is_refused_by_name_and_at_once(data: bytes) -> None:
    begun = time.process_time()
    with pytest.raises(CorruptTableError) as caught:
        decode_record(data, PATH)
    assert time.process_time() - begun < 1
    assert caught.value.path == PATH


def test_container_above_the_cap_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyhudi.format.avro.container.CONTAINER_BYTES_MAX", len(GOOD))
    assert decode_record(GOOD, PATH)[1] == {"a": "text"}
    monkeypatch.setattr("pyhudi.format.avro.container.CONTAINER_BYTES_MAX", len(GOOD) - 1)
    with pytest.raises(CorruptTableError, match="more than"):
        decode_record(GOOD, PATH)


def test_inflating_stops_at_the_absolute_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps(list(range(200))).encode()
    data = framed(one_field("bytes"), deflated(sized(text)), b"deflate")
    assert decode_record(data, PATH)[1] == {"a": text}
    monkeypatch.setattr("pyhudi.format.avro.container.INFLATED_BYTES_MAX", len(text))
    with pytest.raises(CorruptTableError, match="inflates to more than"):
        decode_record(data, PATH)


def test_record_that_repeats_itself_by_name_is_read_at_no_extra_cost() -> None:
    # The last of four levels has 8 numbers, together with the others 15.
    record = decode_record(framed(doubling(4), number(7) * 15), PATH)[1]
    assert record["f3"]["b"]["b"]["b"] == {"x": 7}
    # The last of 60 has 2**59, so no body is long enough; saying so must not take long.
    begun = time.process_time()
    with pytest.raises(CorruptTableError):
        decode_record(framed(doubling(60), b"\0" * 500), PATH)
    assert time.process_time() - begun < 1


@given(st.binary(max_size=400))
@settings(deadline=None, max_examples=200)
def test_any_body_decodes_or_is_refused(body: bytes) -> None:
    try:
        _, record = decode_record(framed(EVERYTHING, body), PATH)
    except CorruptTableError:
        return
    # Numbers may be stored longer than needed, so the values come back and not the bytes.
    again = decode_record(encode_record(EVERYTHING, record, SYNC), PATH)[1]
    assert repr(again) == repr(record)  # as text, in which nan is nan


@pytest.mark.parametrize(
    ("kind", "value", "error"),
    [
        ("long", 2**63, OverflowError),
        ("int", 2**31, OverflowError),
        ({"type": "fixed", "name": "F", "size": 2}, b"x", ValueError),
        (["null", "int", "string"], 1, TypeError),
    ],
)
def test_value_outside_its_type_is_not_written(
    kind: Any, value: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        encode_record(one_field(kind), {"a": value}, SYNC)
