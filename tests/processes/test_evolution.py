"""Processes that add columns at the same time: no column is lost, nor a row.

`PYHUDI_EVOLUTIONS` says how many tables of each kind are made in which a process is killed.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import pyhudi
from processes.evolver import (
    COLUMNS,
    FIRST,
    ROUNDS,
    SETTINGS,
    WRITERS,
    called_mark,
    column_of,
    rows_of,
)
from processes.stores import TESTS
from pyhudi.storage.open import open_storage
from schema_scenarios import requires_one_schema

KINDS: dict[str, dict[str, Any]] = {
    "non-blocking": {"table_type": "mor", "ordering": "ts"},
    "copy on write": {"table_type": "cow", "ordering": "ts"},
}
EVERY = list(product(range(WRITERS), range(COLUMNS)))
SEEDS = int(os.environ.get("PYHUDI_EVOLUTIONS", "0"))
KILLS = list(product(KINDS, range(SEEDS))) or [("non-blocking", 0)]
END_S = 120


def created(path: Path, kind: str) -> pyhudi.Table:
    # Two buckets, for the optimistic writers are to get in each other's way, but not always.
    buckets = pyhudi.SimpleBuckets(2)
    return pyhudi.create_table(
        path,
        FIRST,
        record_key="id",
        buckets=buckets,
        write_settings=SETTINGS,
        **KINDS[kind],
        upkeep=False,
    )


def started(table: pyhudi.Table, folder: Path, writer: int, mode: str) -> subprocess.Popen[bytes]:
    arguments = [table.uri, str(folder), str(writer), mode]
    command = [sys.executable, "-m", "processes.evolver", *arguments]
    with (folder / f"stderr-{writer}.txt").open("ab") as stderr:
        return subprocess.Popen(command, cwd=TESTS, stdin=subprocess.DEVNULL, stderr=stderr)


def await_ends(folder: Path, processes: list[subprocess.Popen[bytes]]) -> None:
    try:
        codes = [process.wait(END_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    said = [path.read_text("utf-8")[-2_000:] for path in sorted(folder.glob("stderr-*.txt"))]
    assert codes == [0] * len(processes), "\n".join(said)


def require_all(table: pyhudi.Table, mode: str) -> None:
    """Each column and each row, and one schema by either order of commits."""
    columns = [column_of(*each) for each in EVERY]
    assert sorted(table.schema.arrow.names) == sorted([*FIRST.names, *columns])
    nulls = dict.fromkeys(columns)
    calls = product(range(WRITERS), ROUNDS[mode])
    rows = [row for call in calls for row in rows_of(*call).to_pylist()]
    rows.sort(key=lambda row: row["ts"])  # the last one counts
    expected = {row["id"]: {**nulls, **row} for row in rows}
    for found in (table, pyhudi.open_table(table.uri)):
        seen = found.read().to_arrow()
        assert seen.num_rows == len(expected)
        assert {row["id"]: row for row in seen.to_pylist()} == expected


@pytest.mark.parametrize(("kind", "mode"), [("non-blocking", "add"), ("copy on write", "merge")])
def test_four_processes_that_add_five_columns_each_at_the_same_time_lose_none(
    kind: str, mode: str, tmp_path: Path
) -> None:
    table = created(tmp_path / "table", kind)
    await_ends(tmp_path, [started(table, tmp_path, writer, mode) for writer in range(WRITERS)])
    require_all(table, mode)
    requires_one_schema(open_storage(str(tmp_path / "table")))
    evolved = table.inspect.schema_history()
    added = [change["path"] for row in evolved["change"].to_pylist()[1:] for change in row]
    assert sorted(added) == sorted(column_of(*each) for each in EVERY)
    if kind == "non-blocking":
        assert table.services.compact().results
        require_all(table, mode)


@pytest.mark.parametrize(("kind", "seed"), KILLS)
def test_a_process_that_is_killed_while_it_adds_columns_adds_them_when_it_is_started_again(
    kind: str, seed: int, tmp_path: Path
) -> None:
    chance, mode = random.Random(seed), "merge"
    table = created(tmp_path / "table", kind)
    processes = [started(table, tmp_path, writer, mode) for writer in range(WRITERS)]
    victim, turn = chance.randrange(WRITERS), chance.randrange(COLUMNS)
    try:
        while not called_mark(tmp_path, victim, turn).exists():
            assert processes[victim].poll() is None
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.15))  # it begins, writes or completes
        processes[victim].kill()
        processes[victim].wait()
        processes[victim] = started(table, tmp_path, victim, mode)
    finally:
        await_ends(tmp_path, processes)
    require_all(table, mode)
    requires_one_schema(open_storage(str(tmp_path / "table")))
