"""The store's clock, and what a process makes of its own where the two disagree."""

from __future__ import annotations

import pytest

from locking_world import MINUTE_MS, Universe
from pyhudi.storage.faulty import Effect, Fault, FaultyStorage
from pyhudi.storage.store_clock import StoreClock


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
    universe = Universe()
    right = StoreClock(universe.memory(), universe.world())
    assert right.shared_now_ms() == universe.now_ms
    slightly_fast = StoreClock(universe.memory(), universe.world("b", skew_ms=900))
    assert slightly_fast.shared_now_ms() == universe.now_ms + 900


def test_a_clock_that_agrees_is_compared_once(universe: Universe) -> None:
    counted = FaultyStorage(universe.memory())
    clock = StoreClock(counted, universe.world())
    for _ in range(10):
        clock.shared_now_ms()
        universe.pass_ms(MINUTE_MS)
    assert [operation.name for operation in counted.trace] == ["write", "stat", "delete"]


@pytest.mark.parametrize("skew_ms", [0, 20_000])
def test_a_reading_during_which_the_process_froze_tells_nothing_of_a_fast_clock(
    universe: Universe, skew_ms: int
) -> None:
    freeze = Fault(Effect.DELAY, operation="write", delay_ms=70_000)
    storage = FaultyStorage(universe.memory(), [freeze], sleep_ms=universe.pass_ms)
    clock = StoreClock(storage, universe.world(skew_ms=skew_ms))
    assert clock.shared_now_ms() == universe.now_ms
