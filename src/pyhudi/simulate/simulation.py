"""A small world for code that takes a `Storage` and a `World`: processes, their clocks, one store.

    with Simulation(seed) as simulation:
        for name in ("ann", "bob"):
            process = simulation.process(name)
            process.start(upsert, process.storage, process.world)
        trace = simulation.run()

The same seed gives the same run, to the last byte, in any Python process. What is called from
outside an actor, before a run or after it, happens at once and meets no fault: that is how a test
makes its table and looks at the outcome.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from types import TracebackType
from typing import Self

from pyhudi.simulate.choices import Choices, SeededChoices, drawn, random_stream
from pyhudi.simulate.faults import DrawnFaults, Fault, FaultPlan, FaultRates, FixedFaults
from pyhudi.simulate.scheduler import FOREVER_MS, Actor, Life, Scheduler
from pyhudi.simulate.storage import SharedObjects, SimulatedStorage
from pyhudi.simulate.trace import Trace
from pyhudi.storage.stores.memory import MemoryStorage
from pyhudi.world import World

START_MS = 1_767_225_600_000  # the first of January 2026, UTC
_TICKS_MS = (0, 0, 1, 3, 50)


#: Starts its actors in the simulation, runs it, and raises if the outcome is wrong.
Scenario = Callable[["Simulation"], object]


class Simulation:
    """Processes over one store, in an order and with faults that a seed decides.

    `choices` and `faults` in place of the seed's own replay a known run. Rates for `faults` draw
    them from the seed; without any there are no faults and clocks are right.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        choices: Choices | None = None,
        faults: FaultPlan | FaultRates | None = None,
        tick_ms: int | None = None,
    ) -> None:
        self.seed = seed
        self.trace = Trace()
        self.choices: Choices = SeededChoices(seed) if choices is None else choices
        self.faults: FaultPlan = _plan(seed, faults)
        self.faults_strike = True  # False lets a table recover undisturbed
        if tick_ms is None:
            tick_ms = _TICKS_MS[drawn(random_stream(seed, "ticks"), len(_TICKS_MS))]
        self.scheduler = Scheduler(self.choices, self.trace, now_ms=START_MS, tick_ms=tick_ms)
        #: The store itself: for what a test reads outside of the simulation.
        self.storage = MemoryStorage(lambda: self.scheduler.now_ms, uri="memory://simulation")
        self._shared = SharedObjects(self.storage, may_be_stale=self.faults.may_be_stale)
        self._processes: dict[str, Process] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def now_ms(self) -> int:
        """Return the true time, which is also the store's."""
        return self.scheduler.now_ms

    def process(
        self, name: str, *, clock_skew_ms: int | None = None, faulty: bool = True
    ) -> Process:
        """Add a process. One that comes back after a crash is a new one, with another name.

        Without `faulty` no storage fault strikes it.
        """
        if name in self._processes:
            raise ValueError(f"there has been a process named {name}")
        skew_ms = self.faults.skew_ms(name) if clock_skew_ms is None else clock_skew_ms
        process = Process(self, name, skew_ms, self._shared, faulty=faulty)
        self._processes[name] = process
        return process

    def run(self, max_steps: int = 100_000) -> Trace:
        """Run until every actor is done, or crashed, or frozen for ever; may be called again.

        Raises what an actor raised, unless it was a `HudiError`, which is an answer and stays in
        `Actor.error`; and `StuckError` if there is no end.
        """
        try:
            self.scheduler.run(max_steps)
        except Exception as error:
            error.add_note(f"seed {self.seed}, step {self.scheduler.step}; the last steps were")
            error.add_note(self.trace.text(last=25))
            raise
        return self.trace

    def close(self) -> None:
        """End what still runs, such as a frozen process, and free its threads."""
        self.scheduler.close()


class Process:
    """A simulated process: actors that share a clock, a storage, and crashes."""

    def __init__(
        self,
        simulation: Simulation,
        name: str,
        clock_skew_ms: int,
        shared: SharedObjects,
        *,
        faulty: bool,
    ) -> None:
        self.name = name
        self.life = Life(name)
        self.scheduler = simulation.scheduler
        self.operations = 0  # on storage, while the simulation ran; faults are counted by it
        #: Called once when the process crashes, for instance to start its successor.
        self.on_crash: Callable[[], object] = lambda: None
        self._simulation = simulation
        self._faulty = faulty
        self._skew_ms = clock_skew_ms
        self._actors = 0
        self._chance = random_stream(simulation.seed, f"bytes of {name}")
        self._booted_ms = START_MS - drawn(self._chance, 1_000_000_000)
        self.storage = SimulatedStorage(self, shared)
        self.world = self._world(self._chance)

    def _world(self, chance: random.Random) -> World:
        return World(
            now_ms=lambda: self.scheduler.now_ms + self._skew_ms,
            elapsed_ms=lambda: self.scheduler.now_ms - self._booted_ms,
            sleep_ms=self._sleep,
            random_bytes=chance.randbytes,
            every=self._every,
            label=self.name,
        )

    def start(self, function: Callable[..., object], *arguments: object) -> Actor:
        """Run the function as an actor of this process, from the next run on or within this one."""
        return self.scheduler.add(self.life, self._new_name(), lambda: function(*arguments))

    @property
    def crashed(self) -> bool:
        return self.life.crashed

    def crash(self) -> None:
        """End the process here. If one of its own actors calls this, it does not return."""
        if self.life.crashed:
            return
        self._control("crash")
        self.life.crashed = True
        self.on_crash()
        self._rest_if_own()

    def freeze(self, ms: int | None = None) -> None:
        """Let no actor of the process continue for so long, or until `thaw`."""
        self._control("freeze")
        self.life.frozen_until_ms = FOREVER_MS if ms is None else self.scheduler.now_ms + ms
        self._rest_if_own()

    def thaw(self) -> None:
        self._control("thaw")
        self.life.frozen_until_ms = 0

    def step_clock(self, ms: int) -> None:
        """Set the wall clock forward, or back."""
        self._skew_ms += ms

    def pause(self, label: str = "pause", path: str = "") -> None:
        """Yield at a point of the caller's own. To `explore` it is a change of the path."""
        self.scheduler.before(self.life, label, path)
        self.scheduler.record(label, path)

    def pass_time(self, ms: int) -> None:
        """Let time pass for all while others could continue, as a long wait does."""
        self.scheduler.before(self.life, "pass time")
        self.scheduler.record("pass time", outcome=f"{ms} ms")
        self.scheduler.now_ms += ms

    # What the storage of this process needs.

    def fault_at(self, operation: str) -> Fault | None:
        """Count the operation about to happen, and return the fault that strikes it."""
        if self.scheduler.current is None:
            return None
        self.operations += 1
        if not (self._faulty and self._simulation.faults_strike):
            return None
        return self._simulation.faults.fault_at(self.name, self.operations, operation)

    @property
    def keeps_torn(self) -> bool:
        return self._simulation.faults.keeps_torn

    def send_late(
        self, operation: str, path: str, perform: Callable[[], object], wait_ms: int
    ) -> None:
        """Let the operation happen on its own, at some moment after the wait."""
        name = self._new_name("late")
        self.scheduler.add(
            Life(name), name, perform, wait_ms=wait_ms, operation=operation, path=path
        )

    def _control(self, operation: str) -> None:
        """Yield before one process acts on another; on itself it needs no yield point."""
        current = self.scheduler.current
        if current is not None and current.life is not self.life:
            self.scheduler.before(current.life, operation, self.name)
        self.scheduler.record(operation, self.name)

    def _rest_if_own(self) -> None:
        current = self.scheduler.current
        if current is not None and current.life is self.life:
            self.scheduler.again()

    def _sleep(self, ms: int) -> None:
        self.scheduler.sleep(self.life, ms)
        self.scheduler.record("sleep", outcome=f"{ms} ms")

    def _every(self, interval_ms: int, call: Callable[[], None]) -> Callable[[], None]:
        background = self.scheduler.add(
            self.life,
            self._new_name("background"),
            call,
            wait_ms=interval_ms,
            interval_ms=interval_ms,
            operation="beat",
        )
        return lambda: self.scheduler.stop(background)

    def _new_name(self, kind: str = "") -> str:
        """Return a name counted within the process, so that it does not depend on other
        processes."""
        self._actors += 1
        return f"{self.name}/{kind}{self._actors}"


def _plan(seed: int, faults: FaultPlan | FaultRates | None) -> FaultPlan:
    if faults is None:
        return FixedFaults()
    return DrawnFaults(seed, faults) if isinstance(faults, FaultRates) else faults
