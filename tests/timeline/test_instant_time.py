from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Any

import pytest

from pyhudi.errors import CorruptTableError, InvalidRequestError
from pyhudi.timeline.instant_time import (
    following_time,
    milliseconds_between,
    timeline_time,
    utc_moment,
)

EAST = timezone(timedelta(hours=2))

TIMES: list[tuple[Any, tzinfo, str]] = [
    ("20260102030405678", UTC, "20260102030405678"),
    ("20260102030405", UTC, "20260102030405999"),
    ("20260102030405678", EAST, "20260102030405678"),  # digits are the timeline's own
    ("2026-01-02T03:04:05.678Z", UTC, "20260102030405678"),
    ("2026-01-02T03:04:05.678+00:00", EAST, "20260102050405678"),
    (datetime(2026, 1, 2, 3, 4, 5, 678_999, tzinfo=UTC), UTC, "20260102030405678"),
    (datetime(2026, 1, 2, 3, 4, 5, tzinfo=EAST), UTC, "20260102010405000"),
    # Without a zone it is UTC, whatever the timeline's zone is.
    ("2026-01-02", UTC, "20260102000000000"),
    ("2026-01-02", EAST, "20260102020000000"),
    ("2026-01-02T03:04:05", UTC, "20260102030405000"),
    ("2026-01-02 03:04:05.678", EAST, "20260102050405678"),
    (date(2026, 1, 2), EAST, "20260102020000000"),
    (datetime(2026, 1, 2, 3), UTC, "20260102030000000"),
]


@pytest.mark.parametrize(("given", "zone", "digits"), TIMES)
def test_times_become_digits_of_the_timelines_zone(given: Any, zone: tzinfo, digits: str) -> None:
    assert timeline_time(given, zone) == digits


def test_a_time_of_the_timeline_is_a_moment_in_utc() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    assert utc_moment("20260102030405678", UTC) == moment
    assert utc_moment("20260102050405678", EAST) == moment
    here = moment.astimezone().strftime("%Y%m%d%H%M%S") + "678"
    assert utc_moment(here, None) == moment
    assert utc_moment("00000000000000001", UTC) is None
    assert utc_moment("99999999999999999", UTC) is None


REFUSED: list[tuple[Any, str]] = [
    ("yesterday", "neither digits nor an ISO"),
    ("2026", "has 4"),
    (20260102030405678, "neither text nor a date"),
    ("9999-12-31T23:59:59-05:00", "before or after all years"),
    ("0001-01-01T00:00:00+05:00", "before or after all years"),
    ("٢٠٢٦٠١٠٢٠٣٠٤٠٥٦٧٨", "neither digits"),  # digits, but not ASCII
]


@pytest.mark.parametrize(("given", "why"), REFUSED)
def test_times_that_could_mean_another_moment_are_refused(given: Any, why: str) -> None:
    with pytest.raises(InvalidRequestError, match=why) as caught:
        timeline_time(given, UTC)
    assert caught.value.what == f"{given!r} is not a time of a table", "as the caller wrote it"


@pytest.mark.parametrize("time", ["99999999999999999", "20261301000000000", "20260229000000"])
def test_a_time_that_is_no_date_is_named_by_whoever_counts_with_it(time: str) -> None:
    for counted in (
        lambda: following_time(time),
        lambda: milliseconds_between("20260101000000000", time),
    ):
        with pytest.raises(CorruptTableError, match=time) as caught:
            counted()
        assert "timeline" in caught.value.next_step


def test_nothing_follows_the_last_time_of_the_calendar() -> None:
    with pytest.raises(CorruptTableError, match=r"99991231235959999.*no time of the calendar"):
        following_time("99991231235959999")
