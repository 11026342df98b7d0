"""What a writer takes from the world beside storage: clocks, randomness, waiting, background work.

Everything that commits gets a `World` as an argument and uses nothing else, so the code that runs
in production is the code that the simulator runs with its own clocks and randomness. This is the
one module that reads a clock, draws randomness, sleeps or starts a thread.
"""

from __future__ import annotations

import getpass
import os
import random
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class World:
    """One process's view of the world. A clock may be wrong; no verdict depends on `now_ms`."""

    #: This machine's wall clock, in milliseconds since 1970. It may be off, and it may step.
    now_ms: Callable[[], int]
    #: Milliseconds since some moment, without steps, and counting while the machine sleeps.
    elapsed_ms: Callable[[], int]
    sleep_ms: Callable[[int], None]
    random_bytes: Callable[[int], bytes]
    #: Repeats the call in the background, this many milliseconds apart; returns a function that
    #: stops it. The stop waits for a running call. A call that raises ends the repetition.
    every: Callable[[int, Callable[[], None]], Callable[[], None]]
    #: This process, for people who read error messages.
    label: str
    #: The same in parts: host, user, process, and the program unless `job` is set.
    host: str = ""
    user: str = ""
    process: int = 0
    program: str = ""


def new_uuid(world: World) -> str:
    return str(uuid.UUID(bytes=world.random_bytes(16), version=4))


def jittered_ms(world: World, most_ms: int) -> int:
    """Return a wait between half of the time and all of it.

    It keeps competing writers from retrying in step.
    """
    return most_ms // 2 + int.from_bytes(world.random_bytes(4), "big") % (most_ms // 2 + 1)


def real_world() -> World:
    return World(
        now_ms=lambda: time.time_ns() // 1_000_000,
        elapsed_ms=_elapsed_ms,
        sleep_ms=lambda ms: time.sleep(ms / 1000),
        random_bytes=random.SystemRandom().randbytes,
        every=_every,
        label=f"{socket.gethostname()}, process {os.getpid()}",
        host=socket.gethostname(),
        user=_user(),
        process=os.getpid(),
        program=os.path.basename(sys.argv[0]) if sys.argv else "",
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may run under a user number without a name
        return str(os.getuid()) if hasattr(os, "getuid") else ""


def _elapsed_ms() -> int:
    # Linux has a clock that counts suspended time; elsewhere the steady clock must do.
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(clock) // 1_000_000


def _every(interval_ms: int, call: Callable[[], None]) -> Callable[[], None]:
    stopped = threading.Event()

    def repeat() -> None:
        while not stopped.wait(interval_ms / 1000):
            call()

    thread = threading.Thread(target=repeat, name="pyhudi-background", daemon=True)
    thread.start()

    def stop() -> None:
        stopped.set()
        if thread is not threading.current_thread():
            thread.join()

    return stop
