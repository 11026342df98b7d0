"""Both judges read tables that pyhudi resizes, at every moment of a resize, and their past.

A resize rewrites buckets while writers go on. So the tables have a write of each kind: completed
before the resize was planned; begun before the plan, and copied; begun behind it, and copied;
completed after the resize, and moved.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from conformance.client import JudgeClient, Question
from conformance.resized import Kind, OwnTable
from conformance.rows import Row, assert_same_rows
from pyhudi.format.timeline.instant import Instant
from pyhudi.table.schema import FILE_NAME

pytestmark = [pytest.mark.judge, pytest.mark.conformance]

BY_DAY = Kind()
PARTITION_PATH = "_hoodie_partition_path"
KINDS = [
    pytest.param(BY_DAY, id="by day"),
    pytest.param(Kind(is_optimistic=True), id="by day, optimistic", marks=pytest.mark.long),
    pytest.param(Kind(is_partitioned=False), id="not partitioned", marks=pytest.mark.long),
    pytest.param(
        Kind(is_partitioned=False, is_optimistic=True, is_ordered=False),
        id="not partitioned, optimistic",
        marks=pytest.mark.long,
    ),
    pytest.param(
        Kind(is_ordered=False, owners={"a": ["ts"], "b": ["n"]}),
        id="owners of columns",
        marks=pytest.mark.long,
    ),
]


@pytest.mark.parametrize("kind", KINDS)
def test_all_readers_agree_at_every_moment_of_a_resize(
    judge: JudgeClient, tmp_path: Path, kind: Kind
) -> None:
    table = OwnTable(judge, tmp_path / "table", kind)
    first, second = kind.owners or (None, None)
    table.upsert(range(24), first)
    table.upsert(range(12, 32), second)
    table.delete([2, 3])
    early = table.held([0, 1, 40, 41], first)
    resize = table.plan_split(3)
    table.agree()
    early()
    table.upsert(range(20, 38), second)
    table.delete([4, 5])
    late = table.held([0, 1, 8, 9, 50, 51], first)
    table.dies_at(resize, ".parquet", nth=2)
    assert len(table.files_of(resize)) == 1
    table.agree()
    table.dies_at(resize, ".log.", nth=2)  # copies come in no order
    assert any(".log." in name for name in table.files_of(resize))
    table.agree()
    table.close(resize)
    table.agree()
    done = table.execute(resize)
    assert (done.inputs, done.children) == (len(kind.days), 3 * len(kind.days))
    assert done.copies > 2
    table.agree()
    assert late().moved == 6
    table.agree()
    table.upsert(range(6), second)
    table.agree()
    table.agree_on_the_past()


@pytest.mark.long
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(BY_DAY, id="by day"),
        pytest.param(
            Kind(is_partitioned=False, is_optimistic=True, is_ordered=False), id="not partitioned"
        ),
    ],
)
def test_all_readers_agree_after_rounds_of_splits_and_merges(
    judge: JudgeClient, tmp_path: Path, kind: Kind
) -> None:
    table = OwnTable(judge, tmp_path / "table", kind, initial=2)
    table.upsert(range(30))
    rounds: tuple[Callable[[], str], ...] = (
        lambda: table.plan_split(2),
        lambda: table.plan_merge(run=3),
        lambda: table.plan_split(3, kind.days[:1]),
        lambda: table.plan_merge(),
    )
    for turn, plan in enumerate(rounds):
        resize = plan()
        table.upsert(range(8 * turn, 8 * turn + 16))
        table.delete([turn])
        late = table.held([turn, 20 + turn, 60 + turn])
        table.execute(resize)
        assert late().moved
        table.agree()
    table.agree_on_the_past()


@pytest.mark.long
@pytest.mark.parametrize("is_optimistic", [False, True], ids=["non-blocking", "optimistic"])
def test_nothing_of_a_cancelled_resize_is_ever_read(
    judge: JudgeClient, tmp_path: Path, is_optimistic: bool
) -> None:
    table = OwnTable(judge, tmp_path / "table", Kind(is_optimistic=is_optimistic))
    table.upsert(range(24))
    for turn, stop in enumerate(("planned", "with files", "closed")):
        resize = table.plan_split(3)
        table.upsert(range(6 * turn, 6 * turn + 12))
        table.delete([turn])
        if stop != "planned":
            table.dies_at(resize, ".log.1000_", nth=2)
        if stop == "closed":
            table.close(resize)
        table.cancel(resize)
        assert not table.files_of(resize)
        table.agree()
    resize = table.plan_split(2)
    table.dies_at(resize, ".parquet", nth=2)
    table.overwrite(range(10, 40))
    assert resize not in table.session().log.live.pending
    table.agree()
    table.upsert(range(6))
    table.execute(table.plan_split(3))
    table.agree()
    table.agree_on_the_past()
    table.agree_on_changes(one for one in table.ranges() if one[0] == "000")


@pytest.mark.long
@pytest.mark.parametrize("is_optimistic", [False, True], ids=["non-blocking", "optimistic"])
def test_all_readers_agree_where_columns_are_added_around_a_resize(
    judge: JudgeClient, tmp_path: Path, is_optimistic: bool
) -> None:
    table = OwnTable(judge, tmp_path / "table", Kind(is_optimistic=is_optimistic))
    table.upsert(range(20))
    table.add_column("early")
    table.upsert(range(10), schema_mode="add")
    resize = table.plan_split(3)
    table.add_column("meanwhile")
    table.upsert(range(5, 25), schema_mode="add")
    late = table.held([1, 2, 3, 30])
    table.execute(resize)
    table.agree()
    assert late().moved == 4
    table.agree()
    table.add_column("afterwards")
    table.upsert(range(15, 35), schema_mode="add")
    table.execute(table.plan_merge())
    table.agree()
    table.agree_on_the_past()


@pytest.mark.long
def test_all_readers_agree_when_a_writer_finished_a_closed_resize(
    judge: JudgeClient, tmp_path: Path
) -> None:
    table = OwnTable(judge, tmp_path / "table", BY_DAY)
    table.upsert(range(24))
    resize = table.plan_split(3)
    table.upsert(range(12, 36))
    table.dies_at(resize, ".log.1000_")
    table.close(resize)
    table.upsert(range(30, 48))
    assert resize in table.session().log.live.completed
    table.agree()
    table.agree_on_the_past()


@pytest.mark.parametrize(
    "is_whole", [False, pytest.param(True, marks=pytest.mark.long)], ids=["some", "all"]
)
def test_a_range_that_ends_inside_a_resize_lacks_rows_of_its_buckets(
    judge: JudgeClient, tmp_path: Path, is_whole: bool
) -> None:
    """In Hudi and hudi-rs, where it is read after the resize; docs/differences.md says so.

    All other ranges hold the same rows in all three. Only one partition is resized, so that rows of
    its buckets are known.
    """
    table = OwnTable(judge, tmp_path / "table", BY_DAY)
    table.upsert(range(12))
    early = table.held([40, 41])
    resize = table.plan_split(3, ("mo",))
    early()
    table.upsert(range(8, 20))
    late = table.held([0, 1, 50, 51])
    table.agree_on_changes(table.ranges()[-1:])  # as long as the resize is pending
    table.execute(resize)
    late()
    table.upsert(range(4))
    writes = table.completed()
    [done] = [instant for instant in writes if instant.requested == resize]
    seen = set()
    ends_inside = [instant.completed for instant in writes if _ends_inside([instant], done)][-2:]
    for one in table.ranges():
        if not is_whole and one[0] != "000" and one[1] not in ends_inside:
            continue
        held = [instant for instant in writes if one[0] < _completed(instant) <= one[1]]
        expected = _hudi_sees(held, done), _rs_sees(held, done)
        seen.add(expected)
        for sees, answer in zip(expected, table.asked(table.changes(one)), strict=True):
            _check(sees, *answer)
    assert seen == {
        (Sees.ALL, Sees.ALL),
        (Sees.NONE_OF_RESIZED, Sees.NONE_OF_RESIZED),
        (Sees.NONE_OF_RESIZED, Sees.CHILDREN),
    }


class Sees(StrEnum):
    """What an engine's answer about a range has of the changes."""

    ALL = "every row"
    CHILDREN = "every row, those of resized buckets from the new files"
    NONE_OF_RESIZED = "no row of a resized bucket"


def _hudi_sees(held: list[Instant], resize: Instant) -> Sees:
    """By requests: of a range whose last request is behind the plan, Hudi hides the old buckets."""
    if _ends_inside(held, resize) and any(i.requested > resize.requested for i in held):
        return Sees.NONE_OF_RESIZED
    return Sees.ALL


def _rs_sees(held: list[Instant], resize: Instant) -> Sees:
    """As Hudi; but between the range's first and last request it finds the resize, too."""
    hudi = _hudi_sees(held, resize)
    if hudi is not Sees.ALL and any(i.requested < resize.requested for i in held):
        return Sees.CHILDREN
    return hudi


def _ends_inside(held: list[Instant], resize: Instant) -> bool:
    return all(_completed(instant) < _completed(resize) for instant in held)


def _completed(instant: Instant) -> str:
    assert instant.completed is not None
    return instant.completed


def _check(sees: Sees, ours: pa.Table, question: Question, theirs: list[Row]) -> None:
    resized = [row for row in theirs if row[PARTITION_PATH] == "mo"]
    if sees is Sees.NONE_OF_RESIZED:
        assert not resized, question
        is_other = pc.not_equal(ours[PARTITION_PATH], "mo")
        assert ours.num_rows > pc.sum(is_other).as_py(), "there is a difference"
        ours = ours.filter(is_other)
    elif sees is Sees.CHILDREN:
        names = {row["id"]: row[FILE_NAME] for row in resized}
        assert not {*names.values()} & {*ours[FILE_NAME].to_pylist()}, question
        found = pa.array([names.get(row["id"], row[FILE_NAME]) for row in ours.to_pylist()])
        ours = ours.set_column(ours.schema.get_field_index(FILE_NAME), FILE_NAME, found)
    try:
        assert_same_rows(ours, theirs)
    except AssertionError as error:
        raise AssertionError(f"{sees}, {question}: {error}") from error
