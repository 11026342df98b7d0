"""Entries that a foreign engine superseded before they were published.

A writer appends an entry, and dies or loses the lock. The foreign engine, which does not use the
log, publishes. To publish the entry now would put an earlier time behind a later one, or publish
what was rolled back. So it is voided, and its proposer appends it again if it still needs it.

Only the lock keeps the writer itself from publishing the entry afterwards. A writer that appended
before the table had a lock may do so at any moment, so its entry is published for it, however late.

An abort may be half published by then: it removes a plan from the timeline before it creates its
rollback. Nothing else would show that what the plan's executors wrote is to be removed. So the
process that voids such an abort appends it again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pyhudi.commit.rollback_targets import RollbackTargets
from pyhudi.format.timeline.decision_entry import Entry, EntryKind
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.timeline.live import PLANNED_ACTIONS, LiveTimeline


def is_superseded(entry: Entry, live: LiveTimeline, is_inflight: Callable[[], bool]) -> bool:
    """True if a foreign engine published past the entry, or removed its instant."""
    assert entry.time is not None
    assert entry.instant is not None
    if entry.guarded and live.highest >= entry.time:
        return True
    if entry.target is not None:
        target = entry.target.instant
        rollback = live.rolled_back_by.get(target, entry.instant)
        return target in live.completed or rollback != entry.instant
    if entry.whole:  # half published, its files look like those of a failed write
        return entry.instant in live.rolled_back_by
    if entry.kind in (EntryKind.COMPLETE, EntryKind.CLOSE):
        is_open = entry.instant in live.pending and entry.instant not in live.rolled_back_by
        return not is_open or (entry.kind is EntryKind.COMPLETE and not is_inflight())
    return False


def has_removed_plan(entry: Entry, live: LiveTimeline, rollbacks: RollbackTargets) -> bool:
    """True if it is an abort of a plan that is gone, and was neither executed nor rolled back."""
    target = entry.target
    if target is None or target.action not in PLANNED_ACTIONS:
        return False
    requested = target.instant
    if requested in live.pending or live.is_completed(requested):
        return False
    return rollbacks.naming(requested, live) is None


def reissued_abort(void: Entry, abort: Entry, time: str) -> Entry:
    """Return the abort again, with a new time, in place of the entry that would void it."""
    assert abort.creates is not None
    plan = Instant(InstantTime(time), Action.ROLLBACK, State.REQUESTED)
    return replace(
        void,
        kind=EntryKind.ABORT,
        time=time,
        instant=time,
        action=Action.ROLLBACK,
        target=abort.target,
        creates=replace(abort.creates, name=plan.file_name),
    )
