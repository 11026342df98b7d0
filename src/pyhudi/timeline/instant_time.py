"""Times as a user writes them → instant times, which are digits in the timeline's own zone.

A table's timeline runs in UTC or, in tables that Hudi made by default, in the zone of the machine
that wrote it. Digits are taken as they are. A date is its first moment, and a date or a time that
names no zone is in UTC, as in predicates: the same call reads the same rows on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo

from pyhudi.errors import CorruptTableError, InvalidRequestError

_FORMAT = "%Y%m%d%H%M%S"
#: Seconds stand for their last millisecond: "as of 12:00:00" includes that second, as in Hudi.
_LAST_MILLISECOND = "999"


@dataclass(frozen=True, slots=True)
class RequestedTime:
    """A time that is to be compared with requested times, as Hudi's own time travel does."""

    time: str | date | datetime


def timeline_time(time: str | date | datetime, zone: tzinfo | None) -> str:
    """Return the time as seventeen digits in `zone`, the timeline's; None is this machine's own.

    >>> from datetime import UTC
    >>> timeline_time("2026-01-02T03:04:05.678+00:00", UTC)
    '20260102030405678'
    >>> timeline_time("20260102030405", UTC)
    '20260102030405999'
    >>> timeline_time("2026-01-02", UTC)
    '20260102000000000'
    """
    given = time
    if isinstance(time, str):
        digits = time.strip()
        if digits.isascii() and digits.isdigit():
            return _from_digits(digits)
        time = _from_iso(digits)
    if isinstance(time, date) and not isinstance(time, datetime):
        time = datetime(time.year, time.month, time.day)
    if not isinstance(time, datetime):
        raise _unusable(given, "it is neither text nor a date or datetime")
    try:
        there = (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(zone)
    except (OverflowError, ValueError, OSError):
        raise _unusable(given, "in the timeline's zone it is before or after all years") from None
    return there.strftime(_FORMAT).rjust(14, "0") + f"{there.microsecond // 1000:03d}"


def utc_moment(time: str, zone: tzinfo | None) -> datetime | None:
    """Return the moment of a timeline's time; None for one that is not a date and time of day.

    >>> utc_moment("20260102030405678", UTC)
    datetime.datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=datetime.timezone.utc)
    """
    try:
        there = _moment(time)
        return (there if zone is None else there.replace(tzinfo=zone)).astimezone(UTC)
    except (CorruptTableError, OverflowError, ValueError, OSError):
        return None


def clock_time(now_ms: int, zone: tzinfo | None) -> str:
    """Return a clock's reading as seventeen digits in the timeline's zone.

    >>> clock_time(1_767_323_045_678, UTC)
    '20260102030405678'
    """
    moment = datetime.fromtimestamp(now_ms // 1000, UTC).astimezone(zone)
    return f"{moment:{_FORMAT}}{now_ms % 1000:03d}"


def following_time(time: str) -> str:
    """Return the time one millisecond later, by the calendar.

    Times count in digits, not in seconds since 1970.

    >>> following_time("20261231235959999")
    '20270101000000000'
    """
    return shifted_time(time, 1)


def shifted_time(time: str, ms: int) -> str:
    """Return the time that many milliseconds later, or earlier if negative.

    >>> shifted_time("20270101000000000", -60_000)
    '20261231235900000'
    """
    if time[:4] == "0000":  # the synthetic times that Hudi's metadata tables begin with
        return f"{max(0, int(time) + ms):017d}"
    try:
        later = _moment(time.ljust(17, "9")) + timedelta(milliseconds=ms)
    except OverflowError:
        raise _impossible(time, "no time of the calendar follows it") from None
    return f"{later:{_FORMAT}}{later.microsecond // 1000:03d}"


def milliseconds_between(earlier: str, later: str) -> int:
    """Return the difference by the calendar; negative if the first time is the later one.

    >>> milliseconds_between("20261231235959999", "20270101000001000")
    1001
    """
    return (_moment(later) - _moment(earlier)) // timedelta(milliseconds=1)


def _moment(time: str) -> datetime:
    try:
        seconds = datetime.strptime(time[:14], _FORMAT)
    except ValueError:
        raise _impossible(time, "it is not a date and a time of day") from None
    return seconds + timedelta(milliseconds=int(time[14:17] or 0))


def _impossible(time: str, why: str) -> CorruptTableError:
    """Return the error for a time after which no other can come.

    A table with such a time on its timeline can be read, since times compare as text, but nothing
    can be written behind it.
    """
    return CorruptTableError(
        f"the table has the time {time}, which cannot be",
        why=why,
        next_step="Find out which process made the files of the timeline whose names have it, and"
        " move them out of the table if it was no writer of the table",
    )


def _from_digits(digits: str) -> str:
    if len(digits) == 17:
        return digits
    if len(digits) == 14:
        return digits + _LAST_MILLISECOND
    raise _unusable(digits, f"an instant time has 17 digits, or 14, and this has {len(digits)}")


def _from_iso(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise _unusable(text, "it is neither digits nor an ISO date and time") from None


def _unusable(time: object, why: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{time!r} is not a time of a table",
        why=why,
        next_step="Give a date, a datetime, ISO text of one of them, or 17 digits",
    )
