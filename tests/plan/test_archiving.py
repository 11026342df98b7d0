"""Which instants are archived: each rule by itself, and what holds for all of them together."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.errors import InvalidRequestError
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.plan.archiving.choose import ArchiveFacts, ArchivePlan, batches, plan_archiving
from pyhudi.plan.archiving.policy import ArchivePolicy, Backoff, archiving_beside
from pyhudi.plan.compaction.policy import CompactionPolicy, CompactionTrigger
from pyhudi.plan.compaction.trigger import is_due
from pyhudi.timeline.timeline import WRITE_ACTIONS, Timeline

POLICY = ArchivePolicy(keep_min=2, keep_max=4, delta_commits=2)
DELTA = Action.DELTACOMMIT


def at(n: int) -> InstantTime:
    return InstantTime(f"{n:017}")


def done(requested: int, completed: int | None = None, action: Action = DELTA) -> Instant:
    completed = requested + 1 if completed is None else completed
    return Instant(at(requested), action, State.COMPLETED, at(completed))


def pending(requested: int, action: Action = DELTA) -> Instant:
    return Instant(at(requested), action, State.INFLIGHT)


def writes(*requested: int) -> list[Instant]:
    return [done(n) for n in requested]


def planned(instants: Iterable[Instant], **facts: Any) -> ArchivePlan:
    return plan_archiving(ArchiveFacts(timeline=Timeline.of(instants), **facts), POLICY)


def gone(plan: ArchivePlan) -> list[int]:
    return [int(instant.requested) for instant in plan.leaving]


TEN = writes(*range(10, 101, 10))  # 10, 20, ... 100


def test_log_compactions_do_not_stand_for_writes_that_make_a_compaction_due() -> None:
    compaction = CompactionPolicy(trigger_delta_commits=30)
    policy = archiving_beside(ArchivePolicy(), compaction)
    instants: list[Instant] = []
    for n in range(10, 10_000, 10):
        if n % 50 == 0:
            instants.append(Instant(at(n), Action.LOGCOMPACTION, State.REQUESTED))
        instants.append(done(n))
        timeline = Timeline.of(instants)
        if is_due(compaction, timeline, at(n + 5)):
            return
        left = set(gone(plan_archiving(ArchiveFacts(timeline=timeline), policy)))
        instants = [i for i in instants if int(i.requested) not in left]
    pytest.fail("no compaction is ever due")


@pytest.mark.parametrize("count", range(7))
def test_archiving_starts_above_keep_max_and_goes_down_to_keep_min(count: int) -> None:
    plan = planned(TEN[:count])
    assert gone(plan) == ([] if count <= 4 else [10 * n for n in range(1, count - 1)])


@pytest.mark.parametrize(
    ("instants", "facts", "expected", "why"),
    [
        (TEN, {}, [10, 20, 30, 40, 50, 60, 70, 80], "newest 2 writes stay"),
        ([*TEN, pending(45)], {}, [10, 20, 30], "00045 is pending, and a write before it stays"),
        ([*TEN, pending(45, Action.COMPACTION)], {}, [10, 20, 30], "00045 is pending"),
        ([*TEN, pending(45, Action.CLEAN)], {}, [10, 20, 30], "00045 is pending"),
        ([*TEN, pending(45, Action.ROLLBACK)], {"rollback_targets": {at(45): (at(25),)}}, [10],
         "00025 was aborted, and a file of it may still appear"),
        ([*TEN, pending(5)], {}, [], "00005 is pending"),
        ([done(10, 99), *TEN[1:], pending(95)], {}, [], "completed while"),
        ([*TEN, done(45, 46, Action.ROLLBACK)],
         {"rollback_targets": {at(45): (at(35),)}, "recent_rollbacks": {at(45)}}, [10, 20],
         "00035 was aborted, and a file of it may still appear"),
        ([*TEN, done(30, 101, Action.SAVEPOINT)], {}, [10, 20], "a savepoint keeps"),
        (TEN, {"retained": at(40)}, [10, 20, 30], "cleaning has retained"),
        (TEN, {"retained": at(45)}, [10, 20, 30, 40], "cleaning has retained"),
        (TEN, {"consumers_since": at(31)}, [10, 20, 30], "a consumer has read up to"),
        (TEN, {"consumers_since": ""}, [], "a consumer has read up to"),
        ([done(10, 55), *TEN[1:]], {"consumers_since": at(54)}, [], "a consumer has read up to"),
        (TEN, {"recent_entries": (at(31), at(101))}, [10, 20], "decision log is recent"),
        ([done(10, 101), *TEN[1:]], {"recent_entries": (at(101), at(101))}, [], "log is recent"),
        (TEN, {"recent_entries": (at(5), at(6))}, [10, 20, 30, 40, 50, 60, 70, 80], "newest 2"),
        (TEN, {"live_replacements": {at(30)}}, [10, 20], "hides file groups"),
        (TEN, {"unknown": {at(35): "p/a", at(55): "p/b"}}, [10, 20],
         "00035 is on no timeline, and its file p/a would become visible; see services.repair()"),
        (TEN, {"unknown": {at(15): "p/a"}}, [], "is on no timeline"),
        ([*TEN, done(20, 101, Action.SAVEPOINT)], {"unknown": {at(25): "p/a"}}, [], "p/a"),
        ([*TEN[:3], *(done(n, n + 1, Action.COMMIT) for n in range(40, 101, 10))], {}, [10, 20],
         "the newest write with a schema"),
        ([*TEN[:2], done(30, 200), *TEN[3:]], {}, [10, 20], "no write completed later"),
    ],
)  # fmt: skip
def test_the_order_of_writes_stops_where_a_rule_says(
    instants: list[Instant], facts: dict[str, Any], expected: list[int], why: str
) -> None:
    plan = planned(instants, **facts)
    assert gone(plan) == expected
    first = next(v for v in plan.verdicts if not v.goes and v.instant.action is not Action.SAVEPOINT
                 and v.instant.action in WRITE_ACTIONS and v.instant.completed)  # fmt: skip
    assert why in first.why
    assert why in str(plan)


def test_a_compaction_that_completes_last_holds_what_is_younger_until_the_next_write() -> None:
    """A process that was killed had planned it, and another one completed it late."""
    late = [*TEN[:2], done(30, 200, Action.COMMIT), *TEN[3:]]
    assert gone(planned(late)) == [10, 20]
    assert gone(planned([*late, done(210)])) == [10, 20, 30, 40, 50, 60, 70, 80, 90]


@pytest.mark.parametrize(
    ("instants", "delta_commits", "expected"),
    [
        (TEN, 5, [10, 20, 30, 40, 50]),
        (TEN, 0, [10, 20, 30, 40, 50, 60, 70, 80]),
        (TEN, 11, []),
        ([*TEN[:5], done(55, 56, Action.COMMIT), *TEN[5:]], 5, [10, 20, 30, 40, 50, 55]),
        ([*TEN[:6], done(65, 66, Action.COMMIT), *TEN[6:]], 5, [10, 20, 30, 40, 50, 60]),
    ],
)
def test_what_a_compaction_is_counted_by_stays(
    instants: list[Instant], delta_commits: int, expected: list[int]
) -> None:
    policy = replace(POLICY, delta_commits=delta_commits)
    facts = ArchiveFacts(timeline=Timeline.of(instants))
    assert gone(plan_archiving(facts, policy)) == expected
    on_cow = plan_archiving(replace(facts, is_mor=False), policy)
    assert len(on_cow.leaving) == len(instants) - POLICY.keep_min


COMPANIONS = [
    done(15, 16, Action.CLEAN),
    done(25, 26, Action.ROLLBACK),
    done(75, 76, Action.CLEAN),
    done(85, 86, Action.CLEAN),
    done(95, 96, Action.ROLLBACK),
]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, [15, 25, 75]),
        ({"retained_cleans": {at(75)}}, [15, 25]),
        ({"recent_entries": (at(26), at(26))}, [15, 75]),
        ({"retained": at(20)}, []),
        ({"retained": at(30)}, [15]),
    ],
)
def test_cleans_and_rollbacks_go_with_the_writes_behind_them(
    facts: dict[str, Any], expected: list[int]
) -> None:
    going = planned([*TEN, *COMPANIONS], **facts).leaving
    assert [int(i.requested) for i in going if i.action not in WRITE_ACTIONS] == expected


def test_restores_savepoints_and_indexing_stay() -> None:
    others = [done(15, 16, Action.RESTORE), done(25, 26, Action.INDEXING)]
    plan = planned([*TEN, *others])
    assert not [i for i in plan.leaving if i.action not in WRITE_ACTIONS]
    assert gone(plan) == [10, 20, 30, 40, 50, 60, 70, 80]


def test_what_is_archived_already_is_finished_and_counts_no_more() -> None:
    plan = planned(TEN[:6], archived=frozenset({at(10), at(20)}))
    assert [int(i.requested) for i in plan.finished] == [10, 20]
    assert gone(plan) == []
    assert not plan.is_empty
    saved = planned([*TEN[:6], done(20, 99, Action.SAVEPOINT)], archived={at(10), at(20)})
    assert [int(i.requested) for i in saved.finished] == [10]


def test_what_is_archived_already_stays_in_front_of_a_file_that_nothing_tells_of() -> None:
    """Else the file would be visible as soon as the work of an archiver that died is finished."""
    archived, unknown = frozenset({at(10), at(20), at(30), at(40)}), {at(35): "p/a"}
    plan = planned(TEN, archived=archived, unknown=unknown)
    assert [int(i.requested) for i in plan.finished] == [10, 20]
    assert gone(plan) == []
    assert plan.begin == at(30)
    assert plan.stopped_at == "p/a"


def test_a_requested_file_that_came_back_is_finished_too() -> None:
    ghost = Instant(at(3), DELTA, State.REQUESTED)
    plan = planned([ghost, *TEN], archived=frozenset({at(3)}))
    assert plan.finished == (ghost,)
    assert gone(plan) == [10, 20, 30, 40, 50, 60, 70, 80]


@pytest.mark.parametrize(
    ("undone", "expected"),
    [
        ([15], [15]),  # the timeline will begin at 90
        ([15, 85], [15, 85]),
        ([95], []),
        ([20], []),  # it completed: whoever says that it was undone is wrong
    ],
)
def test_files_of_given_up_writes_go_before_the_timeline_passes_them(
    undone: list[int], expected: list[int]
) -> None:
    rollback = done(97, 98, Action.ROLLBACK)
    plan = planned([*TEN, rollback], rollback_targets={at(97): tuple(map(at, undone))})
    assert [int(r) for r in plan.passed] == expected


def test_a_plan_that_was_carried_out_after_a_run_of_it_was_undone_was_not_given_up() -> None:
    rollback = done(97, 98, Action.ROLLBACK)
    facts: dict[str, Any] = {
        "rollback_targets": {at(97): (at(5), at(15))},
        "archived": frozenset({at(5)}),
    }
    assert planned([*TEN, rollback], **facts).passed == (at(15),)


def test_nothing_is_passed_where_nothing_goes() -> None:
    rollback = done(97, 98, Action.ROLLBACK)
    plan = planned([*TEN[:3], rollback], rollback_targets={at(97): (at(15),)})
    assert plan.passed == ()
    assert plan.is_empty


@pytest.mark.parametrize("count", [3, 10])
def test_what_the_timeline_has_passed_before_is_swept_once(count: int) -> None:
    """A restore stays on the timeline for ever, and so does what it undid, long before."""
    restore = done(97, 98, Action.RESTORE)
    undone: dict[str, Any] = {"rollback_targets": {at(97): (at(3), at(5))}}
    plan = planned([*TEN[:count], restore], **undone)
    assert [int(requested) for requested in plan.passed] == [3, 5]
    plan = planned([*TEN[:count], restore], **undone, swept=frozenset({at(5)}))
    assert [int(requested) for requested in plan.passed] == [3]


def test_what_is_about_to_be_passed_is_swept_though_it_was_before() -> None:
    """It may have been swept when it was behind a begin that has moved back since."""
    rollback = done(97, 98, Action.ROLLBACK)
    plan = planned(
        [*TEN, rollback], rollback_targets={at(97): (at(15),)}, swept=frozenset({at(15)})
    )
    assert plan.passed == (at(15),)


def test_what_lies_behind_an_oldest_write_that_was_saved_is_swept_though_nothing_goes() -> None:
    """Readers pass over a saved write, so the given-up one counts as committed at once."""
    saved, rollback = done(10, 99, Action.SAVEPOINT), done(97, 98, Action.ROLLBACK)
    facts: dict[str, Any] = {
        "rollback_targets": {at(97): (at(15),)},
        "recent_rollbacks": frozenset({at(97)}),
    }
    assert planned([*TEN, rollback], **facts).passed == ()
    plan = planned([*TEN, saved, rollback], **facts)
    assert plan.is_empty
    assert plan.passed == (at(15),)


def test_the_first_line_says_what_stops_archiving() -> None:
    plan = planned([*TEN, pending(5)])
    first = str(plan).splitlines()[0]
    assert first.startswith("0 of 11 instants go to the archive; the next write stays: 0000")
    assert first.endswith("5 is pending, and a write before it stays")


def test_after_a_run_that_had_to_stop_the_next_one_waits_for_a_reason() -> None:
    policy = ArchivePolicy(keep_min=20, keep_max=30, grace_ms=1_000)
    pause = Backoff.after(policy, 31, 5_000)
    assert [pause.is_over(policy, writes, 5_999) for writes in (31, 40, 41)] == [False, False, True]
    assert pause.is_over(policy, 31, 6_000)  # time has passed
    assert pause.is_over(policy, 30, 5_001)  # somebody else has archived
    assert pause.is_over(replace(policy, keep_min=10), 31, 5_001)
    longer = Backoff.after(policy, 1_000, 0)  # the more there is to list, the more seldom
    assert [longer.is_over(policy, writes, 1) for writes in (1_249, 1_250)] == [False, True]


def test_a_given_up_write_behind_a_savepointed_one_is_not_passed_while_it_is_young() -> None:
    """Readers pass over a savepointed write when they look where the timeline begins."""
    saved = done(30, 99, Action.SAVEPOINT)
    facts: dict[str, Any] = {
        "rollback_targets": {at(97): (at(35),)},
        "recent_rollbacks": frozenset({at(97)}),
    }
    plan = planned([*TEN, saved, done(97, 98, Action.ROLLBACK)], **facts)
    assert gone(plan) == [10]


@st.composite
def tables(draw: st.DrawFn) -> ArchiveFacts:
    times = draw(st.lists(st.integers(0, 200), min_size=6, max_size=40, unique=True))
    instants: list[Instant] = []
    rollback_targets: dict[str, tuple[str, ...]] = {}
    for n in sorted(times):
        kind = draw(st.sampled_from(["write"] * 6 + ["slow", "pending", "aborted", "clean"]))
        if kind == "aborted":
            rollback = 300 + n
            rollback_targets[at(rollback)] = (at(n),)
            instants.append(done(rollback, rollback + 1, Action.ROLLBACK))
        elif kind == "pending":
            instants.append(pending(n))
        elif kind == "clean":
            instants.append(done(n, n, Action.CLEAN))
        else:
            instants.append(done(n, 1000 + n if kind == "slow" else n))
    rollbacks = sorted(rollback_targets)
    recent_rollbacks = draw(st.sets(st.sampled_from(rollbacks))) if rollbacks else set()
    unknown = draw(st.sets(st.integers(0, 200).filter(lambda n: n not in times), max_size=2))
    first = Timeline.of(instants).first_active or ""
    held = [
        *(i.requested for i in instants if not i.completed),
        *(t for (t,) in rollback_targets.values()),
    ]
    done_ = sorted(i.requested for i in instants if i.action is DELTA and i.completed)
    free = [r for r in done_ if r < min(held, default=at(999))]
    archived = free[:-1][: draw(st.integers(0, 4))]  # by somebody who died
    return ArchiveFacts(
        timeline=Timeline.of(instants), rollback_targets=rollback_targets,
        recent_rollbacks=frozenset(recent_rollbacks),
        retained=draw(st.sampled_from(["", at(50), at(150)])), archived=frozenset(archived),
        unknown={at(n): "p/a" for n in unknown if at(n) >= first},
    )  # fmt: skip


@given(tables())
@settings(deadline=None, max_examples=100)
def test_whatever_goes_nothing_that_was_hidden_becomes_visible(facts: ArchiveFacts) -> None:
    plan = plan_archiving(facts, POLICY)
    going = {i.requested for i in (*plan.leaving, *plan.finished)}
    assert not {i.requested for i in plan.leaving} & facts.archived, "archived twice"
    timeline = facts.timeline
    left = Timeline(tuple(i for i in timeline.instants if i.requested not in going))
    # What was committed is, and what is pending is not.
    assert all(left.is_committed(r) for r in timeline.completion_times)
    assert not any(left.is_committed(r) for r in timeline.pending_writes)
    # What was given up is passed only if its files are removed first, and none can come.
    for rollback, (target,) in facts.rollback_targets.items():
        if left.is_committed(target) and not timeline.is_committed(target):
            assert target in plan.passed
            assert rollback not in facts.recent_rollbacks
    assert not any(left.is_committed(r) for r in facts.unknown)
    # No gap: all writes that go are older than all that stay.
    stay = [i.requested for i in left.writes]
    assert all(r < s for r in going & timeline.completion_times.keys() for s in stay)
    kept = len(timeline.completion_times.keys() - facts.archived)
    assert len(stay) >= min(POLICY.keep_min, kept)


def test_ten_thousand_instants_are_planned_within_a_second() -> None:
    instants = writes(*range(0, 30_000, 3))
    started = time.process_time()
    plan = planned(instants)
    assert time.process_time() - started < 1
    assert len(plan.leaving) == 9_998
    lines = str(plan).splitlines()
    assert len(lines) == 4, "one for each reason"
    assert lines[1].startswith("go    9,998 instants between 00000000000000000 and ")
    assert lines[1].endswith("it is one of the oldest 9998 writes")


def test_instants_are_archived_so_many_at_a_time() -> None:
    assert [len(batch) for batch in batches(TEN, 4)] == [4, 4, 2]


@pytest.mark.parametrize(
    "wrong",
    [
        {"keep_min": 0},
        {"keep_max": 20},
        {"keep_min": 30},
        {"merge_files": 1},
        {"grace_ms": -1},
        {"file_instants": 0},
        {"keep_max": True},
        {"keep_max": 30.5},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match=next(iter(wrong))):
        ArchivePolicy(**wrong)


@pytest.mark.parametrize("has_compaction", [True, False])
@pytest.mark.parametrize("trigger", list(CompactionTrigger))
def test_a_compaction_becomes_due_however_far_its_trigger_is(
    trigger: CompactionTrigger, has_compaction: bool
) -> None:
    """Archiving after each write leaves what says so."""
    compaction = CompactionPolicy(
        trigger=trigger, trigger_delta_commits=12, trigger_seconds=12 * 60
    )
    policy = archiving_beside(POLICY, compaction)

    def minute(n: int, seconds: int = 0) -> InstantTime:
        return InstantTime(f"202601010{n // 60}{n % 60:02}{seconds:02}000")

    instants: list[Instant] = []
    if has_compaction:
        instants = [
            Instant(minute(0), Action.COMPACTION, State.REQUESTED),
            Instant(minute(0), Action.COMMIT, State.COMPLETED, minute(0, 1)),
        ]
    for n in range(1, 60):
        instants.append(Instant(minute(n), DELTA, State.COMPLETED, minute(n, 1)))
        timeline = Timeline.of(instants)
        if is_due(compaction, timeline, minute(n, 2)):
            break
        plan = plan_archiving(ArchiveFacts(timeline=timeline), policy)
        left = {i.requested for i in plan.leaving}
        instants = [i for i in instants if i.requested not in left]
    assert n in (12, 13)


def test_a_policy_of_archiving_that_leaves_more_stays_as_it_is() -> None:
    assert archiving_beside(ArchivePolicy(delta_commits=9), CompactionPolicy()).delta_commits == 9
