"""Cleaning, archiving, compaction, consumers, repair and verification beside virtual resizes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from pyhudi.format.files.log_reference import is_virtual_child
from pyhudi.format.table.concurrency_mode import ConcurrencyMode
from pyhudi.format.timeline.service_metadata import (
    SavepointMetadata,
    SavepointPartition,
    encode_savepoint_metadata,
)
from pyhudi.plan.archiving.policy import ArchivePolicy
from pyhudi.plan.cleaning import CleanPolicy
from pyhudi.services.repair import repair_table
from pyhudi.services.verification.result import FindingKind
from pyhudi.write.result import WriteResult
from resize_tables import ResizeTable

MODES: dict[str, dict[str, Any]] = {
    "event time": {"ordering": "ts"},
    "commit time": {"concurrency": ConcurrencyMode.OPTIMISTIC},
}
KEYS = "klmnopqrst"
DAY_MS = 24 * 3_600_000
ONE = CleanPolicy.commits(1)
ARCHIVE = ArchivePolicy(
    keep_min=2, keep_max=3, delta_commits=0, grace_ms=1_000, aborted_grace_ms=1_000
)


@pytest.fixture(params=MODES)
def table(request: pytest.FixtureRequest) -> ResizeTable:
    table = ResizeTable(is_virtual=True, **MODES[request.param])
    table.put(KEYS, 1)
    return table


def written(table: ResizeTable, stamps: Iterable[int]) -> list[WriteResult]:
    return [table.table("w").upsert(table.made("kz", stamp)) for stamp in stamps]


def child_logs(table: ResizeTable) -> list[str]:
    """The logs in file groups that virtual resizes make."""
    paths = [s.path for s in table.storage.list("d") if ".log." in s.path]
    return [p for p in paths if is_virtual_child(p.rpartition("/")[2][1:].partition("_")[0])]


def whole(table: ResizeTable) -> dict[str, str]:
    """What is in the table, which is whole."""
    verified = table.table("verifier").services.verify()
    assert verified, str(verified)
    return table.values()


def cleaned(table: ResizeTable, policy: CleanPolicy = ONE) -> None:
    table.table("cleaner").services.clean(policy).or_raise()


def compacted(table: ResizeTable) -> None:
    table.table("compactor").services.compact()


def test_a_clean_leaves_what_is_read_by_reference(table: ResizeTable) -> None:
    table.plan(3)
    written(table, range(2, 8))
    before, logs = whole(table), child_logs(table)
    assert logs
    cleaned(table)
    repair_table(table.session("repairer"))
    assert child_logs(table) == logs
    assert whole(table) == before


def test_a_state_before_the_resize_stays_readable_as_long_as_it_is_retained(
    table: ResizeTable,
) -> None:
    requested = table.plan(3)
    [inside] = written(table, (2,))
    assert inside.completed is not None
    before = table.rows(as_of=inside.completed)
    table.resizes().execute(requested)
    written(table, (3,))
    compacted(table)
    written(table, (4,))
    cleaned(table, CleanPolicy.commits(5))
    assert table.rows(as_of=inside.completed) == before
    written(table, range(5, 12))
    cleaned(table)
    assert not [path for path in child_logs(table) if inside.requested in path]
    assert whole(table)["k"] == "k11"


def test_a_savepoint_holds_the_logs_that_its_own_refer_to(table: ResizeTable) -> None:
    requested = table.plan(3)
    [inside] = written(table, (2,))
    assert inside.completed is not None
    referred = [path for path in child_logs(table) if inside.requested in path]
    own = {s.path for s in table.storage.list("d")} - set(child_logs(table))
    saved(table, inside, sorted(own))
    before = table.rows(as_of=inside.completed)
    table.resizes().execute(requested)
    [later] = written(table, (3,))
    compacted(table)
    written(table, range(5, 12))
    cleaned(table)
    left = {s.path for s in table.storage.list("d")}
    assert referred
    assert set(referred) <= left
    assert own <= left
    assert not [path for path in left if later.requested in path]
    assert len(before) == len(KEYS) + 1


def saved(table: ResizeTable, write: WriteResult, paths: list[str]) -> None:
    names = tuple(path.rpartition("/")[2] for path in paths)
    metadata = SavepointMetadata("me", 0, "", {"d": SavepointPartition("d", names)})
    path = f".hoodie/timeline/{write.requested}_{write.completed}.savepoint"
    table.storage.write(path, encode_savepoint_metadata(metadata, bytes(16)))


def test_a_consumer_reads_through_a_resize(table: ResizeTable) -> None:
    start = table.table("c").consumers.register("me").since
    requested = table.plan(3)
    inside = table.table("w").upsert(table.made("mn", 2)).completed
    table.resizes().execute(requested)
    written(table, range(4, 10))
    part, every = table.changed(start, inside), table.changed(start, None)
    assert (len(part), len(every)) == (2, 4)
    for _ in range(3):
        cleaned(table)
        table.clock.ms += DAY_MS
        table.table("archiver").services.archive(ARCHIVE)
    assert (table.changed(start, inside), table.changed(start, None)) == (part, every)


def test_rows_stay_when_the_resize_and_its_writes_are_archived(table: ResizeTable) -> None:
    requested = table.plan(3)
    written(table, (2, 3))
    table.resizes().execute(requested)
    for stamp in range(4, 14):
        written(table, (stamp,))
        cleaned(table)
        table.clock.ms += DAY_MS
        table.table("archiver").services.archive(ARCHIVE)
    assert not any(requested in name for name in table.names())
    assert whole(table) == {k: f"{k}1" for k in KEYS if k != "k"} | {"k": "k13", "z": "z13"}


def test_children_are_compacted_like_any_bucket(table: ResizeTable) -> None:
    requested = table.plan(3)
    written(table, (2, 3))
    compacted(table)
    before = whole(table)
    table.resizes().execute(requested)
    compacted(table)
    assert whole(table) == before


def test_verify_names_a_log_that_is_gone_while_it_is_read_by_reference(table: ResizeTable) -> None:
    table.plan(3)
    written(table, (2,))
    whole(table)
    lost = child_logs(table)[0]
    table.storage.delete(lost)
    found = table.table("v").services.verify().findings
    assert FindingKind.LOST in {f.kind for f in found if f.path == lost}


def test_inspection_shows_the_buckets_that_readers_see(table: ResizeTable) -> None:
    requested = table.plan(3)
    written(table, (2,))
    inspect = table.table("looker").inspect
    assert inspect.buckets().num_rows == 1
    assert sum(row["latest"] for row in inspect.file_slices().to_pylist()) == 1
    table.resizes().execute(requested)
    assert inspect.buckets().num_rows == 3
    assert sum(row["latest"] for row in inspect.file_slices().to_pylist()) == 3
