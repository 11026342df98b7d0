"""What readers see of tables that were resized: at every time, and in every range of times."""

from __future__ import annotations

from functools import cache

import pytest

from pyhudi.timeline.instant_time import RequestedTime
from resized_twins import JOINED, MODES, Twin, lived

every_mode = pytest.mark.parametrize("mode", [*MODES, JOINED])


@cache
def twins(mode: str) -> tuple[Twin, Twin]:
    """A table that was resized, and one with the same writes that was not."""
    return lived(mode, resizes=True), lived(mode, resizes=False)


@every_mode
def test_a_read_now_sees_every_write_once(mode: str) -> None:
    resized, plain = twins(mode)
    assert resized.now() == plain.now()
    assert len(resized.table.values()) == len(plain.table.values())


@every_mode
def test_a_read_as_of_any_completion_sees_what_had_completed(mode: str) -> None:
    resized, plain = twins(mode)
    for time in resized.moments():
        if count := resized.completed_by(time):
            expected = plain.now(as_of=plain.completion(count))
            assert resized.now(as_of=time) == expected, time


@every_mode
def test_a_read_as_of_any_request_sees_what_was_requested(mode: str) -> None:
    resized, plain = twins(mode)
    for time in resized.moments():
        if count := resized.requested_by(time):
            expected = plain.now(as_of=plain.request(count))
            assert resized.now(as_of=RequestedTime(time)) == expected, time


@every_mode
def test_changes_of_any_range_are_those_of_its_writes(mode: str) -> None:
    resized, plain = twins(mode)
    times = [None, *resized.ends()]
    expected: dict[tuple[int, int], object] = {}
    for number, since in enumerate(times):
        for until in times[number + 1 :]:
            assert until is not None
            low = 0 if since is None else resized.completed_by(since)
            high = resized.completed_by(until)
            if (low, high) not in expected:
                end = plain.completion(high)
                expected[low, high] = plain.changed(plain.completion(low), end) if high else []
            assert resized.changed(since, until) == expected[low, high], (since, until)


def changed_by_a_late_part(*, resizes: bool) -> list[tuple[object, ...]]:
    """Two owners write one row at once; the first to begin completes last, then comes a resize."""
    twin = Twin(JOINED, resizes)
    twin.put("klmnop", 1)
    twin.put("klmnop", 2)
    late = twin.hold("k", 4)
    twin.put("k", 3)
    since = twin.completion(3)
    twin.did(late.finish())
    twin.resize(lambda table: table.plan(3))
    twin.put("z", 5)
    return twin.changed(since, None)


def test_changes_of_a_joined_table_have_what_was_changed_before_a_resize_of_the_range() -> None:
    expected = changed_by_a_late_part(resizes=False)
    assert [row[:3] for row in expected] == [("k", "k3", "4"), ("z", "z5", "None")]
    assert changed_by_a_late_part(resizes=True) == expected
