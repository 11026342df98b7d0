"""Each planted bug is caught: the harness sees what it is there to see.

The seeds were found by search. A change of the protocol code may move what they do, so there are
several for each bug, of which one must still catch it. `PYHUDI_SEARCH=20000` searches for each bug
from seed 0 and prints the first seeds that catch it.
"""

from __future__ import annotations

import os

import pytest

from pyhudi.simulate.planted import BUGS
from pyhudi.simulate.schedules import Mode, run_schedule

SEARCH = int(os.environ.get("PYHUDI_SEARCH", "0"))
#: Where rollbacks are archived at once, which is more than the protocol promises to stand.
ARCHIVING = {"no chain rule"}
KILLERS: dict[str, list[tuple[Mode, int]]] = {
    "no settle-first": [("occ", 1), ("nbcc", 1), ("occ", 2), ("nbcc", 2)],
    "early time": [("occ", 0), ("nbcc", 1), ("occ", 1), ("nbcc", 2)],
    "rollback outside the log": [("occ", 0), ("occ", 1), ("occ", 3), ("nbcc", 4)],
    "no verify": [("occ", 62)],
    "no chain rule": [("nbcc", 487), ("nbcc", 869), ("nbcc", 891)],
    "abort not checked again": [("occ", 0), ("occ", 2), ("nbcc", 4), ("occ", 4)],
    "rollback removes all heartbeats": [("occ", 3), ("nbcc", 7), ("occ", 19), ("occ", 22)],
    "no conflict check": [("occ", 0), ("occ", 1), ("nbcc", 3), ("occ", 3)],
    "own clock for heartbeats": [("nbcc", 2), ("nbcc", 4), ("nbcc", 6), ("nbcc", 7)],
    "local clock only": [("nbcc", 0), ("occ", 0), ("nbcc", 1), ("occ", 1)],
    "complete ignores aborts": [("nbcc", 137), ("nbcc", 145)],
    "published before decided": [("occ", 0), ("nbcc", 1), ("occ", 1), ("nbcc", 3)],
    "entry overwritten": [("nbcc", 1), ("occ", 1), ("nbcc", 3), ("occ", 3)],
    "no markers": [("occ", 0), ("occ", 1), ("nbcc", 3), ("occ", 3)],
    "rollback trusts its plan": [("occ", 19), ("occ", 58), ("occ", 81), ("nbcc", 91)],
    "conflicts by requested time": [("occ", 3), ("occ", 9), ("nbcc", 13), ("occ", 18)],
    "recommitted out of order": [("occ", 1), ("occ", 10), ("occ", 16), ("occ", 24)],
    "recommitted after reading": [("occ", 3), ("occ", 11), ("occ", 20), ("occ", 37)],
    "base files unchecked": [("nbcc", 3), ("nbcc", 4), ("nbcc", 7), ("nbcc", 9)],
    "compactions harm nobody": [("nbcc", 37), ("nbcc", 81), ("nbcc", 105), ("nbcc", 176)],
    "parts left alone": [("partial", 217)],
    "keys taken for new": [("partial", 9), ("partial", 59), ("partial", 76), ("partial", 92)],
    "priority ignored": [("occ", 66), ("occ", 74), ("occ", 86), ("occ", 90)],
    "ownership asked once": [("partial", 31), ("partial", 119)],
    "no fence": [("nbcc", 8), ("nbcc", 32), ("occ", 32), ("nbcc", 40)],
    "fence without a look": [("occ", 1), ("occ", 84), ("nbcc", 99), ("nbcc", 105)],
    "sliced by requested time": [("occ", 0), ("nbcc", 4), ("nbcc", 9), ("occ", 18)],
    "polled by requested time": [("nbcc", 3), ("nbcc", 4), ("nbcc", 7), ("occ", 9)],
    "pending compaction hides logs": [("nbcc", 1), ("nbcc", 2), ("nbcc", 9), ("occ", 10)],
}


def catches(bug: str, mode: Mode, seed: int) -> bool:
    archives = bug in ARCHIVING
    return bool(run_schedule(seed, mode=mode, planted=bug, archives=archives).violations)


def test_every_planted_bug_has_seeds() -> None:
    assert KILLERS.keys() == BUGS.keys()


@pytest.mark.parametrize("bug", BUGS)
def test_the_recorded_seeds_catch_the_bug(bug: str) -> None:
    assert any(catches(bug, mode, seed) for mode, seed in KILLERS[bug])


@pytest.mark.parametrize("bug", BUGS)
def test_the_same_seeds_find_nothing_in_the_code_as_it_is(bug: str) -> None:
    for mode, seed in KILLERS[bug]:
        result = run_schedule(seed, mode=mode, archives=bug in ARCHIVING)
        assert not result.violations, (mode, seed, result.violations)


if SEARCH:

    @pytest.mark.parametrize("bug", BUGS)
    def test_a_search_catches_the_bug(bug: str) -> None:
        found: list[tuple[Mode, int]] = []
        modes: tuple[Mode, ...] = ("nbcc", "occ", "partial")
        for seed in range(SEARCH):
            found += [(mode, seed) for mode in modes if catches(bug, mode, seed)]
            if len(found) >= 4:
                break
        print(f"{bug!r}: {found}")
        assert found
