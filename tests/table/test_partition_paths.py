"""Partition paths: Hudi's text of every value, its encoding, and what becomes no folder."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.errors import InvalidRequestError, UnsupportedTableError
from pyhudi.format.paths import table_path
from pyhudi.format.table.properties import TableProperties
from pyhudi.format.table.table_config import TableConfig
from pyhudi.table.partitions import DEFAULT_PARTITION, partition_texts
from pyhudi.table.rows.partition_paths import escaped, partition_paths

HIVE = {"hoodie.datasource.write.hive_style_partitioning": "true"}
ENCODED = {"hoodie.datasource.write.partitionpath.urlencode": "true"}
GENERATOR = "hoodie.table.keygenerator.type"


def config(fields: str, **more: str) -> TableConfig:
    return TableConfig.of(
        TableProperties(
            {
                "hoodie.table.name": "t",
                "hoodie.table.type": "MERGE_ON_READ",
                "hoodie.table.version": "9",
                "hoodie.table.recordkey.fields": "id",
                "hoodie.table.partition.fields": fields,
                **more,
            }
        )
    )


def paths(fields: str, more: dict[str, str], **columns: Any) -> list[str]:
    rows = pa.RecordBatch.from_pydict(columns)
    found = partition_paths(rows, config(fields, **more))
    assert found.type == pa.dictionary(pa.int32(), pa.string())
    assert len(set(found.dictionary.to_pylist())) == len(found.dictionary)
    result: list[str] = found.to_pylist()
    return result


@pytest.mark.parametrize(
    ("array", "texts"),
    [
        (pa.array(["b", "a", None, "", "b"]), ["b", "a", *[DEFAULT_PARTITION] * 2, "b"]),
        (pa.array([7, -7, None], pa.int32()), ["7", "-7", DEFAULT_PARTITION]),
        (pa.array([True, False]), ["true", "false"]),
        (pa.array([dt.date(2026, 1, 31)]), ["2026-01-31"]),
        (pa.array([-1_000_000], pa.timestamp("us", "UTC")), ["-1000000"]),
        (pa.array([Decimal("1.50")], pa.decimal128(6, 2)), ["1.50"]),
        (pa.array(["a b", "é日", "_x", ".net", "50%"]), ["a b", "é日", "_x", ".net", "50%"]),
        (pa.array([], pa.string()), []),
    ],
)
@pytest.mark.parametrize("more", [{}, HIVE])
def test_one_field_is_the_path(array: pa.Array, texts: list[str], more: dict[str, str]) -> None:
    prefix = "p=" if more else ""
    assert paths("p", more, p=array) == [prefix + text for text in texts]


def test_several_fields_are_folders_in_folders() -> None:
    days, zones = pa.array(["d1", "d2", "d1", None]), pa.array([1, 1, 2, None])
    plain = ["d1/1", "d2/1", "d1/2", f"{DEFAULT_PARTITION}/{DEFAULT_PARTITION}"]
    assert paths("d,z", {}, d=days, z=zones) == plain
    hive = [f"d={d}/z={z}" for d, z in (path.split("/") for path in plain)]
    assert paths("d,z", HIVE, d=days, z=zones) == hive
    assert paths("z,d", {}, d=days, z=zones)[2] == "2/d1"


@pytest.mark.parametrize("fields", ["", "p"])
def test_rows_of_an_unpartitioned_table_lie_at_its_root(fields: str) -> None:
    generator = {GENERATOR: "NON_PARTITION"}
    assert paths(fields, generator, p=pa.array(["a", "b"])) == ["", ""]


def test_the_paths_of_a_slice_are_those_of_its_rows() -> None:
    rows = pa.RecordBatch.from_pydict({"p": pa.array(["a", "b", "c"])})[1:]
    assert partition_paths(rows, config("p")).to_pylist() == ["b", "c"]


# ---- encoding

_ESCAPED = {*map(chr, range(32)), "\x7f", *"\"#%'*/:=?\\{[]^"}  # those that Hive escapes


def test_exactly_hives_characters_are_escaped() -> None:
    signs = [chr(code) for code in range(0x180)]
    want = [f"a%{ord(sign):02X}" if sign in _ESCAPED else f"a{sign}" for sign in signs]
    assert [escaped(f"a{sign}") for sign in signs] == want


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_an_encoded_value_is_a_folder_that_gives_it_back_or_is_refused(values: list[str]) -> None:
    table = config("p", **ENCODED, **HIVE)
    rows = pa.RecordBatch.from_pydict({"p": pa.array(values, pa.string())})
    try:
        found = partition_paths(rows, table).to_pylist()
    except InvalidRequestError:
        assert any(0x80 <= ord(sign) < 0xA0 for value in values for sign in value)
        return
    for path, value in zip(found, values, strict=True):
        assert table_path(path).count("/") == 0
        assert partition_texts(path, table) == {"p": value or DEFAULT_PARTITION}


# ---- refusals

ODD = ["..", ".", ".hoodie", ".HOODIE", "\x85", "x" * 5000]
ODD_UNLESS_ENCODED = ["a/b", "/", "a:b", "a\\b", "a\nb", "\x00", "\x7f"]


@pytest.mark.parametrize("value", ODD)
@pytest.mark.parametrize("more", [{}, ENCODED])
def test_a_value_that_makes_no_folder_is_refused(value: str, more: dict[str, str]) -> None:
    with pytest.raises(InvalidRequestError, match=r"row 2 \(p="):
        paths("p", more, p=pa.array(["fine", None, value]))


@pytest.mark.parametrize("value", ODD_UNLESS_ENCODED)
@pytest.mark.parametrize("more", [{}, HIVE])
def test_a_value_that_only_encoding_makes_a_folder_is_refused_without(
    value: str, more: dict[str, str]
) -> None:
    with pytest.raises(InvalidRequestError, match=r"row 1 \(p=.*URL-encodes"):
        paths("p", more, p=pa.array(["fine", value]))
    assert paths("p", more | ENCODED, p=pa.array([value]))[0].endswith(escaped(value))


@pytest.mark.parametrize("value", ["..", ".", ".hoodie"])
def test_hive_style_makes_a_folder_of_any_dots(value: str) -> None:
    assert paths("p", HIVE, p=pa.array([value])) == [f"p={value}"]


def test_a_refusal_shows_three_rows_to_which_its_reason_applies() -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        paths("p", {}, p=pa.array(["a/1", "x", "a/2", "..", "a/1", "a/3"]))
    assert "row 0 (p='a/1'), row 2 (p='a/2'), row 4 (p='a/1')." in str(refusal.value)


@pytest.mark.parametrize(
    ("fields", "column", "message"),
    [
        ("p", pa.array([1.5]), "'p' cannot be a partition field: double"),
        ("p", pa.array([b"x"]), "'p' cannot be a partition field"),
        ("p", pa.array([2932897], pa.date32()), r"year .*row 0"),
        ("q", pa.array(["x"]), "'q' is needed as a partition field"),
    ],
)
def test_a_column_without_certain_text_is_refused(
    fields: str, column: pa.Array, message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        paths(fields, {}, p=column)


@pytest.mark.parametrize(
    ("fields", "generator", "message"),
    [
        ("p", "TIMESTAMP", "key generator TIMESTAMP"),
        ("p:SIMPLE", "CUSTOM", "key generator CUSTOM"),
        ("p,q", "SIMPLE", "SIMPLE takes one field"),
        ("p.q", "SIMPLE", "'p.q' lies inside another column"),
    ],
)
def test_tables_whose_paths_pyhudi_cannot_make_are_refused(
    fields: str, generator: str, message: str
) -> None:
    with pytest.raises(UnsupportedTableError, match=message):
        paths(fields, {GENERATOR: generator}, p=pa.array(["x"]))
