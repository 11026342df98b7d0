"""What a base file's footer says."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from footers import bloom_filter, possible_keys, read_footer
from golden_tables import NAMES, GoldenTables
from pyhudi.format.files.base_file import BaseFileFooter, KeyDigest, encode_footer

FOREIGN = {b"org.apache.spark.version", b"ARROW:schema"}


def base_file_footer(avro_schema: str, record_keys: pa.Array) -> BaseFileFooter:
    digest = KeyDigest()
    digest.add(record_keys)
    return digest.footer(avro_schema)


def record_keys(path: Path) -> pa.Array:
    return pq.ParquetFile(path).read(columns=["_hoodie_record_key"]).column(0).combine_chunks()


@pytest.mark.parametrize("name", NAMES)
def test_golden_footers_round_trip(golden: GoldenTables, name: str) -> None:
    for path in golden.path(name).rglob("*.parquet"):
        if ".hoodie" in path.parts:
            continue
        metadata = pq.read_metadata(path).metadata
        footer = read_footer(metadata)
        expected = {key: value for key, value in metadata.items() if key not in FOREIGN}
        assert encode_footer(footer) == expected
        keys = record_keys(path)
        ours = base_file_footer(footer.avro_schema or "", keys)
        assert (ours.min_key, ours.max_key) == (footer.min_key, footer.max_key)


def test_a_new_footer_finds_its_keys_again() -> None:
    keys = pa.array(["b", "a", "c"])
    footer = base_file_footer("{}", keys)
    assert read_footer(encode_footer(footer)) == footer
    assert (footer.min_key, footer.max_key, footer.bloom_type) == ("a", "c", "SIMPLE")
    assert possible_keys(bloom_filter(footer), keys.to_pylist()) == keys.to_pylist()


def test_a_file_without_rows_still_has_a_filter() -> None:
    footer = base_file_footer("{}", pa.array([], pa.string()))
    assert (footer.min_key, footer.max_key) == (None, None)
    assert not possible_keys(bloom_filter(footer), ["a"])


def test_key_range_is_that_of_java() -> None:
    footer = base_file_footer("{}", pa.array(["\uffff", "😀", "a"]))
    assert (footer.min_key, footer.max_key) == ("a", "\uffff")  # by bytes, the face is greater


def test_a_footer_without_hudi_entries_is_empty() -> None:
    assert read_footer({b"ARROW:schema": b"x"}) == BaseFileFooter()
    assert encode_footer(BaseFileFooter()) == {}
