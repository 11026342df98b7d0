"""What faults do to an operation and to its process, and the bugs that they bring to light."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

import pytest

from pyhudi.errors import UnavailableError
from pyhudi.simulate import (
    DrawnFaults,
    Effect,
    Fault,
    FaultRates,
    FixedFaults,
    Process,
    ReplayedChoices,
    Simulation,
    only,
    rates_with,
    run_seed,
)
from pyhudi.storage.protocol import Storage

Call = Callable[[Storage], object]

CALLS: dict[str, Call] = {
    "create": lambda storage: storage.create("d/new", b"123456"),
    "create_from": lambda storage: storage.create_from("d/new", [b"123", b"456"]),
    "replace": lambda storage: storage.replace("d/old", b"123456", etag="1"),
    "write": lambda storage: storage.write("d/old", b"123456"),
    "read": lambda storage: storage.read("d/old"),
    "read_ranges": lambda storage: storage.read_ranges("d/old", [(0, 1)]),
    "stat": lambda storage: storage.stat("d/old"),
    "list": lambda storage: list(storage.list("d")),
    "list_folder": lambda storage: storage.list_folder("d"),
    "delete": lambda storage: storage.delete("d/old"),
    "open": lambda storage: storage.open("d/old").read(),
}
WRITES = {"create", "create_from", "replace", "write"}
CHANGES = WRITES | {"delete"}


def test_every_method_of_storage_is_exercised() -> None:
    methods = {name for name in vars(Storage) if not name.startswith("_")}
    in_turn = {"delete_all", "stat_all"}  # each is one call after the other
    assert set(CALLS) == methods - {"uri"} - in_turn


def contents(simulation: Simulation) -> dict[str, bytes]:
    storage = simulation.storage
    return {stat.path: storage.read(stat.path) for stat in storage.list("")}


BEFORE = {"d/old": b"original"}


def struck(
    call: Call, fault: Fault | None = None, *, keeps_torn: bool = False
) -> tuple[Simulation, object]:
    """Return the call in a process of its own, and its answer: a value, or the class of its
    error."""
    faults = FixedFaults([] if fault is None else [fault], keeps_torn=keeps_torn)
    answers: list[object] = []

    def actor(process: Process) -> None:
        try:
            answers.append(call(process.storage))
        except UnavailableError:
            answers.append(UnavailableError)

    with Simulation(choices=ReplayedChoices([]), faults=faults, tick_ms=0) as simulation:
        simulation.storage.create("d/old", b"original")
        process = simulation.process("ann")
        process.start(actor, process)
        simulation.run()
    assert faults.struck == ([] if fault is None else [fault])
    return simulation, answers[0] if answers else None


def done(name: str) -> dict[str, bytes]:
    """Return what the store holds after the call without a fault."""
    simulation, _ = struck(CALLS[name])
    return contents(simulation)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_before_which_the_process_crashes_does_nothing(name: str) -> None:
    simulation, answer = struck(CALLS[name], Fault("ann", 1, Effect.CRASH_BEFORE))
    assert (contents(simulation), answer) == (BEFORE, None)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_after_which_the_process_crashes_is_done_and_unanswered(name: str) -> None:
    simulation, answer = struck(CALLS[name], Fault("ann", 1, Effect.CRASH_AFTER))
    assert (contents(simulation), answer) == (done(name), None)


@pytest.mark.parametrize("name", CALLS)
def test_a_failing_call_does_nothing(name: str) -> None:
    simulation, answer = struck(CALLS[name], Fault("ann", 1, Effect.FAIL))
    assert (contents(simulation), answer) == (BEFORE, UnavailableError)


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_a_lost_reply_leaves_the_change(name: str) -> None:
    simulation, answer = struck(CALLS[name], Fault("ann", 1, Effect.LOSE_REPLY))
    assert (contents(simulation), answer) == (done(name), UnavailableError)


@pytest.mark.parametrize("name", sorted(CHANGES))
@pytest.mark.parametrize("effect", [Effect.LATE, Effect.CRASH_DURING])
def test_a_late_change_arrives_by_itself(name: str, effect: Effect) -> None:
    simulation, answer = struck(CALLS[name], Fault("ann", 1, effect, ms=5_000))
    assert contents(simulation) == done(name)
    assert answer == (UnavailableError if effect is Effect.LATE else None)
    last = [event for event in simulation.trace.events if event.operation == name][-1]
    assert last.actor == "ann/late2"
    assert last.at_ms - simulation.trace.events[0].at_ms == 5_000


@pytest.mark.parametrize("name", sorted(WRITES))
def test_a_torn_write_is_an_error_and_leaves_nothing(name: str) -> None:
    simulation, answer = struck(CALLS[name], Fault("ann", 1, Effect.TEAR))
    assert (contents(simulation), answer) == (BEFORE, UnavailableError)


@pytest.mark.parametrize("name", sorted(WRITES))
def test_a_store_that_breaks_its_promise_keeps_half_of_a_torn_write(name: str) -> None:
    simulation, answer = struck(CALLS[name], Fault("ann", 1, Effect.TEAR), keeps_torn=True)
    path = "d/new" if "create" in name else "d/old"
    assert (contents(simulation)[path], answer) == (b"123", UnavailableError)


@pytest.mark.parametrize(
    ("name", "answer"), [("create", False), ("create_from", None), ("replace", None)]
)
def test_a_repeated_change_answers_about_the_second_try(name: str, answer: object) -> None:
    simulation, answered = struck(CALLS[name], Fault("ann", 1, Effect.REPEAT))
    assert (contents(simulation), answered) == (done(name), answer)


@pytest.mark.parametrize("effect", [Effect.FREEZE, Effect.DELAY])
@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_delayed_call_is_done_later(name: str, effect: Effect) -> None:
    simulation, answer = struck(CALLS[name], Fault("ann", 1, effect, ms=70_000))
    assert contents(simulation) == done(name)
    assert answer is not UnavailableError
    assert simulation.now_ms - simulation.trace.events[0].at_ms == 70_000


@pytest.mark.parametrize(
    ("effect", "failing"), [(Effect.FULL, sorted(WRITES)), (Effect.OUTAGE, sorted(CALLS))]
)
def test_an_outage_lasts_for_a_while(effect: Effect, failing: list[str]) -> None:
    heard: list[str] = []

    def actor(process: Process) -> None:
        for _ in range(2):
            for name, call in CALLS.items():
                try:
                    call(process.storage)
                except UnavailableError:
                    heard.append(name)
                except FileNotFoundError:
                    continue
            process.world.sleep_ms(1_000)

    faults = FixedFaults([Fault("ann", 1, effect, ms=1_000)])
    with Simulation(choices=ReplayedChoices([]), faults=faults, tick_ms=0) as simulation:
        simulation.storage.create("d/old", b"")
        process = simulation.process("ann")
        process.start(actor, process)
        simulation.run()
    assert sorted(heard) == failing


def test_a_clock_can_step_back() -> None:
    readings: list[int] = []

    def actor(process: Process) -> None:
        readings.append(process.world.now_ms())
        process.storage.stat("x")
        readings.append(process.world.now_ms())

    faults = FixedFaults([Fault("ann", 1, Effect.CLOCK_STEP, ms=-600_000)])
    with Simulation(faults=faults, tick_ms=0) as simulation:
        process = simulation.process("ann")
        process.start(actor, process)
        simulation.run()
    assert readings[1] - readings[0] == -600_000


def listed_while_another_writes(effect: Effect | None, path: str) -> list[str]:
    """Three objects are listed; another process adds or removes one just before the rest."""
    found: list[str] = []
    faults = FixedFaults([] if effect is None else [Fault("ann", 1, effect)])

    def listing(process: Process) -> None:
        found.extend(stat.path for stat in process.storage.list("d"))

    def change(process: Process) -> None:
        process.storage.create(path, b"")

    # With a split listing ann has her first page, then bob writes; else bob writes first.
    choices = [0, 0, 1, 0, 0] if effect is Effect.SPLIT else [1, 0, 0]
    with Simulation(choices=ReplayedChoices(choices), faults=faults, tick_ms=0) as simulation:
        for name in ("d/2", "d/4", "d/6", "d/8"):
            simulation.storage.create(name, b"")
        for actor, name in ((listing, "ann"), (change, "bob")):
            process = simulation.process(name)
            process.start(actor, process)
        simulation.run()
    return found


@pytest.mark.parametrize(
    ("effect", "path", "found"),
    [
        (None, "d/1", ["d/1", "d/2", "d/4", "d/6", "d/8"]),
        (Effect.STALE, "d/1", ["d/2", "d/4", "d/6", "d/8"]),
        (Effect.SPLIT, "d/1", ["d/2", "d/4", "d/6", "d/8"]),
        (Effect.SPLIT, "d/5", ["d/2", "d/4", "d/5", "d/6", "d/8"]),
    ],
)
def test_a_listing_may_be_split_or_stale(
    effect: Effect | None, path: str, found: list[str]
) -> None:
    assert listed_while_another_writes(effect, path) == found


def test_a_fault_that_does_not_fit_its_operation_does_nothing() -> None:
    faults = FixedFaults([Fault("ann", 1, Effect.TEAR)])
    assert faults.fault_at("ann", 1, "read") is None
    assert faults.struck == []


def test_what_is_outside_the_simulation_meets_no_fault() -> None:
    faults = FixedFaults([Fault("ann", 1, Effect.FAIL)])
    with Simulation(faults=faults) as simulation:
        process = simulation.process("ann")
        assert process.storage.create("x", b"")
        assert process.operations == 0


@pytest.mark.parametrize("exempt", ["process", "phase"])
def test_faults_can_be_kept_from_a_process_and_from_a_phase(exempt: str) -> None:
    with Simulation(1, faults=only({Effect.FAIL: 1.0})) as simulation:
        process = simulation.process("ann", faulty=exempt != "process")
        simulation.faults_strike = exempt != "phase"
        actor = process.start(process.storage.create, "x", b"")
        simulation.run()
    assert actor.result is True
    assert process.operations == 1


def drawn_faults(seed: int, rates: FaultRates, operations: int = 300) -> list[Fault]:
    plan = DrawnFaults(seed, rates)
    names = sorted(CALLS)
    for nth in range(1, operations + 1):
        plan.fault_at("ann", nth, names[nth % len(names)])
    return plan.struck


def test_drawn_faults_are_the_seed_s() -> None:
    assert drawn_faults(5, FaultRates()) == drawn_faults(5, FaultRates())
    assert drawn_faults(5, FaultRates()) != drawn_faults(6, FaultRates())


def test_all_effects_but_the_broken_promise_are_drawn_by_default() -> None:
    seen = {fault.effect for seed in range(40) for fault in drawn_faults(seed, FaultRates())}
    assert seen == set(Effect) - {Effect.STALE}


def test_stale_listings_are_drawn_when_asked_for() -> None:
    rates = rates_with({Effect.STALE: 0.5})
    seen = {fault.effect for seed in range(5) for fault in drawn_faults(seed, rates)}
    assert Effect.STALE in seen


def test_crashes_and_freezes_are_limited() -> None:
    rates = only({Effect.CRASH_BEFORE: 0.3, Effect.FREEZE: 0.3})
    effects = [fault.effect for fault in drawn_faults(0, rates)]
    assert effects.count(Effect.CRASH_BEFORE) == rates.crashes_max
    assert effects.count(Effect.FREEZE) == rates.freezes_max


def test_drawn_clocks_are_equal_or_near_or_up_to_ten_minutes_off() -> None:
    skews = [DrawnFaults(seed).skew_ms("ann") for seed in range(60)]
    assert 0 in skews
    assert any(0 < abs(skew) <= 5 for skew in skews)
    assert any(abs(skew) > 60_000 for skew in skews)
    assert max(map(abs, skews)) <= 600_000


# The toy of a lock with a lease: an increment under the lock, by a writer that may freeze.

LEASE_MS = 60_000


def lock_taken(process: Process) -> str | None:
    """Return the etag of the lock if this process has it now."""
    wanted = json.dumps({"owner": process.name, "until": process.world.now_ms() + LEASE_MS})
    if process.storage.create("lock", wanted.encode()):
        held = process.storage.stat("lock")
        return held.etag if held else None
    held = process.storage.stat("lock")
    if held is None or held.etag is None:
        return None
    try:
        until = json.loads(process.storage.read("lock"))["until"]
    except FileNotFoundError:
        return None
    if process.world.now_ms() <= until:
        return None
    return process.storage.replace("lock", wanted.encode(), etag=held.etag)


def still_held(process: Process, etag: str) -> bool:
    held = process.storage.stat("lock")
    return held is not None and held.etag == etag


def published_in_place(process: Process, *, checked: bool, etag: str) -> bool:
    value = int(process.storage.read("value"))
    if checked and not still_held(process, etag):
        return False
    process.storage.write("value", str(value + 1).encode())
    return True


def published_with_fence(process: Process, *, etag: str) -> bool:
    """The next number is created if absent, so a zombie finds it taken."""
    numbers = [stat.path for stat in process.storage.list("numbers")]
    return process.storage.create(f"numbers/{len(numbers):04}", b"")


def increments(process: Process, publish: Callable[..., bool], published: list[str]) -> None:
    for _ in range(2):
        for _ in range(20):
            if (etag := lock_taken(process)) is not None:
                break
            process.world.sleep_ms(LEASE_MS // 10)
        else:
            return
        if publish(process, etag=etag):
            published.append(process.name)
        if still_held(process, etag):
            process.storage.delete("lock")


def under_lease(simulation: Simulation, publish: Callable[..., bool]) -> None:
    published: list[str] = []
    simulation.storage.create("value", b"0")
    for name in ("ann", "bob", "cyd"):
        process = simulation.process(name, clock_skew_ms=0)
        process.start(increments, process, publish, published)
    simulation.run()
    numbers = len(list(simulation.storage.list("numbers")))
    assert int(simulation.storage.read("value")) + numbers == len(published)


FREEZES = only({Effect.FREEZE: 0.03})


def violations(publish: Callable[..., bool], seeds: range) -> int:
    scenario = partial(under_lease, publish=publish)
    outcomes = [run_seed(scenario, seed, FREEZES).error for seed in seeds]
    assert all(error is None or isinstance(error, AssertionError) for error in outcomes)
    return sum(error is not None for error in outcomes)


def test_a_lease_alone_loses_updates() -> None:
    assert violations(partial(published_in_place, checked=False), range(100)) > 0


def test_a_second_look_at_the_lease_still_loses_updates() -> None:
    assert violations(partial(published_in_place, checked=True), range(200)) > 0


def test_a_fence_by_create_if_absent_loses_none() -> None:
    assert violations(published_with_fence, range(200)) == 0
