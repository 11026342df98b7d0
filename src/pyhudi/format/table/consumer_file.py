"""A registered consumer as it is stored: its name, and how far it has read the table's changes.

Cleaning retains what a consumer has not read yet. One that never comes back must not retain
everything for ever, so a consumer may say after how many hours of silence it expires.

The object is written by pyhudi and read with care: bytes that are not exactly a consumer are an
error, because ignoring them would let cleaning remove files that a consumer needs.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from pyhudi.errors import CorruptTableError, InvalidRequestError
from pyhudi.format.timeline.instant import is_instant_time

CONSUMERS_FOLDER: Final = ".hoodie/.pyhudi/consumers"
CONSUMER_BYTES_MAX: Final = 4_096
HOURS_MAX: Final = 24 * 366 * 100

_VERSION = 1
_MS_MAX = 2**53
# A name is a file name on every store, is never "." or "..", and does not hide.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,99}")
_SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class Consumer:
    """A registered reader of changes that comes back for more."""

    name: str
    since: str  # the completion time up to which it has read
    registered_ms: int  # by the clock of the machine that registered it, for people
    updated_ms: int
    expires_after_hours: int | None = None  # of silence; None retains its files for ever
    silent_ms: int = 0  # for how long it had been silent before its object was written

    def is_expired(self, silent_ms: int) -> bool:
        """True if it has been silent for too long to count."""
        hours = self.expires_after_hours
        return hours is not None and silent_ms > hours * 3_600_000


def checked_consumer_name(name: Any) -> str:
    """Return the name if a consumer may have it, else raise InvalidRequestError."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    raise InvalidRequestError(
        f"{name!r:.120} cannot be the name of a consumer",
        why="it becomes the name of a file",
        next_step="Use 1 to 100 letters, digits, '_', '.' and '-', the first a letter or digit",
    )


def checked_hours(hours: Any) -> int | None:
    """Return the hours of silence after which a consumer expires; None if it never does."""
    is_number = isinstance(hours, int) and not isinstance(hours, bool)
    if hours is None or (is_number and 1 <= hours <= HOURS_MAX):
        return hours  # type: ignore[no-any-return]
    raise InvalidRequestError(
        f"expires_after_hours={hours!r:.120} cannot be used",
        why=f"it must be a whole number from 1 to {HOURS_MAX}, or None",
        next_step="Give hours, or None for a consumer that never expires",
    )


def checked_since(since: Any) -> str:
    """Return the completion time up to which a consumer has read."""
    if isinstance(since, str) and is_instant_time(since) and len(since) == 17:
        return since
    raise InvalidRequestError(
        f"since={since!r:.120} is not a completion time",
        why="it must be 17 digits, as a read of changes gives them",
        next_step="Give the `until` of the last read of changes",
    )


def consumer_path(name: str) -> str:
    """Return where the consumer is stored.

    >>> consumer_path("orders-to-search")
    '.hoodie/.pyhudi/consumers/orders-to-search.json'
    """
    return f"{CONSUMERS_FOLDER}/{checked_consumer_name(name)}{_SUFFIX}"


def is_consumer_path(path: str) -> bool:
    """True if a consumer belongs at the path. Other files may lie beside it."""
    folder, _, file = path.rpartition("/")
    name = file.removesuffix(_SUFFIX)
    return folder == CONSUMERS_FOLDER and name != file and _NAME.fullmatch(name) is not None


def encode_consumer(consumer: Consumer) -> bytes:
    record = {
        "v": _VERSION,
        "name": consumer.name,
        "since": consumer.since,
        "registered_ms": consumer.registered_ms,
        "updated_ms": consumer.updated_ms,
        "expires_after_hours": consumer.expires_after_hours,
        "silent_ms": consumer.silent_ms,
    }
    return json.dumps(record).encode()


def decode_consumer(data: bytes, path: str) -> Consumer:
    """Return the consumer in the bytes.

    CorruptTableError unless it is one, and the one that belongs at the path.
    """
    try:
        value = json.loads(data) if len(data) <= CONSUMER_BYTES_MAX else None
    except (ValueError, RecursionError):
        value = None
    match value:
        case {
            "v": 1,
            "name": str(name),
            "since": str(since),
            "registered_ms": int(registered),
            "updated_ms": int(updated),
            "expires_after_hours": None | int() as hours,
            "silent_ms": int(silent),
        } if _makes_sense(
            name, since, (registered, updated, silent), hours
        ) and path == consumer_path(name):
            return Consumer(name, since, registered, updated, hours, silent)
    raise CorruptTableError(
        "a registered consumer cannot be read",
        why="the object is not a consumer of that name with the time up to which it has read",
        next_step="Restore the object from a copy, or release the consumer and register it again"
        " with since= the `until` of its last read of changes",
        path=path,
    )


def _makes_sense(name: str, since: str, times: tuple[int, ...], hours: int | None) -> bool:
    numbers = (*times, *([] if hours is None else [hours]))
    return (
        _NAME.fullmatch(name) is not None
        and len(since) == 17
        and is_instant_time(since)
        and not any(isinstance(number, bool) for number in numbers)
        and all(0 <= time <= _MS_MAX for time in times)
        and (hours is None or 1 <= hours <= HOURS_MAX)
    )
