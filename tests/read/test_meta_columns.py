"""Hudi's five columns: left out of reads, and not read, unless they are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from handmade import HandmadeTable, at
from pyhudi.storage.protocol import Storage
from pyhudi.table.schema import META_COLUMNS

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
OLD, LATE = at(1), at(3)


@pytest.fixture
def table(memory: Storage) -> pyhudi.Table:
    """A base file with a log in one group, a base file alone in another."""
    made = HandmadeTable(memory, SCHEMA, ordering="ts")
    made.begin(1)
    old = {"ts": 1, "v": "old"}
    bases = [
        made.base(1, [{"id": "a", **old}, {"id": "b", **old}]),
        made.base(1, [{"id": "c", **old}], file_id="g-0"),
    ]
    made.complete(1, 2, bases)
    made.begin(3)
    block = made.rows_block(3, [{"id": "b", "ts": 2, "v": "late"}])
    made.complete(3, 4, [made.log(3, block)])
    return pyhudi.open_table(memory.uri)


def names(scan: pyhudi.Scan) -> list[str]:
    found = scan.to_arrow()
    assert found.schema == scan.schema
    return list(found.column_names)


def test_reads_and_changes_give_the_users_columns(table: pyhudi.Table) -> None:
    assert names(table.read()) == SCHEMA.names
    assert names(table.changes()) == SCHEMA.names
    assert names(table.read(as_of=at(2), read_optimized=True)) == SCHEMA.names
    assert table.read().to_arrow().sort_by("id")["v"].to_pylist() == ["old", "late", "old"]
    changed = table.changes(since=at(2)).to_arrow()
    assert changed.to_pylist() == [{"id": "b", "ts": 2, "v": "late"}]


def test_hudis_columns_come_first_when_they_are_asked_for(table: pyhudi.Table) -> None:
    assert names(table.read(meta=True)) == [*META_COLUMNS, *SCHEMA.names]
    assert names(table.changes(meta=True)) == [*META_COLUMNS, *SCHEMA.names]
    by_name = table.read(columns=["v", "_hoodie_commit_time"]).to_arrow().sort_by("v")
    assert by_name.to_pylist() == [
        {"v": "late", "_hoodie_commit_time": LATE},
        {"v": "old", "_hoodie_commit_time": OLD},
        {"v": "old", "_hoodie_commit_time": OLD},
    ]
    assert names(table.read(columns=["v"], meta=True)) == ["v"]


def test_they_are_not_read_from_files_but_for_what_merging_needs(table: pyhudi.Table) -> None:
    spec = table.read().plan.spec
    assert spec.plain.names == SCHEMA.names
    assert spec.merged.names == ["_hoodie_record_key", *SCHEMA.names]
    assert table.changes().plan.spec.plain.names == ["_hoodie_commit_time", *SCHEMA.names]


def test_a_predicate_may_name_them_all_the_same(table: pyhudi.Table) -> None:
    found = table.read(where=f"_hoodie_commit_time > '{OLD}'").to_arrow()
    assert found.to_pylist() == [{"id": "b", "ts": 2, "v": "late"}]


def test_the_tables_schema_is_that_of_its_reads(table: pyhudi.Table) -> None:
    assert table.schema.arrow == table.read().schema
    assert pa.schema(table.schema) == table.schema.arrow
    assert table.schema.data_columns == SCHEMA.names


TYPE = "hoodie.datasource.query.type"


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, False),
        ({"path": "x", "where": "ts > 0"}, False),
        ({"meta": "true"}, True),
        ({"meta": "false"}, False),
        ({TYPE: "snapshot"}, True),
        ({"as.of.instant": LATE}, True),
        ({TYPE: "incremental", "hoodie.datasource.read.begin.instanttime": "000"}, True),
        ({TYPE: "snapshot", "meta": " False"}, False),
        ({TYPE: "snapshot", "columns": "id,ts,v"}, False),
    ],
)
def test_a_read_with_an_option_of_hudis_shows_them_as_hudi_does(
    table: pyhudi.Table, options: Mapping[str, str], shown: bool
) -> None:
    expected = [*(META_COLUMNS if shown else ()), *SCHEMA.names]
    assert names(table.read_with_hudi_options(options)) == expected


def test_whether_they_are_shown_is_true_or_false(table: pyhudi.Table) -> None:
    with pytest.raises(pyhudi.InvalidRequestError, match="it is true or false"):
        table.read_with_hudi_options({"meta": "yes"})


def test_a_table_without_any_column_reads_as_nothing(memory: Storage) -> None:
    """As a table of another engine does that nothing was written to yet."""
    HandmadeTable(memory, SCHEMA)
    found = pyhudi.open_table(memory.uri).read().to_arrow()
    assert (found.num_rows, found.column_names) == (0, [])


@pytest.mark.parametrize("verb", ["upsert", "append", "overwrite"])
@pytest.mark.parametrize("meta", [True, False])
def test_what_was_read_can_be_written_with_and_without_them(
    tmp_path: Path, verb: str, meta: bool
) -> None:
    options: dict[str, Any] = {"record_key": "id", "buckets": pyhudi.SimpleBuckets(1)}
    source = pyhudi.create_table(tmp_path / "source", SCHEMA, **options)
    source.upsert(pa.table({"id": ["a"], "ts": [1], "v": ["x"]}))
    target = pyhudi.create_table(tmp_path / "target", SCHEMA, **options)
    getattr(target, verb)(source.read(meta=meta))
    assert target.read().to_arrow().to_pylist() == [{"id": "a", "ts": 1, "v": "x"}]
