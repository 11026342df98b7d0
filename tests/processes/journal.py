"""A writer's journal: one JSON line for each event, on disk before the writer goes on.

A line that says `ok` is the writer's word to its user: what it acknowledges must never be lost.
The journal outlives the process; the next one of the same writer goes on where it ends. A kill may
cut the last line short, and then it counts as not written.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from processes.workload import Batch


class Event(StrEnum):
    START = "start"
    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"  # refused: nothing of it may ever be visible
    UNKNOWN = "unknown"  # the timeline decides
    READ = "read"
    SURPRISE = "surprise"  # an error that no user should see
    STOP = "stop"


class Journal:
    """The journal of one writer, open for more."""

    def __init__(self, path: Path) -> None:
        whole = _whole_lines(path)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
        os.ftruncate(self._file, len(whole))
        self._past = _events(whole)

    @property
    def lives(self) -> int:
        """How many processes wrote it before this one."""
        return len([event for event in self._past if event["event"] == Event.START])

    def note(self, event: Event, **fields: Any) -> None:
        line = json.dumps({"event": event, "at": time.monotonic_ns(), **fields})
        os.write(self._file, line.encode() + b"\n")
        os.fsync(self._file)

    def next_number(self) -> int:
        return len([event for event in self._past if event["event"] == Event.INVOKE]) + 1

    def undecided(self) -> Batch | None:
        """The batch that the process before this one had begun, and never heard of again."""
        done = (Event.OK, Event.FAIL)
        told = [e for e in self._past if e["event"] in (Event.INVOKE, *done)]
        if not told or told[-1]["event"] in done:
            return None
        return Batch.of_json(told[-1]["batch"])


def _whole_lines(path: Path) -> bytes:
    data = path.read_bytes() if path.exists() else b""
    return data[: data.rfind(b"\n") + 1]


def _events(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


@dataclass(slots=True)
class Write:
    """A batch, from its first call to the last answer, of however many processes."""

    batch: Batch
    writer: str
    invoked_at: int
    invocations: int = 1
    outcome: Event = Event.UNKNOWN  # or OK, or FAIL
    answered_at: int | None = None
    instant: str | None = None
    completed: str | None = None
    retries: int = 0


@dataclass(frozen=True, slots=True)
class Read:
    """What a writer saw as of one of its own completion times."""

    writer: str
    as_of: str
    versions: dict[str, str]


@dataclass(slots=True)
class History:
    """What all writers of one table noted."""

    writes: dict[str, Write] = field(default_factory=dict)  # by version
    reads: list[Read] = field(default_factory=list)
    surprises: list[str] = field(default_factory=list)
    unknown: int = 0  # times that a writer was told so

    def with_outcome(self, outcome: Event) -> list[Write]:
        return [write for write in self.writes.values() if write.outcome is outcome]

    @property
    def retries(self) -> int:
        return sum(write.retries for write in self.writes.values())

    @property
    def conflicts(self) -> int:
        """Times that a write met a conflict, as far as its user was told."""
        return self.retries + len(self.with_outcome(Event.FAIL))


def load_history(paths: Iterable[Path]) -> History:
    """The journals of the writers of one table, which may still be at work."""
    history = History()
    for path in paths:
        for event in _events(_whole_lines(path)):
            _note(history, path.stem, event)
    return history


def _note(history: History, writer: str, event: dict[str, Any]) -> None:
    match Event(event["event"]):
        case Event.INVOKE:
            batch = Batch.of_json(event["batch"])
            if (known := history.writes.get(batch.version)) is not None:
                known.invocations += 1
            else:
                history.writes[batch.version] = Write(batch, writer, event["at"])
        case Event.OK:
            write = history.writes[event["version"]]
            write.outcome, write.answered_at = Event.OK, event["at"]
            write.instant, write.completed = event["instant"], event["completed"]
            write.retries = event["retries"]
        case Event.FAIL:
            write = history.writes[event["version"]]
            write.outcome, write.answered_at = Event.FAIL, event["at"]
        case Event.UNKNOWN:
            history.unknown += 1
        case Event.READ:
            history.reads.append(Read(writer, event["as_of"], event["versions"]))
        case Event.SURPRISE:
            history.surprises.append(f"{writer}: {event['error']}")
