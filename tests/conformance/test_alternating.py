"""pyhudi and Hudi commit to one table by turns, and nobody loses sight of a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import chain
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import pyhudi
from conformance.client import JudgeClient, JudgeError
from conformance.combinations import (
    BlockFormat,
    Columns,
    Combination,
    KeyShape,
    MergeMode,
    Partitioning,
    TableKind,
    Version,
)
from conformance.rows import assert_same_rows
from conformance.story import Story
from conformance.writing import QUIET

pytestmark = [pytest.mark.judge, pytest.mark.conformance, pytest.mark.spark]

PYHUDI, HUDI = "pyhudi", "hudi"
UPSERT, DELETE, OVERWRITE, EMPTY, UPDATE = "upsert", "delete", "overwrite", "empty", "update"

#: What each of them does in its turns.
DEEDS = {
    PYHUDI: (UPSERT, DELETE, OVERWRITE, EMPTY, UPDATE),
    HUDI: (UPSERT, UPSERT, UPSERT, UPSERT, DELETE),
}
#: What a table service does: plan and act.
BOTH, PLAN, ACT = "scheduleAndExecute", "schedule", "execute"
#: Hudi clusters no table of simple buckets, unless it is told that this is none.
FORGET_BUCKETS = {
    "hoodie.storage.layout.type": "DEFAULT",
    "hoodie.index.type": "SIMPLE",
    "hoodie.write.concurrency.mode": "SINGLE_WRITER",
}
#: The partitions of the even and of the odd numbers.
EVEN, ODD = ("north",), ("far east",)


def table_of(kind: TableKind) -> Combination:
    """Merge on read is written without blocking, copy on write optimistically."""
    return Combination(
        kind,
        Version.NINE,
        Partitioning.ONE,
        KeyShape.TEXT,
        MergeMode.EVENT_TIME,
        BlockFormat.PARQUET,
        Columns.EVERYTHING,
    )


def take_turns(judge: JudgeClient, story: Story, first: str, *, is_long: bool = True) -> None:
    """Ten commits by turns, each of which meets rows of the other writer.

    pyhudi reads after each of them. In a quick run the judges do so where pyhudi wrote last, and at
    the end.
    """
    assert story.agree(judge).num_rows == 0
    second = HUDI if first == PYHUDI else PYHUDI
    deeds = chain.from_iterable(zip(DEEDS[first], DEEDS[second], strict=True))
    for turn, deed in enumerate(deeds):
        if turn % 2 == (first == PYHUDI):
            hudi_turn(judge, story, turn, deed)
        else:
            pyhudi_turn(story, turn, deed)
        is_last = turn == 2 * len(DEEDS[first]) - 1
        if is_long or is_last or turn % 2 == (first == HUDI):
            story.agree(judge)
        else:
            story.rows_now()


def hudi_turn(judge: JudgeClient, story: Story, turn: int, deed: str) -> None:
    numbers = range(turn * 10, turn * 10 + 60, 1 if deed == UPSERT else 5)
    rows = story.rows(numbers, written=turn, seen_at=10 + turn, spread=3)
    story.hudi_write(judge, rows, deed)


def pyhudi_turn(story: Story, turn: int, deed: str) -> None:
    rows = story.rows(range(turn * 10, turn * 10 + 60), written=turn, seen_at=10 + turn, spread=3)
    if deed == UPSERT:
        story.upsert(rows)
    elif deed == UPDATE:
        story.update(rows[::3], ["note", "price", "points"])
    elif deed == DELETE:
        story.delete(rows[::5])
    elif deed == OVERWRITE:
        # Older than all that was there, and than all that comes.
        story.overwrite(story.rows(range(0, 50, 2), written=turn, seen_at=1))
    else:
        story.delete_partitions([ODD])


@pytest.mark.parametrize(
    ("first", "buckets"),
    [
        (PYHUDI, 2),
        pytest.param(PYHUDI, 4, marks=pytest.mark.long),
        pytest.param(HUDI, 4, marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize(
    "kind", [TableKind.MOR, pytest.param(TableKind.COW, marks=pytest.mark.long)]
)
def test_all_readers_agree_while_spark_and_hudi_take_turns(
    judge: JudgeClient,
    spark: SparkSession,
    tmp_path: Path,
    kind: TableKind,
    first: str,
    buckets: int,
) -> None:
    story = Story(tmp_path / "table", table_of(kind), buckets=buckets, shared=True, spark=spark)
    take_turns(judge, story, first, is_long=buckets == 4)
    assert_one_group_per_bucket(judge, story)


@pytest.mark.long
@pytest.mark.parametrize("first", [PYHUDI, HUDI])
@pytest.mark.parametrize(
    "kind", [TableKind.MOR, pytest.param(TableKind.COW, marks=pytest.mark.long)]
)
def test_all_readers_agree_while_the_local_engine_and_hudi_take_turns(
    judge: JudgeClient, tmp_path: Path, kind: TableKind, first: str
) -> None:
    story = Story(tmp_path / "table", table_of(kind), buckets=4, shared=True)
    take_turns(judge, story, first)
    assert_one_group_per_bucket(judge, story)


def assert_one_group_per_bucket(judge: JudgeClient, story: Story) -> None:
    slices = [s for s in judge.hudi_slices(story.path) if s["view"] == "latest"]
    groups = Counter((s["partition"], s["file_id"][:8]) for s in slices)
    assert set(groups.values()) == {1}, "two file groups for one bucket"


# ---- table services of Hudi


def run_service(
    judge: JudgeClient, story: Story, service: str, options: Mapping[str, str], op: str = BOTH
) -> None:
    given = {**QUIET, "hoodie.metadata.enable": "false", **options}
    text = ",".join(f"{key}={value}" for key, value in given.items())
    judge.hudi_call(service, story.path, op=op, options=text)


def compact(judge: JudgeClient, story: Story) -> None:
    run_service(judge, story, "compaction", {"hoodie.compact.inline.max.delta.commits": "1"})


def agree_on_base_files(judge: JudgeClient, story: Story) -> None:
    """Nothing is left in logs."""
    ours = story.agree(judge)
    assert_same_rows(ours, judge.hudi_rows(story.path, query_type="read_optimized"))


def test_hudi_compacts_what_spark_wrote_and_spark_goes_on(
    judge: JudgeClient, spark: SparkSession, tmp_path: Path
) -> None:
    story = Story(tmp_path / "table", table_of(TableKind.MOR), buckets=2, shared=True, spark=spark)
    story.append(story.rows(range(80), written=1, seen_at=10))
    story.overwrite(story.rows(range(0, 60, 2), written=2, seen_at=1))
    story.upsert(story.rows(range(20, 90), written=3, seen_at=12, spread=3))
    story.delete(story.rows(range(0, 90, 7), written=0, seen_at=0))
    compact(judge, story)
    agree_on_base_files(judge, story)
    story.upsert(story.rows(range(40, 120), written=4, seen_at=13, spread=3))
    story.delete_partitions([ODD])
    story.agree(judge)
    story.upsert(story.rows(range(60), written=5, seen_at=20))
    compact(judge, story)
    agree_on_base_files(judge, story)


@pytest.mark.long
@pytest.mark.parametrize("first", [PYHUDI, HUDI])
def test_hudi_compacts_what_two_engines_wrote(
    judge: JudgeClient, spark: SparkSession, tmp_path: Path, first: str
) -> None:
    story = Story(tmp_path / "table", table_of(TableKind.MOR), buckets=4, shared=True, spark=spark)
    take_turns(judge, story, first)
    compact(judge, story)
    agree_on_base_files(judge, story)
    story.upsert(story.rows(range(40, 160), written=9, seen_at=30, spread=3))
    story.agree(judge)


@pytest.mark.parametrize(
    "kind", [TableKind.COW, pytest.param(TableKind.MOR, marks=pytest.mark.long)]
)
def test_hudi_clusters_what_spark_wrote_only_if_told_to_forget_the_buckets(
    judge: JudgeClient, spark: SparkSession, tmp_path: Path, kind: TableKind
) -> None:
    story = Story(tmp_path / "table", table_of(kind), shared=True, spark=spark)
    story.upsert(story.rows(range(80), written=1, seen_at=10))
    story.upsert(story.rows(range(40, 100), written=2, seen_at=12))
    with pytest.raises(JudgeError, match="not compatible with table layout HoodieSimpleBucket"):
        run_service(judge, story, "clustering", {})
    story.agree(judge)  # the plan is left behind, and is nothing to a reader
    run_service(judge, story, "clustering", FORGET_BUCKETS, op=ACT)
    assert judge.hudi_timeline(story.path)[-1]["action"] == "replacecommit"
    story.agree(judge)
    with pytest.raises(pyhudi.HudiError, match="bucket"):
        story.table.upsert(story.sample.table(story.rows(range(3), written=3, seen_at=20)))
    story.agree(judge)


def test_a_write_into_a_planned_clustering_is_refused_as_hudi_does(
    judge: JudgeClient, spark: SparkSession, tmp_path: Path
) -> None:
    """Its rows would vanish as soon as the clustering puts other file groups in the place."""
    story = Story(tmp_path / "table", table_of(TableKind.COW), shared=True, spark=spark)
    story.upsert(story.rows(range(80), written=1, seen_at=10))
    run_service(judge, story, "clustering", {}, op=PLAN)
    rows = story.sample.table(story.rows(range(40, 100), written=2, seen_at=12))
    with pytest.raises(pyhudi.ConflictError, match="clustering"):
        story.table.upsert(spark.createDataFrame(rows))
    run_service(judge, story, "clustering", FORGET_BUCKETS, op=ACT)
    story.agree(judge)
