"""Exploring every order that matters: no outcome is missed, and no order is run twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.simulate import (
    Effect,
    ExplorationError,
    Fault,
    Pending,
    Process,
    ReplayedChoices,
    Simulation,
    conflicting,
    explore,
)

#: What each actor does: operations on paths, one after the other.
Programs = Sequence[Sequence[tuple[str, str]]]


def call(process: Process, operation: str, path: str) -> object:
    storage = process.storage
    answer: object = None
    match operation:
        case "create":
            answer = storage.create(path, process.name.encode())
        case "write":
            storage.write(path, process.name.encode())
        case "delete":
            storage.delete(path)
        case "stat":
            answer = storage.stat(path) is not None
        case "list":
            answer = [stat.path for stat in storage.list(path)]
        case "sleep":
            process.world.sleep_ms(int(path))
        case _:
            raise AssertionError(operation)
    return answer


@dataclass
class Seen:
    """What happened in all runs: their outcomes, and the order of what conflicts."""

    outcomes: set[object]
    classes: set[object]
    executions: int


def run_programs(simulation: Simulation, programs: Programs) -> tuple[object, object]:
    answers: list[list[object]] = [[] for _ in programs]

    def actor(process: Process, place: int) -> None:
        for operation, path in programs[place]:
            answers[place].append(call(process, operation, path))

    for place, _ in enumerate(programs):
        process = simulation.process(f"p{place}")
        process.start(actor, process, place)
    simulation.run()
    left = [(stat.path, simulation.storage.read(stat.path)) for stat in simulation.storage.list("")]
    return repr((answers, left)), class_of(simulation)


def class_of(simulation: Simulation) -> object:
    """Return the run up to the order of what commutes: each operation with what it conflicts
    with."""
    steps: list[tuple[Pending, int]] = []
    counts: dict[str, int] = {}
    for event in simulation.trace.events:
        if event.operation in ("create", "write", "delete", "stat", "list"):
            counts[event.actor] = counts.get(event.actor, 0) + 1
            process = event.actor.split("/")[0]
            pending = Pending(event.actor, process, event.operation, event.path)
            steps.append((pending, counts[event.actor]))
    return frozenset(
        (one, other)
        for place, one in enumerate(steps)
        for other in steps[place + 1 :]
        if conflicting(one[0], other[0])
    )


def everything(programs: Programs, conflict: Callable[[Pending, Pending], bool]) -> Seen:
    outcomes: set[object] = set()
    classes: set[object] = set()

    def scenario(simulation: Simulation) -> None:
        outcome, order = run_programs(simulation, programs)
        outcomes.add(outcome)
        classes.add(order)

    found = explore(scenario, conflict=conflict)
    assert found.complete
    return Seen(outcomes, classes, found.executions)


def always(one: Pending, other: Pending) -> bool:
    """Every order is another one. Beginning does nothing, so it is left out."""
    return "start" not in (one.operation, other.operation)


def test_operations_on_different_objects_need_one_run() -> None:
    programs = [[("write", f"x{place}")] * 3 for place in range(2)]
    assert everything(programs, conflicting).executions == 1


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_operations_on_one_object_need_every_order(length: int) -> None:
    programs = [[("write", "x")] * length] * 2
    assert everything(programs, conflicting).executions == comb(2 * length, length)


def test_readers_of_one_object_need_one_run() -> None:
    programs = [[("stat", "x")] * 3] * 3
    assert everything(programs, conflicting).executions == 1


def test_three_writers_of_one_object_need_every_order() -> None:
    programs = [[("write", "x")] * 2] * 3
    assert everything(programs, conflicting).executions == 90  # 6! / (2! 2! 2!)


def test_without_reduction_every_order_is_run() -> None:
    programs = [[("write", "x")] * 2, [("write", "y")] * 2]
    assert everything(programs, always).executions == comb(4, 2)


OPERATIONS = st.tuples(
    st.sampled_from(["create", "write", "delete", "stat"]), st.sampled_from(["d/a", "d/b", "e"])
) | st.tuples(st.just("list"), st.sampled_from(["d", ""]))
WAITS = st.tuples(st.just("sleep"), st.sampled_from(["1", "2"]))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(OPERATIONS | WAITS, max_size=3), min_size=2, max_size=2)
    | st.lists(st.lists(OPERATIONS, max_size=2), min_size=3, max_size=3)
)
def test_reduction_misses_no_outcome_and_repeats_no_order(programs: Programs) -> None:
    reduced, brute = everything(programs, conflicting), everything(programs, always)
    assert reduced.outcomes == brute.outcomes
    assert reduced.classes == brute.classes
    assert reduced.executions == len(brute.classes)


PENDING = partial(Pending, "a/1", "a")
CONFLICTS = [
    (PENDING("create", "d/x"), ("create", "d/x"), True),
    (PENDING("create", "d/x"), ("create", "d/y"), False),
    (PENDING("read", "d/x"), ("delete", "d/x"), True),
    (PENDING("read", "d/x"), ("read", "d/x"), False),
    (PENDING("list", "d"), ("create", "d/x"), True),
    (PENDING("list", "d"), ("create", "de/x"), False),
    (PENDING("list", "d"), ("read", "d/x"), False),
    (PENDING("list", ""), ("create", "d/x"), True),
    (PENDING("list", "d", "d/5"), ("create", "d/4"), False),
    (PENDING("list", "d", "d/5"), ("create", "d/6"), True),
    (PENDING("list_folder", "d"), ("delete", "d/e/x"), True),
    (PENDING("wake"), ("create", "x"), False),
    (PENDING("start"), ("create", "x"), False),
    (PENDING("crash", "b"), ("read", "x"), True),
    (PENDING("pass time"), ("wake", ""), True),
    (PENDING("my own", "x"), ("read", "x"), True),
]


@pytest.mark.parametrize(("one", "other", "expected"), CONFLICTS)
def test_operations_conflict_by_path(one: Pending, other: tuple[str, str], expected: bool) -> None:
    assert conflicting(one, Pending("b/1", "b", *other)) is expected
    assert conflicting(Pending("b/1", "b", *other), one) is expected


def test_actors_of_one_process_always_conflict() -> None:
    assert conflicting(PENDING("read", "x"), Pending("a/2", "a", "read", "y"))


def increment(process: Process) -> None:
    value = int(process.storage.read("counter"))
    process.storage.write("counter", str(value + 1).encode())


def two_increments(simulation: Simulation) -> None:
    simulation.storage.create("counter", b"0")
    for name in ("ann", "bob"):
        process = simulation.process(name)
        process.start(increment, process)
    simulation.run()
    assert simulation.storage.read("counter") == b"2", "an update was lost"


def test_a_lost_update_is_found_and_its_choices_play_it_again() -> None:
    with pytest.raises(AssertionError, match="an update was lost") as caught:
        explore(two_increments)
    note = next(note for note in caught.value.__notes__ if "with choices" in note)
    choices = [int(number) for number in note.partition("[")[2].rstrip("]").split(",")]
    with (
        Simulation(choices=ReplayedChoices(choices), tick_ms=0) as simulation,
        pytest.raises(AssertionError, match="an update was lost"),
    ):
        two_increments(simulation)


def test_a_bound_on_preemptions_limits_the_orders() -> None:
    explore(two_increments, preemptions_max=0)
    with pytest.raises(AssertionError, match="an update was lost"):
        explore(two_increments, preemptions_max=1)


@pytest.mark.parametrize(("most", "orders"), [(0, 2), (1, 6), (2, 14), (9, 20)])
def test_a_bound_on_preemptions_counts_them(most: int, orders: int) -> None:
    # Two actors of three steps, of which beginning is one.
    programs = [[("write", "x")] * 2] * 2
    seen: set[object] = set()

    def scenario(simulation: Simulation) -> None:
        run_programs(simulation, programs)
        seen.add(tuple((event.step, event.actor) for event in simulation.trace.events))

    assert explore(scenario, preemptions_max=most).executions == len(seen) == orders


def test_an_allowance_of_runs_ends_the_exploration() -> None:
    programs = [[("write", "x")] * 3] * 2
    found = explore(lambda simulation: run_programs(simulation, programs), executions_max=5)
    assert (found.executions, found.complete) == (5, False)


def test_a_scenario_that_differs_under_the_same_choices_is_refused() -> None:
    runs: list[int] = []

    def scenario(simulation: Simulation) -> None:
        runs.append(1)
        for name in ("ann", "bob"):
            process = simulation.process(name)
            process.start(process.storage.write, f"x{len(runs)}", b"")
        simulation.run()

    with pytest.raises(ExplorationError, match="in an earlier run"):
        explore(scenario)


def frozen_outcomes(frozen: bool) -> set[object]:
    """Return the outcomes if bob may be frozen for ever before, between or after his two writes."""
    outcomes: set[object] = set()

    def scenario(simulation: Simulation) -> None:
        ann, bob = simulation.process("ann"), simulation.process("bob")

        def writes() -> None:
            bob.storage.create("x", b"")
            bob.storage.create("y", b"")

        bob.start(writes)
        if frozen:
            ann.start(bob.freeze)
        simulation.run()
        outcomes.add(tuple(stat.path for stat in simulation.storage.list("")))

    explore(scenario)
    return outcomes


def test_being_frozen_for_ever_is_explored_at_every_moment() -> None:
    assert frozen_outcomes(False) == {("x", "y")}
    assert frozen_outcomes(True) == {(), ("x",), ("x", "y")}


def test_a_late_change_is_explored_at_every_moment() -> None:
    """It lands before, between or after what others do."""
    outcomes: set[object] = set()

    def scenario(simulation: Simulation) -> None:
        ann, bob = simulation.process("ann"), simulation.process("bob")
        seen: list[bool] = []

        def looks() -> None:
            seen.extend(bob.storage.stat("x") is not None for _ in range(3))

        ann.start(ann.storage.create, "x", b"")
        bob.start(looks)
        simulation.run()
        outcomes.add(tuple(seen))

    explore(scenario, faults=[Fault("ann", 1, Effect.LATE)])
    assert outcomes == {tuple(place >= landed for place in range(3)) for landed in range(4)}


def test_a_second_run_in_a_scenario_comes_after_the_first() -> None:
    def scenario(simulation: Simulation) -> None:
        for name in ("ann", "bob"):
            process = simulation.process(name)
            process.start(process.storage.write, "x", name.encode())
            simulation.run()
        assert simulation.storage.read("x") == b"bob"

    assert explore(scenario).executions == 1


def locked(process: Process, fenced: bool, published: list[str]) -> None:
    """Take a lease by create-if-absent, which another process takes over once it is old."""
    until = process.world.now_ms() + 1_000
    if not process.storage.create("lock", str(until).encode()):
        try:
            if process.world.now_ms() <= int(process.storage.read("lock")):
                return
        except FileNotFoundError:
            return
    value = len([*process.storage.list("numbers")])
    path = f"numbers/{value}" if fenced else f"numbers/{value} of {process.name}"
    if process.storage.create(path, b""):
        published.append(str(value))


def with_lease(simulation: Simulation, fenced: bool) -> None:
    published: list[str] = []
    for name in ("ann", "bob"):
        process = simulation.process(name)
        process.start(locked, process, fenced, published)
    clock = simulation.process("clock")
    clock.start(clock.pass_time, 2_000)
    simulation.run()
    assert len(published) == len(set(published)), "two writers published one number"


def test_a_lease_is_broken_by_time_and_a_fence_holds_in_every_order() -> None:
    with pytest.raises(AssertionError, match="two writers published one number"):
        explore(partial(with_lease, fenced=False))
    found = explore(partial(with_lease, fenced=True))
    assert found.complete
    assert found.executions > 10
