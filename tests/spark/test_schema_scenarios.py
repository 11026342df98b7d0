"""Scenarios of RFC-82 in two Spark drivers, each a process of its own, whose writes overlap.

The own write begins, and computes its rows until the other write has completed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import pyhudi
from schema_scenarios import (
    COLUMNS,
    SCENARIOS,
    STRATEGIES,
    TABLES,
    TableOnDisk,
    begin,
    requires_one_schema,
    row,
)
from spark.committers import Signals, SparkDriver, overtaken, running_drivers

pytestmark = pytest.mark.spark

#: Those in which another write changes the table's schema meanwhile. Each comes with both
#: strategies, each of which meets every kind of table.
CASES = [
    (number, list(TABLES)[(at + by) % len(TABLES)], strategy)
    for by, strategy in enumerate(STRATEGIES)
    for at, number in enumerate((3, 6, 7, 8))
]


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[SparkDriver]]:
    with running_drivers(tmp_path_factory.mktemp("drivers"), ("own", "theirs")) as running:
        yield running


def write(driver: SparkDriver, table: Path, columns: str, signals: Signals, strategy: str) -> None:
    """Have the driver write one row, in a partition of its own."""
    kept = [f"{COLUMNS[one].name} {COLUMNS[one].in_spark}" for one in columns]
    commit = {
        "name": driver.name,
        "verb": "upsert",
        "rows": [list(row(driver.name, columns).values())],
        "columns": ", ".join(["id string", "day string", "ts long", *kept]),
        "options": {},
        "signals": signals,
    }
    settings = {"schema_strategy": strategy, "schema_mode": "merge", "job": driver.name}
    driver.begin(table, [commit], settings)


@pytest.mark.parametrize(("number", "kind", "strategy"), CASES)
def test_two_spark_drivers_end_as_the_table_of_the_rfc_says(
    tmp_path: Path, drivers: list[SparkDriver], number: int, kind: str, strategy: str
) -> None:
    scenario, made = SCENARIOS[number], TableOnDisk(tmp_path / "t", kind)
    begin(made, has_schema=scenario.start is not None)
    (own, other), (first, later) = drivers, overtaken(tmp_path)
    assert scenario.theirs is not None
    write(own, made.path, scenario.own, first, strategy)
    write(other, made.path, scenario.theirs, later, "reconcile")
    [theirs], [answer] = other.ends(), own.ends()

    # A driver that is refused writes again, now to the schema that the other left.
    assert theirs["conflicts"] == []
    lost = [conflict["facts"]["rule"] for conflict in answer["conflicts"]]
    assert lost == ["schema_evolved"] * scenario.is_refused(strategy)
    table = pyhudi.open_table(made.path)
    assert table.read().to_arrow().sort_by("id").equals(scenario.end_of_all().sort_by("id"))
    requires_one_schema(made.storage)
    assert all(one["completed"] for one in table.inspect.timeline().to_pylist())
