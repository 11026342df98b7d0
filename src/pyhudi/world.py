"""What a writer takes from the world beside storage: clocks, randomness, waiting, background work.

Everything that commits gets a `World` as an argument and uses nothing else, so the code that runs
in production is the code that the simulator runs with its own clocks and randomness. This is the
one module that reads a clock, draws randomness, sleeps or starts threads.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import random
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Calls under way at once. Most of their time they wait for storage.
_AT_ONCE: Final = 16


class Together(Protocol):
    """Calls a function with each of the items; returns the results in their order.

    It may make several calls at once, in other threads. After an error no further call begins, and
    the error of the first item that has one is raised when all calls have ended.
    """

    def __call__(
        self, call: Callable[[Item], Result], items: Sequence[Item], /
    ) -> list[Result]: ...


def one_by_one(call: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Call the function with each item in turn, in this thread."""
    return [call(item) for item in items]


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
    #: How calls are made that wait for storage and do not depend on each other.
    together: Together = one_by_one


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
        together=_together,
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


def event_loop(threads: int) -> tuple[asyncio.AbstractEventLoop, Callable[[], None]]:
    """Run an event loop in the background; return it, and a function that ends it.

    Its executor makes up to so many calls at once. The end waits for those under way.
    """
    loop = asyncio.new_event_loop()
    loop.set_default_executor(ThreadPoolExecutor(threads, "pyhudi-loop"))
    thread = threading.Thread(target=loop.run_forever, name="pyhudi-loop", daemon=True)
    thread.start()

    def end() -> None:
        asyncio.run_coroutine_threadsafe(loop.shutdown_default_executor(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    return loop, end


def _together(call: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    if len(items) < 2:
        return one_by_one(call, items)
    failed = threading.Event()

    def called(item: Item) -> list[Result]:
        if failed.is_set():
            return []  # that an earlier call failed is what the caller gets
        try:
            return [call(item)]
        except BaseException:
            failed.set()
            raise

    with ThreadPoolExecutor(min(_AT_ONCE, len(items)), "pyhudi-together") as pool:
        return [result for found in pool.map(called, items) for result in found]
