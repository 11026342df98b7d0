"""A world for tests: a clock that ticks when asked, chance from a seed, no waiting, no threads."""

from __future__ import annotations

import itertools
import random

from pyhudi.world import World


def seeded_world(seed: int = 0) -> World:
    """The same seed gives the same answers, in the order in which they are asked for."""
    clock, chance = itertools.count(1_700_000_000_000), random.Random(seed)
    return World(
        now_ms=lambda: next(clock),
        elapsed_ms=lambda: next(clock),
        sleep_ms=lambda _: None,
        random_bytes=chance.randbytes,
        every=lambda _, __: lambda: None,
        label=f"test {seed}",
    )
