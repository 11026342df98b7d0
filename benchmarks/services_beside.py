"""The throughput of two writers while the table that they write is compacted.

Both upsert without a pause, each rows of its own. Beside them a process compacts the table, then
burns CPU for as long and as much of it as that compaction took, then rests for as long, and so on.
Two cores do not have room for all three, so being alone is no fair comparison: what counts is
compaction against the burner. That is what the writers lose beyond their share of CPU.

Rented cores are twice as fast in one second as in another, by what else is on the machine. So what
is compared takes turns every few seconds on the same table, and the rates of all spans of a kind
are averaged, each as one: seconds are not added up, for a compaction takes more of them while cores
are slow. What a single turn gives is printed as well, to show how far that still swings.

After each turn all rows are read: none is lost, and those that were written are the newest.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from services_side import ALONE, BURNER, COMPACTION
from services_started import LOCAL, Side, at_least, progress, started
from writes import PARTITIONS, Inputs

BUCKETS = 2
LOGS = 5
WRITERS = 2
GOAL = 0.9
ORDER = (COMPACTION, BURNER, COMPACTION, BURNER, ALONE)
#: Time for the writers to open the table and warm up before they are measured.
LEAD_S = 3.0


@dataclass(frozen=True)
class Size:
    table_rows: int
    upsert_rows: tuple[int, ...]
    seconds: float
    turns: int


FULL = Size(table_rows=1_000_000, upsert_rows=(100, 20_000), seconds=75.0, turns=3)
QUICK = Size(table_rows=50_000, upsert_rows=(100, 2_000), seconds=6.0, turns=1)


@dataclass
class Tally:
    """Spans of one kind: the upserts a second in each, and the cores of the process beside them."""

    rates: list[float] = field(default_factory=list)
    cores: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return statistics.mean(self.rates)


@dataclass
class Beside:
    """The writers, the process beside them, and what the writers reached together."""

    writers: list[Side]
    other: Side
    table: Path
    sources: list[str]  # of each writer
    rows: int  # of the table
    upsert_rows: int
    seconds: float
    whole: dict[str, Tally] = field(default_factory=dict)
    ratios: list[float] = field(default_factory=list)  # of each turn

    def turn(self) -> None:
        copy = self.table.with_name("copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.table, copy)
        os.sync()
        begin = time.monotonic() + LEAD_S
        asked = {"table": str(copy), "begin": begin, "end": begin + self.seconds}
        with ThreadPoolExecutor(1 + WRITERS) as pool:
            beside = pool.submit(self.other.ask, "take turns", order=ORDER, **asked)
            numbered = enumerate(zip(self.writers, self.sources, strict=True), start=1)
            writers = [
                pool.submit(writer.ask, "upsert", source=source, ts=number * 10**6, **asked)
                for number, (writer, source) in numbered
            ]
            wrote, spans = [answer.result() for answer in writers], beside.result()["spans"]
        self._count([one["moments"] for one in wrote], spans)
        self._check(str(copy), [one["ts"] for one in wrote])

    def _count(self, moments: list[list[float]], spans: list[dict[str, Any]]) -> None:
        """Take the spans during which all writers wrote."""
        first, last = max(each[0] for each in moments), min(each[-1] for each in moments)
        turn: dict[str, Tally] = {}
        for span in spans:
            between = (span["begin"], span["end"])
            if first <= between[0] and between[1] <= last:
                counts = [np.interp(between, each, np.arange(len(each))) for each in moments]
                rate = float(sum(np.diff(count)[0] for count in counts)) / (between[1] - between[0])
                for tallies in (self.whole, turn):
                    tally = tallies.setdefault(span["what"], Tally())
                    tally.rates.append(rate)
                    tally.cores.append(span["cores"])
                progress(f"{self.upsert_rows:,} rows, {span['what']}: {rate:.2f} upserts/s")
        assert turn.keys() == set(ORDER), "too short for one span of each kind"
        self.ratios.append(turn[COMPACTION].rate / turn[BURNER].rate)

    def _check(self, table: str, last: list[int]) -> None:
        """Nothing is lost, and each writer's rows are as it wrote them last."""
        found = self.other.ask("newest", table=table, last=last)
        rows = {"rows": self.rows, "keys": self.rows, "last": [self.upsert_rows] * WRITERS}
        assert found == rows, f"{found}, expected {rows}"

    def report(self) -> bool:
        cells = [f"{what} {self.whole[what].rate:.2f}" for what in (ALONE, COMPACTION, BURNER)]
        print(f"    upserts of {self.upsert_rows:,} rows a second: {', '.join(cells)}")
        compaction, burner = self.whole[COMPACTION], self.whole[BURNER]
        print(
            f"      {len(compaction.cores)} compactions, which took "
            f"{statistics.mean(compaction.cores):.2f} cores; the burner "
            f"{statistics.mean(burner.cores):.2f}; the ratio of each turn: "
            f"{', '.join(f'{ratio:.2f}' for ratio in self.ratios)}"
        )
        what = f"writers of {self.upsert_rows:,} rows, beside compaction to their share of CPU"
        return at_least(what, compaction.rate / burner.rate, GOAL)


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
        f"{PARTITIONS * BUCKETS} slices with {LOGS} logs, {size.turns} turns of {size.seconds:g} s",
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
                beside.turn()
            met &= beside.report()
    return met
