"""When announced markers are stored, and where."""

from __future__ import annotations

import pytest

from pyhudi.plan.marker_batches import OpenList, StoreIn, Wait, next_batch
from pyhudi.settings import MarkerService

POLICY = MarkerService(threads=2, batch_ms=50)
FREE, BUSY, OTHER, OTHER_BUSY = OpenList(3), OpenList(3, True), OpenList(7), OpenList(7, True)
NEW = StoreIn(None)


@pytest.mark.parametrize(
    ("lists", "waited_ms", "since_last_ms", "decided"),
    [
        ((), 5, None, NEW),
        ((), 0, None, Wait(5)),
        ((), 4, None, Wait(1)),
        ((), 0, 1_000, Wait(5)),
        ((), 30, 30, Wait(20)),
        ((), 1, 48, Wait(4)),
        ((), 50, 50, NEW),
        ((FREE,), 5, 60, StoreIn(3)),
        ((OTHER, FREE), 5, 60, StoreIn(3)),
        ((BUSY,), 5, 60, NEW),
        ((BUSY, OTHER), 5, 60, StoreIn(7)),
        ((BUSY, OTHER_BUSY), 5, 60, Wait(None)),
        ((BUSY, OTHER_BUSY), 5, 10, Wait(40)),
    ],
)
def test_a_batch_begins_in_time_and_in_a_free_list(
    lists: tuple[OpenList, ...], waited_ms: int, since_last_ms: int | None, decided: StoreIn | Wait
) -> None:
    assert next_batch(lists, waited_ms, since_last_ms, POLICY) == decided


def test_with_the_shortest_interval_markers_wait_only_for_a_free_list() -> None:
    policy = MarkerService(threads=1, batch_ms=1)
    assert next_batch((), 0, 1, policy) == NEW
    assert next_batch((BUSY,), 0, 1, policy) == Wait(None)
