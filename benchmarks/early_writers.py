"""RFC-56's test plan: two writers that overlap, with and without early detection.

Both upsert rows in every bucket of one copy-on-write table, which rewrites all of its files. Each
is a process of its own, the rival always one of the local engine. The later one, the loser, is of
the local engine or of Spark, and does not try again.

- *The rival completes first*: all its files are there when the loser begins, and it completes in
  the first tenth of the loser's run. Looks at what has completed find that.
- *The rival is announced*: half of its files are there when the loser begins, and it completes
  before the loser could. Only a strategy finds that earlier.

So that they are what they say on every machine, the rival is held where it asks to be completed, or
after half of its files, until the instant of the loser is on the timeline. In Spark a loser has a
fixed cost, until it has announced a file that a look can find: a write of one file takes 0.4 CPU
seconds, and a loser that had written none took 0.4 to 0.7. So its write is long.

The CPU seconds of the loser include those of its tasks after its error, and of Python workers that
are killed. They leave out the start of another worker, by a small write that goes before each turn
unmeasured. Of the turns the medians are compared.
"""

from __future__ import annotations

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
#: How long tasks elsewhere may go on after the error of their write, to be counted. Spark kills
#: what does not end by itself after `spark.python.task.killTimeout`, 2 s.
AFTER_S = {LOCAL: 0.0, SPARK: 3.0}
INFLIGHT = ".hoodie/timeline/*.inflight"
TRIES = 3
#: How long the writers may take to get where they meet.
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Size:
    rows: Mapping[str, int]  # of the table, by engine
    upsert_rows: int
    period_ms: Mapping[str, int]  # between two looks
    turns: Mapping[str, int]


#: Spark's write takes 15 s.
FULL = Size(
    rows={LOCAL: 2_000_000, SPARK: 9_000_000},
    upsert_rows=20_000,
    period_ms={LOCAL: 30, SPARK: 150},
    turns={LOCAL: 2, SPARK: 1},
)
QUICK = Size(
    rows={LOCAL: 100_000, SPARK: 100_000},
    upsert_rows=5_000,
    period_ms={LOCAL: 10, SPARK: 50},
    turns={LOCAL: 1, SPARK: 1},
)


@dataclass(frozen=True)
class Meeting:
    """How two writers overlap, and what the loser does to find out."""

    name: str
    files_ahead: int | None  # of the rival, when the loser begins; None if only its commit lacks
    detections: Mapping[str, tuple[dict[str, Any], str]]  # settings, and the kind of markers
    has_goal: bool


WITHOUT, COMMITS = "without", "looks at commits"
MEETINGS = (
    Meeting(
        "the rival completes in the first tenth",
        None,
        detections={WITHOUT: (OFF, "direct"), COMMITS: ({}, "direct")},
        has_goal=True,
    ),
    Meeting(
        "the rival has announced half of its files",
        FILES // 2,
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
    """What it took the loser, the rival, and when in the loser's run the rival had completed."""

    loser: Cost
    rival_cpu_s: float
    rival_s: float
    files: int  # of the loser
    strategy: str | None  # that found the rival; None if its commit was found


@dataclass(frozen=True)
class Sources:
    """The input of the writers, and of writes before their turns."""

    rival: str
    loser: str
    partition: str  # rows of one
    row: str

    def all(self) -> list[str]:
        return [self.rival, self.loser, self.partition, self.row]


@dataclass
class Round:
    """Two writers of one engine, and a table that each turn begins with."""

    size: Size
    rival: Side
    loser: Side
    table: Path
    sources: Sources
    turns: dict[tuple[str, str], list[Turn]] = field(default_factory=dict)

    @property
    def engine(self) -> str:
        return self.loser.name

    def take_turns(self) -> None:
        self._copied()
        for side in (self.rival, self.loser):  # the first of each writer
            self._upsert_unmeasured(side, self.sources.partition)
        for _ in range(self.size.turns[self.engine]):
            for meeting in MEETINGS:
                for detection in meeting.detections:
                    turn = self._met(meeting, detection)
                    self.turns.setdefault((meeting.name, detection), []).append(turn)
                    progress(f"{self.engine}, {meeting.name}, {detection}: {turn}")

    def _upsert_unmeasured(self, side: Side, source: str) -> None:
        told = side.ask("upsert", table=self._copy, source=source, early=OFF, markers="direct")
        assert not told["is_lost"], told

    # -- one meeting

    @property
    def _copy(self) -> str:
        return str(self.table.with_name("copy"))

    def _copied(self) -> None:
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self.table, self._copy, copy_function=_linked)
        os.sync()

    def _met(self, meeting: Meeting, detection: str) -> Turn:
        for _ in range(TRIES):
            if (turn := self._turn(meeting, detection)) is not None:
                return turn
        raise AssertionError(f"{meeting.name}, {detection}: they never met so")

    def _turn(self, meeting: Meeting, detection: str) -> Turn | None:
        """Return what a meeting took; None if the wrong one lost, as on a busy machine."""
        self._copied()
        self._upsert_unmeasured(self.loser, self.sources.row)
        early, markers = meeting.detections[detection]
        asked = {
            "source": self.sources.loser,
            "early": {**early, "period_ms": self.size.period_ms[self.engine]},
            "markers": markers,
        }
        cpu = [side.tree.cpu_s() for side in (self.rival, self.loser)]
        known = self._instants()
        ahead = {"source": self.sources.rival, "files_max": meeting.files_ahead}
        held = self.rival.ask("hold", table=self._copy, **ahead)
        assert held["files"] == (meeting.files_ahead or FILES), held
        with ThreadPoolExecutor(1) as pool:
            since = time.monotonic()
            loser = pool.submit(self.loser.ask, "upsert", table=self._copy, **asked)
            _until(lambda: self._instants() - known == 2 or loser.done())
            rival, lost = self.rival.ask("release"), loser.result()
        time.sleep(AFTER_S[self.engine])
        cpu = [
            side.tree.cpu_s() - before
            for side, before in zip((self.rival, self.loser), cpu, strict=True)
        ]
        if not rival["completed"] or not lost["is_lost"]:
            return None
        assert lost["found"] == ("end" if detection == WITHOUT else "early"), lost
        cost, files = Cost(cpu[1], lost["wall_s"]), self._lost_files()
        return Turn(cost, cpu[0], rival["ended"] - since, files, lost["strategy"])

    def _instants(self) -> int:
        return sum(1 for _ in Path(self._copy).glob(INFLIGHT))

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
                    f" files; both {turn.loser.cpu_s + turn.rival_cpu_s:.2f}",
                    flush=True,
                )
                if detection == WITHOUT:
                    continue
                saved = Cost(
                    _saved(turn.loser.cpu_s, without.loser.cpu_s),
                    _saved(turn.loser.wall_s, without.loser.wall_s),
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

        def median(of: Callable[[Turn], float]) -> float:
            return statistics.median(map(of, turns))

        return Turn(
            Cost(median(lambda t: t.loser.cpu_s), median(lambda t: t.loser.wall_s)),
            median(lambda t: t.rival_cpu_s),
            median(lambda t: t.rival_s),
            statistics.median_low(turn.files for turn in turns),
            None,
        )


def _saved(took: float, without: float) -> float:
    """Return the share that was saved; AssertionError if it cannot be one."""
    saved = 1 - took / without
    assert 0 <= saved <= 1, f"{took:.2f} of {without:.2f} s: something else ran, or is missing"
    return saved


def _linked(source: str, target: str) -> str:
    """Copy a file of the table; data files, which no write changes, as links."""
    return str((os.link if source.endswith(".parquet") else shutil.copy2)(source, target) or target)


def _cell(cost: Cost) -> str:
    return f"{cost.cpu_s:.2f} ({cost.wall_s:.2f})"


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, "the writers do not meet"
        time.sleep(0.01)


def _made(inputs: Inputs, table: Path, upsert_rows: int) -> Sources:
    """Make a table, a load for each partition, so that no process holds all rows."""
    numbers = [np.arange(n, inputs.rows, PARTITIONS) for n in range(PARTITIONS)]
    loads = [inputs.make(f"load-{n}", each, 1) for n, each in enumerate(numbers)]
    with started(inputs.folder) as builder:
        builder.ask("create", table=str(table), buckets=BUCKETS, sources=loads)
    random = np.random.default_rng(1)
    rival, loser = (random.choice(inputs.rows, upsert_rows, False) for _ in range(2))
    rows = {"rival": rival, "loser": loser, "partition": loser[loser % PARTITIONS == 0]}
    rows["row"] = loser[:1]
    return Sources(**{name: inputs.make(name, each, 2) for name, each in rows.items()})


def _run(size: Size, engine: str) -> bool:
    with tempfile.TemporaryDirectory() as name:
        folder, rows = Path(name), size.rows[engine]
        table = folder / "table"
        sources = _made(Inputs(folder, rows), table, size.upsert_rows)
        with started(folder, name="-rival") as rival, started(folder, engine) as loser:
            for side in (rival, loser):
                side.ask("prepare", sources=sources.all())
            print(
                f"  {engine} ({loser.versions}): upserts of {size.upsert_rows:,} rows to a"
                f" table of {rows:,} in {FILES} files, {size.turns[engine]} turns",
                flush=True,
            )
            turns = Round(size, rival, loser, table, sources)
            turns.take_turns()
            return turns.report()


def main(*, is_quick: bool = False, engines: Sequence[str] = (LOCAL, SPARK)) -> bool:
    size = QUICK if is_quick else FULL
    met = [_run(size, engine) for engine in engines]  # each, whatever the first says
    return all(met)


if __name__ == "__main__":
    named = [engine for engine in (LOCAL, SPARK) if engine in sys.argv]
    sys.exit(0 if main(is_quick="--quick" in sys.argv, engines=named or (LOCAL, SPARK)) else 1)
