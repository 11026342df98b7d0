"""Listings of a timeline that is being archived, and processes that slept meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC
from itertools import count

import pyarrow as pa
import pytest

import handmade
from faulty_storage import Effect, Fault, FaultyStorage
from handmade import HandmadeTable
from pyhudi.commit.decision_log import STALE_MS, DecisionLog
from pyhudi.commit.proposals import Begin, Complete, Decided
from pyhudi.errors import UnavailableError
from pyhudi.format.timeline.decision_entry import LOG_FOLDER
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.read.load import TableLoader, load_config
from pyhudi.settings import WriteSettings
from pyhudi.storage.objects.timeline_listing import list_timeline
from pyhudi.storage.protocol import Folder, ObjectStat, Storage
from pyhudi.storage.stores.memory import MemoryStorage
from pyhudi.timeline.timeline import Timeline
from worlds import Clock, still_world

TIMELINE = ".hoodie/timeline"
SETTINGS = WriteSettings()


def at(n: int) -> str:
    return f"{n:017}"


def files_of(n: int) -> list[str]:
    return [f"{at(n)}.deltacommit.{state}" for state in ("inflight", "requested")] + [
        f"{at(n)}_{at(n + 1)}.deltacommit"
    ]


def timeline(*numbers: int, history: bool = True) -> MemoryStorage:
    clock = Clock()
    storage = MemoryStorage(clock)
    for n in numbers:
        for name in files_of(n):
            storage.write(f"{TIMELINE}/{name}", b"")
    if history:
        storage.write(f"{TIMELINE}/history/_version_", b"1")
    return storage


def archive(storage: Storage, *numbers: int) -> None:
    """As archivers do: what is pending first."""
    for n in numbers:
        for name in files_of(n)[:2]:
            storage.delete(f"{TIMELINE}/{name}")
    for n in numbers:
        storage.delete(f"{TIMELINE}/{files_of(n)[2]}")


class Torn(FaultyStorage):
    """A listing that is read in two parts, with something in between, some of the times."""

    def __init__(
        self, inner: Storage, after: int, meanwhile: Callable[[], object], times: int = 1
    ) -> None:
        super().__init__(inner)
        self._after = after
        self._meanwhile = meanwhile
        self._times = times
        self.listings = 0

    def list_folder(self, prefix: str) -> Folder:
        before = super().list_folder(prefix)
        self.listings += 1
        if self.listings > self._times:
            return before
        self._meanwhile()
        now = super().list_folder(prefix)
        seen: tuple[ObjectStat, ...] = before.objects[: self._after]
        last = seen[-1].path if seen else ""
        return Folder(now.folders, (*seen, *(s for s in now.objects if s.path > last)))


@pytest.mark.parametrize("after", range(1, 13))
def test_a_listing_that_archiving_tore_is_made_again(after: int) -> None:
    storage = timeline(10, 20, 30, 40)
    torn = Torn(storage, after, lambda: archive(storage, 10, 20, 30))
    found = Timeline.of(list_timeline(torn, TIMELINE))
    assert found.pending == ()
    for n in (10, 20, 30, 40):
        assert found.is_committed(at(n)), n


def test_an_unordered_listing_that_shows_a_pending_instant_before_all_writes_is_made_again() -> (
    None
):
    storage = timeline(10, 20, 30)
    ghost = ObjectStat(f"{TIMELINE}/{at(10)}.deltacommit.requested", 0, None, 0)
    archive(storage, 10)

    class Unordered(FaultyStorage):
        looks = count()

        def list_folder(self, prefix: str) -> Folder:
            found = super().list_folder(prefix)
            more = (ghost,) if next(self.looks) == 0 else ()
            return Folder(found.folders, (*more, *found.objects))

    assert Timeline.of(list_timeline(Unordered(storage), TIMELINE)).pending == ()


def test_a_write_that_really_is_pending_before_all_others_stays_so() -> None:
    storage = timeline(20, 30)
    storage.write(f"{TIMELINE}/{at(10)}.deltacommit.requested", b"")
    storage.write(f"{TIMELINE}/{at(5)}.clean.requested", b"")
    found = Timeline.of(list_timeline(storage, TIMELINE))
    assert [i.requested for i in found.pending] == [at(5), at(10)]


def test_a_timeline_that_is_archived_during_every_listing_is_listed_twice() -> None:
    numbers = range(10, 200, 10)
    storage, left = timeline(*numbers), iter(numbers)
    torn = Torn(storage, 2, lambda: archive(storage, next(left), next(left)), times=9)
    found = Timeline.of(list_timeline(torn, TIMELINE))
    assert torn.listings == 2
    assert found.pending == ()
    assert all(found.is_committed(at(n)) for n in numbers)


def test_a_timeline_all_of_which_is_archived_during_every_listing_is_an_error() -> None:
    storage, numbers = timeline(10), count(10, 10)

    class Moving(FaultyStorage):
        def list_folder(self, prefix: str) -> Folder:
            found, n = super().list_folder(prefix), next(numbers)
            archive(storage, n)
            for name in files_of(n + 10):
                storage.write(f"{TIMELINE}/{name}", b"")
            return found

    with pytest.raises(UnavailableError, match="changes faster than it can be listed"):
        list_timeline(Moving(storage), TIMELINE)


def test_a_table_without_an_archive_and_one_whose_lock_is_held_cost_one_listing() -> None:
    bare = FaultyStorage(timeline(10, history=False))
    list_timeline(bare, TIMELINE)
    guarded = FaultyStorage(timeline(10))
    list_timeline(guarded, TIMELINE, is_guarded=True)
    assert len(bare.trace) == len(guarded.trace) == 1


# ---- processes that slept


def decision_log(storage: Storage, clock: Clock, label: str) -> DecisionLog:
    world = still_world(clock, label)
    return DecisionLog(storage, world, SETTINGS, timeline_folder=TIMELINE, zone=UTC)


def begun(log: DecisionLog) -> Complete:
    outcome = log.append(Begin(Action.DELTACOMMIT))
    assert isinstance(outcome, Decided)
    requested = outcome.entry.instant or ""
    inflight = Instant(InstantTime(requested), Action.DELTACOMMIT, State.INFLIGHT)
    log.storage.create(log.path(inflight), b"")
    return Complete(requested, Action.DELTACOMMIT, outcome.entry.n, b"done")


class Sleepy(FaultyStorage):
    """A process that falls asleep before its first operation of a kind, and others go on."""

    def __init__(
        self, inner: Storage, operation: str, path: str, meanwhile: Callable[[], None] | None
    ) -> None:
        super().__init__(inner)
        self._on = (operation, path)
        self.meanwhile = meanwhile

    def _doze(self, operation: str, path: str) -> None:
        wanted, part = self._on
        if operation == wanted and part in path and (meanwhile := self.meanwhile) is not None:
            self.meanwhile = None
            meanwhile()

    def stat(self, path: str) -> ObjectStat | None:
        self._doze("stat", path)
        return super().stat(path)

    def list(self, prefix: str, *, after: str | None = None):  # type: ignore[no-untyped-def]
        self._doze("list", prefix)
        return super().list(prefix, after=after)


class Race:
    """A table on which somebody decided a completion and did not come to carry it out."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.storage = MemoryStorage(lambda: self.clock.ms)
        first = decision_log(self.storage, self.clock, "first")
        for _ in range(2):
            first.append(begun(first))
        self.job = begun(first)

    def decided_only(self) -> None:
        fault = Fault(Effect.FAIL, operation="create", path=f"{TIMELINE}/*_*", times=None)
        failing = FaultyStorage(self.storage, [fault])
        with pytest.raises(UnavailableError):
            decision_log(failing, self.clock, "dying").append(replace(self.job, begin=None))

    def carried_out_and_archived(self) -> None:
        other = decision_log(self.storage, self.clock, "other")
        other.refresh()
        other.append(begun(other))
        assert self.left()
        self.clock.sleep(STALE_MS + 1)
        for path in self.left():
            self.storage.delete(path)

    def left(self) -> list[str]:
        return [s.path for s in self.storage.list(TIMELINE) if self.job.requested in s.path]


def test_who_slept_between_a_decision_and_its_effect_brings_nothing_back() -> None:
    """Row 23 of the protocol: others carry it out, commit, and archive it meanwhile."""
    race = Race()
    sleepy = Sleepy(race.storage, "list", LOG_FOLDER, None)
    log = decision_log(sleepy, race.clock, "owner")
    log.refresh()
    create = sleepy.create

    def create_and_doze(path: str, data: bytes) -> bool:
        made = create(path, data)
        if path.startswith(LOG_FOLDER):
            sleepy.meanwhile = race.carried_out_and_archived  # at the listing that verifies it
        return made

    sleepy.create = create_and_doze  # type: ignore[method-assign]
    assert isinstance(log.append(replace(race.job, begin=None)), Decided)
    assert race.left() == []


def test_who_slept_before_it_looked_for_the_effect_of_anothers_entry_brings_nothing_back() -> None:
    race = Race()
    race.decided_only()
    sleepy = Sleepy(race.storage, "stat", race.job.requested, race.carried_out_and_archived)
    decision_log(sleepy, race.clock, "finisher").refresh()
    assert sleepy.meanwhile is None, "it never looked"
    assert race.left() == []


def test_a_refresh_takes_no_archived_write_for_a_pending_one(memory: Storage) -> None:
    made = HandmadeTable(memory, pa.schema([("id", pa.string())]))
    for n in (1, 3, 5):
        made.begin(n)
        made.complete(n, n + 1, [made.log(n, made.rows_block(n, [{"id": str(n)}]))])
    loader = TableLoader(memory, load_config(memory))
    state = loader.load()
    made.begin(7)
    done = f"{TIMELINE}/{handmade.at(3)}_{handmade.at(4)}.deltacommit"

    class Missing(FaultyStorage):
        """The first listing of what is new misses a completed file."""

        looks = count()

        def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectStat]:
            found = super().list(prefix, after=after)
            return (s for s in found if s.path != done) if next(self.looks) == 0 else found

    again = TableLoader(Missing(memory), loader.config).refresh(state)
    assert again.timeline.is_committed(handmade.at(3))
    assert not again.timeline.is_committed(handmade.at(7))
