"""A failing run as data: replayed exactly, and made small enough to read."""

from __future__ import annotations

import pytest

from pyhudi.errors import UnavailableError
from pyhudi.simulate import (
    Effect,
    Fault,
    FaultRates,
    Process,
    Recording,
    Scenario,
    Simulation,
    replay,
    run_seed,
    shrink,
)


def appends(process: Process, acknowledged: list[str]) -> None:
    """Numbers of a log. The bug: a lost reply is taken for a failure, and the append repeated."""
    for _ in range(3):
        for _ in range(10):
            number = len(list(process.storage.list("log")))
            try:
                if process.storage.create(f"log/{number:03}", process.name.encode()):
                    acknowledged.append(process.name)
                    break
            except UnavailableError:
                continue
        process.world.sleep_ms(10)


def a_log(simulation: Simulation) -> None:
    acknowledged: list[str] = []
    for name in ("ann", "bob", "cyd"):
        process = simulation.process(name)
        process.start(quiet_appends, process, acknowledged)
    simulation.run()
    alive = len(list(simulation.storage.list("log"))) <= len(acknowledged)
    assert alive, "an append was made twice"


def quiet_appends(process: Process, acknowledged: list[str]) -> None:
    try:
        appends(process, acknowledged)
    except UnavailableError:
        return


def increments(process: Process) -> None:
    value = int(process.storage.read("counter"))
    for _ in range(5):
        process.storage.stat("counter")
    process.storage.write("counter", str(value + 1).encode())


def a_counter(simulation: Simulation) -> None:
    simulation.storage.create("counter", b"0")
    for name in ("ann", "bob"):
        process = simulation.process(name)
        process.start(increments, process)
    simulation.run()
    assert simulation.storage.read("counter") == b"2"


NO_CRASH = FaultRates(crashes_max=0)


def failing(scenario: Scenario, rates: FaultRates | None) -> Recording:
    for seed in range(200):
        outcome = run_seed(scenario, seed, rates)
        if outcome.error is not None and len(outcome.recording.choices) > 8:
            return outcome.recording
    raise AssertionError("no seed fails")


@pytest.mark.parametrize("seed", range(10))
def test_a_recording_plays_the_run_of_its_seed_again(seed: int) -> None:
    outcome = run_seed(a_log, seed, FaultRates())
    again = replay(a_log, outcome.recording)
    assert again.digest == outcome.digest
    assert again.recording == outcome.recording
    assert type(again.error) is type(outcome.error)


def test_shrinking_leaves_the_one_fault_it_takes() -> None:
    small = shrink(a_log, failing(a_log, NO_CRASH))
    assert [fault.effect for fault in small.faults] in (
        [Effect.LOSE_REPLY],
        [Effect.LATE],
        [Effect.REPEAT],
    )
    assert small.choices == ()
    assert small.skews_ms == ()
    assert isinstance(replay(a_log, small).error, AssertionError)


def test_shrinking_leaves_the_switches_it_takes() -> None:
    small = shrink(a_counter, failing(a_counter, None))
    # Away from the first actor before it writes; without that there is no lost update.
    assert sum(choice > 0 for choice in small.choices) == 1
    assert isinstance(replay(a_counter, small).error, AssertionError)


def test_shrinking_keeps_to_its_allowance() -> None:
    runs: list[int] = []

    def counted(simulation: Simulation) -> None:
        runs.append(1)
        a_log(simulation)

    shrink(counted, failing(a_log, NO_CRASH), attempts_max=3)
    assert len(runs) == 4  # and one to see it fail


def test_what_does_not_fail_cannot_be_made_smaller() -> None:
    with pytest.raises(ValueError, match="does not fail"):
        shrink(a_log, Recording(0))


def test_a_recording_can_be_written_by_hand() -> None:
    recording = Recording(0, faults=(Fault("bob", 2, Effect.LOSE_REPLY),))
    assert isinstance(replay(a_log, recording).error, AssertionError)
