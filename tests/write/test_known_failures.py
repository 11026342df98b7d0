"""Failures that Hudi's users have met, each as a test that pyhudi does not repeat it.

The id is that of the report in Hudi's tracker. Those about cleaning, compaction, hashing metadata
and early conflict detection come with these features.
"""

from __future__ import annotations

from datetime import UTC

import pyarrow as pa
import pytest

import pyhudi
from faulty_storage import FaultyStorage
from memory_tables import TIMELINE, MemoryTable
from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.rollback import FailedWriteRecovery
from pyhudi.commit.transaction import Transaction
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.table.table_config import TableType
from pyhudi.format.timeline.commit_metadata import CommitMetadata
from pyhudi.format.timeline.instant import Action
from pyhudi.settings import WriteSettings
from pyhudi.simulate import Simulation, explore
from pyhudi.storage.protocol import Storage
from pyhudi.world import World

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("by", pa.string())])
SETTINGS = WriteSettings()
DONE = CommitMetadata(extra_metadata={"schema": "{}"})


def rows(by: str, *ids: str, ts: int = 1) -> pa.Table:
    return pa.table({"id": list(ids), "ts": [ts] * len(ids), "by": [by] * len(ids)}, schema=SCHEMA)


class Bench(MemoryTable):
    """A table in memory, and processes that write it."""

    def __init__(self, table_type: TableType = TableType.MERGE_ON_READ) -> None:
        super().__init__(SCHEMA, ordering="ts", buckets=SimpleBuckets(1), table_type=table_type)

    def process(self, label: str) -> tuple[DecisionLog, FailedWriteRecovery]:
        return process(self.storage, self.world(label))

    def rollbacks(self) -> list[str]:
        return [name for name in self.names() if name.endswith(".rollback")]


def process(storage: Storage, world: World) -> tuple[DecisionLog, FailedWriteRecovery]:
    log = DecisionLog(storage, world, SETTINGS, timeline_folder=TIMELINE, zone=UTC)
    return log, FailedWriteRecovery(log, SETTINGS)


def begun(log: DecisionLog, recovery: FailedWriteRecovery) -> Transaction:
    return Transaction.begin(log, SETTINGS, Action.DELTACOMMIT, recovery)


def test_hudi_5675_a_write_that_completes_while_its_heartbeat_is_judged_is_not_rolled_back() -> (
    None
):
    """All interleavings of a recovery with the end of the write that it takes for dead."""
    outcomes = set()

    def scenario(simulation: Simulation) -> None:
        writer, judge = simulation.process("writer"), simulation.process("judge")
        log, recovery = process(writer.storage, writer.world)
        transactions: list[Transaction] = []
        writer.start(lambda: transactions.append(begun(log, recovery)))
        simulation.run()
        [transaction] = transactions
        transaction._heartbeat.stop()
        writer.pass_time(SETTINGS.heartbeat_timeout_ms + 60_000)
        other_log, other_recovery = process(judge.storage, judge.world)
        ended = writer.start(lambda: transaction.complete(DONE).or_raise())
        judge.start(lambda: (other_log.refresh(), other_recovery.recover()))
        simulation.run()
        names = [s.path for s in simulation.storage.list(TIMELINE)]
        completed = [n for n in names if n.endswith(".deltacommit")]
        undone = [n for n in names if n.endswith(".rollback")]
        assert len(completed) + len(undone) == 1, names
        assert bool(completed) == (ended.error is None)
        outcomes.add(bool(completed))

    explored = explore(scenario, executions_max=400)
    assert explored.executions > 20
    assert outcomes == {True, False}, "both of them can be first"


def test_hudi_2641_the_rollback_of_one_write_leaves_the_heartbeats_of_others() -> None:
    bench = Bench()
    processes = [bench.process(name) for name in "abcde"]
    transactions = [begun(*each) for each in processes]
    dead, *alive = transactions
    bench.clock.sleep(SETTINGS.heartbeat_timeout_ms + 1)
    for transaction in alive:
        bench.storage.write(f".hoodie/.heartbeat/{transaction.requested}", b"")
    log, recovery = bench.process("f")
    log.refresh()
    assert recovery.recover() == (dead.requested,)
    beats = {s.path.rpartition("/")[2] for s in bench.storage.list(".hoodie/.heartbeat")}
    assert beats == {transaction.requested for transaction in alive}
    for transaction in alive:
        transaction.complete(DONE).or_raise()
    assert len(bench.rollbacks()) == 1


def test_pr_18448_a_failed_write_is_rolled_back_by_one_of_those_who_notice() -> None:
    bench = Bench()
    begun(*bench.process("dead"))
    bench.clock.sleep(SETTINGS.heartbeat_timeout_ms + 1)
    noticed = [bench.process(name) for name in "abcde"]
    for log, _ in noticed:
        log.refresh()  # all of them see it pending
    aborted = [recovery.recover() for _, recovery in noticed]
    assert sum(map(len, aborted)) == 1
    assert len(bench.rollbacks()) == 1


def test_hudi_5176_a_consumer_sees_a_write_that_began_first_and_completed_last() -> None:
    bench = Bench()
    early, late = bench.table("early"), bench.table("late")
    early.upsert(rows("before", "k0"))
    consumer = bench.table("consumer")
    start = consumer.changes().until

    class Meddled(FaultyStorage):
        """The other writer begins and completes while the first one writes its file."""

        feed: list[str] = []  # noqa: RUF012

        def create(self, path: str, data: bytes) -> bool:
            if ".log.1_" in path and not path.startswith(".hoodie") and not self.feed:
                self.feed.append("")
                late.upsert(rows("late", "k2"))
                seen = consumer.changes(since=start)
                self.feed[:] = [seen.until, *seen.to_arrow()["by"].to_pylist()]
            return super().create(path, data)

    storage = Meddled(bench.storage)
    bench.table("early", storage).upsert(rows("early", "k1"))
    until, *first = storage.feed
    assert first == ["late"]
    assert consumer.changes(since=until).to_arrow()["by"].to_pylist() == ["early"]


def test_hudi_5831_one_file_id_in_two_partitions_is_no_conflict() -> None:
    schema = pa.schema([*SCHEMA, ("day", pa.string())])
    table = pyhudi.create_table(
        "memory://hudi5831",
        schema,
        record_key="id",
        partition_by="day",
        table_type="cow",
        buckets=SimpleBuckets(1),
    )
    monday, tuesday = (rows("x", "k").append_column("day", pa.array([d])) for d in ("mo", "tu"))
    table.upsert(monday)
    other = pyhudi.open_table("memory://hudi5831", write_settings=WriteSettings(conflict_retries=0))
    storage = other._opening.storage
    original = storage.create_from
    met: list[str] = []

    def meddled(path: str, chunks: object) -> int | None:
        if not met:
            met.append(path)
            table.upsert(monday)
        return original(path, chunks)  # type: ignore[arg-type]

    storage.create_from = meddled  # type: ignore[method-assign]
    try:
        assert other.upsert(tuesday).retries == 0
    finally:
        storage.create_from = original  # type: ignore[method-assign]
    ids = {path.rpartition("/")[2].partition("_")[0] for path in _bases(storage)}
    assert len(ids) == 1, "both partitions have a file group of that id"


def _bases(storage: Storage) -> list[str]:
    return [s.path for s in storage.list("") if s.path.endswith(".parquet")]


@pytest.mark.parametrize("table_type", list(TableType))
def test_rfc_56_two_first_inserts_of_one_key_leave_one_row(table_type: TableType) -> None:
    bench = Bench(table_type)
    other = bench.table("other")

    class Meddled(FaultyStorage):
        met = False

        def _meddle(self, path: str) -> None:
            if not self.met and not path.startswith(".hoodie") and "." in path[1:]:
                self.met = True
                other.append(rows("other", "k", ts=1))

        def create(self, path: str, data: bytes) -> bool:
            self._meddle(path)
            return super().create(path, data)

        def create_from(self, path: str, chunks: object) -> int | None:
            self._meddle(path)
            return super().create_from(path, chunks)  # type: ignore[arg-type]

    bench.table("first", Meddled(bench.storage)).append(rows("first", "k", ts=2))
    assert bench.table("reader").read().to_arrow()["by"].to_pylist() == ["first"]
