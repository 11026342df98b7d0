"""A job of a write that cannot complete is ended while its tasks run, and says why."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import pyhudi
from pyhudi.errors import ConflictError, InvalidRequestError
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.settings import EarlyDetection
from pyhudi.spark import shuffle
from pyhudi.spark import write as spark_write
from pyhudi.spark.write_task import WriteTask

pytestmark = [pytest.mark.spark, pytest.mark.spark35]

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.string())])
COLUMNS = "id string, day string, v string"
#: How long a task would take that is not ended, and how long after the conflict none may run.
TASK_S, ENDED_S = 120, 10
FIRST = "00000000"  # the file ids of the first bucket
EARLY = EarlyDetection(period_ms=300)


def rows(v: str, *ids: str) -> pa.Table:
    given = [{"id": id_, "day": f"d{int(id_[1:]) % 2}", "v": v} for id_ in ids]
    return pa.Table.from_pylist(given, SCHEMA)


KEYS = [f"k{n}" for n in range(40)]


@pytest.fixture
def table(tmp_path: Path) -> pyhudi.Table:
    made = pyhudi.create_table(
        tmp_path / "t",
        SCHEMA,
        record_key="id",
        partition_by="day",
        buckets=pyhudi.SimpleBuckets(4),
        table_type="cow",
    )
    made.upsert(rows("0", *KEYS))
    settings = pyhudi.WriteSettings(early_detection=EARLY, job="nightly")
    return pyhudi.open_table(tmp_path / "t", write_settings=settings)


@pytest.fixture
def first_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let a task take long after its file of a first bucket; the result waits for such a file."""
    note = tmp_path / "first"
    path = str(note)

    class SlowTask(WriteTask):
        def stats(self, batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat]:
            try:
                for stat in super().stats(batches):
                    yield stat
                    if (stat.file_id or "").startswith(FIRST):
                        Path(path).touch()
                        time.sleep(TASK_S)
            except InvalidRequestError:  # not before the other task is at work
                while not Path(path).exists():
                    time.sleep(0.05)
                raise

    monkeypatch.setattr(spark_write, "WriteTask", SlowTask)

    def wait() -> None:
        deadline = time.monotonic() + TASK_S / 2
        while not note.exists():
            assert time.monotonic() < deadline, "no task has written a file"
            time.sleep(0.05)

    return wait


def frame(spark: SparkSession, given: pa.Table) -> DataFrame:
    return spark.createDataFrame(given.to_pandas(), COLUMNS)


def left_of(table: pyhudi.Table, instant: str) -> list[str]:
    """What is left of a write, but for markers, which every rollback keeps for a while."""
    folder = Path(table.uri.removeprefix("file://"))
    found = (path.relative_to(folder).as_posix() for path in folder.rglob(f"*{instant}*"))
    kept = (".hoodie/.temp", ".hoodie/.pyhudi/conflicts")
    return sorted(path for path in found if not path.startswith(kept) and not path.endswith(".crc"))


def active_jobs(spark: SparkSession) -> list[Any]:
    return list(spark.sparkContext.statusTracker().getActiveJobsIds())


def test_a_job_whose_write_is_doomed_ends_in_seconds_and_names_the_rival(
    spark: SparkSession, table: pyhudi.Table, first_files: Callable[[], None]
) -> None:
    completed = []

    def meet() -> None:
        first_files()
        rival = pyhudi.open_table(table.uri, write_settings=pyhudi.WriteSettings(job="rival"))
        rival.upsert(rows("rival", *KEYS))
        completed.append(time.monotonic())

    thread = threading.Thread(target=meet)
    thread.start()
    with pytest.raises(ConflictError) as caught:
        table.upsert(frame(spark, rows("ours", *KEYS)))
    ended = time.monotonic()
    thread.join()
    assert ended - completed[0] < ENDED_S
    facts = caught.value.facts
    assert (facts["found"], facts["rule"]) == ("early", "same_file_group")
    assert (facts["ours"]["job"], facts["theirs"]["job"]) == ("nightly", "rival")
    assert "was cancelled" not in str(caught.value)
    assert active_jobs(spark) == []
    assert left_of(table, facts["ours"]["instant"]) == []
    assert set(table.read(columns=["v"]).to_arrow()["v"].to_pylist()) == {"rival"}
    assert table.inspect.conflicts()["found"].to_pylist() == ["early"]


def test_a_task_that_refuses_its_rows_ends_the_others_and_its_reason_is_raised(
    spark: SparkSession,
    table: pyhudi.Table,
    first_files: Callable[[], None],
    conf: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A task for each partition: that of d1 refuses its rows, while that of d0 is at work.
    conf("spark.sql.adaptive.coalescePartitions.enabled", "false")
    monkeypatch.setattr(shuffle, "TINY_BYTES", -1)
    monkeypatch.setattr(shuffle, "_together", lambda rows: rows.repartitionByRange(2, "day"))
    began = time.monotonic()
    with pytest.raises(InvalidRequestError, match="rows of partition 'd1' cannot be written"):
        table.overwrite(frame(spark, rows("ours", *KEYS)), partitions=["d0"])
    assert time.monotonic() - began < TASK_S / 2
    assert active_jobs(spark) == []
    assert set(table.read(columns=["v"]).to_arrow()["v"].to_pylist()) == {"0"}
