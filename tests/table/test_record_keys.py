"""Record keys, held to the texts that Hudi wrote for every type."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.errors import InvalidRequestError, UnsupportedTableError
from pyhudi.format.table.properties import TableProperties
from pyhudi.format.table.table_config import TableConfig
from pyhudi.index.hash_values import key_values
from pyhudi.index.simple_bucket import bucket_ids
from pyhudi.table.rows.record_keys import record_keys, rows_without_key

UTC = pa.timestamp("us", "UTC")


def config(keys: str, generator: str = "NON_PARTITION", version: int = 9) -> TableConfig:
    return TableConfig.of(
        TableProperties(
            {
                "hoodie.table.name": "t",
                "hoodie.table.type": "MERGE_ON_READ",
                "hoodie.table.version": str(version),
                "hoodie.table.recordkey.fields": keys,
                "hoodie.table.keygenerator.type": generator,
            }
        )
    )


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


# ---- what Hudi wrote

#: Column type of the recording → Arrow type, and a value from its text.
RECORDED_TYPES: dict[str, tuple[pa.DataType, Any]] = {
    "int": (pa.int32(), int),
    "long": (pa.int64(), int),
    "str": (pa.string(), str),
    "date": (pa.date32(), dt.date.fromisoformat),
    "ts": (UTC, lambda text: dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)),
    "dec": (pa.decimal128(10, 2), Decimal),
    "bool": (pa.bool_(), lambda text: text == "True"),
}


def recorded(vectors: Path) -> list[dict[str, Any]]:
    cases = json.loads((vectors / "simple_bucket.json").read_bytes())["real_table_vectors"]
    return [case for case in cases if not case["consistent_logical_timestamp"]]


def bucket_of(keys: pa.Array, case: dict[str, Any]) -> int:
    (bucket,) = bucket_ids(keys, case["hash_fields"], case["num_buckets"]).to_pylist()
    return int(bucket)


def test_keys_of_every_type_and_their_buckets_are_as_recorded(vectors: Path) -> None:
    cases = [case for case in recorded(vectors) if case["column_type"] in RECORDED_TYPES]
    assert {case["column_type"] for case in cases} == set(RECORDED_TYPES)
    for case in cases:
        type_, value = RECORDED_TYPES[case["column_type"]]
        rows = batch(id=pa.array([value(case["value"])], type_))
        keys = record_keys(rows, config("id"))
        assert keys.to_pylist() == [case["record_key"]]
        assert bucket_of(keys, case) == case["bucket_id"]


NAMES = {1: "a", 2: None, 3: "", 4: "x:y,z"}


def test_composite_keys_and_their_buckets_are_as_recorded(vectors: Path) -> None:
    cases = [case for case in recorded(vectors) if case["column_type"] == "composite"]
    assert len(cases) == 12
    for case in cases:
        number = case["value"]
        rows = batch(id=pa.array([number]), nm=pa.array([NAMES[number]], pa.string()))
        keys = record_keys(rows, config("id,nm"))
        assert keys.to_pylist() == [case["record_key"]]
        assert bucket_of(keys, case) == case["bucket_id"]


# ---- texts and shapes


@pytest.mark.parametrize(
    ("array", "keys"),
    [
        (pa.array([0, -5], pa.int64()), ["0", "-5"]),
        (pa.array([0, -1], pa.timestamp("us")), ["0", "-1"]),
        (pa.array([1, 10**6], UTC), ["1", "1000000"]),
        (pa.array([Decimal("0.000001")], pa.decimal128(7, 6)), ["0.000001"]),
        (pa.array([Decimal("0.0000001")], pa.decimal128(8, 7)), ["1E-7"]),  # as Java has it
        (pa.array([Decimal(0)], pa.decimal128(8, 7)), ["0E-7"]),
        (pa.array([Decimal(150)], pa.decimal128(38, 0)), ["150"]),
        (pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31)]), ["0001-01-01", "9999-12-31"]),
        (pa.array(["__null__", " ", "é"]), ["__null__", " ", "é"]),
        (pa.array([], pa.int32()), []),
    ],
)
def test_one_field_is_the_key_itself(array: pa.Array, keys: list[str]) -> None:
    result = record_keys(batch(id=array), config("id"))
    assert (result.type, result.to_pylist()) == (pa.string(), keys)


@pytest.mark.parametrize(
    ("fields", "generator", "version", "keys"),
    [
        ("n", "NON_PARTITION", 9, ["1", "2"]),
        ("n", "SIMPLE", 9, ["1", "2"]),
        ("n", "COMPLEX", 9, ["n:1", "n:2"]),
        ("n", "COMPLEX", 8, ["n:1", "n:2"]),
        ("n,s", "COMPLEX", 9, ["n:1,s:x,y:z", "n:2,s:__null__"]),
        ("s,n", "NON_PARTITION", 8, ["s:x,y:z,n:1", "s:__null__,n:2"]),
        ("e,n", "COMPLEX_AVRO", 9, ["e:__empty__,n:1", "e:__empty__,n:2"]),
    ],
)
def test_several_fields_and_complex_keys_name_their_fields(
    fields: str, generator: str, version: int, keys: list[str]
) -> None:
    rows = batch(n=pa.array([1, 2]), s=pa.array(["x,y:z", None]), e=pa.array(["", ""]))
    assert record_keys(rows, config(fields, generator, version)).to_pylist() == keys


def test_keys_of_a_slice_are_those_of_its_rows() -> None:
    rows = batch(a=pa.array(["x", "y", "z"]), b=pa.array([1, 2, 3]))
    assert record_keys(rows[1:], config("a,b")).to_pylist() == ["a:y,b:2", "a:z,b:3"]


TEXTS = st.text(st.characters(exclude_characters=",:", exclude_categories=["Cs"]), max_size=8)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.none() | TEXTS)))
def test_a_composite_key_gives_back_its_values(rows: list[tuple[int, str | None]]) -> None:
    numbers, texts = [number for number, _ in rows], [text for _, text in rows]
    made = batch(n=pa.array(numbers, pa.int64()), s=pa.array(texts, pa.string()))
    keys = record_keys(made, config("n,s", "COMPLEX")).to_pylist()
    for key, number, text in zip(keys, numbers, texts, strict=True):
        placeholders = {"__null__": None, "__empty__": ""}
        want = placeholders.get(text, text) if text is not None else None
        assert key_values(key, ["n", "s"]) == (str(number), want)


# ---- refusals

MANY = pa.array([str(n) if n < 5 else None for n in range(10)])


@pytest.mark.parametrize(
    ("fields", "columns", "message"),
    [
        ("id", {"id": MANY}, r"5 of 10 rows .*row 5 \(id=null\), row 6 .*, row 7 \(id=null\)\."),
        ("id", {"id": pa.array(["a", ""])}, r"1 of 2 rows .*row 1 \(id=''\)"),
        (
            "a,b",
            {"a": pa.array([None, "x", ""]), "b": pa.array(["", None, None])},
            r"2 of 3 rows .*'a', 'b': row 0 \(a=null, b=''\), row 2 \(a='', b=null\)",
        ),
        ("id", {"id": pa.array([1.5])}, "'id' cannot be a record key: double has no certain text"),
        ("id", {"id": pa.array([1.5], pa.float32())}, "float has no certain text"),
        ("id", {"id": pa.array([b"x"])}, "no certain text for binary"),
        ("id", {"id": pa.array([[1]])}, "no certain text for list"),
        ("id", {"id": pa.array([1], pa.timestamp("ms"))}, "no certain text for timestamp"),
        ("id", {"id": pa.array([0, 2932897], pa.date32())}, r"year .* row 1 \(id=2932897\)"),
        ("id", {"other": pa.array(["a"])}, "'id' is needed as a record key"),
    ],
)
def test_rows_without_a_certain_key_are_refused(
    fields: str, columns: dict[str, pa.Array], message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        record_keys(batch(**columns), config(fields))


# ---- values of which two different keys give one text


@pytest.mark.parametrize(
    ("rows", "shown"),
    [
        ([("x,b:y", "z"), ("x", "y,b:z")], r"row 0 \(a='x,b:y', b='z'\), row 1 \(a='x', b="),
        ([("u", "1"), ("__null__", "1"), (None, "1")], r": row 1 \(a='__null__', b='1'\)\."),
        ([("x", ""), ("x", "__empty__")], r": row 1 \(a='x', b='__empty__'\)\."),
    ],
)
def test_values_that_another_key_could_have_are_refused_with_a_sample(
    rows: list[tuple[str | None, str | None]], shown: str
) -> None:
    columns = {n: pa.array([row[at] for row in rows], pa.string()) for at, n in enumerate("ab")}
    with pytest.raises(InvalidRequestError, match=f"is not certain: .*{shown}"):
        record_keys(batch(**columns), config("a,b"))


def test_one_field_takes_any_text_whatever_makes_its_key() -> None:
    texts = pa.array(["__null__", "__empty__", "x,a:y", "a:1,a:2"])
    for generator in ("NON_PARTITION", "COMPLEX"):
        keys = record_keys(batch(a=texts), config("a", generator))
        assert len(set(keys.to_pylist())) == len(texts)


_PIECES = [",a:", ",b:", ",c:", "x", "a", ":", ",", "__null__", "__empty__"]
_VALUE = st.none() | st.lists(st.sampled_from(_PIECES), max_size=3).map("".join)


def _readings(key: str, fields: list[str]) -> int:
    """In how many ways a key can be taken apart into a value for each field."""
    if not fields:
        return 1
    mark = f",{fields[0]}:"
    starts = (at for at in range(len(key)) if key.startswith(mark, at))
    return sum(_readings(key[at + len(mark) :], fields[1:]) for at in starts)


@settings(deadline=None, max_examples=300)
@given(st.tuples(_VALUE, _VALUE, _VALUE).filter(any))
def test_a_key_is_refused_exactly_if_its_text_can_be_read_in_two_ways(
    row: tuple[str | None, str | None, str | None],
) -> None:
    rows = batch(
        **{name: pa.array([value], pa.string()) for name, value in zip("abc", row, strict=True)}
    )
    texts = ["__null__" if v is None else v or "__empty__" for v in row]
    key = f"a:{texts[0]},b:{texts[1]},c:{texts[2]}"
    is_certain = _readings(key[2:], ["b", "c"]) == 1 and not {"__null__", "__empty__"} & {*row}
    assert rows_without_key(rows, config("a,b,c")).to_pylist() == [not is_certain]
    if is_certain:
        assert record_keys(rows, config("a,b,c")).to_pylist() == [key]
    else:
        with pytest.raises(InvalidRequestError, match="is not certain"):
            record_keys(rows, config("a,b,c"))


@pytest.mark.parametrize(
    ("fields", "generator", "message"),
    [
        ("a.b", "NON_PARTITION", "'a.b' lies inside another column"),
        ("id", "TIMESTAMP", "key generator TIMESTAMP"),
        ("id", "CUSTOM", "key generator CUSTOM"),
        ("id", "USER_PROVIDED", "key generator USER_PROVIDED"),
        ("", "NON_PARTITION", "no record key fields"),
        ("a,b", "SIMPLE", "SIMPLE takes one field"),
    ],
)
def test_tables_whose_keys_pyhudi_cannot_make_are_refused(
    fields: str, generator: str, message: str
) -> None:
    rows = batch(id=pa.array(["a"]))
    with pytest.raises(UnsupportedTableError, match=message):
        record_keys(rows, config(fields, generator))
