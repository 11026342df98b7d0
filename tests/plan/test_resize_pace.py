"""How a resize comes to its end: each series of looks ends, and writers wait for little."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.format.files.file_names import LogFileName
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.plan.resizing.copies import OwedCopy
from pyhudi.plan.resizing.pace import CLOSE_BYTES, CLOSE_FILES, Pace, load_of
from pyhudi.table.file_group import LogFile

AT = InstantTime("20260101000000000")


def owed(count: int, files: int = 1, size: int = 0) -> list[OwedCopy]:
    log = LogFile("p/a", size, LogFileName("a-0", AT, 1, "0-0-0"))
    return [OwedCopy(number, AT, {0: (log,)}, files) for number in range(count)]


def refused(times: int) -> Pace:
    pace = Pace.of(())
    for _ in range(times):
        pace = pace.refused()
    return pace


@pytest.mark.parametrize(
    ("refusals", "factor"),
    [(3, 1), (7, 1), (8, 2), (13, 4), (18, 8), (23, 16), (28, 32), (33, 32), (99, 32)],
)
def test_limits_double_after_each_five_refusals_up_to_the_highest(
    refusals: int, factor: int
) -> None:
    pace = refused(refusals)
    assert pace.may_close(owed(CLOSE_FILES * factor))
    assert not pace.may_close(owed(CLOSE_FILES * factor + 1))
    assert pace.may_close(owed(factor, 1, CLOSE_BYTES))
    assert not pace.may_close(owed(factor + 1, 1, CLOSE_BYTES))


def test_a_resize_is_not_closed_before_three_refusals_nor_cancelled_before_33() -> None:
    assert [n for n in range(5) if refused(n).may_close(())] == [3, 4]
    assert [n for n in range(40) if refused(n).must_cancel] == list(range(33, 40))


def test_the_files_of_one_write_are_never_too_many_but_its_bytes_may_be() -> None:
    pace = refused(3)
    assert pace.may_close(owed(1, 10 * CLOSE_FILES))
    assert not pace.may_close(owed(2, 10 * CLOSE_FILES))
    assert not pace.may_close(owed(1, 1, CLOSE_BYTES + 1))


def test_a_round_is_an_eighth_while_it_catches_up_and_short_when_it_is_outrun() -> None:
    many = owed(80, CLOSE_FILES)
    pace = Pace.of(many)
    assert len(pace.next_round(many)) == 10
    assert len(pace.refused().next_round(many)) == 1
    assert len(pace.refused().next_round(owed(80, CLOSE_FILES // 2))) == 2
    assert len(pace.refused().next_round(owed(80, 9 * CLOSE_FILES))) == 1, "at least one write"
    assert len(pace.refused().next_round(owed(80))) == 80


@settings(deadline=None, max_examples=50)
@given(
    at_first=st.integers(0, 80),
    files=st.sampled_from([1, 58, 1_000]),
    arriving=st.lists(st.integers(0, 20), max_size=30),
    each=st.integers(0, 40),
)
def test_whatever_completes_meanwhile_the_rounds_end(
    at_first: int, files: int, arriving: list[int], each: int
) -> None:
    """So many complete in each of the first rounds, and in each one after those."""
    left = owed(at_first, files)
    pace = Pace.of(left)
    for number in range(1_000):
        if not left or pace.may_close(left) or pace.must_cancel:
            break
        copied = pace.next_round(left)
        more = arriving[number] if number < len(arriving) else each
        left = [*left[len(copied) :], *owed(more, files)]
        pace = pace.after(copied, left)
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
        pace = pace.after(copied, left)
        assert not pace.is_outrun


def test_writers_that_are_faster_by_a_half_are_held_up_for_what_the_limits_allow() -> None:
    left, pace, due = owed(10, 58), Pace.of(owed(10, 58)), 0.0
    while not pace.may_close(left):
        assert not pace.must_cancel
        copied = pace.next_round(left)
        due += 1.5 * len(copied)
        left, due = [*left[len(copied) :], *owed(int(due), 58)], due % 1
        pace = pace.after(copied, left)
    assert load_of(left) <= 32
    assert pace.refusals > 3
