"""Upserts into consistent and into simple buckets, by the local engine and by Spark.

Two tables of the same rows and as many buckets take turns in one process; half of an upsert's rows
are updates. The best upsert of each counts.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from buckets_side import CONSISTENT, SIMPLE
from buckets_started import started
from measure import Cost, verdict
from services_started import LOCAL, SPARK, progress
from writes import BUCKETS, Inputs

RATIO_MAX = 1.25


@dataclass(frozen=True)
class Size:
    rows: int  # a twentieth in each upsert
    upserts: int


FULL, QUICK = Size(2_000_000, 7), Size(100_000, 3)


def main(*, is_quick: bool = False) -> bool:
    size = QUICK if is_quick else FULL
    met = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inputs = Inputs(folder / "rows", size.rows)
        inputs.folder.mkdir()
        load = inputs.load()
        sources = [inputs.upsert(turn) for turn in range(size.upserts)]
        print(f"  upserts of {inputs.upsert_rows:,} rows, CPU seconds (wall seconds):")
        for engine in (LOCAL, SPARK):
            met &= _compare(folder, engine, load, sources)
    return met


def _compare(folder: Path, engine: str, load: str, sources: list[str]) -> bool:
    costs: dict[str, list[Cost]] = {CONSISTENT: [], SIMPLE: []}
    with started(folder, engine) as side:
        for kind in costs:
            table = str(folder / f"{engine}-{kind}")
            side.ask("create", table=table, source=load, kind=kind, count=BUCKETS, upserts=[])
        for turn, source in enumerate(sources):
            if engine == LOCAL:
                side.ask("load", source=source)
            for kind in sorted(costs, reverse=turn % 2 == 1):
                asked = {"table": str(folder / f"{engine}-{kind}"), "source": source}
                cost = side.tree.cost_of(partial(side.ask, "upsert", **asked))
                costs[kind] += [cost] if turn else []  # the first is to warm up
                progress(f"{engine}, {kind}: {cost.cpu_s:.2f} ({cost.wall_s:.2f})")
    best = {
        kind: Cost(min(c.cpu_s for c in each), min(c.wall_s for c in each))
        for kind, each in costs.items()
    }
    cells = [f"{kind} {each.cpu_s:.2f} ({each.wall_s:.2f})" for kind, each in best.items()]
    print(f"    {engine}: {', '.join(cells)}")
    ours, simple = best[CONSISTENT], best[SIMPLE]
    met = verdict(f"{engine}, consistent to simple, CPU", ours.cpu_s / simple.cpu_s, RATIO_MAX)
    return verdict(f"{engine}, the same, wall", ours.wall_s / simple.wall_s, RATIO_MAX) and met
