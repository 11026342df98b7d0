"""RFC-42's fourth test: concurrent writers and readers, beside resizes that never rest.

What runs, and how it is judged, is in `resize_ordeal.py`; `soak.py --resizes` runs the same for as
long as one likes, on S3 too. A failure names its seed, which `PYHUDI_SEED` repeats as far as chance
is ours.
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
GOAL = ResizeGoal(seconds=10, seconds_max=300, resizes=6, stops=2, deaths=2, acknowledged=80)
#: The figure of the promise is 2 s (`soak.py` demands it), of a machine that has room for all
#: processes. One that has not lets any call last: this says only that none waits for a timeout.
HELD_S = 20.0


@pytest.mark.timeout(1_200)
def test_concurrent_writers_and_readers_lose_nothing_to_resizes_and_are_not_held_by_them(
    tmp_path: Path,
) -> None:
    seed = int(os.environ.get("PYHUDI_SEED") or random.SystemRandom().randrange(1_000_000))
    print(f"seed {seed}")
    tables = tmp_path / "tables"
    tables.mkdir()
    with STORES["local"](tables) as place:
        outcome = run_resize_ordeal(place, tmp_path, seed, GOAL)
    print(outcome.told)
    assert not outcome.broken, outcome.broken
    assert not outcome.missing, outcome.missing
    assert outcome.closes.get(Then.STOPS)
    assert outcome.held_most_s <= HELD_S
