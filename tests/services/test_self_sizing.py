"""A table that is created without a number of buckets, and that only writers use: it splits,
merges, compacts and cleans itself."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import pyhudi
from counted_storage import CountedStorage
from memory_tables import MemoryTable
from opened_tables import table_on
from pyhudi.api.table import Table
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.bucket_config import ConsistentBuckets, SimpleBuckets
from pyhudi.format.table.upkeep_record import UPKEEP_RECORD
from pyhudi.plan.upkeep import encode_upkeep
from pyhudi.services import inline, maintenance

SCHEMA = pa.schema([("id", pa.string()), ("at", pa.int64()), ("v", pa.string())])
TARGET = 1 << 20
#: The usual policy, but for the target, and without a rest: the rows come within seconds.
SIZING = pyhudi.Upkeep(
    resize=pyhudi.ResizePolicy(target_bytes=TARGET, rest_seconds=0),
    clean=pyhudi.CleanPolicy.hours(1),
)
BATCH, BATCHES = 2_000, 40
TEN_MINUTES_MS = 600_000
SMALL = 32_768
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # buckets this small are for tests only
    ONLY_RESIZE = pyhudi.Upkeep(
        compaction=None,
        resize=pyhudi.ResizePolicy(target_bytes=SMALL, rest_seconds=0),
        clean=None,
        archive=None,
    )


def made(upkeep: pyhudi.Upkeep = SIZING, **definition: Any) -> MemoryTable:
    usual = {"ordering": "at", "buckets": ConsistentBuckets(), "upkeep": encode_upkeep(upkeep)}
    return MemoryTable(SCHEMA, **{**usual, **definition})


def batch(number: int, size: int = BATCH) -> pa.Table:
    """Rows of which half are new; none of their values can be compressed much."""
    ids = np.arange(number * size // 2, number * size // 2 + size)
    bits = np.random.default_rng(number).bytes(size * 128).hex()
    values = [bits[n * 256 : n * 256 + 256] for n in range(size)]
    return pa.table({"id": ids.astype(str), "at": [number] * size, "v": values}, schema=SCHEMA)


def sizes(table: Table) -> list[int]:
    found: list[int] = table.inspect.buckets(rows=False).column("bytes").to_pylist()
    return found


def services(table: Table) -> dict[str, int]:
    began: list[str] = table.inspect.timeline().column("began_as").to_pylist()
    return {name: began.count(name) for name in ("compaction", "clustering", "clean")}


def test_a_table_without_any_number_of_buckets_sizes_itself() -> None:
    """Two processes write in turns, each maintains the table after its commits, and none else."""
    memory = made()
    writers = [memory.table(f"w{n}") for n in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(BATCHES):
            writers[number % 2].upsert(batch(number))
            memory.clock.ms += TEN_MINUTES_MS // 2
    reader = memory.table("reader")
    assert max(sizes(reader)) <= 2 * TARGET
    assert len(sizes(reader)) > 2
    did = services(reader)
    assert min(did.values()) >= 1, did
    newest = [found for found in reader.inspect.file_slices().to_pylist() if found["latest"]]
    assert max(len(found["log_files"]) for found in newest) <= 10
    assert content(reader) == {
        id_: number for number in range(BATCHES) for id_ in batch(number)["id"].to_pylist()
    }
    assert reader.services.verify()
    # The old buckets' files are removed as well, once no retained state needs them.
    paths = [stat.path for stat in memory.storage.list("") if not stat.path.startswith(".hoodie/")]
    assert len([path for path in paths if path.endswith(".parquet")]) <= 5 * len(newest)


def content(table: Table) -> dict[str, int]:
    found = table.read(columns=["id", "at"]).to_arrow()
    assert found.num_rows == len(set(found["id"].to_pylist()))
    return dict(zip(*(found[name].to_pylist() for name in ("id", "at")), strict=True))


# ---- when a resize follows a commit


def test_a_writer_knows_by_itself_which_bucket_it_made_too_large() -> None:
    """Nothing else is due, so it neither asks nor waits for a compaction."""
    memory = made(ONLY_RESIZE, buckets=ConsistentBuckets(initial=1))
    table = memory.table()
    seen = []
    for number in range(5):
        table.upsert(batch(number, 8))
        seen.append(memory.storage.stat(UPKEEP_RECORD) is not None)
    assert seen == [False] * 5
    table.upsert(batch(6, 400))
    assert services(table)["clustering"] == 1
    assert len(sizes(table)) > 1
    assert max(sizes(table)) <= 2 * SMALL


def test_that_no_bucket_is_too_large_costs_no_request() -> None:
    costs = []
    for upkeep in (replace(ONLY_RESIZE, resize=None), ONLY_RESIZE):
        memory = made(upkeep, buckets=ConsistentBuckets(initial=1))
        storage = CountedStorage(memory.storage)
        table = memory.table("counted", storage.as_storage())
        table.upsert(batch(1, 8))
        with storage.counting() as requests:
            table.upsert(batch(2, 8))
        costs.append(requests)
    assert costs[0] == costs[1]


def test_what_other_processes_added_is_found_with_a_compaction() -> None:
    compacting = pyhudi.CompactionPolicy(trigger_delta_commits=8)
    memory = made(replace(ONLY_RESIZE, compaction=compacting), buckets=ConsistentBuckets(initial=1))
    for number in range(12):  # each in a process of its own, which knows of 1/8 of the limit
        memory.table(f"w{number}").upsert(batch(number, 160))
    table = memory.table("r")
    assert services(table)["compaction"] >= 1
    assert services(table)["clustering"] == 1
    assert len(sizes(table)) > 1


def test_one_resize_after_a_commit_reads_no_more_than_inline_bytes() -> None:
    memory = made(replace(ONLY_RESIZE, inline_bytes=10_000), buckets=ConsistentBuckets(initial=1))
    table = memory.table()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for number in range(4):
            table.upsert(batch(number, 1_000))
            memory.clock.ms += TEN_MINUTES_MS
    assert services(table)["clustering"] == 0
    [warning] = seen
    assert warning.category is pyhudi.UpkeepWarning
    assert "a resize of the table" in str(warning.message)
    assert "overdue" in str(warning.message)
    result = table.services.run()
    assert result.resize is not None
    assert len(result.resize.results) == 1, "what is by hand is not bounded"
    assert result.did_anything


def test_a_large_plan_of_another_process_is_left_to_it_and_a_small_one_is_finished() -> None:
    for bound, left in ((0, True), (64 << 20, False)):
        memory = made(
            replace(ONLY_RESIZE, inline_bytes=bound), buckets=ConsistentBuckets(initial=1)
        )
        by_hand = table_on(memory.storage, memory.world("b"), upkeep=False)
        by_hand.upsert(batch(1, 9_000))
        [planned] = by_hand.services.resize(plan_only=True).pending
        memory.clock.ms += TEN_MINUTES_MS
        memory.table().upsert(batch(2, 8))
        pending = by_hand.inspect.timeline().filter(pc.field("completed").is_null())
        assert (planned in pending["requested"].to_pylist()) == left


def test_a_plan_that_writers_leave_to_others_is_not_looked_at_after_each_commit() -> None:
    memory = made(replace(ONLY_RESIZE, inline_bytes=0), buckets=ConsistentBuckets(initial=8))
    by_hand = table_on(memory.storage, memory.world("b"), upkeep=False)
    by_hand.upsert(batch(1, 100))
    [planned] = by_hand.services.resize(plan_only=True).pending  # a merge
    memory.clock.ms += TEN_MINUTES_MS
    table = memory.table()
    with patch.object(inline, "run_services", wraps=maintenance.run_services) as run:
        for number in range(10):
            table.upsert(batch(number, 8))
    assert run.call_count <= 1
    assert planned


def test_a_bucket_that_cannot_be_split_is_not_tried_after_each_commit() -> None:
    memory = made(ONLY_RESIZE, buckets=ConsistentBuckets(initial=1, max=1))
    table = memory.table()
    with patch.object(inline, "run_services", wraps=maintenance.run_services) as run:
        for number in range(10):
            table.upsert(batch(number, 1_000))
    assert run.call_count == 1, "it rests"
    row = next(r for r in table.inspect.upkeep().to_pylist() if r["service"] == "resize")
    assert row["due"]
    assert row["next_try"] is not None


def test_what_cannot_be_resized_by_pyhudi_is_left_alone() -> None:
    """Simple buckets, and tables that a Hudi writer shares."""
    tables = [
        made(ONLY_RESIZE, buckets=SimpleBuckets(1)),
        made(ONLY_RESIZE, buckets=ConsistentBuckets(initial=1), lock=LockKind.FILE),
    ]
    for memory in tables:
        table = memory.table()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for number in range(3):
                table.upsert(batch(number, 1_000))
            result = table.services.run()
        assert result.resize is None
        assert services(table)["clustering"] == 0
        rows = {row["service"]: row for row in table.inspect.upkeep().to_pylist()}
        assert not rows["resize"]["due"]


def test_a_dry_run_shows_the_resize_and_a_handle_may_leave_it_to_others() -> None:
    memory = made(ONLY_RESIZE, buckets=ConsistentBuckets(initial=1))
    table = table_on(memory.storage, memory.world("a"), upkeep=False)
    table.upsert(batch(1, 2_000))
    assert services(table)["clustering"] == 0
    assert "split into" in str(table.services.run(dry_run=True))
    assert services(table)["clustering"] == 0
    with pytest.warns(pyhudi.UpkeepWarning, match="another policy of resize"):
        table.services.run(replace(ONLY_RESIZE, resize=pyhudi.ResizePolicy()))
    assert services(table)["clustering"] == 0, "by that policy the bucket is small"
    table.services.resize()
    assert services(table)["clustering"] == 1, "without a policy it is the recorded one"
