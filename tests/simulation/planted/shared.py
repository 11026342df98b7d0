"""Planted bugs in what a table needs that a foreign engine writes too.

As in `commit`, each weakens the code of production at one point, and has no state of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.guard import TableLease
from pyhudi.commit.proposals import AlreadyDone, Complete, Facts, Refused
from pyhudi.commit.validation import CompletionCheck
from pyhudi.format.timeline.instant import Instant, InstantTime, State
from pyhudi.timeline.live import LiveTimeline

_Bug = Callable[[], AbstractContextManager[Any]]


def _superseded_published() -> AbstractContextManager[Any]:
    """No entry is voided: what a crashed writer appended is published behind a later write."""
    return patch.object(DecisionLog, "_is_superseded", lambda self, entry, live: False)


def _own_inflight_not_checked() -> AbstractContextManager[Any]:
    """A write completes although the other engine has removed its pending files."""
    refusal = Complete.refusal

    def weak(self: Complete, facts: Any, live: LiveTimeline) -> Refused | AlreadyDone | None:
        known = live.pending
        begun = Instant(InstantTime(self.requested), self.action, State.REQUESTED)
        live.pending = {self.requested: begun, **known}
        try:
            return refusal(self, facts, live)
        finally:
            live.pending = known

    return _all(
        patch.object(Complete, "refusal", weak),
        patch.object(Facts, "is_inflight", lambda self, requested, action: True),
    )


def _skew_not_waited_out() -> AbstractContextManager[Any]:
    """The lock is released at once: an engine whose clock is slow draws a smaller time."""
    return patch.object(TableLease, "_wait_out_skew", lambda self, highest: None)


def _lock_not_checked_again() -> AbstractContextManager[Any]:
    """A writer that once took the lock publishes, although it has been lost since."""
    return patch.object(TableLease, "is_safe", lambda self, held: True)


def _no_wait_for_the_other_reader() -> AbstractContextManager[Any]:
    """A write completes although the other engine, which began before, will take it for older."""
    return patch.object(CompletionCheck, "_must_wait", lambda self, live: False)


@contextmanager
def _all(*replacements: AbstractContextManager[Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for replacement in replacements:
            stack.enter_context(replacement)
        yield


#: The bugs, by name.
SHARED_BUGS: dict[str, _Bug] = {
    "superseded published": _superseded_published,
    "own inflight not checked": _own_inflight_not_checked,
    "skew not waited out": _skew_not_waited_out,
    "lock not checked again": _lock_not_checked_again,
    "no wait for the other reader": _no_wait_for_the_other_reader,
}
