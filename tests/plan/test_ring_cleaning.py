"""Which rings a clean removes, and in which order their objects go."""

from __future__ import annotations

import pytest

from pyhudi.format.table.ring_file import FIRST_INSTANT, RingFiles
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.plan.ring_cleaning import outlived_rings, ring_objects

A, B, C = (InstantTime(f"2026010100000000{n}") for n in range(3))
ZERO = FIRST_INSTANT


@pytest.mark.parametrize(
    ("instants", "marks", "retained_before", "gone"),
    [
        pytest.param((), (), (), (), id="no ring"),
        pytest.param((ZERO,), (), (), (), id="the first alone"),
        pytest.param((ZERO,), (ZERO,), (), (), id="the first alone, marked"),
        pytest.param((ZERO, A), (ZERO,), (), (), id="the next is not marked"),
        pytest.param((ZERO, A), (ZERO, A), (), (ZERO,), id="the next is marked"),
        pytest.param((ZERO, A), (A,), (), (ZERO,), id="the first was never marked"),
        pytest.param((ZERO, A), (ZERO, A), (A,), (), id="a state before the next is retained"),
        pytest.param((ZERO, A, B), (ZERO, A, B), (B,), (ZERO,), id="the older of two"),
        pytest.param((ZERO, A, B), (ZERO, A, B), (), (ZERO, A), id="both older ones"),
        pytest.param((ZERO, A, B), (ZERO, A), (), (ZERO,), id="the newest is pending"),
        pytest.param((ZERO, A, B), (ZERO, B), (), (ZERO, A), id="a leftover in between"),
        pytest.param((A, B), (ZERO, A, B), (B,), (ZERO,), id="a mark whose file is gone"),
        pytest.param((A, B), (A, B, C), (), (A,), id="a newest mark without its file"),
        pytest.param((ZERO,), (A,), (), (), id="no marked ring has its file"),
    ],
)
def test_what_is_older_than_a_marked_ring_goes_unless_a_state_before_that_is_retained(
    instants: tuple[InstantTime, ...],
    marks: tuple[InstantTime, ...],
    retained_before: tuple[InstantTime, ...],
    gone: tuple[InstantTime, ...],
) -> None:
    files = RingFiles("p", instants, frozenset(marks))
    assert outlived_rings(files, retained_before.__contains__) == gone


def test_every_file_goes_before_its_mark() -> None:
    names = [path.rpartition("/")[2] for path in ring_objects("p", (ZERO, A))]
    assert names == [
        f"{ZERO}.hashing_meta",
        f"{A}.hashing_meta",
        f"{ZERO}.commit",
        f"{A}.commit",
    ]
