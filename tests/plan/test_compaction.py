"""Compaction plans: which slices, in which order, how many, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pyhudi.errors import InvalidRequestError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.properties import decode_table_properties
from pyhudi.format.table.table_config import TableConfig
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.plan_files import (
    CompactionOperation,
    decode_compaction_plan,
    encode_compaction_plan,
)
from pyhudi.plan.compaction.choose import plan_compaction
from pyhudi.plan.compaction.operations import omitted_file, unnamed_files
from pyhudi.plan.compaction.policy import MB, CompactionOrder, CompactionPolicy, CompactionTrigger
from pyhudi.plan.compaction.preview import CompactionPreview
from pyhudi.plan.compaction.rebase import (
    adjusted_plan,
    changes_since,
    missed_archived_writes,
    without_old_slices,
    written_since,
)
from pyhudi.plan.compaction.trigger import is_due
from pyhudi.plan.pending_plans import PendingPlans
from pyhudi.table.file_slices import grouped_files, with_files
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import CompletionTimes
from pyhudi.timeline.live import LiveTimeline
from pyhudi.timeline.timeline import Timeline

NO_PLANS = PendingPlans({})
CONFIG = TableConfig.of(
    decode_table_properties(
        b"hoodie.table.name=t\nhoodie.table.type=MERGE_ON_READ\nhoodie.table.version=9\n"
        b"hoodie.timeline.layout.version=2\nhoodie.table.recordkey.fields=id\n",
        "hoodie.properties",
    )
)


def at(second: int) -> InstantTime:
    return InstantTime(f"2026010100{second // 60:02d}{second % 60:02d}000")


def delta(requested: int, completed: int | None = None) -> Instant:
    return instant(Action.DELTACOMMIT, requested, completed)


def instant(action: Action, requested: int, completed: int | None = None) -> Instant:
    if completed is None:
        return Instant(at(requested), action, State.INFLIGHT)
    return Instant(at(requested), action, State.COMPLETED, at(completed))


def compaction(requested: int, completed: int | None = None) -> list[Instant]:
    plan = Instant(at(requested), Action.COMPACTION, State.REQUESTED)
    return [plan] if completed is None else [plan, instant(Action.COMMIT, requested, completed)]


def log(group: str, requested: int, size: int = 10) -> tuple[str, int]:
    return f"p/.{group}_{at(requested)}.log.1_0-0-0", size


def base(group: str, requested: int, size: int = 100) -> tuple[str, int]:
    return f"p/{group}_0-0-0_{at(requested)}.parquet", size


def state(
    instants: list[Instant],
    *files: tuple[str, int],
    replaced: Mapping[tuple[str, str], frozenset[str]] | None = None,
) -> TableState:
    partitions = {"p": grouped_files("p", files)}
    return TableState(CONFIG, Timeline.of(instants), partitions, replaced or {})


def planned(table: TableState, plans: PendingPlans = NO_PLANS, **policy: Any) -> CompactionPreview:
    times = CompletionTimes(table.timeline)
    return plan_compaction(table, times, plans, CompactionPolicy(**policy))


def groups(preview: CompactionPreview) -> list[str]:
    return [slice_.file_id for slice_ in preview.slices]


# -- which


def test_a_plan_has_the_latest_slices_of_completed_writes() -> None:
    """`a` was compacted at 20; its log of 15 completed later and is not in that base file."""
    writes = [delta(1, 2), delta(10, 11), delta(15, 25), *compaction(20, 22), delta(30)]
    files = [base("a", 1), log("a", 10), log("a", 15), base("a", 20), log("a", 30), base("b", 1)]
    [slice_] = planned(state(writes, *files)).slices
    assert slice_.base_instant == at(20)
    assert [log.name.requested for log in slice_.logs] == [at(15)]


def test_a_group_without_a_base_file_is_planned_with_its_logs_alone() -> None:
    [operation] = (
        planned(state([delta(1, 2), delta(3, 4)], log("a", 1), log("a", 3))).plan.operations or ()
    )
    assert operation.data_file_path is None
    assert operation.base_instant_time == at(1)
    assert operation.metrics is not None
    assert operation.metrics["TOTAL_IO_WRITE_MB"] == 120


def test_replaced_groups_and_groups_without_logs_are_no_matter() -> None:
    replaced = {("p", "gone"): frozenset({str(at(5))})}
    instants = [delta(1, 2), instant(Action.REPLACECOMMIT, 5, 6)]
    table = state(instants, log("gone", 1), base("plain", 1), replaced=replaced)
    preview = planned(table)
    assert preview.is_empty
    assert not preview.left_out


def test_groups_of_pending_plans_are_left_alone_with_the_reason() -> None:
    table = state([delta(1, 2), *compaction(3)], log("a", 1), log("b", 1))
    plans = PendingPlans({at(3): frozenset({FileGroupId("p", "a")})})
    preview = planned(table, plans)
    assert groups(preview) == ["b"]
    assert str(preview.left_out[0]) == f"p/a: the pending plan {at(3)} has it"


def test_a_pending_plan_that_does_not_tell_its_groups_may_have_all_of_them() -> None:
    table = state([delta(1, 2)], log("a", 1), log("b", 1))
    assert planned(table, PendingPlans({at(3): None})).is_empty


def test_only_the_partitions_asked_for_are_planned() -> None:
    table = state([delta(1, 2)], log("a", 1))
    assert planned(table, partitions=["q"]).is_empty
    assert "the table has no partition 'q'" in str(planned(table, partitions=["q", "p"]))
    assert groups(planned(table, partitions=["p/"])) == ["a"]


THRESHOLDS = [
    ({"min_delta_commits": 2}, ["b"]),
    ({"min_delta_commits": 3}, []),
    ({"min_log_bytes": 30}, ["a"]),
    ({"min_log_bytes": 31}, []),
]


@pytest.mark.parametrize(("policy", "expected"), THRESHOLDS)
def test_a_group_must_be_worth_the_work(policy: dict[str, int], expected: list[str]) -> None:
    table = state([delta(1, 2), delta(3, 4)], log("a", 1, 30), log("b", 1, 5), log("b", 3, 5))
    preview = planned(table, NO_PLANS, **policy)
    assert groups(preview) == expected
    assert len(preview.left_out) == 2 - len(expected)
    assert all("min_" in left.why for left in preview.left_out)


# -- in which order, and how many

ORDERS = [
    (CompactionOrder.LOG_SIZE, ["c", "b", "a"]),
    (CompactionOrder.DELTA_COMMITS, ["a", "b", "c"]),
    (CompactionOrder.AGE, ["b", "a", "c"]),
]


@pytest.mark.parametrize(("order", "expected"), ORDERS)
def test_the_worst_group_comes_first(order: CompactionOrder, expected: list[str]) -> None:
    writes = [delta(n, n + 100) for n in range(1, 7)]
    table = state(
        writes,
        *(log("a", 2, 1), log("a", 3, 1), log("a", 4, 1)),
        *(log("b", 1, 10), log("b", 3, 10)),
        log("c", 6, 100),
    )
    assert groups(planned(table, order=order)) == expected
    assert groups(planned(table, order=order.value)) == expected


def test_a_run_ends_with_the_group_that_reaches_the_bound() -> None:
    sizes = {"a": 40 * MB, "b": 30 * MB, "c": 20 * MB}
    files = [file for g, size in sizes.items() for file in (base(g, 1, 10 * MB), log(g, 3, size))]
    table = state([delta(1, 2), delta(3, 4)], *files)
    assert groups(planned(table, io_bytes_max=60 * MB)) == ["a"]
    assert groups(planned(table, io_bytes_max=61 * MB)) == ["a", "b"]
    assert groups(planned(table, io_bytes_max=1)) == ["a"]
    assert groups(planned(table)) == ["a", "b", "c"]
    [left, _] = planned(table, io_bytes_max=1).left_out
    assert "enough" in left.why


@given(
    st.lists(st.integers(0, 200 * MB), min_size=1, max_size=12),
    st.integers(1, 1000 * MB),
    st.sampled_from(list(CompactionOrder)),
)
@settings(deadline=None, max_examples=60)
def test_every_group_with_logs_is_in_the_plan_or_left_out_once(
    sizes: list[int], bound: int, order: CompactionOrder
) -> None:
    files = [log(f"g{n}", 1, size) for n, size in enumerate(sizes)]
    preview = planned(state([delta(1, 2)], *files), io_bytes_max=bound, order=order)
    left = [out.group.file_id for out in preview.left_out]
    assert sorted([*groups(preview), *left]) == sorted(f"g{n}" for n in range(len(sizes)))
    assert preview.slices
    data = encode_compaction_plan(preview.plan, bytes(16))
    assert decode_compaction_plan(data, "plan") == preview.plan


# -- what is written down


def test_an_operation_says_what_hudis_says() -> None:
    table = state([delta(1, 2), delta(3, 4)], base("a", 1, 5 * MB + 1), log("a", 3, 2 * MB - 1))
    plan = planned(table).plan
    assert (plan.version, plan.extra_metadata, plan.missing_schedule_partitions) == (2, {}, ())
    assert plan.strategy is None
    [operation] = plan.operations or ()
    assert operation.base_instant_time == at(1)
    assert operation.data_file_path == f"a_0-0-0_{at(1)}.parquet"
    assert operation.delta_file_paths == (f".a_{at(3)}.log.1_0-0-0",)
    assert (operation.partition_path, operation.file_id) == ("p", "a")
    assert operation.metrics == {
        "TOTAL_LOG_FILES": 1.0,
        "TOTAL_LOG_FILES_SIZE": 2.0 * MB - 1,
        "TOTAL_IO_READ_MB": 7.0,
        "TOTAL_IO_WRITE_MB": 5.0,
        "TOTAL_IO_MB": 12.0,
    }


def test_a_preview_is_readable_and_of_bounded_length() -> None:
    table = state([delta(1, 2)], *(log(f"g{n:03d}", 1) for n in range(100)))
    lines = str(planned(table)).splitlines()
    assert lines[0] == "100 file groups to compact: 100 log files, 1 kB"
    assert lines[1] == "  p/g000: no base file, 1 log file, 10 B"
    assert lines[-1] == "  ... and 80 more"
    assert str(planned(state([]))) == "nothing to compact"
    left = str(planned(table, NO_PLANS, min_delta_commits=2)).splitlines()
    why = "1 write added logs, and min_delta_commits is 2"
    assert left[1:] == [
        "not in the plan: 100 file groups with logs",
        f"  100 file groups such as p/g000: {why}",
    ]


# -- whether it still is the right plan

KNOWN = Timeline.of([delta(5, 6), delta(7)])


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ([delta(5, 6), delta(7)], None),
        ([delta(5, 6), delta(7, 8)], at(7)),  # it was under way
        ([delta(5, 6), delta(7), delta(9, 10)], at(9)),
        ([delta(5, 6), delta(7), delta(6, 5)], at(6)),  # by a clock that is behind
        ([delta(5, 6), delta(1, 2)], None),  # archived since the live timeline was read
        ([delta(5, 6), instant(Action.CLEAN, 9, 10), instant(Action.ROLLBACK, 11, 12)], None),
        ([delta(5, 6), instant(Action.REPLACECOMMIT, 9, 10)], at(9)),
        ([delta(5, 6), *compaction(9)], at(9)),
        ([delta(5, 6), *compaction(3)], None),
        ([delta(5, 6), Instant(at(9), Action.CLUSTERING, State.REQUESTED)], at(9)),
        ([delta(5, 6), delta(9)], None),  # a writer that begins is no news
    ],
)
def test_a_plan_is_good_until_something_completes_or_is_planned(
    now: list[Instant], expected: str | None
) -> None:
    found = changes_since(KNOWN, PendingPlans({at(3): frozenset()}), LiveTimeline(now))
    assert (None if found is None else found.requested) == expected


# -- adjusted


def two_partitions(*, written: bool) -> TableState:
    """Groups `a` in `p` and `b` in `q`; a later write to `p` if there was one."""
    writes = [delta(1, 2), delta(3, 4), *([delta(5, 6)] if written else [])]
    files = [base("a", 1), log("a", 3), *([log("a", 5)] if written else [])]
    q = [(path.replace("p/", "q/", 1), size) for path, size in (base("b", 1), log("b", 3, 99))]
    partitions = {"p": grouped_files("p", files), "q": grouped_files("q", q)}
    return TableState(CONFIG, Timeline.of(writes), partitions, {})


def adjusted(
    preview: CompactionPreview,
    before: TableState,
    after: TableState,
    plans: PendingPlans = NO_PLANS,
    *,
    groups_max: int,
) -> CompactionPreview:
    policy = CompactionPolicy()
    kept = {path: groups for path, groups in before.partitions.items() if path == "q"}
    after = replace(after, partitions={**after.partitions, **kept})  # nobody wrote to it
    since = written_since(preview, before, after, policy, groups_max)
    times = CompletionTimes(after.timeline)
    return adjusted_plan(preview, since, times, plans, policy, groups_max=groups_max)


@pytest.mark.parametrize("groups_max", [2, 9])
def test_a_plan_adjusted_to_a_write_is_the_plan_made_after_it(groups_max: int) -> None:
    before, after = two_partitions(written=False), two_partitions(written=True)
    first = planned(before)
    assert adjusted(first, before, after, groups_max=groups_max) == planned(after) != first


def test_an_adjusted_plan_gives_up_first_what_no_write_touched() -> None:
    before, after = two_partitions(written=False), two_partitions(written=True)
    found = adjusted(planned(before), before, after, groups_max=1)
    assert groups(found) == ["a"]
    assert [(out.group.file_id, "next plan" in out.why) for out in found.left_out] == [("b", True)]


def test_an_adjusted_plan_puts_off_what_was_written_to_beyond_its_bound() -> None:
    """By the order of the plan, so that the worst groups are not passed over for ever."""
    writes = [delta(1, 2), delta(3, 4)]
    files = [log("a", 3), log("b", 3, 99), log("c", 3, 50), log("d", 3, 1)]
    before = state(writes, *files)
    told = with_files("p", before.partitions["p"], [log(g, 5, 1) for g in ("a", "b", "c", "e")])
    after = replace(before, timeline=Timeline.of([*writes, delta(5, 6)]), partitions={"p": told})
    for groups_max, taken in ((2, "bc"), (3, "abc")):
        found = adjusted(planned(before), before, after, groups_max=groups_max)
        assert {slice_.file_id: len(slice_.logs) for slice_ in found.slices} == dict.fromkeys(
            taken, 2
        )
        left = {out.group.file_id: "next plan" in out.why for out in found.left_out}
        assert left == dict.fromkeys(set("abcde") - set(taken), True)


@pytest.mark.parametrize("hot", [1, 5, 10])
def test_a_plan_of_half_the_groups_has_half_of_them_whatever_is_written_to(hot: int) -> None:
    names, writes = [f"g{n}" for n in range(10)], [delta(1, 2), delta(3, 4)]
    table = state(writes, *(log(name, 3) for name in names))
    preview, sizes = planned(table), []
    for time in (5, 7, 9, 11):
        writes = [*writes, delta(time, time + 1)]
        told = with_files("p", table.partitions["p"], [log(name, time) for name in names[:hot]])
        after = replace(table, timeline=Timeline.of(writes), partitions={"p": told})
        preview = adjusted(preview, table, after, groups_max=max(1, len(preview.slices) // 2))
        sizes.append(len(preview.slices))
        table = after
        assert {out.group.file_id for out in preview.left_out} == set(names) - set(groups(preview))
    assert sizes == [5, 2, 1, 1]


def test_a_base_file_that_is_told_takes_the_place_of_those_of_attempts_that_died() -> None:
    """Their names come later, and they are gone when the plan's compaction completes."""
    stale = base("a", 5)[0].replace("_0-0-0_", "_0-21-19_"), 100
    known = grouped_files("p", [base("a", 1), stale, log("a", 6)])
    [group] = with_files("p", known, [base("a", 5)])
    assert [found.path for found in group.bases] == [base("a", 1)[0], base("a", 5)[0]]


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ([delta(5, 6), delta(7)], False),
        ([delta(5, 6), delta(7, 8), delta(9, 10)], False),
        ([delta(7, 8), delta(11, 12)], True),  # perhaps one of 9, which nobody tells of
        ([delta(5, 6), delta(11, 12)], True),  # 7 may have completed before it was archived
        ([delta(5, 6), instant(Action.ROLLBACK, 11, 12)], False),  # of 7
        ([delta(7), instant(Action.ROLLBACK, 10, 11)], True),  # of 5, which had completed
    ],
)
def test_a_plan_is_made_anew_when_archiving_may_have_taken_what_it_never_saw(
    now: list[Instant], expected: bool
) -> None:
    live = LiveTimeline(now)
    for rollback in live.rollbacks():
        live.add_rollback(at(7 if rollback.requested == at(11) else 5), rollback.requested)
    assert missed_archived_writes(KNOWN, live) is expected


def test_an_adjusted_plan_says_nothing_of_partitions_that_were_not_asked_for() -> None:
    writes = [delta(1, 2), delta(3, 4)]
    before = state(writes, log("a", 3), log("b", 3))
    told = with_files("p", before.partitions["p"], [log("a", 5), log("b", 5)])
    after = replace(before, timeline=Timeline.of([*writes, delta(5, 6)]), partitions={"p": told})
    policy = CompactionPolicy(partitions=("q",))
    since = written_since(planned(before), before, after, policy, 1)
    assert (since.deferred, list(since.written.groups())) == ((), [])


@pytest.mark.parametrize("is_replaced", [False, True])
def test_an_adjusted_plan_lacks_groups_that_readers_see_no_more(*, is_replaced: bool) -> None:
    """Replaced, or replaced and cleaned: their files may be gone."""
    writes = [delta(1, 2), delta(3, 4)]
    before = state(writes, log("a", 3), log("b", 3))
    replacing = instant(Action.REPLACECOMMIT, 5, 6)
    if is_replaced:
        after = replace(before, replaced={("p", "a"): frozenset({at(5)})})
    else:
        after = replace(before, partitions={"p": grouped_files("p", [log("b", 3)])})
    after = replace(after, timeline=Timeline.of([*writes, replacing]))
    found = adjusted(planned(before), before, after, groups_max=9)
    assert (groups(found), found.left_out) == (["b"], ())


#: Operations by number; the first time that one is met it begins, and the second time it completes.
MOMENTS = st.integers(4, 9).flatmap(lambda count: st.permutations(list(range(count)) * 2))
GROUPS = ("a", "b", "c")


class History:
    """Writes and compactions that overlap, and the table as it is after so many moments."""

    def __init__(self, moments: list[int], chosen: dict[int, tuple[bool, set[str]]]) -> None:
        self._spans: dict[int, list[int]] = {}
        self._services: set[int] = set()
        self._groups = {number: chosen[number][1] for number in set(moments)}
        for time, number in enumerate(moments, 1):
            is_new = number not in self._spans
            if is_new and chosen[number][0] and not self._is_serving():
                self._services.add(number)
            self._spans.setdefault(number, []).append(time)

    def _is_serving(self) -> bool:
        """Of several compactions at once, none may have a group of another."""
        return any(len(self._spans[number]) == 1 for number in self._services)

    def files(self, *numbers: int) -> list[tuple[str, int]]:
        """Of a compaction a base file for each group, of a write a log, and of some a second."""
        found: list[tuple[str, int]] = []
        for n in numbers:
            time, names = self._spans[n][0], sorted(self._groups[n])
            if n in self._services:
                found += [base(name, time) for name in names]
            else:
                found += [log(name, time) for name in names]
                found += [_second(log(name, time)) for name in names[n % 2 : 1]]
        return found

    def remains(self, until: int) -> list[tuple[str, int]]:
        """What a first attempt left of compactions under way; the one that completes removes it."""
        pending = [n for n in self._services if self._spans[n][0] <= until < self._spans[n][1]]
        bases = [base(name, self._spans[n][0]) for n in pending for name in self._groups[n]]
        return [(path.replace("_0-0-0_", "_0-21-19_"), size) for path, size in bases]

    def completed(self, since: int, until: int) -> list[int]:
        return [number for number, span in self._spans.items() if since < span[1] <= until]

    def timeline(self, until: int) -> Timeline:
        instants: list[Instant] = []
        for number, (begun, done) in self._spans.items():
            if begun <= until:
                make = compaction if number in self._services else _one_delta
                instants += make(begun, done if done <= until else None)
        return Timeline.of(instants)

    def table(self, until: int) -> TableState:
        begun = [number for number, span in self._spans.items() if span[0] <= until]
        there = [*self.files(*begun), *self.remains(until)]
        partitions = {"p": grouped_files("p", there)}
        return TableState(CONFIG, self.timeline(until), partitions, {})

    def plans(self, until: int) -> PendingPlans:
        pending = [n for n in self._services if self._spans[n][0] <= until < self._spans[n][1]]
        return PendingPlans(
            {
                at(self._spans[n][0]): frozenset(FileGroupId("p", g) for g in self._groups[n])
                for n in pending
            }
        )


def _second(of: tuple[str, int]) -> tuple[str, int]:
    return of[0].replace(".log.1_", ".log.2_"), of[1]


def _one_delta(requested: int, completed: int | None) -> list[Instant]:
    return [delta(requested, completed)]


@given(moments=MOMENTS, data=st.data())
@settings(deadline=None)
def test_a_plan_adjusted_by_what_writes_tell_is_the_plan_made_anew(
    moments: list[int], data: st.DataObject
) -> None:
    """Whatever completes meanwhile, once or several times, and with the old slices left away."""
    kinds = st.tuples(st.booleans(), st.sets(st.sampled_from(GROUPS), min_size=1))
    history = History(moments, {n: data.draw(kinds) for n in sorted(set(moments))})
    early = data.draw(st.integers(len(moments) // 3, len(moments) - 1))
    later = data.draw(st.sets(st.integers(early + 1, len(moments)), min_size=1, max_size=3))
    looks = [early, *sorted(later)]
    first = history.table(early)
    preview = planned(first, history.plans(early))
    table = without_old_slices(preview, first)
    for then, now in pairwise(looks):
        told = history.files(*history.completed(then, now))
        grown = {"p": with_files("p", table.partitions["p"], told)}
        after = replace(table, timeline=history.timeline(now), partitions=grown)
        plans = history.plans(now)
        preview = adjusted(preview, table, after, plans, groups_max=99)
        table = after
        expected = planned(history.table(now), plans)
        assert preview.slices == expected.slices
        assert set(preview.left_out) == set(expected.left_out)


def test_an_adjusted_plan_leaves_out_what_another_plan_took_meanwhile() -> None:
    table = two_partitions(written=False)
    plans = PendingPlans({at(9): frozenset({FileGroupId("q", "b")})})
    times = CompletionTimes(table.timeline)
    policy = CompactionPolicy(partitions=("p", "q", "r"))
    first = plan_compaction(table, times, NO_PLANS, policy)
    since = written_since(first, table, table, policy, 9)
    found = adjusted_plan(first, since, times, plans, policy, groups_max=9)
    assert groups(found) == ["a"]
    assert found.unknown == ("r",)
    assert [str(out) for out in found.left_out] == [f"q/b: the pending plan {at(9)} has it"]


# -- when

FIVE = [delta(n, n + 1) for n in range(1, 11, 2)]
NUM = CompactionTrigger.NUM_COMMITS
REQUEST = CompactionTrigger.NUM_COMMITS_AFTER_LAST_REQUEST
TIME = CompactionTrigger.TIME_ELAPSED
BOTH = CompactionTrigger.NUM_AND_TIME
EITHER = CompactionTrigger.NUM_OR_TIME
DUE: list[tuple[CompactionTrigger, list[Instant], int, bool]] = [
    (NUM, FIVE, 12, True),
    (NUM, FIVE[:4], 4_000, False),
    (NUM, [*FIVE, *compaction(20, 22)], 4_000, False),
    (NUM, [*FIVE, *compaction(20)], 30, True),  # only a completed one counts
    (REQUEST, [*FIVE, *compaction(20)], 30, False),
    (REQUEST, [*FIVE, *compaction(20), *(delta(n, n + 1) for n in range(30, 40, 2))], 50, True),
    # What completed after the plan is not in it, whenever it began.
    (NUM, [*(delta(n, 30 + n) for n in range(1, 6)), *compaction(20, 22)], 50, True),
    (TIME, FIVE[:1], 3_600, False),
    (TIME, FIVE[:1], 3_601, True),
    (TIME, [*FIVE, *compaction(100, 101)], 9_000, False),  # nothing was written since
    (TIME, [*FIVE, *compaction(100, 101), delta(200, 201)], 3_700, True),
    (BOTH, FIVE, 12, False),
    (BOTH, FIVE, 3_601, True),
    (BOTH, FIVE[:4], 3_601, False),
    (EITHER, FIVE, 12, True),
    (EITHER, FIVE[:1], 12, False),
    (EITHER, FIVE[:1], 3_601, True),
    (EITHER, [], 3_601, False),
]


@pytest.mark.parametrize(("trigger", "instants", "now", "expected"), DUE)
def test_a_compaction_is_due_by_commits_and_time(
    trigger: CompactionTrigger, instants: list[Instant], now: int, expected: bool
) -> None:
    seconds = f"202601010{now // 3600}{now // 60 % 60:02d}{now % 60:02d}000"
    policy = CompactionPolicy(trigger=trigger)
    assert is_due(policy, Timeline.of(instants), seconds) is expected


def test_synthetic_times_are_older_than_anything() -> None:
    zero = InstantTime("0" * 17)
    first = Instant(zero, Action.DELTACOMMIT, State.COMPLETED, InstantTime("0" * 16 + "1"))
    assert is_due(CompactionPolicy(trigger=TIME), Timeline.of([first]), at(1))


# -- refusals


@pytest.mark.parametrize(
    "wrong",
    [
        {"order": "newest"},
        {"trigger": "never"},
        {"min_delta_commits": 0},
        {"min_log_bytes": -1},
        {"io_bytes_max": 0},
        {"io_bytes_max": 1.5},
        {"trigger_delta_commits": True},
        {"trigger_seconds": "1"},
        {"partitions": "p"},
        {"partitions": [1]},
        {"partitions": 5},
        {"partitions": {"p": 1}},
    ],
)
def test_a_policy_that_means_nothing_is_refused(wrong: dict[str, Any]) -> None:
    [name] = wrong
    with pytest.raises(InvalidRequestError, match=name):
        CompactionPolicy(**wrong)


# -- whether a plan has all that it must


def omitted(
    table: TableState, operation: CompactionOperation, requested: int, **archived: str
) -> str | None:
    asked = {FileGroupId("p", operation.file_id or ""): operation}
    times = CompletionTimes(table.timeline, {at(int(n[1:])): done for n, done in archived.items()})
    return omitted_file(table, times, asked, at(requested))


def of_logs(*requested: int, base_file: int | None = None) -> CompactionOperation:
    """The operation of a plan on the group `a`."""
    logs = tuple(log("a", time)[0].removeprefix("p/") for time in requested)
    data_file = None if base_file is None else base("a", base_file)[0].removeprefix("p/")
    return CompactionOperation(None, logs, data_file, "a", "p", {})


def test_a_plan_must_have_what_had_completed_by_its_time() -> None:
    """30 is the plan's; 12 began before it and completed later, 13 at the very time."""
    writes = [delta(1, 2), delta(10, 11), delta(12, 40), delta(13, 30), delta(14, 15), delta(16)]
    files = [base("a", 1), *(log("a", time) for time in (10, 12, 13, 14, 16)), log("a", 50)]
    table = state([*writes, *compaction(30), delta(50, 51)], *files)
    assert omitted(table, of_logs(10, 14, base_file=1), 30) is None
    assert omitted(table, of_logs(14, base_file=1), 30) == log("a", 10)[0]
    assert omitted(table, of_logs(10, base_file=1), 30) == log("a", 14)[0]
    assert omitted(table, of_logs(10, 14), 30) == base("a", 1)[0]
    assert omitted(table, of_logs(10, 12, 13, 14, base_file=1), 30) is None
    other = replace(of_logs(), file_id="b")
    assert omitted(table, other, 30) is None


def test_older_slices_are_no_matter_to_a_plan() -> None:
    writes = [delta(1, 2), delta(3, 4), delta(5, 25), *compaction(20, 22), delta(30, 31)]
    files = [base("a", 1), log("a", 3), log("a", 5), base("a", 20), log("a", 30)]
    table = state([*writes, *compaction(40)], *files)
    assert omitted(table, of_logs(5, 30, base_file=20), 40) is None
    assert omitted(table, of_logs(30, base_file=20), 40) == log("a", 5)[0]
    assert omitted(table, of_logs(5, 30, base_file=1), 40) == base("a", 20)[0]
    replaced = {("p", "a"): frozenset({str(at(50))})}
    gone = [*writes, *compaction(40), instant(Action.REPLACECOMMIT, 50, 51)]
    assert omitted(state(gone, *files, replaced=replaced), of_logs(30), 40) is None


def test_the_archive_tells_of_writes_that_left_the_timeline_when_they_completed() -> None:
    files = [base("a", 1), log("a", 10), log("a", 12)]
    table = state([*compaction(30), delta(50, 51)], *files)
    plan = of_logs(10, base_file=1)
    found = unnamed_files(table, {FileGroupId("p", "a"): plan}, at(30))
    assert [file.path for file in found] == [log("a", 12)[0]]
    assert omitted(table, plan, 30, t12=at(40)) is None
    assert omitted(table, plan, 30, t12=at(20)) == log("a", 12)[0]


@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 9)), min_size=1, max_size=9),
    st.integers(1, 30),
)
@example([*[(False, 1)] * 6, (True, 1)], 29)  # a base file completed at the plan's very time
def test_every_plan_that_we_make_has_all_that_it_must(
    shapes: list[tuple[bool, int]], planned_at: int
) -> None:
    """Whatever completes later; and without any one of its files it would not be."""
    writes, files = [], []
    for n, (is_base, took) in enumerate(shapes):
        requested = 3 * n + 1
        writes.append(delta(requested, 100 + requested if took > 8 else requested + 10 * took))
        files.append(base("a", requested) if is_base and took == 1 else log("a", requested))
    then = [i for i in writes if (i.completed or "") < at(planned_at)]
    late = [replace(i, state=State.INFLIGHT, completed=None) for i in writes if i not in then]
    now = state([*writes, *compaction(planned_at)], *files)
    for operation in planned(state([*then, *late], *files)).plan.operations or ():
        assert omitted(now, operation, planned_at) is None
        names = operation.delta_file_paths or ()
        for name in names:
            left = tuple(other for other in names if other != name)
            assert (
                omitted(now, replace(operation, delta_file_paths=left), planned_at) == f"p/{name}"
            )
