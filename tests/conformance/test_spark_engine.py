"""Both judges read what Spark's tasks wrote, after every commit of every combination.

Each table goes through the turns of its plot, and in between through an upsert that has keys twice,
and through one that writes logs after partitions were replaced. The last commit is the local
engine's, which writes the same table as Spark does.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import pyhudi
from conformance.client import JudgeClient
from conformance.combinations import Combination, MergeMode, Partitioning
from conformance.plots import (
    BASE_FILES,
    CHANGES,
    COMMITS,
    PLOTS,
    SNAPSHOTS,
    Change,
    First,
    Plot,
    Replacement,
    other_plots,
)
from conformance.rows import spark_columns
from conformance.sample_rows import ORDERING, Row
from conformance.story import Partition, Story
from pyhudi.spark import shuffle as placing

pytestmark = [pytest.mark.judge, pytest.mark.conformance, pytest.mark.spark]

#: So many of the rows meet in the quick run: the first ones, which have most of the pairs.
QUICK = 8
FOUR_PARTITIONS = (Partitioning.TWO, Partitioning.ENCODED)


def begin(story: Story, first: First) -> pyhudi.WriteResult:
    numbers = range(3) if first is First.APPEND else range(120)
    rows = story.rows(numbers, written=1, seen_at=10, spread=3)
    if first is First.UPSERT:
        return story.upsert(rows)
    result = story.append(rows)
    if first is First.LOAD:
        logs = [path.name for path in story.path.rglob(f".*_{result.instant}.log.*")]
        assert not logs, "a load of empty buckets is one of base files"
    return result


def upsert_twice(story: Story) -> pyhudi.WriteResult:
    """Rows older, newer and as old as what is there, and new ones; a third of the keys twice.

    Without an ordering nobody can say which of two rows of one key is the later, so they are equal.
    """
    once = story.rows(range(80, 150), written=2, seen_at=9, spread=5)
    is_ordered = story.combination.merge is MergeMode.EVENT_TIME
    again = range(80, 150, 3)
    twice = story.rows(again, written=3, seen_at=11, spread=2) if is_ordered else once[::3]
    # The winner is the first of the two as often as the second.
    return story.upsert([*twice[::2], *once, *twice[1::2]])


def change(story: Story, how: Change) -> pyhudi.WriteResult:
    rows = story.rows(range(0, 170, 3), written=4, seen_at=11, spread=2)
    if how is Change.UPDATE:
        return story.update(rows, story.sample.other_columns[::2])
    if how is Change.DELETE_KEYS:
        return story.delete_keys(rows)
    if how is Change.DELETE_ROWS:
        return story.delete_unless_newer(rows)
    return story.delete_where(f"{ORDERING} IN (9, 11)", lambda row: row[ORDERING] in (9, 11))


def replace(story: Story, how: Replacement) -> tuple[pyhudi.WriteResult, set[Partition]]:
    """Rows that are older than those in whose place they come; the result, and what they replaced.

    They are of one partition. What else is replaced, is so by nothing.
    """
    sample = story.sample
    given = story.rows(range(0, 60, 4), written=5, seen_at=1)
    first, second = (sample.partition(row) for row in story.rows(range(2), written=0, seen_at=0))
    rows = [row for row in given if sample.partition(row) == first]
    everywhere = {sample.partition(row) for row in story.expected.stored}
    if how is Replacement.TOUCHED:
        return story.overwrite(rows), {first}
    if how is Replacement.NAMED:
        return story.overwrite(rows, [first, second]), {first, second}
    if how is Replacement.ALL:
        return story.overwrite(rows, "all"), everywhere
    return story.delete_partitions([first]), {first}


def rows_afterwards(story: Story, replaced: set[Partition]) -> list[Row]:
    """Rows that are older than what was replaced, and must be there nevertheless."""
    newer = story.rows(range(0, 130, 2), written=6, seen_at=40)
    older = story.rows(range(0, 130, 2), written=6, seen_at=2)
    return [
        old if story.sample.partition(old) in replaced else new
        for new, old in zip(newer, older, strict=True)
    ]


@pytest.mark.parametrize(
    ("combination", "plot"),
    [
        *(
            pytest.param(row, plot, id=row.name, marks=pytest.mark.long if n >= QUICK else ())
            for n, (row, plot) in enumerate(PLOTS.items())
        ),
        *(
            pytest.param(row, plot, id=row.name, marks=pytest.mark.long)
            for row, plot in other_plots().items()
        ),
    ],
)
def test_judges_read_what_spark_wrote(
    judge: JudgeClient,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    combination: Combination,
    plot: Plot,
) -> None:
    # Hudi's reads take a time for every file group: a quick run has no more than four of them.
    buckets = 1 if combination in PLOTS and combination.partitioning in FOUR_PARTITIONS else 2
    story = Story(tmp_path / "table", combination, buckets=buckets, spark=spark)
    chronicle = Chronicle(story, judge)
    chronicle.add(begin(story, plot.first))
    chronicle.add(upsert_twice(story))
    monkeypatch.setattr(placing, "TINY_BYTES", 0)  # from now on, rows are shuffled
    chronicle.add(change(story, plot.change))
    result, replaced = replace(story, plot.replacement)
    chronicle.add(result)
    chronicle.add(story.upsert(rows_afterwards(story, replaced)))
    story.spark = None
    chronicle.add(story.upsert(story.rows(range(60, 100), written=7, seen_at=50)))
    chronicle.review()
    assert judge.hudi_schema(story.path) == spark_columns(story.sample.schema)


class Chronicle:
    """The commits of a story and what was there after each, as all readers agreed.

    hudi-rs is asked after every commit, and Hudi after the last. In a quick run, where Hudi's
    reads take the time, it is also asked after a commit in some tables, for a snapshot, for base
    files or for changes, so that each way to take a turn is followed by each kind of read. Each
    table hears of one time before, and every other one of all changes.
    """

    def __init__(self, story: Story, judge: JudgeClient) -> None:
        self._story = story
        self._judge = judge
        self._commits: list[tuple[pyhudi.WriteResult, pa.Table]] = []
        places = {row: place for place, row in enumerate(PLOTS)}
        self._place = places.get(story.combination)

    def add(self, result: pyhudi.WriteResult) -> None:
        """Hear the readers on the table and on this commit."""
        story, number = self._story, len(self._commits)
        ours = story.rows_now()
        by_hudi, by_rs = story.by_both(ours)
        claims = [by_rs]
        if self._hears(SNAPSHOTS) or number == len(COMMITS) - 1:
            claims.append(by_hudi)
        if self._hears(BASE_FILES):
            claims += story.of_base_files()
        if self._hears(CHANGES):
            before = self._commits[-1][0].completed if self._commits else "000"
            claims += story.of_changes(before, result.completed)
        story.hear(self._judge, claims)
        self._commits.append((result, ours))

    def _hears(self, tables: Sequence[Container[Combination]]) -> bool:
        """Whether Hudi reads this table so now; where time does not matter, always."""
        return self._place is None or self._story.combination in tables[len(self._commits)]

    def _takes(self, number: int, *, of: int) -> bool:
        """Whether it is this one's turn in this table; where time does not matter, always."""
        return self._place is None or self._place % of == number

    def review(self) -> None:
        """Hear them on times before the last commit, and on all changes since the first."""
        story = self._story
        first, last = self._commits[0][0], self._commits[-1][0]
        claims = []
        if self._takes(0, of=2):
            claims += story.of_changes(first.completed, last.completed)
        for number, (result, then) in enumerate(self._commits[:-1]):
            if self._takes(number, of=len(self._commits) - 1):
                claims += story.of_past(result.completed, then)
        story.hear(self._judge, claims)
