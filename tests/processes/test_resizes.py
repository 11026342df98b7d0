"""RFC-42's fourth test: concurrent writers and readers, beside resizes that never rest.

What runs, and how it is judged, is in `resize_ordeal.py`; `soak.py --resizes` runs the same for as
long as one likes. A failure names its seed, which `PYHUDI_SEED` repeats as far as chance is ours.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from processes.companion import Then
from processes.resize_ordeal import ResizeGoal, run_resize_ordeal
from processes.stores import STORES

#: On an idle machine the first figure is the one that counts.
GOALS = {
    "local": ResizeGoal(seconds=10, seconds_max=300, resizes=6, stops=2, deaths=2, acknowledged=80),
    "moto": ResizeGoal(seconds=8, seconds_max=400, resizes=2, acknowledged=20),
}
#: The figure of the promise is 2 s (`soak.py` demands it), of a machine that has room for all
#: processes. One that has not lets any call last: this says only that none waits for a timeout.
HELD_S = 20.0


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("store", ["local", "moto"])
def test_concurrent_writers_and_readers_lose_nothing_to_resizes_and_are_not_held_by_them(
    store: str, tmp_path: Path
) -> None:
    seed = int(os.environ.get("PYHUDI_SEED") or random.SystemRandom().randrange(1_000_000))
    print(f"seed {seed}")
    tables = tmp_path / "tables"
    tables.mkdir()
    with STORES[store](tables) as place:
        outcome = run_resize_ordeal(place, tmp_path, seed, GOALS[store])
    print(outcome.told)
    assert not outcome.broken, outcome.broken
    assert not outcome.missing, outcome.missing
    assert outcome.closes.get(Then.STOPS)
    assert outcome.held_most_s <= HELD_S
