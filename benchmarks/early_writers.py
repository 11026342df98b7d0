"""RFC-56's test plan: two writers that overlap, with and without early detection.

Both upsert rows in every bucket of one copy-on-write table, which rewrites all of its files. Each
is a process, and for Spark a driver, of its own. The later one loses and does not try again.

- *The rival completes first*: nearly all its files are there when the loser begins, and it
  completes in the first tenth of the loser's run. Looks at what has completed find that.
- *The rival is announced*: half of its files are there when the loser begins, and it completes
  before the loser could. Only a strategy finds that earlier.

So that the first case is what it says on every machine, the rival is held from its last files on
until the instant of the loser is on the timeline. The CPU seconds of the loser include those of
tasks that still run after its error. Of the turns the medians are compared.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from early_side import OFF
from early_started import LOCAL, SPARK, started
from measure import Cost
from services_started import Side, at_least, progress
from writes import PARTITIONS, Inputs

BUCKETS = 16
FILES = PARTITIONS * BUCKETS
SAVED_MIN = 0.8
LOOKS_MIN = 30.0
FIRST_TENTH = 0.1
#: How long tasks elsewhere may go on after the error of their write, to be counted.
AFTER_S = {LOCAL: 0.0, SPARK: 1.0}
MARKERS, INFLIGHT = ".hoodie/.temp/*/*/*.marker.*", ".hoodie/timeline/*.inflight"
TRIES = 3
#: How long the writers may take to get where they meet.
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Size:
    rows: int
    upsert_rows: int
    period_ms: Mapping[str, int]  # between two looks, by engine
    turns: Mapping[str, int]


FULL = Size(2_000_000, 20_000, {LOCAL: 75, SPARK: 150}, {LOCAL: 3, SPARK: 3})
QUICK = Size(100_000, 5_000, {LOCAL: 10, SPARK: 50}, {LOCAL: 1, SPARK: 1})


@dataclass(frozen=True)
class Meeting:
    """How two writers overlap, and what the loser does to find out."""

    name: str
    files_ahead: int  # of the rival's, when the loser begins
    is_held: bool
    detections: Mapping[str, tuple[dict[str, Any], str]]  # settings, and the kind of markers
    has_goal: bool


WITHOUT, COMMITS = "without", "looks at commits"
MEETINGS = (
    Meeting(
        "the rival completes in the first tenth",
        FILES - 2,
        is_held=True,
        detections={WITHOUT: (OFF, "direct"), COMMITS: ({}, "direct")},
        has_goal=True,
    ),
    Meeting(
        "the rival has announced half of its files",
        FILES // 2,
        is_held=False,
        detections={
            WITHOUT: (OFF, "direct"),
            "simple_direct": ({"strategy": "simple_direct"}, "direct"),
            "async_server": ({"strategy": "async_server"}, "server"),
        },
        has_goal=False,
    ),
)


@dataclass(frozen=True)
class Turn:
    """What it took the loser and both, and when in the loser's run the rival had completed."""

    loser: Cost
    both: Cost
    rival_s: float
    files: int  # of the loser
    strategy: str | None  # that found the rival; None if its commit was found


@dataclass
class Round:
    """Two writers of one engine, and a table that each turn begins with."""

    size: Size
    rival: Side
    loser: Side
    table: Path
    sources: list[str]
    turns: dict[tuple[str, str], list[Turn]] = field(default_factory=dict)

    @property
    def engine(self) -> str:
        return self.loser.name

    def take_turns(self) -> None:
        for side, source in zip((self.rival, self.loser), self.sources, strict=True):
            self._copied()  # unmeasured, and the first of each writer
            side.ask("upsert", table=self._copy, source=source, early=OFF, markers="direct")
        for _ in range(self.size.turns[self.engine]):
            for meeting in MEETINGS:
                for detection in meeting.detections:
                    turn = self._met(meeting, detection)
                    self.turns.setdefault((meeting.name, detection), []).append(turn)
                    progress(f"{self.engine}, {meeting.name}, {detection}: {turn}")

    # -- one meeting

    @property
    def _copy(self) -> str:
        return str(self.table.with_name("copy"))

    def _copied(self) -> None:
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self.table, self._copy)
        os.sync()

    def _met(self, meeting: Meeting, detection: str) -> Turn:
        for _ in range(TRIES):
            if (turn := self._turn(meeting, detection)) is not None:
                return turn
        raise AssertionError(f"{meeting.name}, {detection}: they never met so")

    def _turn(self, meeting: Meeting, detection: str) -> Turn | None:
        """Return what a meeting took; None if the wrong one lost, as on a busy machine."""
        self._copied()
        early, markers = meeting.detections[detection]
        settings = {**early, "period_ms": self.size.period_ms[self.engine]}
        asked = [
            {"source": self.sources[0], "early": OFF, "markers": "direct"},
            {"source": self.sources[1], "early": settings, "markers": markers},
        ]
        cpu = [side.tree.cpu_s() for side in (self.rival, self.loser)]
        known, began = self._count(INFLIGHT), time.monotonic()
        with ThreadPoolExecutor(2) as pool, contextlib.ExitStack() as held:
            first = pool.submit(self.rival.ask, "upsert", table=self._copy, **asked[0])
            _until(lambda: self._count(MARKERS) >= meeting.files_ahead)
            if meeting.is_held:
                held.enter_context(self.rival.client.frozen())
            since = time.monotonic()
            second = pool.submit(self.loser.ask, "upsert", table=self._copy, **asked[1])
            _until(lambda: self._count(INFLIGHT) - known == 2 or second.done())
            held.close()
            won, lost = first.result(), second.result()
        ended = max(won["ended"], lost["ended"])
        time.sleep(AFTER_S[self.engine])
        cpu = [
            side.tree.cpu_s() - before
            for side, before in zip((self.rival, self.loser), cpu, strict=True)
        ]
        if won["is_lost"] or not lost["is_lost"]:
            return None
        assert lost["found"] == ("end" if detection == WITHOUT else "early"), lost
        files = self._lost_files()
        cost = Cost(cpu[1], lost["wall_s"])
        both, rival_s = Cost(sum(cpu), ended - began), won["ended"] - since
        return Turn(cost, both, rival_s, files, lost["strategy"])

    def _count(self, pattern: str) -> int:
        return sum(1 for _ in Path(self._copy).glob(pattern))

    def _lost_files(self) -> int:
        """How many files the loser had written, by its note of the conflict."""
        (note,) = Path(self._copy).glob(".hoodie/.pyhudi/conflicts/*.json")
        return int(json.loads(note.read_bytes())["lost"]["files"])

    # -- the report

    def report(self) -> bool:
        met = True
        for meeting in MEETINGS:
            print(f"    {meeting.name}; CPU seconds (wall seconds)")
            without = self._medians(meeting, WITHOUT)
            for detection in meeting.detections:
                turn = self._medians(meeting, detection)
                print(
                    f"      {detection}: the loser {_cell(turn.loser)}, {turn.files} of {FILES}"
                    f" files; both {_cell(turn.both)}",
                    flush=True,
                )
                if detection == WITHOUT:
                    continue
                saved = Cost(
                    1 - turn.loser.cpu_s / without.loser.cpu_s,
                    1 - turn.loser.wall_s / without.loser.wall_s,
                )
                if meeting.has_goal:
                    met = self._is_reached(saved, without) and met
                else:
                    turns = self.turns[meeting.name, detection]
                    count = sum(each.strategy == detection for each in turns)
                    print(
                        f"        saved: {saved.cpu_s:.0%} CPU, {saved.wall_s:.0%} wall; found by"
                        f" the strategy in {count} of {len(turns)} turns"
                    )
        return met

    def _is_reached(self, saved: Cost, without: Turn) -> bool:
        looks = without.loser.wall_s * 1000 / self.size.period_ms[self.engine]
        if self.engine == LOCAL:
            looks = min(looks, FILES)  # it looks between two files
        share = without.rival_s / without.loser.wall_s
        print(f"      {looks:.0f} looks; the rival completed after {share:.0%} of it")
        met = looks >= LOOKS_MIN and share <= FIRST_TENTH
        met = at_least("  of the loser's CPU seconds saved", saved.cpu_s, SAVED_MIN) and met
        return at_least("  of the loser's wall seconds saved", saved.wall_s, SAVED_MIN) and met

    def _medians(self, meeting: Meeting, detection: str) -> Turn:
        turns = self.turns[meeting.name, detection]

        def cost(of: Callable[[Turn], Cost]) -> Cost:
            costs = [of(turn) for turn in turns]
            return Cost(
                statistics.median(each.cpu_s for each in costs),
                statistics.median(each.wall_s for each in costs),
            )

        rival_s = statistics.median(turn.rival_s for turn in turns)
        files = statistics.median_low(turn.files for turn in turns)
        return Turn(cost(lambda t: t.loser), cost(lambda t: t.both), rival_s, files, None)


def _cell(cost: Cost) -> str:
    return f"{cost.cpu_s:.2f} ({cost.wall_s:.2f})"


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, "the writers do not meet"
        time.sleep(0.01)


def main(*, is_quick: bool = False, engines: Sequence[str] = (LOCAL, SPARK)) -> bool:
    size, met = QUICK if is_quick else FULL, True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inputs, table = Inputs(folder, size.rows), folder / "table"
        random = np.random.default_rng(1)
        sources = [
            inputs.make(f"upsert-{n}", random.choice(size.rows, size.upsert_rows, False), 2 + n)
            for n in range(2)
        ]
        with started(folder) as builder:
            builder.ask("create", table=str(table), buckets=BUCKETS, source=inputs.load())
        for engine in engines:
            with started(folder, engine, "-0") as rival, started(folder, engine, "-1") as loser:
                for side, source in zip((rival, loser), sources, strict=True):
                    side.ask("prepare", sources=[source])
                print(
                    f"  {engine} ({loser.versions}): upserts of {size.upsert_rows:,} rows to a"
                    f" table of {size.rows:,} in {FILES} files, {size.turns[engine]} turns",
                    flush=True,
                )
                turns = Round(size, rival, loser, table, sources)
                turns.take_turns()
                met = turns.report() and met
    return met


if __name__ == "__main__":
    named = [engine for engine in (LOCAL, SPARK) if engine in sys.argv]
    sys.exit(0 if main(is_quick="--quick" in sys.argv, engines=named or (LOCAL, SPARK)) else 1)
