"""Which values of a record key are hashed."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.errors import InvalidRequestError
from pyhudi.index.hash_values import extracted_key_values, key_values


@pytest.mark.parametrize(
    ("key", "fields", "values"),
    [
        ("", ["id"], ("",)),
        ("5", ["id"], ("5",)),
        ("id:5", ["id"], ("id:5",)),  # one colon only: the whole key
        ("a:b:c", ["a"], ("a:b:c",)),
        ("p,q", ["p"], ("p,q",)),  # comma only
        ("__null__", ["id"], ("__null__",)),  # a text here
        ("id:1,name:a", ["id"], ("1",)),
        ("id:1,name:a", ["name", "id"], ("1", "a")),  # in the order of the key
        ("id:1,name:a", [], ("1", "a")),
        ("id:1,name:a", [""], ("1", "a")),
        ("id:1,name:a", ["", "id"], ("1",)),
        ("id:1,name:a", ["missing"], ("id:1,name:a",)),
        ("id:__null__,name:__empty__", ["id", "name"], (None, "")),
        ("a:1,b:__null__,c:3", [], ("1", None, "3")),
        ("id:1,name:a,b", ["name"], ("a,b",)),  # a comma in the value
        ("id:1,name:a:b", ["name"], ("a:b",)),  # a colon in the value
        ("id:x:y,name:a", ["id"], ("x:y",)),
        ("id:x,y:z,name:a", ["id"], ("x",)),  # looks like a field, so it is one
        ("id:,name:", ["id", "name"], ("", "")),
        (":1,:2", [], ("1", "2")),
        ("a:1,", ["a"], ("1,",)),
        (",a:1", ["a"], (",a:1",)),  # the name is ",a"
        (",a:1", [",a"], ("1",)),
        # Hudi 1.2.0 does not return from these.
        ("id:1,name:a:b", ["id"], ("1",)),
        ("id:1,name:a:b", ["missing"], ("id:1,name:a:b",)),
        ("id:1,ts:2024-01-01 12:34:56.789", ["id"], ("1",)),
        ("id:1,ts:2024-01-01 12:34:56.789", ["missing"], ("id:1,ts:2024-01-01 12:34:56.789",)),
    ],
)
def test_values_are_extracted_by_hudi_rules(
    key: str, fields: list[str], values: tuple[str | None, ...]
) -> None:
    assert key_values(key, fields) == values
    assert extracted_key_values(pa.array([key]), fields).to_pylist() == [list(values)]


def test_recorded_values_are_reproduced(vectors: Path) -> None:
    for name in ("simple_bucket.json", "consistent_bucket.json"):
        for vector in json.loads((vectors / name).read_bytes())["vectors"]:
            if "extracted" in vector:
                found = key_values(vector["record_key"], vector["hash_fields"])
                assert list(found) == vector["extracted"]


odd_keys = st.text(alphabet="ab:,", max_size=12)
values = st.sampled_from(["1", "", "__null__", "__empty__", "é😀", "x y"])
composite_keys = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), values), min_size=1, max_size=4
).map(lambda fields: ",".join(f"{name}:{value}" for name, value in fields))
hash_fields = st.lists(st.sampled_from(["a", "b", "", ",a"]), max_size=2)
arrow_types = st.sampled_from([pa.string(), pa.large_string()])


@settings(deadline=None)
@given(st.lists(odd_keys | composite_keys, max_size=30), hash_fields, arrow_types)
def test_arrays_give_what_single_keys_give(
    keys: list[str], fields: list[str], arrow_type: pa.DataType
) -> None:
    array = pa.array(["first:1,b:2", *keys, "last"], arrow_type)[1:-1]
    expected = [list(key_values(key, fields)) for key in keys]
    assert extracted_key_values(array, fields).to_pylist() == expected


def test_a_long_odd_key_takes_no_longer_than_its_length() -> None:
    assert key_values("a:1,b" + ":" * 200_000, ["a"]) == ("1",)
    assert len(key_values("a:1," * 20_000 + "a:1", ["a"])) == 20_001


def test_null_keys_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="1 record keys are null"):
        extracted_key_values(pa.array(["a", None]), ["id"])
