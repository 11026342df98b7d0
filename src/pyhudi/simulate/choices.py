"""Which actor runs next: the one source of chance in the order of events.

At every step the scheduler offers what could happen next, the actor that ran last first, and a
`Choices` picks one. So 0 means "continue as long as possible", a list of numbers is a whole
schedule, and a schedule is replayed by passing its list.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Pending(NamedTuple):
    """What an actor does when it is next chosen."""

    actor: str
    process: str
    operation: str
    path: str = ""
    after: str = ""  # where a listing begins


#: The option of letting time pass until an actor wakes, although others could continue.
TIME_PASSES = Pending("clock", "clock", "pass")


class Choices(Protocol):
    #: Whether `TIME_PASSES` is ever among the options; it is then the last.
    may_pass_time: bool

    def pick(self, options: Sequence[Pending]) -> int: ...

    def barrier(self) -> None:
        """Order everything done so far before everything that follows, in any order of choices."""


def random_stream(seed: int | str, purpose: str) -> random.Random:
    """Return a stream for one purpose, so that more draws of one do not change another."""
    return random.Random(f"{seed} {purpose}")


def drawn(chance: random.Random, count: int) -> int:
    """Return a number below the count. Only `random()` is guaranteed to be the same in all
    Pythons."""
    return int(chance.random() * count)


class SeededChoices:
    """Chance from a seed, in one of several manners, because no single one finds every bug.

    Half of the seeds choose at random, more or less inclined to stay with the running actor. The
    others give each actor a rank, let the highest run, and sometimes make it the lowest: few
    switches, but long ones, in which a slow actor falls far behind.
    """

    def __init__(self, seed: int, *, may_pass_time: bool = True) -> None:
        """`may_pass_time` lets time pass although an actor could continue, which is late by as
        much."""
        self.taken: list[int] = []
        self._chance = random_stream(seed, "schedule")
        self._ranked = self._chance.random() < 0.5
        self._stay = (0.0, 0.5, 0.8, 0.95)[drawn(self._chance, 4)]
        self._pass = (0.0, 0.002, 0.02, 0.1)[drawn(self._chance, 4)]
        self.may_pass_time = may_pass_time and self._pass > 0
        self._demote = (0.02, 0.05, 0.2)[drawn(self._chance, 3)]
        self._ranks: dict[str, float] = {}
        self._lowest = 0

    def pick(self, options: Sequence[Pending]) -> int:
        count = len(options)
        chosen = 0
        if options[-1] is TIME_PASSES:
            count -= 1
        if count < len(options) and self._chance.random() < self._pass:
            chosen = count
        elif count > 1:
            chosen = self._highest(options[:count]) if self._ranked else self._walked(count)
        self.taken.append(chosen)
        return chosen

    def barrier(self) -> None:
        """Do nothing: chance does not look back."""

    def _walked(self, count: int) -> int:
        return 0 if self._chance.random() < self._stay else drawn(self._chance, count)

    def _highest(self, options: Sequence[Pending]) -> int:
        for option in options:
            if option.actor not in self._ranks:
                self._ranks[option.actor] = self._chance.random()
        ranks = [self._ranks[option.actor] for option in options]
        highest = ranks.index(max(ranks))
        if self._chance.random() < self._demote:
            self._lowest -= 1
            self._ranks[options[highest].actor] = self._lowest
        return highest


class ReplayedChoices:
    """A schedule of given numbers. After the last one, and for one out of range, 0."""

    may_pass_time = True

    def __init__(self, given: Sequence[int]) -> None:
        self.taken: list[int] = []
        self._given = given

    def pick(self, options: Sequence[Pending]) -> int:
        place = len(self.taken)
        chosen = self._given[place] if place < len(self._given) else 0
        self.taken.append(chosen if chosen < len(options) else 0)
        return self.taken[-1]

    def barrier(self) -> None:
        """Do nothing: a list of choices needs no order."""
