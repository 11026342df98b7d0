"""Upserts into simple and consistent buckets, and into a table of Hudi's with a Bloom index.

It is RFC-42's benchmark: to find the file of a key, the Bloom index reads the footers of base
files, and buckets read nothing. The same rows are loaded into a table of each kind, by pyhudi in
Spark and by Hudi 1.2.0, and the same upserts take turns. Half of an upsert's rows are updates.
Every engine lives in a process of its own, as in `writes.py`, and all must hold the same rows
afterwards. The best upsert of each counts, in wall seconds and in CPU seconds of its processes.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from writes import (
    BUCKETS,
    HERE,
    JAVA_NEWEST,
    Engine,
    Inputs,
    JudgeMissingError,
    check_agreement,
    started,
)

ROWS, ROWS_QUICK = 2_000_000, 100_000
UPSERTS, UPSERTS_QUICK = 5, 2
GOAL = 3.0
SIMPLE, CONSISTENT, BLOOM = "simple buckets", "consistent buckets", "Hudi's Bloom index"
_PYHUDI = (".venv", "99", "python", str(HERE / "pyhudi_side.py"))
PROGRAMS = {
    SIMPLE: (*_PYHUDI, "pyhudi", str(BUCKETS)),
    CONSISTENT: (*_PYHUDI, "consistent", str(BUCKETS)),
    BLOOM: (".venv-judge", JAVA_NEWEST, "python", str(HERE / "hudi_side.py"), "bloom"),
}
LOAD_WITH = {SIMPLE: "append", CONSISTENT: "append", BLOOM: "bulk_insert"}


def main(*, is_quick: bool = False) -> bool:
    rows, upserts = (ROWS_QUICK, UPSERTS_QUICK) if is_quick else (ROWS, UPSERTS)
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        inputs = Inputs(folder, rows)
        print(f"  upserts of {inputs.upsert_rows:,} rows into a table of {rows:,}:", flush=True)
        try:
            programs = PROGRAMS.items()
            engines = [stack.enter_context(started(n, folder, how)) for n, how in programs]
        except JudgeMissingError as missing:
            print(f"    skipped, for {missing}")
            return True
        load, sources = inputs.load(), [inputs.upsert(turn) for turn in range(1 + upserts)]
        for engine in engines:
            engine.ask("load", source=load, how=LOAD_WITH[engine.name])
        for turn, source in enumerate(sources):
            for engine in engines:  # the first is to warm up
                engine.measure("upsert" if turn else "warm-up", "upsert", source=source)
        check_agreement(engines, "digest")
        return _report(engines, inputs.upsert_rows)


def _report(engines: list[Engine], rows: int) -> bool:
    best = {engine.name: engine.best("upsert") for engine in engines}
    for engine in engines:
        cost = best[engine.name]
        print(
            f"    {engine.name} ({engine.versions}): {cost.wall_s:.2f} s ({cost.cpu_s:.2f} CPU s),"
            f" {rows / cost.wall_s:,.0f} rows a second"
        )
    theirs, met = best[BLOOM], True
    for kind in (SIMPLE, CONSISTENT):
        wall, cpu = theirs.wall_s / best[kind].wall_s, theirs.cpu_s / best[kind].cpu_s
        met &= min(wall, cpu) >= GOAL
        print(
            f"  {kind}: {wall:.1f} times as fast as {BLOOM}, {cpu:.1f} in CPU seconds (at least"
            f" {GOAL:.0f}) {'ok' if min(wall, cpu) >= GOAL else 'MISSED'}"
        )
    return met
