"""A crash before and after every storage operation of a write and of a rollback, then recovery.

The toy data plane makes each run cheap, so that pairs of crashes, the second one inside the
recovery from the first, can be tried by the thousand.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache

import pytest

from light_scenarios import (
    EVOLVING,
    KINDS,
    OpenWrite,
    dropping,
    judged_after_repair,
    recover,
    stage_of,
    start_evolving,
    steady_writer,
)
from pyhudi.simulate.faults import Effect, Fault, FixedFaults
from pyhudi.simulate.simulation import Process, Simulation
from pyhudi.simulate.table.checks.evidence import Violation
from pyhudi.simulate.table.stage import Stage

CRASHES = (Effect.CRASH_BEFORE, Effect.CRASH_AFTER)
#: Every so manieth pair of crashes is tried; 1 tries them all.
STRIDE = int(os.environ.get("PYHUDI_CRASH_STRIDE", "23"))
Begin = Callable[[Stage], Process]


def a_write(stage: Stage) -> Process:
    """begin, write, complete"""
    writer = steady_writer(stage, "first")
    writer.process.start(writer.run)
    return writer.process


def a_rollback(stage: Stage) -> Process:
    """abort, roll back"""
    OpenWrite(stage, "dead", ("k0", "k1")).fall_silent()
    process = stage.simulation.process("first")
    process.start(recover, stage, process)
    return process


def the_loser_of_a_conflict(stage: Stage) -> Process:
    """complete, and where that is refused abort and roll back"""
    loser = OpenWrite(stage, "first", ("k0",))
    OpenWrite(stage, "winner", ("k0",)).complete()
    loser.process.start(loser.complete)
    return loser.process


def a_change_of_the_schema(stage: Stage) -> Process:
    """one whole entry, and its three files"""
    OpenWrite(stage, "other", ("k0",), adds="c0").complete()
    return start_evolving(stage, "first", dropping("c0"))


def a_write_behind(stage: Stage) -> Process:
    """its schema in a whole entry, and then itself"""
    write = OpenWrite(stage, "first", ("k0",), adds="c0")
    OpenWrite(stage, "later", ("k1",), adds="c1").complete()
    write.process.start(write.complete)
    return write.process


SCENES: dict[str, Begin] = {
    "write": a_write,
    "rollback": a_rollback,
    "conflict": the_loser_of_a_conflict,
    "change of the schema": a_change_of_the_schema,
    "write behind": a_write_behind,
}
EVOLVES = {"change of the schema", "write behind"}
CASES = [(scene, kind) for scene in SCENES for kind in KINDS]


def run_with_crashes(scene: str, kind: str, *crashes: Fault) -> tuple[list[Violation], list[int]]:
    """Return the violations, and how many operations the scene and the recovery from it made."""
    with Simulation(1, faults=FixedFaults(crashes), tick_ms=1) as simulation:
        stage = stage_of(simulation, (EVOLVING if scene in EVOLVES else KINDS)[kind])
        first = SCENES[scene](stage)
        simulation.run()
        second = simulation.process("second")
        simulation.scheduler.now_ms += 2 * stage.settings.heartbeat_timeout_ms
        second.start(recover, stage, second)
        simulation.run()
        return judged_after_repair(stage), [first.operations, second.operations]


def crashes_of(process: str, operations: int) -> Iterator[Fault]:
    for nth in range(1, operations + 1):
        for effect in CRASHES:
            yield Fault(process, nth, effect)


@cache
def operations_of(scene: str, kind: str) -> int:
    broken, (first, _) = run_with_crashes(scene, kind)
    assert not broken
    assert first > 10
    return first


@pytest.mark.parametrize(("scene", "kind"), CASES)
def test_a_crash_at_any_operation_leaves_a_table_that_recovers(scene: str, kind: str) -> None:
    for crash in crashes_of("first", operations_of(scene, kind)):
        broken, _ = run_with_crashes(scene, kind, crash)
        assert not broken, (crash, broken)


@pytest.mark.parametrize(("scene", "kind"), CASES)
def test_a_second_crash_inside_the_recovery_changes_nothing(scene: str, kind: str) -> None:
    tried = 0
    for first in crashes_of("first", operations_of(scene, kind)):
        _, (_, operations) = run_with_crashes(scene, kind, first)
        for second in crashes_of("second", operations):
            tried += 1
            if tried % STRIDE == 0:
                broken, _ = run_with_crashes(scene, kind, first, second)
                assert not broken, (first, second, broken)
    assert tried > 100
