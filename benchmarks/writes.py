"""Writing from Spark, and reading what was written: pyhudi, Apache Hudi and plain parquet.

Each engine lives in a process of its own with a Spark of its own (Hudi's bundle needs 3.5), and
all of them lie still but the one that is asked: the steps take turns, on the same input files, in
one run. CPU seconds are those of a whole process tree, with its JVM and its Python workers. Of
repeated steps the best counts, and a goal is reached when wall and CPU seconds both reach it.

Hudi loads with `bulk_insert`, its fastest operation, although that promises less than `append`:
rows with the same key stay apart. Its `upsert`, which promises the same, is shown beside it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measure import Cost, ProcessTree, verdict

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from conformance.client import JAVA_NEWEST, JudgeClient, JudgeMissingError

ROWS = 2_000_000
PARTITIONS = 4
BUCKETS = 8
UPSERTS = 5
SMALL_ROWS = 100
LOADS = 3
SCANS = 3
SMALL_UPSERTS = 9
WARM_UP_ROWS = 20_000
ANSWER_S = 600.0

#: How many times as fast as Hudi each step has to be.
GOALS = {
    "load": 2.0,
    "upsert": 3.0,
    "upsert of 100 rows": 4.0,
    "scan, 3 columns": 3.0,
    "scan, all columns": 3.0,
}
PLAIN_LOAD_MAX = 1.5
#: With four times as many rows in each file group, a Python worker may need so much more.
MEMORY_GROWTH_MAX = 1.25

HERE = Path(__file__).parent
WITH_SPARK = str(HERE.parent / "scripts" / "with_spark.sh")
PROGRAMS = {
    "pyhudi": (".venv", "99", "python", str(HERE / "pyhudi_side.py"), "pyhudi", str(BUCKETS)),
    "Hudi": (".venv-judge", JAVA_NEWEST, "python", str(HERE / "hudi_side.py"), str(BUCKETS)),
    "parquet": (".venv", "99", "python", str(HERE / "pyhudi_side.py"), "parquet", "0"),
}
LOAD_WITH = {"pyhudi": "append", "Hudi": "bulk_insert", "parquet": "write"}
PYTHON_WORKERS = "pyspark.worker"


# -- the rows


def key_column(numbers: np.ndarray) -> pa.Array:
    """Keys of 36 characters that look like uuids, a different one for each number."""
    high = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    low = (high ^ (high >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    halves = np.stack([high, low], axis=1).astype(">u8").view(np.uint8)
    return _fixed_width(np.insert(_hex_digits(halves), [8, 12, 16, 20], ord("-"), axis=1))


def _hex_digits(data: np.ndarray) -> np.ndarray:
    nibbles = np.stack([data >> 4, data & 15], axis=2).reshape(len(data), -1)
    return np.frombuffer(b"0123456789abcdef", np.uint8)[nibbles]


def _fixed_width(characters: np.ndarray) -> pa.Array:
    """A string column from the bytes of texts that are equally long."""
    count, width = characters.shape
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(characters))]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def rows_of(numbers: np.ndarray, ts: int) -> pa.Table:
    """A row for each number, whose key and partition follow from it."""
    count, random = len(numbers), np.random.default_rng(ts)

    def chosen(texts: list[str], among: np.ndarray) -> pa.Array:
        return pa.array(texts).take(pa.array(among))

    words = [f"customer {n:08}" for n in range(50_000)]
    return pa.table(
        {
            "id": key_column(numbers),
            "part": chosen([f"p{n}" for n in range(PARTITIONS)], numbers % PARTITIONS),
            "ts": np.full(count, ts),
            **{f"n{i}": random.integers(0, 1 << 31, count) for i in range(3)},
            **{f"d{i}": random.random(count) for i in range(2)},
            "s0": chosen([f"category {n}" for n in range(20)], random.integers(0, 20, count)),
            "s1": chosen(words, random.integers(0, len(words), count)),
            "s2": _fixed_width(_hex_digits(random.integers(0, 256, (count, 32), np.uint8))),
        }
    )


@dataclass(frozen=True)
class Inputs:
    """Folders of parquet files that every engine reads."""

    folder: Path
    rows: int

    @property
    def upsert_rows(self) -> int:
        return self.rows // 20  # 100,000 of two million

    def make(self, name: str, numbers: np.ndarray, ts: int) -> str:
        """Files of at most 250,000 rows, in no order of keys."""
        target = self.folder / name
        target.mkdir()
        table = rows_of(np.random.default_rng(ts).permutation(numbers), ts)
        for n, start in enumerate(range(0, len(table), 250_000)):
            part = table.slice(start, 250_000)
            pq.write_table(part, target / f"{n}.parquet", compression="zstd")
        return str(target)

    def load(self) -> str:
        return self.make("load", np.arange(self.rows), 1)

    def upsert(self, turn: int) -> str:
        """Half are updates, spread evenly, and half are new."""
        half = self.upsert_rows // 2
        random = np.random.default_rng(1000 + turn)
        known = random.choice(self.rows + turn * half, half, replace=False)
        new = self.rows + turn * half + np.arange(half)
        return self.make(f"upsert-{turn}", np.concatenate([known, new]), 2 + turn)

    def small_upsert(self, turn: int) -> str:
        known = np.random.default_rng(2000 + turn).choice(self.rows, SMALL_ROWS, replace=False)
        return self.make(f"small-{turn}", known, 100 + turn)


# -- the engines


@dataclass
class Engine:
    """One side: its process, its table, and what its steps took."""

    name: str
    client: JudgeClient
    tree: ProcessTree
    versions: str
    folder: Path
    costs: dict[str, list[Cost]] = field(default_factory=lambda: defaultdict(list))

    @property
    def table(self) -> str:
        return str(self.folder / "table")

    def ask(self, command: str, table: str | None = None, **arguments: Any) -> dict[str, Any]:
        rows = self.client.ask(command, timeout_s=ANSWER_S, table=table or self.table, **arguments)
        return rows[0]

    def measure(self, step: str, command: str, **arguments: Any) -> dict[str, Any]:
        """Ask, after what others wrote has reached the disk, and keep what it took."""
        os.sync()
        answers: list[dict[str, Any]] = []
        cost = self.tree.cost_of(lambda: answers.append(self.ask(command, **arguments)))
        self.costs[step].append(cost)
        if sys.stderr.isatty():  # a run takes minutes
            print(f"  ... {self.name}, {step}: {cost.wall_s:.1f} s", file=sys.stderr)
        return answers[0]

    def best(self, step: str) -> Cost:
        costs = self.costs[step]
        return Cost(min(c.cpu_s for c in costs), min(c.wall_s for c in costs))

    def median(self, step: str) -> Cost:
        costs = self.costs[step]
        return Cost(
            statistics.median(c.cpu_s for c in costs), statistics.median(c.wall_s for c in costs)
        )


@contextlib.contextmanager
def started(name: str, folder: Path, program: tuple[str, ...] | None = None) -> Iterator[Engine]:
    """An engine by its name, or what another program runs under that name."""
    home = folder / name
    home.mkdir(exist_ok=True)
    log = folder / f"{name}.log"
    with JudgeClient([WITH_SPARK, *(program or PROGRAMS[name])], home, log) as client:
        hello = client.start()
        versions = ", ".join(f"{what} {v}" for what, v in hello.items() if what != "pid")
        yield Engine(name, client, ProcessTree(hello["pid"]), versions, home)


def warm_up(engine: Engine, load: str, upsert: str) -> None:
    """Every step, often enough for the JVM to have compiled much of it, on another table."""
    table = str(engine.folder / "warm-up")
    for _ in range(2):
        if engine.name == "Hudi":
            engine.ask("load", table, source=load, how="upsert")
        engine.ask("load", table, source=load, how=LOAD_WITH[engine.name])
        for _ in range(3):
            engine.ask("upsert", table, source=upsert)
        for command in ("aggregate", "scan"):
            engine.ask(command, table)
    shutil.rmtree(table)


# -- the steps


def compare(engines: list[Engine], inputs: Inputs) -> None:
    """Every step by every engine in turn. What they hold must be the same."""
    load = inputs.load()
    for engine in engines:
        if engine.name == "Hudi":
            engine.measure("load by upsert", "load", source=load, how="upsert")
    for _ in range(LOADS):
        for engine in engines:
            engine.measure("load", "load", source=load, how=LOAD_WITH[engine.name])
    check_agreement(engines, "digest")
    for turn in range(UPSERTS):
        source = inputs.upsert(turn)
        for engine in engines:
            engine.measure("upsert", "upsert", source=source)
    for _ in range(SCANS):
        for engine in engines:
            engine.measure("scan, 3 columns", "aggregate")
            engine.measure("scan, all columns", "scan")
    check_agreement(with_keys(engines), "aggregate")
    for turn in range(SMALL_UPSERTS):
        source = inputs.small_upsert(turn)
        for engine in engines:
            engine.measure("upsert of 100 rows", "upsert", source=source)
    check_agreement(with_keys(engines), "digest")


def with_keys(engines: list[Engine]) -> list[Engine]:
    return [engine for engine in engines if engine.name != "parquet"]


def check_agreement(engines: list[Engine], command: str) -> None:
    answers = {engine.name: engine.ask(command) for engine in engines}
    first = next(iter(answers.values()))
    if any(answer != first for answer in answers.values()):
        raise AssertionError(f"the engines hold different rows: {answers}")


def worker_memory(folder: Path, load: str, small: str) -> tuple[float, float]:
    """The most a Python worker of pyhudi held in a load, and in one into a quarter of the groups.

    In a process of its own, where workers have done nothing else.
    """
    peaks = []
    with started("pyhudi", folder) as engine:
        engine.ask("load", source=small, how=str(BUCKETS))
        for buckets in (BUCKETS, BUCKETS // 4):
            engine.ask("load", source=load, how=str(buckets))
            peaks.append(engine.tree.peak_memory_mb(PYTHON_WORKERS))
    few, many = peaks
    return few, many


# -- the report


def report(engines: list[Engine]) -> bool:
    named = {engine.name: engine for engine in engines}
    print("  wall seconds (CPU seconds), best / median; plain parquet merges nothing")
    print(f"  {'':20}" + "".join(f"{name:>34}" for name in named))
    for step in dict.fromkeys(step for engine in engines for step in engine.costs):
        cells = [_cell(engine, step) if step in engine.costs else "-" for engine in engines]
        print(f"  {step:20}" + "".join(f"{cell:>34}" for cell in cells))
    if not {"pyhudi", "Hudi", "parquet"} <= set(named):
        return False
    ours, plain = named["pyhudi"].best("load"), named["parquet"].best("load")
    met = [_goal_met(named["pyhudi"], named["Hudi"], step, goal) for step, goal in GOALS.items()]
    met.append(verdict("load to plain parquet, wall", ours.wall_s / plain.wall_s, PLAIN_LOAD_MAX))
    met.append(verdict("load to plain parquet, CPU", ours.cpu_s / plain.cpu_s, PLAIN_LOAD_MAX))
    return all(met)


def _cell(engine: Engine, step: str) -> str:
    best, median = engine.best(step), engine.median(step)
    return f"{best.wall_s:.2f} ({best.cpu_s:.2f}) / {median.wall_s:.2f} ({median.cpu_s:.2f})"


def _goal_met(ours: Engine, hudi: Engine, step: str, goal: float) -> bool:
    mine, theirs = ours.best(step), hudi.best(step)
    wall, cpu = theirs.wall_s / mine.wall_s, theirs.cpu_s / mine.cpu_s
    met = min(wall, cpu) >= goal
    print(
        f"  {step}: {wall:.1f} times as fast as Hudi, {cpu:.1f} in CPU seconds "
        f"(at least {goal:.0f}) {'ok' if met else 'MISSED'}"
    )
    return met


def main(rows: int = ROWS, names: tuple[str, ...] = tuple(PROGRAMS)) -> bool:
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        inputs = Inputs(folder, rows)
        print(
            f"writes: {rows:,} rows of 11 columns in {PARTITIONS} partitions of {BUCKETS} buckets, "
            f"zstd, {UPSERTS} upserts of {inputs.upsert_rows:,} rows, half of them updates"
        )
        small = Inputs(folder / "small", WARM_UP_ROWS)
        small.folder.mkdir()
        small_load, small_upsert = small.load(), small.upsert(0)
        try:
            engines = [stack.enter_context(started(name, folder)) for name in names]
        except JudgeMissingError as missing:
            print(f"  skipped, for {missing}")
            return True
        for engine in engines:
            print(f"  {engine.name}: {engine.versions}", flush=True)
            warm_up(engine, small_load, small_upsert)
        compare(engines, inputs)
        met = report(engines)
        stack.close()  # no other engine runs while memory is measured
        if "pyhudi" not in names:
            return met
        few, many = worker_memory(folder, str(folder / "load"), small_load)
        print(f"  most memory of a Python worker in a load: {few:.0f} MB")
        print(f"  the same with four times as many rows in a file group: {many:.0f} MB")
        return met & verdict("memory with larger file groups", many / few, MEMORY_GROWTH_MAX)


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
