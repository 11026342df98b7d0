"""Schemas that are the same to Hudi, and the text that a commit records for a schema."""

from __future__ import annotations

import json
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from any_columns import columns_of_all_types
from golden_tables import NAMES, GoldenTables
from pyhudi.errors import CorruptTableError, InvalidRequestError, UnsupportedTableError
from pyhudi.format.avro.canonical import (
    FORM,
    annotated_schema,
    canonical_record,
    fingerprint,
    is_same_schema,
)
from pyhudi.format.avro.documentation import DOC, documented_columns
from pyhudi.format.avro.recorded import encode_schema
from pyhudi.format.avro.schema import avro_record_schema, decode_arrow_schema

PATH = ".hoodie/timeline/x.commit"


def record(*fields: Any, **properties: Any) -> str:
    return json.dumps({"type": "record", "name": "r", "fields": list(fields), **properties})


def read(text: str) -> pa.Schema:
    return annotated_schema(text, PATH)


def column(type_: Any, **properties: Any) -> str:
    return record({"name": "a", "type": type_, **properties})


POINT = {"type": "record", "name": "P", "fields": [{"name": "x", "type": "int"}]}
COLOUR = {"type": "enum", "name": "C", "symbols": ["RED", "BLUE"]}
KEY = {"type": "fixed", "name": "K", "size": 4}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}

SAME = {
    "documentation of the record": (column("int"), record({"name": "a", "type": "int"}, doc="d")),
    "documentation of a column": (column("int"), column("int", doc="d")),
    "aliases": (column("int"), column("int", aliases=["b"])),
    "other properties": (column("int"), column("int", comment="c")),
    "name and namespace of the record": (
        column("int"),
        record({"name": "a", "type": "int"}, name="q", namespace="n"),
    ),
    "name and namespace of an inner record": (
        column(POINT),
        column({**POINT, "name": "Q", "namespace": "n", "doc": "d"}),
    ),
    "namespace of a fixed type": (column(KEY), column({**KEY, "namespace": "n"})),
    "a fixed type by its full name": (column(KEY), column({**KEY, "name": "n.K"})),
    "order of a union": (column(["null", "int"]), column(["int", "null"])),
    "a type as an object": (column("int"), column({"type": "int"})),
    "a type in an object": (column(POINT), column({"type": POINT})),
    "properties of a type": (column("string"), column({"type": "string", "avro.java.string": "S"})),
    "the usual sort order": (column("int"), column("int", order="ascending")),
    "scale 0, said or not": (
        column({**MONEY, "scale": 0}),
        column({key: MONEY[key] for key in MONEY if key != "scale"}),
    ),
    "a whole number as the default of a double": (
        column("double", default=0),
        column("double", default=0.0),
    ),
    "a type by its name": (
        record({"name": "a", "type": POINT}, {"name": "b", "type": "P"}),
        record({"name": "a", "type": POINT}, {"name": "b", "type": {**POINT, "name": "Q"}}),
    ),
}

DIFFERENT = {
    "name": (column("int"), record({"name": "A", "type": "int"})),
    "type": (column("int"), column("long")),
    "nullability": (column("int"), column(["null", "int"])),
    "presence of a default": (column(["null", "int"]), column(["null", "int"], default=None)),
    "value of a default": (column("int", default=1), column("int", default=2)),
    "default false and default 0": (column("int", default=0), column("int", default=False)),
    "logical type": (column("int"), column({"type": "int", "logicalType": "date"})),
    "logical type that Arrow does not know": (
        column("string"),
        column({"type": "string", "logicalType": "uuid"}),
    ),
    "precision": (column(MONEY), column({**MONEY, "precision": 10})),
    "scale": (column(MONEY), column({**MONEY, "scale": 3})),
    "decimal as bytes or fixed": (
        column(MONEY),
        column({**MONEY, "type": "fixed", "name": "f", "size": 4}),
    ),
    "symbols of an enum": (column(COLOUR), column({**COLOUR, "symbols": ["RED"]})),
    "order of symbols": (column(COLOUR), column({**COLOUR, "symbols": ["BLUE", "RED"]})),
    "enum or text": (column(COLOUR), column("string")),
    "size of a fixed type": (column(KEY), column({**KEY, "size": 5})),
    "name of a fixed type": (column(KEY), column({**KEY, "name": "L"})),
    "sort order": (column("int"), column("int", order="descending")),
    "order of columns": (
        record({"name": "a", "type": "int"}, {"name": "b", "type": "int"}),
        record({"name": "b", "type": "int"}, {"name": "a", "type": "int"}),
    ),
    "number of columns": (column("int"), record()),
    "a default inside": (
        column(POINT),
        column({**POINT, "fields": [{"name": "x", "type": "int", "default": 0}]}),
    ),
}


@pytest.mark.parametrize(("left", "right"), SAME.values(), ids=SAME)
def test_hudi_does_not_compare(left: str, right: str) -> None:
    assert is_same_schema(read(left), read(right))
    assert fingerprint(read(left)) == fingerprint(read(right))


@pytest.mark.parametrize(("left", "right"), DIFFERENT.values(), ids=DIFFERENT)
def test_hudi_compares(left: str, right: str) -> None:
    assert not is_same_schema(read(left), read(right))
    assert fingerprint(read(left)) != fingerprint(read(right))


@given(columns_of_all_types)
@settings(deadline=None)
def test_a_column_without_a_form_is_the_one_that_would_be_written(columns: list[pa.Field]) -> None:
    schema = pa.schema(columns)
    found = read(json.dumps(avro_record_schema(schema, "t")))
    assert found.equals(schema)
    assert all(FORM in field.metadata for field in found)
    assert is_same_schema(found, schema)
    assert fingerprint(found) == fingerprint(schema)


@given(columns_of_all_types)
@settings(deadline=None)
def test_a_form_is_a_fixed_point(columns: list[pa.Field]) -> None:
    schema = read(json.dumps(avro_record_schema(pa.schema(columns), "t")))
    forms = [field.metadata[FORM] for field in schema]
    again = read(record(*(json.loads(form) for form in forms)))
    assert [field.metadata[FORM] for field in again] == forms


def test_a_column_changed_by_means_of_arrow_is_another() -> None:
    schema = read(column("int", default=1))
    for changed in (
        schema.field(0).with_type(pa.int64()),
        schema.field(0).with_nullable(True),
        schema.field(0).with_name("b"),
    ):
        assert not is_same_schema(pa.schema([changed]), schema)
        bare = pa.schema([changed.remove_metadata()])
        assert is_same_schema(pa.schema([changed]), bare)


@pytest.mark.parametrize("form", [b"", b"\xff", b'{"name":"a",', b'{"name":"a","type":"int"},{}'])
def test_metadata_that_is_no_form_is_not_believed(form: bytes) -> None:
    bare = pa.field("a", pa.int32(), nullable=False)
    assert is_same_schema(pa.schema([bare.with_metadata({FORM: form})]), pa.schema([bare]))


def test_columns_can_be_left_out() -> None:
    text = record({"name": "_m", "type": "string"}, {"name": "a", "type": "int"})
    assert annotated_schema(text, PATH, without={"_m"}).names == ["a"]
    assert annotated_schema(text, PATH).names == ["_m", "a"]


def nested(levels: int) -> str:
    inner: Any = "int"
    for _ in range(levels):
        inner = {"type": "array", "items": inner}
    return column(inner)


#: Each use of the enum's name stands for all of its symbols again: a hundred megabytes in all.
BOMB = record(
    {"name": "e", "type": {**COLOUR, "symbols": ["S" * 50_000]}},
    *({"name": f"c{number}", "type": "C"} for number in range(2_000)),
)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a record"),
        (column("no such type"), "is not defined"),
        (record(*({"name": f"c{n}", "type": "int"} for n in range(10_001))), "more than 10000"),
        (nested(65), "more than 64 levels"),
        (BOMB, "its named types stand for"),
    ],
    ids=["no JSON", "no record", "no type", "wide", "deep", "bomb"],
)
def test_a_damaged_schema_is_refused_with_its_path(text: str, why: str) -> None:
    for _ in range(2):  # the second time must not come from a cache
        with pytest.raises(CorruptTableError, match=why) as raised:
            annotated_schema(text, PATH)
        assert raised.value.path == PATH


def test_a_union_of_two_types_is_refused_with_its_path() -> None:
    with pytest.raises(UnsupportedTableError, match=PATH):
        annotated_schema(column(["int", "string"]), PATH)


# ---- the text to record


def test_an_earlier_text_that_says_the_same_is_recorded_as_it_is() -> None:
    first = column("long", doc="first")
    second, third = column("int", doc="second"), column("int", doc="third")
    assert encode_schema(read(column("int")), [first, second, third], "t") == second


def test_columns_left_out_do_not_keep_a_text_from_being_recorded() -> None:
    text = record({"name": "_m", "type": "string"}, {"name": "a", "type": "int"})
    assert encode_schema(read(column("int")), [text], "t", without={"_m"}) == text


def test_without_an_earlier_text_the_record_is_the_one_that_hudi_would_write() -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("price", pa.decimal128(10, 2)),
            pa.field("at", pa.struct([pa.field("zone", pa.string()), ("d", pa.decimal128(5, 1))])),
            pa.field("tags", pa.list_(pa.field("element", pa.struct([("k", pa.binary(3))])))),
            pa.field("notes", pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False))),
        ]
    )
    assert json.loads(encode_schema(schema, [], "t")) == avro_record_schema(schema, "t")


def test_a_new_column_is_nullable_and_documented() -> None:
    new = pa.field("b", pa.string(), metadata={DOC: b"what b is"})
    text = column("int", doc="d", default=4, custom=1)
    made = json.loads(encode_schema(read(text).append(new), [text], "t"))
    assert made["name"] == "r"
    assert made["fields"] == [
        {"name": "a", "type": "int", "doc": "d", "default": 4, "custom": 1},
        {"name": "b", "type": ["null", "string"], "default": None, "doc": "what b is"},
    ]


@pytest.mark.parametrize("name", NAMES)
def test_what_other_engines_wrote_goes_on_with_another_column(
    golden: GoldenTables, name: str
) -> None:
    files = [p for p in golden.path(name).rglob("*.parquet") if ".hoodie" not in p.parts]
    stored = {pq.read_metadata(path).metadata.get(b"parquet.avro.schema") for path in files}
    for text in (one.decode() for one in stored if one is not None):
        schema = read(text)
        assert schema.equals(decode_arrow_schema(text, PATH))
        more = schema.append(pa.field("one_more", pa.decimal128(10, 2)))
        made = encode_schema(more, [text], "t")
        fastavro.parse_schema(json.loads(made))  # refuses names used twice, or too early
        assert is_same_schema(read(made), more)
        assert json.loads(made)["fields"][:-1] == json.loads(text)["fields"]


def test_each_column_comes_from_the_first_text_that_has_it() -> None:
    one = record(
        {"name": "a", "type": "int", "doc": "one"}, {"name": "b", "type": "int", "doc": "old"}
    )
    two = record(
        {"name": "a", "type": "int", "doc": "two"}, {"name": "b", "type": "long", "doc": "new"}
    )
    schema = decode_arrow_schema(two, PATH).append(pa.field("c", pa.int32()))
    fields = json.loads(encode_schema(schema, [one, two], "t"))["fields"]
    assert [field.get("doc") for field in fields] == ["one", "new", None]


def test_a_struct_that_changed_inside_keeps_the_documentation_of_its_children() -> None:
    x = {"name": "x", "type": "int", "doc": "how far"}
    text = column(["null", {**POINT, "namespace": "geo", "fields": [x]}], doc="where", default=None)
    was = read(text).field(0)
    children = [*was.type, pa.field("y", pa.int64())]
    schema = pa.schema([was.with_type(pa.struct(children))])
    (field,) = json.loads(encode_schema(schema, [text], "t"))["fields"]
    assert field["doc"] == "where"
    assert field["type"][1] == {
        "type": "record",
        "name": "P",
        "namespace": "geo",
        "fields": [x, {"name": "y", "type": ["null", "long"], "default": None}],
    }


def test_what_arrow_cannot_say_is_recorded_where_no_text_has_it() -> None:
    text = record(
        {"name": "a", "type": [COLOUR, "null"], "default": "RED"},
        {"name": "b", "type": "int", "default": 7, "order": "ignore"},
        {"name": "c", "type": {"type": "string", "logicalType": "uuid"}},
    )
    schema = read(text)
    made = encode_schema(schema, [], "t")
    assert is_same_schema(read(made), schema)
    assert json.loads(made)["fields"][0]["type"][1] == "null"  # a default is of the first branch


def documented(text: str, path: tuple[int, ...], doc: str) -> pa.Schema:
    """The schema of a text with other documentation of the field at the place."""
    schema = read(text)
    return schema.set(path[0], _documented(schema.field(path[0]), path[1:], doc))


def _documented(field: pa.Field, path: tuple[int, ...], doc: str) -> pa.Field:
    if not path:
        return field.with_metadata({**(field.metadata or {}), DOC: doc.encode()})
    children = list(field.type)
    children[path[0]] = _documented(children[path[0]], path[1:], doc)
    return field.with_type(pa.struct(children))


def test_documentation_is_read_of_columns_and_of_fields_of_structs() -> None:
    x = {"name": "x", "type": "int", "doc": "how far"}
    point = {**POINT, "fields": [x]}
    text = record(
        {"name": "a", "type": point, "doc": "where"},
        {"name": "b", "type": {"type": "array", "items": "P"}},
        {"name": "c", "type": "int", "doc": 5},
    )
    schema = read(text)
    assert [(field.metadata or {}).get(DOC) for field in schema] == [b"where", None, None]
    for struct in (schema.field("a").type, schema.field("b").type.value_type):
        assert struct.field("x").metadata == {DOC: b"how far"}
    assert documented_columns(schema) == {
        "a": "where",
        "a.x": "how far",
        "b.element.x": "how far",
    }
    assert not decode_arrow_schema(text, PATH).field("a").metadata


def test_documentation_that_stands_for_too_much_is_refused() -> None:
    inner = {**POINT, "fields": [{"name": "x", "type": "int", "doc": "d" * 50_000}]}
    uses = ({"name": f"c{number}", "type": "P"} for number in range(1_000))
    with pytest.raises(CorruptTableError, match="the documentation in it stands for more"):
        read(record({"name": "p", "type": inner}, *uses))


@pytest.mark.parametrize("doc", ["new", ""])
def test_a_text_with_other_documentation_is_not_recorded_as_it_is(doc: str) -> None:
    first, second = column("int", doc="first", aliases=["b"]), column("int", doc="second")
    made = encode_schema(documented(first, (0,), doc), [first, second], "t")
    (field,) = json.loads(made)["fields"]
    assert field.pop("doc", "") == doc
    assert field == {"name": "a", "type": "int", "aliases": ["b"]}
    assert encode_schema(documented(first, (0,), "second"), [first, second], "t") == second


def test_a_schema_that_says_nothing_of_documentation_takes_none_away() -> None:
    text = column("int", doc="d")
    assert encode_schema(decode_arrow_schema(text, PATH), [text], "t") == text


@pytest.mark.parametrize("doc", ["new", ""])
def test_documentation_inside_a_struct_is_that_of_the_schema(doc: str) -> None:
    x = {"name": "x", "type": "int", "doc": "how far"}
    point = {**POINT, "fields": [x, {"name": "y", "type": "int", "doc": "up"}]}
    text = record({"name": "a", "type": point, "doc": "one"}, {"name": "b", "type": "P"})
    schema = documented(text, (1, 0), doc)
    made = encode_schema(schema, [text], "t")
    fastavro.parse_schema(json.loads(made))  # refuses names used twice, or too early
    assert is_same_schema(read(made), read(text))
    found = {path: said for path, said in documented_columns(schema).items() if said}
    assert documented_columns(read(made)) == found
    assert ("b.x" in found) == bool(doc)


def test_half_a_character_of_documentation_is_read_and_kept() -> None:
    text = '{"type":"record","name":"r","fields":[{"name":"a","type":"int","doc":"\\ud800"}]}'
    assert encode_schema(read(text), [text], "t") == text


#: One type that three columns use: by definition, by name, and by name inside a list.
SHARED = record(
    {"name": "a", "type": ["null", POINT], "default": None},
    {"name": "b", "type": "P", "doc": "second"},
    {"name": "c", "type": {"type": "array", "items": "n.P"}},
    namespace="n",
)


@pytest.mark.parametrize("kept", [[0, 1, 2], [1, 2], [2, 1], [2], [1, 0], [1]])
@pytest.mark.parametrize("widened", [None, "a", "b", "c"])
def test_a_type_that_columns_share_is_defined_once_and_before_its_uses(
    kept: list[int], widened: str | None
) -> None:
    found = [read(SHARED).field(number) for number in kept]
    wide = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    wider = {"a": wide, "b": wide, "c": pa.list_(pa.field("element", wide, nullable=False))}
    columns = [
        field.with_type(wider[field.name]) if field.name == widened else field for field in found
    ]
    schema = pa.schema([*columns, pa.field("new", pa.int32())])
    made = encode_schema(schema, [SHARED], "t")
    fastavro.parse_schema(json.loads(made))  # refuses names used twice, or too early
    assert is_same_schema(read(made), schema)
    assert decode_arrow_schema(made, PATH).equals(schema)


def test_unchanged_columns_go_on_sharing_their_type() -> None:
    schema = read(SHARED).append(pa.field("new", pa.int32()))
    fields = json.loads(encode_schema(schema, [SHARED], "t"))["fields"]
    assert [field["type"] for field in fields[:3]] == [
        ["null", POINT],
        "n.P",
        {"type": "array", "items": "n.P"},
    ]
    assert fields[1]["doc"] == "second"


def test_two_types_of_one_name_from_two_texts_are_told_apart() -> None:
    other = {**POINT, "fields": [{"name": "z", "type": "string"}]}
    one = record({"name": "a", "type": POINT})
    two = record({"name": "b", "type": other, "doc": "kept"})
    schema = pa.schema([*read(one), *read(two)])
    made = encode_schema(schema, [one, two], "t")
    fastavro.parse_schema(json.loads(made))  # refuses names used twice, or too early
    assert is_same_schema(read(made), schema)
    assert json.loads(made)["fields"][1]["doc"] == "kept"


@given(st.lists(columns_of_all_types, max_size=3), columns_of_all_types)
@settings(deadline=None)
def test_the_recorded_text_says_what_the_schema_says(
    earlier: list[list[pa.Field]], columns: list[pa.Field]
) -> None:
    texts = [json.dumps(avro_record_schema(pa.schema(found), "t")) for found in earlier]
    schema = pa.schema(columns)
    made = encode_schema(schema, texts, "t")
    fastavro.parse_schema(json.loads(made))  # refuses names used twice, or too early
    assert is_same_schema(read(made), schema)
    assert read(made).equals(schema)
    assert not canonical_record(made, PATH).defines_twice


def test_a_schema_that_readers_would_refuse_is_not_recorded() -> None:
    wide = pa.schema([pa.field(f"c{number}", pa.int32()) for number in range(10_001)])
    with pytest.raises(InvalidRequestError, match="more than 10000 fields"):
        encode_schema(wide, [column("int")], "t")


def test_a_damaged_earlier_text_is_an_error() -> None:
    with pytest.raises(CorruptTableError):
        encode_schema(read(column("int")), ["{"], "t")
