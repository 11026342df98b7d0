"""Archiving beside what dead and sleeping processes left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC

import pytest

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
from faulty_storage import Effect, Fault, FaultyStorage, Operation
from memory_tables import TIMELINE
from pyhudi.api.table import Table
from pyhudi.errors import CorruptTableError, InvalidRequestError, UnavailableError
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.timeline.archive import VERSION_FILE, manifest_name
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.plan_files import (
    RESTORE_PLAN,
    InstantName,
    RestorePlan,
    RollbackPlan,
    encode_rollback_plan,
)
from pyhudi.format.timeline.service_metadata import (
    RESTORE,
    RestoreMetadata,
    encode_rollback_metadata,
)
from pyhudi.plan.rollback import rollback_metadata
from pyhudi.read.archive import History
from pyhudi.read.load import TableLoader, load_config
from pyhudi.services.archiving import execute as archiving
from pyhudi.services.archiving.archive_files import STALE_MS, ArchiveFiles, merge_candidates
from pyhudi.services.archiving.facts import ServiceMemory
from pyhudi.services.archiving.run import archive
from pyhudi.services.compaction.run import compactions
from pyhudi.storage.protocol import Folder, ObjectStat, Storage
from pyhudi.timeline.instant_time import clock_time
from worlds import still_world

MERGING = replace(POLICY, merge_files=2)
APART = replace(POLICY, merge_files=100)


# -- what a killed merge left


def archive_files(bench: Bench, storage: Storage | None = None) -> ArchiveFiles:
    world = still_world(bench.clock)
    return ArchiveFiles(storage or bench.storage, HISTORY, world, MERGING, lambda: True)


def killed_merge(bench: Bench) -> str:
    """The path of a merged file that no manifest lists."""
    twin = Bench.of(bench.objects())
    files = archive_files(twin)
    snapshot = files.snapshot()
    before = {stat.path for stat in twin.storage.list(HISTORY)}
    assert files._merge(snapshot, merge_candidates(snapshot.manifest, 0, MERGING)) is not None
    new = {stat.path for stat in twin.storage.list(HISTORY)} - before
    [path] = [path for path in new if path.endswith(".parquet")]
    bench.storage.write(path, twin.storage.read(path))
    return path


def archived_apart() -> tuple[Bench, frozenset[str]]:
    bench = Bench.of(written()[0])
    bench.archive(APART)
    return bench, frozenset(i.requested for i in bench.archived())


class Meanwhile(FaultyStorage):
    """Something happens behind the first listing of the archive."""

    def __init__(self, inner: Storage, then: Callable[[], object]) -> None:
        super().__init__(inner)
        self._then = [then]

    def list_folder(self, prefix: str) -> Folder:
        found = super().list_folder(prefix)
        while self._then:
            self._then.pop()()
        return found


@pytest.mark.parametrize("age", [0, 400, 600, 1_000, 3_600_000])
def test_what_a_killed_merge_left_is_not_lost_to_an_archiver_that_uses_it(age: int) -> None:
    """One archiver sweeps up while another finds the file that it was about to make."""
    bench, known = archived_apart()
    left = killed_merge(bench)
    bench.clock.sleep(age)
    merger = archive_files(bench)
    snapshot = merger.snapshot()
    sweeper = archive_files(bench, Meanwhile(bench.storage, lambda: merger.merge(snapshot)))
    sweeper.tidy(bench.clock.ms)
    assert History(bench.storage, HISTORY).recorded(known).keys() == known
    bench.clock.sleep(10_000)
    archive_files(bench).tidy(bench.clock.ms)
    bench.write(9, 10, 11)
    bench.clock.sleep(10_000)
    bench.archive(MERGING)
    check_whole(bench)
    assert left not in rubbish(bench)
    assert History(bench.storage, HISTORY).recorded(known).keys() == known


def test_a_merged_file_that_is_swept_up_under_its_makers_hands_is_made_again() -> None:
    bench, known = archived_apart()

    class Swept(FaultyStorage):
        def create(self, path: str, data: bytes) -> bool:
            made = super().create(path, data)
            if "manifest_" in path:
                for name in rubbish_before:
                    self.delete(name)
            return made

    rubbish_before = [killed_merge(bench)]
    files = archive_files(bench, Swept(bench.storage))
    assert files.merge(files.snapshot())[1]
    assert History(bench.storage, HISTORY).recorded(known).keys() == known
    assert bench.storage.stat(rubbish_before[0]) is not None


def test_a_merge_that_took_too_long_is_left_to_the_next_run() -> None:
    bench, known = archived_apart()

    class Slow(FaultyStorage):
        def create_from(self, path: str, chunks: Iterable[bytes]) -> int | None:
            made = super().create_from(path, chunks)
            bench.clock.sleep(STALE_MS + 1)
            return made

    files = archive_files(bench, Slow(bench.storage))
    assert files.merge(files.snapshot())[1] == 0
    assert archive_files(bench).snapshot().number == files.snapshot().number
    assert History(bench.storage, HISTORY).recorded(known).keys() == known
    archive_files(bench).tidy(bench.clock.ms)  # it was there for longer than the grace
    again = archive_files(bench)
    assert again.merge(again.snapshot())[1]
    check_whole(bench)


def test_a_merge_that_takes_minutes_is_done_once() -> None:
    """The larger the files, the longer it takes to make one of them; that is no race."""
    bench, known = archived_apart()
    made: list[str] = []

    class Slow(FaultyStorage):
        def create_from(self, path: str, chunks: Iterable[bytes]) -> int | None:
            encoded = list(chunks)
            made.append(path)
            bench.clock.sleep(2 * STALE_MS)
            return super().create_from(path, encoded)

    files = archive_files(bench, Slow(bench.storage))
    assert files.merge(files.snapshot())[1] >= 2
    again = archive_files(bench, Slow(bench.storage))
    assert again.merge(again.snapshot())[1] == 0
    assert len(made) == len(set(made))
    check_whole(bench)
    assert History(bench.storage, HISTORY).recorded(known).keys() == known


def test_a_merged_file_that_is_there_is_not_made_once_more() -> None:
    bench, known = archived_apart()
    left = killed_merge(bench)
    watched = FaultyStorage(bench.storage)
    files = archive_files(bench, watched)
    assert files.merge(files.snapshot())[1] >= 2
    assert (left, "create_from") not in [(o.path, o.name) for o in watched.trace]
    assert History(bench.storage, HISTORY).recorded(known).keys() == known


@pytest.mark.parametrize("number", [1, 2])
def test_a_file_that_was_swept_up_before_its_archiver_died_is_reported(number: int) -> None:
    """And what the error asks for mends the archive."""
    objects, reads, times = written()
    bench = Bench.of(objects)
    policy = replace(APART, file_instants=3)
    if number == 2:
        bench.archive(replace(policy, keep_min=6, keep_max=7, file_instants=100))
    before = {stat.path for stat in bench.storage.list(HISTORY)}
    dead = Fault(Effect.FAIL, "delete", f"{TIMELINE}/2*", 1, None)
    with pytest.raises(UnavailableError):  # before it removes the first instant
        bench.archive(policy, storage=FaultyStorage(bench.storage, [dead]))
    after = {stat.path for stat in bench.storage.list(HISTORY)}
    [added] = [path for path in after - before if path.endswith(".parquet")]
    bench.storage.delete(added)
    version = f"{HISTORY}/{VERSION_FILE}"
    assert int(bench.storage.read(version)) == number
    remedy = "write 1 into _version_, and remove" if number > 1 else "remove _version_, and remove"
    with pytest.raises(CorruptTableError, match=remedy) as caught:
        bench.archive(policy)
    assert caught.value.path == added
    bench.storage.delete(f"{HISTORY}/{manifest_name(number)}")
    bench.storage.delete(version)
    if number > 1:
        bench.storage.write(version, b"1")
    assert bench.archive(policy).archived
    check_whole(bench)
    assert settled_reads(bench, times) == reads


@pytest.mark.parametrize(("age", "is_taken"), [(0, 1), (400, 1), (600, 0), (3_600_000, 0)])
def test_a_file_that_a_dead_archiver_left_is_used_before_it_may_be_swept_up(
    age: int, is_taken: int
) -> None:
    objects, reads, times = written()
    bench = Bench.of(objects)
    dying = FaultyStorage(bench.storage, [Fault(Effect.FAIL, "create", "*manifest_*", 1, None)])
    with pytest.raises(UnavailableError):
        bench.archive(storage=dying)
    [left] = [s.path for s in bench.storage.list(HISTORY) if s.path.endswith(".parquet")]
    bench.clock.sleep(age)
    bench.archive(replace(POLICY, merge_files=100))
    manifest = bench.storage.read(f"{HISTORY}/{manifest_name(1)}").decode()
    assert manifest.count(left.rpartition("/")[2]) == is_taken
    check_whole(bench)
    assert settled_reads(bench, times[:4]) == some(reads, times[:4])


def test_an_outage_is_not_reported_as_a_broken_archive() -> None:
    """The reply to a file's creation is lost, and the file cannot be read for a while."""
    bench = Bench.of(written()[0])
    policy = replace(POLICY, file_instants=1)
    dying = FaultyStorage(bench.storage, [Fault(Effect.FAIL, "create", "*manifest_*", 1, None)])
    with pytest.raises(UnavailableError):
        bench.archive(policy, storage=dying)
    outage = FaultyStorage(bench.storage, [Fault(Effect.FAIL, "open", f"{HISTORY}/*", 1, None)])
    with pytest.raises(UnavailableError, match="injected"):
        bench.archive(policy, storage=outage)
    assert bench.archive(policy).archived
    check_whole(bench)


def test_a_sweep_that_took_too_long_leaves_the_rest_to_the_next() -> None:
    bench, known = archived_apart()
    for n in (1, 2):
        bench.storage.write(f"{HISTORY}/2024010100000000{n}_2024010100000000{n}_0.parquet", b"")
    bench.clock.sleep(10_000)

    class Slow(FaultyStorage):
        def delete(self, path: str) -> None:
            super().delete(path)
            bench.clock.sleep(STALE_MS + 1)

    assert len(archive_files(bench, Slow(bench.storage)).tidy(bench.clock.ms)) == 1
    assert len(rubbish(bench)) == 1
    archive_files(bench).tidy(bench.clock.ms)
    assert rubbish(bench) == []
    assert History(bench.storage, HISTORY).recorded(known).keys() == known


def test_half_a_file_of_a_dead_hudi_is_passed_by() -> None:
    objects, reads, times = written()
    bench = Bench.of(objects)
    leaving = bench.preview().leaving
    path = f"{HISTORY}/{leaving[0].requested}_{leaving[2].requested}_0.parquet"
    bench.storage.write(path, b"PAR1 half of i")
    bench.archive(APART)
    check_whole(bench)
    assert settled_reads(bench, times[:4]) == some(reads, times[:4])
    bench, known = archived_apart()
    bench.storage.write(killed_merge(bench), b"PAR1 half of i")
    files = archive_files(bench)
    assert files.merge(files.snapshot())[1] == 0
    assert History(bench.storage, HISTORY).recorded(known).keys() == known


def test_an_instant_whose_only_name_is_taken_by_rubbish_is_reported() -> None:
    bench = Bench.of(written()[0])
    [first, *_] = bench.preview().leaving
    path = f"{HISTORY}/{first.requested}_{first.requested}_0.parquet"
    bench.storage.write(path, b"PAR1 half of i")
    with pytest.raises(CorruptTableError, match="Remove that file") as caught:
        bench.archive(replace(POLICY, file_instants=1))
    assert caught.value.path == path


# -- late pending files of rolled-back instants


@pytest.mark.parametrize("action", ["deltacommit", "compaction"])
@pytest.mark.parametrize("states", [["requested"], ["inflight"], ["requested", "inflight"]])
def test_pending_files_that_come_back_after_the_rollback_hold_nothing_up(
    action: str, states: list[str]
) -> None:
    bench = Bench()
    bench.write(1, 2, 3)
    if action == "deltacommit":
        dead = bench.die(99)
        bench.clock.sleep(SETTINGS.heartbeat_timeout_ms + 1)
    else:
        service = compactions(bench.session("service"))
        dead = service.schedule() or ""
        service.cancel(dead)
    bench.write(*range(4, 12))
    for state in states:
        bench.storage.write(f"{TIMELINE}/{dead}.{action}.{state}", b"")
    bench.clock.sleep(DAY_MS)
    before = content(bench.table().read())
    assert f"{dead} is pending" not in str(bench.preview())
    assert len([i for i in bench.active() if i.requested == dead]) == len(states)
    done = bench.archive()
    assert len(done.archived) >= 8
    assert [path for path in done.swept if path.startswith(f"{TIMELINE}/{dead}.")]
    assert not [s.path for s in bench.storage.list("") if dead in s.path]
    assert content(bench.table().read()) == before


def test_a_plan_of_which_only_a_run_was_rolled_back_is_still_pending() -> None:
    """Hudi undoes what its failed run left, and the plan waits for the next one."""
    bench = Bench(lock=LockKind.FILE)
    bench.write(1, 2, 3)
    planned = InstantTime(compactions(bench.session("service")).schedule() or "")
    bench.clock.sleep(1_000)
    times = [InstantTime(f"{int(planned) + later:017}") for later in (100, 101)]
    plan = RollbackPlan(InstantName(planned, "compaction"), ())
    undone = Instant(planned, Action.COMPACTION, State.REQUESTED)
    metadata = rollback_metadata(times[0], undone, (), bench.storage.uri, 1)
    for name, data in (
        (f"{times[0]}.rollback.requested", encode_rollback_plan(plan, bytes(16))),
        (f"{times[0]}_{times[1]}.rollback", encode_rollback_metadata(metadata, bytes(16))),
    ):
        bench.storage.write(f"{TIMELINE}/{name}", data)
    bench.write(*range(4, 12))
    bench.clock.sleep(DAY_MS)
    assert f"{planned} is pending" in str(bench.preview())
    bench.archive()
    assert [i for i in bench.active() if i.requested == planned and i.action is Action.COMPACTION]


# -- what is behind the begin of the timeline already


def brought_back(bench: Bench) -> tuple[str, str, bytes]:
    """A write that was abandoned after the third one: its instant, and a file of it."""
    bench.write(1, 2, 3)
    dead = bench.die(99)
    [path] = [s.path for s in bench.storage.list("") if dead in s.path and ".hoodie" not in s.path]
    data = bench.storage.read(path)
    bench.clock.sleep(SETTINGS.heartbeat_timeout_ms + 1)
    bench.write(*range(4, 12))
    bench.clock.sleep(10_000)
    return dead, path, data


def test_an_orphan_that_a_savepoint_of_the_oldest_write_brought_to_light_is_removed() -> None:
    """Readers pass over a saved write, so what lies behind it counts as committed."""
    bench = Bench()
    dead, path, data = brought_back(bench)
    policy = replace(POLICY, aborted_grace_ms=DAY_MS)
    bench.archive(policy)
    oldest = min(bench.completed())
    assert oldest < dead
    bench.storage.write(f"{TIMELINE}/{oldest}_{oldest[:-1]}9.savepoint", b"")
    bench.storage.write(path, data)
    assert content(bench.table().read())["x"] == 99
    archiver = bench.session()
    assert archive(archiver, policy).swept == (path,)  # type: ignore[union-attr]
    assert content(bench.table().read())["x"] == 11
    bench.storage.write(path, data)  # once more, as long as it may come
    assert archive(archiver, policy).swept == (path,)  # type: ignore[union-attr]
    assert content(bench.table().read())["x"] == 11


def test_what_a_restore_undid_is_looked_for_once_by_each_process() -> None:
    """It stays on the timeline for ever, and names what was undone long before."""
    bench = Bench()
    bench.write(1, 2, 3)
    restored = RestoreMetadata("", 0, ("20250101000000000",), {})
    data = RESTORE.encode(restored, bytes(16))
    time = max(bench.completed())
    bench.storage.write(f"{TIMELINE}/{time[:-1]}8_{time[:-1]}9.restore", data)
    archiver, memory = bench.session(), ServiceMemory()
    looked_for = []
    for n in range(4, 40, 6):
        bench.write(*range(n, n + 6))
        bench.clock.sleep(10_000)
        plan = archive(archiver, POLICY, dry_run=True, memory=memory)
        looked_for.append(len(plan.passed))  # type: ignore[union-attr]
        assert archive(archiver, POLICY, memory=memory).archived  # type: ignore[union-attr]
    assert looked_for == [1, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("has_plan", [True, False])
def test_a_restore_that_hudi_left_empty_is_known_by_its_plan_and_stops_no_archiver(
    has_plan: bool,
) -> None:
    bench = Bench()
    bench.write(1, 2, 3)
    time = max(bench.completed())
    restore = f"{TIMELINE}/{time[:-1]}8"
    bench.storage.write(f"{restore}_{time[:-1]}9.restore", b"")
    if has_plan:
        plan = RestorePlan((InstantName("20250101000000000", "deltacommit"),))
        bench.storage.write(f"{restore}.restore.requested", RESTORE_PLAN.encode(plan, bytes(16)))
    bench.write(*range(4, 10))
    bench.clock.sleep(10_000)
    assert bench.preview().passed == (("20250101000000000",) if has_plan else ())
    assert bench.archive().archived


# -- another engine


@pytest.mark.parametrize("lock", [LockKind.NONE, LockKind.FILE])
def test_beside_another_engine_nothing_is_archived_without_its_lock(lock: LockKind) -> None:
    bench = Bench(lock=lock)
    bench.write(*range(1, 9))
    last = max(bench.completed())
    data = bench.storage.read(next(s.path for s in bench.storage.list(TIMELINE)
                                   if f"/{last}_" in s.path))  # fmt: skip
    bench.clock.sleep(60_000)
    theirs = clock_time(bench.clock.ms, UTC)
    for name in (f"{theirs}.deltacommit.requested", f"{theirs}.deltacommit.inflight"):
        bench.storage.write(f"{TIMELINE}/{name}", b"")
    bench.storage.write(f"{TIMELINE}/{theirs}_{theirs[:-1]}9.deltacommit", data)
    bench.clock.sleep(DAY_MS)
    before = bench.objects()
    if lock is LockKind.FILE:
        assert bench.archive().archived
        return
    with pytest.raises(InvalidRequestError, match=rf"{theirs}.*alter\.use_lock\("):
        bench.archive()
    assert bench.objects() == before


def holds(trace: Iterable[Operation]) -> list[list[Operation]]:
    """What was asked of storage each time that the table's lock was held."""
    found: list[list[Operation]] = []
    is_held = False
    for operation in trace:
        if operation.path == ".hoodie/lock" and operation.name in ("create", "delete"):
            is_held = operation.name == "create"
            found += [[]] if is_held else []
        elif is_held:
            found[-1].append(operation)
    return found


def test_a_backlog_is_moved_in_many_short_holds_of_the_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Writers of both engines wait for it."""
    monkeypatch.setattr(archiving, "HOLD_INSTANTS", 4)
    bench = Bench(lock=LockKind.FILE)
    bench.write(*range(1, 41))
    bench.clock.sleep(10_000)
    before = content(bench.table().read())
    traced = FaultyStorage(bench.storage)
    done = bench.archive(storage=traced)
    left = bench.completed()
    assert len(left) <= POLICY.keep_max + 1
    assert len(done.archived) >= 35
    completed = [
        [op for op in hold if op.name == "delete" and f"{TIMELINE}/" in op.path and "_" in op.path]
        for hold in holds(traced.trace)
    ]
    moved = [len([op for op in hold if "history" not in op.path]) for hold in completed]
    assert sum(moved) == len(done.archived)
    assert max(moved) == 4
    listed = [op.path for hold in holds(traced.trace) for op in hold if op.name.startswith("list")]
    assert listed
    assert [path for path in listed if not path.startswith(".hoodie")] == [], "no data files"
    assert content(bench.table().read()) == before
    check_whole(bench)


# -- files that another engine died over


@pytest.mark.parametrize("action", ["clean", "rollback"])
def test_an_empty_completed_file_of_another_engine_stops_nothing(action: str) -> None:
    """On a disk without an atomic create, Hudi may die between making a file and filling it."""
    bench = Bench(lock=LockKind.FILE)
    bench.write(*range(1, 4))
    time = max(bench.completed())[:-1]
    if action == "rollback":
        plan = RollbackPlan(InstantName(InstantTime("20250101000000000"), "deltacommit"), ())
        requested = encode_rollback_plan(plan, bytes(16))
        bench.storage.write(f"{TIMELINE}/{time}8.rollback.requested", requested)
    bench.storage.write(f"{TIMELINE}/{time}8_{time}9.{action}", b"")
    bench.clock.sleep(60_000)
    bench.write(*range(4, 12))
    bench.clock.sleep(DAY_MS)
    assert bench.archive().archived


# -- readers


class Torn(FaultyStorage):
    """In the midst of the first listing of the timeline's end, another process archives."""

    archives: Callable[[], str] | None = None  # gives the instant whose completed file is missed

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectStat]:
        found = list(super().list(prefix, after=after))
        if prefix == TIMELINE and self.archives is not None:
            archives, self.archives = self.archives, None
            missed = archives()
            return (s for s in found if not s.path.startswith(f"{TIMELINE}/{missed}_"))
        return iter(found)


def test_a_refresh_rejects_a_listing_that_archiving_tore() -> None:
    """Or what was committed since the last one would look pending, and its rows be missing."""
    bench = Bench()
    bench.write(0, 1, 2)
    torn = Torn(bench.storage)
    reader = Table(TableLoader(torn, load_config(torn)), bench.opening("reader"))
    content(reader.read())
    written_ = bench.table("w").upsert(rows(9, "precious"))
    bench.write(*range(3, 12))
    bench.clock.sleep(60_000)
    bench.write(12)
    bench.clock.sleep(5_000)

    def archives() -> str:
        assert written_.instant in bench.archive().archived
        return written_.instant

    torn.archives = archives
    assert content(reader.read())["precious"] == 9
    assert torn.archives is None
    assert content(reader.read()) == content(bench.table().read())


def test_a_refresh_sees_what_was_written_and_archived_since_the_last_one() -> None:
    """Of such a write, nothing is on the timeline; its file group may be one of its own."""
    bench = Bench(partition_by="id")
    reader = bench.table("reader")
    for n in range(1, 5):
        bench.table("w").upsert(rows(n, "a"))
    content(reader.read())
    written_ = bench.table("w").upsert(rows(5, "precious"))
    for n in range(6, 8):
        bench.table("w").upsert(rows(n, "a"))
        bench.clock.sleep(60_000)
    assert bench.archive().archived[-1] == written_.instant
    assert content(reader.read()) == {"a": 7, "precious": 5}
