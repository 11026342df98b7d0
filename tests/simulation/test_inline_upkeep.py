"""A writer that maintains the table after its commit, and dies or sleeps at each of its steps.

Another writer does the same meanwhile. The claim only saves double work, so both may be at it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from light_scenarios import NBCC, OpenWrite, judged, stage_of
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.plan.cleaning import CleanPolicy
from pyhudi.plan.compaction.policy import CompactionPolicy
from pyhudi.plan.upkeep import Upkeep
from pyhudi.services.inline import CLAIM, InlineUpkeep
from pyhudi.session.session import TableSession
from pyhudi.simulate.faults import Effect, Fault, FixedFaults
from pyhudi.simulate.simulation import Process, Simulation
from pyhudi.simulate.table.actors.archiver import policy
from pyhudi.simulate.table.actors.compactor import ToyMerge
from pyhudi.simulate.table.checks.evidence import Violation
from pyhudi.simulate.table.rows import TableKind
from pyhudi.simulate.table.stage import Stage
from pyhudi.world import World
from pyhudi.write.result import write_result

HOUR_MS = 3_600_000
WRITTEN = write_result(InstantTime("0" * 17), "0" * 17, [], 0, 0.0)
RETAINED = CleanPolicy.commits(2)
UPKEEP = Upkeep(
    compaction=CompactionPolicy(trigger_delta_commits=1),
    clean=RETAINED,
    archive=replace(policy(), delta_commits=1),
)


class OpenToyTable:
    """The toy table as one process has it open."""

    def __init__(self, stage: Stage, process: Process) -> None:
        self.world: World = process.world
        self._session = stage.session(process)

    def known(self) -> TableSession:
        self._session.log.refresh()
        return self._session


def write_and_keep_up(stage: Stage, process: Process, rounds: int) -> None:
    inline = InlineUpkeep(OpenToyTable(stage, process), UPKEEP)  # type: ignore[arg-type]
    for number in range(rounds):
        OpenWrite(
            stage, f"{process.name}{number}", ("k0", f"k{number % 3}"), process=process
        ).complete()
        inline.follow(WRITTEN, lambda _: ToyMerge(stage, process))
        process.world.sleep_ms(HOUR_MS // 2)


def lived(fault: Fault | None, kind: TableKind) -> tuple[list[Violation], bool, bool]:
    """Return what is broken at the end, whether the fault came, and whether the claim is free."""
    faults = FixedFaults([fault] if fault else [])
    with Simulation(1, faults=faults, tick_ms=1) as simulation:
        stage = stage_of(simulation, kind)
        first, second = simulation.process("first"), simulation.process("second")
        first.start(write_and_keep_up, stage, first, 3)
        second.start(write_and_keep_up, stage, second, 5)
        simulation.run()
        is_free = second.storage.stat(CLAIM) is None
        is_reached = fault is not None and first.operations >= fault.nth
        return judged(stage, repaired=False, clean_policy=RETAINED), is_reached, is_free


EFFECTS = {"crash": (Effect.CRASH_AFTER, 0), "sleep": (Effect.FREEZE, HOUR_MS)}


@pytest.mark.filterwarnings("ignore::pyhudi.services.inline.UpkeepWarning")
@pytest.mark.parametrize("effect", EFFECTS)
def test_at_whatever_step_it_stops_no_row_is_lost_and_another_process_goes_on(
    effect: str,
) -> None:
    broken, _, is_free = lived(None, NBCC)
    assert not broken
    assert is_free
    nth, is_reached, step = 0, True, 31
    while is_reached:
        nth += step
        broken, is_reached, is_free = lived(Fault("first", nth, *EFFECTS[effect]), NBCC)
        assert not broken, (nth, broken)
        assert is_free, nth
    assert nth > 5 * step
