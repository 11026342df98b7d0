"""Changing a table's columns without rows: what each verb makes of them, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import CorruptTableError, InvalidRequestError
from pyhudi.format.avro.canonical import FORM
from pyhudi.format.avro.documentation import DOC
from pyhudi.format.avro.schema import avro_record_schema, decode_arrow_schema
from pyhudi.plan.schema_update import SchemaDraft
from pyhudi.table.schema_changes import column_changes

UTC = pa.timestamp("us", "UTC")
ADDRESS = pa.struct([("zip", pa.int32()), pa.field("city", pa.string(), nullable=False)])
TABLE = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("day", pa.string()),
        ("at", pa.int64()),
        pa.field("n", pa.int32(), nullable=False),
        ("big", pa.int64()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("price", pa.decimal128(10, 2)),
        ("seen", pa.timestamp("ms", "UTC")),
        ("code", pa.binary(4)),
        ("address", ADDRESS),
        ("tags", pa.list_(pa.field("element", pa.struct([("x", pa.int32())])))),
        ("m", pa.map_(pa.string(), pa.field("value", pa.struct([("x", pa.int32())])))),
        ("lists", pa.list_(pa.field("element", pa.int32(), nullable=False))),
        ("k", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("_pyhudi_rank", pa.int32()),
    ]
)
FIXED = ("id", "day", "at", "k.a")
DROPPED = {"old": "dropped on Monday by job 'x'", "address.street": "dropped on Tuesday"}

Verbs = Callable[[SchemaDraft], object]


def update(schema: pa.Schema = TABLE) -> SchemaDraft:
    return SchemaDraft(schema, fixed=FIXED, dropped=DROPPED)


def changed(verbs: Verbs) -> list[tuple[str, str, str | None, str | None]]:
    change = update()
    assert verbs(change) is change, "a verb gives the update, for the next verb"
    return [(c.path, c.kind, c.before, c.after) for c in change.changes]


def widened(path: str, before: str, after: str) -> list[tuple[str, str, str | None, str | None]]:
    return [(path, "type", before, after)]


def added(path: str, after: str) -> list[tuple[str, str, str | None, str | None]]:
    return [(path, "added", None, after)]


# ---- what is allowed


@pytest.mark.parametrize(
    ("verbs", "expected"),
    [
        (lambda u: u.add_column("x", pa.int64()), added("x", "int64")),
        (lambda u: u.add_column("x", pa.uint8()), added("x", "int32")),
        (lambda u: u.add_column("x", pa.dictionary(pa.int8(), pa.string())), added("x", "string")),
        (lambda u: u.add_column("x", "boolean"), added("x", "bool")),
        (lambda u: u.add_column("x", "int"), added("x", "int32")),
        (lambda u: u.add_column("x", "Long"), added("x", "int64")),
        (lambda u: u.add_column("x", "float"), added("x", "float")),
        (lambda u: u.add_column("x", "double"), added("x", "double")),
        (lambda u: u.add_column("x", "string"), added("x", "string")),
        (lambda u: u.add_column("x", "binary"), added("x", "binary")),
        (lambda u: u.add_column("x", "date"), added("x", "date32[day]")),
        (lambda u: u.add_column("x", "timestamp"), added("x", str(UTC))),
        (lambda u: u.add_column("x", "timestamp_ntz"), added("x", "timestamp[us]")),
        (lambda u: u.add_column("x", "decimal(10, 2)"), added("x", "decimal128(10, 2)")),
        (lambda u: u.add_column("address.x", "int"), added("address.x", "int32")),
        (lambda u: u.add_column(("address", "x"), "int"), added("address.x", "int32")),
        (lambda u: u.add_column("tags.element.y", "int"), added("tags.element.y", "int32")),
        (lambda u: u.add_column("m.value.y", "int"), added("m.value.y", "int32")),
        (lambda u: u.add_column("k.c", "int"), added("k.c", "int32")),
        (lambda u: u.update_column("n", "long"), widened("n", "int32", "int64")),
        (lambda u: u.update_column("n", "float"), widened("n", "int32", "float")),
        (lambda u: u.update_column("n", "string"), widened("n", "int32", "string")),
        (lambda u: u.update_column("big", "double"), widened("big", "int64", "double")),
        (lambda u: u.update_column("f", "double"), widened("f", "float", "double")),
        (lambda u: u.update_column("d", "string"), widened("d", "double", "string")),
        (lambda u: u.update_column("raw", "string"), widened("raw", "binary", "string")),
        (
            lambda u: u.update_column("price", "decimal(12,3)"),
            widened("price", "decimal128(10, 2)", "decimal128(12, 3)"),
        ),
        (
            lambda u: u.update_column("address.zip", "long"),
            widened("address.zip", "int32", "int64"),
        ),
        (
            lambda u: u.update_column("tags.element.x", "long"),
            widened("tags.element.x", "int32", "int64"),
        ),
        (lambda u: u.update_column("m.value.x", "long"), widened("m.value.x", "int32", "int64")),
        (
            lambda u: u.update_column("lists.element", "long"),
            widened("lists.element", "int32", "int64"),
        ),
        (lambda u: u.update_column("id", doc="who"), [("id", "doc", None, "who")]),
        (lambda u: u.update_column("k.a", doc="who"), [("k.a", "doc", None, "who")]),
        (lambda u: u.update_column("id", "string"), []),
        (lambda u: u.make_column_optional("n"), [("n", "nullable", "required", "optional")]),
        (
            lambda u: u.make_column_optional("address.city"),
            [("address.city", "nullable", "required", "optional")],
        ),
        (
            lambda u: u.make_column_optional("lists.element"),
            [("lists.element", "nullable", "required", "optional")],
        ),
        (lambda u: u.make_column_optional("text"), []),
        (lambda u: u.delete_column("n"), [("n", "dropped", "int32 not null", None)]),
        (lambda u: u.delete_column("address.zip"), [("address.zip", "dropped", "int32", None)]),
        (lambda u: u.delete_column("k.b"), [("k.b", "dropped", "string", None)]),
        (lambda u: u.add_column("x", "int").delete_column("x"), []),
        (
            lambda u: u.add_column("x", "int").delete_column("x").add_column("x", "long"),
            added("x", "int64"),
        ),
        (
            lambda u: u.add_column("x", "int").update_column("x", "long").delete_column("n"),
            [("n", "dropped", "int32 not null", None), *added("x", "int64")],
        ),
    ],
)
def test_a_verb_changes_what_it_names_and_nothing_else(
    verbs: Verbs, expected: list[tuple[str, str, str | None, str | None]]
) -> None:
    assert changed(verbs) == expected


def test_a_new_column_is_last_and_nullable_and_has_its_documentation() -> None:
    made = update().add_column("x", "int", "what it means").schema
    assert made.field(len(TABLE)).equals(
        pa.field("x", pa.int32(), metadata={DOC: b"what it means"}), check_metadata=True
    )
    assert made.names[:-1] == TABLE.names


def test_empty_documentation_removes_what_there_is() -> None:
    change = update().add_column("x", "int", "a").update_column("x", doc="")
    assert change.schema.field("x").metadata == {DOC: b""}


def test_an_update_says_what_it_changes() -> None:
    change = update().add_column("x", "int").update_column("n", "long").delete_column("f")
    text = repr(change)
    assert "'f' dropped, which was float; type of 'n' from int32 to int64; 'x' added" in text
    assert "no change" in repr(update())


# ---- the stored text


@pytest.mark.parametrize(
    ("verbs", "is_kept"),
    [
        (lambda u: u.add_column("x", "int"), True),
        (lambda u: u.update_column("a", doc="new"), True),  # it is no part of the text
        (lambda u: u.update_column("a.b", "int"), True),  # nothing changes
        (lambda u: u.union_by_name(pa.schema([("a", pa.struct([("b", pa.int32())]))])), True),
        (lambda u: u.update_column("a.b", "long"), False),
        (lambda u: u.add_column("a.c", "long"), False),
        (lambda u: u.make_column_optional("a"), False),
        (lambda u: u.add_column("a.c", "int").delete_column("a.b"), False),
    ],
)
def test_the_stored_text_stays_with_a_column_until_it_changes(verbs: Verbs, is_kept: bool) -> None:
    texts = {FORM: b'{"name":"a"}', DOC: b"old"}
    inner = pa.struct([("b", pa.int32())])
    schema = pa.schema([("id", pa.string()), pa.field("a", inner, False, texts)])
    change = SchemaDraft(schema)
    verbs(change)
    found = change.schema.field("a").metadata
    assert (FORM in found, DOC in found) == (is_kept, True)


# ---- what is refused

UNIONS = {
    "long with double": [("big", pa.float64())],
    "number with text": [("n", pa.string())],
    "wide decimals": [("price", pa.decimal128(38, 0))],
    "a key": [("at", pa.float64())],
    "an ordering column": [("at", pa.decimal128(20, 0))],
    "part of a key": [("k", pa.struct([("a", pa.int64())]))],
    "other case": [("TEXT", pa.string())],
    "dropped": [("old", pa.string())],
    "dropped inside": [("address", pa.struct([("street", pa.string())]))],
    "reserved": [("_hoodie_new", pa.string())],
    "no stored type": [("x", pa.uint64())],
    "a struct for a number": [("n", pa.struct([("x", pa.int32())]))],
    "a map of numbers": [("m", pa.map_(pa.int32(), pa.int32()))],
}


def union(name: str) -> Verbs:
    return lambda u: u.union_by_name(pa.schema(UNIONS[name]))


@pytest.mark.parametrize(
    ("verbs", "message"),
    [
        (lambda u: u.add_column("x", "int", required=True), "'x' cannot be added as required"),
        (lambda u: u.add_column("n", "int"), "'n' cannot be added: there is a column of that name"),
        (lambda u: u.add_column("N", "int"), "'N' cannot be added.*'n', which differs.*in case"),
        (lambda u: u.add_column("address.ZIP", "int"), "'address.ZIP' .*'zip', which differs"),
        (lambda u: u.add_column("_hoodie_x", "int"), "'_hoodie_x' cannot be added.*Hudi's own"),
        (lambda u: u.add_column("_pyhudi_x", "int"), "'_pyhudi_x' cannot be added.*pyhudi's own"),
        (
            lambda u: u.add_column("x", pa.struct([("_pyhudi_y", pa.int32())])),
            "'x._pyhudi_y' cannot be added.*pyhudi's own",
        ),
        (lambda u: u.add_column("a-b", "int"), "'a-b' cannot be stored: a name has letters"),
        (lambda u: u.add_column("address.1x", "int"), "'address.1x' cannot be stored"),
        (
            lambda u: u.add_column("x", pa.struct([("a", pa.int32()), ("A", pa.int32())])),
            "'x.A' cannot be stored.*only in case",
        ),
        (lambda u: u.add_column("old", "int"), r"'old' .*again.*on Monday by job 'x'.*clean\(\)"),
        (lambda u: u.add_column("OLD", "int"), "'OLD' cannot be added again"),
        (lambda u: u.add_column("address.street", "int"), "'address.street' .*again.*Tuesday"),
        (
            lambda u: u.delete_column("n").add_column("n", "int"),
            "'n' cannot be added again.*this update deletes it",
        ),
        (
            lambda u: u.delete_column("address.zip").add_column("address.Zip", "int"),
            "'address.Zip' cannot be added again.*this update",
        ),
        (lambda u: u.add_column("x", "text"), "'x' cannot have that type: 'text' is not a type"),
        (lambda u: u.add_column("x", "decimal(39,0)"), "'x' .*at most 38 digits"),
        (lambda u: u.add_column("x", "decimal(5,6)"), "'x' .*at most 38 digits"),
        (lambda u: u.add_column("x", 5), "'x' cannot have that type: 5 is not a type"),
        (lambda u: u.add_column("x", pa.uint64()), "'x' cannot be stored.*uint64"),
        (lambda u: u.add_column("x", pa.null()), "'x' cannot be stored.*null"),
        (lambda u: u.add_column("x", "int", doc=5), "'x' cannot have that documentation"),
        (lambda u: u.add_column("no.x", "int"), "'no' cannot be changed: there is no such column"),
        (lambda u: u.add_column("n.x", "int"), "'n.x' cannot be added: 'n' is int32"),
        (lambda u: u.add_column("tags.x", "int"), "'tags.x' .*holds: 'tags.element'"),
        (lambda u: u.add_column("m.x", "int"), "'m.x' .*holds: 'm.value'"),
        (lambda u: u.add_column("id.x", "int"), "'id.x' cannot be added"),
        (lambda u: u.add_column("", "int"), "'' is not the path of a column"),
        (lambda u: u.add_column("a..b", "int"), "'a..b' is not the path"),
        (lambda u: u.add_column(5, "int"), "5 is not the path"),
        (lambda u: u.add_column(("a", 5), "int"), "is not the path"),
        (lambda u: u.update_column("no", "int"), "'no' .*no such column.*Name one of.*: id, day"),
        (lambda u: u.update_column("n"), "'n' cannot be updated: neither a type nor"),
        (lambda u: u.update_column("n", doc="\ud800"), "'n' cannot have that .*is not text"),
        (lambda u: u.update_column("tags.element", doc="x"), "'tags.element' cannot have docum"),
        (lambda u: u.update_column("m.value", doc="x"), "'m.value' .*what 'm' holds"),
        (lambda u: u.update_column("big", "int"), "'big' cannot become int32: it is int64"),
        (lambda u: u.update_column("d", "float"), "'d' cannot become float"),
        (lambda u: u.update_column("text", "long"), "'text' cannot become int64"),
        (lambda u: u.update_column("n", "timestamp"), "'n' cannot become timestamp"),
        (lambda u: u.update_column("big", "timestamp"), "'big' cannot become timestamp"),
        (lambda u: u.update_column("text", "binary"), "'text' cannot become binary"),
        (lambda u: u.update_column("price", "decimal(10,3)"), "'price' cannot become decimal128"),
        (lambda u: u.update_column("price", "decimal(12,1)"), "'price' cannot become decimal128"),
        (lambda u: u.update_column("price", "double"), "'price' cannot become double"),
        (lambda u: u.update_column("seen", "timestamp"), "'seen' cannot become timestamp"),
        (lambda u: u.update_column("code", "binary"), "'code' cannot become binary"),
        (lambda u: u.update_column("at", "double"), "'at' cannot have another type: .*ordering"),
        (lambda u: u.update_column("day", "binary"), "'day' cannot have another type"),
        (lambda u: u.update_column("k.a", "long"), "'k.a' cannot have another type"),
        (lambda u: u.update_column("address", ADDRESS.field(0).type), "'address' .*as a whole"),
        (lambda u: u.update_column("n", ADDRESS), "'n' cannot become struct"),
        (lambda u: u.update_column("m.key", "binary"), "'m.key' cannot be changed: the keys"),
        (lambda u: u.update_column("_pyhudi_rank", "long"), "'_pyhudi_rank' cannot have another"),
        (lambda u: u.make_column_optional("id"), "'id' cannot become optional.*record key"),
        (lambda u: u.make_column_optional("k"), "'k' cannot become optional.*holds a record key"),
        (lambda u: u.make_column_optional("no"), "'no' .*no such column"),
        (lambda u: u.delete_column("id"), "'id' cannot be deleted.*record key"),
        (lambda u: u.delete_column("at"), "'at' cannot be deleted"),
        (lambda u: u.delete_column("k"), "'k' cannot be deleted.*holds a record key"),
        (lambda u: u.delete_column("k.a"), "'k.a' cannot be deleted"),
        (lambda u: u.delete_column("no"), "'no' .*no such column"),
        (lambda u: u.delete_column("_pyhudi_rank"), "'_pyhudi_rank' cannot be deleted"),
        (lambda u: u.delete_column("tags.element"), "'tags.element' .*cannot be without it"),
        (lambda u: u.delete_column("tags.element.x"), "'tags.element.x' .*last field of 'tags"),
        (lambda u: u.rename_column("n", "m2"), "'n' cannot be renamed to 'm2'.*schema-on-read"),
        (lambda u: u.move_first("n"), "'n' cannot be moved.*schema-on-read.*columns="),
        (lambda u: u.move_before("n", "id"), "'n' cannot be moved"),
        (lambda u: u.move_after("n", "id"), "'n' cannot be moved"),
        (union("long with double"), "'big' cannot hold both types: it is int64 here and double"),
        (union("number with text"), "'n' cannot hold both types"),
        (union("wide decimals"), "'price' cannot hold both types"),
        (union("a key"), "'at' cannot hold both types"),
        (union("part of a key"), "'k.a' cannot have another type"),
        (union("other case"), "'TEXT' cannot be added.*'text', which differs"),
        (union("dropped"), "'old' cannot be added again"),
        (union("dropped inside"), "'address.street' cannot be added again"),
        (union("reserved"), "'_hoodie_new' cannot be added.*Hudi's own"),
        (union("no stored type"), "'x' cannot be stored"),
        (union("a struct for a number"), "'n' cannot hold both types"),
        (union("a map of numbers"), "'m' cannot be stored.*keys to string"),
    ],
)
def test_what_readers_could_not_follow_is_refused_and_named(verbs: Verbs, message: str) -> None:
    change = update()
    with pytest.raises(InvalidRequestError, match=message):
        verbs(change)


@pytest.mark.parametrize("name", UNIONS)
def test_a_union_that_is_refused_has_changed_nothing(name: str) -> None:
    change = update()
    both = pa.schema([("new", pa.int32()), ("f", pa.float64()), *UNIONS[name]])
    with pytest.raises(InvalidRequestError):
        change.union_by_name(both)
    assert change.changes == ()
    assert changed(lambda u: u.union_by_name(both.remove(2)))  # the rest is allowed


def test_the_last_column_stays() -> None:
    change = SchemaDraft(pa.schema([("a", pa.int32()), ("_pyhudi_rank", pa.int32())]))
    with pytest.raises(InvalidRequestError, match=r"'a' cannot be deleted.*last column"):
        change.delete_column("a")
    assert change.add_column("b", "int").delete_column("a").schema.names == ["_pyhudi_rank", "b"]


# ---- sizes


def deep(levels: int) -> pa.DataType:
    type_: pa.DataType = pa.int32()
    for _ in range(levels):
        type_ = pa.struct([pa.field("x", type_, nullable=False)])
    return type_


@pytest.mark.parametrize("levels", [64, 65, 100])
def test_a_column_is_refused_that_readers_would_find_too_deep(levels: int) -> None:
    with pytest.raises(InvalidRequestError, match=r"'x[.x]*' cannot be stored.*64 levels deep"):
        update().add_column("x", deep(levels))


def test_a_column_is_as_deep_as_readers_can_read() -> None:
    levels = next(n for n in range(100) if not is_accepted(deep(n)))
    stored = json.dumps(avro_record_schema(pa.schema([("x", deep(levels - 1))]), "t"))
    assert decode_arrow_schema(stored, "").field("x").type == deep(levels - 1)
    stored = json.dumps(avro_record_schema(pa.schema([("x", deep(levels))]), "t"))
    with pytest.raises(CorruptTableError, match="64 levels deep"):
        decode_arrow_schema(stored, "")


def is_accepted(type_: pa.DataType) -> bool:
    try:
        update().add_column("x", type_)
    except InvalidRequestError:
        return False
    return True


def test_more_than_ten_thousand_columns_are_refused() -> None:
    wide = SchemaDraft(pa.schema([(f"c{n}", pa.int32()) for n in range(9_993)]))
    wide.add_column("s", pa.struct([("a", pa.int32())])).delete_column("c0")
    with pytest.raises(InvalidRequestError, match=r"'t' cannot be stored.*10,000 columns"):
        wide.add_column("t", pa.struct([("a", pa.int32())]))
    assert wide.add_column("u", "int").schema.names[-1] == "u"
    with pytest.raises(InvalidRequestError, match=r"'s' cannot be stored.*10,000 columns"):
        wide.add_column("s.b", "int")


# ---- union


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (pa.schema([pa.field("x", pa.int32(), nullable=False)]), added("x", "int32")),
        (pa.schema([("n", pa.int64())]), widened("n", "int32", "int64")),
        (pa.schema([("n", pa.float32())]), widened("n", "int32", "double")),
        (pa.schema([("f", pa.int32())]), widened("f", "float", "double")),
        (pa.schema([("big", pa.int8()), ("at", pa.int32())]), []),
        (pa.schema([("text", pa.dictionary(pa.int8(), pa.string()))]), []),
        (pa.schema([("seen", pa.timestamp("ns", "UTC")), ("code", pa.binary())]), []),
        (
            pa.schema([("price", pa.decimal128(9, 4))]),
            widened("price", "decimal128(10, 2)", "decimal128(12, 4)"),
        ),
        (
            pa.schema([("address", pa.struct([("new", pa.int8()), ("zip", pa.int64())]))]),
            [*widened("address.zip", "int32", "int64"), *added("address.new", "int32")],
        ),
        (
            pa.schema([("tags", pa.large_list(pa.struct([("x", pa.int64())])))]),
            widened("tags.element.x", "int32", "int64"),
        ),
        (
            pa.schema([("m", pa.map_(pa.string(), pa.struct([("y", pa.int64())])))]),
            added("m.value.y", "int64"),
        ),
        (TABLE, []),
    ],
)
def test_a_union_adds_what_is_missing_and_widens_without_loss(
    given: Any, expected: list[tuple[str, str, str | None, str | None]]
) -> None:
    assert changed(lambda u: u.union_by_name(given)) == expected


LEAVES = [pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(5, 2), pa.string()]
types = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: (
        st.builds(pa.list_, inner)
        | st.dictionaries(st.sampled_from("abc"), inner, min_size=1).map(
            lambda fields: pa.struct(list(fields.items()))
        )
    ),
    max_leaves=5,
)
schemas = st.dictionaries(st.sampled_from("pqrs"), types, min_size=1).map(
    lambda fields: pa.schema(list(fields.items()))
)


@given(schemas, schemas)
def test_a_union_repeated_or_turned_round_adds_nothing(one: pa.Schema, other: pa.Schema) -> None:
    try:
        joined = SchemaDraft(one).union_by_name(other).schema
    except InvalidRequestError:
        with pytest.raises(InvalidRequestError):
            SchemaDraft(other).union_by_name(one)
        return
    assert SchemaDraft(joined).union_by_name(other).changes == ()
    assert SchemaDraft(joined).union_by_name(one).changes == ()
    turned = SchemaDraft(other).union_by_name(one).schema
    assert {c.kind for c in column_changes(joined, turned)} <= {"order"}
