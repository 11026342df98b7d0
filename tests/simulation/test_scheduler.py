"""The order of events in a simulation: one at a time, by choice, the same again for a seed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial

import pytest

from pyhudi.errors import ConflictError, UnavailableError
from pyhudi.simulate import (
    Crashed,
    FaultRates,
    Process,
    ReplayedChoices,
    Simulation,
    StuckError,
    run_seed,
)
from pyhudi.simulate import scheduler as scheduler_module
from pyhudi.world import new_uuid


def busy_writer(process: Process) -> None:
    """A little of everything a writer does: beats, waits, random names, listings, races."""

    def beat() -> None:
        process.storage.write(f"beats/{process.name}", str(process.world.now_ms()).encode())

    stop = process.world.every(1_000, beat)
    for turn in range(4):
        try:
            taken = [stat.path for stat in process.storage.list("log")]
            process.storage.create(f"log/{len(taken):04}", new_uuid(process.world).encode())
            process.world.sleep_ms(700 * turn)
            process.storage.delete(f"beats/{process.name}")
        except UnavailableError:
            continue
    stop()


def busy(simulation: Simulation) -> None:
    for name in ("ann", "bob", "cyd"):
        process = simulation.process(name)
        process.start(busy_writer, process)
        process.on_crash = partial(restart, simulation, f"{name} again")
    simulation.run()


def restart(simulation: Simulation, name: str) -> None:
    process = simulation.process(name)
    process.start(busy_writer, process)


def digests(seeds: range) -> list[str]:
    return [run_seed(busy, seed, FaultRates()).digest for seed in seeds]


SEEDS = range(50)


def test_the_same_seed_gives_the_same_trace() -> None:
    first = digests(SEEDS)
    assert first == digests(SEEDS)
    assert len(set(first)) == len(SEEDS)


def test_the_same_seed_gives_the_same_trace_in_another_python() -> None:
    environment = {**os.environ, "PYTHONHASHSEED": "4711"}
    printed = subprocess.run(
        [sys.executable, __file__], env=environment, capture_output=True, text=True, check=True
    )
    assert printed.stdout.split() == digests(SEEDS)


def increment(process: Process) -> None:
    """Read, then write: an update is lost if both read first."""
    value = int(process.storage.read("counter"))
    process.storage.write("counter", str(value + 1).encode())


def two_increments(simulation: Simulation) -> None:
    simulation.storage.create("counter", b"0")
    for name in ("ann", "bob"):
        process = simulation.process(name)
        process.start(increment, process)
    simulation.run()
    assert simulation.storage.read("counter") == b"2"


def test_a_lost_update_is_found_within_twenty_seeds() -> None:
    found = [seed for seed in range(20) if run_seed(two_increments, seed).error is not None]
    assert 0 < len(found) < 20


def test_an_error_names_its_seed_and_the_last_steps() -> None:
    def failing(process: Process) -> None:
        process.storage.create("a", b"")
        raise AssertionError("no")

    with Simulation(7) as simulation:
        process = simulation.process("ann")
        process.start(failing, process)
        with pytest.raises(AssertionError) as caught:
            simulation.run()
    assert "seed 7" in caught.value.__notes__[0]
    assert "create a -> true" in caught.value.__notes__[1]


def test_only_one_actor_runs_at_a_time() -> None:
    inside: list[str] = []

    def watch(process: Process) -> None:
        for _ in range(20):
            inside.append(process.name)
            assert inside == [process.name]
            sum(range(1_000))
            inside.clear()
            process.storage.stat("x")

    with Simulation(3) as simulation:
        for name in "abcd":
            process = simulation.process(name)
            process.start(watch, process)
        simulation.run()


def test_an_actor_keeps_its_result_or_the_error_that_is_an_answer() -> None:
    def refuse() -> None:
        raise ConflictError("a", why="b", next_step="c")

    with Simulation() as simulation:
        process = simulation.process("ann")
        well, refused = process.start(lambda text: text * 2, "x"), process.start(refuse)
        simulation.run()
    assert (well.done, well.result, well.error) == (True, "xx", None)
    assert (refused.done, type(refused.error)) == (True, ConflictError)


def test_time_passes_only_while_everybody_sleeps() -> None:
    seen: list[tuple[str, int]] = []

    def sleeper(process: Process, ms: int) -> None:
        process.world.sleep_ms(ms)
        seen.append((process.name, process.world.elapsed_ms()))

    with Simulation(choices=ReplayedChoices([]), tick_ms=0) as simulation:
        begun = simulation.now_ms
        for name, ms in (("ann", 3_600_000), ("bob", 5)):
            process = simulation.process(name)
            process.start(sleeper, process, ms)
        simulation.run()
    assert [name for name, _ in seen] == ["bob", "ann"]
    assert simulation.now_ms == begun + 3_600_000


def test_clocks_of_processes_differ_by_their_skew_and_can_step() -> None:
    with Simulation() as simulation:
        ann = simulation.process("ann", clock_skew_ms=-600_000)
        bob = simulation.process("bob")
        assert bob.world.now_ms() - ann.world.now_ms() == 600_000
        before = bob.world.elapsed_ms()
        bob.step_clock(-1_000)
        assert bob.world.now_ms() == simulation.now_ms - 1_000
        assert bob.world.elapsed_ms() == before


def beating(process: Process, beats: list[int], ms: int) -> None:
    stop = process.world.every(1_000, lambda: beats.append(process.scheduler.now_ms))
    process.world.sleep_ms(ms)
    stop()
    process.world.sleep_ms(10_000)


def in_order(scenario: Callable[[Process], object], *, max_steps: int = 1_000) -> Simulation:
    """Run one process alone, with every actor running as long as it can."""
    with Simulation(choices=ReplayedChoices([]), tick_ms=0) as simulation:
        process = simulation.process("ann")
        process.start(scenario, process)
        simulation.run(max_steps)
    return simulation


def test_background_work_repeats_until_stopped() -> None:
    beats: list[int] = []
    simulation = in_order(lambda process: beating(process, beats, 4_500))
    begun = simulation.now_ms - 14_500
    assert [beat - begun for beat in beats] == [1_000, 2_000, 3_000, 4_000]


def test_a_stop_waits_for_a_call_under_way() -> None:
    ended: list[str] = []

    def slow_beat(process: Process) -> None:
        process.world.sleep_ms(5_000)
        ended.append("beat")

    def actor(process: Process) -> None:
        stop = process.world.every(1_000, lambda: slow_beat(process))
        process.world.sleep_ms(1_500)
        stop()
        ended.append("stop")

    in_order(actor)
    assert ended == ["beat", "stop"]


def test_background_work_may_stop_itself() -> None:
    stops: list[Callable[[], None]] = []
    calls: list[int] = []

    def beat() -> None:
        calls.append(len(calls))
        stops[0]()

    def actor(process: Process) -> None:
        stops.append(process.world.every(1_000, beat))
        process.world.sleep_ms(5_000)

    in_order(actor)
    assert calls == [0]


def test_a_background_call_that_raises_is_the_last() -> None:
    calls: list[int] = []

    def beat() -> None:
        calls.append(len(calls))
        raise UnavailableError("a", why="b", next_step="c")

    def actor(process: Process) -> None:
        stop = process.world.every(1_000, beat)
        process.world.sleep_ms(5_000)
        stop()

    in_order(actor)
    assert calls == [0]


def test_background_work_does_not_keep_a_simulation_going() -> None:
    beats: list[int] = []
    in_order(lambda process: process.world.every(1_000, lambda: beats.append(1)))
    assert not beats


def test_freezing_stops_beats_and_thawing_lets_the_zombie_go_on() -> None:
    beats: list[int] = []
    with Simulation(choices=ReplayedChoices([]), tick_ms=0) as simulation:
        begun = simulation.now_ms
        ann, bob = simulation.process("ann"), simulation.process("bob")
        zombie = ann.start(beating, ann, beats, 3_500)

        def meddle() -> None:
            bob.world.sleep_ms(1_500)
            ann.freeze()
            bob.world.sleep_ms(60_000)

        bob.start(meddle)
        simulation.run()
        assert not zombie.done
        assert [beat - begun for beat in beats] == [1_000]
        ann.thaw()
        simulation.run()
    assert zombie.done
    assert all(beat - begun >= 61_500 for beat in beats[1:])


def test_a_frozen_process_goes_on_by_itself_after_its_time() -> None:
    def actor(process: Process) -> None:
        process.freeze(5_000)
        process.storage.create("late", b"")

    simulation = in_order(actor)
    created = simulation.storage.stat("late")
    assert created is not None
    assert created.modified_ms == simulation.now_ms


def dogged(process: Process, heard: list[str]) -> None:
    """Does its worst to continue after a crash."""
    try:
        try:
            process.storage.create("before", b"")
            process.crash()
            process.storage.create("after", b"")
        except Exception:
            heard.append("except")
            process.storage.create("except", b"")
        finally:
            process.storage.create("finally", b"")
    except BaseException as error:
        heard.append(type(error).__name__)
        process.world.sleep_ms(10)
        raise


def test_a_crash_leaves_no_later_operation_even_in_finally() -> None:
    heard: list[str] = []
    with Simulation() as simulation:
        process = simulation.process("ann")
        actor = process.start(dogged, process, heard)
        simulation.run()
        assert [stat.path for stat in simulation.storage.list("")] == ["before"]
        assert heard == ["Crashed"]
        assert process.crashed
        assert not actor.done
        with pytest.raises(Crashed):
            process.storage.create("outside", b"")


def test_what_a_crashed_actor_raises_is_not_heard() -> None:
    def actor(process: Process) -> None:
        try:
            process.crash()
        finally:
            raise RuntimeError("from the grave")

    with Simulation() as simulation:
        process = simulation.process("ann")
        process.start(actor, process)
        simulation.run()
        assert simulation.trace.events[-1].operation == "crash"
        simulation.run()


def test_a_crash_ends_background_work_in_the_middle_of_a_call() -> None:
    def beat(process: Process) -> None:
        process.storage.create("beat begins", b"")
        process.world.sleep_ms(1_000)
        process.storage.create("beat ends", b"")

    def actor(process: Process) -> None:
        process.world.every(1_000, lambda: beat(process))
        process.world.sleep_ms(100_000)

    with Simulation() as simulation:
        ann, bob = simulation.process("ann"), simulation.process("bob")
        ann.start(actor, ann)

        def kill() -> None:
            bob.world.sleep_ms(1_500)
            ann.crash()

        bob.start(kill)
        simulation.run()
        assert [stat.path for stat in simulation.storage.list("")] == ["beat begins"]


def test_a_successor_can_start_when_a_process_crashes() -> None:
    with Simulation() as simulation:
        ann = simulation.process("ann")
        ann.start(ann.crash)
        ann.on_crash = lambda: restart(simulation, "ann again")
        simulation.run()
        assert [stat.path for stat in simulation.storage.list("log")]


def test_a_run_can_be_followed_by_another() -> None:
    with Simulation() as simulation:
        for name in ("ann", "bob"):
            process = simulation.process(name)
            actor = process.start(process.storage.create, name, b"")
            simulation.run()
            assert actor.result is True
    assert len(list(simulation.storage.list(""))) == 2


def test_an_endless_run_fails_and_shows_what_it_does() -> None:
    def poll(process: Process) -> None:
        while process.storage.stat("never") is None:
            process.world.sleep_ms(10)

    with pytest.raises(StuckError, match="no end in sight after 101 steps") as caught:
        in_order(poll, max_steps=100)
    assert "stat never -> none" in str(caught.value)


def test_actors_that_wait_for_each_other_fail() -> None:
    def actor(process: Process) -> None:
        stops: list[Callable[[], None]] = []

        def beat(other: int) -> None:
            process.world.sleep_ms(100)
            stops[other]()

        stops.append(process.world.every(1_000, lambda: beat(1)))
        stops.append(process.world.every(1_000, lambda: beat(0)))
        process.world.sleep_ms(1_500)
        stops[0]()

    with pytest.raises(StuckError, match="every actor waits for another"):
        in_order(actor)


def test_an_actor_that_waits_for_something_real_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduler_module, "PATIENCE_SECONDS", 0.05)
    door = threading.Event()
    with Simulation() as simulation:
        simulation.process("ann").start(door.wait)
        with pytest.raises(StuckError, match="waits for something real"):
            simulation.run()
    door.set()


def test_a_thread_that_is_no_actor_is_refused() -> None:
    heard: list[BaseException] = []

    def intruder(process: Process) -> None:
        try:
            process.storage.stat("x")
        except RuntimeError as error:
            heard.append(error)

    def actor(process: Process) -> None:
        thread = threading.Thread(target=intruder, args=(process,))
        thread.start()
        thread.join()

    in_order(actor)
    assert "a thread that is not an actor" in str(heard[0])


def test_the_storage_of_another_process_is_refused() -> None:
    with Simulation() as simulation:
        ann, bob = simulation.process("ann"), simulation.process("bob")
        ann.start(bob.storage.stat, "x")
        with pytest.raises(RuntimeError, match="uses the storage or world of process bob"):
            simulation.run()


def test_a_name_is_used_once() -> None:
    with Simulation() as simulation:
        simulation.process("ann")
        with pytest.raises(ValueError, match="ann"):
            simulation.process("ann")


def test_threads_are_used_again() -> None:
    run_seed(busy, 0)
    before = threading.active_count()
    for seed in range(30):
        run_seed(busy, seed, FaultRates())
    assert threading.active_count() <= before + 10


def test_random_bytes_come_from_the_seed_and_the_name() -> None:
    def drawn(seed: int, name: str) -> bytes:
        return Simulation(seed).process(name).world.random_bytes(16)

    assert drawn(1, "ann") == drawn(1, "ann")
    assert len({drawn(1, "ann"), drawn(1, "bob"), drawn(2, "ann")}) == 3


if __name__ == "__main__":  # by the test of another Python
    print("\n".join(digests(SEEDS)))
