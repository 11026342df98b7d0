"""The processes of `test_processes.py` for as long as one likes, and on more stores.

    python tests/processes/soak.py --minutes 30 --store local|moto|versitygw --seed N [--resizes]

With `--resizes` they are those of `test_resizes.py`, and a write that a resize held for longer
than the promised two seconds fails the round; so does a machine that is busy with other things.

Runs in rounds, each with two new tables and a seed of its own, for these writers run no table
services. Ends with 1, and keeps the round's folder, at the first broken promise; with 2 if this
machine cannot run the store.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from processes.ordeal import Goal, Outcome, run_ordeal
from processes.resize_ordeal import HELD_S, ResizeGoal, ResizeOutcome, run_resize_ordeal
from processes.stores import STORES, StoreMissingError

ROUND_S = 120.0
ROUND_MAX_S = 900.0  # a round that has still too little to show by then has failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--store", choices=sorted(STORES), default="local")
    parser.add_argument("--seed", type=int, help="of the first round; random if left out")
    parser.add_argument(
        "--folder", type=Path, help="for tables and journals; temporary if left out"
    )
    parser.add_argument("--resizes", action="store_true", help="buckets that are resized")
    parser.add_argument(
        "--held-seconds", type=float, default=HELD_S, help="by a resize, at most; with --resizes"
    )
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if arguments.seed is None else arguments.seed
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends all it started
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="pyhudi-soak-"))
    try:
        if arguments.resizes:
            seconds, held_s = 60 * arguments.minutes, arguments.held_seconds
            return _soak_resizes(arguments.store, seconds, seed, folder, held_s)
        return _soak(arguments.store, 60 * arguments.minutes, seed, folder)
    except StoreMissingError as missing:
        print(f"the store {arguments.store} cannot be run here: {missing}", file=sys.stderr)
        return 2


def _soak(store: str, seconds: float, seed: int, folder: Path) -> int:
    started = time.monotonic()
    rounds = kills = freezes = stalls = acknowledged = rollbacks = 0
    while (left := seconds - (time.monotonic() - started)) > 0:
        here = folder / f"{store}-{seed + rounds}"
        outcome = _round(store, min(ROUND_S, left), seed + rounds, here)
        rounds += 1
        kills += outcome.kills
        freezes += outcome.freezes
        stalls += outcome.stalls
        acknowledged += outcome.acknowledged
        rollbacks += outcome.rollbacks
        print(outcome.told, flush=True)
        if wrong := [*outcome.broken, *outcome.missing]:
            print("\n".join(wrong), f"kept in {here}", sep="\n", file=sys.stderr)
            return 1
        shutil.rmtree(here)
    print(
        f"{store}: {rounds} rounds from seed {seed}, {kills} kills, {freezes} freezes,"
        f" {stalls} stalls, {acknowledged} acknowledged, {rollbacks} rolled back, none lost"
    )
    return 0


def _soak_resizes(store: str, seconds: float, seed: int, folder: Path, held_s: float) -> int:
    started = time.monotonic()
    rounds = resizes = beside = 0
    most_s = 0.0
    while (left := seconds - (time.monotonic() - started)) > 0:
        here = folder / f"{store}-{seed + rounds}"
        outcome = _resize_round(store, min(ROUND_S, left), seed + rounds, here)
        rounds += 1
        resizes += outcome.resizes
        beside += len(outcome.held_s)
        most_s = max(most_s, outcome.held_most_s)
        print(outcome.told, flush=True)
        wrong = [*outcome.broken, *outcome.missing]
        if outcome.held_most_s > held_s:
            wrong.append(f"a resize held a write for {outcome.held_most_s:.2f} s")
        if wrong:
            print("\n".join(wrong), f"kept in {here}", sep="\n", file=sys.stderr)
            return 1
        shutil.rmtree(here)
    print(
        f"{store}: {rounds} rounds from seed {seed}, {resizes} resizes, {beside} writes beside a"
        f" closed one, held for {most_s:.2f} s at most, none lost"
    )
    return 0


def _resize_round(store: str, seconds: float, seed: int, folder: Path) -> ResizeOutcome:
    tables = folder / "tables"
    tables.mkdir(parents=True)
    with STORES[store](tables) as place:
        goal = ResizeGoal(seconds=seconds, seconds_max=ROUND_MAX_S)
        return run_resize_ordeal(place, folder, seed, goal)


def _round(store: str, seconds: float, seed: int, folder: Path) -> Outcome:
    tables = folder / "tables"
    tables.mkdir(parents=True)
    goal = Goal(seconds=seconds, seconds_max=ROUND_MAX_S, kills=1, acknowledged=1)
    with STORES[store](tables) as place:
        return run_ordeal(place, folder, seed, goal)


if __name__ == "__main__":
    sys.exit(main())
