"""When are announced markers stored, and in which list?

A write that has one task stores each marker almost at once, and in the same list. Where many tasks
announce at once, those that come together share a request, and so do those that come within the
interval after a batch was begun. Each list is written by one request at a time, so
more lists are begun while others are being written, up to a number. A list is written again with
every batch; one that has become large is left as it is, and another takes its place. So a request
stays small, however many files the write has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyhudi.settings import MarkerService

#: The share of the interval that a marker waits for others that come at the same time. Tasks of one
#: stage go in step: the reply to one batch releases them all.
_GATHERING = 10
#: A list that has as many bytes gets no more markers.
LIST_BYTES: Final = 128 << 10


@dataclass(frozen=True, slots=True)
class OpenList:
    """A list that takes markers, by its number."""

    number: int
    is_busy: bool = False  # being written


@dataclass(frozen=True, slots=True)
class StoreIn:
    """What waits is stored now, in the list of this number; in a new one if that is None."""

    number: int | None


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is stored now; ask again after this time, or None: once a list has been written."""

    ms: int | None


def next_batch(
    lists: Sequence[OpenList], waited_ms: int, since_last_ms: int | None, settings: MarkerService
) -> StoreIn | Wait:
    """Return what becomes of the markers that wait, the first of them for so long.

    `since_last_ms` is the time since a batch was begun; None if none was.
    """
    ms = settings.batch_ms // _GATHERING - waited_ms
    if since_last_ms is not None:
        ms = max(ms, settings.batch_ms - since_last_ms)
    if ms > 0:
        return Wait(ms)
    if sum(each.is_busy for each in lists) >= settings.threads:
        return Wait(None)
    free = (each.number for each in lists if not each.is_busy)
    return StoreIn(min(free, default=None))
