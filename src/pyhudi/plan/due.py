"""Which services of a table are due, by the instants of its active timeline alone.

A writer asks this after each commit, and knows the timeline from the commit itself. So the answer
costs no request, and it is a hint: what a service then finds to do depends on files.

A compaction is due by its policy's trigger. A resize is due when the process knows that it made a
bucket too large: by the sizes of the last listing that it saw, and what its commits have added
since. What others added is found with the next compaction, whose listing it needs anyway. A clean
is due when something that replaced files has passed out of what the policy retains since the last
clean, and some writes have come since. An archiving is due when there are more writes than its
policy, raised by those of the other services, leaves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from pyhudi.format.timeline.instant import Action, Instant
from pyhudi.plan.archiving.policy import ArchivePolicy, archiving_beside
from pyhudi.plan.cleaning import CleanBy, CleanPolicy
from pyhudi.plan.compaction.trigger import is_due
from pyhudi.plan.upkeep import ARCHIVE, CLEAN, COMPACTION, RESIZE, Upkeep
from pyhudi.timeline.timeline import WRITE_ACTIONS, ActiveInstants

#: Writes between two cleans. Each lists the files of the table.
CLEAN_AFTER: Final = 5


@dataclass(frozen=True, slots=True)
class DueFacts:
    """What is known when a process asks what is due. `now` is a time in the timeline's own zone."""

    timeline: ActiveInstants
    is_mor: bool
    now: str
    #: Pending plans of services that are older belong to processes that seem dead.
    abandoned_before: str = ""
    #: Of the buckets that this process wrote to, the size of the largest as far as it knows; None
    #: if the table's buckets cannot be resized.
    largest_bucket: int | None = None


def due_services(upkeep: Upkeep, facts: DueFacts) -> frozenset[str]:
    """Return the services that are due."""
    found = set()
    if facts.is_mor and upkeep.compaction is not None:
        is_left = _is_abandoned(Action.COMPACTION, facts)
        if is_left or is_due(upkeep.compaction, facts.timeline, facts.now):
            found.add(COMPACTION)
    if upkeep.resize is not None and facts.largest_bucket is not None:
        is_left = _is_abandoned(Action.CLUSTERING, facts)
        if is_left or facts.largest_bucket > upkeep.resize.split_bytes:
            found.add(RESIZE)
    if upkeep.clean is not None and _is_clean_due(upkeep.clean, facts):
        found.add(CLEAN)
    if upkeep.archive is not None:
        count = sum(1 for _ in _writes(facts.timeline))
        if count > upkeep.archive.keep_max:  # raising the policy costs more than counting
            raised = raised_archiving(upkeep, upkeep.archive, facts)
            found |= {ARCHIVE} if count > raised.keep_max else set()
    return frozenset(found)


def _is_abandoned(action: Action, facts: DueFacts) -> bool:
    """True if a pending plan belongs to a process that seems dead."""
    return any(
        instant.action is action and instant.requested < facts.abandoned_before
        for instant in facts.timeline.instants
    )


def _writes(timeline: ActiveInstants) -> Iterable[Instant]:
    done = (instant for instant in timeline.instants if instant.completed is not None)
    return (instant for instant in done if instant.action in WRITE_ACTIONS)


# ---- cleaning


def _is_clean_due(policy: CleanPolicy, facts: DueFacts) -> bool:
    timeline, cleaned = facts.timeline, ""
    for instant in timeline.instants:
        if instant.action is Action.CLEAN:
            if instant.completed is None:
                return instant.requested < facts.abandoned_before
            cleaned = max(cleaned, instant.requested)
    writes = [*_writes(timeline)]
    if sum((write.completed or "") > cleaned for write in writes) < CLEAN_AFTER:
        return False
    before, now = (_retained_from(policy, writes, at) for at in (cleaned, facts.now))
    return any(
        before < (write.completed or "") <= now for write in writes if _replaces(write, facts)
    )


def _retained_from(policy: CleanPolicy, writes: list[Instant], at: str) -> str:
    """Return the completion time from which on the policy retains every state, at a time."""
    if not at:
        return ""
    if policy.by is CleanBy.VERSIONS:
        return at
    if policy.by is CleanBy.HOURS:
        return hours_before(at, policy.keep)
    done = sorted(write.completed or "" for write in writes if (write.completed or "") <= at)
    return done[-policy.keep] if len(done) > policy.keep else ""


def _replaces(write: Instant, facts: DueFacts) -> bool:
    """True if the write may have made older files unnecessary."""
    if write.action is Action.REPLACECOMMIT or not facts.is_mor:
        return True
    return facts.timeline.began_as.get(write.requested) is Action.COMPACTION


def hours_before(time: str, hours: int) -> str:
    """Return the time so many hours earlier; "" for one that is no date.

    >>> hours_before("20260102030405678", 24)
    '20260101030405678'
    """
    try:
        moment = datetime.strptime(time[:14], "%Y%m%d%H%M%S") - timedelta(hours=hours)
    except (ValueError, OverflowError):
        return ""
    return f"{moment:%Y%m%d%H%M%S}{time[14:]}"


# ---- archiving


def raised_archiving(upkeep: Upkeep, policy: ArchivePolicy, facts: DueFacts) -> ArchivePolicy:
    """Return the policy, raised so that it leaves what the other services of the table count."""
    if upkeep.compaction is not None:
        policy = archiving_beside(policy, upkeep.compaction)
    if upkeep.clean is None:
        return policy
    cut = hours_before(facts.now, upkeep.clean.keep)
    return leaving(policy, counted_by_clean(upkeep.clean, _writes(facts.timeline), cut) + 1)


def leaving(policy: ArchivePolicy, count: int) -> ArchivePolicy:
    """Return the policy, raised so that it leaves at least `count` writes.

    >>> leaving(ArchivePolicy(), 41).keep_min, leaving(ArchivePolicy(), 41).keep_max
    (41, 51)
    """
    more = max(0, count - policy.keep_min)
    return replace(policy, keep_min=policy.keep_min + more, keep_max=policy.keep_max + more)


def counted_by_clean(policy: CleanPolicy, writes: Iterable[Instant], cut: str) -> int:
    """Return how many of the newest writes a clean has to find on the active timeline.

    `cut` is the time from which on a policy by hours retains everything.
    """
    if policy.by is not CleanBy.HOURS:
        return policy.keep if policy.by is CleanBy.COMMITS else 0
    known = [*writes]
    first = min((w.requested for w in known if (w.completed or "") > cut), default=None)
    return 0 if first is None else sum(write.requested >= first for write in known)
