"""What clients requested and which answers they got, in true order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.simulate.table.rows import Numbers, Row


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
    RESTART = "restart"  # a consumer continues from a snapshot, since changes were cleaned


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A request or an answer. Events are in true order."""

    process: str
    outcome: Outcome
    operation: Operation
    attempt: int  # the same in the request and its answer
    place: int  # how many changes the store had seen
    rows: tuple[Row, ...] = ()  # of a write; of an incremental read, those received
    is_checked: bool = False  # the write yields to others on the same file groups
    reads_nothing: bool = False  # it read nothing of the table
    replaces: tuple[str, ...] = ()  # the partitions whose rows it replaces
    changes: tuple[str, ...] = ()  # the columns that it adds or widens
    owner: str | None = None  # the owner of the columns that it writes
    priority: int = 0
    asked: int = 0  # like `place`, when the writer proposed its completion
    requested: str = ""
    completed: str = ""
    as_of: str = ""
    since: str = ""
    read: Mapping[str, str] = field(default_factory=dict)  # key → what was shown of it
    error: str = ""
    missing: str = ""  # the file that was gone
    facts: Mapping[str, Any] = field(default_factory=dict)  # of the error

    def to_json(self) -> str:
        return json.dumps({key: value for key, value in asdict(self).items() if value != ""})


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request with its answer; without one if its process crashed."""

    invoke: Event
    answer: Event | None
    invoked: int  # positions in the history
    answered: int | None

    @property
    def outcome(self) -> Outcome:
        return Outcome.INFO if self.answer is None else self.answer.outcome

    @property
    def requested(self) -> str:
        return self.answer.requested if self.answer else ""


@dataclass(slots=True)
class ProposedChange:
    """Changes of the schema that a process proposed, and when it had its answer."""

    added: frozenset[str]
    widened: frozenset[str]
    dropped: frozenset[str]
    place: int  # how many changes the store had seen
    answered: int | None = None  # likewise; None if it never had one
    is_done: bool = False  # the answer was that the change is in force


class Doomed(NamedTuple):
    """A running write was found to be certain to lose, at this moment."""

    requested: str
    place: int  # how many changes the store had seen
    process: str
    by: str  # the instant in its way
    was_rolled_back: bool
    # Where it has files, or would have them at its end.
    bases: frozenset[FileGroupId]
    logs: frozenset[FileGroupId]
    references: frozenset[FileGroupId]  # logs that refer to rows in others
    new_keys: frozenset[FileGroupId]  # where it took keys for new


class Look(NamedTuple):
    """A running write looked for rivals that are ahead of it and have announced files."""

    requested: str
    process: str
    strategy: str
    by_task: bool  # before the marker of one file
    is_checked: bool  # the rules compare its logs, too
    since: int  # how many changes the store had seen when it began
    until: int  # and when it ended
    at_ms: int  # true time at its end
    # The file groups that it looked at.
    bases: frozenset[FileGroupId]
    logs: frozenset[FileGroupId]
    yields_to: str  # the instant; empty if it yields to none
    stops: bool


class LostFile(NamedTuple):
    """A write could not read a file that it began with."""

    requested: str
    path: str
    place: int  # how many changes the store had seen


class History:
    """The events of one simulation."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        #: Instants by attempt, recorded at their begin: a crashed writer gives no answer.
        self.begun: dict[int, str] = {}
        #: Errors that no client should ever see, such as a corrupt table.
        self.unexpected: list[str] = []
        #: Consumers that polled once more at the end.
        self.consumed_to_the_end: list[str] = []
        #: Consumers that registered successfully, so that their files stay, and when.
        self.registered: dict[str, int] = {}
        #: Files that were gone when a write needed them.
        self.lost: list[LostFile] = []
        #: What looks of running writes found.
        self.doomed: list[Doomed] = []
        #: What they looked for besides.
        self.looks: list[Look] = []
        #: Key and version of a row → its values in columns that were added.
        self.numbers: dict[tuple[str, str], Numbers] = {}
        #: Changes of the schema that processes proposed, in true order.
        self.proposed: list[ProposedChange] = []
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
        """Pairs of request and answer. Use it only when the simulation is over."""
        return self.exchanges(Operation.WRITE)

    @cached_property
    def by_instant(self) -> dict[str, Exchange]:
        found = {}
        for exchange in self.writes:
            if requested := self.begun.get(exchange.invoke.attempt):
                found[requested] = exchange
        return found
