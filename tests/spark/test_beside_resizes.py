"""Writes from Spark, and a resize of their buckets that completes before they do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import pyhudi
from pyhudi.errors import ConflictError
from pyhudi.format.table.bucket_config import ConsistentBuckets
from pyhudi.plan.resizing.policy import ResizePolicy
from pyhudi.world import real_world
from pyhudi.write import complete as completing
from pyhudi.write import write as writing
from pyhudi.write.resizing import copies

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:target_bytes"),
]

SCHEMA = pa.schema(
    [pa.field("id", pa.string(), nullable=False), ("day", pa.string()), ("ts", pa.int64())]
)
COUNT = 200
Interrupt = Callable[[Callable[[], object]], None]


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Two partitions with a bucket each, both too large."""
    path = str(tmp_path / "table")
    table = pyhudi.create_table(
        path,
        schema=SCHEMA,
        record_key="id",
        partition_by="day",
        ordering="ts",
        buckets=ConsistentBuckets(initial=1),
    )
    for ts in (1, 2):
        given = [{"id": f"k{n}", "day": f"d{n % 2}", "ts": ts} for n in range(COUNT)]
        table.upsert(pa.Table.from_pylist(given, SCHEMA))
    return path


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Interrupt:
    """Do something once, when the tasks of a write are done and it is about to complete."""

    def at_completion(deed: Callable[[], object]) -> None:
        def complete(*args: Any, **kwargs: Any) -> Any:
            monkeypatch.undo()
            deed()
            return completing.complete(*args, **kwargs)

        monkeypatch.setattr(writing, "complete", complete)

    return at_completion


def frame(spark: SparkSession) -> DataFrame:
    """New values of all rows, and as many new rows."""
    return spark.sql(
        "SELECT concat('k', id) AS id, concat('d', id % 2) AS day, 3L AS ts"
        f" FROM range({2 * COUNT})"
    )


def rows_of(path: str) -> dict[str, tuple[str, int]]:
    found = pyhudi.open_table(path).read(columns=SCHEMA.names).to_arrow().to_pylist()
    rows = {row["id"]: (row["day"], row["ts"]) for row in found}
    assert len(rows) == len(found), "a row is there twice"
    return rows


def policy() -> ResizePolicy:
    return ResizePolicy(target_bytes=4096, rest_seconds=0)


def planned(path: str) -> None:
    assert pyhudi.open_table(path).services.resize(policy(), plan_only=True).pending


def executed(path: str) -> None:
    assert pyhudi.open_table(path).services.resize(policy()).or_raise().results


def check(path: str) -> None:
    assert rows_of(path) == {f"k{n}": (f"d{n % 2}", 3) for n in range(2 * COUNT)}
    assert pyhudi.open_table(path).services.verify()
    pending = pyhudi.open_table(path).inspect.timeline().to_pylist()
    assert {row["state"] for row in pending} == {"completed"}


def test_an_upsert_moves_its_rows(spark: SparkSession, path: str, interrupt: Interrupt) -> None:
    planned(path)
    interrupt(lambda: executed(path))
    result = pyhudi.open_table(path).upsert(frame(spark))
    assert (result.moved, result.rows, result.retries) == (2 * COUNT, 2 * COUNT, 0)
    check(path)


def test_an_upsert_that_was_overtaken_is_rebased(
    spark: SparkSession, path: str, interrupt: Interrupt
) -> None:
    interrupt(lambda: executed(path))
    result = pyhudi.open_table(path).upsert(frame(spark))
    assert (result.moved, result.rows, result.retries) == (0, 2 * COUNT, 1)
    check(path)


@pytest.mark.parametrize("is_late", [False, True])
def test_a_save_goes_on(spark: SparkSession, path: str, *, is_late: bool) -> None:
    """Spark commits a save in a process of its own; here its steps are called one by one."""
    if not is_late:
        planned(path)
    commit = saved(frame(spark), path)
    executed(path)
    commit()
    check(path)


def saved(rows: DataFrame, path: str) -> Callable[[], object]:
    """Let the tasks of a save write their files; return what commits it."""
    from pyspark_pyhudi.writer import PyhudiWriter  # it cannot be loaded on Spark 3.5

    writer = PyhudiWriter({"path": path}, rows.schema, overwrite=False)
    batches = rows.toArrow().to_batches(max_chunksize=COUNT)
    messages = [
        writer.written(iter([batch]), task, real_world()) for task, batch in enumerate(batches)
    ]
    return lambda: writer.commit(messages)


@pytest.mark.parametrize("verb", ["upsert", "save"])
def test_a_write_beside_a_resize_that_hudi_can_execute_writes_twice(
    spark: SparkSession, path: str, verb: str
) -> None:
    """Hudi copies nothing."""
    pyhudi.open_table(path).alter.use_lock("file")
    planned(path)
    if verb == "upsert":
        result = pyhudi.open_table(path).upsert(frame(spark))
        assert (result.moved, result.rows, result.retries) == (0, 2 * COUNT, 0)
    else:
        saved(frame(spark), path)()
    with patch.object(copies, "owed_copy", lambda *of: None):
        executed(path)
    check(path)


def test_an_update_that_was_overtaken_names_the_resize(
    spark: SparkSession, path: str, interrupt: Interrupt
) -> None:
    interrupt(lambda: executed(path))
    with pytest.raises(ConflictError, match="resize"):
        pyhudi.open_table(path).update(frame(spark), columns=["ts"])
    assert {ts for _, ts in rows_of(path).values()} == {2}
    pyhudi.open_table(path).update(frame(spark), columns=["ts"])
    assert {ts for _, ts in rows_of(path).values()} == {3}
