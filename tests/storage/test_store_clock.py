"""The store's clock, and what a process makes of its own where the two disagree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from faulty_storage import Effect, Fault, FaultyStorage
from locking_world import MINUTE_MS, START_MS, Universe
from pyhudi.storage.objects.store_clock import StoreClock
from pyhudi.world import World


@pytest.fixture
def universe() -> Universe:
    universe = Universe()
    universe.pass_ms(123)  # no whole second, so the store's times are exact
    return universe


@pytest.mark.parametrize("skew_ms", [-10 * MINUTE_MS, -50, 0, 10, 50, 10 * MINUTE_MS])
def test_beside_another_engine_a_clock_counts_only_as_far_as_the_store_agrees(
    universe: Universe, skew_ms: int
) -> None:
    clock = StoreClock(universe.memory(), universe.world(skew_ms=skew_ms))
    for _ in range(3):
        expected = universe.now_ms + (skew_ms if 0 <= skew_ms <= 10 else 0)
        assert clock.shared_now_ms() == clock.seen_now_ms() == expected
        universe.pass_ms(MINUTE_MS)


def test_a_store_that_tells_whole_seconds_is_believed_no_more_than_that() -> None:
    """So a clock that is less than a second fast passes there; docs/concurrency.md says so."""
    universe = Universe()
    right = StoreClock(universe.memory(), universe.world())
    assert right.shared_now_ms() == universe.now_ms
    slightly_fast = StoreClock(universe.memory(), universe.world("b", skew_ms=900))
    assert slightly_fast.shared_now_ms() == universe.now_ms + 900


def test_a_clock_that_agrees_is_compared_every_five_minutes_and_only_if_asked(
    universe: Universe,
) -> None:
    counted = FaultyStorage(universe.memory())
    clock = StoreClock(counted, universe.world())
    for _ in range(5):
        clock.shared_now_ms()
        universe.pass_ms(MINUTE_MS)
    assert [operation.name for operation in counted.trace] == ["write", "stat", "delete"]
    universe.pass_ms(1)
    clock.seen_now_ms()
    assert len(counted.trace) == 3
    for _ in range(10):
        clock.shared_now_ms()
    assert [operation.name for operation in counted.trace] == ["write", "stat", "delete"] * 2


def drifting(universe: Universe, per_million: int) -> World:
    """A machine with one quartz for both of its clocks, which nobody sets."""

    def passed_ms() -> int:
        ms = universe.now_ms - START_MS
        return ms + ms * per_million // 1_000_000

    return replace(
        universe.world(), now_ms=lambda: START_MS + passed_ms(), elapsed_ms=lambda: passed_ms()
    )


@pytest.mark.parametrize("per_million", [-500, -50, 50, 500])
def test_a_clock_that_drifts_for_days_stays_with_the_stores(
    universe: Universe, per_million: int
) -> None:
    clock = StoreClock(universe.memory(), drifting(universe, per_million))
    for _ in range(2 * 24 * 10):
        assert abs(clock.shared_now_ms() - universe.now_ms) < 200
        assert abs(clock.seen_now_ms() - universe.now_ms) < 200
        universe.pass_ms(6 * MINUTE_MS - 17)


def test_a_machine_that_was_stopped_learns_of_it_by_what_the_store_shows(
    universe: Universe,
) -> None:
    """Both of its clocks go on where they were, and agree with each other."""
    stopped_ms = 0
    world = universe.world()
    world = replace(
        world,
        now_ms=lambda: universe.now_ms - stopped_ms,
        elapsed_ms=lambda: universe.now_ms - START_MS - stopped_ms,
    )
    memory = universe.memory()
    clock = StoreClock(memory, world)
    assert clock.shared_now_ms() == universe.now_ms
    universe.pass_ms(11_000)
    universe.now_ms += 10 * MINUTE_MS
    stopped_ms = 10 * MINUTE_MS
    assert clock.shared_now_ms() == universe.now_ms - stopped_ms  # nothing tells it yet
    clock.observe(universe.now_ms)
    assert clock.shared_now_ms() == clock.seen_now_ms() == universe.now_ms


def test_an_object_with_a_time_from_the_future_costs_a_reading_and_moves_nothing(
    universe: Universe,
) -> None:
    counted = FaultyStorage(universe.memory())
    clock = StoreClock(counted, universe.world())
    clock.shared_now_ms()
    for _ in range(40):
        universe.pass_ms(500)
        clock.observe(universe.now_ms + MINUTE_MS)
        assert universe.now_ms <= clock.seen_now_ms() <= universe.now_ms + 10
        assert universe.now_ms <= clock.shared_now_ms() <= universe.now_ms + 10
    assert [operation.name for operation in counted.trace] == ["write", "stat", "delete"] * 2


@pytest.mark.parametrize("skew_ms", [0, 20_000])
def test_a_reading_during_which_the_process_froze_tells_nothing_of_a_fast_clock(
    universe: Universe, skew_ms: int
) -> None:
    freeze = Fault(Effect.DELAY, operation="write", delay_ms=70_000)
    storage = FaultyStorage(universe.memory(), [freeze], sleep_ms=universe.pass_ms)
    clock = StoreClock(storage, universe.world(skew_ms=skew_ms))
    assert clock.shared_now_ms() == universe.now_ms
