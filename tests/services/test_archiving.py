"""Archiving: what is archived, what stays, and that readers see no difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from archived_tables import (
    DAY_MS,
    HISTORY,
    POLICY,
    SETTINGS,
    Bench,
    check_whole,
    content,
    rows,
    rubbish,
    settled_reads,
    some,
    written,
)
from faulty_storage import Effect, Fault, FaultyStorage
from many_writers.services_by_hand import begin_service, clean, plan_clustering, replacement
from memory_tables import TIMELINE
from pyhudi.commit.pruning import prune
from pyhudi.errors import HudiError, InvalidRequestError, UnavailableError
from pyhudi.format.files.file_names import FileGroupId, parse_data_file
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.table_config import TableType
from pyhudi.format.timeline.archive import (
    VERSION_FILE,
    ArchivedInstant,
    decode_manifest,
    encode_archive_file,
    manifest_name,
    parse_manifest_name,
)
from pyhudi.format.timeline.commit_metadata import CommitMetadata, encode_commit_metadata
from pyhudi.format.timeline.decision_entry import LOG_FOLDER, parse_entry_path
from pyhudi.format.timeline.instant import Action
from pyhudi.read.archive import History
from pyhudi.services.archiving.execute import Archiver
from pyhudi.services.archiving.facts import ServiceMemory, recent_times
from pyhudi.services.archiving.result import ArchiveResult
from pyhudi.services.archiving.run import archive, is_archiving_due
from pyhudi.session.session import TableSession
from pyhudi.storage.locks.file_lock import LOCK_PATH
from pyhudi.storage.objects.checksums import checked_path, checksum_path, is_checksum
from pyhudi.write.begin import write_spec

every_type = pytest.mark.parametrize("table_type", list(TableType))


@every_type
def test_every_read_is_the_same_before_and_after(table_type: TableType) -> None:
    objects, reads, times = written(table_type)
    bench = Bench.of(objects)
    old = bench.table("opened before")
    assert content(old.read()) == reads["now"]
    done = bench.archive()
    assert len(done.archived) >= 7
    assert settled_reads(bench, times) == reads
    assert content(old.read()) == reads["now"]
    assert content(old.changes(since=times[1])) == reads[f"since {times[1]}"]
    assert len(bench.completed()) == POLICY.keep_min


@every_type
def test_each_instant_is_archived_once_with_all_its_bytes(table_type: TableType) -> None:
    objects, _, _ = written(table_type)
    bench = Bench.of(objects)
    files = {path: data for path, data, _ in objects}
    done = bench.archive()
    found = bench.archived()
    assert sorted(i.requested for i in found) == sorted(done.archived)
    assert not {i.requested for i in bench.active()} & set(done.archived)
    for instant in found:
        path = f"{TIMELINE}/{instant.requested}_{instant.completed}.{instant.action}"
        assert instant.metadata == files[path]
        assert instant.plan is None


def test_a_writer_knows_whether_archiving_is_due_without_asking() -> None:
    bench = Bench()
    watched = FaultyStorage(bench.storage)
    table, memory = bench.table("long lived", watched), ServiceMemory()
    for n in range(POLICY.keep_max - 2):
        table.upsert(rows(n, "x"))
        assert not is_archiving_due(table._opening.session(), memory, POLICY)
    table.upsert(rows(9, "x"))
    before = len(watched.trace)
    session = table._opening.session()
    assert is_archiving_due(session, memory, POLICY)
    assert len(watched.trace) - before <= 1  # the table's properties
    bench.clock.sleep(10_000)
    assert archive(session, POLICY, memory=memory).archived  # type: ignore[union-attr]
    assert not is_archiving_due(session, memory, POLICY)


def test_a_dry_run_says_why_and_changes_nothing() -> None:
    objects, _, _ = written()
    bench = Bench.of(objects)
    plan = bench.preview()
    assert "stays" in str(plan)
    assert "the newest 2 writes stay" in str(plan)
    kept = {path: data for path, data, _ in bench.objects()}
    assert kept == {path: data for path, data, _ in objects}
    assert len(bench.archive().archived) == len(plan.leaving)


def test_a_second_run_finds_nothing_to_do() -> None:
    bench = Bench.of(written()[0])
    bench.archive()
    before = {path: data for path, data, _ in bench.objects() if HISTORY in path}
    assert bench.archive() == ArchiveResult()
    assert {path: data for path, data, _ in bench.objects() if HISTORY in path} == before


def test_a_repeated_write_finds_its_first_attempt_in_the_archive() -> None:
    bench = Bench.of(written()[0])
    first = {n: bench.table().upsert(rows(n, "x"), write_id=f"w{n}").instant for n in (2, 7)}
    assert bench.archive().archived
    for n, instant in first.items():
        again = bench.table("again").upsert(rows(n, "x", "not written"), write_id=f"w{n}")
        assert (again.instant, again.rows) == (instant, 2)
    with pytest.raises(InvalidRequestError, match="was UPSERT, not DELETE"):
        bench.table().delete(pa.table({"id": ["x"]}), write_id="w2")
    assert "not written" not in content(bench.table().read())


def test_a_repeated_write_whose_attempt_was_rolled_back_and_archived_is_done() -> None:
    bench = Bench()
    bench.write(1, 2)
    stuck = Fault(Effect.FAIL, operation="create", path="*/log/*", nth=2, times=None)
    with pytest.raises(HudiError):
        bench.table("dead", FaultyStorage(bench.storage, [stuck])).upsert(
            rows(9, "x"), write_id="tried"
        )
    bench.clock.sleep(SETTINGS.heartbeat_timeout_ms + 1)
    bench.write(3, 4, 5, 6, 7)
    bench.clock.sleep(10_000)
    done = bench.archive()
    assert [i.action for i in bench.archived()].count("rollback") == 1
    assert done.archived
    assert bench.table("again").upsert(rows(9, "x"), write_id="tried").rows == 1
    assert content(bench.table().read())["x"] == 9


def test_a_writer_that_was_open_goes_on_after_others_archived() -> None:
    bench = Bench(TableType.COPY_ON_WRITE)
    table = bench.table("long lived")
    for n in range(8):
        table.upsert(rows(n, f"k{n}"))
    bench.clock.sleep(10_000)
    assert bench.archive().archived
    table.upsert(rows(8, "k0"))
    assert content(table.read())["k0"] == 8
    assert len(content(table.read())) == 8


# ---- what abandoned writes left


def abandoned(bench: Bench, *, keeps_markers: bool = True) -> tuple[str, str, bytes]:
    """A write that was abandoned after the second of eight: its instant, a file of it, its rows."""
    bench.write(1, 2)
    dead = bench.die(99)
    path = next(s.path for s in bench.storage.list("") if dead in s.path and ".log." in s.path
                and ".hoodie" not in s.path)  # fmt: skip
    data = bench.storage.read(path)
    bench.clock.sleep(SETTINGS.heartbeat_timeout_ms + 1)
    bench.write(3, 4, 5, 6, 7, 8)
    assert bench.storage.stat(path) is None
    if not keeps_markers:  # as after a rollback by another engine
        for stat in list(bench.storage.list(f".hoodie/.temp/{dead}")):
            bench.storage.delete(stat.path)
    bench.clock.sleep(10_000)
    return dead, path, data


@pytest.mark.parametrize("keeps_markers", [True, False])
def test_no_late_file_of_an_abandoned_write_becomes_visible(keeps_markers: bool) -> None:
    """Scenario 19 of Hudi: what is older than the active timeline counts as committed."""
    bench = Bench()
    dead, path, data = abandoned(bench, keeps_markers=keeps_markers)
    bench.storage.write(path, data)  # the zombie wakes up
    before = content(bench.table().read())
    assert before["x"] == 8
    assert "dead" not in before
    bench.clock.sleep(10_000)
    done = bench.archive()
    assert done.swept == (path,)
    assert min(bench.completed()) > dead
    assert content(bench.table().read()) == before
    assert [s.path for s in bench.storage.list("") if dead in s.path] == []


def test_an_orphan_would_be_visible_if_archiving_did_not_remove_it() -> None:
    bench = Bench()
    _, path, data = abandoned(bench)
    bench.archive()
    bench.storage.write(path, data)
    assert content(bench.table().read())["x"] == 99


def test_archiving_waits_before_a_write_that_was_abandoned_a_moment_ago() -> None:
    bench = Bench()
    dead, path, data = abandoned(bench)
    policy = replace(POLICY, aborted_grace_ms=DAY_MS)
    plan = bench.preview(policy)
    assert f"{dead} was aborted, and a file of it may still appear" in str(plan)
    bench.archive(policy)
    bench.storage.write(path, data)
    assert content(bench.table().read())["x"] == 8
    bench.clock.sleep(DAY_MS + 2_000)
    assert bench.archive(policy).swept == (path,)
    assert content(bench.table().read())["x"] == 8


def test_a_completed_file_that_a_zombie_brings_back_is_removed_by_the_next_run() -> None:
    objects, reads, times = written()
    bench = Bench.of(objects)
    files = {path: data for path, data, _ in objects}
    first = bench.archive().archived[1]
    names = [path for path in files if path.startswith(f"{TIMELINE}/{first}")]
    assert len(names) == 3
    for path in names:
        bench.storage.write(path, files[path])
    done = bench.archive()
    assert done.finished == (first,)
    assert settled_reads(bench, times[:3]) == some(reads, times[:3])
    check_whole(bench)


def test_what_is_pending_keeps_a_write_before_it() -> None:
    bench = Bench()
    bench.write(1, 2, 3)
    service = plan_clustering(bench.session("service"), [])
    bench.write(4, 5, 6, 7)
    bench.clock.sleep(10_000)
    assert bench.archive().archived
    assert [r < service.requested for r in bench.completed()].count(True) == 1
    service.complete(replacement([], "{}", "CLUSTER"))


# ---- what is on no timeline


def forgotten(bench: Bench, *before: int) -> tuple[str, str]:
    """A write of which every trace but its data file was removed; both names."""
    bench.write(*before)
    requested = bench.table("forgotten").upsert(rows(99, "x", "ghost")).instant
    bench.write(3, 4, 5, 6, 7, 8)
    [path] = [s.path for s in bench.storage.list("") if requested in s.path
              and parse_data_file(s.path)]  # fmt: skip
    for stat in list(bench.storage.list(TIMELINE)):
        if stat.path.startswith(f"{TIMELINE}/{requested}"):
            bench.storage.delete(stat.path)
    bench.clock.sleep(10_000)
    return requested, path


def test_archiving_stops_before_a_file_of_an_instant_that_is_on_no_timeline() -> None:
    bench = Bench()
    unknown, path = forgotten(bench, 1, 2)
    before = content(bench.table().read())
    assert before["x"] == 8
    first = str(bench.preview()).splitlines()[0]
    assert f"{unknown} is on no timeline, and its file {path} would become visible" in first
    done = bench.archive()
    assert done.archived
    assert min(bench.completed()) < unknown
    assert done.stopped_at == path
    assert f"stopped at {path}" in str(done)
    assert content(bench.table().read()) == before
    again = bench.archive()
    assert again == ArchiveResult(stopped_at=path)
    assert not again.did_anything


def test_a_repair_names_the_file_that_archiving_stops_at_if_its_write_completed_by_the_log() -> (
    None
):
    bench = Bench()
    _, path = forgotten(bench, 1, 2)
    bench.clock.sleep(DAY_MS)
    assert bench.archive().stopped_at == path
    assert bench.table("service").services.repair() == pyhudi.Repaired((), (), (path,))
    assert bench.storage.stat(path) is not None


def test_a_repair_removes_the_file_that_archiving_stops_at_once_it_is_old() -> None:
    bench = Bench()
    known, named = forgotten(bench, 1, 2)
    unknown = f"{int(known) + 1}"  # of an instant that the decision log does not know either
    path = named.replace(known, unknown)
    bench.storage.create(path, bench.storage.read(named))
    bench.storage.delete(named)
    before = content(bench.table().read())
    assert bench.table("early").services.repair().removed == ()
    bench.clock.sleep(DAY_MS)
    bench.table("service").services.run(pyhudi.Upkeep(archive=None))
    assert bench.storage.stat(path) is not None, "only a repair removes what is on no timeline"
    verdicts = bench.table("cleaner").services.clean(dry_run=True).files.to_pylist()
    [reason] = [row["reason"] for row in verdicts if row["path"] == path]
    assert reason == f"of {unknown}, which is not on the timeline: see services.repair()"
    assert bench.table("late").services.repair().removed == (path,)
    assert len(bench.archive().archived) > 1
    assert min(bench.completed()) > unknown
    assert content(bench.table().read()) == before


def test_the_work_of_an_archiver_that_died_is_not_finished_past_such_a_file() -> None:
    """All of it is archived, and nothing off the timeline; then the file comes."""
    bench = Bench()
    unknown, path = forgotten(bench, 1, 2)
    data = bench.storage.read(path)
    bench.storage.delete(path)
    dying = FaultyStorage(bench.storage, [Fault(Effect.FAIL, "delete", f"{TIMELINE}/2*", 1, None)])
    policy = replace(POLICY, file_instants=100)
    with pytest.raises(UnavailableError):
        bench.archive(policy, storage=dying)
    assert max(i.requested for i in bench.archived()) > unknown > min(bench.completed())
    bench.storage.write(path, data)
    before = content(bench.table().read())
    assert bench.archive(policy).stopped_at == path
    assert content(bench.table().read()) == before
    assert before["x"] == 8
    bench.storage.delete(path)
    bench.archive(policy)
    assert min(bench.completed()) > unknown
    check_whole(bench)


def test_data_files_are_listed_only_where_the_timeline_is_to_begin_later() -> None:
    bench = Bench()
    watched = FaultyStorage(bench.storage)
    archiver = bench.session("archiver", watched)
    listings = []
    for numbers in (range(2), range(2, 5), range(5, 8)):
        bench.write(*numbers)
        bench.clock.sleep(10_000)
        for _ in range(2):
            before = len(watched.trace)
            archive(archiver, POLICY)
            seen = [(o.name, o.path) for o in watched.trace[before:]]
            listings.append(seen.count(("list_folder", "")))
    assert listings == [0, 0, 1, 0, 1, 0]


# ---- what others need


def test_the_newest_clean_with_a_bound_stays_and_what_it_retained() -> None:
    bench = Bench()
    bench.write(1, 2, 3)
    kept = bench.completed()[3]
    clean(bench.session("cleaner"), [], earliest=bench.completed()[1])
    clean(bench.session("cleaner"), [], earliest=kept)
    bench.write(4, 5, 6, 7, 8)
    bench.clock.sleep(10_000)
    done = bench.archive()
    assert done.archived
    assert min(bench.completed()) == kept
    cleans = [i for i in bench.active() if i.action is Action.CLEAN and i.completed]
    assert len(cleans) == 2  # both are behind what stays


def test_archived_cleans_still_say_how_far_back_the_table_can_be_read() -> None:
    bench = Bench()
    bench.write(1, 2)
    first = bench.completed()[1]
    time = next(i.completed for i in bench.active() if i.requested == first and i.completed)
    clean(bench.session("cleaner"), [], earliest=bench.completed()[2])
    bench.write(3, 4, 5, 6, 7, 8)
    clean(bench.session("cleaner"), [], earliest="")  # it says nothing
    bench.clock.sleep(10_000)
    session = bench.session()
    archiver = Archiver(session.log, session.loader.load, POLICY, is_mor=True)
    with pytest.raises(InvalidRequestError, match="can no longer be read"):
        bench.table().read(as_of=time)
    archiver.run()
    with pytest.raises(InvalidRequestError, match="can no longer be read"):
        bench.table().read(as_of=time)


def test_a_consumer_that_has_not_read_holds_archiving_back() -> None:
    bench = Bench.of(written()[0])
    times = written()[2]
    plan = bench.preview(consumers_since=times[2])
    assert len(plan.leaving) == 3
    assert f"a consumer has read up to {times[2]}" in str(plan)
    assert len(bench.archive(consumers_since=times[2]).archived) == 3


def test_a_write_that_hides_file_groups_stays_while_they_have_files() -> None:
    bench = Bench()
    bench.write(1, 2)
    session = bench.session("overwriter")
    state = bench.table()  # its files belong to one group
    assert content(state.read())
    group = next(
        FileGroupId("", name.file_id)
        for s in bench.storage.list("")
        if (name := parse_data_file(s.path)) is not None
    )
    service = begin_service(session, Action.REPLACECOMMIT, b"")
    service.complete(replacement([group], write_spec(session, "").avro_schema, "INSERT_OVERWRITE"))
    files = [s.path for s in bench.storage.list("") if parse_data_file(s.path)]
    for _ in range(6):
        begun = begin_service(session, Action.DELTACOMMIT, b"")
        begun.complete(empty_commit(session))
    bench.clock.sleep(10_000)
    plan = bench.preview()
    assert "it hides file groups that still have files" in str(plan)
    bench.archive()
    assert min(bench.completed()) == service.requested
    assert content(bench.table().read()) == {}
    for path in files:
        bench.storage.delete(path)  # cleaned
    for _ in range(4):
        begin_service(session, Action.DELTACOMMIT, b"").complete(empty_commit(session))
    bench.clock.sleep(10_000)
    bench.archive()
    assert min(bench.completed()) > service.requested
    assert content(bench.table().read()) == {}


def empty_commit(session: TableSession) -> bytes:
    extra = {"schema": write_spec(session, "").avro_schema}
    return encode_commit_metadata(CommitMetadata({}, extra_metadata=extra), bytes(16))


# ---- the end of the decision log


def test_what_the_end_of_the_log_decided_stays_however_old_it_is() -> None:
    """A process that reads the log now applies its last entry if the file is not there."""
    bench = Bench()
    bench.write(1, 2)
    slow = begin_service(bench.session("slow"), Action.DELTACOMMIT, b"")
    bench.write(3, 4, 5, 6, 7, 8)
    slow.complete(empty_commit(bench.session("slow")))  # the oldest request, and the tail
    bench.clock.sleep(10 * DAY_MS)
    bench.archive()
    assert slow.requested in bench.completed()
    names = bench.active()
    bench.session("fresh")
    session = bench.session("fresh")
    session.log.refresh()
    assert bench.active() == names
    bench.write(9)
    bench.clock.sleep(10_000)
    bench.archive()
    assert slow.requested not in bench.completed()


def test_what_was_decided_within_the_grace_stays() -> None:
    bench = Bench()
    bench.write(1, 2, 3, 4)
    written_before = bench.completed()
    bench.clock.sleep(600_000)
    bench.write(5, 6, 7, 8)
    policy = replace(POLICY, grace_ms=300_000)
    plan = bench.preview(policy)
    assert "its entry in the decision log is recent" in str(plan)
    # The last write before the pause stays too: its entry was the last one until a moment ago.
    assert len(plan.leaving) == 5
    assert plan.leaving[-1].requested < written_before[-1]
    bench.clock.sleep(600_000)
    assert len(bench.preview(policy).leaving) == 8


def test_a_pruned_log_holds_nothing_back_for_long() -> None:
    bench = Bench()
    for _ in range(60):
        begin_service(bench.session("w"), Action.DELTACOMMIT, b"").complete(
            empty_commit(bench.session("w"))
        )
    bench.clock.sleep(8 * DAY_MS)
    session = bench.session("pruner")
    session.log.refresh()
    session.log.clock.read_ms()
    prune(session.log)
    numbers = [parse_entry_path(s.path) for s in bench.storage.list(LOG_FOLDER)]
    assert min(n for n in numbers if n is not None) > 1
    assert recent_times(session.log, bench.clock.ms) == (session.log.tail.time,) * 2  # type: ignore[union-attr]
    assert recent_times(session.log, 0) == ("", session.log.tail.time)  # type: ignore[union-attr]
    assert len(bench.archive().archived) == 58


# ---- the lock of a shared table


def test_the_lock_of_a_shared_table_is_held() -> None:
    bench = Bench(lock=LockKind.FILE)
    bench.write(1, 2, 3, 4, 5, 6)
    bench.clock.sleep(10_000)
    seen: list[str] = []

    class Watching(FaultyStorage):
        def create(self, path: str, data: bytes) -> bool:
            if HISTORY in path:
                assert bench.storage.stat(LOCK_PATH) is not None
                seen.append(path)
            return super().create(path, data)

        def delete(self, path: str) -> None:
            if path.startswith(TIMELINE):
                assert bench.storage.stat(LOCK_PATH) is not None
            super().delete(path)

    assert bench.archive(storage=Watching(bench.storage)).archived
    assert seen
    assert bench.storage.stat(LOCK_PATH) is None


def test_archiving_stops_when_the_lock_is_lost_and_the_next_run_finishes() -> None:
    bench = Bench(lock=LockKind.FILE)
    bench.write(1, 2, 3, 4, 5, 6)
    before = content(bench.table().read())
    bench.clock.sleep(10_000)

    class Losing(FaultyStorage):
        def create(self, path: str, data: bytes) -> bool:
            if path.endswith(".parquet"):
                bench.storage.delete(LOCK_PATH)  # another process took it for stale
            return super().create(path, data)

    with pytest.raises(UnavailableError, match="lock was lost"):
        bench.archive(storage=Losing(bench.storage))
    assert bench.storage.stat(f"{HISTORY}/{VERSION_FILE}") is None
    assert content(bench.table().read()) == before
    assert bench.archive().archived
    check_whole(bench)
    assert content(bench.table().read()) == before


# ---- levels, and what is swept up


def test_levels_are_merged_so_that_files_stay_few() -> None:
    bench = Bench()
    policy = replace(POLICY, merge_files=3, file_instants=1)
    bench.write(*range(1, 6))
    for n in range(40):
        bench.write(n)
        bench.clock.sleep(10_000)
        bench.archive(replace(policy, keep_max=3))
    version = int(bench.storage.read(f"{HISTORY}/{VERSION_FILE}"))
    manifest = decode_manifest(bench.storage.read(f"{HISTORY}/{manifest_name(version)}"), "")
    levels = Counter(entry.file.level for entry in manifest.entries)
    assert max(levels) >= 2
    assert max(levels.values()) < 3
    check_whole(bench)
    names = [s.path.rpartition("/")[2] for s in bench.storage.list(HISTORY)]
    manifests = [name for name in names if parse_manifest_name(name) is not None]
    assert len(manifests) <= POLICY.manifests_kept + 3  # of the last run, which are recent
    assert rubbish(bench) == []


def test_levels_are_merged_without_a_grace_too() -> None:
    bench = Bench()
    policy = replace(POLICY, merge_files=3, file_instants=1, keep_max=3, grace_ms=0)

    class Ticking(FaultyStorage):
        def create_from(self, path: str, chunks: Iterable[bytes]) -> int | None:
            made = super().create_from(path, chunks)
            bench.clock.sleep(5)
            return made

    merged = 0
    for n in range(20):
        bench.write(n)
        bench.clock.sleep(10_000)
        merged += bench.archive(policy, storage=Ticking(bench.storage)).merged
    assert merged >= 12
    check_whole(bench)


def test_an_instant_in_two_files_counts_once_and_is_merged_into_one() -> None:
    """Hudi's archiver may do so when it is interrupted."""
    objects, reads, times = written()
    bench = Bench.of(objects)
    bench.archive(replace(POLICY, merge_files=100, file_instants=1_000))
    twice = bench.archived()[:3]
    data = encode_archive_file(twice)
    name = f"{twice[0].requested}_{twice[-1].requested}_0.parquet"
    bench.storage.write(f"{HISTORY}/{name}", data)
    manifest = bench.storage.read(f"{HISTORY}/{manifest_name(1)}")
    entry = f'{{"fileName": "{name}", "fileLen": {len(data)}}}, '.encode()
    grown = manifest.replace(b'"files" : [ ', b'"files" : [ ' + entry)
    bench.storage.write(f"{HISTORY}/{manifest_name(2)}", grown)
    bench.storage.write(f"{HISTORY}/{VERSION_FILE}", b"2")
    assert len(bench.archived()) == len({i.requested for i in bench.archived()}) + 3
    assert settled_reads(bench, times[:4]) == some(reads, times[:4])
    bench.write(9, 10, 11)
    bench.clock.sleep(10_000)
    assert bench.archive().merged
    check_whole(bench)


def test_a_name_that_a_dead_archiver_took_for_other_instants_is_left_alone() -> None:
    objects, reads, times = written()
    bench = Bench.of(objects)
    leaving = bench.preview().leaving
    first, last = leaving[0], leaving[2]
    assert first.completed is not None
    other = ArchivedInstant(first.requested, first.completed, first.action.value)
    path = f"{HISTORY}/{first.requested}_{last.requested}_0.parquet"
    bench.storage.write(path, encode_archive_file([other]))
    bench.archive()
    check_whole(bench)
    assert settled_reads(bench, times[:4]) == some(reads, times[:4])
    assert [i for i in bench.archived() if i.metadata is None] == []


def test_the_archive_reads_what_hudi_left_half_done() -> None:
    """Hudi deletes `_version_` before it writes it, and may die; a torn manifest never counted."""
    objects, reads, times = written()
    bench = Bench.of(objects)
    bench.archive()
    version = int(bench.storage.read(f"{HISTORY}/{VERSION_FILE}"))
    bench.storage.delete(f"{HISTORY}/{VERSION_FILE}")
    assert settled_reads(bench, times[:3]) == some(reads, times[:3])
    bench.storage.write(f"{HISTORY}/{VERSION_FILE}", str(version).encode())
    bench.storage.write(f"{HISTORY}/{manifest_name(version + 1)}", b'{ "files" : [ {')
    bench.write(9, 10, 11)
    bench.clock.sleep(10_000)
    assert bench.archive().archived
    check_whole(bench)


def test_checksums_of_hadoop_go_with_their_files_and_never_speak_of_another_version() -> None:
    bench = Bench.of(written()[0])
    bench.archive()
    version = f"{HISTORY}/{VERSION_FILE}"
    objects = [s.path for s in bench.storage.list(TIMELINE) if not s.path.endswith(".keep")]
    for path in objects:
        bench.storage.write(checksum_path(path), b"crc")
    before = bench.storage.read(version)
    bench.write(9, 10, 11)
    bench.clock.sleep(10_000)
    bench.archive()
    assert bench.storage.read(version) != before
    left = {s.path for s in bench.storage.list(TIMELINE)}
    assert checksum_path(version) not in left
    assert [path for path in left if is_checksum(path) and checked_path(path) not in left] == []
    assert [path for path in left if is_checksum(path)]


def test_a_question_is_asked_again_when_its_files_were_merged_away() -> None:
    bench = Bench.of(written()[0])
    bench.archive(replace(POLICY, merge_files=100))
    history = History(bench.storage, HISTORY)
    asked = frozenset(i.requested for i in bench.archived())
    bench.clock.sleep(10_000)

    class Merging(FaultyStorage):
        merged = False

        def open(self, path: str) -> Any:
            if not self.merged:
                self.merged = True
                bench.write(9, 10, 11)
                bench.clock.sleep(10_000)
                bench.archive()
                bench.write(12, 13, 14)
                bench.clock.sleep(10_000)
                bench.archive()
            return super().open(path)

    moving = History(Merging(bench.storage), HISTORY)
    assert moving.recorded(asked).keys() == history.recorded(asked).keys() == asked
