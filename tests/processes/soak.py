"""The processes of `test_processes.py` for as long as one likes, and on more stores.

    python tests/processes/soak.py --minutes 30 --store local|moto|versitygw --seed N

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
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if arguments.seed is None else arguments.seed
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends all it started
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="pyhudi-soak-"))
    try:
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


def _round(store: str, seconds: float, seed: int, folder: Path) -> Outcome:
    tables = folder / "tables"
    tables.mkdir(parents=True)
    goal = Goal(seconds=seconds, seconds_max=ROUND_MAX_S, kills=1, acknowledged=1)
    with STORES[store](tables) as place:
        return run_ordeal(place, folder, seed, goal)


if __name__ == "__main__":
    sys.exit(main())
