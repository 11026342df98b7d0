"""How a resize comes to its end: each series of looks ends, and writers wait for little."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.format.files.file_names import LogFileName
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.plan.resizing.copies import OwedCopy
from pyhudi.plan.resizing.pace import (
    CANCEL_REFUSALS,
    CLOSE_BYTES,
    CLOSE_FILES,
    CLOSE_MS,
    REFUSALS_MAX,
    Pace,
    load_of,
)
from pyhudi.table.file_group import LogFile

AT = InstantTime("20260101000000000")
LOAD_FILES = 128  # in a short round


def owed(count: int, files: int = 1, size: int = 0) -> list[OwedCopy]:
    log = LogFile("p/a", size, LogFileName("a-0", AT, 1, "0-0-0"))
    return [OwedCopy(number, AT, {0: (log,)}, files) for number in range(count)]


def refused(times: int, *, rounds_ms: tuple[float, ...] = ()) -> Pace:
    """After so many refusals; each of these rounds copied 128 files in its time."""
    pace = Pace.of(())
    for took_ms in rounds_ms:
        pace = pace.after(owed(LOAD_FILES), took_ms, ())
    for _ in range(times):
        pace = pace.refused()
    return pace


@pytest.mark.parametrize(
    ("rounds_ms", "files"),
    [
        ((), 256),
        ((1_000,), 256),
        ((100,), 2_560),
        ((2_000,), 128),
        ((4_000, 4_000, 4_000, 500, 500, 500), 288),  # what was long ago counts little
        ((0,), CLOSE_FILES),
    ],
)
def test_what_may_be_left_at_a_close_takes_two_seconds_at_the_speed_of_the_last_rounds(
    rounds_ms: tuple[float, ...], files: int
) -> None:
    pace = refused(REFUSALS_MAX, rounds_ms=rounds_ms)
    assert pace.may_close(owed(files))
    assert not pace.may_close(owed(files + 1))


def test_what_may_be_left_is_bounded_however_fast_the_process_is() -> None:
    pace = refused(REFUSALS_MAX, rounds_ms=(0,))
    assert pace.may_close(owed(1, 1, CLOSE_BYTES))
    assert not pace.may_close(owed(1, 1, CLOSE_BYTES + 1))
    assert not pace.may_close(owed(2, 1, CLOSE_BYTES))


def test_a_resize_is_not_closed_before_three_refusals_nor_cancelled_before_33() -> None:
    assert [n for n in range(5) if refused(n).may_close(())] == [3, 4]
    assert [n for n in range(40) if refused(n).must_cancel(1)] == list(range(33, 40))


def test_a_resize_that_can_be_divided_is_cancelled_after_nine_refusals() -> None:
    assert [n for n in range(40) if refused(n).must_cancel(2)] == list(range(9, 40))


def test_the_files_of_one_write_are_never_too_many_but_may_take_too_long() -> None:
    fast, slow = (refused(REFUSALS_MAX, rounds_ms=(ms,)) for ms in (0, 500))
    assert fast.may_close(owed(1, 2 * CLOSE_FILES))
    assert not fast.may_close(owed(2, 2 * CLOSE_FILES))
    assert not slow.may_close(owed(1, 2 * CLOSE_FILES))


def test_a_round_is_an_eighth_while_it_catches_up_and_short_when_it_is_outrun() -> None:
    many = owed(80, LOAD_FILES)
    pace = Pace.of(many)
    assert len(pace.next_round(many)) == 10
    assert len(pace.refused().next_round(many)) == 1
    assert len(pace.refused().next_round(owed(80, LOAD_FILES // 2))) == 2
    assert len(pace.refused().next_round(owed(80, 9 * LOAD_FILES))) == 1, "at least one write"
    assert len(pace.refused().next_round(owed(80))) == 80


@settings(deadline=None, max_examples=50)
@given(
    at_first=st.integers(0, 80),
    files=st.sampled_from([1, 58, 1_000]),
    arriving=st.lists(st.integers(0, 20), max_size=30),
    each=st.integers(0, 40),
    round_ms=st.integers(0, 3_000),
)
def test_whatever_completes_meanwhile_the_rounds_end(
    at_first: int, files: int, arriving: list[int], each: int, round_ms: int
) -> None:
    """So many complete in each of the first rounds, and in each one after those."""
    left = owed(at_first, files)
    pace = Pace.of(left)
    for number in range(1_000):
        if not left or pace.may_close(left) or pace.must_cancel(1):
            break
        copied = pace.next_round(left)
        more = arriving[number] if number < len(arriving) else each
        left = [*left[len(copied) :], *owed(more, files)]
        pace = pace.after(copied, round_ms, left)
    else:
        pytest.fail("the rounds do not end")


@pytest.mark.parametrize("at_first", [1, 60, 2_000])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.8])
def test_a_resize_that_is_faster_than_writers_is_not_outrun(at_first: int, share: float) -> None:
    """With each copied write, this share of a write completes."""
    left = owed(at_first, 58)
    pace, due = Pace.of(left), 0.0
    while load_of(left) > 2:
        copied = pace.next_round(left)
        due += share * len(copied)
        left, due = [*left[len(copied) :], *owed(int(due), 58)], due % 1
        pace = pace.after(copied, 100, left)
        assert not pace.is_outrun


@pytest.mark.parametrize(("file_ms", "is_closed"), [(1.0, True), (8.0, False)])
def test_writers_that_are_faster_by_a_half_hold_up_no_writer_for_more_than_that(
    file_ms: float, is_closed: bool
) -> None:
    """It is closed if it is early enough, and cancelled otherwise."""
    left, pace, due = owed(10, 58), Pace.of(owed(10, 58)), 0.0
    while not (may_close := pace.may_close(left)) and not pace.must_cancel(1):
        copied = pace.next_round(left)
        due += 1.5 * len(copied)
        left, due = [*left[len(copied) :], *owed(int(due), 58)], due % 1
        pace = pace.after(copied, file_ms * 58 * len(copied), left)
    assert may_close == is_closed
    if may_close:
        assert file_ms * 58 * len(left) <= CLOSE_MS
    assert REFUSALS_MAX <= pace.refusals <= CANCEL_REFUSALS
