"""One time for several writers, each with a clock of its own; it passes only when somebody sleeps.

So tests of waiting, leases and renewal take no time, and the same test always goes the same way.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

from pyhudi.storage.stores.memory import MemoryStorage
from pyhudi.world import World

START_MS = 1_700_000_000_000
MINUTE_MS = 60_000


@dataclass
class _Task:
    """Background work of one writer."""

    label: str
    interval_ms: int
    due_ms: int
    call: Callable[[], None]


class Universe:
    """True time, what each writer's clock is off by, and the background work of all."""

    _numbers = itertools.count()

    def __init__(self) -> None:
        self._number = next(self._numbers)  # an `id` may be that of one before, whose locks stand
        self.now_ms = START_MS
        self.skew_ms: dict[str, int] = {}
        self.frozen: set[str] = set()  # whose background work rests: stopped, or dead
        self.naps_ms: list[int] = []
        self._tasks: list[_Task] = []
        self._seeds = itertools.count()
        self._passing = threading.RLock()  # the tests of threads let time pass in all of them

    def world(self, label: str = "a writer", *, skew_ms: int = 0) -> World:
        self.skew_ms[label] = skew_ms
        return World(
            now_ms=lambda: self.now_ms + self.skew_ms[label],
            elapsed_ms=lambda: self.now_ms - START_MS,
            sleep_ms=self._nap,
            random_bytes=random.Random(next(self._seeds)).randbytes,
            every=lambda interval_ms, call: self._every(label, interval_ms, call),
            label=label,
        )

    def memory(self) -> MemoryStorage:
        return MemoryStorage(lambda: self.now_ms, uri=f"memory://universe/{self._number}")

    def pass_ms(self, ms: int) -> None:
        """Let time pass, and everything happen that is due meanwhile."""
        with self._passing:
            until_ms = self.now_ms + ms
            while due := [task for task in self._tasks if task.due_ms <= until_ms]:
                task = min(due, key=lambda task: task.due_ms)
                self.now_ms = max(self.now_ms, task.due_ms)
                task.due_ms += task.interval_ms
                if task.label not in self.frozen:
                    task.call()
            self.now_ms = max(self.now_ms, until_ms)

    @property
    def background(self) -> list[str]:
        """Whose work goes on in the background."""
        return [task.label for task in self._tasks]

    def at(self, delay_ms: int, call: Callable[[], object]) -> None:
        """Do something once, when so much time has passed."""

        def once() -> None:
            stop()
            call()

        stop = self._every("fate", delay_ms, once)

    def _nap(self, ms: int) -> None:
        self.naps_ms.append(ms)
        self.pass_ms(ms)

    def _every(self, label: str, interval_ms: int, call: Callable[[], None]) -> Callable[[], None]:
        task = _Task(label, interval_ms, self.now_ms + interval_ms, call)
        self._tasks.append(task)

        def stop() -> None:
            self._tasks = [other for other in self._tasks if other is not task]

        return stop
