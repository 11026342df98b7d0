"""All orders of two processes' conflicting storage operations, for each pair of things that race.

Both begin from a table on which their writes are already pending, so that nothing but the race
itself is explored. Orders that no operation can distinguish are tried once.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from light_scenarios import (
    EVOLVING,
    JOINED,
    KINDS,
    NBCC,
    OpenWrite,
    dropping,
    judged,
    recover,
    stage_of,
    start_evolving,
    steady_writer,
)
from pyhudi.simulate.explore import explore
from pyhudi.simulate.simulation import Simulation
from pyhudi.simulate.table.actors.readers import Consumer
from pyhudi.simulate.table.history import Outcome
from pyhudi.simulate.table.stage import Stage

#: Of two writers, all orders are tried. With a rescuer there are thousands and more, of which a
#: quick run tries the first; PYHUDI_ALL_ORDERS=1 tries them all.
RESCUES = {
    "completion and abort": 1_000,
    "two rescuers": 400,
    "two that add columns": 200,
    "adding and dropping": 200,
}
ALL_ORDERS = os.environ.get("PYHUDI_ALL_ORDERS") == "1"
Scene = Callable[[Stage], None]


def two_completions(stage: Stage) -> None:
    for write in (OpenWrite(stage, "one", ("k0",)), OpenWrite(stage, "two", ("k0",))):
        write.process.start(write.complete)


def two_completions_apart(stage: Stage) -> None:
    for write in (OpenWrite(stage, "one", ("k0",)), OpenWrite(stage, "two", ("k1",))):
        write.process.start(write.complete)


def completion_and_begin(stage: Stage) -> None:
    write = OpenWrite(stage, "one", ("k0",))
    write.process.start(write.complete)
    writer = steady_writer(stage, "two")
    writer.process.start(writer.run)


def completion_and_abort(stage: Stage) -> None:
    """A writer that was silent wakes up while another aborts it."""
    write = OpenWrite(stage, "one", ("k0",))
    write.fall_silent()
    write.process.start(write.complete)
    rescuer = stage.simulation.process("two")
    rescuer.start(recover, stage, rescuer)


def two_rescuers(stage: Stage) -> None:
    OpenWrite(stage, "dead", ("k0",)).fall_silent()
    for name in ("one", "two"):
        rescuer = stage.simulation.process(name)
        rescuer.start(recover, stage, rescuer)


def two_that_add_columns(stage: Stage) -> None:
    """The one that began first may complete last, and then needs a whole entry."""
    for name, key, column in (("one", "k0", "c0"), ("two", "k1", "c1")):
        write = OpenWrite(stage, name, (key,), adds=column)
        write.process.start(write.complete)


def adding_and_dropping(stage: Stage) -> None:
    OpenWrite(stage, "before", ("k0",), adds="c0").complete()
    write = OpenWrite(stage, "one", ("k1",), adds="c1")
    write.process.start(write.complete)
    start_evolving(stage, "two", dropping("c0"))


SCENES: dict[str, Scene] = {
    "two completions": two_completions,
    "two completions apart": two_completions_apart,
    "completion and begin": completion_and_begin,
    "completion and abort": completion_and_abort,
    "two rescuers": two_rescuers,
    "two that add columns": two_that_add_columns,
    "adding and dropping": adding_and_dropping,
}
EVOLVES = {"two that add columns", "adding and dropping"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scene", SCENES)
def test_every_order_of_two_processes_keeps_the_promises(scene: str, kind: str) -> None:
    def play(simulation: Simulation) -> None:
        stage = stage_of(simulation, (EVOLVING if scene in EVOLVES else KINDS)[kind])
        SCENES[scene](stage)
        simulation.run()
        broken = judged(stage, repaired=False)
        assert not broken, broken

    limit = None if ALL_ORDERS else RESCUES.get(scene)
    explored = explore(play, executions_max=limit)
    assert explored.complete or explored.executions == limit
    assert explored.executions > 1


@pytest.mark.parametrize(("kind", "winners"), [("occ", 1), ("nbcc", 2)])
def test_of_two_writes_to_one_file_group_as_many_win_as_may(kind: str, winners: int) -> None:
    seen = set()

    def play(simulation: Simulation) -> None:
        stage = stage_of(simulation, KINDS[kind])
        two_completions(stage)
        simulation.run()
        answers = {e.process: e.outcome for e in stage.history.events if e.outcome != "invoke"}
        won = {process for process, outcome in answers.items() if outcome is Outcome.OK}
        assert len(won) == winners
        seen.update(won)

    assert explore(play).complete
    assert seen == {"one", "two"}


POLLED = {"nbcc": (NBCC, None, None), "partial": (JOINED, "orders", "payments")}


@pytest.mark.parametrize("kind", POLLED)
def test_a_consumer_that_polls_beside_two_completions_misses_nothing(kind: str) -> None:
    """The later of two writes completes first, and the consumer comes at any moment."""
    table, *owners = POLLED[kind]

    def play(simulation: Simulation) -> None:
        stage = stage_of(simulation, table)
        writes = [OpenWrite(stage, f"w{n}", ("k0",), owner) for n, owner in enumerate(owners)]
        consumer = Consumer(stage, "consumer", polls=2)
        consumer.start()
        for write in reversed(writes):
            write.process.start(write.complete)
        simulation.run()
        consumer.finish(writes[0].process)
        broken = judged(stage, repaired=False)
        assert not broken, broken

    limit = None if ALL_ORDERS else 120
    explored = explore(play, executions_max=limit)
    assert explored.complete or explored.executions == limit
