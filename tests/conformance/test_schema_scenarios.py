"""After each scenario of RFC-82 Hudi, hudi-rs and pyhudi give the same columns and the same rows.

pyhudi makes both writes. All tables are made first, and the judges are asked for all of them at
once: after the writes, and once more after a compaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from conformance.client import JudgeClient
from conformance.rows import assert_same_rows, spark_columns
from schema_scenarios import CELLS, SCENARIOS, TableOnDisk, play, requires_one_schema

pytestmark = [pytest.mark.judge, pytest.mark.conformance]

Cell = tuple[int, str, str]  # row of the RFC's table, kind of table, strategy

MERGE_ON_READ = [cell for cell in CELLS if cell[1] != "copy on write"]

#: Here a log block lacks a column that was added, and holds another one that was widened since.
RS_READS_NO_LOG = [
    (8, "optimistic", "reconcile"),
    (8, "non-blocking", "reconcile"),
]
WHY_NOT = "partial-update column 'v' has type Int32 but the table schema expects Int64"


@dataclass(frozen=True, slots=True)
class Readings:
    """What the readers give for one table; the judges' are answers, which may be errors."""

    ours: pa.Table
    columns_by_hudi: Mapping[str, Any]
    rows_by_hudi: Mapping[str, Any]
    rows_by_rs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Played:
    """The tables of all scenarios, and what was read of them."""

    tables: Mapping[Cell, TableOnDisk]
    refused: frozenset[Cell]
    written: Mapping[Cell, Readings]
    compacted: Mapping[Cell, Readings]


@pytest.fixture(scope="module")
def played(judge: JudgeClient, tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("scenarios")
    tables = {cell: TableOnDisk(folder / f"t{n}", cell[1]) for n, cell in enumerate(CELLS)}
    refused = frozenset(cell for cell, table in tables.items() if play(table, *cell) is not None)
    written = readings(judge, tables, CELLS)
    for cell in MERGE_ON_READ:
        assert tables[cell].table("compactor").services.compact().results
    return Played(tables, refused, written, readings(judge, tables, MERGE_ON_READ))


def readings(
    judge: JudgeClient, tables: Mapping[Cell, TableOnDisk], cells: Iterable[Cell]
) -> dict[Cell, Readings]:
    asked = [*cells]
    questions = [
        {"cmd": command, "path": tables[cell].path}
        for cell in asked
        for command in ("schema", "read", "rs-read")
    ]
    answers = iter(judge.ask("several", commands=questions))
    return {
        cell: Readings(
            tables[cell].table("reader").read(meta=True).to_arrow(),
            next(answers),
            next(answers),
            next(answers),
        )
        for cell in asked
    }


def agree(found: Readings, expected: pa.Table, *, by_rs: bool = True) -> None:
    """Each reader gives these columns and rows, and all give the same of Hudi's own columns."""
    columns = spark_columns(expected.schema)
    assert spark_columns(found.ours.schema) == columns
    assert found.columns_by_hudi.get("rows") == [{"schema": columns}], found.columns_by_hudi
    for answer in (found.rows_by_hudi, *((found.rows_by_rs,) if by_rs else ())):
        assert answer["ok"], answer
        assert_same_rows(expected, answer["rows"], meta=False)
        assert_same_rows(found.ours, answer["rows"])


@pytest.mark.parametrize(("number", "kind", "strategy"), CELLS)
def test_all_readers_find_what_the_table_of_the_rfc_says(
    played: Played, number: int, kind: str, strategy: str
) -> None:
    cell, scenario = (number, kind, strategy), SCENARIOS[number]
    assert (cell in played.refused) is scenario.is_refused(strategy)
    requires_one_schema(played.tables[cell].storage)
    agree(played.written[cell], scenario.end(strategy), by_rs=cell not in RS_READS_NO_LOG)


@pytest.mark.parametrize(("number", "kind", "strategy"), RS_READS_NO_LOG)
def test_hudi_rs_still_does_not_read_these_logs_before_a_compaction(
    played: Played, number: int, kind: str, strategy: str
) -> None:
    answer = played.written[number, kind, strategy].rows_by_rs
    assert not answer["ok"]
    assert WHY_NOT in answer["error"]


@pytest.mark.parametrize(("number", "kind", "strategy"), MERGE_ON_READ)
def test_all_readers_find_the_same_after_a_compaction(
    played: Played, number: int, kind: str, strategy: str
) -> None:
    agree(played.compacted[number, kind, strategy], SCENARIOS[number].end(strategy))
