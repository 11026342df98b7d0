"""Which ring is in force: what the files, the timeline and the archive say."""

from __future__ import annotations

import pytest

from pyhudi.errors import CorruptTableError
from pyhudi.format.table.ring_file import FIRST_INSTANT, RingFiles
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.index.ring_history import Fate, InForce, ring_in_force

A, B, C = (InstantTime(f"2026010100000000{n}") for n in range(3))
ZERO = FIRST_INSTANT


def found(
    instants: tuple[InstantTime, ...],
    marks: tuple[InstantTime, ...] = (),
    fates: dict[InstantTime, Fate] | None = None,
    left: tuple[InstantTime, ...] = (),
    *,
    complete: tuple[InstantTime, ...] | None = None,
) -> InForce | None:
    """The ring in force; marks are pyhudi's, unless only some are `complete`."""
    told = fates or {}
    full = frozenset(marks if complete is None else complete)
    files = RingFiles("p", tuple(sorted(instants)), frozenset(marks), full)
    return ring_in_force(
        files,
        lambda instant: told.get(instant, Fate.FORGOTTEN),
        lambda instant: instant in left,
        lambda instant: told.get(instant) is Fate.ROLLED_BACK,
    )


DONE, PENDING, UNDONE = Fate.COMPLETED, Fate.PENDING, Fate.ROLLED_BACK


@pytest.mark.parametrize(
    ("ring", "expected"),
    [
        pytest.param(found(()), None, id="no ring yet"),
        pytest.param(found((ZERO,)), (ZERO, False), id="(a) the first ring alone"),
        pytest.param(found((ZERO,), (ZERO,)), (ZERO, True), id="the first ring, marked"),
        pytest.param(
            found((ZERO, A), (ZERO, A), complete=(ZERO,)), (A, False), id="marked by Hudi"
        ),
        pytest.param(found((ZERO, A), fates={A: DONE}), (A, False), id="(b) completed, no mark"),
        pytest.param(found((ZERO, A), fates={A: PENDING}), (ZERO, False), id="(c) pending"),
        pytest.param(found((ZERO, A), fates={A: UNDONE}), (ZERO, False), id="(d) rolled back"),
        pytest.param(
            found((ZERO, A), (ZERO,), left=(A,)), (A, False), id="(e) archived, has files"
        ),
        pytest.param(found((ZERO, A)), (ZERO, False), id="leftover that nobody remembers"),
        pytest.param(found((ZERO, A), (A,)), (A, True), id="marked and archived"),
        pytest.param(found((ZERO, A, B), (A,), {B: PENDING}), (A, True), id="newest is pending"),
        pytest.param(
            found((ZERO, A, B, C), (A,), {B: UNDONE, C: UNDONE}), (A, True), id="two leftovers"
        ),
        pytest.param(
            found((ZERO, A, B), fates={A: DONE, B: DONE}), (B, False), id="two without a mark"
        ),
        pytest.param(found((A, B), (A,), {B: UNDONE}), (A, True), id="older files were cleaned"),
        pytest.param(found((A,), fates={A: UNDONE}), None, id="nothing but a leftover"),
        pytest.param(
            found((ZERO, A, B), (B,), {A: UNDONE}), (B, True), id="an older leftover is not asked"
        ),
        pytest.param(found((A, B), (ZERO, A, B)), (B, True), id="a clean left a mark, and died"),
    ],
)
def test_the_newest_ring_that_counts_is_in_force(
    ring: InForce | None, expected: tuple[InstantTime, bool] | None
) -> None:
    assert ring == (None if expected is None else InForce(*expected))


@pytest.mark.parametrize(
    ("instants", "marks", "why"),
    [
        ((ZERO,), (A,), "without it"),  # (f)
        ((ZERO,), (ZERO, A), "without it"),
        ((ZERO, A), (A, ZERO), "was rolled back"),
    ],
)
def test_marks_that_contradict_are_an_error_with_partition_and_file(
    instants: tuple[InstantTime, ...], marks: tuple[InstantTime, ...], why: str
) -> None:
    with pytest.raises(CorruptTableError, match="partition 'p'") as caught:
        found(instants, marks, {A: UNDONE})
    assert why in caught.value.why
    assert str(caught.value.path).endswith(f"/p/{A}.hashing_meta")
