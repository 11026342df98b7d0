"""The threads that actors run in: reused from one simulation to the next, woken one at a time.

Starting a thread costs more than a whole short schedule, so a worker whose actor has ended waits
for the next one. All workers of this process stay on one core: only one of them ever runs, and
waking a sleeper on another core takes two to three times as long. A library that starts threads of
its own inside an actor, such as the pool of pyarrow, has them on that core too.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

_idle: list[Worker] = []


class Worker:
    """A thread that runs one function after another, and waits in between."""

    __slots__ = ("_turn", "ident", "job")

    def __init__(self) -> None:
        self.job: Callable[[], None] = _nothing
        self._turn = threading.Lock()
        self._turn.acquire()
        thread = threading.Thread(target=self._work, name="pyhudi-simulate", daemon=True)
        thread.start()
        self.ident = thread.ident

    def wake(self) -> None:
        self._turn.release()

    def wait(self) -> None:
        """Sleep until woken; called by this very thread."""
        self._turn.acquire()

    def _work(self) -> None:
        _stay_on_one_core()
        while True:
            self.wait()
            self.job()


def hire() -> Worker:
    return _idle.pop() if _idle else Worker()


def dismiss(worker: Worker) -> None:
    """Free the worker for its next function, which may come before the thread has left its last
    one."""
    worker.job = _nothing  # refers to no simulation
    _idle.append(worker)


def _nothing() -> None:
    """Do nothing; the function of an idle worker."""


def _stay_on_one_core() -> None:
    if sys.platform == "linux":
        cores = sorted(os.sched_getaffinity(0))
        # Several test processes spread over the cores: by the environment, or else by process id.
        place = int(os.environ.get("PYHUDI_SIMULATION_CORE") or os.getpid())
        os.sched_setaffinity(0, {cores[place % len(cores)]})


# A forked child has none of its parent's threads.
os.register_at_fork(after_in_child=_idle.clear)
