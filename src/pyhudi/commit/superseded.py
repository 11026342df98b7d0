"""Decisions that a foreign engine went past before they were carried out.

A writer decides, and dies or loses the lock; the foreign engine, who knows nothing of the log,
publishes. To carry the decision out now would put an earlier time behind a later one, or publish
what was taken away. So it is voided, and whoever wants it decides it again.

Only the lock keeps the writer itself from carrying it out afterwards. One that decided before the
table had a lock may do so at any moment, so what it decided is carried out for it, late as it is.

An abort may be half carried out by then: it takes a plan off the timeline before its rollback
comes. Nothing else would tell that what the plan's executors wrote is to be removed, so that abort
is decided again by whoever voids it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pyhudi.commit.rollback_targets import RollbackTargets
from pyhudi.format.timeline.decision_entry import Entry, EntryKind
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.timeline.live import PLANNED_ACTIONS, LiveTimeline


def is_overtaken(entry: Entry, live: LiveTimeline, is_inflight: Callable[[], bool]) -> bool:
    """Whether a foreign engine went past the entry, or took its instant away."""
    assert entry.time is not None
    assert entry.instant is not None
    if entry.guarded and live.highest >= entry.time:
        return True
    if entry.target is not None:
        target = entry.target.instant
        rollback = live.rolled_back_by.get(target, entry.instant)
        return target in live.completed or rollback != entry.instant
    if entry.kind is EntryKind.COMPLETE:
        is_open = entry.instant in live.pending and entry.instant not in live.rolled_back_by
        return not is_open or not is_inflight()
    return False


def has_taken_plan_away(entry: Entry, live: LiveTimeline, rollbacks: RollbackTargets) -> bool:
    """Whether it is an abort of a plan that is gone, and was neither carried out nor undone."""
    target = entry.target
    if target is None or target.action not in PLANNED_ACTIONS:
        return False
    requested = target.instant
    if requested in live.pending or live.is_completed(requested):
        return False
    return rollbacks.naming(requested, live) is None


def decided_again(void: Entry, abort: Entry, time: str) -> Entry:
    """The abort once more, with a new time, in place of the entry that would void it."""
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
