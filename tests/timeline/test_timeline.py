from __future__ import annotations

import pytest

from pyhudi.format.timeline.instant import Action, Instant, State
from pyhudi.timeline.completion import (
    CompletionTimes,
    only,
    visible_at_completion,
    visible_at_request,
    visible_now,
)
from pyhudi.timeline.timeline import Timeline, orphaned_inflights, without_orphaned_inflights


def at(number: int) -> str:
    return f"202601010000{number:05d}"


def instants(*names: str) -> list[Instant]:
    """File names with small numbers for times: "3_4.commit", "5.deltacommit.inflight"."""
    full = []
    for name in names:
        times, _, words = name.partition(".")
        full.append("_".join(at(int(time)) for time in times.split("_")) + f".{words}")
    return [Instant.parse(name) for name in full]


def timeline(*names: str) -> Timeline:
    return Timeline.of(instants(*names))


def test_state_files_fold_into_one_instant_in_its_furthest_state() -> None:
    folded = timeline(
        "1_2.deltacommit",
        "1.deltacommit.requested",
        "1.deltacommit.inflight",
        "3.deltacommit.requested",
    )
    assert [(i.requested, i.state) for i in folded.instants] == [
        (at(1), State.COMPLETED),
        (at(3), State.REQUESTED),
    ]


STRAYS = [
    (["1.deltacommit.inflight"], True),
    (["1.compaction.inflight"], True),
    (["1.clustering.inflight"], True),
    (["1.deltacommit.inflight", "1.deltacommit.requested"], False),
    (["1.deltacommit.inflight", "1_2.deltacommit"], False),
    (["1.compaction.inflight", "1_2.commit"], False),
    (["1.compaction.inflight", "2.compaction.requested"], True),
    (["1.savepoint.inflight"], False),
    (["1.clean.inflight"], False),
    (["1.rollback.inflight"], False),
]


@pytest.mark.parametrize(("names", "is_stray"), STRAYS)
def test_an_inflight_file_that_stands_alone_is_no_pending_write(
    names: list[str], is_stray: bool
) -> None:
    found = instants(*names)
    assert [i.requested for i in orphaned_inflights(found)] == ([at(1)] if is_stray else [])
    assert set(without_orphaned_inflights(found)) == set(found) - set(orphaned_inflights(found))


def test_a_table_service_keeps_how_it_began() -> None:
    folded = timeline("1_2.commit", "1.compaction.requested", "1.compaction.inflight", "3_4.commit")
    compaction, commit = folded.instants
    assert folded.began_as == {at(1): Action.COMPACTION}
    assert folded.is_table_service(compaction)
    assert not folded.is_table_service(commit)


def test_a_savepoint_does_not_swallow_the_commit_it_saves() -> None:
    folded = timeline("1_2.commit", "1_9.savepoint")
    assert [i.action for i in folded.instants] == [Action.COMMIT, Action.SAVEPOINT]
    assert folded.completion_times == {at(1): at(2)}


def test_writes_are_in_the_order_of_completion() -> None:
    folded = timeline("1_9.deltacommit", "2_3.deltacommit", "4_5.clean", "6.deltacommit.inflight")
    assert [i.requested for i in folded.writes] == [at(2), at(1)]


#: (requested time, committed, archived) on a timeline that begins at 10 with 12 pending.
COMMITTED = [
    (10, True, False),
    (12, False, False),  # pending
    (14, True, False),
    (9, True, True),  # older than the active timeline: archived
    (13, False, False),  # inside the timeline and not on it: rolled back, or rubbish
    (99, False, False),
]


@pytest.mark.parametrize(("requested", "committed", "archived"), COMMITTED)
def test_a_time_is_committed_if_completed_or_archived(
    requested: int, committed: bool, archived: bool
) -> None:
    folded = timeline("10_11.commit", "12.deltacommit.inflight", "14_15.deltacommit")
    assert folded.is_committed(at(requested)) is committed
    assert folded.is_archived(at(requested)) is archived
    assert visible_now(folded).sees(at(requested)) is committed


def test_an_instant_pending_before_everything_else_is_not_archived() -> None:
    folded = timeline("5.deltacommit.inflight", "10_11.deltacommit")
    assert not folded.is_committed(at(5))
    assert folded.is_committed(at(4))


def test_leading_savepointed_instants_do_not_hold_the_archive_back() -> None:
    folded = timeline("1_2.commit", "1_3.savepoint", "50_51.commit")
    assert folded.first_active == at(50)
    assert folded.is_committed(at(20))  # archived from between


def test_a_leading_savepointed_write_is_not_seen_before_it_completed() -> None:
    folded = timeline("1_2.commit", "1_8.savepoint", "3_4.commit", "3_9.savepoint", "50_51.commit")
    early = visible_at_completion(CompletionTimes(folded), at(2))
    assert early.sees(at(1))
    assert not early.sees(at(3))


def test_an_empty_timeline_has_committed_nothing() -> None:
    folded = timeline()
    assert folded.first_active is None
    assert not folded.is_committed(at(1))
    assert not visible_now(folded).sees(at(1))


def test_visibility_by_completion_and_by_request_differ_for_overlapping_writers() -> None:
    folded = timeline("10_40.deltacommit", "20_30.deltacommit")
    times = CompletionTimes(folded)
    assert visible_at_completion(times, at(30)).sees(at(20))
    assert not visible_at_completion(times, at(30)).sees(at(10))
    assert visible_at_request(folded, at(10)).sees(at(10))
    assert not visible_at_request(folded, at(10)).sees(at(20))
    assert not only(frozenset({at(20)})).sees(at(10))


def test_archived_instants_are_seen_by_their_archived_completion_time() -> None:
    folded = timeline("10_11.deltacommit")
    times = CompletionTimes(folded, {at(3): at(4), at(5): at(12)})
    early = visible_at_completion(times, at(11))
    assert times.of(at(3)) == at(4)
    assert early.sees(at(3))
    assert not early.sees(at(5))  # requested before the active timeline, completed after
    assert not visible_at_request(folded, at(4)).sees(at(5))
    assert visible_at_request(folded, at(4)).sees(at(3))


def test_what_is_archived_counts_also_when_all_that_is_active_is_savepointed() -> None:
    saved = timeline("3_4.commit", "3_9.savepoint", "5_6.commit", "5_9.savepoint")
    assert saved.first_active == at(5)
    assert saved.is_committed(at(1))
    assert saved.is_committed(at(4))
    assert not saved.is_committed(at(7))
