"""Resizes of tables that pyhudi and Hudi share: writers write twice beside a plan, either engine
makes it, either executes it, and all readers agree.

Which conflict strategy the table records decides what Hudi can do meanwhile. With the one that
prefers writers its writers complete beside a plan, and its executor loses to whatever was written.
With the simple one it is the other way round.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

import pyhudi
from conformance.client import JudgeClient, JudgeError
from conformance.resized import SCHEMA, Kind, OwnTable
from conformance.test_consistent_buckets import hudi_options
from conformance.test_services_midway import BESIDE_PYHUDI
from golden_tables import load_description, unpack
from pyhudi.format.timeline.resize_plan import DUAL_STRATEGY
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


def test_what_a_killed_dual_writer_of_hudi_leaves_is_rolled_back_and_nothing_else(
    judge: JudgeClient, tmp_path: Path
) -> None:
    """It loses to the pending plan, as Hudi's usual conflict strategy has it, and leaves all."""
    path = unpack("mor_consistent_hash_pending", tmp_path)
    description = load_description("mor_consistent_hash_pending")
    before = data_files(path)
    rows = [
        {"id": f"key0{n}", "ver": 50, "name": "lost", "amount": 1.0, "part": "x"}
        for n in (366, 367, 370, 375)
    ]
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


def data_files(path: Path) -> set[str]:
    return {p.name for p in path.iterdir() if ".log." in p.name and p.suffix != ".crc"}
