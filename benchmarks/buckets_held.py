"""How long closed resizes hold up writers that never pause.

Three writers upsert small batches into a table of one bucket, and beside them it is split into ever
more. A write's log becomes a file in each new bucket, so the more there are, the slower is a resize
beside its writers. It completes, or it is closed first, or it is cancelled because writers are
faster for good; what it did is printed. No writer is held up unless it is closed, and then it
is to go on after two seconds at most.

How long a commit was held is the part of it in which a resize was closed, by the times of the
entries in the decision log.
"""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import numpy as np
from buckets_side import CONSISTENT
from buckets_started import started
from measure import verdict
from services_started import Side
from writes import Inputs

WRITERS = 3
ROWS, UPSERT_ROWS = 400, 100
CHILDREN, CHILDREN_QUICK = (4, 8, 16), (16,)
LEAD_S, SECONDS = 4.0, 20.0
HELD_MAX_S = 2.0


def main(*, is_quick: bool = False) -> bool:
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        inputs = Inputs(folder / "rows", ROWS)
        inputs.folder.mkdir()
        load, chance = inputs.load(), np.random.default_rng(9)
        sources = [
            inputs.make(f"own-{n}", chance.choice(ROWS, UPSERT_ROWS, replace=False), 100)
            for n in range(WRITERS)
        ]
        sides = [stack.enter_context(started(folder)) for _ in range(WRITERS + 1)]
        print(f"  {WRITERS} writers of {UPSERT_ROWS} rows that never pause", flush=True)
        counts = CHILDREN_QUICK if is_quick else CHILDREN
        held = [_held(sides, folder / f"into-{n}", load, sources, n) for n in counts]
    return verdict("seconds that a closed resize held a commit", max(held), HELD_MAX_S)


def _held(sides: list[Side], table: Path, load: str, sources: list[str], children: int) -> float:
    """Split the table's bucket beside the writers. Return how long it held the slowest commit."""
    *writers, resizer = sides
    made = {"kind": CONSISTENT, "count": 1, "upserts": []}
    is_ = {"is_partitioned": False, "is_kept_up": False}
    resizer.ask("create", table=str(table), source=load, **made, **is_)
    begin = time.monotonic() + LEAD_S
    asked = {"table": str(table), "begin": begin}
    with ThreadPoolExecutor(len(sides)) as pool:
        writes = [
            pool.submit(
                writer.ask,
                "upsert between",
                source=source,
                ts=number * 10**6,
                end=begin + SECONDS,
                **asked,
            )
            for number, (writer, source) in enumerate(zip(writers, sources, strict=True), 1)
        ]
        resized = pool.submit(resizer.ask, "resize beside", children=children, **asked).result()
        commits = [pair for each in writes for pair in pairwise(each.result()["moments"])]
    spans = resizer.ask("closed spans", table=str(table))["spans"]
    most = _most_held(commits, spans)
    before = [b - a for a, b in commits if b < resized["begin"]]
    during = [b - a for a, b in commits if a < resized["end"] and b > resized["begin"]]
    closed = f"closed for {sum(b - a for a, b in spans):.2f} s" if spans else "not closed"
    print(
        f"    into {children}: {resized['what']} after {resized['end'] - resized['begin']:.1f} s,"
        f" {closed}, a commit held for {most:.2f} s at most; the slowest commit"
        f" {max(during, default=0):.2f} s, before it {max(before, default=0):.2f} s",
        flush=True,
    )
    return most


def held_s(side: Side, table: Path, commits: list[tuple[float, float]]) -> float:
    """Return how long closed resizes of a table held the slowest of these commits."""
    return _most_held(commits, side.ask("closed spans", table=str(table))["spans"])


def _most_held(commits: list[tuple[float, float]], spans: list[tuple[float, float]]) -> float:
    held = (min(b, end) - max(a, begin) for a, b in commits for begin, end in spans)
    return max(0.0, max(held, default=0.0))
