"""Inflight files that are created after their instant was archived or rolled back are ignored."""

from __future__ import annotations

import pytest

from archived_tables import Bench, content, rows
from faulty_storage import FaultyStorage
from memory_tables import TIMELINE
from pyhudi.plan.cleaning import CleanPolicy
from pyhudi.services.cleaning.execute import clean
from pyhudi.services.compaction.run import compact, compactions
from pyhudi.services.repair import repair_table
from pyhudi.storage.protocol import Folder
from pyhudi.write.begin import begun
from pyhudi.write.result import commit_metadata


def bench_with_archived_compaction() -> tuple[Bench, str]:
    """A table with rows that only archived writes brought, behind a compaction that is archived."""
    bench = Bench()
    bench.table("writer").upsert(rows(1, "old1", "old2"))
    bench.write(1, 2)
    requested = compactions(bench.session("planner")).schedule()
    assert requested is not None
    compact(bench.session("compactor"), plans=False)
    bench.table("writer").upsert(rows(2, "precious1", "precious2"))
    bench.write(*range(3, 14))
    bench.clock.ms += 3_600_000
    bench.write(14)
    clean(bench.session("cleaner"), CleanPolicy.commits(1))
    assert requested in bench.archive().archived
    return bench, requested


@pytest.mark.parametrize("action", ["compaction", "deltacommit", "replacecommit"])
def test_a_late_inflight_file_hides_nothing_from_readers_and_compactions(action: str) -> None:
    bench, requested = bench_with_archived_compaction()
    opened_before = bench.table("old")
    before = content(opened_before.read())
    late = f"{TIMELINE}/{requested}.{action}.inflight"
    bench.storage.create(late, b"")
    assert content(bench.table("new").read()) == before
    assert content(opened_before.read()) == before
    assert compact(bench.session("compactor")).results
    assert content(bench.table("new").read()) == before
    assert content(opened_before.read()) == before
    bench.storage.delete(late)
    assert content(bench.table("new").read()) == before


def test_an_executor_that_slept_until_its_plan_was_archived_costs_no_row() -> None:
    bench = Bench()
    bench.table("writer").upsert(rows(1, "old1", "old2"))
    bench.write(1, 2)
    requested = compactions(bench.session("planner")).schedule()
    assert requested is not None

    slept: list[str] = []

    class Sleepy(FaultyStorage):
        def create(self, path: str, data: bytes) -> bool:
            if path.endswith(".compaction.inflight") and not slept:
                slept.append(path)
                bench.clock.ms += 3_600_000  # its heartbeat grows old
                compact(bench.session("fast"), plans=False)
                bench.table("writer").upsert(rows(2, "precious1", "precious2"))
                bench.write(*range(3, 14))
                bench.clock.ms += 3_600_000
                bench.write(14)
                clean(bench.session("cleaner"), CleanPolicy.commits(1))
                assert requested in bench.archive().archived
            return super().create(path, data)

    compactions(bench.session("slow", Sleepy(bench.storage))).execute(requested)
    before = content(bench.table().read())
    assert slept
    assert {"old1", "precious1"} <= before.keys()
    compact(bench.session("compactor"))
    assert content(bench.table().read()) == before


@pytest.mark.parametrize("how", ["archive", "repair"])
def test_orphaned_inflight_files_are_swept_up(how: str) -> None:
    bench, requested = bench_with_archived_compaction()
    late = f"{TIMELINE}/{requested}.compaction.inflight"
    bench.storage.create(late, b"")
    if how == "archive":
        assert late in bench.archive().swept
    else:
        assert late in repair_table(bench.session("repairer"), 0).removed
    assert bench.storage.stat(late) is None


class Torn(FaultyStorage):
    """A local disk: listings of the timeline show what was made last, and miss an older file."""

    missed = "nothing"

    def list_folder(self, prefix: str) -> Folder:
        found = super().list_folder(prefix)
        there = tuple(stat for stat in found.objects if self.missed not in stat.path)
        return Folder(found.folders, there)


@pytest.mark.parametrize("writes", [0, 8])
@pytest.mark.parametrize("how", ["archive", "repair"])
def test_a_live_write_keeps_its_files_though_listings_miss_its_requested_one(
    how: str, writes: int
) -> None:
    bench = Bench()
    bench.write(1, 2, 3)
    torn = Torn(bench.storage)
    live = bench.session("live")
    with begun(live) as write:
        bench.write(*range(4, 4 + writes))
        bench.clock.sleep(10_000)
        pending = [s.path for s in bench.storage.list(TIMELINE) if write.requested in s.path]
        torn.missed = f"{write.requested}.deltacommit.requested"
        if how == "archive":
            bench.archive(storage=torn)
        else:
            repair_table(bench.session("repairer", torn), 0)
        assert [path for path in pending if bench.storage.stat(path) is None] == []
        assert len(pending) == 2
        assert len(bench.completed()) >= writes, "nothing behind it was archived"
        write.complete(commit_metadata([], "UPSERT"))
    assert write.requested in bench.completed()
    assert content(bench.table().read())["x"] == 3 + writes
