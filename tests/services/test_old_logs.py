"""A write that completes on top of a compaction it did not see: archiving waits for its group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa

import pyhudi
from archived_tables import POLICY, SCHEMA, Bench, check_whole, content, rows
from faulty_storage import FaultyStorage
from many_writers.services_by_hand import begin_service, replacement
from memory_tables import MemoryTable
from opened_tables import table_on
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.timeline.commit_metadata import CommitMetadata, encode_commit_metadata
from pyhudi.format.timeline.instant import Action
from pyhudi.services.archiving.execute import Archiver
from pyhudi.services.compaction.run import compact
from pyhudi.settings import WriteSettings
from pyhudi.write.begin import write_spec
from worlds import still_world

GROUP = "00000000-0000-0000-0000-000000000000-0"
#: A policy by which no group is worth the work.
RELUCTANT = pyhudi.CompactionPolicy(min_delta_commits=99)


def overtaken(bench: Bench, ts: int, *ids: str, overtake: Callable[[], object]) -> str:
    """The instant of a write during which something else happens; its rows are there before."""
    settings = WriteSettings(buffer_bytes_max=1)
    table = table_on(bench.storage, still_world(bench.clock, "slow", seed=ts), settings)

    def stream() -> Iterator[pa.RecordBatch]:
        for id_ in ids:
            yield from rows(ts, id_).to_batches()
        overtake()
        yield from rows(ts, "end").to_batches()

    return table.upsert(pa.RecordBatchReader.from_batches(SCHEMA, stream())).instant


def compacted(bench: Bench) -> None:
    assert compact(bench.session("compactor")).results


def held_table() -> tuple[Bench, str]:
    """A table with an old log, and enough later writes for its write to go."""
    bench = Bench()
    bench.write(1, 2)
    held = overtaken(bench, 50, "late0", "late1", overtake=lambda: compacted(bench))
    bench.write(3, 4, 5, 6, 7, 8)
    bench.clock.sleep(10_000)
    return bench, held


def test_archiving_stops_at_the_write_and_names_the_file_group() -> None:
    bench, held = held_table()
    plan = bench.preview()
    assert plan.held_by == (GROUP,)
    assert GROUP in str(plan).splitlines()[0]
    done = bench.archive()
    assert done.archived
    assert done.held_by == (GROUP,)
    assert f"held up until a compaction of {GROUP}" in str(done)
    assert min(bench.completed()) == held
    again = bench.archive()
    assert again.held_by == (GROUP,)
    assert not again.did_anything
    check_whole(bench)


def test_a_compaction_takes_the_group_though_it_is_not_worth_the_work_and_archiving_goes_on() -> (
    None
):
    bench, held = held_table()
    before = content(bench.table().read())
    bench.archive()
    preview = compact(bench.session("compactor"), RELUCTANT, dry_run=True).preview
    assert "older than the base file, so the group comes first" in str(preview)
    assert compact(bench.session("compactor"), RELUCTANT).results
    bench.write(9)  # what the log's end decided stays
    bench.clock.sleep(10_000)
    done = bench.archive()
    assert held in done.archived
    assert done.held_by == ()
    assert content(bench.table().read()) == {**before, "x": 9, "k4": 9}
    assert compact(bench.session("compactor"), RELUCTANT).preview.is_empty
    check_whole(bench)


def test_a_write_that_opens_a_partition_late_stays_too() -> None:
    """Its seed is newer than the write, as with Spark and with streams of rows."""
    schema = pa.schema([*SCHEMA, ("day", pa.string())])
    memory = MemoryTable(schema, ordering="ts", partition_by="day", buckets=SimpleBuckets(1))
    table = memory.table("writer")

    def day(name: str, ts: int) -> pa.RecordBatch:
        return pa.record_batch([[f"{name}{ts}"], [ts], [name]], schema=schema)

    table.upsert(pa.Table.from_batches([day("a", 1)]))
    batches = [day("a", 2), day("b", 2), day("c", 2)]
    stream = pa.RecordBatchReader.from_batches(schema, batches)
    held = memory.table("streaming", buffer_bytes_max=1).upsert(stream).instant
    for ts in range(3, 9):
        table.upsert(pa.Table.from_batches([day("a", ts)]))
    memory.clock.sleep(10_000)
    done = memory.table("archiver").services.archive(POLICY)
    assert done.archived
    assert held not in done.archived
    assert done.held_by == (f"b/{GROUP}", f"c/{GROUP}")
    table.services.compact(RELUCTANT)
    table.upsert(pa.Table.from_batches([day("a", 9)]))
    memory.clock.sleep(10_000)
    assert held in memory.table("archiver").services.archive(POLICY).archived


def test_a_base_file_that_came_after_the_data_files_were_listed_counts() -> None:
    """An archiver looks before it takes the lock; the compaction completes in between."""
    bench = Bench()
    bench.write(1, 2)

    def plan_one() -> None:
        compact(bench.session("planner"), plan_only=True)

    held = overtaken(bench, 50, "late0", "late1", overtake=plan_one)
    bench.write(3, 4, 5, 6, 7, 8)
    bench.clock.sleep(10_000)
    session = bench.session("archiver")
    archiver = Archiver(session.log, session.loader.load, POLICY, is_mor=True)
    assert archiver.plan().leaving  # up to the pending compaction; data files were listed for it
    assert compact(bench.session("executor"), plans=False).results
    bench.write(9)
    bench.clock.sleep(10_000)
    done = archiver.run()
    assert done.held_by == (GROUP,)
    assert min(bench.completed()) == held


def test_a_replaced_group_holds_nothing_up() -> None:
    bench, held = held_table()
    session = bench.session("overwriter")
    service = begin_service(session, Action.REPLACECOMMIT, b"")
    group = FileGroupId("", GROUP)
    service.complete(replacement([group], write_spec(session, "").avro_schema, "INSERT_OVERWRITE"))
    schema = {"schema": write_spec(session, "").avro_schema}
    for _ in range(6):
        begun = begin_service(session, Action.DELTACOMMIT, b"")
        begun.complete(encode_commit_metadata(CommitMetadata({}, extra_metadata=schema), bytes(16)))
    bench.clock.sleep(10_000)
    done = bench.archive()
    assert held in done.archived
    assert done.held_by == ()
    assert min(bench.completed()) == service.requested  # it hides the group


def test_data_files_are_listed_no_more_often_than_before() -> None:
    bench, _ = held_table()
    watched = FaultyStorage(bench.storage)
    bench.archive(storage=watched)
    seen = [(o.name, o.path) for o in watched.trace]
    assert seen.count(("list_folder", "")) == 1


def test_services_keep_the_timeline_short_though_a_write_spans_every_compaction() -> None:
    upkeep = pyhudi.Upkeep(
        compaction=pyhudi.CompactionPolicy(min_delta_commits=99, trigger_delta_commits=2),
        clean=pyhudi.CleanPolicy.commits(2),
        archive=replace(POLICY, grace_ms=0),
    )
    bench = Bench()
    bench.write(1)
    longest, compactions = 0, 0

    def served() -> None:
        nonlocal compactions
        done = bench.table("services").services.run(upkeep)
        compactions += len(done.compaction.results if done.compaction else ())

    overtaken(bench, 50, "late", overtake=lambda: compacted(bench))
    for ts in range(60, 100):
        overtaken(bench, ts, f"late{ts % 5}", overtake=served)
        bench.clock.sleep(10_000)
        longest = max(longest, len(bench.completed()))
    assert compactions >= 10
    assert longest <= 15
    expected = {"late": 50, "end": 99, **{f"late{ts % 5}": ts for ts in range(60, 100)}}
    found = content(bench.table().read())
    assert {key: found[key] for key in expected} == expected
