"""Writers whose buckets are resized, beside a resize and beside a process that burns as much CPU.

It is the benchmark of `services_beside.py`, with four writers of all keys and with resizes that
split every bucket and merge them again, one after the other. Beside the throughput, the slowest
commit is compared, and how long a closed resize held it is printed.

Nothing else maintains the table: a bucket in a pending compaction is not resized.
"""

from __future__ import annotations

import contextlib
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
from buckets_held import held_s
from buckets_side import CONSISTENT
from buckets_started import started
from measure import verdict
from services_beside import Beside
from services_side import BURNER, RESIZE
from services_started import Side
from writes import Inputs

WRITERS = 4
BUCKETS = 2
SLOWER_MAX_S = 2.0
ROWS, ROWS_QUICK = 400_000, 40_000
UPSERT_ROWS, UPSERT_ROWS_QUICK = 2_000, 500
SECONDS, SECONDS_QUICK = 60.0, 25.0
TURNS = 2


def main(*, is_quick: bool = False) -> bool:
    rows = ROWS_QUICK if is_quick else ROWS
    count = UPSERT_ROWS_QUICK if is_quick else UPSERT_ROWS
    seconds = SECONDS_QUICK if is_quick else SECONDS
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        inputs = Inputs(folder / "rows", rows)
        inputs.folder.mkdir()
        chosen = np.random.default_rng(9).choice(rows, count * WRITERS, replace=False)
        sources = [
            inputs.make(f"own-{n}", part, 100) for n, part in enumerate(np.split(chosen, WRITERS))
        ]
        sides = [stack.enter_context(started(folder)) for _ in range(WRITERS + 1)]
        table = folder / "table"
        asked = {"kind": CONSISTENT, "count": BUCKETS, "upserts": [], "is_kept_up": False}
        sides[0].ask("create", table=str(table), source=inputs.load(), **asked)
        writers = [_Writer(side) for side in sides[:WRITERS]]
        beside = Beside(writers, sides[-1], table, sources, rows, count, seconds, RESIZE)
        print(f"  {WRITERS} writers beside resizes of a table of {rows:,} rows", flush=True)
        held = []
        for _ in range(1 if is_quick else TURNS):
            commits = [pair for each in beside.turn() for pair in pairwise(each)]
            held.append(held_s(sides[-1], table.with_name("copy"), commits))
        met = beside.report()
        resized, burnt = beside.whole[RESIZE].slowest_s, beside.whole[BURNER].slowest_s
        print(
            f"    the slowest commit: {resized:.2f} s {RESIZE}, {burnt:.2f} s {BURNER};"
            f" held by a closed resize: {max(held):.2f} s at most;"
            f" {beside.whole[RESIZE].cancelled} resizes cancelled"
        )
        return verdict("seconds that the slowest is longer", resized - burnt, SLOWER_MAX_S) and met


class _Writer(Side):
    """A side whose upserts go on until the moment that it is told."""

    def __init__(self, side: Side) -> None:
        super().__init__(side.name, side.client, side.tree, side.versions)

    def ask(self, command: str, **arguments: object) -> dict[str, object]:
        return super().ask("upsert between" if command == "upsert" else command, **arguments)
