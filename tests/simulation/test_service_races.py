"""All orders of a table service and what it races with, on a table where both are about to begin.

There are many thousands, of which a quick run tries the first; `PYHUDI_ALL_ORDERS=1` goes on for
some minutes with each.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from light_scenarios import NBCC, OCC, OpenWrite, judged, stage_of
from pyhudi.errors import ConflictError, InvalidRequestError, UnavailableError
from pyhudi.format.timeline.instant import Action
from pyhudi.plan.cleaning import CleanPolicy
from pyhudi.services.consumers import register_consumer
from pyhudi.simulate.explore import explore
from pyhudi.simulate.simulation import Process, Simulation
from pyhudi.simulate.table.actors.archiver import GRACE_MS, archiver
from pyhudi.simulate.table.actors.cleaner import cleanings
from pyhudi.simulate.table.actors.compactor import compactions
from pyhudi.simulate.table.actors.readers import Reader
from pyhudi.simulate.table.checks.archive import archived_now
from pyhudi.simulate.table.checks.evidence import Evidence
from pyhudi.simulate.table.rows import TableKind
from pyhudi.simulate.table.stage import Stage
from pyhudi.timeline.live import BEFORE_ALL

ORDERS = {"an archiver and a reader": 60}
ALL_ORDERS = os.environ.get("PYHUDI_ALL_ORDERS") == "1"
POLICY = CleanPolicy.versions(1)


def start(stage: Stage, name: str, work: Callable[[Process], object]) -> None:
    """Let a process do the work, as far as the others leave something to do."""

    def willing() -> None:
        try:
            work(process)
        except (UnavailableError, ConflictError, InvalidRequestError):
            return

    process = stage.simulation.process(name)
    process.start(willing)


def written(stage: Stage, times: int) -> None:
    for number in range(times):
        OpenWrite(stage, f"before{number}", ("k0",)).complete()


def a_plan_and_a_completion(stage: Stage) -> None:
    """Whether the log is in the plan or not, it is read once."""
    written(stage, 1)
    write = OpenWrite(stage, "one", ("k0",))
    write.process.start(write.complete)
    start(stage, "two", lambda process: compactions(stage, process).schedule())


def two_executors(stage: Stage) -> None:
    written(stage, 1)
    plan = compactions(stage, stage.simulation.process("planner")).schedule()
    assert plan is not None
    for name in ("one", "two"):
        start(stage, name, lambda p: compactions(stage, p).execute(plan, is_forced=True))


def an_executor_and_a_canceller(stage: Stage) -> None:
    written(stage, 1)
    plan = compactions(stage, stage.simulation.process("planner")).schedule()
    assert plan is not None
    start(stage, "one", lambda process: compactions(stage, process).execute(plan))
    start(stage, "two", lambda process: compactions(stage, process).cancel(plan, is_forced=True))


def a_cleaner_and_a_canceller(stage: Stage) -> None:
    """Whichever process completes the clean, it records the removed files."""
    written(stage, 3)
    plan = cleanings(stage, stage.simulation.process("planner")).schedule(POLICY)
    assert plan is not None
    start(stage, "one", lambda process: cleanings(stage, process).execute(plan))
    start(stage, "two", lambda process: cleanings(stage, process).cancel(plan))


def a_clean_and_a_consumer(stage: Stage) -> None:
    """Either the consumer gets the error that it is too late, or its files are retained."""
    written(stage, 3)
    start(stage, "one", lambda process: cleanings(stage, process).run(POLICY))

    def register(process: Process) -> None:
        table = stage.session(process)
        register_consumer(table, "search", since=BEFORE_ALL, expires_after_hours=None)
        stage.history.registered["search"] = stage.place

    start(stage, "two", register)


def a_clean_and_a_reader(stage: Stage) -> None:
    written(stage, 3)
    start(stage, "one", lambda process: cleanings(stage, process).run(POLICY))
    reader = Reader(stage, "two", reads=1)
    reader.process.start(reader.run)


def an_archiver_and_a_reader(stage: Stage) -> None:
    written(stage, 4)
    stage.simulation.scheduler.now_ms += GRACE_MS + 1_000
    written_now = OpenWrite(stage, "last", ("k1",))
    written_now.complete()
    start(stage, "one", lambda process: archiver(stage, process).run())
    reader = Reader(stage, "two", reads=1)
    reader.process.start(reader.run)


def done_once(action: Action) -> Callable[[Evidence], bool]:
    """Return a check that exactly one instant of the kind completed, of those a service began."""

    def check(evidence: Evidence) -> bool:
        done = [p.requested for p in evidence.published if p.instant.action is action]
        planned = {i.requested for i, _ in evidence.timeline if i.action in _PLANNED}
        return len([requested for requested in done if requested in planned]) == 1

    return check


def planned_once(evidence: Evidence) -> bool:
    return len(evidence.compactions) == 1 and len(evidence.writes) == 3


def ended_one_way(evidence: Evidence) -> bool:
    (plan,) = evidence.compactions
    cancelled = [rollback for rollback in evidence.plans if rollback.target == plan.requested]
    return (plan.requested in evidence.writes) != bool(cancelled)


def archived(evidence: Evidence) -> bool:
    return len(archived_now(evidence.storage)) > 0


_PLANNED = (Action.COMPACTION, Action.CLEAN)
Scene = Callable[[Stage], None]
#: What races, and whether the work was done in the end.
SCENES: dict[str, tuple[TableKind, Scene, Callable[[Evidence], bool]]] = {
    "a plan and a completion": (NBCC, a_plan_and_a_completion, planned_once),
    "two executors": (NBCC, two_executors, done_once(Action.COMMIT)),
    "an executor and a canceller": (NBCC, an_executor_and_a_canceller, ended_one_way),
    "a cleaner and a canceller": (OCC, a_cleaner_and_a_canceller, done_once(Action.CLEAN)),
    "a clean and a consumer": (OCC, a_clean_and_a_consumer, done_once(Action.CLEAN)),
    "a clean and a reader": (OCC, a_clean_and_a_reader, done_once(Action.CLEAN)),
    "an archiver and a reader": (NBCC, an_archiver_and_a_reader, archived),
}


@pytest.mark.parametrize("name", SCENES)
def test_every_order_of_a_service_and_its_competitor_keeps_the_promises(name: str) -> None:
    kind, scene, is_done = SCENES[name]

    def play(simulation: Simulation) -> None:
        stage = stage_of(simulation, kind)
        scene(stage)
        simulation.run()
        broken = judged(stage, repaired=False, clean_policy=POLICY)
        assert not broken, broken
        assert is_done(Evidence(stage.storage, stage.kind))

    limit = 20_000 if ALL_ORDERS else ORDERS.get(name, 200)
    explored = explore(play, executions_max=limit)
    assert explored.complete or explored.executions == limit
    assert explored.executions > 1
