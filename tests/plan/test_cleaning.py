"""Cleaning: which files go, which stay, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handmade import at
from pyhudi.errors import CorruptTableError, InvalidRequestError, UnsupportedTableError
from pyhudi.format.files.file_names import BaseFileName, LogFileName
from pyhudi.format.table.properties import (
    decode_table_properties,
    encode_properties,
    table_checksum,
)
from pyhudi.format.table.table_config import TableConfig
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.plan_files import CleanerPlan, CleanFile, RetainedInstant
from pyhudi.plan.clean_records import clean_metadata, planned_paths
from pyhudi.plan.clean_verdicts import CleanRule, FileVerdict, Pins
from pyhudi.plan.cleaning import CleanBy, CleanPlan, CleanPolicy, plan_cleaning
from pyhudi.plan.retention import (
    RETAINED_SINCE_KEY,
    Retention,
    bound_of_clean,
    bound_of_plan,
    retention_after,
)
from pyhudi.table.file_group import FileGroupFiles, FileSlice
from pyhudi.table.file_slices import (
    file_slices,
    grouped_files,
    is_replaced,
    latest_slice,
    slice_at_request,
)
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import (
    CompletionTimes,
    Visibility,
    visible_at_completion,
    visible_at_request,
    visible_now,
)
from pyhudi.timeline.timeline import Timeline

CONFIG = TableConfig.of(
    decode_table_properties(
        encode_properties(
            {
                "hoodie.table.name": "t",
                "hoodie.table.type": "MERGE_ON_READ",
                "hoodie.table.version": "9",
                "hoodie.timeline.layout.version": "2",
                "hoodie.table.recordkey.fields": "id",
                "hoodie.table.timeline.timezone": "UTC",
                "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
                "hoodie.table.checksum": table_checksum("t"),
            }
        ),
        "t",
    )
)
NOW_MS = int(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp() * 1000)


@dataclass
class Table:
    """A table as a listing gives it. Times are small numbers, as in `handmade`."""

    instants: list[Instant] = field(default_factory=list)
    files: dict[str, list[str]] = field(default_factory=dict)
    replaced: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)

    def write(
        self,
        requested: int,
        completed: int | None,
        *,
        bases: Iterable[str] = (),
        logs: Iterable[str] = (),
        began: Action = Action.DELTACOMMIT,
        replaces: Iterable[str] = (),
    ) -> Table:
        """A write of files to these groups; without a completion it is under way."""
        time = InstantTime(at(requested))
        self.instants.append(Instant(time, began, State.REQUESTED))
        if completed is not None:
            done = InstantTime(at(completed))
            self.instants.append(Instant(time, began.completed_as, State.COMPLETED, done))
        for id_ in bases:
            self.add(BaseFileName(id_, "0-0-0", time).file_name)
        for id_ in logs:
            self.add(LogFileName(id_, time, 1, "0-0-0").file_name)
        for id_ in replaces:
            known = self.replaced.get(("p", id_), frozenset())
            self.replaced["p", id_] = known | {time}
        return self

    def add(self, name: str, partition: str = "p") -> None:
        self.files.setdefault(partition, []).append(name)

    def instant(self, requested: int, action: Action, completed: int | None = None) -> Table:
        done = None if completed is None else InstantTime(at(completed))
        state = State.INFLIGHT if done is None else State.COMPLETED
        self.instants.append(Instant(InstantTime(at(requested)), action, state, done))
        return self

    def state(self, without: frozenset[str] = frozenset()) -> TableState:
        partitions = {}
        for partition, names in self.files.items():
            paths = [f"{partition}/{name}" for name in names]
            partitions[partition] = grouped_files(
                partition, [(path, 10) for path in sorted(paths) if path not in without]
            )
        return TableState(CONFIG, Timeline.of(self.instants), partitions, self.replaced)


def plan(
    table: Table,
    policy: CleanPolicy,
    pins: Pins | None = None,
    retention: Retention | None = None,
    now_ms: int = NOW_MS,
) -> CleanPlan:
    state = table.state()
    times = CompletionTimes(state.timeline)
    return plan_cleaning(state, times, policy, now_ms=now_ms, pins=pins, retention=retention)


def base(requested: int, id_: str = "f") -> str:
    return f"p/{id_}_0-0-0_{at(requested)}.parquet"


def log(requested: int, id_: str = "f") -> str:
    return f"p/.{id_}_{at(requested)}.log.1_0-0-0"


def gone(plan: CleanPlan) -> set[str]:
    return set(plan.going["path"].to_pylist())


def reasons(plan: CleanPlan) -> dict[str, str]:
    return dict(zip(plan.files["path"].to_pylist(), plan.files["reason"].to_pylist(), strict=True))


def rewritten(count: int, *, group: str = "f") -> Table:
    """A group whose base file was written again and again: requested 10, 20, ..."""
    table = Table()
    for number in range(1, count + 1):
        table.write(10 * number, 10 * number + 5, bases=[group], began=Action.COMMIT)
    return table


# ---- policies


@pytest.mark.parametrize("keep", [0, -1, True, 1.5, "3", None, 10**10])
def test_a_policy_that_keeps_nothing_that_can_be_counted_is_refused(keep: Any) -> None:
    for make in (CleanPolicy.commits, CleanPolicy.versions, CleanPolicy.hours):
        with pytest.raises(InvalidRequestError, match="cannot be used for cleaning"):
            make(keep)


@pytest.mark.parametrize("by", ["commits", "KEEP_LATEST_COMMITS", None, 3])
def test_a_policy_that_counts_something_else_is_refused(by: Any) -> None:
    with pytest.raises(InvalidRequestError, match=r"CleanPolicy\.commits"):
        CleanPolicy(by, 3)


def test_defaults_are_those_of_hudi() -> None:
    assert CleanPolicy() == CleanPolicy.commits() == CleanPolicy(CleanBy.COMMITS, 10)
    assert CleanPolicy.versions() == CleanPolicy(CleanBy.VERSIONS, 3)
    assert CleanPolicy.hours() == CleanPolicy(CleanBy.HOURS, 24)


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (1, {10, 20, 30}),  # of five: the last, and the one before it
        (2, {10, 20}),
        (4, set()),
        (5, set()),
        (9, set()),
    ],
)
def test_by_commits_one_slice_more_stays_than_writes_are_kept(
    keep: int, expected: set[int]
) -> None:
    found = plan(rewritten(5), CleanPolicy.commits(keep))
    assert gone(found) == {base(n) for n in expected}


@pytest.mark.parametrize(("keep", "expected"), [(1, {10, 20, 30, 40}), (3, {10, 20}), (5, set())])
def test_by_versions_so_many_slices_stay(keep: int, expected: set[int]) -> None:
    found = plan(rewritten(5), CleanPolicy.versions(keep))
    assert gone(found) == {base(n) for n in expected}
    assert found.earliest is None
    assert found.since == at(55)


@pytest.mark.parametrize(("hours", "expected"), [(1, {7, 8, 9}), (3, {7}), (24, set())])
def test_by_hours_what_was_written_within_stays_and_one_slice_more(
    hours: int, expected: set[int]
) -> None:
    """It is twelve o'clock, and every hour at half past something was written."""
    table = Table()
    for hour in range(7, 12):
        requested, done = f"20260101{hour:02d}3000000", f"20260101{hour:02d}3000500"
        commit = Instant(InstantTime(requested), Action.COMMIT, State.REQUESTED)
        completed = replace(commit, state=State.COMPLETED, completed=InstantTime(done))
        table.instants += [commit, completed]
        table.add(f"f_0-0-0_{requested}.parquet")
    found = plan(table, CleanPolicy.hours(hours))
    assert gone(found) == {f"p/f_0-0-0_20260101{h:02d}3000000.parquet" for h in expected}


def test_by_hours_a_table_that_nobody_wrote_lately_is_left_alone() -> None:
    later = NOW_MS + 72 * 3_600_000
    assert not gone(plan(rewritten(5), CleanPolicy.hours(1), now_ms=later))


def test_by_hours_the_state_at_the_beginning_of_the_window_stays_readable() -> None:
    """The last write before the window is what the table was when it began."""
    table = Table()
    for hour in (1, 2, 3, 11):
        requested, done = f"20260101{hour:02d}3000000", f"20260101{hour:02d}3000500"
        commit = Instant(InstantTime(requested), Action.COMMIT, State.REQUESTED)
        table.instants += [
            commit,
            replace(commit, state=State.COMPLETED, completed=InstantTime(done)),
        ]
        table.add(f"f_0-0-0_{requested}.parquet")
    found = plan(table, CleanPolicy.hours(6))
    assert gone(found) == {f"p/f_0-0-0_20260101{h:02d}3000000.parquet" for h in (1, 2)}
    assert found.since == "20260101033000500"
    assert found.earliest is not None
    assert found.earliest.requested == "20260101113000000"


def test_by_hours_the_active_timeline_need_not_reach_back() -> None:
    """Writes of the window that are archived keep their files: their names tell their times."""
    table = rewritten(9)
    archived = {r: e for r, e in table.state().timeline.completion_times.items() if r < at(80)}
    table.instants = [i for i in table.instants if i.requested >= at(80)]
    state = table.state()
    an_hour_later = ms(at(45)) + 3_600_000
    found = plan_cleaning(
        state, CompletionTimes(state.timeline, archived), CleanPolicy.hours(1), now_ms=an_hour_later
    )
    assert gone(found) == {base(10), base(20), base(30)}


def ms(time: str) -> int:
    moment = datetime.strptime(time[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    return int(moment.timestamp()) * 1000 + int(time[14:])


# ---- logs and slices


def compacted() -> Table:
    """Logs on a base file, compacted, and more logs."""
    table = Table()
    table.write(10, 11, bases=["f"])
    table.write(20, 21, logs=["f"])
    table.write(30, 31, logs=["f"])
    table.write(40, 45, bases=["f"], began=Action.COMPACTION)
    table.write(50, 51, logs=["f"])
    table.write(60, 61, logs=["f"])
    return table


def test_a_compacted_slice_goes_with_its_logs_once_no_snapshot_needs_it() -> None:
    assert gone(plan(compacted(), CleanPolicy.commits(3))) == set()
    assert gone(plan(compacted(), CleanPolicy.commits(2))) == {base(10), log(20), log(30)}


def test_a_snapshot_before_a_compaction_completed_keeps_what_it_read() -> None:
    """Hudi looks at requested times: by them, the old slice is two behind."""
    table = Table()
    table.write(10, 11, bases=["f"])
    table.write(20, 21, logs=["f"])
    table.write(30, 95, bases=["f"], began=Action.COMPACTION)  # it took long
    table.write(40, 41, logs=["f"])
    table.write(50, 51, logs=["f"])
    found = plan(table, CleanPolicy.commits(2))
    assert found.earliest is not None
    assert found.earliest.requested == at(40)
    assert found.since == at(41)
    assert not gone(found)
    assert reasons(found)[base(10)] == (
        f"needed by the snapshot at {at(41)}, the earliest retained one"
    )
    table.write(100, 101, logs=["f"]).write(110, 111, logs=["f"])
    assert gone(plan(table, CleanPolicy.commits(2))) == {base(10), log(20)}


def test_the_earliest_commit_may_complete_after_later_ones() -> None:
    """It is the first of them to be seen that tells from when on the table is whole."""
    table = rewritten(2)
    table.write(30, 99, logs=["g"])
    table.write(40, 45, bases=["f"], began=Action.COMMIT)
    table.write(50, 55, bases=["f"], began=Action.COMMIT)
    found = plan(table, CleanPolicy.commits(3))
    assert found.earliest is not None
    assert (found.earliest.requested, found.since) == (at(30), at(45))


# ---- what else keeps files


def test_files_of_a_pending_write_and_the_state_that_it_began_from_stay() -> None:
    table = rewritten(5).write(22, None, logs=["f"])
    found = plan(table, CleanPolicy.commits(1))
    assert found.earliest is not None
    assert found.earliest.requested == at(20)
    assert found.since == at(22)
    assert gone(found) == set()
    assert reasons(found)[log(22)] == (f"of the pending write {at(22)}: only a rollback removes it")
    table = rewritten(5).write(42, None)
    assert gone(plan(table, CleanPolicy.versions(1))) == {
        base(10),
        base(20),
    }  # as of 42 it reads 30


def test_files_of_nobody_are_left_to_repair() -> None:
    table = rewritten(5)
    table.add(f"f_0-0-0_{at(33)}.parquet")
    found = plan(table, CleanPolicy.commits(1))
    assert base(33) not in gone(found)
    assert "not on the timeline: see services.repair()" in reasons(found)[base(33)]


def test_what_another_attempt_left_beside_a_base_file_goes_with_it() -> None:
    table = rewritten(5)
    for requested in (10, 50):
        table.add(f"f_0-0-9_{at(requested)}.parquet")
    found = plan(table, CleanPolicy.commits(1))
    assert f"p/f_0-0-9_{at(10)}.parquet" in gone(found)
    assert f"p/f_0-0-9_{at(50)}.parquet" not in gone(found)


@pytest.mark.parametrize("rule", [CleanRule.PLAN, CleanRule.SAVEPOINT])
def test_a_slice_of_which_a_plan_or_savepoint_names_a_file_stays_whole(rule: CleanRule) -> None:
    table = compacted().write(70, 75, bases=["f"], began=Action.COMPACTION)
    table.write(80, 81, bases=["f"]).write(90, 91)
    verdict = FileVerdict(rule, "because")
    found = plan(table, CleanPolicy.commits(1), Pins({log(20): verdict}))
    assert gone(found) == {base(40), log(50), log(60), base(70)}
    assert {path for path, why in reasons(found).items() if why == "because"} == {
        base(10),
        log(20),
        log(30),
    }


@pytest.mark.parametrize("policy", [CleanPolicy.commits(1), CleanPolicy.versions(1)], ids=str)
def test_an_unfinished_savepoint_keeps_what_was_requested_before_it(policy: CleanPolicy) -> None:
    """Hudi names slices by their requested times: not the one of a later, faster compaction."""
    table = Table().write(10, 11, bases="f").write(20, 50, logs="f")
    table.write(30, 40, bases="f", began=Action.COMPACTION)
    table.write(60, 61, bases="f", began=Action.COMPACTION)
    assert base(10) in gone(plan(table, policy))
    found = plan(table, policy, Pins(unfinished_savepoints=(at(20),)))
    assert gone(found) == set()
    assert (found.earliest is None) == (policy.by is CleanBy.VERSIONS)


def test_an_unfinished_savepoint_keeps_a_group_that_was_replaced_after_it() -> None:
    table = Table().write(10, 11, bases="f").write(20, 50, logs="g")
    table.write(30, 40, began=Action.REPLACECOMMIT, replaces="f")
    table.write(60, 61, logs="g")
    assert gone(plan(table, CleanPolicy.versions(1))) == {base(10)}
    found = plan(table, CleanPolicy.versions(1), Pins(unfinished_savepoints=(at(20),)))
    assert gone(found) == set()


def test_an_unfinished_savepoint_keeps_its_state_and_all_later_ones() -> None:
    found = plan(rewritten(5), CleanPolicy.commits(1), Pins(unfinished_savepoints=(at(30),)))
    assert gone(found) == {base(10)}
    assert found.earliest is not None
    assert (found.earliest.requested, found.since) == (at(30), at(35))


@pytest.mark.parametrize(
    ("since", "expected", "earliest"),
    [
        (99, {10, 20, 30}, 50),  # it has read everything
        (45, {10, 20}, 50),
        (35, {10, 20}, 40),
        (25, {10}, 30),
        (0, set(), 10),
    ],
)
def test_a_consumer_keeps_what_it_has_not_read_and_the_state_it_has(
    since: int, expected: set[int], earliest: int
) -> None:
    pins = Pins(consumers=(("fast", at(55)), ("slow", at(since))))
    found = plan(rewritten(5), CleanPolicy.commits(1), pins)
    if since == 45:  # the state at 45 is that of the slice which Hudi keeps anyway
        expected = {10, 20, 30}
    assert gone(found) == {base(n) for n in expected}
    assert found.earliest is not None
    assert found.earliest.requested == at(earliest)
    if since == 25:
        assert reasons(found)[base(20)] == f"consumer 'slow' has read up to {at(25)}"


def test_a_consumer_holds_by_versions_too() -> None:
    pins = Pins(consumers=(("slow", at(25)),))
    found = plan(rewritten(5), CleanPolicy.versions(1), pins)
    assert gone(found) == {base(10)}
    assert found.since == at(25)


# ---- replaced groups


def overwritten() -> Table:
    table = Table()
    table.write(10, 11, bases=["f"]).write(20, 21, logs=["f"])
    table.write(30, 35, bases=["g"], began=Action.REPLACECOMMIT, replaces=["f"])
    return table


@pytest.mark.parametrize(
    ("later", "policy", "goes"),
    [
        (0, CleanPolicy.commits(1), False),
        (1, CleanPolicy.commits(1), True),
        (1, CleanPolicy.commits(2), False),
        (0, CleanPolicy.versions(1), True),
    ],
)
def test_a_replaced_group_goes_when_no_kept_state_has_it(
    later: int, policy: CleanPolicy, *, goes: bool
) -> None:
    table = overwritten()
    for number in range(later):
        table.write(40 + 10 * number, 45 + 10 * number, logs=["g"])
    found = plan(table, policy)
    assert gone(found) == ({base(10), log(20)} if goes else set())
    if goes:
        assert reasons(found)[log(20)] == f"replaced by {at(30)}, and no retained snapshot has it"


def test_a_replaced_group_stays_for_a_consumer_that_is_behind() -> None:
    table = overwritten().write(40, 45, logs=["g"])
    found = plan(table, CleanPolicy.commits(1), Pins(consumers=(("c", at(21)),)))
    assert gone(found) == set()


# ---- the plan


def test_a_plan_says_what_hudi_would() -> None:
    found = plan(rewritten(5), CleanPolicy.commits(2), Pins(savepoints=(at(10), at(20))))
    stored = found.cleaner_plan("file:///data/t")
    assert stored == CleanerPlan(
        earliest_instant_to_retain=RetainedInstant(at(40), "commit", "COMPLETED"),
        last_completed_commit_timestamp=at(50),
        policy="KEEP_LATEST_COMMITS",
        files_to_be_deleted_per_partition={},
        version=2,
        file_paths_to_be_deleted_per_partition={
            "p": tuple(
                CleanFile(f"file:///data/t/{path}", is_bootstrap_base_file=False)
                for path in (base(10), base(20))
            )
        },
        partitions_to_be_deleted=(),
        extra_metadata={
            RETAINED_SINCE_KEY: at(45),
            "savepointed_timestamps": f"{at(10)},{at(20)}",
        },
    )


def test_a_printed_plan_tells_of_every_file_why() -> None:
    found = plan(rewritten(3), CleanPolicy.commits(1))
    lines = str(found).splitlines()
    assert lines[0].startswith("cleaning that keeps the last 1 commit: 1 of 3 files go (10 B of")
    assert f"goes  {base(10)} (10 B): the slice of {at(20)} superseded it" in lines[2]
    assert lines[-1] == f"stays  {base(30)} (10 B): in the latest slice"


def test_a_printed_plan_has_a_line_for_each_reason_and_not_for_each_file() -> None:
    table = Table()
    for number in range(1, 31):
        bases = [f"f{group}" for group in range(20)]
        table.write(10 * number, 10 * number + 5, bases=bases, began=Action.COMMIT)
    found = plan(table, CleanPolicy.commits(15))
    lines = str(found).splitlines()
    assert found.files.num_rows == 600
    going = [line for line in lines if line.startswith("goes")]
    assert len(going) == 1
    assert f"{found.count} files such as " in going[0]
    assert " (2.8 kB): the slice of " in going[0]
    assert len(lines) <= 3 + 11, "and of those that stay, ten reasons at most"


def test_what_is_lost_stays_lost() -> None:
    """A policy that keeps more than the last one did promises no more than there is."""
    found = plan(rewritten(9), CleanPolicy.commits(6), retention=Retention(at(70), at(75)))
    assert found.earliest is not None
    assert (found.earliest.requested, found.since) == (at(70), at(75))


def test_an_empty_table_has_nothing_to_clean() -> None:
    found = plan(Table(), CleanPolicy.versions(1))
    assert (found.count, found.bytes, found.files.num_rows) == (0, 0, 0)
    assert "0 of 0 files" in str(found)


# ---- what cleaning has left


def cleaned(table: Table, found: CleanPlan, *, told: bool) -> Retention:
    """What a reader finds out from the clean's completed file."""
    stored = found.cleaner_plan("file:///t")
    if not told:  # as Hudi writes it
        stored = replace(stored, extra_metadata={})
    planned = planned_paths(stored, "file:///t", "plan")
    metadata = clean_metadata(at(900), stored, planned, frozenset(), 1)
    state = table.state(frozenset(gone(found)))
    assert bound_of_plan(at(900), stored) == bound_of_clean(metadata)
    return retention_after(state, [bound_of_clean(metadata)])


def test_of_cleans_of_hudi_a_late_base_file_moves_the_bound() -> None:
    table = Table()
    table.write(10, 11, bases=["f"])
    table.write(30, 95, bases=["f"], began=Action.COMPACTION)
    table.write(40, 41, logs=["f"]).write(50, 51, logs=["f"])
    stored = CleanerPlan(
        RetainedInstant(at(40), "deltacommit", "COMPLETED"), at(50), "KEEP_LATEST_COMMITS"
    )
    state = table.state(frozenset({base(10)}))
    kept = retention_after(state, [bound_of_plan(at(120), stored)])
    assert kept == Retention(at(40), at(95))


def test_by_versions_hudi_leaves_the_newest_state_of_that_day() -> None:
    table = rewritten(3)
    table.write(25, 39, logs=["f"])  # the newest to complete is not the newest requested
    stored = CleanerPlan(
        None,
        at(30),
        "KEEP_LATEST_FILE_VERSIONS",
        file_paths_to_be_deleted_per_partition={"p": (CleanFile(base(10)),)},
    )
    kept = retention_after(table.state(), [bound_of_plan(at(50), stored)])
    assert kept == Retention(at(30), at(39))


def test_of_cleans_of_hudi_a_late_base_file_counts_though_it_is_archived() -> None:
    table = Table()
    table.write(10, 11, bases=["f"]).write(12, 13, logs=["f"])
    table.write(14, 95, bases=["f"], began=Action.COMPACTION)
    for number in range(20, 90, 2):
        table.write(number, number + 1, logs=["g"])
    archived = {r: e for r, e in table.state().timeline.completion_times.items() if r < at(85)}
    table.instants = [i for i in table.instants if i.requested >= at(85)]
    stored = CleanerPlan(
        RetainedInstant(at(80), "deltacommit", "COMPLETED"), at(88), "KEEP_LATEST_COMMITS"
    )
    after = table.state(frozenset({base(10), log(12)}))
    bounds = [bound_of_plan(at(120), stored)]
    assert retention_after(after, bounds, archived) == Retention(at(80), at(95))


def test_the_largest_bound_of_several_cleans_counts() -> None:
    table = rewritten(5)
    stored = [
        CleanerPlan(RetainedInstant(at(n), "commit", "COMPLETED"), at(50), "KEEP_LATEST_COMMITS")
        for n in (40, 20)
    ]
    bounds = [bound_of_plan(at(60 + n), s) for n, s in enumerate(stored)]
    assert retention_after(table.state(), bounds) == Retention(at(40), at(45))
    assert retention_after(table.state(), []) == Retention()


# ---- forged plans


@pytest.mark.parametrize(
    ("partition", "path", "error", "message"),
    [
        (
            "p",
            "file:///elsewhere/p/f_0-0-0_20260101000000010.parquet",
            CorruptTableError,
            "outside",
        ),
        (
            "p",
            "s3://bucket/p/f_0-0-0_20260101000000010.parquet",
            CorruptTableError,
            "another store",
        ),
        ("p", "file:///data/t/p/../../x", CorruptTableError, "segment"),
        ("p", "file:///data/t/p/notes.txt", CorruptTableError, "not a data file"),
        ("p", "file:///data/t/q/f_0-0-0_20260101000000010.parquet", CorruptTableError, "'p'"),
        ("p", "file:///data/t/p/.hoodie_partition_metadata", CorruptTableError, "not a data file"),
        (
            ".hoodie/metadata/files",
            "file:///data/t/.hoodie/metadata/files/f_0-0-0_20260101000000010.hfile",
            CorruptTableError,
            "not a data file",
        ),
    ],
)
def test_a_plan_that_names_anything_but_data_files_of_its_partitions_is_refused(
    partition: str, path: str, error: type[Exception], message: str
) -> None:
    files = {partition: (CleanFile(path),)}
    stored = CleanerPlan(
        None, at(1), "KEEP_LATEST_COMMITS", file_paths_to_be_deleted_per_partition=files
    )
    with pytest.raises(error, match=message):
        planned_paths(stored, "file:///data/t", "plan")


def test_a_plan_of_version_one_names_files_and_no_paths() -> None:
    names = {"p": (base(10)[2:], base(10)[2:])}
    stored = CleanerPlan(None, at(1), "KEEP_LATEST_COMMITS", names, version=1)
    assert planned_paths(stored, "file:///data/t", "plan") == {"p": (base(10),)}
    forged = replace(stored, files_to_be_deleted_per_partition={"p": ("../../x",)})
    with pytest.raises(CorruptTableError):
        planned_paths(forged, "file:///data/t", "plan")


def test_files_of_a_bootstrap_are_left_to_hudi() -> None:
    file = CleanFile("file:///data/source/a.parquet", is_bootstrap_base_file=True)
    stored = CleanerPlan(
        None, at(1), "KEEP_LATEST_COMMITS", file_paths_to_be_deleted_per_partition={"p": (file,)}
    )
    with pytest.raises(UnsupportedTableError, match="bootstrapped"):
        planned_paths(stored, "file:///data/t", "plan")


def test_the_completed_file_says_what_was_removed_and_what_was_spared() -> None:
    found = plan(rewritten(5), CleanPolicy.commits(2))
    stored = found.cleaner_plan("file:///data/t")
    planned = planned_paths(stored, "file:///data/t", "plan")
    metadata = clean_metadata(at(60), stored, planned, frozenset({base(20)}), 7)
    assert metadata.total_files_deleted == 1
    assert metadata.earliest_commit_to_retain == at(40)
    assert metadata.extra_metadata == stored.extra_metadata
    [partition] = metadata.partition_metadata.values()
    assert partition.success_delete_files == (base(10)[2:],)
    assert partition.failed_delete_files == (base(20)[2:],)
    assert partition.delete_path_patterns == (base(10)[2:],)
    assert partition.policy == "KEEP_LATEST_COMMITS"


# ---- any history


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Writes that overlap at random, to two groups; the later part of them may be under way."""
    table = Table()
    times = draw(st.permutations(range(1, 25)))
    pairs = [sorted(times[2 * n : 2 * n + 2]) for n in range(draw(st.integers(1, 12)))]
    for requested, completed in sorted(pairs):
        group = draw(st.sampled_from("fg"))
        kind = draw(st.sampled_from(["log", "log", "base", "compaction", "replace", "empty"]))
        is_pending = draw(st.integers(0, 9)) == 0
        table.write(
            requested,
            None if is_pending else completed,
            bases=[group] if kind in ("base", "compaction") else [],
            logs=[group] if kind == "log" else [],
            began={"compaction": Action.COMPACTION, "replace": Action.REPLACECOMMIT}.get(
                kind, Action.DELTACOMMIT
            ),
            replaces=[group] if kind == "replace" and not is_pending else [],
        )
    return table


POLICIES = st.sampled_from(
    [CleanPolicy.commits(n) for n in (1, 2, 4)] + [CleanPolicy.versions(n) for n in (1, 2)]
)


def at_completion(
    state: TableState, time: str, archived: dict[str, str] | None = None
) -> dict[tuple[str, str], FileSlice | None]:
    times = CompletionTimes(state.timeline, archived or {})
    seen = visible_at_completion(times, time)
    return {
        (g.partition, g.file_id): latest_slice(g, times, seen)
        for g in state.groups()
        if not is_replaced(g, state.replaced, seen) and latest_slice(g, times, seen) is not None
    }


def at_request(
    state: TableState, time: str, archived: dict[str, str] | None = None
) -> dict[tuple[str, str], FileSlice | None]:
    times, now = CompletionTimes(state.timeline, archived or {}), visible_now(state.timeline)
    seen = visible_at_request(state.timeline, time)

    def of(group: FileGroupFiles) -> FileSlice | None:
        return slice_at_request(group, times, now, seen, time)

    return {
        (g.partition, g.file_id): of(g)
        for g in state.groups()
        if not is_replaced(g, state.replaced, seen) and of(g) is not None
    }


def written_since(table: Table, since: str, files: Iterable[str]) -> set[str]:
    done = Timeline.of(table.instants).completion_times
    return {path for path in files for r, e in done.items() if r in path and e > since}


@settings(deadline=None, max_examples=100)
@given(tables(), POLICIES, st.none() | st.integers(0, 25))
def test_every_kept_state_is_the_same_before_and_after(
    table: Table, policy: CleanPolicy, consumer: int | None
) -> None:
    pins = Pins() if consumer is None else Pins(consumers=(("c", at(consumer)),))
    found = plan(table, policy, pins)
    before, after = table.state(), table.state(frozenset(gone(found)))
    kept = cleaned(table, found, told=True) if found.count else Retention()
    since = kept.since if consumer is None else min(kept.since, at(consumer))
    for number in range(26):
        if at(number) >= since:
            assert at_completion(before, at(number)) == at_completion(after, at(number))
        if at(number) >= kept.earliest:
            assert at_request(before, at(number)) == at_request(after, at(number))
    files = reasons(found)
    assert not written_since(table, since, files) & gone(found)
    pending = before.timeline.pending_writes
    assert not any(requested in path for requested in pending for path in gone(found))
    assert at_completion(before, at(99)) == at_completion(after, at(99))


@settings(deadline=None, max_examples=100)
@given(tables(), st.integers(0, 25))
def test_every_state_of_the_last_hours_is_the_same_and_is_not_refused(
    table: Table, first: int
) -> None:
    found = plan(table, CleanPolicy.hours(1), now_ms=ms(at(first)) + 3_600_000)
    before, after = table.state(), table.state(frozenset(gone(found)))
    kept = cleaned(table, found, told=True) if found.count else Retention()
    assert kept.since <= at(first)
    for number in range(26):
        if at(number) >= kept.since:
            assert at_completion(before, at(number)) == at_completion(after, at(number))
        if at(number) >= kept.earliest:
            assert at_request(before, at(number)) == at_request(after, at(number))


@settings(deadline=None, max_examples=100)
@given(tables(), POLICIES, POLICIES)
def test_a_second_clean_by_the_same_policy_finds_nothing(
    table: Table, policy: CleanPolicy, other: CleanPolicy
) -> None:
    first = plan(table, policy)
    left = frozenset(gone(first))
    state = table.state(left)
    times = CompletionTimes(state.timeline)
    again = plan_cleaning(state, times, policy, now_ms=NOW_MS)
    assert gone(again) == set()
    more = plan_cleaning(state, times, other, now_ms=NOW_MS)
    assert gone(more) <= gone(plan(table, other)) | gone(first)


@settings(deadline=None, max_examples=100)
@given(tables(), st.sampled_from([1, 2, 4]), st.integers(0, 12))
def test_reads_of_what_hudi_cleaned_are_whole_or_refused(
    table: Table, keep: int, archiving: int
) -> None:
    """Hudi keeps the newest slice below the earliest instant, by requested times alone.

    Some of the oldest instants are archived then.
    """
    found = plan(table, CleanPolicy.commits(keep))
    if found.earliest is None:
        return
    earliest = found.earliest.requested
    before = table.state()
    times, now = CompletionTimes(before.timeline), visible_now(before.timeline)
    removed = _removed_by_hudi(before, times, now, earliest)
    stored = CleanerPlan(
        RetainedInstant(earliest, "deltacommit", "COMPLETED"), at(50), "KEEP_LATEST_COMMITS"
    )
    done = before.timeline.completion_times
    begin = min([earliest, *before.timeline.pending_writes])
    archived = {r: done[r] for r in sorted(r for r in done if r < begin)[:archiving]}
    table.instants = [i for i in table.instants if i.requested not in archived]
    after = table.state(removed)
    kept = retention_after(after, [bound_of_plan(at(99), stored)], archived)
    for number in range(26):
        if at(number) >= kept.since:
            whole = at_completion(before, at(number))
            assert whole == at_completion(after, at(number), archived)
        if at(number) >= kept.earliest:
            whole = at_request(before, at(number))
            assert whole == at_request(after, at(number), archived)


def _removed_by_hudi(
    state: TableState, times: CompletionTimes, now: Visibility, earliest: str
) -> frozenset[str]:
    removed: set[str] = set()
    for group in state.groups():
        took = state.replaced.get((group.partition, group.file_id), frozenset())
        slices = list(file_slices(group, times, now))
        older = [s for s in slices if s.base_instant < earliest]
        goes = slices if any(r < earliest for r in took) else older[1:]
        for slice_ in goes:
            removed |= {f.path for f in slice_.logs}
            removed |= {slice_.base.path} if slice_.base else set()
    return frozenset(removed)


def test_what_names_another_attempt_of_a_slice_holds_the_slice() -> None:
    table = rewritten(5)
    table.add(BaseFileName("f", "9-0-0", InstantTime(at(20))).file_name)
    twins = {base(20), f"p/{BaseFileName('f', '9-0-0', InstantTime(at(20))).file_name}"}
    for named in twins:
        pins = Pins(files={named: FileVerdict(CleanRule.SAVEPOINT, "savepoint")})
        found = plan(table, CleanPolicy.commits(1), pins)
        assert gone(found) & twins == set()
        assert gone(found)
