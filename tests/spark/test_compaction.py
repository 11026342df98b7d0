"""Compaction as a Spark job: the same files and the same result as without Spark."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import pyhudi
from opened_tables import session_on
from pyhudi.errors import CorruptTableError
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.timeline.commit_metadata import decode_commit_metadata
from pyhudi.format.timeline.plan_files import CompactionOperation
from pyhudi.services.compaction.run import compact, compactions
from pyhudi.session.session import TableSession
from pyhudi.spark.compact import SparkMerge, balanced, operation_bytes
from pyhudi.storage.open import open_storage
from pyhudi.world import real_world

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [pa.field("id", pa.string(), nullable=False), ("day", pa.string()), ("ts", pa.int64())]
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A table with logs in six file groups, and a delete."""
    table = pyhudi.create_table(
        str(tmp_path / "table"),
        schema=SCHEMA,
        record_key="id",
        partition_by="day",
        ordering="ts",
        buckets=SimpleBuckets(3),
        upkeep=False,
    )
    for ts in range(3):
        rows = [{"id": f"k{n}", "day": f"d{n % 2}", "ts": ts + n % 5} for n in range(40)]
        table.upsert(pa.Table.from_pylist(rows, SCHEMA))
    table.delete(pa.table({"id": ["k7"], "day": ["d1"]}))
    return tmp_path / "table"


def session(path: Path) -> TableSession:
    return session_on(open_storage(str(path), None), real_world())


def rows_of(path: Path) -> list[dict[str, object]]:
    table = pyhudi.open_table(str(path)).read(columns=SCHEMA.names).to_arrow()
    return sorted(table.to_pylist(), key=lambda row: str(row["id"]))


def test_spark_compacts_as_the_local_engine_does(path: Path, spark: SparkSession) -> None:
    before, same = rows_of(path), path.parent / "same"
    shutil.copytree(path, same)
    stats = []
    for folder in (path, same):
        mine = session(folder)
        planned = compactions(mine).schedule()
        assert planned is not None
        merge = SparkMerge(mine, spark) if folder == path else None
        result = compactions(mine, merge).execute(planned)
        assert result is not None
        assert (result.file_groups, result.is_ours) == (6, True)
        assert rows_of(folder) == before
        [done] = (folder / ".hoodie" / "timeline").glob(f"{planned}_*.commit")
        metadata = decode_commit_metadata(done.read_bytes(), done.name)
        found = [stat for part in metadata.write_stats.values() for stat in part]
        found.sort(key=lambda stat: (stat.partition_path or "", stat.file_id or ""))
        stats.append([(s.num_writes, s.num_deletes, s.total_log_records) for s in found])
        assert not list((folder / ".hoodie" / ".pyhudi").glob("closed/*"))
    assert stats[0] == stats[1]


def test_what_spark_left_half_done_is_finished_without_it(path: Path, spark: SparkSession) -> None:
    """A file that cannot be read stops the job; the others are made, and found there later."""
    before = rows_of(path)
    log = max(path.glob("d0/.*.log.*"))
    data = log.read_bytes()
    assert b"PAR1" in data
    log.write_bytes(data.replace(b"PAR1", b"PARX"))
    mine = session(path)
    with pytest.raises(CorruptTableError):
        compact(mine, merge=SparkMerge(mine, spark)).or_raise()
    assert not list((path / ".hoodie" / ".pyhudi").glob("closed/*"))
    log.write_bytes(data)
    [result] = compact(session(path)).results
    assert result.file_groups == 6
    assert rows_of(path) == before


@pytest.mark.parametrize("left", [None, 0, -20], ids=["gone", "empty", "cut"])
def test_spark_neither_reads_nor_compacts_over_a_lost_log(
    path: Path, spark: SparkSession, left: int | None
) -> None:
    """A plan that was made before, so that its tasks meet the file; and a scan that was made."""
    table = pyhudi.open_table(str(path), progress=False)
    assert table.services.compact(plan_only=True).pending
    scan = table.read(columns=["id"])
    log = sorted(path.rglob(".*.log.*"))[-1]
    data = log.read_bytes()
    log.unlink() if left is None else log.write_bytes(data[:left])
    with pytest.raises(CorruptTableError, match=re.escape(log.name)):
        pyhudi.open_table(str(path), progress=False).services.compact(spark=spark)
    assert not list((path / ".hoodie" / "timeline").glob("*_*.commit"))
    with pytest.raises(PySparkException, match=re.escape(log.name)):
        scan.to_spark(spark).collect()


def operation(name: str, size: int) -> CompactionOperation:
    return CompactionOperation(None, (), None, name, "", {"TOTAL_LOG_FILES_SIZE": float(size)})


@pytest.mark.parametrize("size", [float("nan"), float("inf"), float("-inf"), -5.0])
def test_what_is_no_size_weighs_nothing(size: float) -> None:
    """Whoever made the plan wrote its metrics down."""
    names = ("TOTAL_LOG_FILES_SIZE", "TOTAL_IO_MB")
    odd = [CompactionOperation(None, (), None, name, "", {name: size}) for name in names]
    given = [*odd, operation("sound", 7)]
    assert [operation_bytes(o) for o in given] == [0, 0, 7]
    assert balanced(given, 3)[0] == (given[2],)


def test_large_operations_come_first_and_shares_are_of_a_size() -> None:
    sizes = [5, 1, 9, 2, 2, 7, 0, 4]
    given = [operation(str(n), size * 1_000) for n, size in enumerate(sizes)]
    alone = balanced(given, 100)
    assert [len(share) for share in alone] == [1] * len(sizes)
    assert operation_bytes(alone[0][0]) == 9_000
    shared = balanced(given, 3)
    totals = [sum(map(operation_bytes, share)) for share in shared]
    assert max(totals) - min(totals) <= 2_000
    assert {o.file_id for share in shared for o in share} == {o.file_id for o in given}
