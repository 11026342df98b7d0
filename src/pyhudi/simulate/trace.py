"""What happened in a simulation, step by step, and a digest to compare two runs by."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable
from typing import NamedTuple

from pyhudi.storage.protocol import Folder, ObjectStat


class Event(NamedTuple):
    """One event: when, which actor, what, and how it ended."""

    step: int
    at_ms: int  # true time, whatever the actor's own clock shows
    actor: str
    operation: str
    path: str
    outcome: str

    def __str__(self) -> str:
        what = f"{self.operation} {self.path}".strip()
        return f"{self.step:>6} {self.at_ms} {self.actor:<12} {what} -> {self.outcome}"


class Trace:
    """The events of a simulation, in order."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __len__(self) -> int:
        return len(self.events)

    def digest(self) -> str:
        """Return a digest that is equal exactly when the runs were: contents count, by checksum."""
        return hashlib.sha256(self.text().encode()).hexdigest()

    def text(self, last: int | None = None) -> str:
        """Return one line for each event, or for the last so many."""
        events = self.events if last is None else self.events[-last:]
        return "\n".join(map(str, events))


def outcome_text(answer: object) -> str:
    """Return an answer of storage, short. Etags are left out: they depend on the order of
    writes."""
    match answer:
        case None | bool() | int():
            return str(answer).lower()
        case bytes():
            return content_text(answer)
        case ObjectStat():
            return f"{answer.size} bytes"
        case Folder():
            return _found_text([*answer.objects, *answer.folders])
        case [*found]:
            return _found_text(found)
    return "ok"


def content_text(data: bytes) -> str:
    return f"{len(data)} bytes {zlib.crc32(data):08x}"


def _found_text(found: Iterable[object]) -> str:
    names = "\n".join(map(_name_text, found))
    return f"{names.count(chr(10)) + bool(names)} found {zlib.crc32(names.encode()):08x}"


def _name_text(found: object) -> str:
    match found:
        case ObjectStat():
            return f"{found.path} {found.size}"
        case bytes():
            return content_text(found)
    return str(found)
