"""A resize whose base files are made in Spark's tasks: the same files as without Spark."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import pyhudi
from opened_tables import session_on
from pyhudi.errors import CorruptTableError
from pyhudi.format.table.bucket_config import ConsistentBuckets
from pyhudi.format.timeline.commit_metadata import decode_commit_metadata
from pyhudi.plan.resizing.policy import ResizePolicy
from pyhudi.services.resizing.run import resize, resizes
from pyhudi.session.session import TableSession
from pyhudi.spark.resize import SparkChildren
from pyhudi.storage.open import open_storage
from pyhudi.world import real_world

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:target_bytes"),
]

SCHEMA = pa.schema(
    [pa.field("id", pa.string(), nullable=False), ("day", pa.string()), ("ts", pa.int64())]
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A table with four buckets in two partitions, all of them too large, and a pending resize."""
    table = pyhudi.create_table(
        str(tmp_path / "table"),
        schema=SCHEMA,
        record_key="id",
        partition_by="day",
        ordering="ts",
        buckets=ConsistentBuckets(initial=2),
        upkeep=False,
    )
    for ts in range(3):
        rows = [{"id": f"k{n}", "day": f"d{n % 2}", "ts": ts + n % 5} for n in range(400)]
        table.upsert(pa.Table.from_pylist(rows, SCHEMA))
    table.delete(pa.table({"id": ["k7"], "day": ["d1"]}))
    policy = ResizePolicy(target_bytes=4096, rest_seconds=0)
    assert table.services.resize(policy, plan_only=True).pending
    table.upsert(pa.Table.from_pylist([{"id": "k3", "day": "d1", "ts": 99}], SCHEMA))
    return tmp_path / "table"


def session(path: Path) -> TableSession:
    return session_on(open_storage(str(path), None), real_world())


def rows_of(path: Path) -> list[dict[str, object]]:
    table = pyhudi.open_table(str(path)).read(columns=SCHEMA.names).to_arrow()
    return sorted(table.to_pylist(), key=lambda row: str(row["id"]))


def test_spark_makes_the_children_that_the_local_engine_makes(
    path: Path, spark: SparkSession
) -> None:
    before, same = rows_of(path), path.parent / "same"
    shutil.copytree(path, same)
    stats = []
    for folder in (path, same):
        mine = session(folder)
        merge = SparkChildren(mine, spark) if folder == path else None
        service = resizes(mine, merge)
        [pending] = service.plans()
        result = service.execute(pending.requested)
        assert result is not None
        assert result.is_ours
        assert result.inputs == 4
        assert result.copies == 1
        assert rows_of(folder) == before
        timeline = folder / ".hoodie" / "timeline"
        [done] = timeline.glob(f"{pending.requested}_*.replacecommit")
        metadata = decode_commit_metadata(done.read_bytes(), done.name)
        stats.append(sorted((str(stat.path), stat.num_writes) for stat in metadata.stats))
    assert stats[0] == stats[1]


def test_a_damaged_base_file_stops_the_job_and_cancels_the_resize(
    path: Path, spark: SparkSession
) -> None:
    before = rows_of(path)
    log = min(path.glob("d0/.*.log.*"))
    data = log.read_bytes()
    log.write_bytes(data.replace(b"PAR1", b"PARX"))
    mine = session(path)
    with pytest.raises(CorruptTableError):
        resize(
            mine,
            ResizePolicy(target_bytes=1 << 30, merge_below=0.0, rest_seconds=0),
            merge=SparkChildren(mine, spark),
        ).or_raise()
    log.write_bytes(data)
    assert not resizes(session(path)).plans()
    assert rows_of(path) == before
    assert pyhudi.open_table(str(path)).services.verify()
