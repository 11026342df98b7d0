"""One resize and one writer, or another process, in every order of their storage operations.

Each partition has one bucket at first. A quick run tries all orders in which one of both is
interrupted once, wherever that is; `PYHUDI_ALL_ORDERS=1` those with two interruptions, for some
minutes. The orders of whole steps, with the real rows of every verb, are in
`write/test_beside_resizes.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from copy import copy
from functools import partial

import pytest

from light_scenarios import (
    JOINED_RINGS,
    RINGS,
    YIELDING_RINGS,
    OpenWrite,
    judged,
    stage_of,
)
from pyhudi.errors import ConflictError, InvalidRequestError, UnavailableError
from pyhudi.services.resizing.run import resize_planning
from pyhudi.simulate.explore import explore
from pyhudi.simulate.simulation import Process, Simulation
from pyhudi.simulate.table.actors.readers import Reader
from pyhudi.simulate.table.actors.resizer import SPLIT_ALL, toy_resizes
from pyhudi.simulate.table.checks.evidence import Evidence
from pyhudi.simulate.table.stage import Stage
from pyhudi.simulate.table.toy_rings import rows_are_toys

ALL_ORDERS = os.environ.get("PYHUDI_ALL_ORDERS") == "1"
KINDS = {"event time": RINGS, "commit time": YIELDING_RINGS, "owners": JOINED_RINGS}


@pytest.fixture(autouse=True)
def _resizes_copy_toy_rows() -> Iterator[None]:
    with rows_are_toys():
        yield


def write(stage: Stage, name: str, *keys: str) -> OpenWrite:
    owner = "orders" if stage.kind.has_owners else None
    return OpenWrite(stage, name, keys, owner)


def planned(stage: Stage) -> str:
    """Plan a resize of what has been written."""
    session = stage.session(stage.simulation.process("planner"))
    _, plan = resize_planning(session).schedule(SPLIT_ALL)
    assert plan is not None
    return plan


def start(stage: Stage, name: str, work: Callable[[Process], object]) -> None:
    """Let a process do the work, as far as the others leave something to do."""

    def willing() -> None:
        try:
            work(process)
        except (UnavailableError, ConflictError, InvalidRequestError):
            return

    process = stage.simulation.process(name)
    process.start(willing)


def execute(stage: Stage, plan: str, process: Process, *, closes: bool = False) -> None:
    work = toy_resizes(stage, process)
    work.closes = closes
    work.execute(plan, is_forced=True)


def a_younger_write(stage: Stage, *, closes: bool = False) -> None:
    """It is copied, or moves, or ends the resize."""
    write(stage, "before", "k0", "k4").complete()
    plan = planned(stage)
    write(stage, "copied", "k4").complete()
    one = write(stage, "one", "k0", "k4")
    one.process.start(one.complete)
    start(stage, "two", partial(execute, stage, plan, closes=closes))


def an_older_write(stage: Stage, *, closes: bool = False) -> None:
    """It is copied, or has to be made again, or ends the resize."""
    write(stage, "before", "k0", "k4").complete()
    one = write(stage, "one", "k0", "k4")
    plan = planned(stage)
    one.process.start(one.complete)
    start(stage, "two", partial(execute, stage, plan, closes=closes))


def a_plan(stage: Stage) -> None:
    """What completes is in the slices of the plan, or is copied."""
    write(stage, "before", "k0", "k4").complete()
    one = write(stage, "one", "k0", "k4")
    one.process.start(one.complete)

    def resize(process: Process) -> None:
        _, plan = resize_planning(stage.session(process)).schedule(SPLIT_ALL)
        if plan is not None:
            execute(stage, plan, process)

    start(stage, "two", resize)


def two_executors(stage: Stage) -> None:
    write(stage, "before", "k0", "k4").complete()
    plan = planned(stage)
    write(stage, "copied", "k4").complete()
    start(stage, "one", partial(execute, stage, plan))
    start(stage, "two", partial(execute, stage, plan, closes=True))


def an_executor_and_a_canceller(stage: Stage) -> None:
    write(stage, "before", "k0", "k4").complete()
    plan = planned(stage)
    write(stage, "copied", "k4").complete()
    start(stage, "one", partial(execute, stage, plan, closes=True))
    start(stage, "two", lambda process: toy_resizes(stage, process).cancel(plan, is_forced=True))


def an_executor_and_a_reader(stage: Stage) -> None:
    write(stage, "before", "k0", "k4").complete()
    plan = planned(stage)
    write(stage, "copied", "k4").complete()
    start(stage, "one", partial(execute, stage, plan))
    reader = Reader(stage, "two", reads=1)
    reader.process.start(reader.run)


#: How a write ended.
COPIED, MOVED, AGAIN = "where it had written", "where its buckets are now", "is to be made again"
#: The ways in which a write may end.
WRITES: dict[str, tuple[Callable[[Stage], None], set[str]]] = {
    "younger": (a_younger_write, {COPIED, MOVED}),
    "younger, of a closed one": (partial(a_younger_write, closes=True), {COPIED, MOVED}),
    "older": (an_older_write, {COPIED, AGAIN}),
    "older, of a closed one": (partial(an_older_write, closes=True), {COPIED, AGAIN}),
    "older than the plan perhaps": (a_plan, {COPIED, AGAIN}),
}
OTHERS: dict[str, tuple[Callable[[Stage], None], set[int]]] = {
    "two executors": (two_executors, {1}),
    "an executor and a canceller": (an_executor_and_a_canceller, {0, 1}),
    "an executor and a reader": (an_executor_and_a_reader, {1}),
}


def _kinds(name: str) -> tuple[str, ...]:
    """Return the kinds of tables that are tried: all, but for the shortest scenes."""
    return tuple(KINDS) if ALL_ORDERS or name not in ("younger", "older") else ("event time",)


def explored(kind: str, scene: Callable[[Stage], None], look: Callable[[Stage], object]) -> None:
    def play(simulation: Simulation) -> None:
        stage = stage_of(simulation, KINDS[kind])
        scene(stage)
        simulation.run()
        broken = judged(stage, repaired=False)
        assert not broken, broken
        look(stage)

    interruptions, limit = (2, 20_000) if ALL_ORDERS else (1, None)
    found = explore(play, preemptions_max=interruptions, executions_max=limit)
    assert found.complete or ALL_ORDERS
    assert found.executions > 30


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name in WRITES for kind in _kinds(name)]
)
def test_every_order_of_one_writer_and_one_resize_keeps_the_promises(name: str, kind: str) -> None:
    scene, expected = WRITES[name]
    seen: set[str] = set()

    def look(stage: Stage) -> None:
        evidence = Evidence(stage.storage, stage.kind)
        answer = [e for e in copy(stage.history).events if e.process == "one"][-1]
        write, (resize,) = evidence.writes.get(answer.requested), evidence.resizes.values()
        assert resize.requested in evidence.writes
        if write is None:
            seen.add(AGAIN)
        else:
            seen.add(MOVED if write.groups & resize.plan.made else COPIED)

    explored(kind, scene, look)
    assert seen == expected


@pytest.mark.parametrize("name", OTHERS)
def test_every_order_of_a_resize_and_another_process_keeps_the_promises(name: str) -> None:
    scene, expected = OTHERS[name]
    seen: set[int] = set()

    def look(stage: Stage) -> None:
        writes = Evidence(stage.storage, stage.kind).writes.values()
        seen.add(sum(write.is_resize for write in writes))

    explored("event time", scene, look)
    assert seen == expected
