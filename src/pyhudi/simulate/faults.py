"""What fails, when, and in which process.

A fault strikes one storage operation of one process, found by counting. A plan answers, operation
by operation, whether one strikes: `FixedFaults` from a list, `DrawnFaults` by chance from a seed. A
plan also records what did strike, so that a drawn run can be replayed, and made smaller, as a fixed
one.

All faults but two stay within what `Storage` promises. Stale listings and writes that leave a part
behind break a promise that the commit protocol rests on; they are off by default.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from pyhudi.simulate.choices import drawn, random_stream

WRITES = frozenset({"create", "create_from", "replace", "write"})
CHANGES = WRITES | {"delete"}
LISTINGS = frozenset({"list", "list_folder"})
READS = frozenset({"read", "read_ranges", "stat", "open"})


class Effect(StrEnum):
    """What a fault does to an operation, or to its process at that moment."""

    CRASH_BEFORE = "crash before"  # the process ends and the operation never happens
    CRASH_AFTER = "crash after"  # it happens, and then the process ends
    CRASH_DURING = "crash during"  # the process ends while the change is in transit; it arrives
    FREEZE = "freeze"  # the whole process rests for `ms`, then continues with the operation
    DELAY = "delay"  # the operation alone takes `ms`
    FAIL = "fail"  # an error, and nothing happened
    LOSE_REPLY = "lose reply"  # an error, but it happened
    LATE = "late"  # an error, and it happens later, at any moment after `ms`
    REPEAT = "repeat"  # the client sends it twice, and gets the answer to the second
    TEAR = "tear"  # an error in the middle of a write
    FULL = "full"  # for `ms`, every write of the process fails
    OUTAGE = "outage"  # for `ms`, every operation of the process fails
    CLOCK_STEP = "clock step"  # the process's wall clock jumps by `ms`, which may be negative
    SPLIT = "split"  # a listing in two pages, and others act between them
    STALE = "stale"  # a listing that misses the newest change


_STRIKES = {
    Effect.CRASH_DURING: CHANGES,
    Effect.LOSE_REPLY: CHANGES,
    Effect.LATE: CHANGES,
    Effect.REPEAT: CHANGES,
    Effect.TEAR: WRITES,
    Effect.FULL: WRITES,
    Effect.SPLIT: LISTINGS,
    Effect.STALE: LISTINGS,
}
_ANY = CHANGES | LISTINGS | READS


@dataclass(frozen=True, slots=True)
class Fault:
    """An effect on the nth storage operation of a process, counted from 1."""

    process: str
    nth: int
    effect: Effect
    ms: int = 0

    def fits(self, operation: str) -> bool:
        return operation in _STRIKES.get(self.effect, _ANY)


class FaultPlan(Protocol):
    #: True if a torn write leaves the half that was written.
    keeps_torn: bool
    #: True if a listing may miss the newest change; the store then has to remember it.
    may_be_stale: bool
    #: What has struck so far, and the clock skews so far.
    struck: list[Fault]
    skews_ms: dict[str, int]

    def fault_at(self, process: str, nth: int, operation: str) -> Fault | None: ...

    def skew_ms(self, process: str) -> int:
        """Return how far the process's clock is off."""


class FixedFaults:
    """Exactly these faults. One that does not fit its operation does nothing."""

    def __init__(
        self,
        faults: Iterable[Fault] = (),
        *,
        skews_ms: Mapping[str, int] | None = None,
        keeps_torn: bool = False,
    ) -> None:
        self.keeps_torn = keeps_torn
        self.struck: list[Fault] = []
        self.skews_ms = dict(skews_ms or {})
        self._faults = {(fault.process, fault.nth): fault for fault in faults}
        self.may_be_stale = any(f.effect is Effect.STALE for f in self._faults.values())

    def fault_at(self, process: str, nth: int, operation: str) -> Fault | None:
        fault = self._faults.get((process, nth))
        if fault is None or not fault.fits(operation):
            return None
        self.struck.append(fault)
        return fault

    def skew_ms(self, process: str) -> int:
        return self.skews_ms.get(process, 0)


def default_rates() -> dict[Effect, float]:
    """Return the rates of everything that the promises of storage allow."""
    usual = dict.fromkeys(Effect, 0.01)
    rare = dict.fromkeys((Effect.FULL, Effect.OUTAGE, Effect.CLOCK_STEP, Effect.TEAR), 0.005)
    return usual | rare | {Effect.STALE: 0.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRates:
    """How often each fault strikes an operation it can strike, and how hard."""

    rates: Mapping[Effect, float] = field(default_factory=default_rates)
    crashes_max: int = 2  # in a whole simulation
    freezes_max: int = 3
    #: A freeze or delay: from a hiccup to well past any heartbeat and lease.
    freeze_ms: tuple[int, ...] = (1, 5_000, 65_000, 130_000, 600_000)
    late_ms: tuple[int, ...] = (0, 0, 100, 5_000, 70_000)
    outage_ms: tuple[int, ...] = (10, 1_000, 30_000)
    skew_ms_max: int = 600_000
    keeps_torn: bool = False
    #: Each seed leaves about half of the effects out: what is always there hides what is rare.
    swarm: bool = True


def rates_with(changes: Mapping[Effect, float]) -> FaultRates:
    """Return the default rates, with others for some effects."""
    return FaultRates(rates={**default_rates(), **changes})


def only(rates: Mapping[Effect, float]) -> FaultRates:
    """Return these effects at these rates for every seed, and no others."""
    return FaultRates(rates=rates, swarm=False)


class DrawnFaults:
    """Faults by chance. Each process has its own, so a changed order does not change them."""

    def __init__(self, seed: int, rates: FaultRates | None = None) -> None:
        self._rates = rates or FaultRates()
        self.keeps_torn = self._rates.keeps_torn
        self.struck: list[Fault] = []
        self.skews_ms: dict[str, int] = {}
        self._seed = seed
        self._chances: dict[str, random.Random] = {}
        self._table: dict[str, list[tuple[float, Effect]]] = {}
        chance = random_stream(seed, "faults")
        self._clocks = drawn(chance, 3)
        chosen = {
            effect: rate
            for effect, rate in self._rates.rates.items()
            if (chance.random() < 0.5 or not self._rates.swarm) and rate > 0
        }
        self.may_be_stale = Effect.STALE in chosen
        for operation in sorted(_ANY):
            self._table[operation] = _cumulated(operation, chosen)

    def fault_at(self, process: str, nth: int, operation: str) -> Fault | None:
        chance = self._chance(process)
        dice = chance.random()
        for bound, effect in self._table[operation]:
            if dice < bound:
                return self._allowed(Fault(process, nth, effect, self._ms(effect, chance)))
        return None

    def skew_ms(self, process: str) -> int:
        """Return a skew: all clocks equal, or a few milliseconds apart, or far apart, by the
        seed."""
        chance = random_stream(self._seed, f"clock of {process}")
        most = min((0, 5, self._rates.skew_ms_max)[self._clocks], self._rates.skew_ms_max)
        self.skews_ms[process] = drawn(chance, 2 * most + 1) - most
        return self.skews_ms[process]

    def _allowed(self, fault: Fault) -> Fault | None:
        before = [strike.effect for strike in self.struck]
        if fault.effect in _CRASHES:
            most = self._rates.crashes_max
            spent = sum(effect in _CRASHES for effect in before)
        elif fault.effect is Effect.FREEZE:
            most, spent = self._rates.freezes_max, before.count(Effect.FREEZE)
        else:
            most, spent = 1, 0
        if spent >= most:
            return None
        self.struck.append(fault)
        return fault

    def _ms(self, effect: Effect, chance: random.Random) -> int:
        match effect:
            case Effect.FREEZE | Effect.DELAY:
                return _one_of(self._rates.freeze_ms, chance)
            case Effect.LATE | Effect.CRASH_DURING:
                return _one_of(self._rates.late_ms, chance)
            case Effect.FULL | Effect.OUTAGE:
                return _one_of(self._rates.outage_ms, chance)
            case Effect.CLOCK_STEP:
                most = self._rates.skew_ms_max
                return drawn(chance, 2 * most + 1) - most
        return 0

    def _chance(self, process: str) -> random.Random:
        if process not in self._chances:
            self._chances[process] = random_stream(self._seed, f"faults of {process}")
        return self._chances[process]


_CRASHES = frozenset({Effect.CRASH_BEFORE, Effect.CRASH_AFTER, Effect.CRASH_DURING})


def _cumulated(operation: str, rates: Mapping[Effect, float]) -> list[tuple[float, Effect]]:
    """Return the effects that can strike the operation, each with the upper bound of its share."""
    bounds = []
    bound = 0.0
    for effect in Effect:  # in the order of their definition, not that of a mapping
        if effect in rates and operation in _STRIKES.get(effect, _ANY):
            bound += rates[effect]
            bounds.append((bound, effect))
    return bounds


def _one_of(values: tuple[int, ...], chance: random.Random) -> int:
    return values[drawn(chance, len(values))]
