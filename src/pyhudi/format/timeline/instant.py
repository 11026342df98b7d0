"""Timeline file names: one file per instant and state, all of it said by the name.

The words after the first dot form a closed set (`_WORDS`), so parsing is one table lookup and
two checks of digits. The table holds what Hudi writes and nothing else; hence every name that
parses is written back as it was. Three irregularities live in it:

- the inflight file of a commit leaves out the action: `<requested>.inflight`;
- a savepoint has no requested state;
- a table service completes under another name: compaction as commit, clustering as
  replacecommit, logcompaction as deltacommit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import NewType

from pyhudi.errors import CorruptTableError

InstantTime = NewType("InstantTime", str)  # yyyyMMddHHmmssSSS: text order is time order

_TIME_LENGTHS = (17, 14)  # milliseconds; whole seconds in tables that older releases began


def is_instant_time(text: str) -> bool:
    """True if the text has the shape of an instant time.

    It need not be a date: Hudi's synthetic times, such as 17 zeros, are none.
    """
    return len(text) in _TIME_LENGTHS and text.isascii() and text.isdigit()


def instant_time(text: str) -> InstantTime:
    """Return the text as an instant time; ValueError unless it is 17 digits, or 14."""
    if not is_instant_time(text):
        raise ValueError(f"an instant time is 17 digits, or 14, not {text!r}")
    return InstantTime(text)


class State(StrEnum):
    """How far an instant has come. The values are Hudi's; only two of them occur in names."""

    REQUESTED = "requested"
    INFLIGHT = "inflight"
    COMPLETED = "completed"


class Action(StrEnum):
    """What an instant does to the table."""

    COMMIT = "commit"
    DELTACOMMIT = "deltacommit"
    REPLACECOMMIT = "replacecommit"
    COMPACTION = "compaction"
    LOGCOMPACTION = "logcompaction"
    CLUSTERING = "clustering"
    CLEAN = "clean"
    ROLLBACK = "rollback"
    SAVEPOINT = "savepoint"
    RESTORE = "restore"
    INDEXING = "indexing"
    SCHEMACOMMIT = "schemacommit"

    @property
    def completed_as(self) -> Action:
        """The action that the completed file's name shows."""
        return _COMPLETED_AS.get(self, self)


_COMPLETED_AS = {
    Action.COMPACTION: Action.COMMIT,
    Action.LOGCOMPACTION: Action.DELTACOMMIT,
    Action.CLUSTERING: Action.REPLACECOMMIT,
}


def _words(action: Action, state: State) -> str:
    if state is State.COMPLETED:
        return action.value
    if action is Action.COMMIT and state is State.INFLIGHT:
        return state.value
    return f"{action.value}.{state.value}"


def _exists(action: Action, state: State) -> bool:
    if state is State.COMPLETED:
        return action.completed_as is action
    return (action, state) != (Action.SAVEPOINT, State.REQUESTED)


_WORDS = {
    _words(action, state): (action, state)
    for action in Action
    for state in State
    if _exists(action, state)
}


_UNFINISHED = re.compile(r"\.[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


def is_timeline_file(name: str) -> bool:
    """True if the name is an instant's, or that of a file which is about to become one.

    On file systems that rename, Hudi first writes a file beside its name, with a UUID behind it. It
    is there for a moment, or for good if that writer died; the instant is not.

    >>> is_timeline_file("20260101000000000.clean.requested"), is_timeline_file("history")
    (True, False)
    >>> is_timeline_file("20260101000000000.clean.requested.a3bb189e-8bf9-4888-9912-ace4e6543002")
    False
    """
    return name[:1].isdigit() and _UNFINISHED.search(name) is None


@dataclass(frozen=True, slots=True)
class Instant:
    """An action on the table, in the state which one timeline file name records."""

    requested: InstantTime
    action: Action
    state: State
    completed: InstantTime | None = None  # set exactly when the state is COMPLETED

    def __post_init__(self) -> None:
        assert (self.completed is not None) == (self.state is State.COMPLETED)

    @staticmethod
    @lru_cache(maxsize=4096)  # a timeline is listed again and again, and most names are the same
    def parse(file_name: str) -> Instant:
        """Parse the name of a timeline file, and refuse any other.

        The loader skips what Hudi itself leaves there (folders, .crc files).
        """
        times, _, words = file_name.partition(".")
        found = _WORDS.get(words)
        if found is not None:
            action, state = found
            if state is State.COMPLETED:
                requested, _, completed = times.partition("_")
                if is_instant_time(requested) and is_instant_time(completed):
                    return Instant(InstantTime(requested), action, state, InstantTime(completed))
            elif is_instant_time(times):
                return Instant(InstantTime(times), action, state)
        raise CorruptTableError(
            f"{file_name!r} is not a timeline file name",
            why="expected <requested>.<action>.<state> or <requested>_<completed>.<action>",
            next_step="Move the file out of .hoodie/timeline if no writer of the table made it; a"
            " Hudi newer than 1.2 may have",
        )

    def in_state(self, state: State) -> Instant:
        """Return the instant in one of its pending states, each of which has a file name.

        >>> done = Instant.parse("20260101000000000_20260101000000001.clean")
        >>> done.in_state(State.REQUESTED).file_name
        '20260101000000000.clean.requested'
        """
        return Instant(self.requested, self.action, state)

    @property
    def file_name(self) -> str:
        times = f"{self.requested}_{self.completed}" if self.completed else self.requested
        return f"{times}.{_words(self.action, self.state)}"
