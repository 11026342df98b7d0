"""Writes from a cluster, whose executors and drivers are killed in the midst of them.

Where a task stops is no matter of chance: a gate holds it before it creates a file, and lets it go
when the test says so (`cluster.Gates`). A held task outlives its executor, as one on a machine
that was cut off would.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from spark.cluster import Call, Cluster, Driver, executor_of, is_alive, running_cluster, until
from spark.drivers.verbs import (
    SCHEMA,
    Row,
    create,
    frame,
    row,
    rows_of,
    steps,
    unknown_files,
)

pytestmark = pytest.mark.spark

_SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "2",
    # For the only task of a stage, which has no others to be compared with.
    "spark.speculation.task.duration.threshold": "2s",
}
#: Spark gives up an attempt, but lets its Python worker live: this is the time it would have.
_LATE = {"spark.python.task.killTimeout": "600s"}

_FIRST = [row(number) for number in range(12)]
_SECOND = [row(number, 2, "b") for number in range(6, 18)]
_BOTH = frozenset([*_FIRST[:6], *_SECOND])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


class Drivers:
    """One driver for all tests, and another in its place when it was killed."""

    def __init__(self, cluster: Cluster, stack: ExitStack) -> None:
        self._cluster = cluster
        self._stack = stack
        self._made: list[Driver] = []

    def living(self) -> Driver:
        if not self._made or not self._made[-1].is_running():
            name = f"driver{len(self._made)}"
            made = self._cluster.driver(name, {**_SPECULATION, **_LATE})
            self._made.append(self._stack.enter_context(made))
        return self._made[-1]


@pytest.fixture(scope="module")
def drivers(cluster: Cluster) -> Iterator[Drivers]:
    with ExitStack() as stack:
        yield Drivers(cluster, stack)


@pytest.fixture
def driver(drivers: Drivers) -> Iterator[Driver]:
    """With no task at a gate, before and after."""
    driver = drivers.living()
    driver.gates.clear()
    yield driver
    driver.gates.release()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A table with the first rows."""
    table = create(str(tmp_path / "table"))
    table.append(_arrow(_FIRST))
    return tmp_path / "table"


def _arrow(rows: list[Row]) -> Any:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, r, strict=True)) for r in rows], SCHEMA)


def _upsert(driver: Driver, path: Path, source: Any = None, **settings: Any) -> Call:
    """Of the second rows, unless others are given."""
    source = source or frame(_SECOND)
    return driver.begin("write", table=str(path), verb="upsert", source=source, settings=settings)


def _repaired(path: Path) -> set[str]:
    """What nobody knows of after a repair: nothing, if all is well."""
    pyhudi.open_table(path).services.repair(grace_minutes=0)
    return unknown_files(path)


def test_every_verb_leaves_the_right_rows(driver: Driver, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    create(path)
    for step in steps():
        done = driver.ask(
            "write", table=path, verb=step.verb, source=step.source, options=step.options
        )
        assert "error" not in done, done
        assert rows_of(path) == step.rows, step.verb
    assert driver.ask("read", table=path) == sorted(r[0] for r in rows_of(path))
    assert not unknown_files(Path(path))


def test_a_task_whose_worker_is_killed_is_repeated(driver: Driver, path: Path) -> None:
    driver.gates.hold("data")
    write = _upsert(driver, path)
    os.kill(driver.gates.held()[0], signal.SIGKILL)
    assert write.answer().get("rows") == len(_SECOND)
    assert rows_of(str(path)) == _BOTH
    assert not unknown_files(path)


@pytest.mark.parametrize("markers", ["direct", "server"])
def test_a_slow_attempt_is_overtaken_and_changes_nothing(
    driver: Driver, path: Path, markers: str
) -> None:
    driver.gates.hold("data")
    write = _upsert(driver, path, markers=markers)
    pid = driver.gates.held()[0]
    assert write.answer().get("rows") == len(_SECOND)
    assert is_alive(pid)
    driver.gates.release()
    assert driver.gates.passed(pid) == "taken"
    assert rows_of(str(path)) == _BOTH
    assert not unknown_files(path)


def test_a_cancelled_write_is_rolled_back(driver: Driver, path: Path) -> None:
    driver.gates.hold("marker", count=2)  # a second attempt, too, if the first was slow to come
    write = _upsert(driver, path)
    pid = driver.gates.held()[0]
    driver.ask("cancel")
    assert "cancelled" in write.answer().get("text", "")
    assert rows_of(str(path)) == frozenset(_FIRST)
    assert not unknown_files(path)
    driver.gates.release()
    assert driver.gates.passed(pid) == "created"  # the marker, at which the task found it is over
    assert not unknown_files(path)


# ---- input that is another each time it is computed


def _fickle(folder: Path) -> dict[str, Any]:
    """First a row of one day, when computed again one of the next, and so on."""
    folder.mkdir()
    versions = [frame([row(number, 2, "fickle")]) for number in (100, 101, 102, 103)]
    return {
        "versions": [version["rows"] for version in versions],
        "columns": versions[0]["columns"],
        "folder": str(folder),
    }


def test_an_attempt_with_other_rows_that_is_late_stays_invisible(
    driver: Driver, path: Path, tmp_path: Path
) -> None:
    driver.gates.hold("marker")
    write = _upsert(driver, path, _fickle(tmp_path / "computed"))
    pid = driver.gates.held()[0]
    assert write.answer().get("rows") == 1  # by an attempt that overtook the one that is held
    before = rows_of(str(path))
    # The second one computed, but if it overtook the first before the gate.
    assert before in [frozenset([*_FIRST, row(n, 2, "fickle")]) for n in (100, 101)]
    driver.gates.release()
    assert driver.gates.passed(pid) == "created"  # the marker, at which it found that it is late
    assert rows_of(str(path)) == before
    assert not unknown_files(path)


def test_attempts_that_write_other_rows_stop_the_write(
    driver: Driver, path: Path, tmp_path: Path
) -> None:
    driver.gates.hold("data")
    write = _upsert(driver, path, _fickle(tmp_path / "computed"))
    pid = driver.gates.held()[0]
    error = write.answer()
    assert error.get("error") == "InvalidRequestError", error
    assert "two attempts of one task disagree" in error["text"]
    assert rows_of(str(path)) == frozenset(_FIRST)
    driver.gates.release()
    assert driver.gates.passed(pid) == "created"  # of an instant that is given up
    assert rows_of(str(path)) == frozenset(_FIRST)
    assert not _repaired(path)


# ---- what is killed, and has to be started again


def test_a_task_that_outlives_its_executor_changes_nothing(driver: Driver, path: Path) -> None:
    driver.gates.hold("data")
    write = _upsert(driver, path)
    pid = driver.gates.held()[0]
    os.kill(executor_of(pid), signal.SIGKILL)
    assert write.answer().get("rows") == len(_SECOND)
    assert rows_of(str(path)) == _BOTH
    driver.gates.release()
    assert driver.gates.passed(pid) == "taken"
    assert rows_of(str(path)) == _BOTH
    assert not unknown_files(path)


@pytest.mark.parametrize("markers", ["direct", "server"])
def test_what_a_killed_driver_began_is_rolled_back_by_the_next_writer(
    driver: Driver, path: Path, markers: str
) -> None:
    driver.gates.hold("data")
    _upsert(driver, path, heartbeat_interval_ms=1_000, markers=markers)
    pid = driver.gates.held()[0]
    lists = list((path / ".hoodie" / ".temp").glob("*/MARKERS*"))
    assert bool(lists) is (markers == "server")
    driver.kill()
    assert rows_of(str(path)) == frozenset(_FIRST)
    assert unknown_files(path)  # the instant is pending
    settings = pyhudi.WriteSettings(heartbeat_interval_ms=1_000)
    table = pyhudi.open_table(path, write_settings=settings)

    def is_rolled_back() -> bool:
        table.upsert(_arrow(_SECOND))
        return not unknown_files(path)

    until(is_rolled_back, "the rollback of what the driver began")
    assert rows_of(str(path)) == _BOTH
    driver.gates.release()
    assert driver.gates.passed(pid) == "created"  # of an instant that is given up
    assert rows_of(str(path)) == _BOTH
    assert not _repaired(path)
