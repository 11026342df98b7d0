"""Several writers of the same buckets at once: on one table, and on as many tables as writers.

Every writer is a process with a Python, and for Spark a driver, of its own. Warm and idle, they are
asked at one moment; the time ends with the last answer. Each upserts the same keys again and again,
so every write of one meets every write of the others. Three variants take turns in one run: one
non-blocking table, a table for each writer, and one optimistic table, on which writers that meet
conflict. What counts is the median, for a lucky turn may win every race.

Apache Hudi does the same with two Spark writers, against tables of its own with its file lock.

Then the lock: how long a commit holds it, on a table whose lock a Java writer takes too. There a
holder also waits until no clock may disagree with what it published (200 ms by default, as Hudi
does); the limit is on the rest.
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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from measure import Cost, ProcessTree, verdict
from writes import PARTITIONS, Inputs

import pyhudi

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from conformance.client import JAVA_NEWEST, JudgeClient, JudgeMissingError

BUCKETS = 2
SHARED_TO_APART_MAX = 1.15
HOLD_MS_MAX = 50.0
ANSWER_S = 600.0

NON_BLOCKING, OPTIMISTIC = "non_blocking", "optimistic"
#: What each variant is called: the mode of its tables, and whether the writers share one.
VARIANTS = {
    "one table": (NON_BLOCKING, True),
    "own tables": (NON_BLOCKING, False),
    "one OCC table": (OPTIMISTIC, True),
}

HERE = Path(__file__).parent
WITH_SPARK = str(HERE.parent / "scripts" / "with_spark.sh")
PYHUDI_SIDE = str(HERE / "many_writers_side.py")
HUDI_SIDE = (".venv-judge", JAVA_NEWEST, "python", str(HERE / "many_writers_hudi.py"), str(BUCKETS))
PROGRAMS: dict[str, tuple[str, ...]] = {
    "local": (sys.executable, PYHUDI_SIDE, "local"),
    "Spark": (WITH_SPARK, ".venv", "99", "python", PYHUDI_SIDE, "spark"),
    "Hudi": (WITH_SPARK, *HUDI_SIDE),
}


@dataclass(frozen=True)
class Workload:
    """What each writer does, and how often the variants take turns."""

    engine: str
    writers: tuple[int, ...]
    rows: int
    upserts: int
    turns: int
    has_goal: bool = True


WORKLOADS = (
    Workload("local", (2, 4), rows=100, upserts=30, turns=5),
    Workload("local", (2, 4), rows=20_000, upserts=8, turns=5),
    Workload("Spark", (2, 4), rows=20_000, upserts=4, turns=9),  # three differ by a fifth
    Workload("Hudi", (2,), rows=20_000, upserts=3, turns=3, has_goal=False),
)
QUICK = (
    Workload("local", (2,), rows=100, upserts=5, turns=1),
    Workload("local", (2,), rows=2_000, upserts=3, turns=1),
    Workload("Spark", (2,), rows=500, upserts=2, turns=1),
    Workload("Hudi", (2,), rows=500, upserts=2, turns=1, has_goal=False),
)
#: Upserts of all writers together, in each measurement of the lock.
HOLDS = {"file": 100, "none": 100}
HOLD_WRITERS = (1, 2)
HOLD_ROWS = 100


# -- the writers


@dataclass
class Writer:
    """A process that writes when it is asked to."""

    client: JudgeClient
    tree: ProcessTree
    versions: str

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        return self.client.ask(command, timeout_s=ANSWER_S, **arguments)[0]


@contextlib.contextmanager
def started(engine: str, count: int, folder: Path) -> Iterator[list[Writer]]:
    with contextlib.ExitStack() as stack:
        writers = []
        for number in range(count):
            log = folder / f"{engine}-{number}.log"
            client = stack.enter_context(JudgeClient(PROGRAMS[engine], folder, log))
            hello = client.start()
            versions = ", ".join(f"{what} {v}" for what, v in hello.items() if what != "pid")
            writers.append(Writer(client, ProcessTree(hello["pid"]), versions))
        yield writers


@dataclass
class Turn:
    """One measurement: what it took all writers together, what they say of it, and what the tables
    that they wrote do."""

    cost: Cost
    answers: list[dict[str, Any]]
    begun: int = 0  # instants, of those that are still to be seen
    conflicts: list[dict[str, Any]] = field(default_factory=list)

    def total(self, what: str) -> float:
        return sum(answer.get(what, 0) for answer in self.answers)


def all_at_once(
    writers: Sequence[Writer], tables: Sequence[str], mode: str, sources: Sequence[list[str]]
) -> Turn:
    """Let each upsert its sources, after what was written before has reached the disk."""
    os.sync()
    with ThreadPoolExecutor(len(writers)) as pool:
        cpu, wall = sum(w.tree.cpu_s() for w in writers), time.perf_counter()
        asked = [
            pool.submit(writer.ask, "upsert", table=table, mode=mode, sources=given)
            for writer, table, given in zip(writers, tables, sources, strict=True)
        ]
        answers = [future.result() for future in asked]
        wall_s = time.perf_counter() - wall
        return Turn(Cost(sum(w.tree.cpu_s() for w in writers) - cpu, wall_s), answers)


# -- the work


@dataclass(frozen=True)
class Batches:
    """The same keys for all writers, each time with ordering values of their own."""

    folder: Path
    rows: int
    upserts: int

    def make(self, writers: int) -> tuple[str, list[list[str]]]:
        """The rows that a table begins with, and the sources of each writer."""
        self.folder.mkdir()
        inputs, keys = Inputs(self.folder, self.rows), np.arange(self.rows)
        first = inputs.make("first", keys, 1)
        sources = [
            [inputs.make(f"{w}-{k}", keys, self._ts(k, w)) for k in range(self.upserts)]
            for w in range(writers)
        ]
        return first, sources

    def _ts(self, upsert: int, writer: int) -> int:
        return 10 * (upsert + 1) + writer

    def newest(self, writers: int) -> int:
        """The ordering value that every row has in the end, whichever writer was last."""
        return self._ts(self.upserts - 1, writers - 1)


@dataclass
class Round:
    """All variants of a workload, by so many writers."""

    workload: Workload
    writers: list[Writer]
    folder: Path
    batches: Batches
    first: str
    sources: list[list[str]]
    turns: dict[str, list[Turn]] = field(default_factory=lambda: {name: [] for name in VARIANTS})

    def measure(self, variant: str, lock: str = "none") -> Turn:
        mode, is_shared = VARIANTS[variant]
        count = 1 if is_shared else len(self.writers)
        tables = [str(self.folder / f"table-{number}") for number in range(count)]
        for table in tables:
            self.writers[0].ask(
                "create", table=table, mode=mode, lock=lock, buckets=BUCKETS, source=self.first
            )
        asked = tables * len(self.writers) if is_shared else tables
        turn = all_at_once(self.writers, asked, mode, self.sources)
        for number, table in enumerate(tables):
            last = len(self.writers) if is_shared else number + 1
            self._check(table, last)
            turn.begun += (
                len(list(Path(table).glob(".hoodie/timeline/*.deltacommit.requested"))) - 1
            )
            notes = Path(table).glob(".hoodie/.pyhudi/conflicts/*.json")
            turn.conflicts += [json.loads(note.read_bytes())["lost"] for note in notes]
            shutil.rmtree(table)
        return turn

    def _check(self, table: str, writers: int) -> None:
        """Nothing is lost: each key is there once, with the newest of its rows."""
        read = pyhudi.open_table(table).read(columns=["id", "ts"]).to_arrow()
        expected = {self.batches.newest(writers)}
        if read.num_rows != self.workload.rows or set(read["ts"].unique().to_pylist()) != expected:
            found = read["ts"].value_counts().to_pylist()
            raise AssertionError(f"{read.num_rows} rows, {found}, expected all with {expected}")

    def take_turns(self) -> None:
        self.measure("one table")  # unmeasured, and the first of each writer
        for _ in range(self.workload.turns):
            for variant, turns in self.turns.items():
                turns.append(self.measure(variant))
                if sys.stderr.isatty():  # a run takes minutes
                    print(f"  ... {self.name}, {variant}: {turns[-1].cost}", file=sys.stderr)

    @property
    def name(self) -> str:
        return f"{self.workload.engine}, {len(self.writers)} writers"

    def median(self, variant: str) -> Cost:
        costs = [turn.cost for turn in self.turns[variant]]
        return Cost(
            statistics.median(c.cpu_s for c in costs), statistics.median(c.wall_s for c in costs)
        )

    # -- the report

    def report(self) -> bool:
        cells = [f"{name} {_cell(self.median(name))}" for name in VARIANTS]
        print(f"    {len(self.writers)} writers: {', '.join(cells)}")
        print(f"      optimistic: {self._lost()}")
        races, waited = (
            statistics.median(turn.total(what) for turn in self.turns["one table"])
            for what in ("races_lost", "backed_off_s")
        )
        if self.workload.engine == "local":
            print(f"      non-blocking: {races:g} races for the log lost, {waited:.2f} s waited")
        shared, apart = self.median("one table"), self.median("own tables")
        ratio, cpu = shared.wall_s / apart.wall_s, shared.cpu_s / apart.cpu_s
        what = f"  {self.name}, one table to own tables (CPU seconds {cpu:.2f}), wall"
        if self.workload.has_goal:
            return verdict(what, ratio, SHARED_TO_APART_MAX)
        print(f"  {what}: {ratio:.2f}")
        return True

    def _lost(self) -> str:
        """What the turn of median length lost to conflicts."""
        turns = sorted(self.turns["one OCC table"], key=lambda turn: turn.cost.wall_s)
        turn = turns[len(turns) // 2]
        writes, attempts, failed = (turn.total(w) for w in ("writes", "attempts", "calls_failed"))
        rows, seconds = (sum(note[w] for note in turn.conflicts) for w in ("rows", "seconds"))
        about = ""
        if self.workload.engine == "Hudi":  # it notes nothing, and what was lost stays pending
            attempts = turn.begun
            failed = sum(len(answer["failures"]) for answer in turn.answers)
            rows = (attempts - writes) * self.workload.rows
            seconds, about = turn.total("seconds") * (1 - writes / attempts), "about "
        again = f"{turn.total('recommits'):g} only committed again, " if not about else ""
        return (
            f"{writes:g} writes in {attempts:g} attempts, {again}{failed:g} calls failed after all "
            f"retries; {rows:,.0f} rows written in vain, {about}{seconds:.1f} s of writers lost"
        )


def _cell(cost: Cost) -> str:
    return f"{cost.wall_s:.2f} ({cost.cpu_s:.2f})"


def compare(workload: Workload, writers: list[Writer], folder: Path) -> bool:
    met = True
    batches = Batches(folder / f"rows-{workload.rows}", workload.rows, workload.upserts)
    first, sources = batches.make(max(workload.writers))
    if workload.engine == "local":
        for writer, given in zip(writers, sources, strict=False):
            writer.ask("prepare", sources=[first, *given])
    print(
        f"  {workload.engine} ({writers[0].versions}): each writer {workload.upserts} upserts of "
        f"{workload.rows:,} rows",
        flush=True,
    )
    for count in workload.writers:
        turns = Round(workload, writers[:count], folder, batches, first, sources[:count])
        turns.take_turns()
        met &= turns.report()
    shutil.rmtree(batches.folder)
    return met


# -- the lock


def lock_holds(writers: list[Writer], folder: Path, upserts: dict[str, int]) -> bool:
    """What a commit keeps from others: the lock, or without one the moment of its decision."""
    print(f"  lock, local engine: upserts of {HOLD_ROWS} rows; milliseconds, p50 and p99")
    met = True
    for lock, total in upserts.items():
        for count in HOLD_WRITERS:
            workload = Workload("local", (count,), HOLD_ROWS, total // count, 1)
            batches = Batches(folder / f"rows-{workload.rows}", workload.rows, workload.upserts)
            first, sources = batches.make(count)
            turns = Round(workload, writers[:count], folder, batches, first, sources)
            turn = turns.measure("one table", lock)
            met &= _report_holds(lock, count, turn)
            shutil.rmtree(batches.folder)
    return met


def _report_holds(lock: str, count: int, turn: Turn) -> bool:
    if lock == "none":
        times = [ms for answer in turn.answers for ms in answer["completions"]]
        print(f"    no lock, {count} writers: from the log's end to the completed {_spread(times)}")
        return True
    commits = [holds for answer in turn.answers for holds in answer["holds"]]
    single = [(held, slept) for holds in commits for held, slept in holds]
    bare = [sum(held - slept for held, slept in holds) for holds in commits]
    whole = [sum(held for held, _ in holds) for holds in commits]
    each = len(single) / len(commits)
    print(
        f"    file lock, {count} writers: {len(commits)} commits of {each:.1f} holds in "
        f"{turn.cost.wall_s:.1f} s"
    )
    print(f"      each hold {_spread([held - slept for held, slept in single])} without the wait")
    print(f"      each hold {_spread([held for held, _ in single])} with it")
    print(f"      all of a commit {_spread(bare)} without the wait, {_spread(whole)} with it")
    return verdict(f"  lock hold per commit, {count} writers, p99 ms", _p99(bare), HOLD_MS_MAX)


def _spread(times: list[float]) -> str:
    return f"{statistics.median(times):.1f} and {_p99(times):.1f}"


def _p99(times: list[float]) -> float:
    return float(np.percentile(times, 99))


def main(*, is_quick: bool = False, engines: Sequence[str] = tuple(PROGRAMS)) -> bool:
    print(
        f"many_writers: 11 columns in {PARTITIONS} partitions of {BUCKETS} buckets, all writers "
        "the same keys; wall seconds until the last is done (CPU seconds of all), medians"
    )
    workloads = QUICK if is_quick else WORKLOADS
    met = True
    for engine in engines:
        mine = [workload for workload in workloads if workload.engine == engine]
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            try:
                with started(engine, max(n for w in mine for n in w.writers), folder) as writers:
                    for workload in mine:
                        met &= compare(workload, writers, folder)
                    if engine == "local":
                        upserts = {k: n // 10 for k, n in HOLDS.items()} if is_quick else HOLDS
                        met &= lock_holds(writers, folder, upserts)
            except JudgeMissingError as missing:
                print(f"  {engine}: skipped, for {missing}")
    return met


if __name__ == "__main__":
    named = [name for name in sys.argv[1:] if name in PROGRAMS]
    sys.exit(0 if main(is_quick="--quick" in sys.argv, engines=named or tuple(PROGRAMS)) else 1)
