"""Both judges on tables with virtual resizes: while one is pending, and after it.

Rows of a write beside a pending virtual resize are in new buckets, and the old ones refer to them.
No other engine follows a reference. So where such a write belongs to a read, the judges fail; they
never leave its rows out. Where it does not, and once the resize has completed, all readers agree.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import pyhudi
from conformance.client import JudgeClient, JudgeError
from conformance.resized import Claim, Kind, OwnTable, Range, Row
from pyhudi.format.files.log_reference import marked_as_virtual
from pyhudi.table.schema import COMMIT_TIME
from pyhudi.world import new_uuid, real_world

pytestmark = [pytest.mark.judge, pytest.mark.conformance]

KINDS = [
    pytest.param(Kind(), id="by day"),
    pytest.param(
        Kind(is_partitioned=False, is_optimistic=True, is_ordered=False),
        id="not partitioned, optimistic",
        marks=pytest.mark.long,
    ),
]


class VirtualTable(OwnTable):
    """A table whose resizes are virtual."""

    def _new_id(self) -> str:
        return marked_as_virtual(new_uuid(real_world()))

    def snapshots(self) -> list[Claim]:
        ours = self.open().read(meta=True).to_arrow()
        return [(ours, self.question("read")), (ours, self.question("rs-read"))]

    def base_files(self) -> list[Claim]:
        ours = self.open().read(meta=True, read_optimized=True).to_arrow()
        return [(ours, self.question("read", query_type="read_optimized"))]

    def past(self, time: str) -> list[Claim]:
        """As of a requested time."""
        ours = self.open().read(as_of=pyhudi.RequestedTime(time), meta=True).to_arrow()
        return [
            (ours, self.question("read", as_of=time)),
            (ours, self.question("rs-read", as_of=time)),
        ]

    def refuse(self, claims: list[Claim]) -> None:
        """Both judges fail."""
        for _, question in claims:
            with pytest.raises(JudgeError) as caught:
                self._judge.ask_all([question])
            assert "is gone" not in str(caught.value)


def changed(rows: list[Row]) -> list[tuple[str, str]]:
    return sorted((row["id"], row[COMMIT_TIME]) for row in rows)


@pytest.mark.parametrize("kind", KINDS)
def test_judges_fail_where_a_reference_counts_and_agree_elsewhere(
    judge: JudgeClient, tmp_path: Path, kind: Kind
) -> None:
    table = VirtualTable(judge, tmp_path / "table", kind)
    first = table.upsert(range(24))
    resize = table.plan_split(3)
    table.agree()
    write = table.upsert(range(20, 38))
    ends = [instant.completed or "" for instant in table.completed()]
    without: list[Range] = [("000", ends[-2]), (ends[0], ends[-2])]
    within: list[Range] = [("000", ends[-1]), (ends[-2], ends[-1])]
    for _ in ("before its base files are there", "and after"):
        table.refuse(table.snapshots())
        table.refuse(table.past(write.requested))
        table.hear([*table.base_files(), *table.past(first.requested), *table.past(resize)])
        table.agree_on_changes(without)
        for one in within:
            table.refuse(table.changes(one))
        if not table.files_of(resize):
            _make_bases(table, resize)
    done = table.execute(resize)
    assert done.copies == 0
    table.agree()
    table.agree_on_the_past()
    table.agree_on_changes([*without, within[1]])
    # A range that ends inside the resize, and begins before it: Hudi hides the old buckets, and
    # hudi-rs reads the new ones.
    (ours, _, hudi), (_, _, rs) = table.asked(table.changes(within[0]))
    assert {row[COMMIT_TIME] for row in hudi} == {write.requested}
    assert changed(rs) == changed(ours.to_pylist())
    assert len(hudi) < len(rs)
    table.upsert(range(6))
    table.agree()
    table.agree_on_the_past()


def _make_bases(table: VirtualTable, resize: str) -> None:
    """Execute the resize up to its last base file."""
    table.dies_at(resize, ".parquet", nth=3 * len(table.days))
