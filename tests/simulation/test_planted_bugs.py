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
    "no settle-first": [("occ", 0), ("nbcc", 1), ("occ", 1), ("nbcc", 2)],
    "early time": [("occ", 0), ("nbcc", 1), ("occ", 1), ("nbcc", 2)],
    "rollback outside the log": [("occ", 0), ("occ", 1), ("nbcc", 2), ("occ", 2)],
    "no verify": [("occ", 13), ("nbcc", 17), ("occ", 33), ("occ", 52)],
    "no chain rule": [("nbcc", 487), ("nbcc", 812), ("nbcc", 869), ("nbcc", 891)],
    "abort not checked again": [("occ", 2), ("occ", 3), ("nbcc", 4), ("occ", 4)],
    "rollback removes all heartbeats": [("nbcc", 61), ("occ", 105), ("occ", 108), ("nbcc", 109)],
    "no conflict check": [("occ", 0), ("occ", 1), ("nbcc", 2), ("occ", 2)],
    "own clock for heartbeats": [("nbcc", 2), ("occ", 2), ("nbcc", 4), ("occ", 4)],
    "local clock only": [("nbcc", 0), ("occ", 0), ("nbcc", 1), ("occ", 1)],
    "complete ignores aborts": [("nbcc", 20), ("occ", 20), ("occ", 66), ("occ", 73)],
    "published before decided": [("nbcc", 1), ("occ", 1), ("nbcc", 2), ("occ", 2)],
    "entry overwritten": [("occ", 0), ("occ", 1), ("nbcc", 2), ("occ", 2)],
    "no markers": [("occ", 1), ("nbcc", 2), ("occ", 2), ("occ", 3)],
    "rollback trusts its plan": [("occ", 2), ("nbcc", 4), ("occ", 28), ("nbcc", 61)],
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
        modes: tuple[Mode, ...] = ("nbcc", "occ")
        for seed in range(SEARCH):
            found += [(mode, seed) for mode in modes if catches(bug, mode, seed)]
            if len(found) >= 4:
                break
        print(f"{bug!r}: {found}")
        assert found
