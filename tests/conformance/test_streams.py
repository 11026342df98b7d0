"""Hudi's streaming source reads a table that pyhudi resizes.

It goes on by completion times, from what its checkpoint has. A batch is repeated, with the end that
it had, if the job dies before it notes that the batch is done.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.client import JudgeClient
from conformance.resized import Kind, OwnTable

pytestmark = [pytest.mark.judge, pytest.mark.conformance]


class Stream:
    """A job of Hudi's that is started again for each batch."""

    def __init__(self, judge: JudgeClient, table: OwnTable, checkpoint: Path) -> None:
        self._judge = judge
        self._table = table
        self._checkpoint = checkpoint

    def next(self) -> list[int]:
        """The numbers of the next batch's rows."""
        rows = self._judge.hudi_stream(self._table.path, self._checkpoint)
        return sorted(int(row["id"].removeprefix("k")) for row in rows)

    def dies_before_it_is_noted(self) -> None:
        """As if the last batch had been handed on, and the job had died then."""
        noted = [p for p in (self._checkpoint / "commits").iterdir() if p.name.isdigit()]
        last = max(noted, key=lambda path: int(path.name))
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


def test_a_batch_that_a_stream_repeats_lacks_rows_of_buckets_resized_since(
    judge: JudgeClient, tmp_path: Path
) -> None:
    """Its end lies inside the resize; docs/differences.md says so. Later batches have every row."""
    table = OwnTable(judge, tmp_path / "table", Kind())
    stream = Stream(judge, table, tmp_path / "checkpoint")
    table.upsert(range(6))
    assert stream.next() == [*range(6)]
    resize = table.plan_split(2, ("mo",))
    table.upsert(range(4, 10))
    assert stream.next() == [*range(4, 10)]
    table.execute(resize)
    stream.dies_before_it_is_noted()
    assert stream.next() == [5, 7, 9], "the even ones were in the bucket that was split"
    table.upsert(range(10, 14))
    assert stream.next() == [*range(10, 14)]


@pytest.mark.long
def test_a_stream_whose_batches_are_not_repeated_has_every_row_once(
    judge: JudgeClient, tmp_path: Path
) -> None:
    table = OwnTable(judge, tmp_path / "table", Kind())
    stream = Stream(judge, table, tmp_path / "checkpoint")
    table.upsert(range(6))
    early = table.held(range(30, 34))
    resize = table.plan_split(2, ("mo",))
    late = table.held(range(40, 44))
    table.upsert(range(4, 10))
    assert stream.next() == [*range(10)]
    early()
    assert stream.next() == [*range(30, 34)]
    table.upsert(range(4, 8))
    table.execute(resize)
    assert stream.next() == [*range(4, 8)]
    assert late().moved == 4
    assert stream.next() == [*range(40, 44)]
