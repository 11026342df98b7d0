"""Hudi's Spark writer and pyhudi write one table at the same time, and nobody loses a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from conformance.client import SERVE, TESTS, JudgeClient
from conformance.combinations import Combination, MergeMode, Partitioning, TableKind
from conformance.judge.s3 import HADOOP_JARS
from conformance.rivals import (
    DEEDS,
    Aftermath,
    Deed,
    Fray,
    HudiWriter,
    PyhudiWriter,
    Shared,
    Writer,
    shared_numbers,
    tasks,
)
from conformance.rows import assert_same_rows, encoded_rows
from conformance.scenes import combination
from conformance.writing import create_table
from processes.stores import Store, moto_store
from pyhudi.commit import validation

pytestmark = [pytest.mark.judge, pytest.mark.conformance]

BUCKETS = 1  # in each of four partitions
NON_BLOCKING = combination(TableKind.MOR, MergeMode.EVENT_TIME, Partitioning.TWO)
OPTIMISTIC = combination(TableKind.MOR, MergeMode.COMMIT_TIME, Partitioning.TWO)
COPY_ON_WRITE = combination(TableKind.COW, MergeMode.COMMIT_TIME, Partitioning.TWO)
COPY_BY_EVENT = combination(TableKind.COW, MergeMode.EVENT_TIME, Partitioning.TWO)
#: A fight in which nobody met goes on with a new round: how fast each engine begins is chance.
ROUNDS_MAX = 4
#: How long Hudi may take to begin a write where each of its requests is slow.
BEGUN_ON_S3_MS = 60_000
#: Hudi's own lock for object stores.
STORAGE_LOCK = {
    "hoodie.write.lock.provider": (
        "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider"
    ),
}


def fight(
    judge: JudgeClient,
    shared: Shared,
    *,
    hudi_writes: int,
    writes: int,
    seed: int = 0,
    given: Callable[[pa.Table], Any] = lambda rows: rows,
    deeds: Sequence[Deed] = DEEDS,
    hudi_options: Mapping[str, str] | None = None,
) -> Fray:
    """One writer of Hudi and two of pyhudi; whatever they are told must be true afterwards."""
    options = shared.storage_options
    create_table(
        shared.path,
        shared.combination,
        buckets=shared.buckets,
        lock="storage" if options else "file",
        storage_options=options,
    )
    fray = Fray(shared)
    first = fray.rows(shared_numbers(), attempt=0)
    shared.open().upsert(shared.sample.table(first))
    writers: list[tuple[Writer, int]] = [
        (HudiWriter(shared, judge, hudi_options or {}), hudi_writes),
        (PyhudiWriter(shared, given), writes),
        (PyhudiWriter(shared, conflict_retries=0), writes),
    ]
    work = [
        (writer, count, tasks(seed, number, ROUNDS_MAX * count, deeds))
        for number, (writer, count) in enumerate(writers)
    ]
    for _ in range(ROUNDS_MAX):
        fray.run({writer: islice(todo, count) for writer, count, todo in work})
        aftermath = Aftermath(shared, fray)
        aftermath.check()
        if aftermath.meetings() > 0:
            break
    else:
        pytest.fail("nobody met anybody, so nothing was shown")
    read = shared.open().read(meta=True).to_arrow()
    assert_same_rows(read, encoded_rows(aftermath.expected_rows(first)), meta=False)
    assert_same_rows(read, judge.hudi_rows(shared.path))
    assert_same_rows(read, judge.rs_rows(shared.path, options=options))
    return fray


def on_disk(tmp_path: Path, combination: Combination) -> Shared:
    return Shared(str(tmp_path / "table"), combination, BUCKETS)


def test_nobody_loses_a_row_where_writers_never_block(judge: JudgeClient, tmp_path: Path) -> None:
    fray = fight(judge, on_disk(tmp_path, NON_BLOCKING), hudi_writes=3, writes=4)
    assert fray.journal.lost_by(hudi=True) == fray.journal.lost_by(hudi=False) == 0


@pytest.mark.parametrize("combination", [OPTIMISTIC, COPY_ON_WRITE], ids=lambda one: one.kind)
def test_nobody_loses_a_row_where_the_first_to_commit_wins(
    judge: JudgeClient, tmp_path: Path, combination: Combination
) -> None:
    fight(judge, on_disk(tmp_path, combination), hudi_writes=2, writes=3)


# ---- longer fights


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 3))
@pytest.mark.parametrize(
    "combination",
    [NON_BLOCKING, OPTIMISTIC, COPY_ON_WRITE, COPY_BY_EVENT],
    ids=lambda one: f"{one.kind}-{one.merge}",
)
def test_nobody_loses_a_row_in_a_longer_fight(
    judge: JudgeClient, tmp_path: Path, combination: Combination, seed: int
) -> None:
    fight(judge, on_disk(tmp_path, combination), hudi_writes=10, writes=15, seed=seed)


@pytest.mark.long
@pytest.mark.parametrize("combination", [NON_BLOCKING, OPTIMISTIC], ids=lambda one: one.merge)
def test_nobody_loses_a_row_while_hudi_compacts_cleans_and_archives(
    judge: JudgeClient, tmp_path: Path, combination: Combination
) -> None:
    services = {
        "hoodie.clean.automatic": "true",
        "hoodie.clean.commits.retained": "3",
        "hoodie.archive.automatic": "true",
        "hoodie.keep.min.commits": "5",
        "hoodie.keep.max.commits": "7",
        "hoodie.compact.inline": "true",
        "hoodie.compact.inline.max.delta.commits": "2",
    }
    # A compaction keeps no trace of a deleted row, so an older one that is late comes back.
    deeds = (Deed.UPSERT, Deed.INSERT) if combination is NON_BLOCKING else DEEDS
    shared = on_disk(tmp_path, combination)
    fight(judge, shared, hudi_writes=6, writes=10, deeds=deeds, hudi_options=services)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("combination", [NON_BLOCKING, OPTIMISTIC], ids=lambda one: one.merge)
def test_nobody_loses_a_row_between_spark_and_hudi(
    judge: JudgeClient, spark: SparkSession, tmp_path: Path, combination: Combination
) -> None:
    shared = on_disk(tmp_path, combination)
    fight(judge, shared, hudi_writes=8, writes=8, given=spark.createDataFrame)


# ---- the same on S3


@pytest.fixture(scope="module")
def s3_judge(
    judge: JudgeClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[JudgeClient, Store]]:
    """A Hudi that knows S3, which the one for everything else need not, and a server for it."""
    folder = tmp_path_factory.mktemp("s3")
    command = ("env", f"JUDGE_MORE_JARS={HADOOP_JARS}", *SERVE)
    with moto_store(folder) as store, JudgeClient(command, TESTS, folder / "stderr.txt") as client:
        client.start()
        options = store.options or {}
        client.ask(
            "use-s3-server",
            endpoint=options["aws_endpoint"],
            key=options["aws_access_key_id"],
            secret=options["aws_secret_access_key"],
        )
        yield client, store


@pytest.mark.parametrize(
    ("combination", "hudi_writes", "writes"),
    [
        pytest.param(NON_BLOCKING, 2, 2, id="non-blocking"),
        pytest.param(OPTIMISTIC, 2, 2, id="optimistic", marks=pytest.mark.long),
        pytest.param(NON_BLOCKING, 5, 8, id="non-blocking, longer", marks=pytest.mark.long),
        pytest.param(OPTIMISTIC, 5, 8, id="optimistic, longer", marks=pytest.mark.long),
    ],
)
def test_nobody_loses_a_row_on_s3(
    s3_judge: tuple[JudgeClient, Store], combination: Combination, hudi_writes: int, writes: int
) -> None:
    judge, store = s3_judge
    path = store.uri(f"table_{combination.merge}_{writes}")
    shared = Shared(path, combination, BUCKETS, store.options, STORAGE_LOCK)
    with patch.object(validation, "LOOK_AROUND_MS", BEGUN_ON_S3_MS):
        fight(judge, shared, hudi_writes=hudi_writes, writes=writes)
