"""Each planted bug is caught: the harness sees what it is there to see.

The seeds were found by search. A change of the protocol code may move what they do, so there are
several for each bug, of which one must still catch it. `PYHUDI_SEARCH=20000` searches for each bug
from seed 0 and prints the first seeds that catch it.
"""

from __future__ import annotations

import os

import pytest

from pyhudi.plan.cleaning import CleanPolicy
from pyhudi.simulate.table.schedules import Mode, ScheduleResult, Services, run_schedule
from simulation.planted.commit import BUGS
from simulation.planted.resizes import RESIZE_BUGS
from simulation.planted.schemas import SCHEMA_BUGS

SEARCH = int(os.environ.get("PYHUDI_SEARCH", "0"))
#: Where rollbacks are archived at once, which is more than the protocol promises to stand.
ARCHIVING = {"no chain rule"}
#: Where more table services run than a seed would draw.
SERVED: dict[str, Services] = {
    "compactions ignored": Services(compactors=1),
    "keys taken for new": Services(compactors=1),
    "services bring schemas": Services(compactors=2),
    "pending plans cleaned": Services(compactors=2, cleaners=2, policy=CleanPolicy.versions(1)),
    "cleaned without a check": Services(
        compactors=1, cleaners=2, savepointers=1, policy=CleanPolicy.commits(1)
    ),
    "registered without a check": Services(compactors=1, cleaners=2, policy=CleanPolicy.commits(1)),
    "cancelled cleans record nothing": Services(
        cleaners=2, cancellers=2, policy=CleanPolicy.commits(1)
    ),
    "late files count as pending": Services(compactors=1, archivers=2, late_inflights=1),
    "pending passed": Services(archivers=1),
    "version overwritten": Services(archivers=2),
    "recent ones archived": Services(archivers=2),
    "old logs passed": Services(compactors=1, archivers=2),
}
KILLERS: dict[str, list[tuple[Mode, int]]] = {
    "no settle-first": [("occ", 1), ("nbcc", 1), ("occ", 2), ("nbcc", 2)],
    "early time": [("occ", 0), ("nbcc", 1), ("occ", 1), ("nbcc", 2)],
    "rollback outside the log": [("occ", 0), ("occ", 1), ("occ", 3), ("nbcc", 4)],
    "no verify": [("occ", 57), ("occ", 82), ("occ", 148)],
    "no chain rule": [("occ", 68), ("partial", 149), ("occ", 149), ("occ", 264)],
    "abort not checked again": [("occ", 0), ("occ", 2), ("nbcc", 4), ("occ", 4)],
    "rollback removes all heartbeats": [
        ("shared", 0),
        ("shared", 3),
        ("shared", 25),
        ("occ", 43),
        ("nbcc", 64),
    ],
    "no conflict check": [("occ", 0), ("occ", 1), ("nbcc", 3), ("occ", 3)],
    "own clock for heartbeats": [("nbcc", 2), ("nbcc", 4), ("nbcc", 6), ("nbcc", 7)],
    "local clock only": [("nbcc", 0), ("occ", 0), ("nbcc", 1), ("occ", 1)],
    "complete ignores aborts": [("nbcc", 47), ("occ", 58), ("occ", 121)],
    "published before decided": [("occ", 0), ("nbcc", 1), ("occ", 1), ("nbcc", 3)],
    "entry overwritten": [("nbcc", 1), ("occ", 1), ("nbcc", 3), ("occ", 3)],
    "no markers": [("occ", 0), ("occ", 1), ("nbcc", 3), ("occ", 3)],
    "rollback trusts its plan": [("occ", 19), ("occ", 58), ("occ", 81), ("nbcc", 91)],
    "conflicts by requested time": [("occ", 3), ("occ", 9), ("nbcc", 13), ("occ", 18)],
    "committed behind out of order": [("occ", 1), ("occ", 10), ("occ", 16), ("occ", 24)],
    "committed behind after reading": [("occ", 3), ("occ", 11), ("occ", 20), ("occ", 37)],
    "base files unchecked": [("nbcc", 3), ("nbcc", 4), ("nbcc", 7), ("nbcc", 9)],
    "compactions ignored": [("nbcc", 47), ("occ", 57), ("nbcc", 76)],
    "parts left alone": [("partial", 58), ("partial", 85), ("partial", 199)],
    "keys taken for new": [("partial", 92), ("partial", 156), ("partial", 214)],
    "priority ignored": [("occ", 66), ("occ", 74), ("occ", 86), ("occ", 90)],
    "replaced unchecked": [
        ("shared", 47),
        ("occ", 25),
        ("occ", 855),
        ("shared", 341),
        ("shared", 627),
    ],
    "ownership checked once": [("partial", 18), ("partial", 47), ("partial", 52)],
    "no fence": [("nbcc", 8), ("nbcc", 32), ("occ", 32), ("nbcc", 40)],
    "fence without a check": [("occ", 1), ("occ", 84), ("nbcc", 99), ("nbcc", 105)],
    "sliced by requested time": [
        ("nbcc", 3),
        ("occ", 7),
        ("occ", 0),
        ("nbcc", 4),
        ("nbcc", 9),
        ("occ", 18),
    ],
    "polled by requested time": [
        ("partial", 19),
        ("nbcc", 22),
        ("nbcc", 3),
        ("nbcc", 4),
        ("nbcc", 7),
        ("occ", 9),
    ],
    "pending compaction hides logs": [("nbcc", 1), ("nbcc", 2), ("nbcc", 9), ("occ", 10)],
    "planned without a check": [("nbcc", 0), ("occ", 7), ("shared", 18), ("nbcc", 21)],
    "late logs compacted": [("shared", 6), ("partial", 6), ("nbcc", 7), ("occ", 7)],
    "plans share file groups": [("occ", 0), ("partial", 0), ("shared", 1)],
    "pending plans cleaned": [("nbcc", 10), ("nbcc", 23), ("shared", 34)],
    "consumers cleaned": [("nbcc", 7), ("occ", 12), ("occ", 13)],
    "cleaned without a check": [("shared", 156), ("shared", 284), ("shared", 350)],
    "registered without a check": [("shared", 3), ("occ", 11), ("shared", 11)],
    "cleaned times read": [("occ", 12)],
    "cancelled cleans record nothing": [("nbcc", 72), ("shared", 85), ("occ", 226), ("nbcc", 240)],
    "late files count as pending": [("occ", 3), ("nbcc", 6), ("occ", 15), ("nbcc", 15)],
    "pending passed": [("nbcc", 14), ("occ", 31), ("nbcc", 57)],
    "removed before archived": [("occ", 1), ("nbcc", 3), ("nbcc", 6)],
    "orphans passed": [("occ", 1), ("nbcc", 7), ("nbcc", 15)],
    "version overwritten": [("nbcc", 21), ("partial", 40), ("occ", 48), ("nbcc", 49)],
    "completed removed first": [("occ", 1), ("nbcc", 3), ("nbcc", 6)],
    "recent ones archived": [("nbcc", 16), ("nbcc", 19), ("nbcc", 33), ("occ", 38)],
    "old logs passed": [("nbcc", 1), ("nbcc", 13), ("nbcc", 95), ("partial", 68), ("nbcc", 118)],
    "resized without a check": [("partial", 38), ("nbcc", 58), ("nbcc", 66)],
    "closed and not checked": [("occ", 0), ("occ", 2), ("occ", 19)],
    "close not heeded": [("partial", 8), ("occ", 10), ("occ", 15)],
    "late writes stay": [("nbcc", 4), ("nbcc", 5), ("nbcc", 7)],
    "moved early": [("occ", 0), ("partial", 0), ("occ", 3)],
    "older writes move": [("nbcc", 5), ("nbcc", 8), ("nbcc", 16)],
    "overwritten under copies": [("occ", 25)],
    "ring before the decision": [("occ", 0), ("partial", 0), ("nbcc", 1)],
    "pending writes copied": [("occ", 3), ("partial", 3), ("nbcc", 4)],
    "versions by request": [("occ", 0), ("nbcc", 11), ("occ", 12)],
    "copies share a name": [("partial", 3), ("nbcc", 4), ("nbcc", 8)],
    "closed without bound": [("nbcc", 19)],
    "not bound to its resize": [("partial", 3)],
    "new keys beside resizes": [("partial", 38)],
    "superseded published": [("shared", 53), ("shared", 50), ("shared", 122), ("shared", 125)],
    "own inflight not checked": [("shared", 249), ("shared", 833)],
    "skew not waited out": [("shared", 1), ("shared", 10), ("shared", 24), ("shared", 30)],
    "lock not checked again": [("shared", 198), ("shared", 756), ("shared", 1175)],
    "schema of the begin recorded": [("nbcc", 0), ("occ", 0), ("shared", 0), ("partial", 1)],
    "evolved behind a later request": [("nbcc", 3), ("occ", 3), ("nbcc", 4), ("occ", 11)],
    "joined by union": [("occ", 0), ("shared", 0), ("nbcc", 9), ("occ", 20)],
    "own kept from the call": [("occ", 0), ("partial", 0), ("nbcc", 1), ("occ", 1)],
    "services bring schemas": [("nbcc", 18), ("partial", 19), ("shared", 42), ("nbcc", 47)],
    "last begin passed": [("shared", 9), ("partial", 29), ("shared", 39)],
    "no wait for the other reader": [("shared", 1), ("shared", 23), ("shared", 25), ("shared", 26)],
}


def catches(bug: str, mode: Mode, seed: int) -> bool:
    with BUGS[bug]():
        return bool(played(bug, mode, seed).violations)


def played(bug: str, mode: Mode, seed: int) -> ScheduleResult:
    archives, services = bug in ARCHIVING, SERVED.get(bug)
    return run_schedule(
        seed,
        mode=mode,
        archives=archives,
        services=services,
        evolves=bug in SCHEMA_BUGS,
        resizes=bug in RESIZE_BUGS,
    )


def test_every_planted_bug_has_seeds() -> None:
    assert KILLERS.keys() == BUGS.keys()


@pytest.mark.parametrize("bug", BUGS)
def test_the_recorded_seeds_catch_the_bug(bug: str) -> None:
    assert any(catches(bug, mode, seed) for mode, seed in KILLERS[bug])


@pytest.mark.parametrize("bug", BUGS)
def test_the_same_seeds_find_nothing_in_the_code_as_it_is(bug: str) -> None:
    for mode, seed in KILLERS[bug]:
        result = played(bug, mode, seed)
        assert not result.violations, (mode, seed, result.violations)


if SEARCH:

    @pytest.mark.parametrize("bug", BUGS)
    def test_a_search_catches_the_bug(bug: str) -> None:
        found: list[tuple[Mode, int]] = []
        modes: tuple[Mode, ...] = ("nbcc", "occ", "partial", "shared")
        for seed in range(SEARCH):
            found += [(mode, seed) for mode in modes if catches(bug, mode, seed)]
            if len(found) >= 4:
                break
        print(f"{bug!r}: {found}")
        assert found
