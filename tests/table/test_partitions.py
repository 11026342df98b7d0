"""Partition paths and the columns they stand for."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from pyhudi.errors import UnsupportedTableError
from pyhudi.format.table.properties import TableProperties
from pyhudi.format.table.table_config import TableConfig
from pyhudi.plan.scan import ScanPlan, SliceRead, read_spec, with_path_columns
from pyhudi.table.file_group import FileSlice
from pyhudi.table.partitions import (
    partition_texts,
    partition_values,
    plain_fields,
    with_dropped_columns,
)
from pyhudi.timeline.completion import only

HIVE = {"hoodie.datasource.write.hive_style_partitioning": "true"}
ENCODED = {"hoodie.datasource.write.partitionpath.urlencode": "true"}
DROPPED = {"hoodie.datasource.write.drop.partition.columns": "true"}


def config(fields: str, **more: str) -> TableConfig:
    return TableConfig.of(
        TableProperties(
            {
                "hoodie.table.name": "t",
                "hoodie.table.type": "COPY_ON_WRITE",
                "hoodie.table.version": "9",
                "hoodie.table.recordkey.fields": "id",
                "hoodie.table.partition.fields": fields,
                **more,
            }
        )
    )


@pytest.mark.parametrize(
    ("fields", "more", "path", "texts"),
    [
        ("p", {}, "a", {"p": "a"}),
        ("p", {}, "2026/01/31", {"p": "2026/01/31"}),
        ("p", HIVE, "p=2026/01/31", {"p": "2026/01/31"}),
        ("p", HIVE, "p=x=y", {"p": "x=y"}),
        ("p", HIVE, "q=a", None),
        ("p", ENCODED, "a%2Fb", {"p": "a/b"}),
        ("p", {}, "a%2Fb", {"p": "a%2Fb"}),
        ("p,q", {}, "a/b", {"p": "a", "q": "b"}),
        ("p,q", HIVE, "p=a/q=b", {"p": "a", "q": "b"}),
        ("p,q", {}, "a/b/c", None),
        ("p,q", {}, "a", None),
        ("p", {}, "", None),
        ("", {}, "", None),
    ],
)
def test_a_path_is_taken_apart_or_not_at_all(
    fields: str, more: dict[str, str], path: str, texts: dict[str, str] | None
) -> None:
    assert partition_texts(path, config(fields, **more)) == texts


def test_a_path_can_be_left_encoded() -> None:
    table = config("p", **ENCODED)
    assert partition_texts("a%2Fb", table, decoded=False) == {"p": "a%2Fb"}


GENERATOR = "hoodie.table.keygenerator.type"


@pytest.mark.parametrize(
    ("fields", "more", "plain"),
    [
        ("p,q", {}, ("p", "q")),
        ("p", {GENERATOR: "TIMESTAMP"}, ()),
        ("p:SIMPLE,q:TIMESTAMP", {GENERATOR: "CUSTOM"}, ("p",)),
    ],
)
def test_formatted_times_are_not_the_fields_own_value(
    fields: str, more: dict[str, str], plain: tuple[str, ...]
) -> None:
    assert plain_fields(config(fields, **more)) == plain


SCHEMA = pa.schema([("s", pa.string()), ("n", pa.int32()), ("d", pa.date32()), ("f", pa.float64())])


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("a/7/2026-01-31/1.5", {"s": "a", "n": 7, "d": dt.date(2026, 1, 31)}),
        ("__HIVE_DEFAULT_PARTITION__/x/2026/1", {}),
    ],
)
def test_only_certain_values_bound_a_partition(path: str, values: dict[str, Any]) -> None:
    assert partition_values(path, SCHEMA, config("s,n,d,f")) == values


def test_dropped_columns_come_last_as_text() -> None:
    table = config("n,s", **DROPPED)
    schema = with_dropped_columns(pa.schema([("id", pa.string())]), table)
    assert schema == pa.schema([("id", pa.string()), ("n", pa.string()), ("s", pa.string())])
    assert with_dropped_columns(SCHEMA, config("n,s")) == SCHEMA


def plan(table: TableConfig, schema: pa.Schema, path: str) -> ScanPlan:
    spec = read_spec(table, schema, only(frozenset()), output=schema)
    return ScanPlan(spec, (SliceRead(FileSlice(path, "f", "1", None, ())),), schema, table)


@pytest.mark.parametrize(
    ("fields", "more", "path", "as_in_path", "constants"),
    [
        ("s", DROPPED | ENCODED, "a%2Fb", False, (("s", "a/b"),)),
        ("s", DROPPED | ENCODED, "a%2Fb", True, (("s", "a%2Fb"),)),
        ("s", DROPPED, "__HIVE_DEFAULT_PARTITION__", False, (("s", None),)),
        ("s", ENCODED, "a%2Fb", False, ()),
        ("s,n", ENCODED, "a%2Fb/7", True, (("s", "a%2Fb"),)),  # numbers are as the files have them
        ("s", {GENERATOR: "TIMESTAMP"}, "2026/01/31", True, ()),
        ("s,n", {}, "a/b/7", True, ()),
    ],
)
def test_the_path_gives_texts_where_files_do_not_or_hudi_is_asked(
    fields: str,
    more: dict[str, str],
    path: str,
    as_in_path: bool,
    constants: tuple[tuple[str, str | None], ...],
) -> None:
    table = config(fields, **more)
    found = with_path_columns(plan(table, SCHEMA, path), SCHEMA, table, as_in_path=as_in_path)
    assert found.reads[0].constants == constants


def test_dropped_columns_that_a_path_does_not_tell_apart_are_refused() -> None:
    table = config("p,q", **DROPPED)
    with pytest.raises(UnsupportedTableError, match="does not separate their values"):
        with_path_columns(plan(table, SCHEMA, "a/b/c"), SCHEMA, table, as_in_path=False)
