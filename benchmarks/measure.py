"""Measuring: CPU seconds of this process, wall seconds, and the most memory it ever held; and the
same of another process with all its descendants, such as a driver, its JVM and its Python workers.

Contestants take turns, and of each the best turn counts: what disturbs a run only ever makes it
slower.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
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


def peak_memory_mb(process: int | str = "self") -> float:
    """The most memory a program held; a child's own, not what its parent had when it began."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("this system does not report a process's peak memory")


@dataclass(frozen=True)
class _Ticks:
    """What a process took, and what its children took that ended and were waited for."""

    own: int
    children: int


def _ticks_of(stat: Sequence[str]) -> _Ticks:
    user, system, childrens_user, childrens_system = map(int, stat[11:15])
    return _Ticks(user + system, childrens_user + childrens_system)


def _missing(before: Mapping[int, _Ticks], now: Mapping[int, _Ticks]) -> int:
    """Return how many ticks of ended processes no parent has; 0 if it is a matter of rounding."""
    ended = [ticks for pid, ticks in before.items() if pid not in now]
    had = sum(ticks.children for pid, ticks in before.items() if pid in now)
    gained = sum(ticks.children for ticks in now.values()) - had
    missing = sum(ticks.own + ticks.children for ticks in ended) - gained
    return missing if missing > 4 * len(ended) else 0


class ProcessTree:
    """A process of another program, and all that descend from it."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._known: dict[int, _Ticks] = {}

    def cost_of(self, work: Callable[[], object]) -> Cost:
        """Return what it takes the tree to answer, as the caller measures it."""
        cpu, wall = self.cpu_s(), time.perf_counter()
        work()
        wall_s = time.perf_counter() - wall
        return Cost(self.cpu_s() - cpu, wall_s)

    def cpu_s(self) -> float:
        """All processes' own seconds, and those of children that ended and were waited for.

        AssertionError if one has ended since the last time, and its seconds are nowhere.
        """
        now = self._ticks()
        if _missing(self._known, now):  # one that ends meanwhile may be in neither place
            time.sleep(0.2)
            now = self._ticks()
        missing = _missing(self._known, now)
        assert not missing, f"{missing} ticks are lost: a process ended, and none waited for it"
        self._known = now
        return sum(ticks.own + ticks.children for ticks in now.values()) / os.sysconf("SC_CLK_TCK")

    def _ticks(self) -> dict[int, _Ticks]:
        stats = _process_stats()
        return {pid: _ticks_of(stats[pid]) for pid in self._members(stats)}

    def peak_memory_mb(self, command: str) -> float:
        """The most that one of the processes with these words in its command line ever held."""
        peaks = [0.0]
        for pid in self._members(_process_stats()):
            try:
                if command in Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "):
                    peaks.append(peak_memory_mb(pid))
            except (OSError, RuntimeError):
                continue  # it has just ended
        return max(peaks)

    def _members(self, stats: Mapping[int, list[str]]) -> set[int]:
        members = {self._root}
        while found := {p for p, s in stats.items() if int(s[1]) in members} - members:
            members |= found
        return members


def _process_stats() -> dict[int, list[str]]:
    """Of every process what follows its name: its state, its parent, ... (proc(5))."""
    stats: dict[int, list[str]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stats[int(folder.name)] = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
    return stats


def verdict(what: str, ratio: float, limit: float) -> bool:
    """Print one line; True when the ratio is within the limit."""
    met = ratio <= limit
    print(f"  {what}: {ratio:.2f} (at most {limit:g}) {'ok' if met else 'MISSED'}")
    return met
