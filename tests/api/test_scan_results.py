"""What a scan gives besides Arrow tables: counts, first rows, DuckDB relations, lazy frames."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import pyhudi
from golden_tables import NAMES, GoldenTables
from handmade import HandmadeTable, at
from pyhudi.errors import InvalidRequestError
from pyhudi.plan.scan import ScanPlan
from pyhudi.read import slice as tasks
from pyhudi.storage.protocol import Storage

SCHEMA = pa.schema(
    [("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.string())]
)
#: Every scan of the table below, and how many rows it has.
SCANS: dict[str, tuple[Callable[[pyhudi.Table], pyhudi.Scan], int]] = {
    "all": (lambda table: table.read(), 8),
    "by a predicate": (lambda table: table.read(where="ts > 1"), 2),
    "by a partition": (lambda table: table.read(where="part = 'x'"), 4),
    "by what is always so": (lambda table: table.read(where="TRUE"), 8),
    "by what is never so": (lambda table: table.read(where="FALSE"), 0),
    "by a meta column": (lambda table: table.read(where=f"_hoodie_commit_time = '{at(5)}'"), 2),
    "base files": (lambda table: table.read(read_optimized=True), 8),
    "as of the first write": (lambda table: table.read(as_of=at(2)), 8),
    "one column": (lambda table: table.read(columns=["v"]), 8),
    "a part of them": (lambda table: table.read(limit=3), 3),
    "changes": (lambda table: table.changes(), 8),
    "changes since": (lambda table: table.changes(since=at(2)), 2),
    "changes by a predicate": (lambda table: table.changes(since=at(2), where="v = 'new'"), 1),
}


@pytest.fixture
def table(memory: Storage) -> pyhudi.Table:
    """Two base files of four rows; of one a row was deleted, one changed and one added."""
    made = HandmadeTable(memory, SCHEMA, ordering="ts", partition_by="part")
    made.begin(1)
    paths = []
    for part in "xy":
        rows = [{"id": f"{part}{n}", "part": part, "ts": 1, "v": "old"} for n in range(4)]
        paths.append(made.base(1, rows, partition=part, file_id=f"{part}-0"))
    made.complete(1, 2, paths)
    made.begin(3)
    deleted = made.deletes_block(3, ["y0"], pa.array([9]))
    made.complete(3, 4, [made.log(3, deleted, partition="y", file_id="y-0")])
    made.begin(5)
    late = [
        {"id": "y1", "part": "y", "ts": 2, "v": "changed"},
        {"id": "y9", "part": "y", "ts": 2, "v": "new"},
    ]
    block = made.rows_block(5, late)
    made.complete(5, 6, [made.log(5, block, partition="y", file_id="y-0", version=2)])
    return pyhudi.open_table(memory.uri)


# -- counts


@pytest.mark.parametrize(("scan", "rows"), SCANS.values(), ids=SCANS)
def test_a_count_is_that_of_the_rows(
    table: pyhudi.Table, scan: Callable[[pyhudi.Table], pyhudi.Scan], rows: int
) -> None:
    found = scan(table)
    assert found.count() == rows
    assert found.to_arrow().num_rows == rows


@pytest.mark.parametrize("name", NAMES)
def test_tables_that_hudi_wrote_are_counted_and_given_to_polars_as_they_are_read(
    golden: GoldenTables, name: str
) -> None:
    table = pyhudi.open_table(golden.path(name))
    scans = [
        table.read(),
        table.read(read_optimized=True),
        table.read(where="_hoodie_record_key > 'id:1'", meta=True),
        table.changes(),
    ]
    for scan in scans:
        rows = scan.to_arrow().num_rows
        assert scan.count() == rows
        assert pickle.loads(pickle.dumps(scan)).head(2).num_rows == min(2, rows)
        assert scan.to_polars(lazy=True).collect().height == rows


def test_a_count_reads_footers_and_elsewhere_keys(
    table: pyhudi.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    real = tasks._base_rows

    def noted(storage: Storage, base: Any, schema: pa.Schema, *others: Any) -> Any:
        seen.append(schema.names)
        return real(storage, base, schema, *others)

    monkeypatch.setattr(tasks, "_base_rows", noted)
    assert table.read(read_optimized=True).count() == 8
    assert seen == []
    assert table.read().count() == 8
    assert seen == [["_hoodie_record_key", "ts"]]  # of the slice that has logs, with its ordering
    seen.clear()
    assert table.read(where="part = 'x' AND v = 'old'").count() == 4
    assert seen == [["part", "v"]]


def test_a_count_of_a_broken_file_is_an_error(table: pyhudi.Table) -> None:
    scan = table.read(where="part = 'x'", read_optimized=True)
    whole = table.read(read_optimized=True)
    [read] = scan.plan.reads
    assert read.slice.base is not None
    scan.storage.write(read.slice.base.path, b"PAR1PAR1")
    with pytest.raises(pyhudi.CorruptTableError, match="not sound parquet"):
        whole.count()


# -- first rows


@pytest.mark.parametrize(("rows", "found"), [(0, 0), (1, 1), (5, 5), (100, 8)])
def test_the_first_rows_are_rows_of_the_table(table: pyhudi.Table, rows: int, found: int) -> None:
    every = table.read().to_arrow().to_pylist()
    for first in (table.read().head(rows), table.read(limit=rows).to_arrow()):
        assert first.schema == SCHEMA
        assert len(first) == found
        assert all(row in every for row in first.to_pylist())
    assert table.read(limit=rows).count() == found
    assert table.read(limit=3).head(rows).num_rows == min(3, found)
    assert table.changes().head(rows).num_rows == found


def test_reading_stops_with_the_first_rows(
    table: pyhudi.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    real = tasks._opened

    def noted(storage: Storage, path: str) -> Any:
        opened.append(path)
        return real(storage, path)

    monkeypatch.setattr(tasks, "_opened", noted)
    assert table.read().head(0).num_rows == 0
    assert opened == []
    assert table.read().head(4).num_rows == 4
    assert len(opened) == 1
    assert table.read(limit=5).to_arrow().num_rows == 5
    assert len(opened) == 3


@pytest.mark.parametrize("limit", [-1, 1.5, "3", True])
def test_a_limit_is_a_number_of_rows(table: pyhudi.Table, limit: Any) -> None:
    with pytest.raises(InvalidRequestError, match="not a number of rows"):
        table.read(limit=limit)
    with pytest.raises(InvalidRequestError, match="not a number of rows"):
        table.read().head(limit)


# -- DuckDB


def test_a_relation_of_duckdb_can_be_asked_again_and_again(table: pyhudi.Table) -> None:
    import duckdb

    for relation in (table.read().to_duckdb(), table.read().to_duckdb(duckdb.connect())):
        for _ in range(2):
            assert relation.aggregate("count(*), max(ts)").fetchall() == [(8, 2)]
        found = relation.filter("v <> 'old'").order("id").project("id").fetchall()
        assert found == [("y1",), ("y9",)]


def test_a_relation_is_pinned_as_the_scan_is(tmp_path: Path) -> None:
    rows = pa.table({"id": ["a"], "n": [1]})
    table = pyhudi.create_table(tmp_path / "t", rows, record_key="id", buckets=1)
    table.upsert(rows)
    relation = table.read().to_duckdb()
    table.upsert(pa.table({"id": ["b"], "n": [2]}))
    assert relation.aggregate("count(*)").fetchall() == [(1,)]


# -- lazy frames


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[ScanPlan]:
    """What a lazy frame reads."""
    seen: list[ScanPlan] = []
    real = tasks.read_rows

    def noted(storage: Storage, plan: ScanPlan, limit: int | None = None) -> Any:
        seen.append(plan)
        return real(storage, plan, limit)

    monkeypatch.setattr("pyhudi.api.polars_source.read_rows", noted)
    return seen


QUERIES: dict[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "all": lambda frame: frame,
    "columns": lambda frame: frame.select("v", "id"),
    "a filter": lambda frame: frame.filter(pl.col("ts") > 1),
    "a filter that is not translated": lambda frame: frame.filter(pl.col("ts") + 1 > 2),
    "both": lambda frame: frame.filter(pl.col("ts") + 1 > 2, pl.col("part") == "y").select("v"),
    "a filter of text": lambda frame: frame.filter(pl.col("id").str.starts_with("y")),
    "a number of rows": lambda frame: frame.select(pl.len()),
    "a filtered number": lambda frame: frame.filter(pl.col("v") != "old").select(pl.len()),
    "a join": lambda frame: frame.join(frame.select("id", other="v"), on="id"),
    "a sum": lambda frame: frame.group_by("part").agg(pl.col("ts").sum()),
    "is in": lambda frame: frame.filter(pl.col("id").is_in(["x1", "y9", "z"])),
    "nothing": lambda frame: frame.filter(pl.col("part") == "z"),
}


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_a_lazy_frame_gives_what_a_frame_gives(
    table: pyhudi.Table, query: Callable[[pl.LazyFrame], pl.LazyFrame]
) -> None:
    for scan in (table.read(), table.read(where="ts < 9", meta=True), table.changes()):
        lazy = query(scan.to_polars(lazy=True)).collect()
        eager = query(scan.to_polars().lazy()).collect()
        assert lazy.schema == eager.schema
        assert sorted(lazy.rows(), key=repr) == sorted(eager.rows(), key=repr)


def test_a_lazy_frame_reads_the_columns_and_partitions_of_its_query(
    table: pyhudi.Table, plans: list[ScanPlan]
) -> None:
    frame = table.read().to_polars(lazy=True)
    assert plans == []
    frame.filter(pl.col("part") == "x", pl.col("ts") + 0 == 1).select("v").collect()
    [plan] = plans
    assert plan.spec.plain.names == ["part", "ts", "v"]
    assert [read.slice.partition for read in plan.reads] == ["x"]


def test_a_limit_of_a_lazy_frame_counts_rows_before_a_filter(
    table: pyhudi.Table, plans: list[ScanPlan]
) -> None:
    frame = table.read(limit=5).to_polars(lazy=True)
    assert frame.collect().height == 5
    assert frame.filter(pl.col("ts") >= 0).collect().height == 5
    assert table.read().to_polars(lazy=True).head(3).collect().height == 3
    assert table.read().to_polars(lazy=True).filter(pl.col("ts") > 1).head(1).collect().height == 1


# -- what may not be there


@pytest.mark.parametrize(
    ("library", "give"),
    [
        ("duckdb", lambda scan: scan.to_duckdb()),
        ("polars", lambda scan: scan.to_polars()),
        ("polars", lambda scan: scan.to_polars(lazy=True)),
    ],
)
def test_a_library_that_is_missing_is_named(
    table: pyhudi.Table, monkeypatch: pytest.MonkeyPatch, library: str, give: Any
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InvalidRequestError, match=f"pip install {library}"):
        give(table.read())


# -- expressions


def test_a_read_a_feed_and_a_delete_take_expressions(tmp_path: Path) -> None:
    rows = pa.table({"id": ["a", "b", "c"], "n": [1, 2, 3]})
    table = pyhudi.create_table(tmp_path / "t", rows, record_key="id", buckets=1)
    table.upsert(rows)
    for where in (pl.col("n") > 1, pc.field("n") > 1, "n > 1"):
        assert table.read(where=where).count() == 2
        assert table.changes(where=where).count() == 2
    table.delete(pl.col("id") == "a")
    table.delete(pc.field("id").isin(["b"]))
    assert table.read().to_arrow().to_pylist() == [{"id": "c", "n": 3}]
    with pytest.raises(InvalidRequestError, match="add"):
        table.delete(pc.field("n") + 1 > 2)
    assert table.read().count() == 1
