"""Processes that live for days, and one that sleeps for hours in the midst of its work.

What a process knows of the table grows old: instants that it has seen are archived, files that it
has listed are cleaned. It must continue, and must harm nothing that others have finished meanwhile.
"""

from __future__ import annotations

import pytest

from light_scenarios import NBCC, OCC, OpenWrite, judged, stage_of
from pyhudi.errors import ConflictError, HudiError, InvalidRequestError, UnavailableError
from pyhudi.format.timeline.decision_entry import entry_path
from pyhudi.plan.cleaning import CleanPolicy
from pyhudi.plan.compaction.policy import CompactionPolicy
from pyhudi.plan.upkeep import Upkeep
from pyhudi.services.archiving.facts import ServiceMemory
from pyhudi.services.maintenance import run_services
from pyhudi.simulate.faults import Effect, Fault, FixedFaults
from pyhudi.simulate.simulation import Process, Simulation
from pyhudi.simulate.table.actors.archiver import policy
from pyhudi.simulate.table.actors.compactor import ToyMerge, compactions
from pyhudi.simulate.table.checks.evidence import Violation
from pyhudi.simulate.table.rows import TableKind
from pyhudi.simulate.table.stage import Stage
from pyhudi.simulate.table.table import ToyReader
from pyhudi.storage.objects.decision_log import entries_after

HOUR_MS = 3_600_000
#: Longer than what a refresh takes for recent, so that it does not even list what is archived.
PAUSE_MS = 3 * HOUR_MS
POLICY = CleanPolicy.commits(2)
KINDS = {"occ": OCC, "nbcc": NBCC}


class Service:
    """One process that maintains the table, with what it knows since it began."""

    def __init__(self, stage: Stage, process: Process) -> None:
        self._session = stage.session(process)
        self._memory = ServiceMemory()
        self._merge = ToyMerge(stage, process)
        compaction = CompactionPolicy(trigger_delta_commits=1)
        self._upkeep = Upkeep(compaction=compaction, resize=None, clean=POLICY, archive=policy())

    def run(self) -> None:
        run_services(self._session, self._upkeep, self._memory, merge=self._merge).or_raise()


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_is_kept_in_order_for_days_by_processes_that_never_end(kind: str) -> None:
    with Simulation(1, tick_ms=1) as simulation:
        stage = stage_of(simulation, KINDS[kind])
        service = Service(stage, simulation.process("service"))
        reader = ToyReader(simulation.process("reader").storage, stage.kind)
        seen: list[str] = []
        for number in range(40):
            OpenWrite(stage, f"writer{number}", ("k0", f"k{number % 4}")).complete()
            simulation.scheduler.now_ms += PAUSE_MS
            service.run()
            state = reader.load()
            assert reader.snapshot(state).keys() >= {"k0"}
            seen += sorted(state.timeline.completion_times.values())[-1:]
            reader.at(state, seen[-1])
            with pytest.raises(InvalidRequestError) if number > 5 else nothing():
                reader.at(state, seen[max(0, number - 5)])
            assert len(state.timeline.instants) < 25, number
        assert not judged(stage, repaired=False, clean_policy=POLICY)


class nothing:  # noqa: N801
    """No error is expected; one may come."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> bool:
        return kind is not None and issubclass(kind, InvalidRequestError)


# -- asleep


def woken(nth: int, kind: TableKind) -> tuple[list[Violation], bool]:
    """Let an executor sleep before its nth operation until its plan is archived, and wake up."""
    sleep = Fault("sleeper", nth, Effect.FREEZE, 6 * HOUR_MS)
    with Simulation(1, faults=FixedFaults([sleep]), tick_ms=1) as simulation:
        stage = stage_of(simulation, kind)
        for number in range(3):
            OpenWrite(stage, f"writer{number}", ("k0", "k1")).complete()
        plan = compactions(stage, simulation.process("planner")).schedule()
        assert plan is not None
        sleeper, others = simulation.process("sleeper"), simulation.process("others")
        sleeper.start(execute, stage, sleeper, plan)
        others.start(go_on, stage, others)
        simulation.run()
        return judged(stage, repaired=False, clean_policy=POLICY), sleeper.operations >= nth


def execute(stage: Stage, process: Process, plan: str) -> None:
    try:
        compactions(stage, process).execute(plan)
    except (UnavailableError, ConflictError, InvalidRequestError):
        return  # it finds that it is too late
    except HudiError as error:
        stage.unexpected_error(process, error)


def go_on(stage: Stage, process: Process) -> None:
    """Execute the plan, and write, clean and archive until no process knows it any more.

    The decision log is pruned as well, so that a process that wakes lists the timeline again.
    """
    process.world.sleep_ms(HOUR_MS)
    service = Service(stage, process)
    for number in range(4):
        service.run()
        OpenWrite(stage, f"later{number}", ("k2",), process=process).complete()
        process.world.sleep_ms(HOUR_MS)
    service.run()
    for entry, _ in entries_after(process.storage, 0)[:-1]:
        process.storage.delete(entry_path(entry))


def test_an_executor_that_wakes_after_its_plan_was_archived_takes_nothing_away() -> None:
    """Its creates come later than archiving allows for, so something may be left, but not lost."""
    nth, is_reached = 0, True
    while is_reached:
        nth += 1
        broken, is_reached = woken(nth, NBCC)
        lost = [v for v in broken if v.rule.startswith(("I1 ", "I2", "I7", "I11", "no surp"))]
        assert not lost, (nth, lost)
    assert nth > 20
