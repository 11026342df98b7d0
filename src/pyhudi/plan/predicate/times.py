"""Dates and timestamps as they are written in a predicate.

Stricter than ISO 8601 and than Spark on purpose: only forms that all of them read alike, so that
`2026-1-5`, week dates or a seventh digit of a second are refused and never guessed at.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone

DATE_FORM = "'YYYY-MM-DD'"
TIMESTAMP_FORM = "'YYYY-MM-DD HH:MM:SS.ffffff+HH:MM'"

_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIMESTAMP = re.compile(
    rf"(?P<date>{_DATE.pattern})"
    r"(?:[ T](?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})"
    r"(?::(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]{1,6}))?)?"
    r"(?P<zone>Z|[+-][0-9]{2}:[0-9]{2})?)?"
)


def date_in(text: str) -> date | None:
    """Return the date in the text; None if it holds none."""
    match = _DATE.fullmatch(text)
    try:
        return date(*map(int, match.groups())) if match else None
    except ValueError:
        return None  # no such day


def timestamp_in(text: str) -> datetime | None:
    """Return the timestamp in the text, with the zone it names if any; None if it holds none.

    >>> timestamp_in("2026-01-05 10:30:00.5Z")
    datetime.datetime(2026, 1, 5, 10, 30, 0, 500000, tzinfo=datetime.timezone.utc)
    >>> timestamp_in("2026-01-05")
    datetime.datetime(2026, 1, 5, 0, 0)
    """
    match = _TIMESTAMP.fullmatch(text)
    day = date_in(match["date"]) if match else None
    if match is None or day is None:
        return None
    hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
    micros = int((match["fraction"] or "").ljust(6, "0"))
    try:
        zone = _zone(match["zone"])
        return datetime(day.year, day.month, day.day, hour, minute, second, micros, zone)
    except ValueError:
        return None  # no such time of day, or no such zone


def _zone(text: str | None) -> timezone | None:
    if text is None:
        return None
    if text == "Z":
        return UTC
    hours, minutes = int(text[1:3]), int(text[4:6])
    if hours > 18 or minutes > 59:  # as far as Spark goes
        raise ValueError(text)
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if text[0] == "-" else offset)
