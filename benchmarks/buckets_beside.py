"""Writers whose buckets are split, beside the resize and beside a process that burns as much CPU.

Four writers of all keys upsert without a pause. Beside them a process splits every bucket in two,
in one call. Two cores do not have room for all of them, so being alone is no fair comparison: what
counts is the resize against a process that burns as much CPU for as long.

Each turn begins with a fresh copy of one table, because a table that a resize left, or on which
writers were fast, has more files than another one. A turn takes as long as what is in it: first the
resize, then as many seconds of the burner, and so on. Rented cores are twice as fast in one second
as in another, so the turns are short, and the rates of each kind are averaged.

Beside the throughput, the slowest commit is compared, and how long a closed resize held it is
printed. A resize that is cancelled misses the goal. After each turn all rows are read: none is
lost, and those that were written are the newest.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from buckets_held import held_s
from buckets_side import CONSISTENT
from buckets_started import started
from measure import verdict
from services_started import Side, at_least, progress
from writes import PARTITIONS, Inputs

WRITERS = 4
BUCKETS = 2
PARTS = 2
GOAL = 0.9
SLOWER_MAX_S = 2.0
ALONE, RESIZE, BURNER = "alone", "beside a resize", "beside a burner"


@dataclass(frozen=True)
class Size:
    rows: int
    upsert_rows: int
    turns: int


FULL, QUICK = Size(400_000, 2_000, 3), Size(40_000, 500, 1)


@dataclass(frozen=True)
class Turn:
    """What the writers reached in one turn, and what was beside them."""

    rate: float  # upserts a second, of all writers
    seconds: float
    cores: float
    slowest_s: float
    held_s: float  # that a closed resize held a commit
    did: dict[str, Any]  # the answer of the process beside them


@dataclass
class Beside:
    """The writers, the process beside them, and their turns."""

    writers: list[Side]
    other: Side
    table: Path
    sources: list[str]  # of each writer
    size: Size
    writes: str = "copied"
    turns: dict[str, list[Turn]] = field(default_factory=dict)

    def run(self) -> None:
        for _ in range(self.size.turns):
            split = {"parts": PARTS, "writes": self.writes}
            resized = self._turn(RESIZE, "split beside", **split)
            burnt = {"seconds": resized.seconds, "cores": resized.cores}
            self._turn(BURNER, "burn beside", **burnt)
        self._turn(ALONE, "burn beside", seconds=resized.seconds, cores=0.0)

    def _turn(self, kind: str, command: str, **asked: object) -> Turn:
        copy, signals = self.table.with_name("copy"), self.table.with_name("signals")
        for each in (copy, signals):
            shutil.rmtree(each, ignore_errors=True)
        shutil.copytree(self.table, copy)
        signals.mkdir()
        os.sync()
        where = {"table": str(copy), "signals": str(signals)}
        with ThreadPoolExecutor(1 + len(self.writers)) as pool:
            beside = pool.submit(
                self.other.ask, command, writers=len(self.writers), **where, **asked
            )
            numbered = enumerate(zip(self.writers, self.sources, strict=True))
            writing = [
                pool.submit(
                    each.ask,
                    "upsert beside",
                    source=source,
                    ts=(n + 1) * 10**6,
                    number=n,
                    **where,
                )
                for n, (each, source) in numbered
            ]
            did, wrote = beside.result(), [answer.result() for answer in writing]
        self._check(str(copy), [one["ts"] for one in wrote])
        turn = self._counted(copy, [one["moments"] for one in wrote], did)
        self.turns.setdefault(kind, []).append(turn)
        progress(f"{kind}: {turn.rate:.2f} upserts/s in {turn.seconds:.1f} s, {did}")
        return turn

    def _counted(self, copy: Path, moments: list[list[float]], did: dict[str, Any]) -> Turn:
        begin, end = did["begin"], did["end"]
        assert max(each[0] for each in moments) <= begin
        assert min(each[-1] for each in moments) >= end
        upserts = sum(np.diff(np.interp((begin, end), m, np.arange(len(m))))[0] for m in moments)
        commits = [pair for each in moments for pair in pairwise(each)]
        slowest_s = max(b - a for a, b in commits if a < end and b > begin)
        held = held_s(self.other, copy, commits)
        seconds = end - begin
        return Turn(upserts / seconds, seconds, did["cores"], slowest_s, held, did)

    def _check(self, table: str, last: list[int]) -> None:
        """Nothing is lost, and each writer's rows are as it wrote them last."""
        found = self.other.ask("newest", table=table, last=last)
        rows, upserted = self.size.rows, [self.size.upsert_rows] * len(self.writers)
        expected = {"rows": rows, "keys": rows, "last": upserted}
        assert found == expected, f"{found}, expected {expected}"

    # -- what they reached

    def rate(self, kind: str) -> float:
        return statistics.mean(turn.rate for turn in self.turns[kind])

    def slowest_s(self, kind: str) -> float:
        return max(turn.slowest_s for turn in self.turns[kind])

    @property
    def ratio(self) -> float:
        return self.rate(RESIZE) / self.rate(BURNER)

    def report(self) -> bool:
        """Print what was reached. True if each resize split every bucket."""
        resizes, burners = self.turns[RESIZE], self.turns[BURNER]
        cells = [f"{kind} {self.rate(kind):.1f}" for kind in (ALONE, RESIZE, BURNER)]
        print(f"    upserts a second: {', '.join(cells)}")
        ratios = [a.rate / b.rate for a, b in zip(resizes, burners, strict=True)]
        print(
            f"      the ratio of each pair of turns: {', '.join(f'{r:.2f}' for r in ratios)};"
            f" cores: {statistics.mean(t.cores for t in resizes):.2f} a resize,"
            f" {statistics.mean(t.cores for t in burners):.2f} the burner"
        )
        for turn in resizes:
            did = turn.did
            failed = f"; FAILED: {did['failed'][0]}" if did["failed"] else ""
            print(
                f"      {turn.seconds:.1f} s: {did['inputs']} buckets split, plans: {did['plans']},"
                f" {did['copies']:,} copies; held a commit for {turn.held_s:.2f} s{failed}"
            )
        slowest = [f"{self.slowest_s(kind):.2f} s {kind}" for kind in (RESIZE, BURNER)]
        print(f"      the slowest commit: {', '.join(slowest)}")
        return all(turn.did["inputs"] == PARTITIONS * BUCKETS for turn in resizes)


def beside(
    stack: contextlib.ExitStack,
    folder: Path,
    size: Size,
    *,
    writes: str = "copied",
    lock: str = "none",
) -> Beside:
    """Start the processes, make the table, and take the turns."""
    inputs = Inputs(folder / "rows", size.rows)
    inputs.folder.mkdir()
    count = size.upsert_rows
    chosen = np.random.default_rng(9).choice(size.rows, count * WRITERS, replace=False)
    parts = enumerate(np.split(chosen, WRITERS))
    sources = [inputs.make(f"own-{n}", part, 100) for n, part in parts]
    sides = [stack.enter_context(started(folder)) for _ in range(WRITERS + 1)]
    table = folder / "table"
    asked = {"kind": CONSISTENT, "count": BUCKETS, "upserts": [], "lock": lock}
    sides[0].ask("create", table=str(table), source=inputs.load(), is_kept_up=False, **asked)
    found = Beside(sides[:WRITERS], sides[-1], table, sources, size, writes)
    found.run()
    return found


def main(*, is_quick: bool = False) -> bool:
    size = QUICK if is_quick else FULL
    print(
        f"  {WRITERS} writers of {size.upsert_rows:,} rows beside a resize of"
        f" {PARTITIONS * BUCKETS} buckets with {size.rows:,} rows",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        found = beside(stack, Path(name), size)
        met = found.report()
    longer = found.slowest_s(RESIZE) - found.slowest_s(BURNER)
    met &= at_least("writers beside a resize to their share of CPU", found.ratio, GOAL)
    return verdict("seconds that the slowest is longer", longer, SLOWER_MAX_S) and met
