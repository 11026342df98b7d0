"""The state of a timeline as of one completion time, from two listings that do not agree."""

from __future__ import annotations

import pytest

from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.timeline.cut import (
    at_cut,
    cleans_beyond,
    cut_time,
    is_archived_since,
    is_rolled_back,
    shared_writes,
)
from pyhudi.timeline.timeline import Timeline


def at(n: int) -> InstantTime:
    return InstantTime(f"{n:017d}")


def done(n: int, completed: int, action: Action = Action.DELTACOMMIT) -> Instant:
    return Instant(at(n), action, State.COMPLETED, at(completed))


def begun(n: int, action: Action = Action.DELTACOMMIT) -> Instant:
    return Instant(at(n), action, State.REQUESTED)


def listed(*instants: Instant) -> Timeline:
    return Timeline.of(instants)


def completed(timeline: Timeline) -> dict[str, str]:
    return {i.requested[-2:]: i.completed[-2:] for i in timeline.writes if i.completed}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # Nothing happened in between.
        ([done(1, 2)], [done(1, 2)], {"01": "02"}),
        # The first listing missed a completion that was there: its page had been read before.
        ([begun(1), done(3, 5)], [done(1, 4), done(3, 5)], {"01": "04", "03": "05"}),
        # It missed that instant altogether.
        ([done(3, 5)], [done(1, 4), done(3, 5)], {"01": "04", "03": "05"}),
        # A write that completed after the cut does not count, though its request is older.
        ([begun(1), done(3, 5)], [done(1, 6), done(3, 5)], {"03": "05"}),
        ([done(3, 5)], [done(3, 5), done(7, 8)], {"03": "05"}),
        # Before the first completion there is nothing.
        ([], [done(1, 2)], {}),
        ([begun(1)], [done(1, 2)], {}),
        # A completed write that was archived in between stays known.
        ([done(1, 2), done(3, 4)], [done(3, 4)], {"01": "02", "03": "04"}),
    ],
)
def test_all_completions_up_to_the_cut_count_and_no_later_one(
    first: list[Instant], second: list[Instant], expected: dict[str, str]
) -> None:
    assert completed(at_cut(listed(*first), listed(*second))) == expected


def test_an_instant_that_completed_after_the_cut_is_pending_and_never_taken_for_archived() -> None:
    cut = at_cut(listed(begun(5), done(6, 7)), listed(done(1, 9), begun(5), done(6, 7)))
    assert not cut.is_committed(at(1))
    assert at(1) in cut.pending_writes


def test_a_compaction_that_completed_after_the_cut_stays_a_pending_compaction() -> None:
    planned = begun(3, Action.COMPACTION)
    second = listed(done(1, 2), planned, done(3, 9, Action.COMMIT))
    cut = at_cut(listed(done(1, 2)), second)
    assert [(i.requested, i.action) for i in cut.pending] == [(at(3), Action.COMPACTION)]


def test_a_missed_write_that_is_in_the_archive_counts() -> None:
    first, second = listed(begun(1), done(3, 5)), listed(done(3, 5))
    assert completed(at_cut(first, second, [done(1, 4)])) == {"01": "04", "03": "05"}
    assert completed(at_cut(first, second, [done(1, 6)])) == {"03": "05"}


def test_a_clean_and_a_rollback_of_the_second_listing_are_known() -> None:
    clean, rollback = begun(6, Action.CLEAN), done(7, 8, Action.ROLLBACK)
    first = listed(done(1, 2), begun(3))
    second = listed(done(1, 2), begun(3), clean, rollback)
    assert {clean, rollback} <= set(at_cut(first, second).instants)
    assert cleans_beyond(first, second) == (clean,)
    assert cleans_beyond(second, second) == ()


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([done(1, 2), done(3, 4)], [done(1, 2), done(3, 4)], False),
        ([done(1, 2), done(3, 4)], [done(1, 2)], True),
        ([done(1, 2), done(3, 4)], [done(1, 2), begun(3)], True),  # made inflight again
        ([done(1, 2), done(3, 4)], [done(3, 4)], False),  # archived
        ([done(1, 2), begun(3)], [done(1, 2), done(5, 6, Action.ROLLBACK)], False),
        ([done(3, 4)], [begun(3)], True),  # the only one
        ([done(1, 2)], [done(1, 2), begun(5, Action.RESTORE)], True),
        ([done(1, 2), begun(5, Action.RESTORE)], [done(1, 2), begun(5, Action.RESTORE)], False),
    ],
)
def test_what_was_completed_and_is_gone_was_undone_unless_it_is_archived(
    first: list[Instant], second: list[Instant], expected: bool
) -> None:
    assert is_rolled_back(listed(*first), listed(*second)) is expected


def test_archiving_shows_by_the_oldest_write_that_is_no_longer_there() -> None:
    first = listed(done(1, 2), done(3, 4), done(5, 6))
    assert not is_archived_since(first, first, at(1))
    assert is_archived_since(first, listed(done(3, 4), done(5, 6)), at(1))
    # The second listing begins behind what was archived: nothing of it is in question.
    assert not is_archived_since(first, listed(done(3, 4), done(5, 6)), at(3))
    assert shared_writes(first, listed(done(5, 6), done(7, 8))) == [at(5)]


def test_a_savepointed_write_does_not_tell_that_nothing_was_archived() -> None:
    saved = Instant(at(1), Action.SAVEPOINT, State.COMPLETED, at(9))
    first = listed(done(1, 2), saved, done(3, 4), done(5, 6))
    second = listed(done(1, 2), saved, done(5, 6))
    assert is_archived_since(first, second, at(1))
    assert not is_rolled_back(first, second)


def test_a_clean_is_in_question_if_it_began_since_or_counted_what_the_first_listing_missed() -> (
    None
):
    clean = begun(6, Action.CLEAN)
    missed = listed(done(1, 2), done(3, 5), clean)
    assert cleans_beyond(listed(done(1, 2), begun(3), clean), missed) == (clean,)
    later = listed(done(1, 2), done(3, 7), clean)
    assert cleans_beyond(listed(done(1, 2), begun(3), clean), later) == ()


def test_a_clean_that_completed_since_is_pending_as_of_the_cut() -> None:
    cut = at_cut(listed(done(1, 2)), listed(done(1, 2), done(4, 6, Action.CLEAN)))
    assert Instant(at(4), Action.CLEAN, State.INFLIGHT) in cut.instants


def test_the_cut_is_the_highest_completion_of_a_write() -> None:
    assert cut_time(listed(done(1, 8), done(2, 4), done(5, 9, Action.CLEAN))) == at(8)
    assert cut_time(listed(begun(1))) == ""
