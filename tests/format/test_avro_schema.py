"""Avro schemas ↔ Arrow schemas."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from any_columns import columns_of_all_types
from golden_tables import NAMES, GoldenTables
from pyhudi.errors import UnsupportedTableError
from pyhudi.format.avro.schema import avro_record_schema, decimal_bytes, decode_arrow_schema


@given(columns_of_all_types)
@settings(deadline=None)
def test_arrow_schemas_round_trip_through_avro(columns: list[pa.Field]) -> None:
    schema = pa.schema(columns)
    text = json.dumps(avro_record_schema(schema, "t"))
    assert decode_arrow_schema(text, "x").equals(schema)


@pytest.mark.parametrize("name", NAMES)
def test_the_schema_in_a_golden_footer_is_the_files_own(golden: GoldenTables, name: str) -> None:
    files = [p for p in golden.path(name).rglob("*.parquet") if ".hoodie" not in p.parts]
    for path in files:
        footer = pq.read_metadata(path)
        stored = footer.metadata.get(b"parquet.avro.schema")
        if stored is None:  # by Spark's row writer, which leaves its release instead
            assert b"org.apache.spark.version" in footer.metadata
        else:
            columns = decode_arrow_schema(stored, path.name)
            assert columns.names == footer.schema.to_arrow_schema().names


SIZES = [(1, 1), (2, 1), (3, 2), (4, 2), (9, 4), (10, 5), (18, 8), (19, 9), (38, 16)]


@pytest.mark.parametrize(("precision", "size"), SIZES)
def test_decimals_take_the_fewest_bytes(precision: int, size: int) -> None:
    assert decimal_bytes(precision) == size


def test_a_type_without_an_avro_form_is_refused_by_column() -> None:
    with pytest.raises(UnsupportedTableError, match="column 'x'"):
        avro_record_schema(pa.schema([("x", pa.duration("s"))]), "t")


REFERENCES = [
    # A name inside a record belongs to the record's namespace, and may be used in full.
    ('{"type":"fixed","name":"f","size":3}', '"n.f"', pa.binary(3)),
    ('{"type":"fixed","name":"f","size":3}', '"f"', pa.binary(3)),
    ('{"type":"enum","name":"e","namespace":"m","symbols":["A"]}', '"m.e"', pa.string()),
    ('{"type":"null"}', '["null","int"]', pa.int32()),
]


@pytest.mark.parametrize(("first", "second", "type_"), REFERENCES)
def test_types_are_found_again_by_their_names(first: str, second: str, type_: pa.DataType) -> None:
    fields = f'[{{"name":"a","type":{first}}},{{"name":"b","type":{second}}}]'
    text = f'{{"type":"record","name":"r","namespace":"n","fields":{fields}}}'
    assert decode_arrow_schema(text, "x").field("b").type == type_


def test_types_of_one_name_in_two_namespaces_are_two_types() -> None:
    text = """{"type":"record","name":"r","namespace":"n","fields":[
        {"name":"a","type":{"type":"fixed","name":"fixed","namespace":"n.a","size":3}},
        {"name":"b","type":{"type":"fixed","name":"fixed","namespace":"n.b","size":4}},
        {"name":"c","type":"n.a.fixed"}]}"""
    assert decode_arrow_schema(text, "x").field("c").type == pa.binary(3)
