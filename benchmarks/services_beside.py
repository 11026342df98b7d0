"""The throughput of two writers while the table that they write is compacted.

Both upsert for a fixed time, each rows of its own, in three variants that take turns, each on a new
copy of the same table: alone, beside a process that compacts the table again and again, and beside
one that does nothing but burn CPU. Two cores do not have room for all three, so being alone is no
fair comparison: what counts is compaction against the burner, which takes as much CPU as compaction
has just taken. That is what the writers lose beyond their share of CPU. Medians count.
After each turn all rows are read: none is lost, and those that were written are the newest.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from services_started import LOCAL, Side, at_least, progress, started
from writes import PARTITIONS, Inputs

BUCKETS = 2
LOGS = 5
WRITERS = 2
GOAL = 0.9
ALONE, COMPACTION, BURNER = "alone", "beside compaction", "beside a burner"
#: Time for the writers to open the table and warm up before they are measured.
LEAD_S = 3.0


@dataclass(frozen=True)
class Size:
    table_rows: int
    upsert_rows: tuple[int, ...]
    seconds: float
    turns: int


FULL = Size(table_rows=1_000_000, upsert_rows=(100, 20_000), seconds=15.0, turns=5)
QUICK = Size(table_rows=50_000, upsert_rows=(100, 2_000), seconds=2.0, turns=1)


@dataclass
class Beside:
    """The writers, the process beside them, and what the writers reached together in each turn."""

    writers: list[Side]
    other: Side
    table: Path
    sources: list[str]  # of each writer
    rows: int  # of the table
    upsert_rows: int
    seconds: float
    reached: dict[str, list[float]] = field(default_factory=dict)
    cores: dict[str, list[float]] = field(default_factory=dict)
    compactions: list[int] = field(default_factory=list)

    def turn(self, variant: str) -> None:
        copy = self.table.with_name("copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.table, copy)
        os.sync()
        begin = time.monotonic() + LEAD_S
        when = {"begin": begin, "end": begin + self.seconds}
        with ThreadPoolExecutor(1 + WRITERS) as pool:
            beside = pool.submit(self._disturb, variant, str(copy), when)
            asked = [
                pool.submit(
                    writer.ask, "upsert", table=str(copy), source=source, ts=number * 10**6, **when
                )
                for number, (writer, source) in enumerate(
                    zip(self.writers, self.sources, strict=True), start=1
                )
            ]
            wrote, disturbed = [answer.result() for answer in asked], beside.result()
        upserts = sum(one["upserts"] / one["seconds"] for one in wrote)
        self.reached.setdefault(variant, []).append(upserts)
        self.cores.setdefault(variant, []).append(disturbed.get("cores", 0.0))
        if variant == COMPACTION:
            self.compactions.append(disturbed["compactions"])
        self._check(str(copy), [one["ts"] for one in wrote])
        progress(f"{self.upsert_rows:,} rows, {variant}: {upserts:.2f} upserts/s")

    def _disturb(self, variant: str, table: str, when: Mapping[str, float]) -> dict[str, Any]:
        if variant == BURNER:
            return self.other.ask("burn", cores=self.cores[COMPACTION][-1], **when)
        if variant == COMPACTION:
            return self.other.ask("compact on", table=table, **when)
        return {}

    def _check(self, table: str, last: list[int]) -> None:
        """Nothing is lost, and each writer's rows are as it wrote them last."""
        found = self.other.ask("newest", table=table, last=last)
        rows = {"rows": self.rows, "keys": self.rows, "last": [self.upsert_rows] * WRITERS}
        assert found == rows, f"{found}, expected {rows}"

    def report(self) -> bool:
        each = {variant: statistics.median(found) for variant, found in self.reached.items()}
        cells = [f"{variant} {found:.2f}" for variant, found in each.items()]
        print(f"    upserts of {self.upsert_rows:,} rows a second: {', '.join(cells)}")
        cores = {variant: statistics.median(found) for variant, found in self.cores.items()}
        print(
            f"      {statistics.median(self.compactions):g} compactions in each turn, which took "
            f"{cores[COMPACTION]:.2f} cores; the burner {cores[BURNER]:.2f}"
        )
        what = f"writers of {self.upsert_rows:,} rows, beside compaction to their share of CPU"
        return at_least(what, each[COMPACTION] / each[BURNER], GOAL)


def build(side: Side, folder: Path, size: Size) -> tuple[Path, dict[int, list[str]]]:
    """The table, and for each size of an upsert the rows that each writer has."""
    inputs, table = Inputs(folder, size.table_rows), folder / "table"
    upserts = [
        inputs.make(f"log-{n}", _some(size, n, size.table_rows // 20), 2 + n) for n in range(LOGS)
    ]
    load = inputs.load()
    made = side.ask("build", table=str(table), buckets=BUCKETS, load=load, upserts=upserts)
    assert made["least"] == LOGS, made
    sources = {}
    for count in size.upsert_rows:
        parts = np.split(_some(size, 100, count * WRITERS), WRITERS)
        sources[count] = [
            inputs.make(f"rows-{count}-{n}", part, 100) for n, part in enumerate(parts)
        ]
    return table, sources


def _some(size: Size, seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).choice(size.table_rows, count, replace=False)


def main(*, is_quick: bool = False) -> bool:
    size = QUICK if is_quick else FULL
    print(
        f"  {WRITERS} writers beside compaction: a table of {size.table_rows:,} rows in "
        f"{PARTITIONS * BUCKETS} slices with {LOGS} logs, {size.turns} turns of "
        f"{size.seconds:g} s, medians",
        flush=True,
    )
    met = True
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        with started(LOCAL, folder) as builder:
            table, sources = build(builder, folder, size)
        sides = [stack.enter_context(started(LOCAL, folder)) for _ in range(WRITERS + 1)]
        for rows, own in sources.items():
            beside = Beside(
                sides[:WRITERS], sides[-1], table, own, size.table_rows, rows, size.seconds
            )
            for _ in range(size.turns):
                for variant in (ALONE, COMPACTION, BURNER):
                    beside.turn(variant)
            met &= beside.report()
    return met
