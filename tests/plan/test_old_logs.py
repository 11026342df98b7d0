"""Logs that are older than their base file: what archiving and compaction make of them.

Their writes began before a compaction was planned, or before another write opened the file group,
and completed after that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plan.test_compaction import (
    NO_PLANS,
    adjusted,
    at,
    base,
    compaction,
    delta,
    groups,
    instant,
    log,
    planned,
    state,
)
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.instant import Action, Instant
from pyhudi.plan.archiving.choose import ArchiveFacts, ArchivePlan, old_logs, plan_archiving
from pyhudi.plan.archiving.policy import ArchivePolicy
from pyhudi.plan.compaction.policy import MB
from pyhudi.plan.pending_plans import PendingPlans
from pyhudi.table.file_slices import grouped_files, with_files
from pyhudi.timeline.timeline import Timeline

#: The write of 3 began before the compaction of 5 and completed after its plan.
SPANNED = [delta(1, 2), delta(3, 6), *compaction(5, 7), delta(8, 9)]


@pytest.mark.parametrize(
    ("instants", "files", "expected"),
    [
        pytest.param(SPANNED, [base("a", 1), log("a", 3), base("a", 5)], {3: ["a"]}, id="older"),
        pytest.param(SPANNED, [base("a", 1), log("a", 3)], {}, id="on an older base file"),
        pytest.param(SPANNED, [log("a", 8), base("a", 5)], {}, id="younger"),
        pytest.param(
            [delta(1, 2), delta(3, 4), *compaction(5, 7)],
            [base("a", 1), log("a", 3), base("a", 5)],
            {},
            id="compacted",
        ),
        pytest.param(
            [*SPANNED, *compaction(10, 11)],
            [log("a", 3), base("a", 5), base("a", 10)],
            {},
            id="in an older slice",
        ),
        pytest.param(
            [delta(1, 2), delta(3, 6), *compaction(5)],
            [base("a", 1), log("a", 3), base("a", 5)],
            {},
            id="the compaction is pending",
        ),
        pytest.param(
            [delta(3, 6), delta(4, 5)], [log("a", 3), base("a", 4)], {3: ["a"]}, id="on a seed"
        ),
        pytest.param(
            [delta(3), *compaction(5, 7)], [log("a", 3), base("a", 5)], {}, id="of a pending write"
        ),
        pytest.param(
            [delta(8, 9)], [log("a", 3), base("a", 5), log("a", 8)], {}, id="of an archived write"
        ),
        pytest.param(
            SPANNED,
            [log("a", 3), base("a", 5), log("b", 3), base("b", 1), log("c", 3), base("c", 5)],
            {3: ["a", "c"]},
            id="in several groups",
        ),
        pytest.param(SPANNED, [log("a", 3), log("a", 8)], {}, id="no base file"),
    ],
)
def test_active_writes_with_a_log_on_a_younger_base_file_are_found(
    instants: list[Instant], files: list[tuple[str, int]], expected: dict[int, list[str]]
) -> None:
    found = old_logs(grouped_files("p", files), Timeline.of(instants))
    named = {requested: [group.file_id for group in ids] for requested, ids in found.items()}
    assert named == {str(at(n)): ids for n, ids in expected.items()}


def test_a_replaced_group_holds_nothing_for_nobody_reads_it() -> None:
    instants = [*SPANNED, instant(Action.REPLACECOMMIT, 10, 11)]
    there = grouped_files("p", [log("a", 3), base("a", 5)])
    assert old_logs(there, Timeline.of(instants))
    replaced = {("p", "a"): frozenset({str(at(10))})}
    assert not old_logs(there, Timeline.of(instants), replaced)


# -- archiving


def archived(instants: Iterable[Instant], *files: tuple[str, int]) -> ArchivePlan:
    timeline = Timeline.of(instants)
    found = old_logs(grouped_files("p", files), timeline)
    policy = ArchivePolicy(keep_min=2, keep_max=3, delta_commits=0)
    return plan_archiving(ArchiveFacts(timeline=timeline, old_logs=found), policy)


LATER = [delta(n, n + 1) for n in range(20, 40, 2)]


def test_a_write_stays_while_its_log_lies_on_a_younger_base_file() -> None:
    plan = archived([*SPANNED, *LATER], base("a", 1), log("a", 3), base("a", 5))
    assert [i.requested for i in plan.leaving] == [at(1)]
    assert plan.held_by == ("p/a",)
    first_line = str(plan).splitlines()[0]
    assert "p/a" in first_line
    assert "older than the base file" in first_line
    assert "services.compact()" in first_line


def test_a_compaction_of_the_group_lets_the_write_go() -> None:
    files = [base("a", 1), log("a", 3), base("a", 5), base("a", 18)]
    plan = archived([*SPANNED, *compaction(18, 19), *LATER], *files)
    assert at(3) in [i.requested for i in plan.leaving]
    assert plan.held_by == ()


def test_what_stops_archiving_earlier_is_named_in_place_of_the_group() -> None:
    plan = archived([*SPANNED, *LATER, delta(2)], base("a", 1), log("a", 3), base("a", 5))
    assert plan.held_by == ()
    assert f"{at(2)} is pending" in str(plan)


def test_of_many_groups_one_is_named_in_the_first_line_and_all_in_the_plan() -> None:
    names = [f"g{n}" for n in range(5)]
    files = [file for name in names for file in (log(name, 3), base(name, 5))]
    plan = archived([*SPANNED, *LATER], *files)
    assert plan.held_by == tuple(f"p/{name}" for name in names)
    assert "p/g0 and of 4 more" in str(plan).splitlines()[0]


# -- compaction


@pytest.mark.parametrize("policy", [{"min_delta_commits": 99}, {"min_log_bytes": 1 << 40}])
def test_such_a_group_is_compacted_whatever_the_policy_holds_worth_the_work(
    policy: dict[str, int],
) -> None:
    table = state(SPANNED, log("a", 3), base("a", 5), base("b", 1), log("b", 8))
    preview = planned(table, NO_PLANS, **policy)
    assert groups(preview) == ["a"]
    assert "1 older than the base file, so the group comes first" in str(preview)
    assert [out.group.file_id for out in preview.left_out] == ["b"]


def test_such_a_group_of_a_pending_plan_is_left_to_that_plan() -> None:
    table = state([*SPANNED, *compaction(10)], log("a", 3), base("a", 5))
    plans = PendingPlans({at(10): frozenset({FileGroupId("p", "a")})})
    assert planned(table, plans).is_empty


@pytest.mark.parametrize("order", ["log_size", "delta_commits", "age"])
def test_such_groups_come_first_in_every_order_those_with_the_oldest_log_before_others(
    order: str,
) -> None:
    writes = [delta(1, 2), delta(3, 16), delta(4, 16), *compaction(15, 17), delta(18, 19)]
    table = state(
        writes,
        *(base("a", 1), log("a", 18, 500), log("a", 3, 500)),
        *(base("b", 15), log("b", 4, 1)),
        *(base("c", 15), log("c", 3, 1)),
    )
    assert groups(planned(table, order=order)) == ["c", "b", "a"]


def test_such_groups_take_half_of_a_run_and_others_the_rest() -> None:
    """Each is 20 MB of work. Otherwise writers that span every compaction would have the same
    groups compacted again and again."""
    old = [f"old{n}" for n in range(4)]
    files = [file for name in old for file in (base(name, 5, 9 * MB), log(name, 3, 2 * MB))]
    for name in ("x", "y"):
        files += [base(name, 1, 5 * MB), log(name, 8, 10 * MB)]
    table = state(SPANNED, *files)
    assert groups(planned(table, io_bytes_max=80 * MB)) == ["old0", "old1", "x", "y"]
    assert groups(planned(table, io_bytes_max=1)) == ["old0", "x"]
    preview = planned(table, io_bytes_max=200 * MB)
    assert groups(preview) == [*old, "x", "y"]
    assert not preview.left_out


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 90 * MB)), min_size=1, max_size=12),
    st.integers(1, 500 * MB),
)
@settings(deadline=None, max_examples=60)
def test_every_group_is_planned_or_left_out_once_and_those_that_fit_into_half_a_run_are_planned(
    drawn: list[tuple[bool, int]], bound: int
) -> None:
    files: list[tuple[str, int]] = []
    for n, (is_old, size) in enumerate(drawn):
        files += [base(f"g{n}", 5 if is_old else 1), log(f"g{n}", 3 if is_old else 8, size)]
    preview = planned(state(SPANNED, *files), io_bytes_max=bound)
    left = {out.group.file_id for out in preview.left_out}
    chosen = groups(preview)
    assert sorted([*chosen, *left]) == sorted(f"g{n}" for n in range(len(drawn)))
    old = [f"g{n}" for n, (is_old, _) in enumerate(drawn) if is_old]
    if sum(size for is_old, size in drawn if is_old) < bound // 2 - MB:
        assert set(chosen[: len(old)]) == set(old)


def test_a_plan_adjusted_to_a_write_that_leaves_such_a_log_has_its_group_first() -> None:
    late = [delta(1, 2), *compaction(5, 7), delta(8, 9)]
    files = [base("a", 1), base("a", 5), base("b", 1), log("b", 8, 500)]
    before, after = state([*late, delta(3)], *files), state([*late, delta(3, 10)], *files)
    told = with_files("p", before.partitions["p"], [log("a", 3, 1)])
    after = replace(after, partitions={"p": told})
    assert groups(planned(before)) == ["b"]
    found = adjusted(planned(before), before, after, groups_max=9)
    assert found == planned(after)
    assert groups(found) == ["a", "b"]
