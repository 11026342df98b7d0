"""Documentation of columns: recorded by `update_schema`, and kept by whoever writes beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from pyhudi.api.table import Table
from pyhudi.format.avro.canonical import annotated_schema
from pyhudi.format.avro.documentation import documented_columns
from pyhudi.format.timeline.commit_metadata import CommitMetadata, decode_commit_metadata
from pyhudi.format.timeline.instant import Instant
from pyhudi.timeline.timeline import WRITE_ACTIONS

POINT = pa.struct([("x", pa.int32()), ("y", pa.int32())])
SCHEMA = pa.schema(
    [("id", pa.string()), ("a", pa.int32()), ("at", POINT), ("track", pa.list_(POINT))]
)
ROW: dict[str, Any] = {"id": "k", "a": 1, "at": {"x": 1, "y": 2}, "track": [{"x": 3, "y": 4}]}


@pytest.fixture(params=["mor", "cow"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    kind = {"record_key": "id", "buckets": 1, "table_type": request.param}
    made = pyhudi.create_table(tmp_path / "t", SCHEMA, **kind)
    made.upsert(rows())
    return made


def another(table: Table) -> Table:
    return pyhudi.open_table(table.uri)


def rows(*added: pa.Field, **values: Any) -> pa.Table:
    return pa.Table.from_pylist([{**ROW, **values}], pa.schema([*SCHEMA, *added]))


def commits(table: Table) -> list[CommitMetadata]:
    """The completed writes, by completion."""
    folder = Path(table.uri.removeprefix("file://")) / ".hoodie" / "timeline"
    found = []
    for path in folder.iterdir():
        if "_" in path.name:
            instant = Instant.parse(path.name)
            if instant.action in WRITE_ACTIONS:
                metadata = decode_commit_metadata(path.read_bytes(), path.name)
                found.append((instant.completed or "", metadata))
    return [metadata for _, metadata in sorted(found, key=lambda each: each[0])]


def documentation(table: Table) -> dict[str, str]:
    """What the last commit says of the columns."""
    text = commits(table)[-1].schema_json
    assert text is not None
    return documented_columns(annotated_schema(text, "the last commit"))


def test_a_change_of_documentation_alone_is_a_commit(table: Table) -> None:
    before = commits(table)
    with table.update_schema() as change:
        change.update_column("a", doc="what a is")
    assert documentation(table) == {"a": "what a is"}
    last = commits(table)[-1]
    assert last.operation_type == "ALTER_SCHEMA"
    fields = {field["name"]: field for field in json.loads(last.schema_json or "")["fields"]}
    old = {field["name"]: field for field in json.loads(before[-1].schema_json or "")["fields"]}
    assert fields == {**old, "a": {**old["a"], "doc": "what a is"}}
    assert len(commits(table)) == len(before) + 1
    assert table.read().to_arrow().to_pylist() == [ROW]


def test_the_same_documentation_again_is_no_commit(table: Table) -> None:
    with table.update_schema() as change:
        change.update_column("a", doc="what a is")
    before = len(commits(table))
    block = another(table).update_schema()
    with block as change:
        change.update_column("a", doc="what a is")
        change.update_column("at", doc="")
    assert block.changes == ()
    assert len(commits(table)) == before


def test_columns_and_fields_are_documented_changed_and_no_longer_documented(table: Table) -> None:
    with table.update_schema() as change:
        change.add_column("b", "long", doc="what b is")
        change.add_column("at.z", "int", doc="how high")
        change.update_column("at", doc="where")
        change.update_column("at.x", doc="how far")
        change.update_column("track.element.x", doc="how far then")
    assert documentation(table) == {
        "b": "what b is",
        "at": "where",
        "at.x": "how far",
        "at.z": "how high",
        "track.element.x": "how far then",
    }
    with another(table).update_schema() as change:
        change.update_column("b", doc="what b was")
        change.update_column("at", doc="")
        change.update_column("track.element.x", doc="")
        change.update_column("a", "long", doc="what a is")
    assert documentation(table) == {
        "a": "what a is",
        "b": "what b was",
        "at.x": "how far",
        "at.z": "how high",
    }
    assert table.read().to_arrow().to_pylist() == [
        {**ROW, "at": {"x": 1, "y": 2, "z": None}, "b": None}
    ]


def test_rows_neither_take_documentation_away_nor_stand_in_its_way(table: Table) -> None:
    with table.update_schema() as change:
        change.update_column("a", doc="what a is")
    table.upsert(rows(a=2))
    assert documentation(table) == {"a": "what a is"}
    table.upsert(rows(pa.field("new", pa.int32()), a=3, new=5), schema_mode="add")
    assert documentation(table) == {"a": "what a is"}
    another(table).delete("id = 'k'")
    assert documentation(table) == {"a": "what a is"}


def test_changes_beside_each_other_keep_the_documentation_of_both(table: Table) -> None:
    with another(table).update_schema() as change:
        change.update_column("a", doc="old").update_column("at", doc="old")
    with table.update_schema() as change:
        change.update_column("a", doc="mine")
        with another(table).update_schema() as theirs:
            theirs.update_column("a", doc="theirs").update_column("at", doc="theirs")
            theirs.update_column("at.y", doc="theirs").add_column("b", "int", doc="theirs")
    expected = {"a": "mine", "at": "theirs", "at.y": "theirs", "b": "theirs"}
    assert documentation(table) == expected


def test_the_history_of_the_schema_shows_who_documented_what(table: Table) -> None:
    with table.update_schema() as change:
        change.update_column("at.x", doc="how far")
    table.upsert(rows(a=2))
    first, second = table.inspect.schema_history().to_pylist()
    assert {each["kind"] for each in first["change"]} == {"added"}
    assert second["change"] == [{"path": "at.x", "kind": "doc", "before": None, "after": "how far"}]
