"""Tables that Hudi evolved go on: pyhudi evolves them further, and takes Hudi's own steps."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from golden_reads import differences
from golden_tables import GoldenTables, load_description, unpack

TABLES = {
    "mor_schema_evolved": "mor",
    "cow_schema_evolved": "cow",
}
every_table = pytest.mark.parametrize("name", TABLES)
_TYPES = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "double": pa.float64()}


def schema_of(ddl: str) -> pa.Schema:
    """
    >>> schema_of("`id` string, qty int").names
    ['id', 'qty']
    """
    return pa.schema([(n, _TYPES[kind]) for n, kind in re.findall(r"`?(\w+)`? (\w+)", ddl)])


def recorded_rows(description: dict[str, Any], **how: str) -> list[dict[str, Any]]:
    """What Hudi read, without its own columns."""
    [read] = [read for read in description["reads"] if read["how"] == how]
    return [data(row) for row in read["rows"]]


def data(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith("_hoodie_")}


def rows_of(table: pyhudi.Table, **how: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.read(**how).to_arrow().to_pylist()
    return found


def replayed(name: str, path: Path) -> tuple[pyhudi.Table, list[pyhudi.WriteResult]]:
    """A table that pyhudi makes by the steps that Hudi took, and the commits."""
    steps = load_description(name)["steps"]
    table = pyhudi.create_table(
        path,
        schema_of(steps[0]["schema"]),
        record_key="id",
        partition_by="part",
        ordering="ver",
        table_type=TABLES[name],
        buckets=pyhudi.SimpleBuckets(1),
    )
    given = [pa.Table.from_pylist(step["rows"], schema_of(step["schema"])) for step in steps]
    return table, [table.upsert(rows, schema_mode="add") for rows in given]


@every_table
def test_the_steps_that_hudi_took_have_the_same_columns_and_rows_when_pyhudi_takes_them(
    name: str, tmp_path: Path
) -> None:
    description = load_description(name)
    table, commits = replayed(name, tmp_path / "table")
    assert table.schema.arrow.equals(schema_of(description["schema"]))
    for step, commit in zip(description["steps"], commits, strict=True):
        expected = recorded_rows(description, as_of=step["instants"][0]["requested"])
        assert differences(expected, rows_of(table, as_of=commit)) == ""
        assert table.read(as_of=commit).schema.equals(schema_of(step["schema"]))


def evolving(name: str, path: Path) -> pyhudi.Table:
    """The golden table itself if pyhudi can write it, else one made by the same steps."""
    if name == "mor_schema_evolved":
        return pyhudi.open_table(unpack(name, path))
    return replayed(name, path / "table")[0]


@every_table
def test_a_table_that_evolved_goes_on_evolving_with_all_old_rows(name: str, tmp_path: Path) -> None:
    description = load_description(name)
    table = evolving(name, tmp_path)
    old = {row["id"]: row for row in recorded_rows(description)}
    before = table.history(limit=1)["completed"][0].as_py()

    with table.update_schema() as change:
        change.add_column("extra", pa.struct([("n", pa.int32())]))
        change.delete_column("note")
    old = {id_: {**row, "extra": None} for id_, row in old.items()}
    for row in old.values():
        del row["note"]
    assert differences(old.values(), rows_of(table)) == ""

    first, *others = old.values()
    new = {**first, "ver": 9, "extra": {"n": 1 << 40, "more": "m"}, "added": 7}
    wide = pa.struct([("n", pa.int64()), ("more", pa.string())])
    [*fields] = [field for field in table.schema.arrow if field.name != "extra"]
    schema = pa.schema([*fields, ("extra", wide), ("added", pa.int32())])
    table.upsert(pa.Table.from_pylist([new], schema), schema_mode="add")
    expected = [new, *({**row, "added": None} for row in others)]
    assert differences(expected, rows_of(table)) == ""

    table.services.compact()
    assert differences(expected, rows_of(table)) == ""
    again = pyhudi.open_table(table.uri)
    assert again.schema.arrow.field("extra").type == wide
    assert "note" not in again.schema.arrow.names
    assert differences(recorded_rows(description), rows_of(again, as_of=before)) == ""


def test_a_golden_table_that_pyhudi_cannot_write_cannot_be_evolved_either(
    tmp_path: Path,
) -> None:
    """Its file groups are no buckets, so the next upsert would not know where a key is."""
    path = unpack("cow_schema_evolved", tmp_path)
    before = sorted(path.rglob("*"))
    with (
        pytest.raises(pyhudi.HudiError, match="it is not a bucket table"),
        pyhudi.open_table(path).update_schema() as change,
    ):
        change.add_column("extra", pa.string())
    assert sorted(path.rglob("*")) == before


@every_table
def test_changes_of_a_table_that_hudi_evolved_have_the_columns_of_their_end(
    name: str, golden: GoldenTables
) -> None:
    """And by Hudi's own options those of now, as Hudi has them."""
    steps = golden.description(name)["steps"]
    table = pyhudi.open_table(golden.path(name))
    since = "0"
    for step in steps:
        until = step["instants"][0]["completed"]
        found = (
            table.changes(since=since, until=until) if since != "0" else table.changes(until=until)
        )
        assert found.schema.equals(schema_of(step["schema"]))
        assert differences(step["rows"], found.to_arrow().to_pylist()) == ""
        since = until
    end = steps[0]["instants"][0]["completed"]
    options = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": "000",
        "hoodie.datasource.read.end.instanttime": end,
    }
    as_hudi = table.read_with_hudi_options(options).schema
    assert [n for n in as_hudi.names if not n.startswith("_hoodie_")] == table.schema.arrow.names
