"""What clients asked for and were told, and whether the answers fit together.

The order of writes is not searched for. Completion times give it, so the fold of all writes up to
a time is what any read as of that time must have seen, and checking is linear. Where two writes
overlapped and ordering values do not decide, either may have won.

Check A compares every read with the fold. Check B compares with real time: what was acknowledged
before something began comes before it. Check C follows each consumer of changes. Check D asks of
every refusal whether it was deserved.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cached_property

from pyhudi.engine.decisions import Rule
from pyhudi.simulate.evidence import Evidence, Published, Violation, group_of_path
from pyhudi.simulate.light_table import KEYS, Row, decode_rows

_INSTANT = re.compile(r"\d{17}")


class Outcome(StrEnum):
    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"  # certainly without effect
    INFO = "info"  # unknown; the final timeline decides


class Operation(StrEnum):
    WRITE = "write"
    SNAPSHOT = "snapshot"
    TRAVEL = "travel"
    CHANGES = "changes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something was asked for, or answered. Events are in true order."""

    process: str
    outcome: Outcome
    operation: Operation
    attempt: int  # the same in the question and its answer
    place: int  # how many changes the store had seen
    rows: tuple[Row, ...] = ()  # of a write; of an incremental read, those received
    is_checked: bool = False  # whether the write yields to others on the same file groups
    requested: str = ""
    completed: str = ""
    as_of: str = ""
    since: str = ""
    read: Mapping[str, str] = field(default_factory=dict)  # key → version
    error: str = ""

    def to_json(self) -> str:
        return json.dumps({key: value for key, value in asdict(self).items() if value != ""})


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question with its answer; without one if its process crashed."""

    invoke: Event
    answer: Event | None
    invoked: int  # places in the history
    answered: int | None

    @property
    def outcome(self) -> Outcome:
        return Outcome.INFO if self.answer is None else self.answer.outcome

    @property
    def requested(self) -> str:
        return self.answer.requested if self.answer else ""


class History:
    """The events of one simulation."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        #: Instants by attempt, noted when begun: a crashed writer gives no answer.
        self.begun: dict[int, str] = {}
        #: What no client should ever see, such as a table called corrupt.
        self.unexpected: list[str] = []
        self._attempts = 0

    def new_attempt(self) -> int:
        self._attempts += 1
        return self._attempts

    def record(self, event: Event) -> None:
        self.events.append(event)

    def exchanges(self, *operations: Operation) -> list[Exchange]:
        answers: dict[int, tuple[int, Event]] = {}
        for place, event in enumerate(self.events):
            if event.outcome is not Outcome.INVOKE:
                answers[event.attempt] = (place, event)
        found = []
        for place, event in enumerate(self.events):
            if event.outcome is Outcome.INVOKE and event.operation in operations:
                answered, answer = answers.get(event.attempt, (None, None))
                found.append(Exchange(event, answer, place, answered))
        return found

    @cached_property
    def writes(self) -> list[Exchange]:
        """Only to be asked for once the simulation is over."""
        return self.exchanges(Operation.WRITE)

    @cached_property
    def by_instant(self) -> dict[str, Exchange]:
        found = {}
        for exchange in self.writes:
            if requested := self.begun.get(exchange.invoke.attempt):
                found[requested] = exchange
        return found


@dataclass(frozen=True, slots=True)
class _Candidate:
    requested: str
    completed: str
    row: Row


class Fold:
    """What each key may be at a completion time."""

    def __init__(self, evidence: Evidence, history: History) -> None:
        self._by_event_time = evidence.kind.by_event_time
        self._by_key: dict[str, list[_Candidate]] = {key: [] for key in KEYS}
        for requested, write in evidence.writes.items():
            exchange = history.by_instant.get(requested)
            for row in exchange.invoke.rows if exchange else ():
                self._by_key[row.key].append(_Candidate(requested, write.completed, row))

    def winners(self, key: str, time: str) -> list[Row]:
        """The rows that may have won by then; empty if there was none."""
        rivals = [c for c in self._by_key[key] if c.completed <= time]
        if self._by_event_time:
            highest = max((c.row.ordering for c in rivals), default=0)
            rivals = [c for c in rivals if c.row.ordering == highest]
        latest_begin = max((c.requested for c in rivals), default="")
        return [c.row for c in rivals if c.completed >= latest_begin]

    def faults(self, time: str, read: Mapping[str, str]) -> Iterator[str]:
        """In what the read is not the table as of the time."""
        for key in KEYS:
            winners = self.winners(key, time)
            legal = {None if row.is_deleted else row.version for row in winners} or {None}
            if read.get(key) not in legal:
                expected = " or ".join(sorted(str(version) for version in legal))
                yield f"{key} was {read.get(key)}, not {expected}, as of {time}"
        for key in read.keys() - set(KEYS):
            yield f"{key} was never written"


def reads_equal_the_fold(evidence: Evidence, history: History) -> list[Violation]:
    """Check A."""
    fold = Fold(evidence, history)
    found = []
    for exchange in history.exchanges(Operation.SNAPSHOT, Operation.TRAVEL):
        answer = exchange.answer
        if answer is not None and answer.outcome is Outcome.OK:
            who = f"a {answer.operation} read of {answer.process}"
            found += [f"{who}: {fault}" for fault in fold.faults(answer.as_of, answer.read)]
    return [Violation("Check A", what) for what in found]


def order_is_that_of_real_time(evidence: Evidence, history: History) -> list[Violation]:
    """Check B."""
    found = []
    latest = ""  # the greatest completion time that somebody had been told
    told: dict[int, str] = {}
    for place, event in enumerate(history.events):
        told[place] = latest
        if event.operation is Operation.WRITE and event.outcome is Outcome.OK:
            latest = max(latest, event.completed)
    for exchange in history.exchanges(*Operation):
        known, answer = told[exchange.invoked], exchange.answer
        if answer is None or answer.outcome is not Outcome.OK:
            continue
        if answer.operation is Operation.SNAPSHOT and answer.as_of < known:
            found.append(f"{answer.process} read as of {answer.as_of}, after {known} was told")
        if answer.operation is Operation.WRITE and answer.requested <= known:
            found.append(f"{answer.requested} was begun after {known} was told")
    return [Violation("Check B", what) for what in found]


def consumers_receive_each_change_once(evidence: Evidence, history: History) -> list[Violation]:
    """Check C, which is I9."""
    found = []
    for exchange in history.exchanges(Operation.CHANGES):
        answer = exchange.answer
        if answer is None or answer.outcome is not Outcome.OK:
            continue
        due = [
            row
            for requested, write in evidence.writes.items()
            if answer.since < write.completed <= answer.as_of
            for row in _brought(evidence, requested)
        ]
        received = sorted(row.version + row.key for row in answer.rows)
        expected = sorted(row.version + row.key for row in due)
        if received != expected:
            span = f"({answer.since}, {answer.as_of}]"
            found.append(f"{answer.process} received {received} of {span}, not {expected}")
    return [Violation("Check C", what) for what in found]


def _brought(evidence: Evidence, requested: str) -> Iterable[Row]:
    """The rows that the write's own files have of it. A base file leaves out those that lost."""
    for path in evidence.writes[requested].paths:
        for owner, change in evidence.data_files:
            if owner == requested and change.path == path and change.data is not None:
                yield from (r for r in decode_rows(change.data) if r.requested == requested)
                break


def refusals_are_deserved(evidence: Evidence, history: History, *, pruned: bool) -> list[Violation]:
    """Check D. `pruned`: somebody removed log entries that open instants needed."""
    found = []
    for exchange in history.writes:
        answer = exchange.answer
        if answer is None or answer.outcome is not Outcome.FAIL or not answer.error:
            continue
        if why := _undeserved(evidence, answer, exchange.invoke.is_checked, pruned):
            found.append(f"{answer.requested} was refused ({answer.error}): {why}")
    return [Violation("Check D", what) for what in found]


def _undeserved(evidence: Evidence, answer: Event, is_checked: bool, pruned: bool) -> str:
    error = answer.error
    named = [time for time in _INSTANT.findall(error) if time != answer.requested]
    if error.startswith("write "):
        other = evidence.writes.get(named[0]) if named else None
        if not is_checked:
            return "it yields to nobody"
        return _no_overlap(other, answer, evidence)
    if error.startswith(Rule.ROLLED_BACK):
        plans = {plan.rollback: plan.target for plan in evidence.plans}
        return "" if named and plans.get(named[0]) == answer.requested else "nobody did"
    if error.startswith(Rule.LOG_NOT_WHOLE):
        return "" if pruned else "nobody pruned it"
    return "" if error.startswith(Rule.NOT_INFLIGHT) else "there is no such rule"


def _no_overlap(other: Published | None, answer: Event, evidence: Evidence) -> str:
    if other is None:
        return "the other write did not complete"
    if other.completed <= answer.requested:
        return f"{other.requested} had completed before it began"
    mine = {
        group_of_path(change.path)
        for owner, change in evidence.data_files
        if owner == answer.requested
    }
    return "" if mine & other.groups else f"{other.requested} wrote other file groups"
