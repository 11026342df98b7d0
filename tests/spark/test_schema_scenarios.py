"""Scenarios of RFC-82 in two Spark drivers, each a process of its own, whose writes overlap.

The own write begins, and computes its rows until the other write has completed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from pyhudi.format.table.table_config import CREATE_SCHEMA
from pyhudi.format.timeline.commit_metadata import decode_commit_metadata
from pyhudi.format.timeline.instant import Instant, State
from pyhudi.read.schema_in_force import recorded_by_write
from pyhudi.session.properties import update_properties
from pyhudi.storage.open import open_storage
from pyhudi.timeline.timeline import WRITE_ACTIONS
from pyhudi.world import real_world
from spark.cluster import DRIVERS, Process

pytestmark = pytest.mark.spark

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
S1 = pa.schema([("id", pa.string()), ("day", pa.string()), ("ts", pa.int64()), ("v", pa.int32())])
VALUES = {"v": ("int", 1), "x": ("string", "x"), "y": ("int", 5)}
KINDS: dict[str, dict[str, Any]] = {
    "copy on write": {"ordering": "ts", "table_type": "cow"},
    "optimistic": {},
    "non-blocking": {"ordering": "ts"},
}

#: Scenario → the columns of the table at its start, of the other write and of the own one; the
#: columns afterwards; and whether the simple strategy refuses the own write.
SCENARIOS: dict[int, tuple[str | None, str, str, str, bool]] = {
    3: (None, "vx", "vy", "vxy", True),
    6: ("v", "vx", "v", "vx", False),
    7: ("v", "vx", "vx", "vx", False),
    8: ("v", "vx", "vy", "vxy", True),
}
#: Each scenario with both strategies, each of which meets every kind of table.
CASES = [
    (number, list(KINDS)[(at + by) % len(KINDS)], strategy)
    for by, strategy in enumerate(("simple", "reconcile"))
    for at, number in enumerate(SCENARIOS)
]


@dataclass(frozen=True, slots=True)
class SparkWriter:
    """A driver that writes what it reads from its input."""

    process: Process

    def heard(self) -> dict[str, Any]:
        assert self.process.popen.stdout is not None
        line = self.process.popen.stdout.readline()
        if not line:
            pytest.fail(f"a driver ended: {self.process.log}")
        found: dict[str, Any] = json.loads(line)
        return found

    def begin(self, path: Path, columns: str, signals: dict[str, Any], strategy: str) -> None:
        """Have it write one row, in a partition of its own."""
        name = Path(signals.get("done") or signals["begun"]).suffix[1:]
        row = [name, f"day of {name}", 1, *(VALUES[column][1] for column in columns)]
        types = ", ".join(f"{column} {VALUES[column][0]}" for column in columns)
        commit = {
            "name": name,
            "verb": "upsert",
            "rows": [row],
            "columns": f"id string, day string, ts long, {types}",
            "options": {},
            "signals": signals,
        }
        settings = {"schema_strategy": strategy, "schema_mode": "merge", "job": name}
        task = {"table": str(path), "settings": settings, "commits": [commit]}
        assert self.process.popen.stdin is not None
        self.process.popen.stdin.write(json.dumps(task) + "\n")
        self.process.popen.stdin.flush()

    def answer(self) -> dict[str, Any]:
        found = self.heard()
        assert self.heard() == {"done": True}
        return found


@pytest.fixture(scope="module")
def writers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SparkWriter, SparkWriter]]:
    folder = tmp_path_factory.mktemp("drivers")
    with ExitStack() as stack:
        made = []
        for name in ("own", "theirs"):
            settings = json.dumps({**_SETTINGS, "spark.local.dir": str(folder)})
            command = [sys.executable, str(DRIVERS / "committer.py"), name, settings]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            process = Process(command, folder / f"{name}.log", os.environ, **pipes)
            stack.callback(process.kill)
            made.append(SparkWriter(process))
        for writer in made:
            assert "ready" in writer.heard()
        own, theirs = made
        yield own, theirs


def create(path: Path, kind: str, *, has_schema: bool) -> None:
    buckets = pyhudi.SimpleBuckets(1)
    given: dict[str, Any] = {"record_key": "id", "partition_by": "day", **KINDS[kind]}
    table = pyhudi.create_table(path, S1, buckets=buckets, **given)
    if has_schema:
        row = {"id": "first", "day": "day of first", "ts": 1, "v": 1}
        table.upsert(pa.Table.from_pylist([row], S1))
    else:
        update_properties(open_storage(str(path)), _without_schema, real_world())


def _without_schema(values: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if name != CREATE_SCHEMA}


def requires_one_schema(path: Path) -> None:
    """Hudi's readers go by the greatest request, and RFC-82 by the greatest completion."""
    found: dict[Instant, str | None] = {}
    for file in (path / ".hoodie/timeline").iterdir():
        instant = Instant.parse(file.name) if file.is_file() else None
        if instant and instant.state is State.COMPLETED and instant.action in WRITE_ACTIONS:
            metadata = decode_commit_metadata(file.read_bytes(), file.name)
            found[instant] = recorded_by_write(metadata)
    writes = [instant for instant, schema in found.items() if schema is not None]
    by_request = max(writes, key=lambda instant: instant.requested)
    by_completion = max(writes, key=lambda instant: instant.completed or "")
    assert found[by_request] == found[by_completion]


@pytest.mark.parametrize(("number", "kind", "strategy"), CASES)
def test_two_spark_drivers_end_as_the_table_of_the_rfc_says(
    tmp_path: Path,
    writers: tuple[SparkWriter, SparkWriter],
    number: int,
    kind: str,
    strategy: str,
) -> None:
    path, (own, other) = tmp_path / "t", writers
    start, theirs, brought, expected, is_refused = SCENARIOS[number]
    create(path, kind, has_schema=start is not None)
    begun, done = str(tmp_path / "begun.own"), str(tmp_path / "done.theirs")
    own.begin(path, brought, {"begun": begun, "completes_after": [done]}, strategy)
    other.begin(path, theirs, {"begins_after": [begun], "done": done}, "reconcile")
    assert other.answer()["conflicts"] == []
    answer = own.answer()

    # A driver that is refused writes again, now to the schema that the other left.
    lost = [conflict["facts"]["rule"] for conflict in answer["conflicts"]]
    assert lost == (["schema_evolved"] if is_refused and strategy == "simple" else [])
    table = pyhudi.open_table(path)
    assert [name for name in table.schema.arrow.names if name in VALUES] == list(expected)
    written = {"own": brought, "theirs": theirs, **({"first": start} if start else {})}
    assert {row["id"]: row for row in table.read().to_arrow().to_pylist()} == {
        id_: {
            **dict(zip(("id", "day", "ts"), (id_, f"day of {id_}", 1), strict=True)),
            **{name: VALUES[name][1] if name in columns else None for name in expected},
        }
        for id_, columns in written.items()
    }
    requires_one_schema(path)
    assert all(row["completed"] for row in table.inspect.timeline().to_pylist())
