"""Repair: what crashed and frozen writers leave is removed, and what is needed is not."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from datetime import UTC

import pyarrow as pa
import pytest

import pyhudi
from faulty_storage import FaultyStorage
from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.pruning import ENTRIES_KEPT, ENTRIES_KEPT_MS, prune
from pyhudi.commit.rollback import FailedWriteRecovery
from pyhudi.commit.transaction import Transaction
from pyhudi.errors import CorruptTableError
from pyhudi.format.timeline import decision_entry as log_entry
from pyhudi.format.timeline.archive import (
    VERSION_FILE,
    ArchivedInstant,
    ArchiveFileName,
    Manifest,
    ManifestEntry,
    encode_archive_file,
    encode_manifest,
    manifest_name,
)
from pyhudi.format.timeline.commit_metadata import CommitMetadata
from pyhudi.format.timeline.decision_entry import EntryKind, parse_entry_path, staged_path
from pyhudi.format.timeline.instant import Action, InstantTime
from pyhudi.format.timeline.plan_files import (
    InstantName,
    RollbackPlan,
    RollbackRequest,
    encode_rollback_plan,
)
from pyhudi.services.repair import Repair
from pyhudi.settings import WriteSettings
from pyhudi.storage.protocol import Folder, ObjectStat, Storage
from pyhudi.storage.stores.memory import MemoryStorage
from pyhudi.timeline.instant_time import clock_time
from pyhudi.write import complete as completing
from worlds import Clock, still_world

TIMELINE = ".hoodie/timeline"
SETTINGS = WriteSettings()
DAY_MS = 24 * 3_600_000
DONE = CommitMetadata(extra_metadata={"schema": "{}"})


class Process:
    """A process on a table in memory."""

    def __init__(self, storage: Storage, clock: Clock, label: str) -> None:
        self.log = DecisionLog(
            storage, still_world(clock, label), SETTINGS, timeline_folder=TIMELINE, zone=UTC
        )
        self.recovery = FailedWriteRecovery(self.log, SETTINGS)

    def begin(self) -> Transaction:
        return Transaction.begin(self.log, SETTINGS, Action.DELTACOMMIT, self.recovery)

    def repair(
        self, grace_ms: int = 0, *, is_whole: bool = False
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        done = Repair(self.log, self.recovery, grace_ms=grace_ms).run(is_whole=is_whole)
        return done.rolled_back, done.removed


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def storage(clock: Clock) -> MemoryStorage:
    return MemoryStorage(lambda: clock.ms)


def data_file(requested: str) -> str:
    return f"p/.00000000-0000-0000-0000-000000000000-0_{requested}.log.1_0-0-0"


def write_data(storage: MemoryStorage, requested: str) -> str:
    path = data_file(requested)
    storage.create(f".hoodie/.temp/{requested}/{path}.marker.CREATE", b"")
    storage.create(path, b"rows")
    return path


def test_a_clean_table_needs_no_repair(storage: MemoryStorage, clock: Clock) -> None:
    Process(storage, clock, "a").begin().complete(DONE)
    before = {stat.path for stat in storage.list("")}
    assert Process(storage, clock, "b").repair() == ((), ())
    assert {stat.path for stat in storage.list("")} == before


def test_a_dead_writer_is_rolled_back_with_all_its_files(
    storage: MemoryStorage, clock: Clock
) -> None:
    dead = Process(storage, clock, "a").begin()
    path = write_data(storage, dead.requested)
    clock.sleep(SETTINGS.heartbeat_timeout_ms + 1)
    rolled_back, _ = Process(storage, clock, "b").repair()
    assert rolled_back == (dead.requested,)
    left = [stat.path for stat in storage.list("") if dead.requested in stat.path]
    assert path not in left
    assert left == []


def test_a_live_writer_is_left_alone(storage: MemoryStorage, clock: Clock) -> None:
    live = Process(storage, clock, "a").begin()
    path = write_data(storage, live.requested)
    assert Process(storage, clock, "b").repair() == ((), ())
    assert storage.stat(path) is not None
    live.complete(DONE).or_raise()
    assert storage.stat(path) is not None


def test_the_markers_of_an_abandoned_write_stay_for_the_grace_and_find_what_a_zombie_adds(
    storage: MemoryStorage, clock: Clock
) -> None:
    dead = Process(storage, clock, "a").begin()
    write_data(storage, dead.requested)
    clock.sleep(SETTINGS.heartbeat_timeout_ms + 1)
    b = Process(storage, clock, "b")
    b.repair(grace_ms=3_600_000)
    path = write_data(storage, dead.requested)  # the zombie wakes up
    storage.create(f"{TIMELINE}/{dead.requested}.deltacommit.inflight", b"")
    storage.write(f".hoodie/.heartbeat/{dead.requested}", b"")
    c = Process(storage, clock, "c")
    rolled_back, removed = c.repair(grace_ms=3_600_000)
    assert rolled_back == ()
    assert path in removed
    assert list(storage.list(f".hoodie/.temp/{dead.requested}"))
    assert storage.stat(f"{TIMELINE}/{dead.requested}.deltacommit.inflight") is None
    rollbacks = [s.path for s in storage.list(TIMELINE) if s.path.endswith(".rollback")]
    assert len(rollbacks) == 1
    clock.sleep(3_600_000)
    c.repair(grace_ms=3_600_000)
    assert [s.path for s in storage.list("") if dead.requested in s.path] == []


def test_what_a_writer_forgot_after_completing_is_removed(
    storage: MemoryStorage, clock: Clock
) -> None:
    done = Process(storage, clock, "a").begin()
    path = write_data(storage, done.requested)
    done.complete(DONE).or_raise()
    storage.create(f".hoodie/.temp/{done.requested}/{path}.marker.CREATE", b"")
    storage.write(f".hoodie/.heartbeat/{done.requested}", b"")
    storage.create(staged_path(done.requested, "x"), b"large")
    _, removed = Process(storage, clock, "b").repair(grace_ms=3_600_000)
    assert len(removed) == 3
    assert storage.stat(path) is not None


def test_staged_bytes_that_no_entry_names_stay_for_the_grace(
    storage: MemoryStorage, clock: Clock
) -> None:
    live = Process(storage, clock, "a").begin()
    place = staged_path(live.requested, "x")
    storage.create(place, b"large")
    b = Process(storage, clock, "b")
    assert b.repair(grace_ms=60_000) == ((), ())
    clock.sleep(60_000)
    assert b.repair(grace_ms=60_000)[1] == (place,)


@pytest.fixture(params=[17, 19])
def folder_digits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries in folders of 1,000, and in folders of ten."""
    monkeypatch.setattr(log_entry, "_FOLDER_DIGITS", request.param)


def numbers(storage: MemoryStorage) -> list[int]:
    found = (parse_entry_path(stat.path) for stat in storage.list(".hoodie/.pyhudi/log"))
    return [number for number in found if number is not None]


@pytest.mark.usefixtures("folder_digits")
def test_old_entries_are_pruned_but_for_the_newest(storage: MemoryStorage, clock: Clock) -> None:
    a = Process(storage, clock, "a")
    for _ in range(80):
        a.begin().complete(DONE)
    a.repair()
    assert numbers(storage) == list(range(1, 161)), "all of them are recent"
    clock.sleep(ENTRIES_KEPT_MS)
    a.repair()
    assert numbers(storage) == list(range(161 - ENTRIES_KEPT, 161))
    a.begin().complete(DONE)
    Process(storage, clock, "b").begin().complete(DONE)


@pytest.mark.usefixtures("folder_digits")
def test_entries_since_the_oldest_open_write_are_kept(storage: MemoryStorage, clock: Clock) -> None:
    a, slow = Process(storage, clock, "a"), Process(storage, clock, "slow")
    for _ in range(20):
        a.begin().complete(DONE)
    open_ = slow.begin()
    for _ in range(80):
        a.begin().complete(DONE)
    for _ in range(8 * 24):
        clock.sleep(3_600_000)
        storage.write(f".hoodie/.heartbeat/{open_.requested}", b"")
    a.repair()
    assert numbers(storage)[0] in (40, 41)
    open_.complete(DONE)


def test_a_rollback_of_very_many_files_is_staged_and_leaves_nothing(
    storage: MemoryStorage, clock: Clock
) -> None:
    dead = Process(storage, clock, "a").begin()
    for number in range(300):
        path = f"p/.{number:08d}-0000-0000-0000-000000000000-0_{dead.requested}.log.1_0-0-0"
        storage.create(f".hoodie/.temp/{dead.requested}/{path}.marker.CREATE", b"")
        storage.create(path, b"rows")
    clock.sleep(SETTINGS.heartbeat_timeout_ms + 1)
    rolled_back, _ = Process(storage, clock, "b").repair()
    assert rolled_back == (dead.requested,)
    assert max(s.size for s in storage.list(".hoodie/.pyhudi/log")) < 48 << 10
    assert [s.path for s in storage.list("") if dead.requested in s.path] == []
    assert list(storage.list(".hoodie/.pyhudi/staged")) == []


def test_a_sweep_asks_little_about_each_write_that_was_abandoned_of_late(
    storage: MemoryStorage, clock: Clock
) -> None:
    """Services sweep each hour, and one such write is looked at again for a day."""
    counting = FaultyStorage(storage)
    a = Process(counting, clock, "a")
    a.begin().complete(DONE)
    asked = []
    for count in (10, 20):
        for _ in range(10):
            abandoned = a.begin()
            write_data(storage, abandoned.requested)
            abandoned.abandon()
        a.repair(DAY_MS)
        counting.trace.clear()
        assert a.repair(DAY_MS) == ((), ())
        asked.append(len(counting.trace))
        assert len(list(storage.list_folder(".hoodie/.temp").folders)) == count
    assert asked[1] - asked[0] <= 10 * 2  # its markers are listed, its files are looked for
    late = [write_data(storage, abandoned.requested)]
    late += [f"{TIMELINE}/{abandoned.requested}.deltacommit.{s}" for s in ("inflight", "requested")]
    for path in late[1:]:
        storage.create(path, b"")
    assert a.repair(DAY_MS) == ((), tuple(late))


# -- late pending files of rolled-back instants


@pytest.mark.parametrize("state", ["requested", "inflight"])
def test_a_pending_file_that_a_zombie_adds_to_an_abandoned_write_goes_without_a_marker(
    storage: MemoryStorage, clock: Clock, state: str
) -> None:
    a = Process(storage, clock, "a")
    a.begin().complete(DONE)
    abandoned = a.begin()
    abandoned.abandon()
    late = f"{TIMELINE}/{abandoned.requested}.deltacommit.{state}"
    storage.create(late, b"")
    assert Process(storage, clock, "b").repair() == ((), (late,))
    assert storage.stat(late) is None
    assert Process(storage, clock, "c").repair() == ((), ())


# -- rollbacks that are not in the log


def planned(storage: MemoryStorage, clock: Clock, plan: RollbackPlan) -> str:
    """A pending rollback of this plan, by an unknown process."""
    path = f"{TIMELINE}/{clock_time(clock() + 1_000, UTC)}.rollback.requested"
    storage.create(path, encode_rollback_plan(plan, bytes(16)))
    return path


def plan_against(requested: str, path: str) -> RollbackPlan:
    request = RollbackRequest(
        partition_path="p",
        file_id="00000000-0000-0000-0000-000000000000-0",
        latest_base_instant=requested,
        files_to_be_deleted=(f"memory:///{path}",),
        log_blocks_to_be_deleted={},
    )
    return RollbackPlan(InstantName(requested, "deltacommit"), (request,))


def completed_write(storage: MemoryStorage, clock: Clock) -> tuple[str, str]:
    """A write that is visible, and its data file."""
    write = Process(storage, clock, "a").begin()
    path = write_data(storage, write.requested)
    write.complete(DONE)
    return write.requested, path


def test_a_rollback_of_a_completed_write_deletes_nothing(
    storage: MemoryStorage, clock: Clock
) -> None:
    requested, path = completed_write(storage, clock)
    plan = planned(storage, clock, plan_against(requested, path))
    before = {stat.path for stat in storage.list("")}
    with pytest.raises(CorruptTableError, match=f"would undo {requested}, which has completed"):
        Process(storage, clock, "b").recovery.recover()
    assert {stat.path for stat in storage.list("")} == before
    storage.delete(plan)
    assert Process(storage, clock, "c").repair() == ((), ())


def test_a_rollback_of_an_archived_write_deletes_nothing(
    storage: MemoryStorage, clock: Clock
) -> None:
    requested, path = completed_write(storage, clock)
    completed_write(storage, clock)
    for stat in list(storage.list(TIMELINE)):
        if requested in stat.path:
            storage.delete(stat.path)
    planned(storage, clock, plan_against(requested, path))
    with contextlib.suppress(CorruptTableError):
        Process(storage, clock, "b").recovery.recover()
    assert storage.stat(path) is not None


UNSOUND = [("20200101000000000", "foo"), ("../../x", "deltacommit"), ("", "deltacommit")]


@pytest.mark.parametrize(("target", "action"), UNSOUND)
def test_a_plan_that_names_no_instant_is_reported_and_nothing_is_deleted(
    storage: MemoryStorage, clock: Clock, target: str, action: str
) -> None:
    completed_write(storage, clock)
    planned(storage, clock, RollbackPlan(InstantName(target, action), ()))
    before = {stat.path for stat in storage.list("") if not stat.path.endswith(".inflight")}
    with pytest.raises(CorruptTableError):
        Process(storage, clock, "b").recovery.recover()
    left = {stat.path for stat in storage.list("") if not stat.path.endswith(".inflight")}
    assert left == before


# -- processes that are silent


def test_a_store_whose_clock_once_was_ahead_does_not_make_live_writers_look_dead(
    clock: Clock,
) -> None:
    ahead = [0]
    storage = MemoryStorage(lambda: clock.ms + ahead[0])
    a = Process(storage, clock, "a")
    a.begin().complete(DONE)
    ahead[0] = 3_600_000
    a.begin().complete(DONE)
    ahead[0] = 0  # the clock was corrected
    live = Process(storage, clock, "live").begin()
    for judge in (a, Process(storage, clock, "b")):
        judge.log.refresh()
        assert judge.recovery.recover() == ()
    clock.sleep(SETTINGS.heartbeat_timeout_ms + 1)
    assert a.recovery.recover() == (live.requested,), "and a dead one is found in time"


def test_a_dead_writer_is_found_by_the_next_write_of_a_process_that_knew_nothing_of_it(
    storage: MemoryStorage, clock: Clock
) -> None:
    a = Process(storage, clock, "a")
    a.begin().complete(DONE)
    dead = Process(storage, clock, "dead").begin()
    clock.sleep(SETTINGS.heartbeat_timeout_ms + 1)
    assert a.recovery.recover() == (dead.requested,)


# -- pruning


def void(log: DecisionLog, number: int = 1) -> None:
    """An entry without a time, as after one that another engine superseded."""
    log.refresh()
    entry = log._blank(kind=EntryKind.VOID, voids=number)
    assert log._create(entry)
    log._note(entry)


@pytest.mark.usefixtures("folder_digits")
@pytest.mark.parametrize("voids", [1, 3])
def test_entries_are_pruned_past_those_that_have_no_time(
    storage: MemoryStorage, clock: Clock, voids: int
) -> None:
    a, slow = Process(storage, clock, "a"), Process(storage, clock, "slow")
    for _ in range(12):
        a.begin().complete(DONE)
        for _ in range(voids):
            void(a.log)
    open_ = slow.begin()
    for _ in range(60):
        a.begin().complete(DONE)
        void(a.log)
    clock.sleep(ENTRIES_KEPT_MS)
    storage.write(f".hoodie/.heartbeat/{open_.requested}", b"")
    a.repair()
    assert numbers(storage)[0] in range(open_.number - voids - 1, open_.number + 1)
    open_.complete(DONE)
    clock.sleep(ENTRIES_KEPT_MS)
    Process(storage, clock, "b").repair()
    assert len(numbers(storage)) == ENTRIES_KEPT


def test_pruning_looks_no_further_than_the_first_entry_that_stays(
    storage: MemoryStorage, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_entry, "_FOLDER_DIGITS", 19)
    seen: list[str] = []

    class Counting(FaultyStorage):
        def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectStat]:
            for stat in super().list(prefix, after=after):
                seen.append(stat.path)
                yield stat

    a = Process(Counting(storage), clock, "a")
    for _ in range(100):
        a.begin().complete(DONE)
    clock.sleep(ENTRIES_KEPT_MS)
    for _ in range(100):
        a.begin().complete(DONE)
    prune(a.log)
    assert numbers(storage) == list(range(201, 401)), "the others are recent"
    seen.clear()
    prune(a.log)
    assert len(seen) <= 10


@pytest.mark.parametrize("table_type", ["mor", "cow"])
def test_the_log_of_a_single_writer_is_pruned_whether_its_numbers_are_odd_or_even(
    monkeypatch: pytest.MonkeyPatch, table_type: str
) -> None:
    monkeypatch.setattr(completing, "PRUNE_EVERY", 10)
    pruned: list[int] = []
    monkeypatch.setattr(completing, "prune", lambda log: pruned.append(log._known.n))
    table = pyhudi.create_table(
        f"memory://pruned-{table_type}",
        pa.schema([("id", pa.string())]),
        record_key="id",
        buckets=pyhudi.SimpleBuckets(1),
        table_type=table_type,
        upkeep=False,
    )
    for _ in range(2):
        for _ in range(20):
            table.upsert(pa.table({"id": ["a"]}))
        process = pyhudi.open_table(table.uri)._opening.session()
        void(process.log)  # from here on the numbers of begins are of the other parity
    gaps = [later - earlier for earlier, later in itertools.pairwise([0, *pruned])]
    assert len(pruned) >= 8
    assert max(gaps) <= 20


# -- what is nowhere


def test_files_of_an_instant_that_no_timeline_knows_go_after_the_grace(
    storage: MemoryStorage, clock: Clock
) -> None:
    """They would count as committed once the active timeline had passed it."""
    a = Process(storage, clock, "a")
    a.begin().complete(DONE)
    path = write_data(storage, clock_time(clock(), UTC))
    clock.sleep(1_000)
    a.begin().complete(DONE)
    Process(storage, clock, "b").repair(grace_ms=3_600_000)
    assert storage.stat(path) is not None
    clock.sleep(3_600_000)
    _, removed = Process(storage, clock, "c").repair(grace_ms=3_600_000)
    assert path in removed
    assert not list(storage.list(".hoodie/.temp"))


def test_data_files_that_no_marker_names_go_only_if_their_instant_is_unrecorded(
    storage: MemoryStorage, clock: Clock
) -> None:
    a = Process(storage, clock, "a")
    old = clock_time(clock(), UTC)  # readers take it for committed
    clock.sleep(1_000)
    done, failed = a.begin(), a.begin()
    done.complete(DONE).or_raise()
    failed.abandon()
    archived = a.begin()
    completed = archived.complete(DONE).or_raise()
    unknown, saved = clock_time(clock(), UTC), clock_time(clock() + 500, UTC)
    clock.sleep(1_000)
    pending = Process(storage, clock, "live").begin()
    told_of = [old, done.requested, archived.requested, saved, pending.requested]
    kept = [data_file(requested) for requested in told_of]
    gone = [data_file(requested) for requested in (failed.requested, unknown)]
    for path in (*kept, *gone):
        storage.create(path, b"rows")
    storage.create(f"{TIMELINE}/{saved}_{saved[:-1]}9.savepoint", b"")
    move_to_archive(storage, archived.requested, completed.time)
    assert Process(storage, clock, "b").repair() == ((), ())
    assert Process(storage, clock, "c").repair(1_000, is_whole=True) == ((), ())
    clock.sleep(1_000)
    _, removed = Process(storage, clock, "d").repair(1_000, is_whole=True)
    assert sorted(removed) == sorted(gone)
    assert [path for path in kept if storage.stat(path) is None] == []


@pytest.mark.parametrize("has_log", [True, False])
@pytest.mark.parametrize("has_clean", [True, False])
def test_a_lost_timeline_costs_no_data_file(
    storage: MemoryStorage, clock: Clock, has_log: bool, has_clean: bool
) -> None:
    a = Process(storage, clock, "a")
    paths = []
    for _ in range(3):
        write = a.begin()
        paths.append(write_data(storage, write.requested))
        write.complete(DONE)
        storage.create(f".hoodie/.temp/{write.requested}/{paths[-1]}.marker.CREATE", b"")
    failed = a.begin()
    failed.abandon()  # the log ends with a rollback, which the next process applies
    gone = [TIMELINE] if has_log else [TIMELINE, ".hoodie/.pyhudi"]
    for stat in [stat for folder in gone for stat in storage.list(folder)]:
        storage.delete(stat.path)
    if has_clean:
        time = clock_time(clock(), UTC)
        storage.create(f"{TIMELINE}/{time}_{time[:-1]}9.clean", b"")
    clock.sleep(DAY_MS)
    with pytest.raises(CorruptTableError, match=f"data files and no completed write.*{TIMELINE}"):
        Process(storage, clock, "b").repair(is_whole=True)
    assert [path for path in paths if storage.stat(path) is None] == []
    Process(storage, clock, "c").repair()
    assert [path for path in paths if storage.stat(path) is None] == [], "no marker names them"


def test_files_of_a_write_that_completed_by_the_log_stay_though_it_is_on_no_timeline(
    storage: MemoryStorage, clock: Clock
) -> None:
    a = Process(storage, clock, "a")
    a.begin().complete(DONE)
    lost, marked = a.begin(), a.begin()
    kept = [data_file(lost.requested), write_data(storage, marked.requested)]
    storage.create(kept[0], b"rows")
    lost.complete(DONE)
    marked.complete(DONE)
    storage.create(f".hoodie/.temp/{marked.requested}/{kept[1]}.marker.CREATE", b"")
    superseded = a.begin()
    superseded.complete(DONE)
    a.log.refresh()
    assert a.log.tail is not None
    void(a.log, a.log.tail.n)
    gone = data_file(superseded.requested)
    storage.create(gone, b"rows")
    a.begin().complete(DONE)
    for stat in list(storage.list(TIMELINE)):
        if any(tx.requested in stat.path for tx in (lost, marked, superseded)):
            storage.delete(stat.path)
    clock.sleep(DAY_MS)
    Process(storage, clock, "b").repair(is_whole=True)
    assert [path for path in kept if storage.stat(path) is None] == []
    assert storage.stat(gone) is None, "its entry was taken back"


def move_to_archive(storage: MemoryStorage, requested: str, completed: str) -> None:
    """As an archiver does, but without what lies around the instant."""
    instant = ArchivedInstant(
        InstantTime(requested), InstantTime(completed), "deltacommit", b"", None
    )
    data = encode_archive_file([instant])
    name = ArchiveFileName(instant.requested, instant.requested, 0)
    history = f"{TIMELINE}/history"
    storage.create(f"{history}/{name.file_name}", data)
    manifest = encode_manifest(Manifest((ManifestEntry(name, len(data)),)))
    storage.create(f"{history}/{manifest_name(1)}", manifest)
    storage.create(f"{history}/{VERSION_FILE}", b"1")
    for stat in list(storage.list(TIMELINE)):
        if stat.path.startswith(f"{TIMELINE}/{requested}"):
            storage.delete(stat.path)


def test_files_that_readers_take_for_committed_stay_whichever_write_left_their_markers(
    storage: MemoryStorage, clock: Clock
) -> None:
    """They are older than the active timeline, so they count as archived."""
    path = write_data(storage, clock_time(clock(), UTC))
    clock.sleep(1_000)
    Process(storage, clock, "a").begin().complete(DONE)
    clock.sleep(SETTINGS.heartbeat_timeout_ms)
    Process(storage, clock, "b").repair()
    assert storage.stat(path) is not None


def test_an_instant_that_begins_while_a_repair_looks_around_is_left_alone(
    storage: MemoryStorage, clock: Clock
) -> None:
    a = Process(storage, clock, "a")
    a.begin().complete(DONE)
    begun: list[str] = []

    class Busy(FaultyStorage):
        def list_folder(self, prefix: str) -> Folder:
            if prefix == TIMELINE:
                for has_files in (True, False):
                    requested = Process(storage, clock, f"w{len(begun)}").begin().requested
                    begun.append(f"{TIMELINE}/{requested}.deltacommit.inflight")
                    begun.extend([write_data(storage, requested)] if has_files else [])
            return super().list_folder(prefix)

    Process(Busy(storage), clock, "b").repair()
    assert begun
    assert [path for path in begun if storage.stat(path) is None] == []
