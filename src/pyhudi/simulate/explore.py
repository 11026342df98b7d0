"""Every order of events that could make a difference, each once.

A scenario is run again and again, each time with other choices, until no order is left that could
end otherwise. Two neighbouring operations of different actors that commute give the same end in
either order, so one of the orders is enough. Paths decide what commutes: two operations conflict if
both touch an object and one of them may change it, or if one lists a folder in which the other may
change something.

The method is dynamic partial-order reduction with source sets and sleep sets (Abdulla and others,
2014). After a run, each two of its operations that conflict, and that nothing between them forced
into this order, are a race. For each race some choice before the earlier one is noted that leads to
the later one coming first, unless a noted one does already. An actor sleeps where choosing it would
repeat an order seen before, until something that conflicts with it has happened.

The scenario must do the same if its choices are the same, and actors of different processes must
meet in storage alone: what they share in Python's memory is not seen. Time passes only when no
actor can continue, so it cannot distinguish orders; where it is to pass earlier, an actor lets it
(`Process.pass_time`), and that conflicts with everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from pyhudi.simulate.choices import Pending
from pyhudi.simulate.faults import LISTINGS, READS, Fault, FixedFaults
from pyhudi.simulate.simulation import Scenario, Simulation

Conflict = Callable[[Pending, Pending], bool]

_CONTROLS = frozenset({"crash", "freeze", "thaw", "pass time"})
_OWN_AFFAIRS = frozenset({"start", "wake", "stop", "beat"})


def conflicting(one: Pending, other: Pending) -> bool:
    """True if the order of two operations of different actors can make a difference."""
    if one.process == other.process:
        return True  # they share memory
    if one.operation in _CONTROLS or other.operation in _CONTROLS:
        return True
    if one.operation in _OWN_AFFAIRS or other.operation in _OWN_AFFAIRS:
        return False
    return (_changes(one) and _sees(other, one.path)) or (
        _changes(other) and _sees(one, other.path)
    )


def _changes(pending: Pending) -> bool:
    return pending.operation not in LISTINGS and pending.operation not in READS


def _sees(pending: Pending, path: str) -> bool:
    if pending.operation not in LISTINGS:
        return pending.path == path
    within = path.startswith(f"{pending.path}/") if pending.path else True
    return within and path > pending.after


@dataclass(frozen=True, slots=True)
class Exploration:
    """How much there was to explore."""

    executions: int  # run to their end, each in another order
    cut: int  # stopped because everything that could follow had been seen
    complete: bool  # nothing is left; False if the limit was reached


class ExplorationError(Exception):
    """The scenario differed under the same choices, so its exploration means nothing."""


def explore(
    scenario: Scenario,
    *,
    conflict: Conflict = conflicting,
    preemptions_max: int | None = None,
    executions_max: int | None = None,
    faults: Iterable[Fault] = (),
    seed: int = 0,
) -> Exploration:
    """Run the scenario in every order that matters; raise what the first failing run raised.

    With `preemptions_max`, only orders in which no more than so many actors are interrupted where
    they could have continued: all of these, since the reduction is not sound under such a bound.
    `faults` strike in every run; `seed` decides random bytes alone.
    """
    search: _Search = _Reduced(conflict) if preemptions_max is None else _Bounded(preemptions_max)
    fixed = tuple(faults)
    executions = cut = 0
    while True:
        ended = True
        simulation = Simulation(seed, choices=search, faults=FixedFaults(fixed), tick_ms=0)
        try:
            scenario(simulation)
            executions += 1
        except _SeenBeforeError:
            ended = False
            cut += 1
        except Exception as error:
            error.add_note(f"after {executions} executions, with choices {search.taken}")
            raise
        finally:
            simulation.close()
        if not search.turn_back(ended=ended):
            return Exploration(executions, cut, complete=True)
        if executions_max is not None and executions >= executions_max:
            return Exploration(executions, cut, complete=False)


class _SeenBeforeError(BaseException):
    """Whatever follows here has been explored."""


@dataclass(slots=True)
class _Node:
    """A point of choice: what could happen, what was tried, what is still to be tried."""

    options: dict[str, Pending]
    chosen: str = ""
    tried: set[str] = field(default_factory=set)
    noted: list[str] = field(default_factory=list)
    asleep: dict[str, Pending] = field(default_factory=dict)
    running: str = ""  # the actor that ran last, if it could continue
    preemptions: int = 0  # before this point
    forced: int = 0  # the points, as bits, that had to come before what was chosen

    @property
    def pending(self) -> Pending:
        return self.options[self.chosen]

    @property
    def untried(self) -> str | None:
        return next((n for n in self.noted if n not in self.tried and n not in self.asleep), None)

    def choose(self, name: str) -> None:
        self.chosen = name
        self.tried.add(name)


class _Search:
    """The choices of one run after another, depth first."""

    may_pass_time = False

    def __init__(self) -> None:
        self.taken: list[int] = []
        self._nodes: list[_Node] = []
        self._barriers: set[int] = set()
        self._fresh = 0  # the first point of this run that no earlier run shared

    def pick(self, options: Sequence[Pending]) -> int:
        depth = len(self.taken)
        if depth == len(self._nodes):
            node = _Node({option.actor: option for option in options})
            node.choose(self._first_choice(node))
            self._nodes.append(node)
        node = self._nodes[depth]
        if tuple(node.options.values()) != tuple(options):
            raise ExplorationError(
                f"at choice {depth} there were {list(options)}; "
                f"in an earlier run there were {list(node.options.values())}"
            )
        self.taken.append(list(node.options).index(node.chosen))
        return self.taken[-1]

    def barrier(self) -> None:
        self._barriers.add(len(self.taken))

    def turn_back(self, *, ended: bool) -> bool:
        """Prepare the next run; False if there is none. `ended`: the last one was not cut."""
        self._learn(ended)
        while self._nodes:
            node = self._nodes[-1]
            if (name := node.untried) is not None:
                node.choose(name)
                self._fresh = len(self._nodes) - 1
                self.taken = []
                self._barriers = set()
                return True
            self._nodes.pop()
        return False

    def _first_choice(self, node: _Node) -> str:
        raise NotImplementedError

    def _learn(self, ended: bool) -> None:
        """Note what the last run showed to be worth trying."""


class _Bounded(_Search):
    """Every order with at most so many preemptions."""

    def __init__(self, preemptions_max: int) -> None:
        super().__init__()
        self._most = preemptions_max

    def _first_choice(self, node: _Node) -> str:
        if self._nodes:
            before = self._nodes[-1]
            interrupted = before.running not in ("", before.chosen)
            node.preemptions = before.preemptions + interrupted
            node.running = before.chosen if before.chosen in node.options else ""
        if not node.running or node.preemptions < self._most:
            node.noted = list(node.options)
        return node.running or next(iter(node.options))


class _Reduced(_Search):
    """Dynamic partial-order reduction: source sets and sleep sets."""

    def __init__(self, conflict: Conflict) -> None:
        super().__init__()
        self._conflict = conflict
        self._known: dict[tuple[Pending, Pending], bool] = {}

    def _conflicts(self, one: Pending, other: Pending) -> bool:
        if (answer := self._known.get((one, other))) is None:
            answer = self._known[one, other] = self._conflict(one, other)
        return answer

    def _first_choice(self, node: _Node) -> str:
        if self._nodes:
            node.asleep = self._still_asleep(self._nodes[-1])
        for name in node.options:
            if name not in node.asleep:
                return name
        raise _SeenBeforeError

    def _still_asleep(self, before: _Node) -> dict[str, Pending]:
        """Return actors that would only repeat an order: asleep or tried, and unaffected by the
        choice."""
        tried = {name: before.options[name] for name in before.tried}
        return {
            name: pending
            for name, pending in (before.asleep | tried).items()
            if name != before.chosen and not self._conflicts(pending, before.pending)
        }

    def _learn(self, ended: bool) -> None:
        """Note, for every race of the last run, a choice that reverses it."""
        forced: dict[str, int] = {}  # for each actor, what came before its next point, as bits
        waiting: dict[str, Pending] = {}
        floor = 0
        for place, node in enumerate(self._nodes):
            if place in self._barriers:
                floor = (1 << place) - 1
            self._add_awakened(place, forced)
            waiting.update(node.options)
            if place >= self._fresh:
                before = floor | forced.get(node.chosen, 0)
                node.forced = self._races(place, node.pending, before)
            forced[node.chosen] = node.forced | 1 << place
            del waiting[node.chosen]
        if ended:  # what never happened, because an actor was frozen, races as well
            for name, pending in waiting.items():
                self._races(len(self._nodes), pending, floor | forced.get(name, 0))

    def _add_awakened(self, place: int, forced: dict[str, int]) -> None:
        """Order an actor after the point that enabled it: it could not continue before, and can
        now."""
        if place == 0:
            return
        before = self._nodes[place - 1]
        for name in self._nodes[place].options:
            if name not in before.options:
                forced[name] = forced.get(name, 0) | before.forced | 1 << (place - 1)

    def _races(self, place: int, pending: Pending, forced: int) -> int:
        """Note how to reverse each race that ends here; return everything that came before, as
        bits."""
        for earlier in range(place - 1, -1, -1):
            if forced >> earlier & 1:
                continue
            node = self._nodes[earlier]
            if self._conflicts(node.pending, pending):
                self._note(earlier, place, pending.actor, forced)
                forced |= node.forced | 1 << earlier
        return forced

    def _note(self, earlier: int, place: int, actor: str, forced: int) -> None:
        node = self._nodes[earlier]
        first = self._first_movers(earlier, place, actor, forced)
        if any(name in node.tried or name in node.asleep or name in node.noted for name in first):
            return
        if actor in first and actor in node.options:
            node.noted.append(actor)
            return
        able = [name for name in first if name in node.options]
        node.noted += able[:1] or list(node.options)

    def _first_movers(self, earlier: int, place: int, actor: str, forced: int) -> list[str]:
        """Return the actors that can begin what happened in between without the earlier point.

        These are the points that the earlier one did not force, and then the later one. An actor
        can begin if nothing among them had to come before its first one.
        """
        free = 0
        seen: set[str] = set()
        first = []
        for between in range(earlier + 1, place):
            node = self._nodes[between]
            if node.forced >> earlier & 1:
                continue
            if node.chosen not in seen and not node.forced & free:
                first.append(node.chosen)
            seen.add(node.chosen)
            free |= 1 << between
        if actor not in seen and not forced & free:
            first.append(actor)
        return first
