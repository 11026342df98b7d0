"""What a resize costs: against a compaction of the same slice, and against writing all anew.

A bucket with a base file and three logs is split into eight children, and in a copy of the table it
is compacted. Each is the first thing that its process does, so that its memory can be told; CPU
seconds of the process count, and the sizes are those of the files that are read.

Then one bucket of 256 is split in two, RFC-42's K·O(1), and all rows are written again into twice
as many simple buckets, its K·O(N).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from buckets_side import CONSISTENT
from buckets_started import started
from measure import Cost, verdict
from services_started import at_least, progress
from writes import Inputs

RATE_GOAL = 0.7
CHILDREN = 8
LOGS = 3
TURNS = 3
MANY = 256
#: About; what is printed is measured.
BYTES_A_ROW = 125
QUICK_MIB = 4


def main(*, is_quick: bool = False, mib: int) -> bool:
    mib = min(mib, QUICK_MIB) if is_quick else mib
    turns = 1 if is_quick else TURNS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inputs = Inputs(folder / "rows", (mib << 20) * 20 // (20 + LOGS) // BYTES_A_ROW)
        inputs.folder.mkdir()
        load = inputs.load()
        upserts = [inputs.upsert(turn) for turn in range(LOGS)]
        met = _split(folder, load, upserts, turns)
        _one_of_many(folder, load, turns)
    return met


def _split(folder: Path, load: str, upserts: list[str], turns: int) -> bool:
    table = folder / "table"
    with started(folder) as side:
        asked = {"kind": CONSISTENT, "count": 1, "is_partitioned": False}
        size = side.ask(
            "create", table=str(table), source=load, upserts=upserts, is_kept_up=False, **asked
        )["bytes"]
    costs: dict[str, list[Cost]] = {"compact": [], "resize": []}
    memory: dict[str, float] = {}
    for _ in range(turns):
        for what, each in costs.items():
            more = {"target": -(-size // CHILDREN)} if what == "resize" else {}
            cost, answer, group = _fresh(folder, table, what, more)
            each.append(cost)
            memory[what] = min(memory.get(what, np.inf), answer["memory_mb"])
            if what == "resize":
                assert answer["children"] == CHILDREN, answer
                group_mb = group / 2**20
    cpu = {what: min(cost.cpu_s for cost in each) for what, each in costs.items()}
    rates = {what: size / seconds / 1e6 for what, seconds in cpu.items()}
    print(
        f"  a bucket of {size / 2**20:.0f} MiB: compacted at {rates['compact']:.1f} MB a CPU"
        f" second, split into {CHILDREN} at {rates['resize']:.1f}"
    )
    met = at_least(
        "split to compaction, bytes a CPU second", rates["resize"] / rates["compact"], RATE_GOAL
    )
    most = memory["compact"] + CHILDREN * group_mb
    print(
        f"  most memory: compaction {memory['compact']:.0f} MB, split {memory['resize']:.0f} MB;"
        f" a row group of a child {group_mb:.1f} MB"
    )
    return (
        verdict("memory to compaction's and a row group for each child", memory["resize"] / most, 1)
        and met
    )


def _fresh(
    folder: Path, table: Path, what: str, asked: dict[str, Any]
) -> tuple[Cost, dict[str, Any], int]:
    """Do it to a copy of the table, in a process of its own; what it took."""
    copy = folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(table, copy)
    os.sync()
    answers: list[dict[str, Any]] = []
    with started(folder) as side:
        asked = {"table": str(copy), **asked}
        cost = side.tree.cost_of(lambda: answers.append(side.ask(what, **asked)))
        group = side.ask("row groups", table=str(copy))["bytes"] if what == "resize" else 0
    progress(f"{what}: {cost.cpu_s:.2f} CPU s, {cost.wall_s:.2f} s")
    return cost, answers[0], group


def _one_of_many(folder: Path, load: str, turns: int) -> None:
    table = folder / "many"
    with started(folder) as side:
        asked = {"kind": CONSISTENT, "count": MANY, "is_partitioned": False, "upserts": []}
        asked["is_kept_up"] = False
        made = side.ask("create", table=str(table), source=load, **asked)
    splits, rewrites = [], []
    for turn in range(turns):
        asked = {"target": -(-made["most"] // 2), "buckets_max": 1}
        cost, answer, _ = _fresh(folder, table, "resize", asked)
        assert (answer["inputs"], answer["children"]) == (1, 2), answer
        splits.append(cost.cpu_s)
        with started(folder) as side:
            into = {"table": str(table), "into": str(folder / f"anew-{turn}"), "count": 2 * MANY}
            rewrites.append(side.tree.cost_of(partial(side.ask, "rewrite", **into)).cpu_s)
    print(
        f"  one bucket of {MANY}, which hold {made['bytes'] / 2**20:.0f} MiB, is split in"
        f" {min(splits):.2f} CPU s; all rows are written into {2 * MANY} simple buckets in"
        f" {min(rewrites):.2f} CPU s"
    )
