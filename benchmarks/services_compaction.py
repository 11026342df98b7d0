"""Compaction of one table: pyhudi's local engine, pyhudi in Spark, and Apache Hudi.

The table is written once, by pyhudi, and every engine compacts copies of the same files, with the
same codec, in a process that has compacted before. Copying is not counted. What is compared is CPU
seconds of whole process trees, planning and commit included. Then both readers read what each
engine left, all columns of all rows, and nothing may have changed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from measure import Cost
from services_started import HUDI, LOCAL, SPARK, Side, at_least, progress, started
from writes import BUCKETS, PARTITIONS, Inputs

from conformance.client import JudgeMissingError

LOGS = 5
CPU_GOAL = 5.0
#: The processes that merge rows.
PROCESSES = {LOCAL: "python", SPARK: "pyspark.worker", HUDI: "java"}


@dataclass(frozen=True)
class Size:
    rows: int
    turns: int
    warm_up_rows: int
    warm_ups: int


FULL = Size(rows=2_000_000, turns=3, warm_up_rows=100_000, warm_ups=3)
QUICK = Size(rows=100_000, turns=1, warm_up_rows=5_000, warm_ups=1)


def build(side: Side, folder: Path, rows: int) -> Path:
    """A table whose slices have a base file and five logs, each of a twentieth of the rows."""
    inputs, table = Inputs(folder / f"rows-{rows}", rows), folder / f"table-{rows}"
    inputs.folder.mkdir()
    upserts = [inputs.make(f"log-{turn}", _some(rows, turn), 2 + turn) for turn in range(LOGS)]
    made = side.ask("build", table=str(table), buckets=BUCKETS, load=inputs.load(), upserts=upserts)
    slices = PARTITIONS * BUCKETS
    assert made == {"slices": slices, "bases": slices, "logs": LOGS * slices, "least": LOGS}, made
    shutil.rmtree(inputs.folder)
    return table


def _some(rows: int, turn: int) -> np.ndarray:
    return np.random.default_rng(turn).choice(rows, rows // 20, replace=False)


@dataclass
class Comparison:
    """The engines, what each compaction took, and the table as it was built."""

    sides: list[Side]
    folder: Path
    table: Path
    costs: dict[str, list[Cost]] = field(default_factory=lambda: defaultdict(list))

    def turn(self, side: Side, table: Path, *, is_measured: bool) -> Path:
        """A copy of the table, compacted."""
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(table, copy)
        os.sync()
        cost = side.tree.cost_of(lambda: side.ask("compact", table=str(copy)))
        if is_measured:
            self.costs[side.name].append(cost)
        progress(f"{side.name}: {cost.wall_s:.1f} s, {cost.cpu_s:.1f} CPU s")
        return copy

    def run(self, turns: int) -> None:
        for turn in range(turns):
            for side in self.sides:
                copy = self.turn(side, self.table, is_measured=True)
                if turn == 0:
                    self._check(side, copy)
        shutil.rmtree(self.folder / "copy")

    def _check(self, side: Side, copy: Path) -> None:
        """Check that every slice is a base file alone, and that both readers read the same rows."""
        spark = next(side for side in self.sides if side.name == SPARK)
        slices = PARTITIONS * BUCKETS
        found = spark.ask("shape", table=str(copy))
        expected = {"slices": slices, "bases": slices, "logs": 0, "least": 0}
        assert found == expected, f"after {side.name}: {found}"
        before = spark.ask("digest", table=str(self.table))
        for reader in self.sides:
            if reader.name != LOCAL:
                after = reader.ask("digest", table=str(copy))
                assert after == before, f"{side.name} compacted, {reader.name} reads {after}"

    def best(self, name: str) -> Cost:
        costs = self.costs[name]
        return Cost(min(c.cpu_s for c in costs), min(c.wall_s for c in costs))

    def report(self, *, is_quick: bool) -> bool:
        """Print the costs. Without Hudi nothing is measured; only a quick run may do without."""
        for side in self.sides:
            best, process = self.best(side.name), PROCESSES[side.name]
            memory = side.tree.peak_memory_mb(process)
            print(
                f"    {side.name} ({side.versions}): {best.cpu_s:.2f} CPU s, {best.wall_s:.2f} s, "
                f"{memory:.0f} MB of memory in a {process} process"
            )
        if HUDI not in self.costs:
            print(
                f"  compaction, times as fast as Hudi: not measured{'' if is_quick else ' MISSED'}"
            )
            return is_quick
        hudi, met = self.best(HUDI), True
        for name in (LOCAL, SPARK):
            ours = self.best(name)
            wall = hudi.wall_s / ours.wall_s
            what = f"compaction, {name}, times as fast as Hudi (wall {wall:.1f}), CPU"
            met &= at_least(what, hudi.cpu_s / ours.cpu_s, CPU_GOAL)
        return met


def main(*, is_quick: bool = False) -> bool:
    size = QUICK if is_quick else FULL
    print(
        f"  compaction: {size.rows:,} rows of 11 columns in {PARTITIONS * BUCKETS} slices of a "
        f"base file and {LOGS} logs of {size.rows // 20:,} rows together, zstd; best of "
        f"{size.turns}",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        with started(LOCAL, folder) as builder:
            small, table = (build(builder, folder, n) for n in (size.warm_up_rows, size.rows))
        sides = [stack.enter_context(started(name, folder)) for name in (LOCAL, SPARK)]
        try:
            sides.append(stack.enter_context(started(HUDI, folder)))
        except JudgeMissingError as missing:
            print(f"    Hudi: skipped, for {missing}")
        comparison = Comparison(sides, folder, table)
        for side in sides:
            for _ in range(size.warm_ups):
                comparison.turn(side, small, is_measured=False)
        comparison.run(size.turns)
        return comparison.report(is_quick=is_quick)
