"""The times that decisions bring on a table that a Java writer shares, by clocks and zones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

import pytest

from faulty_storage import Effect, Fault, FaultyStorage
from locking_world import MINUTE_MS, START_MS, Universe
from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.proposals import Begin, Complete, Decided
from pyhudi.commit.time_zone import FRESH_MS, LOOK_AGAIN_MS
from pyhudi.errors import UnavailableError
from pyhudi.format.timeline.instant import Action
from pyhudi.settings import WriteSettings
from pyhudi.storage.locks.file_lock import LOCK_PATH, FileLock
from pyhudi.storage.protocol import Storage
from pyhudi.timeline.instant_time import clock_time
from pyhudi.world import World

TIMELINE = ".hoodie/timeline"
SKEW_MS = 200


class Table:
    """A table with a Java writer beside, whose clock is right."""

    def __init__(self) -> None:
        self.universe = Universe()
        self.universe.pass_ms(123)  # no whole second, so the store's times are exact
        self.storage = self.universe.memory()

    def log(
        self,
        *,
        zone: tzinfo | None = UTC,
        world: World | None = None,
        storage: Storage | None = None,
    ) -> DecisionLog:
        world = self.universe.world() if world is None else world
        return DecisionLog(
            storage or self.storage,
            world,
            WriteSettings(),
            timeline_folder=TIMELINE,
            zone=zone,
            lock=FileLock(self.storage, world),
            skew_ms=SKEW_MS,
        )

    def java(self, zone: tzinfo = UTC, *, age_ms: int = 0) -> str:
        """A commit of the Java writer, and its completion time."""
        self.universe.pass_ms(2)
        now_ms = self.universe.now_ms - age_ms
        requested, completed = clock_time(now_ms - 1, zone), clock_time(now_ms, zone)
        for name in (f"{requested}.deltacommit.requested", f"{requested}_{completed}.deltacommit"):
            self.storage.create(f"{TIMELINE}/{name}", b"")
        return completed


def begun(log: DecisionLog) -> str:
    outcome = log.append(Begin(Action.DELTACOMMIT))
    assert isinstance(outcome, Decided)
    return outcome.entry.instant or ""


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.mark.parametrize("before_ms", [1_000, 20_000])
def test_a_process_whose_machine_was_stopped_writes_on_behind_what_others_wrote_meanwhile(
    table: Table, before_ms: int
) -> None:
    """Nobody has set its clock: by that, the others' times are minutes ahead."""
    universe, stopped_ms = table.universe, 0
    world = replace(
        universe.world(),
        now_ms=lambda: universe.now_ms - stopped_ms,
        elapsed_ms=lambda: universe.now_ms - START_MS - stopped_ms,
    )
    log = table.log(world=world)
    begun(log)
    universe.pass_ms(before_ms)
    universe.now_ms += 10 * MINUTE_MS
    stopped_ms = 10 * MINUTE_MS
    completed = table.java()
    universe.pass_ms(1_000)
    woken_ms = universe.now_ms
    assert completed < begun(log) < table.java()
    assert universe.now_ms - woken_ms < 5 * SKEW_MS


# -- a timeline in local time

BERLIN, KATHMANDU, NEW_YORK = (
    ZoneInfo(name) for name in ("Europe/Berlin", "Asia/Kathmandu", "America/New_York")
)
GREENWICH = ZoneInfo("Etc/UTC")  # of a machine; a timeline in UTC has no other
HOUR_MS = 60 * MINUTE_MS


@pytest.mark.parametrize(
    ("java", "ours", "says"),
    [
        (BERLIN, GREENWICH, "1:00 h ahead of ours"),
        (GREENWICH, BERLIN, "1:00 h behind ours"),
        (KATHMANDU, BERLIN, "4:45 h ahead of ours"),
        (NEW_YORK, KATHMANDU, "10:45 h behind ours"),
    ],
)
def test_beside_a_writer_in_another_zone_nothing_is_decided_in_local_time(
    table: Table, java: tzinfo, ours: tzinfo, says: str
) -> None:
    """East of it, all that it writes next would be behind what we publish, and hidden."""
    completed = table.java(java)
    table.universe.pass_ms(10 * MINUTE_MS)
    log = table.log(zone=ours)
    for _ in range(2):
        with pytest.raises(UnavailableError, match=says) as error:
            begun(log)
    assert completed in error.value.why
    assert "Set TZ" in error.value.next_step
    assert table.storage.stat(LOCK_PATH) is None
    assert completed < begun(table.log(zone=java)) < table.java(java)


@pytest.fixture
def in_kathmandu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_kathmandu")
def test_the_zone_of_this_process_is_that_of_its_machine(table: Table) -> None:
    table.java(KATHMANDU)
    log = table.log(zone=None)
    assert begun(log) < table.java(KATHMANDU)
    table.java(BERLIN)
    table.universe.pass_ms(LOOK_AGAIN_MS + 1)
    with pytest.raises(UnavailableError, match="4:45 h behind ours"):
        begun(log)


def test_a_writer_that_comes_later_from_the_east_is_noticed_at_once(table: Table) -> None:
    log = table.log(zone=GREENWICH)
    begun(log)
    table.java(BERLIN)
    with pytest.raises(UnavailableError, match="1:00 h ahead of ours"):
        begun(log)


def test_a_timeline_in_utc_is_never_asked_for_its_zone(table: Table) -> None:
    table.java(NEW_YORK)
    assert begun(table.log()) < table.java()


def copied(table: Table) -> None:
    """Its files have the time of the copy."""
    for hours in (1, 2):
        table.java(BERLIN, age_ms=hours * HOUR_MS)
    table.java(BERLIN, age_ms=HOUR_MS + 5 * MINUTE_MS)


def slow(table: Table) -> None:
    table.java(BERLIN, age_ms=10 * MINUTE_MS)


def of_old(table: Table) -> None:
    table.java(GREENWICH)
    table.universe.pass_ms(FRESH_MS + 1)


def planned_for_long(table: Table) -> None:
    requested = clock_time(table.universe.now_ms - 15 * MINUTE_MS, BERLIN)
    table.storage.create(f"{TIMELINE}/{requested}.compaction.requested", b"")


def no_date(table: Table) -> None:
    table.storage.create(f"{TIMELINE}/{'0' * 17}_{'0' * 17}.deltacommit", b"")


@pytest.mark.parametrize("happened", [copied, slow, of_old, planned_for_long, no_date])
def test_what_may_have_come_of_something_else_than_a_zone_stops_nobody(
    table: Table, happened: Callable[[Table], None]
) -> None:
    happened(table)
    assert begun(table.log(zone=BERLIN)) < table.java(BERLIN)


def test_what_a_dead_process_decided_and_we_carry_out_later_tells_no_zone(table: Table) -> None:
    crash = Fault(Effect.FAIL, operation="create", path=f"{TIMELINE}/*_*", times=None)
    dying = table.log(zone=BERLIN, storage=FaultyStorage(table.storage, [crash]))
    requested = begun(dying)
    table.storage.create(f"{TIMELINE}/{requested}.deltacommit.inflight", b"")
    with pytest.raises(UnavailableError):
        dying.append(Complete(requested, Action.DELTACOMMIT, None, b"done"))
    table.universe.pass_ms(HOUR_MS)
    begun(table.log(zone=BERLIN))
    assert any(f"/{requested}_" in stat.path for stat in table.storage.list(TIMELINE))


def test_a_write_across_the_begin_of_summer_time_tells_no_other_zone(table: Table) -> None:
    turn = datetime(2026, 3, 29, 1, tzinfo=UTC)
    table.universe.now_ms = int(turn.timestamp() * 1000) + 123
    table.java(BERLIN, age_ms=1_000)
    assert begun(table.log(zone=BERLIN)) < table.java(BERLIN)


def test_where_clocks_go_back_the_error_says_that_the_time_is_local(table: Table) -> None:
    turn = datetime(2026, 10, 25, 1, tzinfo=UTC)
    table.universe.now_ms = int(turn.timestamp() * 1000) - 1_000
    completed = table.java(BERLIN)
    table.universe.pass_ms(MINUTE_MS)
    with pytest.raises(UnavailableError, match=rf"{completed}, is 35\d\d\.\d s ahead") as error:
        begun(table.log(zone=BERLIN))
    assert "in our time zone" in error.value.why
    assert "set back for the winter" in error.value.next_step
    table.universe.pass_ms(HOUR_MS)
    assert begun(table.log(zone=BERLIN)) > completed
