"""Measuring: CPU seconds of this process, wall seconds, and the most memory it ever held.

Contestants take turns, and of each the best turn counts: what disturbs a run only ever makes it
slower.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cost:
    cpu_s: float
    wall_s: float


def cost_of(work: Callable[[], object]) -> Cost:
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return Cost(time.process_time() - cpu, time.perf_counter() - wall)


def best_of(turns: int, contestants: Mapping[str, Callable[[], object]]) -> dict[str, Cost]:
    best: dict[str, Cost] = {}
    for _ in range(turns):
        for name, work in contestants.items():
            cost = cost_of(work)
            known = best.get(name, cost)
            best[name] = Cost(min(known.cpu_s, cost.cpu_s), min(known.wall_s, cost.wall_s))
    return best


def peak_memory_mb() -> float:
    """The most memory this program held; a child's own, not what its parent had when it began."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("this system does not tell a process's peak memory")


def verdict(what: str, ratio: float, limit: float) -> bool:
    """Print one line; True when the ratio is within the limit."""
    met = ratio <= limit
    print(f"  {what}: {ratio:.2f} (at most {limit:.1f}) {'ok' if met else 'MISSED'}")
    return met
