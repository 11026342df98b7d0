"""A Spark job yields to a write that is ahead of it: its tasks, or its driver, find the markers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import pyhudi
from many_writers.scene import HeldWrite, Stop
from pyhudi.commit.early_evidence import EVIDENCE_FOLDER
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.spark import write as spark_write
from pyhudi.spark.write_task import WriteTask
from spark.cluster import running_cluster
from spark.drivers.verbs import SCHEMA as ROW_SCHEMA
from spark.drivers.verbs import create, frame, row, rows_of

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.string())])
KEYS = [f"k{n}" for n in range(40)]
BUCKETS = 4
#: How long a task would take that is not ended, and within which time it is.
TASK_S, ENDED_S = 120, 30
ROWS = [row(number) for number in range(12)]


def rows(v: str) -> pa.Table:
    return pa.table({"id": KEYS, "v": [v] * len(KEYS)}, schema=SCHEMA)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = pyhudi.create_table(
        tmp_path / "t",
        SCHEMA,
        record_key="id",
        buckets=pyhudi.SimpleBuckets(BUCKETS),
        table_type="cow",
    )
    made.upsert(rows("0"))
    return tmp_path / "t"


def held(table: pyhudi.Table, given: pa.Table) -> HeldWrite:
    """A write that has all its files, and has not completed."""
    return HeldWrite(lambda: table.upsert(given)).run_to(Stop.WRITTEN)


def opened(path: Path, **early: Any) -> pyhudi.Table:
    settings = pyhudi.WriteSettings(early_detection=pyhudi.EarlyDetection(**early), job="ours")
    return pyhudi.open_table(path, write_settings=settings)


def given(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(rows("ours").to_pandas(), "id string, v string")


def files_of(path: Path, instant: str) -> list[str]:
    """What is left of a write, but for its markers, which stay after a rollback, and its note."""
    found = (each.relative_to(path).as_posix() for each in path.rglob(f"*{instant}*"))
    kept = (".hoodie/.temp", ".hoodie/.pyhudi/conflicts")
    left = [p for p in found if not p.startswith(kept) and not p.endswith(".crc")]
    evidence = path / EVIDENCE_FOLDER
    return left + [each.name for each in evidence.rglob("*") if each.is_file()]


@pytest.mark.spark35
@pytest.mark.parametrize("strategy", ["simple_direct", "transaction_direct", "bloom_direct"])
def test_tasks_yield_before_they_create_a_file(
    spark: SparkSession, path: Path, strategy: str
) -> None:
    rival = held(pyhudi.open_table(path), rows("theirs"))
    before = {each.name for each in path.glob("*.parquet")}
    with pytest.raises(pyhudi.EarlyConflictError) as caught:
        opened(path, strategy=strategy).upsert(given(spark))
    facts = caught.value.facts
    assert (facts["strategy"], facts["rule"]) == (strategy, "same_file_group")
    assert facts["theirs"]["instant"] == rival.requested
    assert {each.name for each in path.glob("*.parquet")} == before
    assert files_of(path, facts["ours"]["instant"]) == []
    rival.finish()
    opened(path, strategy=strategy).upsert(given(spark))
    assert set(pyhudi.open_table(path).read().to_arrow()["v"].to_pylist()) == {"ours"}


@pytest.mark.spark35
def test_the_driver_finds_the_markers_of_a_rival_while_tasks_run(
    spark: SparkSession, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SlowTask(WriteTask):
        def stats(self, batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat]:
            for stat in super().stats(batches):
                yield stat
                time.sleep(TASK_S)

    monkeypatch.setattr(spark_write, "WriteTask", SlowTask)
    rival = held(pyhudi.open_table(path), rows("theirs"))
    began = time.monotonic()
    with pytest.raises(pyhudi.EarlyConflictError) as caught:
        opened(path, strategy="async_server", period_ms=300).upsert(given(spark))
    assert time.monotonic() - began < ENDED_S
    facts = caught.value.facts
    assert (facts["found"], facts["strategy"]) == ("early", "async_server")
    assert facts["theirs"]["instant"] == rival.requested
    assert files_of(path, facts["ours"]["instant"]) == []
    rival.finish()


def table_of_rows(path: Path) -> pyhudi.Table:
    made = create(str(path), "cow")
    made.append(arrow_of_rows())
    return made


def arrow_of_rows() -> pa.Table:
    names = ROW_SCHEMA.names
    return pa.Table.from_pylist([dict(zip(names, r, strict=True)) for r in ROWS], ROW_SCHEMA)


def test_tasks_of_a_cluster_yield(tmp_path: Path) -> None:
    path = tmp_path / "table"
    rival = held(table_of_rows(path), arrow_of_rows())
    with running_cluster(tmp_path) as cluster, cluster.driver("driver", {}) as driver:
        answer = driver.ask(
            "write",
            table=str(path),
            verb="upsert",
            source=frame([row(number, 2, "b") for number in range(12)]),
            strategy="transaction_direct",
        )
    assert answer["error"] == "EarlyConflictError", answer
    assert answer["facts"]["theirs"]["instant"] == rival.requested
    assert files_of(path, answer["facts"]["ours"]["instant"]) == []
    rival.finish()
    assert rows_of(str(path)) == set(ROWS)


def test_tasks_behind_spark_connect_yield(tmp_path: Path) -> None:
    path = tmp_path / "table"
    rival = held(table_of_rows(path), arrow_of_rows())
    source = frame([row(number, 2, "b") for number in range(12)])
    script = Path(__file__).with_name("connect_write.py")
    asked = json.dumps([["upsert", source, {}]])
    command = [sys.executable, str(script), str(path), asked, "simple_direct"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    (told,) = (line for line in done.stdout.splitlines() if line.startswith("["))
    module, facts = json.loads(told)
    assert "connect" in module
    assert (facts["found"], facts["theirs"]["instant"]) == ("early", rival.requested)
    assert files_of(path, facts["ours"]["instant"]) == []
    rival.finish()
