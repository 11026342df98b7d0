"""Keeping a table healthy: what is due is done, and one service that fails stops no other."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

import pyhudi
from faulty_storage import Effect, Fault, FaultyStorage
from memory_tables import MemoryTable
from opened_tables import table_on
from pyhudi.api.table import Table
from pyhudi.commit.write_ids import WRITE_ID_FOLDER
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.table_config import TableType
from pyhudi.format.timeline.decision_entry import LOG_FOLDER, STAGED_FOLDER
from pyhudi.plan.archiving.choose import ArchivePlan
from pyhudi.plan.compaction.policy import CompactionTrigger
from pyhudi.services import maintenance as upkeep_module
from pyhudi.services.compaction import run as table_compaction
from pyhudi.services.compaction.merge_slice import CompactionSpec, compact_slice
from pyhudi.services.maintenance import MARK_AHEAD_MAX_MS, REPAIRED

SCHEMA = pa.schema([("id", pa.string()), ("at", pa.int64()), ("v", pa.string())])
UPKEEP = pyhudi.Upkeep(
    clean=pyhudi.CleanPolicy.commits(2), archive=pyhudi.ArchivePolicy(keep_min=4, keep_max=6)
)


def made(**definition: object) -> MemoryTable:
    return MemoryTable(SCHEMA, **{"ordering": "at", "buckets": SimpleBuckets(1), **definition})


def rows(at: int) -> pa.Table:
    return pa.table({"id": ["a", f"k{at}"], "at": [at, at], "v": [f"v{at}"] * 2}, schema=SCHEMA)


def upserted(table: Table, times: Iterable[int]) -> None:
    for at in times:
        table.upsert(rows(at))
        table._opening.world.sleep_ms(600_000)  # what found nothing to do rests for a minute


def content(table: Table) -> dict[str, str]:
    found = table.read(columns=["id", "v"]).to_arrow().to_pylist()
    return {row["id"]: row["v"] for row in found}


def expected(writes: int) -> dict[str, str]:
    return {"a": f"v{writes}", **{f"k{at}": f"v{at}" for at in range(1, writes + 1)}}


def test_what_is_due_is_done_and_nothing_else() -> None:
    memory = made()
    table = memory.table()
    for at in range(1, 3):  # with the table's beginning and its seed, four commits
        table.upsert(rows(at))
    result = table.services.run(UPKEEP)
    assert not result.did_anything
    for at in range(3, 8):
        table.upsert(rows(at))
    result = table.services.run(UPKEEP)
    assert result.compaction is not None
    assert len(result.compaction.results) == 1
    assert content(table) == expected(7)
    assert not table.services.run(UPKEEP).did_anything


def test_a_table_that_is_kept_up_does_not_grow_with_its_commits() -> None:
    memory = made()
    table = memory.table()
    sizes = []
    for at in range(1, 61):
        table.upsert(rows(at))
        table.services.run(UPKEEP)
        memory.clock.ms += 600_000
        found = (stat.path for stat in memory.storage.list(""))
        sizes.append(sum(not path.startswith(LOG_FOLDER) for path in found))
    assert content(table) == expected(60)
    assert max(sizes[40:]) <= max(sizes[20:40]) + 5  # files of the archive, until they are merged


@pytest.mark.parametrize("kind", list(TableType), ids=lambda kind: kind.value)
def test_a_process_that_lives_for_days_goes_on(kind: TableType) -> None:
    """Cleans are archived under its hands, and it reads as of old times all the same."""
    memory = made(table_type=kind)
    table, service, reader = memory.table(), memory.table("service"), memory.table("reader")
    for at in range(1, 25):
        done = table.upsert(rows(at))
        memory.clock.ms += 1_800_000
        assert service.services.run(UPKEEP, keep_going=True).errors == ()
        assert reader.read(as_of=done.completed).to_arrow().num_rows == at + 1
    commits = [name for name in memory.names() if name.endswith("commit")]
    assert len(commits) < 20
    found = reader.inspect.timeline().column("completed").to_pylist()
    assert len([time for time in found if time]) < 30


def data_files(memory: MemoryTable) -> int:
    paths = (stat.path for stat in memory.storage.list(""))
    return sum(path.endswith(".parquet") and not path.startswith(".hoodie/") for path in paths)


def test_by_hours_every_state_stays_though_the_timeline_is_archived() -> None:
    memory = made(table_type=TableType.COPY_ON_WRITE)
    upkeep = pyhudi.Upkeep(clean=pyhudi.CleanPolicy.hours(5), archive=UPKEEP.archive)
    done = []
    for at in range(1, 31):
        done.append(memory.table().upsert(rows(at)).completed)
        memory.clock.ms += 1_200_000
        memory.table("once").services.run(upkeep)
    table = memory.table("reader")
    for number in range(16, 31):
        found = table.read(as_of=done[number - 1]).to_arrow()
        assert found.num_rows == number + 1
    assert data_files(memory) < 18
    assert any("/history/" in stat.path for stat in memory.storage.list(".hoodie/timeline"))


def test_more_commits_may_be_kept_than_archiving_would_leave() -> None:
    memory = made(table_type=TableType.COPY_ON_WRITE)
    upkeep = pyhudi.Upkeep(clean=pyhudi.CleanPolicy.commits(8), archive=UPKEEP.archive)
    for at in range(1, 21):
        memory.table().upsert(rows(at))
        memory.clock.ms += 1_200_000
        memory.table("once").services.run(upkeep)
    assert data_files(memory) == 9
    assert any("/history/" in stat.path for stat in memory.storage.list(".hoodie/timeline"))


def test_failed_writes_are_rolled_back_whatever_else_is_left_to_others() -> None:
    memory = made()
    broken = FaultyStorage(memory.storage, [Fault(Effect.FAIL, "create", "*/log/*", 2, None)])
    dead = memory.table("dead", broken)
    with pytest.raises(pyhudi.HudiError):
        dead.upsert(rows(1))
    memory.clock.ms += 600_000
    nothing = pyhudi.Upkeep(compaction=None, clean=None, archive=None)
    told = memory.table().services.run(nothing, dry_run=True)
    assert len(told.rolled_back) == 1
    assert not any(name.endswith(".rollback") for name in memory.names())
    done = memory.table().services.run(nothing)
    assert any(name.endswith(".rollback") for name in memory.names())
    assert done.did_anything
    assert len(done.rolled_back) == 1
    assert str(done) == f"rollback of the failed write {done.rolled_back[0]}"
    assert not memory.table().services.run(nothing).did_anything


def test_a_dry_run_reports_and_changes_nothing() -> None:
    memory = made()
    table = memory.table()
    for at in range(1, 8):
        table.upsert(rows(at))
    before = [(s.path, s.etag) for s in memory.storage.list("")]
    told = str(table.services.run(UPKEEP, dry_run=True))
    for clean in (pyhudi.CleanPolicy.hours(1), pyhudi.CleanPolicy.versions(1)):
        table.services.run(pyhudi.Upkeep(clean=clean, archive=UPKEEP.archive), dry_run=True)
    assert [(s.path, s.etag) for s in memory.storage.list("")] == before
    assert "1 file group to compact" in told


def test_copy_on_write_has_no_compaction() -> None:
    memory = made(table_type=TableType.COPY_ON_WRITE)
    table = memory.table()
    for at in range(1, 12):
        table.upsert(rows(at))
    result = table.services.run(UPKEEP)
    assert result.compaction is None
    assert isinstance(result.clean, pyhudi.CleanResult)
    assert result.clean.files > 0
    assert content(table) == expected(11)


def failing(*_: object, **__: object) -> None:
    raise pyhudi.UnavailableError("no clean", why="it rains", next_step="Wait")


def test_a_service_that_fails_keeps_no_other_from_its_turn() -> None:
    memory = made()
    table = memory.table()
    for at in range(1, 12):
        table.upsert(rows(at))
    with patch.object(upkeep_module, "clean", failing):
        result = table.services.run(UPKEEP, keep_going=True)
        assert [name for name, _ in result.errors] == ["clean"]
        assert result.compaction is not None
        assert result.compaction.results
        assert result.archive is not None
        with pytest.raises(pyhudi.UnavailableError, match="no clean"):
            table.services.run(UPKEEP)


def test_services_follow_each_write_if_asked_to() -> None:
    memory = made()
    table = table_on(memory.storage, memory.world("a"), upkeep=UPKEEP)
    for at in range(1, 7):
        table.upsert(rows(at))
    assert any(name.endswith(".commit") for name in memory.names())
    with (
        patch.object(upkeep_module, "clean", failing),
        pytest.warns(pyhudi.UpkeepWarning, match="clean failed"),
    ):
        upserted(table, range(7, 17))
    assert content(table) == expected(16)


def test_what_is_no_policy_is_refused() -> None:
    with pytest.raises(pyhudi.InvalidRequestError, match="CleanPolicy"):
        pyhudi.Upkeep(clean=10)  # type: ignore[arg-type]


def test_a_fault_of_ours_after_a_write_is_a_warning_and_not_the_writes_error() -> None:
    memory = made()
    eager = pyhudi.CompactionPolicy(trigger_delta_commits=1)
    table = table_on(memory.storage, memory.world("a"), upkeep=pyhudi.Upkeep(compaction=eager))

    def broken(*_: object, **__: object) -> None:
        raise KeyError("a fault")

    with (
        patch.object(upkeep_module, "compact", broken),
        pytest.warns(pyhudi.UpkeepWarning, match="KeyError: 'a fault'"),
    ):
        result = table.upsert(rows(1))
    assert result.completed
    assert content(table) == expected(1)


@pytest.mark.parametrize("trigger", ["num_commits", "time_elapsed"])
def test_a_compaction_is_due_some_day_even_if_archiving_keeps_less_than_it_counts(
    trigger: str,
) -> None:
    compaction = pyhudi.CompactionPolicy(
        trigger=CompactionTrigger(trigger),
        trigger_delta_commits=15,
        trigger_seconds=150 * 60,
    )
    memory = made()
    table = memory.table()
    upkeep = pyhudi.Upkeep(compaction=compaction, clean=None, archive=UPKEEP.archive)
    compacted, archived = [], 0
    for at in range(1, 40):
        table.upsert(rows(at))
        memory.clock.ms += 600_000
        result = table.services.run(upkeep)
        assert isinstance(result.archive, pyhudi.ArchiveResult)
        archived += len(result.archive.archived)
        compacted += [at] if result.compaction and result.compaction.results else []
    assert len(compacted) == 2
    assert archived >= 15
    assert content(table) == expected(39)


def test_archiving_that_is_not_due_is_not_begun() -> None:
    memory = made()
    table = memory.table("a")
    only = pyhudi.Upkeep(compaction=None, clean=None, archive=UPKEEP.archive)
    for at in range(1, 4):
        table.upsert(rows(at))
    with patch.object(upkeep_module, "archived_table", failing):
        assert not table.services.run(only).did_anything
        for at in range(4, 9):  # by another process: it is noticed
            memory.table("other").upsert(rows(at))
        with pytest.raises(pyhudi.UnavailableError):
            table.services.run(only)


# ---- a table that grows by partitions


DAYS = pa.schema([("id", pa.string()), ("at", pa.int64()), ("day", pa.string())])


def loaded(at: int, day: str) -> pa.Table:
    return pa.table({"id": ["a"], "at": [at], "day": [day]}, schema=DAYS)


@pytest.mark.parametrize(("later", "loads"), [("commits", 100), ("hours", 30), ("versions", 30)])
@pytest.mark.parametrize("kind", list(TableType), ids=lambda kind: kind.value)
def test_archiving_goes_on_though_cleaning_finds_nothing_more_to_remove(
    kind: TableType, later: str, loads: int
) -> None:
    """Loads fill one new partition after the other, so no file is ever superseded again."""
    memory = MemoryTable(
        DAYS, ordering="at", buckets=SimpleBuckets(1), partition_by="day", table_type=kind
    )
    table, service = memory.table(), memory.table("service")
    for at in range(1, 14):
        table.upsert(loaded(at, "d0"))
        memory.clock.ms += 1_200_000
        service.services.run(UPKEEP)
    assert any(name.endswith(".clean") for name in memory.names())
    clean = {
        "commits": pyhudi.CleanPolicy.commits(2),
        "hours": pyhudi.CleanPolicy.hours(1),
        "versions": pyhudi.CleanPolicy.versions(9),
    }[later]
    upkeep = pyhudi.Upkeep(compaction=None, clean=clean, archive=UPKEEP.archive)
    cleans, told, active = 0, 0, []
    for at in range(20, 20 + loads):
        table.upsert(loaded(at, f"d{at}"))
        memory.clock.ms += 1_200_000
        foretold = service.services.run(upkeep, dry_run=True).archive if at % 5 == 0 else None
        result = service.services.run(upkeep)
        assert isinstance(result.clean, pyhudi.CleanResult)
        cleans += len(result.clean.cleans)
        assert isinstance(result.archive, pyhudi.ArchiveResult)
        if isinstance(foretold, ArchivePlan) and not result.clean.cleans:
            assert [i.requested for i in foretold.leaving] == list(result.archive.archived)
            told += len(foretold.leaving)
        active.append(service.inspect.timeline().num_rows)
    assert cleans <= 4
    assert told
    assert max(active[20:]) <= 25
    assert table.read().to_arrow().num_rows == loads + 1


# ---- what upkeep costs a commit


class Retention:
    """A table that is kept up by its writer, and what each commit costs."""

    def __init__(self, upkeep: pyhudi.Upkeep, memory: MemoryTable) -> None:
        self.storage = FaultyStorage(memory.storage)
        self.table = table_on(self.storage, memory.world("kept"), upkeep=upkeep)

    def operations(self, at: int) -> int:
        before = len(self.storage.trace)
        self.table.upsert(rows(at))
        return len(self.storage.trace) - before


def begun(upkeep: pyhudi.Upkeep, memory: MemoryTable, commits: int, pause_ms: int) -> int:
    """In how many of so many rounds archiving is begun."""
    table, calls = memory.table("kept"), 0
    real = upkeep_module.archived_table

    def counted(*given: object, **named: object) -> object:
        nonlocal calls
        calls += 1
        return real(*given, **named)  # type: ignore[arg-type]

    with patch.object(upkeep_module, "archived_table", counted):
        for at in range(1, commits + 1):
            table.upsert(rows(at))
            memory.clock.ms += pause_ms
            table.services.run(upkeep)
    return calls


def test_archiving_is_begun_when_it_can_do_something() -> None:
    """As many commits are kept as archiving would leave, or more."""
    upkeep = pyhudi.Upkeep(clean=pyhudi.CleanPolicy.commits(12), archive=UPKEEP.archive)
    memory = made(table_type=TableType.COPY_ON_WRITE)
    assert begun(upkeep, memory, 60, 1_200_000) <= 25
    assert any("/history/" in stat.path for stat in memory.storage.list(".hoodie/timeline"))


def held_up_by_a_consumer(memory: MemoryTable) -> None:
    table = memory.table("slow")
    table.upsert(rows(0))
    table.consumers.register("slow", expires_after_hours=None)


def held_up_by_a_failed_write(memory: MemoryTable) -> None:
    memory.table("ok").upsert(rows(0))
    broken = FaultyStorage(memory.storage, [Fault(Effect.FAIL, "create", "*/log/*", 2, None)])
    with pytest.raises(pyhudi.HudiError):
        memory.table("dead", broken).upsert(rows(0))
    memory.clock.ms += 600_000


@pytest.mark.parametrize("holds_up", [held_up_by_a_consumer, held_up_by_a_failed_write])
def test_archiving_that_is_held_up_is_tried_seldom_and_costs_no_more_each_time(
    holds_up: Callable[[MemoryTable], None],
) -> None:
    """Neither the commits nor the cleans that come with them leave the timeline."""
    memory = made(table_type=TableType.COPY_ON_WRITE)
    holds_up(memory)
    assert begun(UPKEEP, memory, 40, 1_000) <= 14
    memory = made(table_type=TableType.COPY_ON_WRITE)
    holds_up(memory)
    kept = Retention(UPKEEP, memory)
    costs = []
    for at in range(1, 61):
        memory.clock.ms += 60_000
        costs.append(kept.operations(at))
    assert sum(costs[40:]) <= sum(costs[20:40]) * 1.05


def test_archiving_that_was_held_up_is_tried_again_when_there_is_a_reason() -> None:
    memory = made(table_type=TableType.COPY_ON_WRITE)
    held_up_by_a_consumer(memory)
    table = memory.table("kept")
    for at in range(1, 12):
        table.upsert(rows(at))
    memory.clock.ms += 1_200_000
    only = pyhudi.Upkeep(compaction=None, clean=None, archive=UPKEEP.archive)
    with patch.object(upkeep_module, "archived_table", wraps=upkeep_module.archived_table) as runs:
        assert table.services.run(only).did_anything  # what is before the consumer
        table.consumers.release("slow")
        assert not table.services.run(only).did_anything  # it was tried just now
        assert runs.call_count == 1
        assert table.services.run(only, dry_run=True).archive.leaving  # type: ignore[union-attr]
        memory.clock.ms += 600_000
        assert table.services.run(only).did_anything


# ---- faults, and what is left over


def test_a_fault_keeps_no_other_service_from_running_and_is_reported_in_full() -> None:
    memory = made()
    table = memory.table()
    for at in range(1, 12):
        table.upsert(rows(at))

    def broken(*_: object, **__: object) -> None:
        raise pa.ArrowInvalid("a page is not what it says")

    with patch.object(upkeep_module, "compact", broken):
        result = table.services.run(UPKEEP, keep_going=True)
        [(name, error)] = result.errors
        assert name == "compaction"
        assert "ArrowInvalid: a page is not what it says" in str(error)
        assert "in broken" in str(error)  # the traceback
        assert isinstance(error.__cause__, pa.ArrowInvalid)
        assert result.clean is not None
        assert result.archive is not None
        with pytest.raises(pyhudi.HudiError, match="compaction ended unexpectedly"):
            table.services.run(UPKEEP)


@pytest.mark.parametrize(
    ("ahead_ms", "is_heeded"), [(MARK_AHEAD_MAX_MS, True), (MARK_AHEAD_MAX_MS + 1_000, False)]
)
def test_a_mark_from_the_future_keeps_no_process_from_sweeping_up(
    ahead_ms: int, is_heeded: bool
) -> None:
    memory = made()
    memory.table().upsert(rows(1), write_id="w1")
    memory.clock.ms += ahead_ms
    memory.storage.write(REPAIRED, b"")  # by a machine whose clock was wrong
    memory.clock.ms -= ahead_ms
    memory.table().services.run(UPKEEP)
    mark = memory.storage.stat(REPAIRED)
    assert mark is not None
    assert (mark.modified_ms > memory.clock.ms) is is_heeded


def test_a_mark_from_the_future_does_not_outlive_the_sweep_on_a_local_disk(tmp_path: Path) -> None:
    table = pyhudi.create_table(
        str(tmp_path / "t"), SCHEMA, record_key="id", buckets=pyhudi.SimpleBuckets(1), upkeep=False
    )
    mark = tmp_path / "t" / REPAIRED
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()
    later = time.time() + 86_400
    os.utime(mark, (later, later))
    table.services.run(UPKEEP)
    assert mark.stat().st_mtime < later - 3_600


def test_what_is_left_over_is_swept_up_once_in_an_hour_by_one_of_all() -> None:
    memory = made()
    table, other = memory.table(), memory.table("other")
    most = 0
    for at in range(1, 41):
        table.upsert(rows(at), write_id=f"w{at}")
        memory.clock.ms += 86_400_000
        table.services.run(UPKEEP)
        most = max(most, sum(1 for _ in memory.storage.list(WRITE_ID_FOLDER)))
    assert most <= 9  # they are kept for a week
    stale = f"{STAGED_FOLDER}/20200101000000000.left"
    memory.storage.write(stale, b"")
    memory.clock.ms += 86_400_000
    swept = [process.services.run(UPKEEP).swept for process in (other, table, other)]
    assert stale in swept[0]
    assert swept[1:] == [(), ()]
    memory.storage.write(stale, b"")
    memory.clock.ms += 86_400_000
    assert table.services.run(UPKEEP, dry_run=True).swept == ()
    assert "left over by failed writes removed" in str(table.services.run(UPKEEP))


def test_a_table_that_cannot_be_opened_for_writing_is_among_the_errors() -> None:
    memory = made()
    memory.table().upsert(rows(1))
    table = table_on(memory.storage, memory.world("b"), lock=LockKind.FILE)
    for dry_run in (True, False):
        [(name, error)] = table.services.run(keep_going=True, dry_run=dry_run).errors
        assert name == "open"
        assert "lock" in str(error)


POLICIES = {"compact": pyhudi.CleanPolicy(), "clean": 5, "archive": {}}


@pytest.mark.parametrize("verb", POLICIES)
@pytest.mark.parametrize("given", [0, "", "wrong"])
def test_what_is_no_policy_is_refused_and_not_taken_for_the_default(verb: str, given: Any) -> None:
    table = made().table()
    with pytest.raises(pyhudi.InvalidRequestError, match=r"policy=.*Give a pyhudi"):
        getattr(table.services, verb)(POLICIES[verb] if given == "wrong" else given)


def test_a_compaction_that_ends_with_a_fault_keeps_no_other_plan_waiting() -> None:
    memory = made(partition_by="v", buckets=SimpleBuckets(1))
    table = memory.table()
    for at in (1, 2):
        table.upsert(rows(at))
        table.services.compact(plan_only=True)
    asked: list[str] = []

    def faulty(storage: Any, spec: CompactionSpec, operation: Any) -> Any:
        asked.append(spec.requested)
        if spec.requested == asked[0]:
            raise MemoryError("as an executor reports it")
        return compact_slice(storage, spec, operation)

    with patch.object(table_compaction, "compact_slice", faulty):
        done = table_compaction.compact(table._opening.session())
    assert len(set(asked)) == 2, "both were tried"
    assert [result.instant for result in done.results] == [max(asked)]
    [error] = done.errors
    assert f"the compaction {min(asked)} ended unexpectedly: MemoryError" in str(error)
    assert table.read(columns=["id", "v"]).to_arrow().num_rows == 4
