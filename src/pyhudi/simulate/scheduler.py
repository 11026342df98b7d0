"""Runs one actor at a time, in an order that `Choices` decides, in simulated time.

Actors are plain functions. Each runs in a thread, but all threads but one wait: the one that runs
holds the baton, and releases it at its yield points only. A yield point lies before an operation.
The actor says what it is about to do, `Choices` picks the actor that continues, and the baton goes
straight to that thread, or nowhere if the actor may continue itself. What happens between two yield
points belongs to the operation before it, and no other actor can be seen to act within.

Time stands still, or ticks by a fixed step, while any actor can continue. When all actors sleep it
moves to the next moment at which one wakes; `Choices` may let it pass earlier. Nothing reads a real
clock, so the same choices give the same run.

A crashed process is one whose actors are never chosen again. Their threads wait until the run is
over and are then unwound by raising `Crashed` where they stand. To the simulated world they ended
at the crash: nothing that an `except` or `finally` of theirs does can reach storage.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from pyhudi.errors import HudiError
from pyhudi.simulate.choices import TIME_PASSES, Choices, Pending
from pyhudi.simulate.threads import Worker, dismiss, hire
from pyhudi.simulate.trace import Event, Trace

FOREVER_MS = 1 << 62
#: Real seconds in which an actor must reach its next yield point. One that does not is waiting for
#: something outside the simulation, such as a lock that a waiting actor holds.
PATIENCE_SECONDS = 60


class Crashed(BaseException):
    """The process is gone. No `except Exception` catches this, and no storage call succeeds."""


class StuckError(Exception):
    """The simulation cannot come to an end."""


class Life:
    """The state of a process: alive, frozen or crashed."""

    __slots__ = ("crashed", "frozen_until_ms", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.crashed = False
        self.frozen_until_ms = 0


class Actor:
    """A running function. `result` or `error` say how it ended, once it is `done`.

    A `HudiError` is an answer, and ends the actor alone. Any other error ends the simulation.
    """

    def __init__(self, life: Life, name: str, function: Callable[[], object]) -> None:
        self.name = name
        self.done = False
        self.result: object = None
        self.error: HudiError | None = None
        self.life = life
        self.function = function
        self.pending = Pending(name, life.name, "start")
        self.wake_ms = 0
        self.interval_ms: int | None = None  # of background work, which is repeated
        self.awaits: Actor | None = None
        self.worker: Worker | None = None  # while the function runs

    def can_go_on(self, now_ms: int) -> bool:
        life = self.life
        return (
            self.wake_ms <= now_ms
            and life.frozen_until_ms <= now_ms
            and not life.crashed
            and (self.awaits is None or self.awaits.worker is None)
        )

    def matters(self) -> bool:
        """True if a run waits for this actor. It does not wait for background work between two
        calls."""
        return self.interval_ms is None or self.worker is not None


class Scheduler:
    """Runs actors one at a time. `now_ms` is the true time of the simulated world."""

    def __init__(self, choices: Choices, trace: Trace, *, now_ms: int, tick_ms: int) -> None:
        self.now_ms = now_ms
        self.step = 0
        self._choices = choices
        self._trace = trace
        self._tick_ms = tick_ms
        self._actors: list[Actor] = []
        self.current: Actor | None = None  # None: the caller is outside the simulation
        self._last_step = 0
        self._failure: BaseException | None = None
        self._unwinding: list[Actor] | None = None
        self._over = threading.Lock()  # the baton, when it returns to the caller of `run`
        self._over.acquire()

    # What the owner of the simulation calls.

    def add(
        self,
        life: Life,
        name: str,
        function: Callable[[], object],
        *,
        wait_ms: int = 0,
        interval_ms: int | None = None,
        operation: str = "start",
        path: str = "",
    ) -> Actor:
        """Add an actor that is about to do what the operation and path say, once the wait is
        over."""
        actor = Actor(life, name, function)
        actor.pending = Pending(name, life.name, operation, path)
        actor.wake_ms = self.now_ms + wait_ms
        actor.interval_ms = interval_ms
        self._actors.append(actor)
        return actor

    def run(self, max_steps: int) -> None:
        """Run until every actor is done, or crashed, or frozen for ever."""
        assert self.current is None, "an actor cannot run the simulation that runs it"
        self._last_step = self.step + max_steps
        self._choices.barrier()
        self._hand_over(self._following())
        self._wait_until_over()
        if self._failure is not None:
            self.close()
            raise self._failure
        self._unwind([actor for actor in self._actors if actor.life.crashed])

    def close(self) -> None:
        """End all actors where they stand, and free their threads."""
        self._unwind(self._actors)

    def record(self, operation: str, path: str = "", outcome: str = "ok") -> None:
        if self._unwinding is not None:
            return  # to the simulated world this actor has ended already
        name = "outside" if self.current is None else self.current.name
        self._trace.events.append(Event(self.step, self.now_ms, name, operation, path, outcome))

    # What the running actor calls.

    def before(self, life: Life, operation: str, path: str = "", after: str = "") -> None:
        """Yield; return when this operation is to happen."""
        actor = self.current
        if actor is None:
            if life.crashed:
                raise Crashed(life.name)
            return
        self._check(actor, life)
        actor.pending = Pending(actor.name, life.name, operation, path, after)
        self._switch(actor)

    def again(self) -> None:
        """Repeat the same yield point, because something came between."""
        assert self.current is not None
        self._switch(self.current)

    def sleep(self, life: Life, ms: int, operation: str = "wake", path: str = "") -> None:
        if self.current is None:
            self.now_ms += ms
            return
        self.current.wake_ms = self.now_ms + ms
        self.before(life, operation, path)

    def stop(self, background: Actor) -> None:
        """Stop this background work; wait for a running call."""
        background.done = True
        current = self.current
        if background.worker is None:
            self._forget(background)
        elif current is not None and current is not background:
            current.awaits = background
            self.before(current.life, "stop")
            current.awaits = None

    # How the baton is passed.

    def _switch(self, actor: Actor) -> None:
        following = self._following()
        if following is actor:
            return
        worker = actor.worker
        assert worker is not None
        self._hand_over(following)
        worker.wait()
        if self._unwinding is not None:
            raise Crashed(actor.life.name)

    def _hand_over(self, actor: Actor | None) -> None:
        self.current = actor
        if actor is None:
            self._over.release()
            return
        if actor.worker is None:
            actor.worker = hire()
            actor.worker.job = lambda: self._play(actor)
        actor.worker.wake()

    def _play(self, actor: Actor) -> None:
        """Run an actor in its thread to its end, or one call of background work."""
        self.record("begin", actor.pending.path, actor.pending.operation)
        result, raised = None, None
        try:
            result = actor.function()
        except BaseException as error:
            raised = error
        if self._unwinding is None:  # what an unwound actor still says is dropped
            self._keep(actor, result, raised)
        worker, actor.worker = actor.worker, None
        assert worker is not None
        self._end(actor)
        dismiss(worker)
        self._hand_over(self._following())

    def _keep(self, actor: Actor, result: object, raised: BaseException | None) -> None:
        actor.result = result
        if isinstance(raised, HudiError):
            actor.error = raised
        elif raised is not None:
            self._failure = self._failure or raised
        self.record("end", outcome="ok" if raised is None else type(raised).__name__)

    def _end(self, actor: Actor) -> None:
        if actor.interval_ms is None or actor.done or actor.error:
            actor.done = self._unwinding is None
            self._forget(actor)
            return
        actor.pending = Pending(actor.name, actor.life.name, "beat")
        actor.wake_ms = self.now_ms + actor.interval_ms

    def _forget(self, actor: Actor) -> None:
        if actor in self._actors:
            self._actors.remove(actor)

    def _following(self) -> Actor | None:
        """Return the actor that has the baton next; None is the caller of `run`."""
        if self._unwinding is not None:
            return self._unwinding.pop() if self._unwinding else None
        if self._failure is None:
            try:
                return self._chosen()
            except BaseException as error:
                self._failure = error
        return None

    def _chosen(self) -> Actor | None:
        while True:
            now_ms = self.now_ms
            ready = [actor for actor in self._actors if actor.can_go_on(now_ms)]
            if not any(actor.matters() for actor in ready) and not self._unfinished():
                return None
            if not ready:
                self._pass_time()
                self._choices.barrier()
                continue
            if chosen := self._picked(ready):
                return chosen

    def _picked(self, ready: list[Actor]) -> Actor | None:
        """Return the actor that `Choices` picks; None if time was to pass."""
        self.step += 1
        if self.step > self._last_step:
            raise StuckError(f"no end in sight after {self.step} steps\n{self._state_text()}")
        if self.current in ready:
            ready.remove(self.current)
            ready.insert(0, self.current)
        options = [actor.pending for actor in ready]
        if self._choices.may_pass_time and self._next_moment() is not None:
            options.append(TIME_PASSES)
        place = self._choices.pick(options)
        if place == len(ready):
            self._pass_time()
            return None
        self.now_ms += self._tick_ms
        return ready[place]

    def _unfinished(self) -> bool:
        return any(
            actor.matters() and not actor.life.crashed and actor.life.frozen_until_ms < FOREVER_MS
            for actor in self._actors
        )

    def _next_moment(self) -> int | None:
        """Return when an actor that cannot continue now will, by the mere passing of time.

        A plain loop, because it runs before each step.
        """
        now_ms, soonest = self.now_ms, FOREVER_MS
        for actor in self._actors:
            life, moment = actor.life, actor.wake_ms
            if life.crashed or actor.awaits is not None:
                continue
            if moment < life.frozen_until_ms:
                moment = life.frozen_until_ms
            if now_ms < moment < soonest:
                soonest = moment
        return None if soonest == FOREVER_MS else soonest

    def _pass_time(self) -> None:
        moment = self._next_moment()
        if moment is None:
            raise StuckError(f"every actor waits for another\n{self._state_text()}")
        self._trace.events.append(
            Event(self.step, self.now_ms, "clock", "pass", "", f"{moment - self.now_ms} ms")
        )
        self.now_ms = moment

    # How a run ends.

    def _wait_until_over(self) -> None:
        seen = -1
        while True:
            try:
                if self._over.acquire(timeout=PATIENCE_SECONDS):
                    return
            except KeyboardInterrupt as interrupt:
                self._failure = interrupt  # the running actor ends at its next yield point
                continue
            if seen == self.step:
                self._actors = []  # none of the threads can be ended; leave them
                raise StuckError(f"an actor waits for something real\n{self._state_text()}")
            seen = self.step

    def _unwind(self, actors: list[Actor]) -> None:
        """Raise `Crashed` in each of these that is running, one after the other."""
        self._actors = [actor for actor in self._actors if actor not in actors]
        self._unwinding = [actor for actor in reversed(actors) if actor.worker is not None]
        if self._unwinding:
            self._hand_over(self._following())
            self._wait_until_over()
        self._unwinding = None

    def _check(self, actor: Actor, life: Life) -> None:
        if self._unwinding is not None:
            raise Crashed(life.name)
        worker = actor.worker
        assert worker is not None
        if worker.ident != threading.get_ident():
            raise RuntimeError(
                f"a thread that is not an actor does the work of process {life.name}"
            )
        if life is not actor.life:
            raise RuntimeError(f"{actor.name} uses the storage or world of process {life.name}")

    def _state_text(self) -> str:
        doing = (
            f"{actor.name}: {actor.pending.operation} {actor.pending.path}"
            for actor in self._actors
        )
        return "\n".join(["last steps:", self._trace.text(last=30), "about to happen:", *doing])
