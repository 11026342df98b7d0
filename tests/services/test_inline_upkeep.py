"""Services that a writer runs after its commit, by the policy that the table records: when they
run, how much they do, who runs them, and what a failure costs."""

from __future__ import annotations

import threading
import warnings
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

import pyhudi
from counted_storage import CountedStorage
from memory_tables import MemoryTable
from opened_tables import table_on
from pyhudi.api.table import Table
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.table_config import TableType
from pyhudi.format.table.upkeep_record import REST_MS, UPKEEP_RECORD
from pyhudi.plan.upkeep import encode_upkeep, first_upkeep
from pyhudi.services import inline, maintenance
from pyhudi.services.compaction import run as compaction_run
from pyhudi.services.compaction.merge_slice import compact_slice
from pyhudi.services.inline import CLAIM, PAUSE_MS, UpkeepMemory

SCHEMA = pa.schema([("id", pa.string()), ("at", pa.int64()), ("v", pa.string())])
DEFAULT = pyhudi.Upkeep()
#: Nothing but a compaction, after every second write.
EAGER = pyhudi.Upkeep(
    compaction=pyhudi.CompactionPolicy(trigger_delta_commits=2),
    resize=None,
    clean=None,
    archive=None,
)
PATIENCE = 30.0
TEN_MINUTES_MS = 600_000


def made(upkeep: pyhudi.Upkeep | str | None = DEFAULT, **definition: Any) -> MemoryTable:
    """A table that records this policy, or this text."""
    text = encode_upkeep(upkeep) if isinstance(upkeep, pyhudi.Upkeep) else upkeep
    usual = {"ordering": "at", "buckets": SimpleBuckets(1), "upkeep": text}
    return MemoryTable(SCHEMA, **{**usual, **definition})


def rows(at: int, size: int = 1) -> pa.Table:
    ids, values = ["a", f"k{at % 50}"], [f"v{at}" * size] * 2
    return pa.table({"id": ids, "at": [at, at], "v": values}, schema=SCHEMA)


def compactions(table: Table) -> int:
    found: list[str] = table.inspect.timeline().column("began_as").to_pylist()
    return found.count("compaction")


def upserted(table: Table, *times: int, size: int = 1) -> None:
    for at in times:
        table.upsert(rows(at, size))


def data_files(memory: MemoryTable) -> int:
    paths = (stat.path for stat in memory.storage.list(""))
    return sum(not path.startswith(".hoodie/") for path in paths)


# ---- a table without any setting


@pytest.mark.parametrize(
    ("kind", "processes"), [(TableType.MERGE_ON_READ, 3), (TableType.COPY_ON_WRITE, 1)]
)
def test_a_table_that_only_writers_use_compacts_cleans_and_archives_itself(
    kind: TableType, processes: int
) -> None:
    memory = made(table_type=kind)
    writers = [memory.table(f"w{n}") for n in range(processes)]
    active, files = [], []
    for at in range(1, 301):
        writers[at % processes].upsert(rows(at))
        memory.clock.ms += TEN_MINUTES_MS
        active.append(sum("_" in name for name in memory.names()))
        files.append(data_files(memory))
    reader = memory.table("reader")
    if kind is TableType.MERGE_ON_READ:
        newest = reader.inspect.file_slices().to_pylist()[0]
        assert len(newest["log_files"]) <= 10
    a_day = 24 * 6
    assert max(active[200:]) <= 1.5 * a_day + 40, "24 hours are retained, and a little more"
    assert any("/history/" in stat.path for stat in memory.storage.list(".hoodie/timeline"))
    assert max(files[250:]) <= max(files[180:220]) + 10
    assert reader.read().to_arrow().num_rows == 51
    assert reader.services.verify()


def test_what_is_not_due_costs_no_request() -> None:
    """Beside the writes of a table that records no policy."""
    costs = []
    for upkeep in (None, DEFAULT):
        memory = made(upkeep)
        storage = CountedStorage(memory.storage)
        table = memory.table("counted", storage.as_storage())
        upserted(table, 1)
        with storage.counting() as requests:
            upserted(table, 2)
        costs.append(requests)
    assert costs[0] == costs[1]


def test_without_a_recorded_policy_no_service_follows_a_write() -> None:
    for upkeep in (None, "none"):
        memory = made(upkeep)
        table = memory.table()
        upserted(table, *range(1, 20))
        assert compactions(table) == 0


def test_on_a_long_timeline_a_commit_does_not_look_each_time_at_what_is_due() -> None:
    memory = UpkeepMemory()
    looks = [n for n in range(1, 2_000) if memory.may_look(n)]
    assert looks[:500] == list(range(1, 501)), "a short one is looked at after each commit"
    assert len([n for n in looks if n >= 1_500]) <= 500 / 3 + 1
    assert memory.may_look(20), "it was archived, or another process did something"


# ---- whose policy


def test_a_created_table_records_a_policy_unless_another_engine_shares_it() -> None:
    cases: list[tuple[Any, LockKind, pyhudi.Upkeep | None]] = [
        (None, LockKind.NONE, DEFAULT),
        (False, LockKind.NONE, None),
        (EAGER, LockKind.NONE, EAGER),
        (None, LockKind.FILE, None),
        (EAGER, LockKind.FILE, EAGER),
    ]
    for choice, lock, expected in cases:
        memory = made(first_upkeep(choice, lock))
        assert memory.table().upkeep == expected, (choice, lock)


def test_a_policy_that_is_altered_counts_from_the_next_write() -> None:
    memory = made()
    table, other = memory.table("a"), memory.table("b")
    table.alter.upkeep(EAGER)
    assert other.upkeep == EAGER
    upserted(other, 1, 2, 3)
    assert compactions(other) >= 1
    before = compactions(other)
    table.alter.upkeep(False)
    assert table.upkeep is None
    upserted(other, *range(4, 12))
    assert compactions(other) == before
    table.alter.upkeep()
    assert table.upkeep == DEFAULT


def test_a_handle_may_leave_services_to_other_processes() -> None:
    memory = made(EAGER)
    table = table_on(memory.storage, memory.world("a"), upkeep=False)
    upserted(table, *range(1, 8))
    assert compactions(table) == 0
    result = memory.table("service").services.run()  # by the recorded policy
    assert result.compaction is not None
    assert result.clean is None


def test_services_by_hand_follow_the_recorded_policy_too() -> None:
    clean = pyhudi.CleanPolicy.hours(24)
    memory = made(pyhudi.Upkeep(clean=clean), table_type=TableType.COPY_ON_WRITE)
    table = table_on(memory.storage, memory.world("a"), upkeep=False)
    upserted(table, *range(1, 20))
    planned = table.services.clean(dry_run=True)
    assert isinstance(planned, pyhudi.CleanPlan)
    assert (planned.policy, planned.count) == (clean, 0)
    by_commits = table.services.clean(pyhudi.CleanPolicy.commits(10), dry_run=True)
    assert isinstance(by_commits, pyhudi.CleanPlan)
    assert by_commits.count > 0, "which is what a clean without a recorded policy retains"
    assert not table.services.archive().did_anything


def test_services_run_by_the_recorded_policy_and_warn_of_another() -> None:
    memory = made(EAGER)
    table = table_on(memory.storage, memory.world("a"), upkeep=False)
    upserted(table, 1)
    other = pyhudi.Upkeep(compaction=pyhudi.CompactionPolicy(trigger_delta_commits=3), clean=None)
    with pytest.warns(pyhudi.UpkeepWarning, match="another policy of compaction"):
        table.services.run(other)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table.services.run(other)  # one warning is enough
        table.services.run(pyhudi.Upkeep(compaction=None))  # leaves it to another process
        table.services.run(EAGER)


def test_a_writer_with_another_policy_is_warned_and_follows_its_own() -> None:
    memory = made(EAGER)
    lazy = replace(EAGER, compaction=pyhudi.CompactionPolicy(trigger_delta_commits=50))
    table = table_on(memory.storage, memory.world("a"), upkeep=lazy)
    with pytest.warns(pyhudi.UpkeepWarning, match="another policy of compaction"):
        upserted(table, *range(1, 8))
    assert compactions(table) == 0


def test_a_damaged_record_stops_no_write_and_is_told() -> None:
    memory = made("{half")
    table = memory.table()
    with pytest.warns(pyhudi.UpkeepWarning, match=r"cannot be read.*table\.alter\.upkeep"):
        upserted(table, 1)
    [(name, error)] = table.services.run(keep_going=True).errors
    assert name == "open"
    assert isinstance(error, pyhudi.CorruptTableError)
    table.alter.upkeep(EAGER)
    upserted(table, 2, 3)
    assert compactions(table) >= 1


def test_what_a_later_release_recorded_is_left_to_it_and_the_rest_runs() -> None:
    text = encode_upkeep(EAGER).replace("{", '{"resize":{"target_bytes":1},', 1)
    memory = made(text)
    table = memory.table()
    with pytest.warns(pyhudi.UpkeepWarning, match="resize .* left to others"):
        upserted(table, 1, 2, 3)
    assert compactions(table) >= 1


# ---- bounded


def test_a_group_beyond_inline_bytes_is_left_to_a_service_and_said_once_when_overdue() -> None:
    memory = made(replace(EAGER, inline_bytes=5_000))
    table = memory.table()
    upserted(table, 1, 2, size=2_000)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for at in range(3, 40):
            upserted(table, at, size=2_000)
            memory.clock.ms += TEN_MINUTES_MS
    assert compactions(table) <= 1  # perhaps before the group was too large
    [warning] = seen
    assert warning.category is pyhudi.UpkeepWarning
    assert "overdue" in str(warning.message)
    assert "python -m pyhudi.service" in str(warning.message)
    result = table.services.run()
    assert result.compaction is not None
    assert len(result.compaction.results) == 1, "what is by hand is not bounded"


def test_one_compaction_after_a_commit_reads_no_more_than_inline_bytes() -> None:
    memory = made(replace(EAGER, inline_bytes=12_000), buckets=SimpleBuckets(16))
    wide = pa.table(
        {"id": [f"k{n}" for n in range(200)], "at": [1] * 200, "v": ["x" * 10] * 200}, SCHEMA
    )
    table_on(memory.storage, memory.world("a"), upkeep=False).upsert(wide)
    table = memory.table("writer")
    table.upsert(wide)
    assert compactions(table) == 1
    slices: list[dict[str, Any]] = table.inspect.file_slices().to_pylist()
    merged = [found["bytes"] for found in slices if not found["latest"]]
    assert 0 < sum(merged) <= 12_000
    assert sum(found["bytes"] for found in slices) > 50_000


def test_a_large_plan_of_another_process_is_left_to_it() -> None:
    memory = made(replace(EAGER, inline_bytes=100))
    table = memory.table()
    upserted(table, 1)
    planned = table.services.compact(plan_only=True).planned
    assert planned is not None
    for at in range(2, 12):
        upserted(table, at)
        memory.clock.ms += TEN_MINUTES_MS
    assert planned in [i["requested"] for i in pending(table)]


def test_a_small_plan_of_a_process_that_died_is_finished() -> None:
    memory = made(EAGER)
    table = memory.table()
    upserted(table, 1, 2)
    assert table.services.compact(plan_only=True).planned is not None
    memory.clock.ms += TEN_MINUTES_MS
    upserted(table, 3)
    assert not pending(table)


def pending(table: Table) -> list[dict[str, Any]]:
    instants: list[dict[str, Any]] = table.inspect.timeline().to_pylist()
    return [instant for instant in instants if instant["completed"] is None]


# ---- one process at a time


def test_while_one_process_runs_services_the_others_write_and_do_not_wait() -> None:
    memory = made(EAGER)
    begun, let_go = threading.Event(), threading.Event()

    def held(*arguments: Any) -> Any:
        begun.set()
        assert let_go.wait(PATIENCE)
        return compact_slice(*arguments)

    slow, other = memory.table("slow"), memory.table("other")
    upserted(slow, 1, 2)  # the first one is followed by a compaction
    with patch.object(compaction_run, "compact_slice", held):
        first = threading.Thread(target=upserted, args=(slow, 3))
        first.start()
        assert begun.wait(PATIENCE)
        second = threading.Thread(target=upserted, args=(other, 4, 5, 6, 7))
        second.start()
        second.join(PATIENCE)
        is_stuck = second.is_alive()
        let_go.set()
        first.join(PATIENCE)
        second.join(PATIENCE)
    assert not is_stuck
    assert compactions(slow) == 2, "the claim was taken"
    assert memory.storage.stat(CLAIM) is None
    memory.clock.ms += PAUSE_MS
    upserted(other, 8)
    assert compactions(other) == 3


def test_the_claim_of_a_process_that_died_is_taken_over() -> None:
    memory = made(EAGER)
    table = memory.table()
    memory.storage.write(CLAIM, b"of a dead process")
    upserted(table, 1, 2, 3)
    assert compactions(table) == 0
    memory.clock.ms += TEN_MINUTES_MS
    upserted(table, 4)
    assert compactions(table) == 1
    assert memory.storage.stat(CLAIM) is None


# ---- failures


def failing(*_: object, **__: object) -> None:
    raise pyhudi.UnavailableError("no compaction", why="it rains", next_step="Wait")


def test_a_service_that_fails_fails_no_write_and_rests_longer_each_time() -> None:
    memory = made(EAGER)
    table, tries = memory.table(), []
    with patch.object(maintenance, "compact", side_effect=failing) as calls:
        for at in range(1, 121):
            with warnings.catch_warnings(record=True):
                warnings.simplefilter("always")
                assert table.upsert(rows(at)).completed
            tries.append(calls.call_count)
            memory.clock.ms += 60_000
    assert tries[-1] <= 9, "an hour apart in the end"
    assert tries[10] >= 2
    [row] = [r for r in table.inspect.upkeep().to_pylist() if r["service"] == "compaction"]
    assert row["due"]
    assert "it rains" in row["error"]
    assert row["next_try"] > row["last_run"]
    memory.clock.ms += REST_MS
    upserted(table, 200)
    assert compactions(table) >= 1
    [row] = [r for r in table.inspect.upkeep().to_pylist() if r["service"] == "compaction"]
    assert row["error"] is None
    assert "merged into" in row["did"]


def test_a_warning_names_the_service_and_the_write_that_is_complete() -> None:
    memory = made(EAGER)
    table = memory.table()
    with (
        patch.object(maintenance, "compact", side_effect=failing),
        pytest.warns(pyhudi.UpkeepWarning, match="compaction failed after the write .* it rains"),
    ):
        upserted(table, 1, 2)
    assert table.read().to_arrow().num_rows == 3


def test_what_failed_in_one_process_rests_in_the_others_too() -> None:
    memory = made(EAGER)
    first, second = memory.table("first"), memory.table("second")
    with patch.object(maintenance, "compact", side_effect=failing) as calls:
        with pytest.warns(pyhudi.UpkeepWarning):
            upserted(first, 1, 2)
        upserted(second, 3, 4, 5)
        assert calls.call_count == 1
        first.alter.upkeep(replace(EAGER, inline_bytes=1 << 20))
        with pytest.warns(pyhudi.UpkeepWarning):
            upserted(second, 6)  # another policy may succeed
        assert calls.call_count == 2


def test_storage_that_fails_after_the_commit_is_a_warning() -> None:
    memory = made(EAGER)
    table = memory.table()
    with (
        patch.object(inline, "load_upkeep_record", side_effect=failing),
        pytest.warns(pyhudi.UpkeepWarning, match="upkeep failed after the write"),
    ):
        upserted(table, 1)
    assert compactions(table) == 0


def test_a_damaged_record_of_the_last_run_is_replaced_by_the_next() -> None:
    memory = made(EAGER)
    memory.storage.write(UPKEEP_RECORD, b'{"policy": 1')
    table = memory.table()
    upserted(table, 1, 2, 3)
    assert compactions(table) >= 1
    [row] = [r for r in table.inspect.upkeep().to_pylist() if r["service"] == "compaction"]
    assert row["did"] is not None


# ---- what is seen


def test_inspect_shows_policies_and_what_is_due() -> None:
    memory = made(replace(EAGER, archive=pyhudi.ArchivePolicy()))
    table = table_on(memory.storage, memory.world("a"), upkeep=False)
    upserted(table, 1, 2, 3)
    shown = {row["service"]: row for row in table.inspect.upkeep().to_pylist()}
    assert list(shown) == ["compaction", "resize", "clean", "archive"]
    assert shown["compaction"]["due"]
    assert "trigger_delta_commits=2" in shown["compaction"]["policy"]
    assert shown["clean"]["policy"] is None
    assert not shown["archive"]["due"]
    table.services.run()
    shown = {row["service"]: row for row in table.inspect.upkeep().to_pylist()}
    assert not shown["compaction"]["due"]
    assert "merged into" in shown["compaction"]["did"]
    assert shown["compaction"]["last_run"] is not None
