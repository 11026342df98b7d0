"""The schema of a table's files, and the meta columns of new rows."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from golden_tables import GoldenTables
from pyhudi.errors import CorruptTableError, InvalidRequestError, UnsupportedTableError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.files.log_file import HeaderKey, LogBlock, decode_blocks
from pyhudi.format.timeline.commit_metadata import decode_commit_metadata
from pyhudi.table.rows.row_layout import (
    RowOrigin,
    moved_rows,
    partial_layout,
    placeholder_rows,
    row_layout,
    stored_partial_rows,
    stored_rows,
)
from pyhudi.table.schema import META_COLUMNS

AVRO = json.dumps(
    {
        "type": "record",
        "name": "t_record",
        "namespace": "hoodie.t",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "n", "type": ["null", "int"], "default": None},
        ],
    }
)


@pytest.mark.parametrize("name", ["mor_parquet_logs", "mor_all_types", "mor_nbcc", "mor_mdt"])
def test_the_schema_with_meta_columns_is_the_one_that_hudi_writes(
    golden: GoldenTables, name: str
) -> None:
    root = golden.path(name)
    commits = sorted((root / ".hoodie/timeline").glob("*_*.deltacommit"))
    schema = decode_commit_metadata(commits[-1].read_bytes(), name).schema_json
    assert schema is not None
    logs = [
        path for path in root.rglob(".*.log.*") if ".hoodie/" not in str(path.relative_to(root))
    ]
    found = set()
    for path in logs:
        data = path.read_bytes()
        for block in decode_blocks(lambda a, b, data=data: data[a:b], len(data), path.name):  # type: ignore[misc]
            assert isinstance(block, LogBlock)
            found.add(block.header[HeaderKey.SCHEMA])
    assert row_layout(schema).avro_json in found


def test_the_meta_columns_come_first_and_once() -> None:
    layout = row_layout(AVRO)
    assert layout.stored.names == [*META_COLUMNS, "id", "n"]
    assert layout.data == pa.schema(
        [pa.field("id", pa.string(), nullable=False), ("n", pa.int32())]
    )
    assert row_layout(layout.avro_json) == layout


def test_new_rows_say_who_wrote_them_and_where_they_lie() -> None:
    layout = row_layout(AVRO)
    rows = pa.RecordBatch.from_pylist([{"id": "a", "n": 1}, {"id": "b", "n": None}], layout.data)
    origin = RowOrigin("20260101000000001", FileGroupId("p=1", "f-0"), "the file")
    stored = stored_rows(layout, rows, pa.array(["id:a", "id:b"]), origin, 1_023)
    assert stored.schema == layout.stored
    first, second = stored.to_pylist()
    assert first["_hoodie_commit_seqno"].startswith("20260101000000001_")
    assert first["_hoodie_commit_seqno"].endswith("_1023")
    assert second.pop("_hoodie_commit_seqno").endswith("_1024")
    assert second == {
        "_hoodie_commit_time": "20260101000000001",
        "_hoodie_record_key": "id:b",
        "_hoodie_partition_path": "p=1",
        "_hoodie_file_name": "the file",
        "id": "b",
        "n": None,
    }
    moved = moved_rows(layout, stored, "another file")
    assert moved.column("_hoodie_file_name").to_pylist() == ["another file"] * 2
    assert moved.drop_columns(["_hoodie_file_name"]) == stored.drop_columns(["_hoodie_file_name"])


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ({"id": ["a"]}, {"id": ["a"], "n": [None]}),
        ({"n": pa.array([1], pa.int32()), "id": ["a"]}, {"id": ["a"], "n": [1]}),
        ({"id": ["a"], "n": pa.array([1], pa.int32()), "gone": [2]}, {"id": ["a"], "n": [1]}),
    ],
    ids=["a column was added since", "another order", "a column was dropped since"],
)
def test_rows_of_an_earlier_schema_are_stored_in_the_present_one(
    given: dict[str, Any], stored: dict[str, Any]
) -> None:
    origin = RowOrigin("20260101000000001", FileGroupId("", "f-0"), "f-0")
    rows = pa.RecordBatch.from_pydict(given)
    made = stored_rows(row_layout(AVRO), rows, pa.array(["a"]), origin, 0)
    assert made.select(list(stored)).to_pydict() == stored


def test_rows_of_a_type_that_was_never_widened_are_refused() -> None:
    origin = RowOrigin("20260101000000001", FileGroupId("", "f-0"), "f-0")
    rows = pa.RecordBatch.from_pydict({"id": ["a"], "n": ["text"]})
    with pytest.raises(UnsupportedTableError, match="'n' of 'the rows'"):
        stored_rows(row_layout(AVRO), rows, pa.array(["a"]), origin, 0)


@pytest.mark.parametrize("text", ["{", '"string"', '{"type": "record", "name": "t"}'])
def test_a_schema_that_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(CorruptTableError):
        row_layout(text)


# ---- parts of rows

WIDE = json.dumps(
    {
        "type": "record",
        "name": "t_record",
        "fields": [
            {"name": "a", "type": ["null", "int"], "default": None},
            {"name": "id", "type": "string"},
            {"name": "b", "type": ["null", "string"], "default": None},
            {"name": "_pyhudi_rank", "type": ["null", "int"], "default": None},
            {"name": "c", "type": ["null", "int"], "default": None},
        ],
    }
)


def test_a_part_has_its_columns_in_the_order_of_the_table_and_its_file_the_rank() -> None:
    layout = partial_layout(WIDE, ("id", "c", "b"))
    assert layout.data.names == ["id", "b", "c"]
    assert layout.stored.names == [*META_COLUMNS, "id", "b", "_pyhudi_rank", "c"]
    fields = [field["name"] for field in json.loads(layout.avro_json)["fields"]]
    assert fields == layout.stored.names


def test_a_stand_in_is_the_same_row_with_nulls_and_a_lower_rank() -> None:
    layout = partial_layout(WIDE, ("id", "b"))
    rows = pa.RecordBatch.from_pylist([{"id": "x", "b": "1"}, {"id": "y", "b": None}], layout.data)
    origin = RowOrigin("20260101000000001", FileGroupId("", "f-0"), "f-0")
    parts = stored_partial_rows(layout, rows, rows.column("id"), origin, 0)
    assert parts.select(["id", "b", "_pyhudi_rank"]).to_pylist() == [
        {"id": "x", "b": "1", "_pyhudi_rank": 2},
        {"id": "y", "b": None, "_pyhudi_rank": 2},
    ]
    whole = placeholder_rows(row_layout(WIDE), parts, ["id"])
    assert whole.schema == row_layout(WIDE).stored
    assert whole.select(META_COLUMNS) == parts.select(META_COLUMNS)
    assert whole.drop_columns([*META_COLUMNS]).to_pylist() == [
        {"a": None, "id": key, "b": None, "_pyhudi_rank": 1, "c": None} for key in "xy"
    ]


def test_parts_of_other_columns_are_refused() -> None:
    layout = partial_layout(WIDE, ("id", "b"))
    rows = pa.RecordBatch.from_pylist([{"id": "x", "a": 1}])
    origin = RowOrigin("20260101000000001", FileGroupId("", "f-0"), "f-0")
    with pytest.raises(InvalidRequestError, match="they have the columns id, a and the part has"):
        stored_partial_rows(layout, rows, rows.column("id"), origin, 0)
