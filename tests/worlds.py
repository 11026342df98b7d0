"""A world for tests: a clock that moves when told, chance from a seed, and no background."""

from __future__ import annotations

import random
from collections.abc import Callable

from pyhudi.world import World

START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


class Clock:
    """Milliseconds since 1970. Every look at it takes one."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.ms = now_ms

    def __call__(self) -> int:
        self.ms += 1
        return self.ms

    def sleep(self, ms: int) -> None:
        self.ms += ms


def still_world(clock: Clock, label: str = "a test", *, skew_ms: int = 0, seed: int = 0) -> World:
    """A process whose own clock is off by the skew, and whose background calls never come."""

    def never(interval_ms: int, call: Callable[[], None]) -> Callable[[], None]:
        return lambda: None

    return World(
        now_ms=lambda: clock() + skew_ms,
        elapsed_ms=lambda: clock.ms,
        sleep_ms=clock.sleep,
        random_bytes=random.Random(f"{label} {seed}").randbytes,
        every=never,
        label=label,
    )
