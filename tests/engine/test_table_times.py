"""The times that decisions bring on a table that a Java writer shares, by clocks and zones."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, tzinfo

import pytest

from locking_world import MINUTE_MS, START_MS, Universe
from pyhudi.engine.decide import DecisionLog
from pyhudi.engine.decisions import Begin, Decided
from pyhudi.format.instant import Action
from pyhudi.settings import WriteSettings
from pyhudi.storage.file_lock import FileLock
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

    def log(self, *, zone: tzinfo | None = UTC, world: World | None = None) -> DecisionLog:
        world = self.universe.world() if world is None else world
        return DecisionLog(
            self.storage,
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
