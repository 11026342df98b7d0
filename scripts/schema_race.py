#!/usr/bin/env python3
"""Print what table formats do when two writers add different columns at once: schema_race.py

    python -m venv race
    race/bin/pip install . deltalake 'pyiceberg[sql-sqlite,pyarrow]' pylance
    race/bin/python scripts/schema_race.py

Two handles know the same version of one table. The first adds the column `left` and commits. Then
the second commits, which adds `right`. This is done with rows, and by the call that changes a
schema without rows. The table shows what became of the second writer, and the columns and rows that
there are in the end. A format that is not installed is left out.

pyhudi begins a write when it is called, not when the table is opened. So there the first writer
runs while the second reads its rows, after it has begun, and the script fails if the two did not
overlap. `docs/schema_evolution.md` has the output, and Hudi's line from the conformance tests.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa

FIRST = pa.table({"id": ["a"], "n": [1], "ts": [1]})


def row(key: str, column: str) -> pa.Table:
    """Return one row with a column that the table lacks."""
    return pa.table({"id": [key], "n": [2], "ts": [2], column: ["x"]})


@dataclass(frozen=True)
class Race:
    """One race: a function from a new folder to the outcome."""

    package: str
    module: str
    name: str
    call: str
    run: Callable[[Path], Outcome]


@dataclass(frozen=True)
class Outcome:
    """What became of the second writer, and the table afterwards."""

    error: BaseException | None
    columns: list[str]
    rows: int


class NoRaceError(Exception):
    """The call adds no columns, not even in the first writer."""


def raced(first: Callable[[], Any], second: Callable[[], Any]) -> BaseException | None:
    """Run the first writer, then the second; return the error of the second."""
    try:
        first()
    except Exception as error:
        raise NoRaceError(type(error).__name__) from error
    try:
        second()
    except Exception as error:
        return error
    return None


def outcome(error: BaseException | None, found: pa.Table) -> Outcome:
    return Outcome(error, found.column_names, found.num_rows)


# -- pyhudi


def pyhudi_rows(folder: Path) -> Outcome:
    import pyhudi

    pyhudi_table(folder)
    first, second = (pyhudi_opened(folder) for _ in range(2))
    done: list[Any] = []

    def batches() -> Iterator[pa.RecordBatch]:
        yield from row("c", "right").to_batches()
        done.append(first.upsert(row("b", "left"), schema_mode="add"))
        yield from row("d", "right").to_batches()

    stream = pa.RecordBatchReader.from_batches(row("c", "right").schema, batches())
    error = None
    try:
        late = second.upsert(stream, schema_mode="add")
    except pyhudi.HudiError as found:
        error = found
    else:
        if not late.requested < done[0].requested < done[0].completed < late.completed:
            raise AssertionError("the two writes did not overlap")
    return outcome(error, pyhudi.open_table(str(folder)).read().to_arrow())


def pyhudi_alter(folder: Path) -> Outcome:
    import pyhudi

    pyhudi_table(folder)
    first, second = (pyhudi_opened(folder) for _ in range(2))
    error = None
    try:
        with second.update_schema() as change:
            with first.update_schema() as other:
                other.add_column("left", "string")
            change.add_column("right", "string")
    except pyhudi.HudiError as found:
        error = found
    return outcome(error, pyhudi.open_table(str(folder)).read().to_arrow())


def pyhudi_table(folder: Path) -> None:
    import pyhudi

    table = pyhudi.create_table(
        str(folder),
        FIRST,
        record_key="id",
        ordering="ts",
        buckets=1,
        upkeep=False,
    )
    table.upsert(FIRST)


def pyhudi_opened(folder: Path) -> Any:
    """Return the table, written by a writer that buffers next to nothing, so it begins at once."""
    import pyhudi

    settings = pyhudi.WriteSettings(buffer_bytes_max=1)
    return pyhudi.open_table(str(folder), write_settings=settings, progress=False)


# -- Delta


def delta_rows(folder: Path) -> Outcome:
    from deltalake import DeltaTable, write_deltalake

    write_deltalake(folder, FIRST)
    first, second = (DeltaTable(folder) for _ in range(2))
    error = raced(
        lambda: write_deltalake(first, row("b", "left"), mode="append", schema_mode="merge"),
        lambda: write_deltalake(second, row("c", "right"), mode="append", schema_mode="merge"),
    )
    return outcome(error, DeltaTable(folder).to_pyarrow_table())


def delta_alter(folder: Path) -> Outcome:
    from deltalake import DeltaTable, Field, write_deltalake
    from deltalake.schema import PrimitiveType

    write_deltalake(folder, FIRST)
    first, second = (DeltaTable(folder) for _ in range(2))
    text = PrimitiveType("string")
    error = raced(
        lambda: first.alter.add_columns([Field("left", text)]),
        lambda: second.alter.add_columns([Field("right", text)]),
    )
    return outcome(error, DeltaTable(folder).to_pyarrow_table())


# -- Iceberg


def iceberg_rows(folder: Path) -> Outcome:
    def write(table: Any, key: str, column: str) -> None:
        rows = row(key, column)
        with table.transaction() as transaction:
            with transaction.update_schema() as change:
                change.union_by_name(rows.schema)
            transaction.append(rows)

    catalog = iceberg_catalog(folder)
    first, second = (catalog.load_table("races.race") for _ in range(2))
    error = raced(lambda: write(first, "b", "left"), lambda: write(second, "c", "right"))
    return outcome(error, catalog.load_table("races.race").scan().to_arrow())


def iceberg_append(folder: Path) -> Outcome:
    catalog = iceberg_catalog(folder)
    first, second = (catalog.load_table("races.race") for _ in range(2))
    error = raced(lambda: first.append(row("b", "left")), lambda: second.append(row("c", "right")))
    return outcome(error, catalog.load_table("races.race").scan().to_arrow())


def iceberg_alter(folder: Path) -> Outcome:
    from pyiceberg.types import StringType

    def alter(table: Any, column: str) -> None:
        with table.update_schema() as change:
            change.add_column(column, StringType())

    catalog = iceberg_catalog(folder)
    first, second = (catalog.load_table("races.race") for _ in range(2))
    error = raced(lambda: alter(first, "left"), lambda: alter(second, "right"))
    return outcome(error, catalog.load_table("races.race").scan().to_arrow())


def iceberg_catalog(folder: Path) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    folder.mkdir()
    uri = f"sqlite:///{folder}/catalog.db"
    catalog = SqlCatalog("races", uri=uri, warehouse=folder.as_uri())
    catalog.create_namespace("races")
    catalog.create_table("races.race", schema=FIRST.schema).append(FIRST)
    return catalog


# -- Lance


def lance_append(folder: Path) -> Outcome:
    import lance

    lance.write_dataset(FIRST, folder)
    first, second = (lance.dataset(folder) for _ in range(2))
    error = raced(
        lambda: lance.write_dataset(row("b", "left"), first, mode="append"),
        lambda: lance.write_dataset(row("c", "right"), second, mode="append"),
    )
    return outcome(error, lance.dataset(folder).to_table())


def lance_alter(folder: Path) -> Outcome:
    import lance

    lance.write_dataset(FIRST, folder)
    first, second = (lance.dataset(folder) for _ in range(2))
    error = raced(
        lambda: first.add_columns(pa.schema([("left", pa.string())])),
        lambda: second.add_columns(pa.schema([("right", pa.string())])),
    )
    return outcome(error, lance.dataset(folder).to_table())


RACES = [
    Race("pyhudi", "pyhudi", "pyhudi", '`upsert(schema_mode="add")`', pyhudi_rows),
    Race("pyhudi", "pyhudi", "pyhudi", "`update_schema()`", pyhudi_alter),
    Race(
        "deltalake", "deltalake", "deltalake", '`write_deltalake(schema_mode="merge")`', delta_rows
    ),
    Race("deltalake", "deltalake", "deltalake", "`alter.add_columns`", delta_alter),
    Race("pyiceberg", "pyiceberg", "PyIceberg", "`append`", iceberg_append),
    Race("pyiceberg", "pyiceberg", "PyIceberg", "`union_by_name` and `append`", iceberg_rows),
    Race("pyiceberg", "pyiceberg", "PyIceberg", "`update_schema()`", iceberg_alter),
    Race("pylance", "lance", "Lance", "`write_dataset`", lance_append),
    Race("pylance", "lance", "Lance", "`add_columns`", lance_alter),
]


def line(race: Race, folder: Path) -> str:
    """Run one race in a new folder; return its line of the table."""
    try:
        found = race.run(folder)
    except NoRaceError as error:
        end = f"new columns are refused, also without a race: `{error}` | | "
    else:
        second = "completes" if found.error is None else f"`{type(found.error).__name__}`"
        columns = ", ".join(f"`{column}`" for column in found.columns)
        end = f"{second} | {columns} | {found.rows}"
    return f"| {race.name} {version(race.package)} | {race.call} | {end} |"


def main() -> None:
    """Run every race of a format that is installed, and print the outcomes as Markdown."""
    logging.disable(logging.CRITICAL)  # PyIceberg says each retry
    print("| format | both call | the second writer | columns afterwards | rows |")
    print("| --- | --- | --- | --- | --- |")
    missing = set()
    for number, race in enumerate(RACES):
        try:
            import_module(race.module)
        except ImportError:
            missing.add(race.package)
            continue
        with tempfile.TemporaryDirectory() as folder:
            print(line(race, Path(folder).resolve() / f"race{number}"), flush=True)
    if missing:
        print(f"not installed: {', '.join(sorted(missing))}. {__doc__}", file=sys.stderr)


if __name__ == "__main__":
    main()
