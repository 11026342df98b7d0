"""What a commit records if the table's schema changed while the write ran."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from itertools import permutations

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pyhudi.conflict.schema_to_record import (
    TableSchemaText,
    WriteSchemas,
    own_schema,
    schema_to_record,
)
from pyhudi.conflict.schemas import (
    ReconcileSchemaStrategy,
    SchemaContradiction,
    SchemaStrategy,
    SimpleSchemaStrategy,
    merged,
)
from pyhudi.format.avro.canonical import FORM, annotated_schema, is_same_schema
from pyhudi.format.avro.documentation import DOC
from pyhudi.format.avro.schema import avro_record_schema
from pyhudi.table.joined_types import joined_type
from pyhudi.table.schema_changes import column_changes

SIMPLE, RECONCILE = SimpleSchemaStrategy(), ReconcileSchemaStrategy()
I32, I64, F32, F64, TEXT = pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()


def schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema(list(columns.items()))


def required(name: str, type_: pa.DataType) -> pa.Field:
    return pa.field(name, type_, nullable=False)


def as_stored(columns: pa.Schema) -> pa.Schema:
    """The schema as it comes out of a commit."""
    return annotated_schema(json.dumps(avro_record_schema(columns, "t")), "x")


# ---- the eight scenarios of RFC-82

S1 = schema(id=I64)
S2 = schema(id=I64, a=TEXT)
S3 = schema(id=I64, b=TEXT)
BOTH = schema(id=I64, a=TEXT, b=TEXT)
CHANGED = schema(id=TEXT)  # contradicts S4
S4 = schema(id=F64)
ERROR = None

SCENARIOS: list[tuple[int, pa.Schema | None, pa.Schema | None, pa.Schema, object, object]] = [
    (1, None, None, S1, S1, S1),
    (2, None, S1, S1, S1, S1),
    (3, None, S2, S3, ERROR, BOTH),
    (3, None, S4, CHANGED, ERROR, ERROR),
    (4, S1, S1, S1, S1, S1),
    (5, S1, S1, S2, S2, S2),
    (6, S1, S2, S1, S2, S2),
    (7, S1, S2, S2, S2, S2),
    (8, S1, S2, S3, ERROR, BOTH),
    (8, S1, S4, CHANGED, ERROR, ERROR),
]


@pytest.mark.parametrize("strategy", [SIMPLE, RECONCILE], ids=["simple", "reconcile"])
@pytest.mark.parametrize("stored", [True, False], ids=["stored", "bare"])
@pytest.mark.parametrize(
    ("start", "now", "own", "simple", "reconcile"),
    [row[1:] for row in SCENARIOS],
    ids=[f"row {row[0]}" for row in SCENARIOS],
)
def test_the_eight_scenarios(
    start: pa.Schema | None,
    now: pa.Schema | None,
    own: pa.Schema,
    simple: pa.Schema | None,
    reconcile: pa.Schema | None,
    stored: bool,
    strategy: SchemaStrategy,
) -> None:
    if stored:
        start, now = (None if known is None else as_stored(known) for known in (start, now))
    expected = simple if strategy is SIMPLE else reconcile
    found = strategy.resolve(start, now, own)
    if expected is None:
        assert isinstance(found, SchemaContradiction)
        assert found.columns
    else:
        assert isinstance(found, pa.Schema)
        assert is_same_schema(found, expected)


def test_the_simple_strategy_says_who_changed_what() -> None:
    found = SIMPLE.resolve(S1, S2, S3)
    assert found == SchemaContradiction(
        (("a", "another write: added string"), ("b", "this write: added string"))
    )


def test_equality_is_that_of_hudi() -> None:
    def text(default: object, doc: str) -> pa.Schema:
        column = {"name": "a", "type": "int", "default": default, "doc": doc}
        return annotated_schema(
            json.dumps({"type": "record", "name": "r", "fields": [column]}), "x"
        )

    assert SIMPLE.resolve(text(1, "x"), text(1, "y"), S2) is S2
    for strategy in (SIMPLE, RECONCILE):
        found = strategy.resolve(text(1, ""), text(2, ""), text(3, ""))
        assert isinstance(found, SchemaContradiction)
        assert found.columns[0][0] == "a"


# ---- reconcile

POINT = pa.struct([("x", I32)])
POINT_Y = pa.struct([("x", I32), ("y", I32)])
POINT_Z = pa.struct([("x", I64), ("z", I32)])


def listed(type_: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", type_))


def mapped(type_: pa.DataType) -> pa.DataType:
    return pa.map_(TEXT, pa.field("value", type_))


MERGES = {
    "others dropped what is unchanged here": (S2, S1, S2, S1),
    "others dropped one, this write adds another": (S2, S1, BOTH, S3),
    "this write drops what is unchanged there": (S2, BOTH, S1, S3),
    "both drop": (BOTH, S1, S1, S1),
    "both widen to the same": (schema(a=I32), schema(a=I64), schema(a=I64), schema(a=I64)),
    "one widens more": (
        schema(a=pa.decimal128(5, 2)),
        schema(a=pa.decimal128(9, 2)),
        schema(a=pa.decimal128(7, 4)),
        schema(a=pa.decimal128(11, 4)),
    ),
    "both add, of different width": (
        S1,
        S1.append(pa.field("n", F32)),
        S1.append(pa.field("n", I32)),
        S1.append(pa.field("n", F64)),
    ),
    "this write asks for a lossy type, alone": (S1, S2, CHANGED, schema(id=TEXT, a=TEXT)),
    "children of a struct": (
        schema(p=POINT),
        schema(p=POINT_Y),
        schema(p=POINT_Z),
        schema(p=pa.struct([("x", I64), ("y", I32), ("z", I32)])),
    ),
    "children in a list": (
        schema(p=listed(POINT)),
        schema(p=listed(POINT_Y)),
        schema(p=listed(POINT_Z)),
        schema(p=listed(pa.struct([("x", I64), ("y", I32), ("z", I32)]))),
    ),
    "children in a map": (
        schema(p=mapped(POINT)),
        schema(p=mapped(POINT_Y)),
        schema(p=mapped(POINT_Z)),
        schema(p=mapped(pa.struct([("x", I64), ("y", I32), ("z", I32)]))),
    ),
    "a child that others dropped": (
        schema(p=POINT_Y),
        schema(p=POINT),
        schema(p=pa.struct([("x", I64), ("y", I32)])),
        schema(p=pa.struct([("x", I64)])),
    ),
    "this write makes a column optional, others widen it": (
        pa.schema([required("a", I32)]),
        pa.schema([required("a", I64)]),
        schema(a=I32),
        schema(a=I64),
    ),
    "others make a column optional, this write widens it": (
        pa.schema([required("a", I32)]),
        schema(a=I32),
        pa.schema([required("a", I64)]),
        schema(a=I64),
    ),
    "others make a column required, this write widens it": (
        schema(a=I32),
        pa.schema([required("a", I32)]),
        schema(a=I64),
        pa.schema([required("a", I64)]),
    ),
    "both add, required here and not there": (
        S1,
        S2,
        S1.append(required("a", TEXT)),
        S2,
    ),
    "new columns come last, in the order of this write": (
        schema(a=I32),
        schema(n=I32, a=I32),
        schema(z=I32, a=I32, y=I32),
        schema(n=I32, a=I32, z=I32, y=I32),
    ),
    "what others brought is no concern of this write": (
        S1,
        schema(id=I64, A=I32, a=I32),
        S3,
        schema(id=I64, A=I32, a=I32, b=TEXT),
    ),
}


@pytest.mark.parametrize(("start", "now", "own", "expected"), MERGES.values(), ids=MERGES)
def test_changes_of_two_writes_are_both_kept(
    start: pa.Schema, now: pa.Schema, own: pa.Schema, expected: pa.Schema
) -> None:
    for table in (now, as_stored(now)):
        found = RECONCILE.resolve(start, table, own)
        assert isinstance(found, pa.Schema), found
        assert found.equals(expected)


CONTRADICTIONS = {
    "long and double": (schema(a=I32), schema(a=I64), schema(a=F64), "a"),
    "number and text": (S1, S2, schema(id=I64, a=I32), "a"),
    "a bound of more than 38 digits": (
        S1,
        schema(id=I64, d=pa.decimal128(38, 0)),
        schema(id=I64, d=pa.decimal128(38, 38)),
        "d",
    ),
    "others dropped what this write widens": (S4, schema(x=I32), schema(id=TEXT), "id"),
    "this write drops what others widen": (
        schema(a=I32, b=I32),
        schema(a=I64, b=I32),
        schema(b=I32),
        "a",
    ),
    "names that differ in case": (S1, S2, schema(id=I64, A=TEXT), "A"),
    "names that differ in case, of one write": (S1, S1, schema(id=I64, A=TEXT, a=TEXT), "a"),
    "a name that differs in case from an old one": (S1, S2, schema(id=I64, ID=I32), "ID"),
    "children whose names differ in case": (
        schema(p=POINT),
        schema(p=POINT_Y),
        schema(p=pa.struct([("x", I32), ("Y", I32)])),
        "p.Y",
    ),
    "such children in a new column": (
        S1,
        S2,
        schema(id=I64, p=listed(mapped(pa.struct([("x", I32), ("X", I32)])))),
        "p.element.value.X",
    ),
    "two columns of one name": (
        S1,
        S2,
        pa.schema([("id", I64), ("b", TEXT), ("b", TEXT)]),
        "b",
    ),
    "types of children": (
        schema(p=listed(POINT)),
        schema(p=listed(pa.struct([("x", I64)]))),
        schema(p=listed(pa.struct([("x", F64)]))),
        "p.element.x",
    ),
    "a child that others dropped and this write widens": (
        schema(p=POINT_Y),
        schema(p=POINT),
        schema(p=pa.struct([("x", I32), ("y", I64)])),
        "p.y",
    ),
    "children of columns that both added": (
        S1,
        schema(id=I64, m=mapped(POINT)),
        schema(id=I64, m=mapped(pa.struct([("x", TEXT)]))),
        "m.value.x",
    ),
    "a required column that the first rows lack": (
        None,
        pa.schema([required("id", I64), pa.field("a", I32)]),
        schema(a=I32),
        "id",
    ),
}


@pytest.mark.parametrize(
    ("start", "now", "own", "path"), CONTRADICTIONS.values(), ids=CONTRADICTIONS
)
def test_what_cannot_both_be_right_is_named(
    start: pa.Schema | None, now: pa.Schema, own: pa.Schema, path: str
) -> None:
    found = RECONCILE.resolve(start, now, own)
    assert isinstance(found, SchemaContradiction)
    assert [column for column, _ in found.columns] == [path]


def test_what_the_first_rows_of_two_writes_require_is_required_where_both_have_it() -> None:
    now = pa.schema([required("id", I64), pa.field("a", I32), required("b", I32)])
    own = pa.schema([required("id", I64), required("b", I64), required("c", TEXT)])
    assert RECONCILE.resolve(None, now, own) == pa.schema(
        [required("id", I64), pa.field("a", I32), required("b", I64), pa.field("c", TEXT)]
    )


def test_every_contradiction_is_named() -> None:
    found = RECONCILE.resolve(schema(a=I32, b=I32), schema(a=I64, b=TEXT), schema(a=F64, b=I64))
    assert isinstance(found, SchemaContradiction)
    assert [column for column, _ in found.columns] == ["a", "b"]


def test_columns_keep_what_arrow_cannot_say() -> None:
    columns = [
        {"name": "a", "type": "int", "default": 7},
        {"name": "b", "type": "int", "default": 8},
    ]
    stored = [
        annotated_schema(json.dumps({"type": "record", "name": "r", "fields": fields}), "x")
        for fields in (columns[:1], columns)
    ]
    new = pa.field("c", TEXT, metadata={DOC: b"what c is"})
    for now in stored:
        own = stored[0].append(new)
        found = RECONCILE.resolve(stored[0], now, own)
        assert isinstance(found, pa.Schema)
        assert found.equals(now.append(new), check_metadata=True)


def test_a_joined_column_has_no_form_of_another_type() -> None:
    found = RECONCILE.resolve(S1, as_stored(S1.append(pa.field("n", F32))), schema(id=I64, n=I32))
    assert isinstance(found, pa.Schema)
    assert FORM not in (found.field("n").metadata or {})
    assert is_same_schema(found, schema(id=I64, n=F64))


# ---- documentation

NO_DOC, OLD, NEW, OTHER = "", "old", "new", "other"


def said(doc: str | None, *, is_inside: bool, added: pa.Field | None = None) -> TableSchemaText:
    """A table whose column `a`, or a field in a list in it, is documented; None if it is absent."""
    x = {"name": "x", "type": ["null", "int"], "default": None, **({"doc": doc} if doc else {})}
    record = {"type": "record", "name": "P", "fields": [x]}
    inside = {**x, "name": "a", "type": {"type": "array", "items": record}}
    column = {**inside, "doc": "outside"} if is_inside else {**x, "name": "a"}
    fields = [{"name": "id", "type": "long"}, *([] if doc is None else [column])]
    if added is not None:
        fields += avro_record_schema(pa.schema([added]), "t")["fields"]
    return TableSchemaText(json.dumps({"type": "record", "name": "r", "fields": fields}))


@pytest.mark.parametrize("is_inside", [False, True], ids=["of a column", "inside a list"])
@pytest.mark.parametrize("strategy", [SIMPLE, RECONCILE], ids=["simple", "reconcile"])
@pytest.mark.parametrize(
    ("start", "now", "own", "expected"),
    [
        (OLD, OLD, NEW, NEW),
        (OLD, OLD, NO_DOC, NO_DOC),
        (NO_DOC, NO_DOC, NEW, NEW),
        (OLD, OTHER, NEW, NEW),
        (OLD, OTHER, NO_DOC, NO_DOC),
        (OLD, OTHER, OLD, OTHER),
        (OLD, NO_DOC, OLD, NO_DOC),
        (NO_DOC, OTHER, NO_DOC, OTHER),
        (None, OTHER, NO_DOC, OTHER),
        (None, OTHER, NEW, NEW),
        (None, NO_DOC, NEW, NEW),
    ],
)
def test_documentation_is_this_writes_if_it_changed_it_and_else_the_tables(
    start: str | None,
    now: str,
    own: str,
    expected: str,
    strategy: SchemaStrategy,
    is_inside: bool,
) -> None:
    texts = [said(doc, is_inside=is_inside) for doc in (start, now, own)]
    result = schema_to_record(WriteSchemas(texts[0], texts[2], strategy), texts[1])
    assert isinstance(result, TableSchemaText)
    assert result.is_documented_as(said(expected, is_inside=is_inside))
    assert result.is_same(texts[1])


@pytest.mark.parametrize("is_inside", [False, True], ids=["of a column", "inside a list"])
@pytest.mark.parametrize("is_theirs", [False, True], ids=["this write adds", "another adds"])
def test_documentation_goes_along_with_what_another_write_adds(
    is_theirs: bool, is_inside: bool
) -> None:
    new = pa.field("new", I32)
    now = said(OTHER, is_inside=is_inside, added=new if is_theirs else None)
    own = said(OLD, is_inside=is_inside, added=None if is_theirs else new)
    if is_theirs:
        own = said(NEW, is_inside=is_inside)
    start = said(OLD, is_inside=is_inside)
    result = schema_to_record(WriteSchemas(start, own, RECONCILE), now)
    assert isinstance(result, TableSchemaText)
    assert result.arrow.names == ["id", "a", "new"]
    expected = said(NEW if is_theirs else OTHER, is_inside=is_inside)
    assert result.is_documented_as(expected)


def test_rows_of_a_retried_write_take_no_documentation_back() -> None:
    called, new = said(OLD, is_inside=False), pa.field("new", I32)
    rows = said(OLD, is_inside=False, added=new)
    own = own_schema(called, rows, said(OTHER, is_inside=False), "t")
    assert isinstance(own, TableSchemaText)
    assert own.arrow.names == ["id", "a", "new"]
    assert own.is_documented_as(said(OTHER, is_inside=False))


def test_the_mark_in_the_log_tells_documentation_apart_though_hudi_does_not() -> None:
    texts = [said(doc, is_inside=False) for doc in (NO_DOC, OLD, NEW)]
    assert all(text.is_same(texts[0]) for text in texts)
    assert len({text.fingerprint for text in texts}) == 3


# ---- properties of the join

numbers = st.sampled_from([I32, I64, F32, F64])
decimals = st.sampled_from(
    [pa.decimal128(*digits) for digits in ((5, 2), (7, 4), (9, 0), (30, 0), (20, 18), (38, 38))]
)
leaves = st.one_of(
    numbers, st.sampled_from([TEXT, pa.bool_(), pa.binary(3), pa.large_string()]), decimals
)


def struct_of(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    child = st.builds(pa.field, st.sampled_from("xyz"), inner, st.booleans())
    return st.lists(child, max_size=3, unique_by=lambda f: f.name).map(pa.struct)


types = st.recursive(
    leaves,
    lambda inner: st.one_of(struct_of(inner), inner.map(listed), inner.map(mapped)),
    max_leaves=4,
)
#: Types of which two often have a join.
kin = st.one_of(numbers, decimals, struct_of(numbers), struct_of(struct_of(numbers)).map(listed))


def in_order(type_: pa.DataType) -> pa.DataType:
    """The type with the children of structs by name."""
    if pa.types.is_struct(type_):
        children = sorted(type_, key=lambda field: str(field.name))
        return pa.struct([child.with_type(in_order(child.type)) for child in children])
    if pa.types.is_list(type_):
        field = type_.value_field
        return pa.list_(field.with_type(in_order(field.type)))
    if pa.types.is_map(type_):
        field = type_.item_field
        return pa.map_(type_.key_type, field.with_type(in_order(field.type)))
    return type_


def join_of(*parts: pa.DataType | None) -> pa.DataType | None:
    """The join of all from the left, children of structs by name; None contradicts."""
    result = parts[0]
    for part in parts[1:]:
        if result is None or part is None:
            return None
        result = joined_type(result, part)
    return None if result is None else in_order(result)


@given(st.one_of(st.tuples(kin, kin, kin), st.tuples(types, types, types)))
@settings(deadline=None, max_examples=300)
def test_the_join_is_associative_and_commutative(
    parts: tuple[pa.DataType, pa.DataType, pa.DataType],
) -> None:
    results = [join_of(*order) for order in permutations(parts)]
    one, two, three = parts
    results.append(join_of(one, join_of(two, three)))
    assert all(result == results[0] for result in results), results


@given(types, kin)
@settings(deadline=None)
def test_the_join_is_idempotent(one: pa.DataType, two: pa.DataType) -> None:
    for type_ in (one, two):
        stored = joined_type(type_, type_)
        assert stored is not None
        assert joined_type(stored, stored) == stored
    joined = join_of(two, one)
    if joined is not None:
        assert join_of(joined, one) == joined == join_of(joined, two)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (I32, I64, I64),
        (I32, F64, F64),
        (F32, F64, F64),
        (I32, F32, F64),
        (I64, F64, None),
        (I64, F32, None),
        (I32, TEXT, None),
        (pa.binary(), TEXT, None),
        (pa.binary(3), pa.binary(4), None),
        (pa.date32(), pa.timestamp("us"), None),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), None),
        (pa.int8(), pa.int16(), I32),
        (pa.large_string(), TEXT, TEXT),
        (pa.large_list(I32), listed(I64), listed(I64)),
        (pa.decimal128(10, 2), pa.decimal128(8, 4), pa.decimal128(12, 4)),
        (pa.decimal128(38, 0), pa.decimal128(38, 1), None),
        (pa.decimal128(10, 0), I32, None),
        (POINT_Y, POINT_Z, pa.struct([("x", I64), ("y", I32), ("z", I32)])),
        (
            pa.struct([required("x", I32), required("y", I32)]),
            pa.struct([required("x", I64)]),
            pa.struct([required("x", I64), ("y", I32)]),
        ),
        (POINT, I32, None),
        (listed(I32), mapped(I32), None),
        (pa.map_(I32, I32), mapped(I32), None),
    ],
)
def test_the_join_is_the_least_type_that_holds_both(
    left: pa.DataType, right: pa.DataType, expected: pa.DataType | None
) -> None:
    assert joined_type(left, right) == expected
    assert join_of(right, left) == (None if expected is None else in_order(expected))


def test_where_two_numbers_have_bounds_one_is_the_least() -> None:
    four = (I32, I64, F32, F64)
    below = {(low, high) for low in four for high in four if joined_type(low, high) == high}
    assert below - {(same, same) for same in four} == {(I32, I64), (I32, F64), (F32, F64)}
    for left in four:
        for right in four:
            bounds = {b for b in four if {(left, b), (right, b)} <= below}
            least = [b for b in bounds if all((b, other) in below for other in bounds)]
            assert [joined_type(left, right)] == (least if bounds else [None])


# ---- properties of the merge


@dataclass(frozen=True)
class Change:
    """What a write may do to a column or child, by a number that says which."""

    name: str
    what: int
    type: pa.DataType


WIDER = {I32: [I64, F64, F32, TEXT], F32: [F64, TEXT], I64: [TEXT, F64], F64: [TEXT]}
changes = st.lists(
    st.builds(Change, st.sampled_from("abcdDeE"), st.integers(0, 5), kin), max_size=4
)
bases = st.lists(
    st.builds(pa.field, st.sampled_from("abcd"), kin, st.booleans()),
    max_size=4,
    unique_by=lambda field: field.name,
)


def evolved(columns: list[pa.Field], made: list[Change]) -> list[pa.Field]:
    """The columns after a write's changes; a change that it could not make is left out."""
    found = {field.name: field for field in columns}
    for change in made:
        field = found.get(change.name)
        if field is None:
            known = {name.lower() for name in (*found, *(old.name for old in columns))}
            if change.name.lower() not in known:  # a dropped name is not added again
                found[change.name] = pa.field(change.name, change.type)
        elif change.what == 0:
            del found[change.name]
        elif change.what == 1:
            found[change.name] = field.with_nullable(True)
        elif pa.types.is_struct(field.type):
            inner = [Change(n, change.what - 2, change.type) for n in "xyz"[: change.what - 1]]
            children = evolved(list(field.type), inner)
            found[change.name] = field.with_type(pa.struct(children))
        elif field.type in WIDER:
            wider = WIDER[field.type]
            found[change.name] = field.with_type(wider[change.what % len(wider)])
        else:
            joined = joined_type(field.type, change.type)
            found[change.name] = field.with_type(joined or field.type)
    return list(found.values())


def sorted_columns(found: pa.Schema | SchemaContradiction) -> object:
    """The merged columns by name, children too; None for a contradiction."""
    if isinstance(found, SchemaContradiction):
        return None
    columns = sorted(found, key=lambda field: str(field.name))
    return [column.with_type(in_order(column.type)) for column in columns]


def chained(base: pa.Schema, writes: list[pa.Schema]) -> object:
    now = base
    for own in writes:
        found = merged(base, now, own)
        if isinstance(found, SchemaContradiction):
            return None
        now = found
    return sorted_columns(now)


@given(bases, changes, changes, changes)
@settings(deadline=None, max_examples=400)
def test_changes_may_be_applied_in_any_order(
    columns: list[pa.Field], one: list[Change], two: list[Change], three: list[Change]
) -> None:
    base = pa.schema(columns)
    writes = [pa.schema(evolved(columns, made)) for made in (one, two, three)]
    results = [chained(base, list(order)) for order in permutations(writes)]
    assert all(result == results[0] for result in results)


@given(bases, changes, changes, changes)
@settings(deadline=None, max_examples=400)
def test_changes_may_be_applied_in_any_grouping(
    columns: list[pa.Field], one: list[Change], two: list[Change], three: list[Change]
) -> None:
    base = pa.schema(columns)
    a, b, c = (pa.schema(evolved(columns, made)) for made in (one, two, three))
    inner = merged(base, b, c)
    together = None
    if isinstance(inner, pa.Schema):
        together = sorted_columns(merged(base, a, inner))
    assert together == chained(base, [a, b, c])


@given(bases, changes, changes)
@settings(deadline=None, max_examples=300)
def test_a_change_applied_twice_is_applied_once(
    columns: list[pa.Field], one: list[Change], two: list[Change]
) -> None:
    base = pa.schema(columns)
    now, own = (pa.schema(evolved(columns, made)) for made in (one, two))
    assert merged(base, own, own) is own
    found = merged(base, now, own)
    assume(isinstance(found, pa.Schema))
    again = merged(base, found, own)
    assert isinstance(again, pa.Schema)
    assert again.equals(found)


@given(bases, changes, changes)
@settings(deadline=None, max_examples=300)
def test_a_write_without_changes_leaves_the_table_as_it_is(
    columns: list[pa.Field], one: list[Change], two: list[Change]
) -> None:
    base = pa.schema(columns)
    now = pa.schema(evolved(evolved(columns, one), two))
    assert merged(base, now, base) is now


@given(bases, changes, changes)
@settings(deadline=None, max_examples=300)
def test_no_column_is_lost_unless_the_write_dropped_it_and_none_comes_back(
    columns: list[pa.Field], one: list[Change], two: list[Change]
) -> None:
    base = pa.schema(columns)
    now, own = (pa.schema(evolved(columns, made)) for made in (one, two))
    found = merged(base, now, own)
    assume(isinstance(found, pa.Schema))
    assert isinstance(found, pa.Schema)
    was, is_now, mine = set(base.names), set(now.names), set(own.names)
    dropped = was - mine
    assert set(found.names) == (is_now | (mine - was)) - dropped
    stay = [name for name in now.names if name not in dropped]
    assert found.names == stay + [name for name in own.names if name not in was | is_now]


# ---- what changed


@given(bases, changes)
@settings(deadline=None)
def test_changes_are_found_exactly_where_schemas_differ(
    columns: list[pa.Field], made: list[Change]
) -> None:
    before, after = pa.schema(columns), pa.schema(evolved(columns, made))
    assert bool(column_changes(before, after)) == (not is_same_schema(before, after))


# ---- speed


def test_two_thousand_columns_take_no_time_to_speak_of() -> None:
    kinds = (I32, TEXT, pa.decimal128(10, 2), POINT, listed(I32))
    start = pa.schema([(f"c{n}", kinds[n % 5]) for n in range(2_000)])
    wider = [f.with_type(I64) if f.type == I32 else f for f in start]
    now = as_stored(pa.schema([*wider, ("theirs", I32)]))
    start = as_stored(start)
    own = pa.schema([f.with_type(POINT_Y) if f.type == POINT else f for f in start] + [S1.field(0)])
    for strategy in (SIMPLE, RECONCILE):
        seconds = []
        for _ in range(5):
            begun = time.process_time()
            found = strategy.resolve(start, now, own)
            seconds.append(time.process_time() - begun)
        assert min(seconds) < 0.04  # half of it, says `make bench ARGS=schemas`
    assert isinstance(found, pa.Schema)
    assert len(found) == 2_002
