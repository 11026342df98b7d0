"""Resizes of tables that pyhudi and Hudi share: writers write twice beside a plan, either engine
makes it, either executes it, and all readers agree.

Which conflict strategy the table records decides what Hudi can do meanwhile. With the one that
prefers writers its writers complete beside a plan, and its executor loses to whatever was written.
With the simple one it is the other way round.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

import pyhudi
from conformance.client import JudgeClient, JudgeError
from conformance.resized import SCHEMA, Kind, OwnTable
from conformance.rows import Row, assert_same_rows
from conformance.scenes import BEAT_MS, held_lock, until
from conformance.test_consistent_buckets import hudi_options
from conformance.test_services_midway import BESIDE_PYHUDI
from conformance.test_two_engines_midway import PREFER_WRITER
from golden_tables import load_description, unpack
from pyhudi.format.timeline.resize_plan import DUAL_STRATEGY, decode_resize_plan
from pyhudi.settings import FailedWrites

pytestmark = [
    pytest.mark.judge,
    pytest.mark.conformance,
    pytest.mark.filterwarnings("ignore:target_bytes"),
]

_CLUSTERING = "org.apache.hudi.client.clustering"
_CONFLICTS = "org.apache.hudi.client.transaction"
#: What a Hudi job needs that resizes, and that writes while a resize is pending.
RESIZING = {
    "hoodie.clustering.plan.strategy.class": (
        f"{_CLUSTERING}.plan.strategy.SparkConsistentBucketClusteringPlanStrategy"
    ),
    "hoodie.clustering.execution.strategy.class": DUAL_STRATEGY,
    "hoodie.clustering.updates.strategy": (
        f"{_CLUSTERING}.update.strategy.SparkConsistentBucketDuplicateUpdateStrategy"
    ),
    "hoodie.write.lock.client.wait_time_ms_between_retry": "100",
}
#: Buckets that Hudi takes for too large; every one that has a row.
SMALL = {
    "hoodie.parquet.max.file.size": "1024",
    "hoodie.bucket.index.split.threshold": "0.1",
}


@dataclass(frozen=True)
class SharedKind(Kind):
    """A table with Hudi's lock on local disk."""

    strategy: str = "bucket"  # then pyhudi chooses

    def create(self, path: Path, initial: int) -> pyhudi.Table:
        return pyhudi.create_table(
            path,
            SCHEMA,
            name="t",
            record_key="id",
            partition_by="day" if self.is_partitioned else (),
            ordering="ts",
            buckets=pyhudi.ConsistentBuckets(initial),
            concurrency="optimistic",
            lock="file",
            conflict_strategy=self.strategy,
        )


class SharedTable(OwnTable):
    """The table, and a Hudi job that takes its lock and its conflict strategy."""

    def __init__(self, judge: JudgeClient, path: Path, kind: SharedKind) -> None:
        super().__init__(judge, path, kind, initial=2)
        options = hudi_options("day" if kind.is_partitioned else "", 2)
        self.options = {**options, **RESIZING, **SMALL}
        self.job |= {key: value for key, value in self.options.items() if value}

    def hudi_writes(self, numbers: range) -> None:
        self.hudi_upsert(numbers, self.options)

    def hudi_clusters(self, op: str) -> None:
        options = ",".join(f"{key}={value}" for key, value in self.job.items())
        self._judge.hudi_call("clustering", self.path, op=op, options=options)

    def pyhudi_plans(self) -> None:
        policy = pyhudi.ResizePolicy(target_bytes=4096, split_above=1.0, rest_seconds=0)
        planned = self.open().services.resize(policy, plan_only=True)
        assert planned.planned is not None

    def pending(self) -> list[str]:
        names = [p.name for p in (self.path / ".hoodie/timeline").iterdir() if p.name[0] != "."]
        done = {name.partition("_")[0] for name in names if "_" in name}
        return sorted({n[:17] for n in names if ".clustering." in n} - done)


KINDS = [
    pytest.param(SharedKind(), id="by day"),
    pytest.param(SharedKind(is_partitioned=False), id="not partitioned"),
]
SIMPLE = [
    pytest.param(SharedKind(strategy="simple"), id="by day"),
    pytest.param(SharedKind(is_partitioned=False, strategy="simple"), id="not partitioned"),
]


def planned(table: SharedTable, plans: str) -> str:
    """Let one of the engines plan a resize of the table."""
    for _ in range(2):  # enough for pyhudi's smallest target
        table.upsert(range(30))
    if plans == "hudi":
        table.hudi_clusters("schedule")
    else:
        table.pyhudi_plans()
    [plan] = table.pending()
    return plan


def goes_on(table: SharedTable) -> None:
    """All readers agree, and both engines write and compact what the resize left."""
    assert table.pending() == []
    table.agree()
    table.agree_on_the_past()
    table.upsert(range(0, 60, 7))
    table.hudi_writes(range(0, 60, 5))
    table.delete([3, 4])
    table.open().services.compact()
    table.agree()
    table.hudi_writes(range(0, 60, 9))
    table.hudi_call("compaction", op="scheduleAndExecute")
    table.agree()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("plans", ["pyhudi", "hudi"])
def test_pyhudi_executes_a_plan_beside_which_both_engines_wrote(
    judge: JudgeClient, tmp_path: Path, kind: SharedKind, plans: str
) -> None:
    table = SharedTable(judge, tmp_path / "table", kind)
    plan = planned(table, plans)
    table.upsert(range(20, 40))
    table.hudi_writes(range(10, 50, 3))
    table.delete([1, 2, 21])
    table.agree()
    table.execute(plan)
    goes_on(table)


@pytest.mark.parametrize("kind", SIMPLE)
@pytest.mark.parametrize("plans", ["pyhudi", "hudi"])
def test_hudi_executes_a_plan_beside_which_pyhudi_wrote(
    judge: JudgeClient, tmp_path: Path, kind: SharedKind, plans: str
) -> None:
    table = SharedTable(judge, tmp_path / "table", kind)
    planned(table, plans)
    table.upsert(range(20, 40))
    table.delete([1, 2, 21])
    late = table.held(range(35, 45))
    table.agree()
    table.hudi_clusters("execute")
    assert late().moved
    goes_on(table)


def test_pyhudi_cancels_a_plan_beside_which_both_engines_wrote(
    judge: JudgeClient, tmp_path: Path
) -> None:
    table = SharedTable(judge, tmp_path / "table", SharedKind())
    plan = planned(table, "hudi")
    table.upsert(range(20, 40))
    table.hudi_writes(range(10, 50, 3))
    table.open().services.cancel_resize(plan)
    assert table.files_of(plan) == []
    goes_on(table)


def test_what_a_dual_writer_of_hudi_that_lost_leaves_is_rolled_back_and_nothing_else(
    judge: JudgeClient, tmp_path: Path
) -> None:
    """It loses to the pending plan, as Hudi's usual conflict strategy has it, and leaves all."""
    path = unpack("mor_consistent_hash_pending", tmp_path)
    description = load_description("mor_consistent_hash_pending")
    before = data_files(path)
    rows = golden_rows("lost", 366, 367, 370, 375)
    usual = "SimpleConcurrentFileWritesConflictResolutionStrategy"
    options = {
        **description["options"],
        **BESIDE_PYHUDI,
        "hoodie.write.lock.conflict.resolution.strategy": f"{_CONFLICTS}.{usual}",
    }
    with pytest.raises(JudgeError, match="Cannot resolve conflicts"):
        judge.hudi_write(path, rows, description["schema"], options)
    left = data_files(path) - before
    assert len(left) == 5, "two in the inputs, three in the children"
    eager = pyhudi.WriteSettings(failed_writes=FailedWrites.EAGER)
    pyhudi.open_table(path, lock="file", write_settings=eager).services.run()
    assert data_files(path) == before


@pytest.mark.long  # the judge starts again behind it
def test_what_a_dual_writer_of_hudi_leaves_that_was_killed_midway_is_rolled_back_and_nothing_else(
    judge: JudgeClient, tmp_path: Path
) -> None:
    path = unpack("mor_consistent_hash_pending", tmp_path)
    description = load_description("mor_consistent_hash_pending")
    schema = description["schema"]
    options = {**description["options"], **BESIDE_PYHUDI, **PREFER_WRITER}
    children = new_buckets(path)
    before = data_files(path)
    beside = pa.Table.from_pylist(golden_rows("ours", 366, 368, 375))
    open_beside(path).upsert(beside)  # it writes twice, into the same buckets
    kept = data_files(path)
    assert {group_of(name) in children for name in kept - before} == {True, False}
    lost = golden_rows("lost", 366, 367, 370, 375)
    killed = killed_hudi_write(judge, path, lost, schema, options)
    left = data_files(path) - kept

    open_beside(path).upsert(beside)
    whole = data_files(path)
    assert kept | left < whole, "its heartbeat is young"
    grown_old(path, killed)
    table = open_beside(path)
    table.services.run()
    assert data_files(path) == whole - left
    names = {row["name"] for row in table.read().to_arrow().to_pylist()}
    assert "ours" in names
    assert "lost" not in names
    assert_same_rows(table.read(meta=True).to_arrow(), judge.hudi_rows(path))

    judge.hudi_write(path, golden_rows("again", 367, 370), schema, options)
    table.services.resize()
    assert_same_rows(table.read(meta=True).to_arrow(), judge.hudi_rows(path))
    assert_same_rows(table.read(meta=True).to_arrow(), judge.rs_rows(path))


def golden_rows(name: str, *numbers: int) -> list[Row]:
    ids = (f"key0{number}" for number in numbers)
    return [{"id": id_, "ver": 50, "name": name, "amount": 1.0, "part": "x"} for id_ in ids]


def open_beside(path: Path) -> pyhudi.Table:
    settings = pyhudi.WriteSettings(heartbeat_interval_ms=BEAT_MS, heartbeat_misses=2)
    return pyhudi.open_table(path, lock="file", write_settings=settings, upkeep=False)


def killed_hudi_write(
    judge: JudgeClient, path: Path, rows: list[Row], schema: str, options: dict[str, str]
) -> str:
    """Let Hudi write, kill it when it has files in old and new buckets, and return its instant."""
    known, files, children = inflight_writes(path), data_files(path), new_buckets(path)

    def has_both() -> bool:
        written = data_files(path) - files
        return {group_of(name) in children for name in written} == {True, False}

    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(judge.hudi_write, path, rows, schema, options)
        until(lambda: inflight_writes(path) - known, "Hudi has begun")
        [killed] = inflight_writes(path) - known
        with held_lock(path):  # so that it does not complete
            until(has_both, "Hudi has written into old buckets and new ones")
            judge.kill()
        with pytest.raises(JudgeError, match="the process ended"):
            written.result()
    return killed


def inflight_writes(path: Path) -> set[str]:
    found = (path / ".hoodie" / "timeline").glob("*.deltacommit.inflight")
    return {each.name.partition(".")[0] for each in found}


def grown_old(path: Path, requested: str) -> None:
    """Let its signs be old enough for those who have no patience."""
    then = time.time() - 3 * BEAT_MS / 1000
    signs = (path / ".hoodie" / "timeline").glob(f"{requested}.*")
    for sign in (path / ".hoodie" / ".heartbeat" / requested, *signs):
        os.utime(sign, (then, then))


def new_buckets(path: Path) -> set[str]:
    """The file ids of the buckets that the pending resize makes."""
    [found] = (path / ".hoodie" / "timeline").glob("*.clustering.requested")
    plan = decode_resize_plan(found.read_bytes(), found.name)
    assert plan is not None
    return {group.file_id for group in plan.made}


def group_of(name: str) -> str:
    return name.lstrip(".").partition("_")[0]


def data_files(path: Path) -> set[str]:
    return {p.name for p in path.iterdir() if ".log." in p.name and p.suffix != ".crc"}
