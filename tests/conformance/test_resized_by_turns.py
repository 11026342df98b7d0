"""pyhudi resizes tables, its own and Hudi's, and Hudi goes on with them, one after the other.

No lock is needed for that: an engine begins when the other has ended. But without one pyhudi does
not write behind Hudi's instants. So Hudi comes second, and then the table gets a lock.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import pyhudi
from conformance.client import JudgeClient, JudgeError
from conformance.resized import GoldenTable, Kind, OwnTable, ResizedTable
from conformance.scenes import until
from conformance.test_archiving import POLICY
from conformance.test_consistent_buckets import hudi_options
from conformance.test_services_midway import BESIDE_PYHUDI
from pyhudi.plan.cleaning import CleanPolicy

pytestmark = [pytest.mark.judge, pytest.mark.conformance]

GOLDEN = (
    pytest.param("mor_consistent_hash", marks=pytest.mark.long),
    "mor_consistent_hash_split",
    pytest.param("mor_consistent_hash_merge", marks=pytest.mark.long),
)


def hudi_goes_on(judge: JudgeClient, table: ResizedTable, options: dict[str, str]) -> None:
    """It writes, compacts and cleans; `agree` looks into which bucket each row went, too."""
    groups = buckets(table)
    table.hudi_upsert(range(0, 60, 2), options)
    table.agree()
    assert slices(judge, table) == groups, "Hudi's rows are in the buckets of our rings"
    table.hudi_call("compaction", op="scheduleAndExecute")
    table.agree()
    table.hudi_upsert(range(0, 60, 3), options)
    table.hudi_call("clean", clean_policy="KEEP_LATEST_COMMITS", retain_commits=1)
    table.agree()
    with pytest.raises(pyhudi.InvalidRequestError, match="another engine"):
        table.upsert(range(10))
    table.open().alter.use_lock("file")
    table.upsert(range(0, 60, 4))
    table.agree()
    assert slices(judge, table) == groups


def buckets(table: ResizedTable) -> set[tuple[str, str]]:
    """Every bucket of the rings in force, with its partition."""
    session = table.session()
    rings = [session.groups.ring(day) for day in table.days]
    return {(ring.partition, node.file_id) for ring in rings if ring for node in ring.nodes}


def slices(judge: JudgeClient, table: ResizedTable) -> set[tuple[str, str]]:
    found = judge.hudi_slices(table.path)
    return {(one["partition"], one["file_id"]) for one in found if one["view"] == "latest"}


@pytest.mark.parametrize(
    ("kind", "is_archived"),
    [
        pytest.param(
            Kind(is_partitioned=False, is_optimistic=True, is_ordered=False),
            False,
            id="not partitioned, by commit time",
        ),
        pytest.param(
            Kind(is_optimistic=True, partitions=3),
            True,
            id="by day, archived",
            marks=pytest.mark.long,
        ),
    ],
)
def test_hudi_goes_on_in_the_buckets_of_our_resizes(
    judge: JudgeClient, tmp_path: Path, kind: Kind, is_archived: bool
) -> None:
    """Of three partitions the last one is never resized."""
    table = OwnTable(judge, tmp_path / "table", kind)
    table.upsert(range(30))
    resized = table.days[:2]
    resize = table.plan_split(4, resized)
    table.upsert(range(20, 50))
    late = table.held(range(10))
    table.execute(resize)
    assert late().moved
    last = table.plan_merge(resized, run=2)
    table.upsert(range(40, 54))
    table.delete([1, 2])
    table.execute(last)
    if is_archived:
        services = table.open().services
        services.compact()
        services.clean(CleanPolicy.commits(1))
        for turn in range(3):
            table.upsert(range(turn, turn + 12))
        until(lambda: is_archived_now(table, resize), "the resize is archived")
        table.agree()
    hudi_goes_on(judge, table, alone(kind))


def is_archived_now(table: ResizedTable, resize: str) -> bool:
    table.open().services.archive(POLICY)
    return not list((table.path / ".hoodie" / "timeline").glob(f"{resize}*"))


def alone(kind: Kind) -> dict[str, str]:
    """The options of a Hudi job beside no other writer."""
    options = hudi_options("day" if kind.is_partitioned else "", 1)
    if not kind.is_ordered:
        del options["hoodie.table.ordering.fields"]
        options["hoodie.write.record.merge.mode"] = "COMMIT_TIME_ORDERING"
    return options


@pytest.mark.long
def test_hudi_refuses_to_write_what_is_non_blocking(judge: JudgeClient, tmp_path: Path) -> None:
    """Where buckets are consistent; docs/differences.md says so."""
    kind = Kind()
    table = OwnTable(judge, tmp_path / "table", kind)
    table.upsert(range(10))
    options = alone(kind)
    del options["hoodie.write.concurrency.mode"], options["hoodie.write.lock.provider"]
    with pytest.raises(JudgeError, match="requires the MOR table with simple bucket index"):
        table.hudi_upsert(range(10), options)


@pytest.mark.parametrize("name", GOLDEN)
def test_a_golden_table_is_resized_by_pyhudi_and_hudi_goes_on(
    judge: JudgeClient, tmp_path: Path, name: str
) -> None:
    table = GoldenTable(judge, name, tmp_path)
    table.upsert(range(0, 40, 2))
    table.delete([1, 3])
    table.agree()
    resize = table.plan_split(3)
    table.upsert(range(0, 40, 3))
    late = table.held(range(0, 40, 5))
    table.execute(resize)
    assert late().moved
    table.agree()
    table.execute(table.plan_merge(run=2))
    table.upsert(range(0, 40, 7))
    table.agree()
    table.agree_on_the_past()
    hudi_goes_on(judge, table, {**table.description["options"]})


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [*("mor_consistent_hash" + end for end in ("", "_split", "_merge"))]
)
def test_pyhudi_and_hudi_continue_a_golden_table_by_turns(
    judge: JudgeClient, tmp_path: Path, name: str
) -> None:
    """With a lock, as beside each other; then its buckets are Hudi's to resize."""
    table = GoldenTable(judge, name, tmp_path)
    options = {**table.description["options"], **BESIDE_PYHUDI}
    pyhudi.open_table(table.path, lock="file").alter.use_lock("file")
    for turn in range(2):
        table.upsert(range(turn, 40, 2))
        table.delete([turn])
        table.hudi_upsert(range(turn, 40, 3), options)
        table.agree()
        table.open().services.compact()
        table.agree()
    with pytest.raises(pyhudi.UnsupportedTableError, match="a lock that Apache Hudi takes"):
        table.open().services.resize()
