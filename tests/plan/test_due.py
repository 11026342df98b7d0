"""What is due after a commit, by the instants of the active timeline alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

import pyhudi
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.plan.due import CLEAN_AFTER, DueFacts, due_services, hours_before
from pyhudi.timeline.live import LiveTimeline
from pyhudi.timeline.timeline import Timeline

DELTA, COMMIT, COMPACTION = Action.DELTACOMMIT, Action.COMMIT, Action.COMPACTION
USUAL = pyhudi.Upkeep()
CLEAN = replace(USUAL, compaction=None, archive=None)
ARCHIVE = replace(USUAL, compaction=None, clean=None)


def at(hour: float) -> InstantTime:
    minutes = round(hour * 60)
    return InstantTime(
        f"202601{1 + minutes // 1440:02d}{minutes // 60 % 24:02d}{minutes % 60:02d}00000"
    )


def wrote(hour: float, action: Action = DELTA) -> Instant:
    return Instant(at(hour), action, State.COMPLETED, at(hour))


def compacted(hour: float) -> list[Instant]:
    return [Instant(at(hour), COMPACTION, State.REQUESTED), wrote(hour, COMMIT)]


def cleaned(hour: float) -> Instant:
    return wrote(hour, Action.CLEAN)


def due(
    upkeep: pyhudi.Upkeep, instants: list[Instant], hour: float, *, is_mor: bool = True
) -> set[str]:
    """The same by a listing, and by what a writer knows."""
    found = [
        due_services(upkeep, DueFacts(timeline, is_mor, at(hour), at(hour - 0.1)))
        for timeline in (Timeline.of(instants), LiveTimeline(instants))
    ]
    assert found[0] == found[1]
    return set(found[0])


FIVE = [wrote(n) for n in range(1, 6)]


def test_a_compaction_is_due_by_its_trigger_and_not_on_copy_on_write() -> None:
    assert due(USUAL, FIVE[:4], 6) == set()
    assert due(USUAL, FIVE, 6) == {"compaction"}
    assert due(USUAL, FIVE, 6, is_mor=False) == set()
    assert due(replace(USUAL, compaction=None), FIVE, 6) == set()
    assert due(USUAL, [*FIVE, *compacted(6)], 7) == set()


def test_a_pending_plan_is_due_once_its_process_seems_dead() -> None:
    plan = Instant(at(1), COMPACTION, State.REQUESTED)
    assert due(USUAL, [wrote(0.5), plan], 1.05) == set()
    assert due(USUAL, [wrote(0.5), plan], 2) == {"compaction"}
    clean = Instant(at(1), Action.CLEAN, State.REQUESTED)
    assert due(CLEAN, [wrote(0.5), clean], 1.05) == set()
    assert due(CLEAN, [wrote(0.5), clean], 2) == {"clean"}


def test_a_resize_is_due_when_a_bucket_became_too_large_or_its_process_died() -> None:
    sizing = replace(USUAL, compaction=None, clean=None, archive=None)
    assert sizing.resize is not None
    limit = round(sizing.resize.split_bytes)
    plan = Instant(at(1), Action.CLUSTERING, State.REQUESTED)
    cases: list[tuple[int | None, list[Instant], float, set[str]]] = [
        (limit, [], 2, set()),
        (limit + 1, [], 2, {"resize"}),
        (0, [plan], 1.05, set()),
        (0, [plan], 2, {"resize"}),
        (None, [plan], 2, set()),  # of Hudi, on a table whose buckets cannot be resized
    ]
    for largest, more, hour, expected in cases:
        timeline = Timeline.of([wrote(0.5), *more])
        facts = DueFacts(timeline, True, at(hour), at(hour - 0.1), largest)
        assert due_services(sizing, facts) == expected, (largest, hour)
        assert not due_services(replace(sizing, resize=None), facts)


#: A policy, and when the compaction of hour 10 made files unnecessary by it, with a write an hour.
BY_POLICY = [
    (pyhudi.CleanPolicy.hours(24), 34),
    (pyhudi.CleanPolicy.commits(10), 19),
    (pyhudi.CleanPolicy.versions(1), 10),
]


@pytest.mark.parametrize(("policy", "hour"), BY_POLICY, ids=str)
def test_a_clean_is_due_when_what_replaced_files_passes_out_of_what_is_retained(
    policy: pyhudi.CleanPolicy, hour: int
) -> None:
    upkeep = replace(CLEAN, clean=policy)
    first = [*[wrote(n) for n in range(1, 10)], *compacted(10)]

    def instants(until: int) -> list[Instant]:
        return [*first, *[wrote(n) for n in range(11, until + 1)]]

    firsts = [n for n in range(10, 60) if due(upkeep, instants(n), n)]
    assert firsts[0] == hour
    # Once it is cleaned, nothing more is due, however many writes follow.
    later = [*instants(hour), cleaned(hour + 0.5), *[wrote(hour + n) for n in range(1, 40)]]
    assert not due(upkeep, later, hour + 40)
    # A further compaction makes another clean due some day.
    again = [*compacted(hour + 40), *[wrote(hour + 40 + n) for n in range(1, 40)]]
    assert due(upkeep, [*later, *again], hour + 80)


def test_some_writes_lie_between_two_cleans() -> None:
    """On copy on write each commit replaces files."""
    upkeep = replace(CLEAN, clean=pyhudi.CleanPolicy.versions(1))
    commits = [wrote(n, COMMIT) for n in range(1, 30)]
    for more in range(1, CLEAN_AFTER + 1):
        later = [wrote(30 + n, COMMIT) for n in range(1, more + 1)]
        is_due = bool(due(upkeep, [*commits, cleaned(30), *later], 40, is_mor=False))
        assert is_due == (more == CLEAN_AFTER)


def test_writes_that_replace_nothing_make_no_clean_due() -> None:
    assert not due(CLEAN, [wrote(n) for n in range(1, 200)], 300)
    replaced = [wrote(n) for n in range(1, 200)] + [wrote(100.5, Action.REPLACECOMMIT)]
    assert due(CLEAN, replaced, 300) == {"clean"}


def test_archiving_is_due_when_more_writes_are_there_than_the_policies_leave() -> None:
    many = [wrote(n) for n in range(1, 32)]
    assert due(ARCHIVE, many[:30], 40) == set()
    assert due(ARCHIVE, many, 40) == {"archive"}
    by_hours = replace(ARCHIVE, clean=pyhudi.CleanPolicy.hours(24))
    assert "archive" not in due(by_hours, many, 31), "the clean has to find those of 24 hours"
    assert "archive" in due(by_hours, many, 50)
    by_commits = replace(ARCHIVE, clean=pyhudi.CleanPolicy.commits(40))
    assert "archive" not in due(by_commits, many, 50)


def test_a_time_that_is_no_date_is_before_all_hours() -> None:
    assert hours_before("0" * 17, 24) == ""
    assert hours_before("", 24) == ""
    assert hours_before("20260101000000000", 10**9) == ""
