"""When is a compaction due, by the instants of the timeline?"""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import chain

from pyhudi.format.timeline.instant import Action
from pyhudi.plan.compaction.policy import CompactionPolicy, CompactionTrigger
from pyhudi.timeline.timeline import ActiveInstants

#: A group is overdue when its trigger would have fired so many times.
OVERDUE_TIMES = 4


def is_due(policy: CompactionPolicy, timeline: ActiveInstants, now: str) -> bool:
    """True if it is time for a compaction; `now` is a time in the timeline's own zone."""
    since, deltas = _since_last(policy.trigger, timeline)
    if since is None or not deltas:
        return False
    return has_come(policy, deltas, since, now)


def has_come(
    policy: CompactionPolicy, deltas: int, since: str, now: str, *, times: int = 1
) -> bool:
    """True if the trigger has fired, or would have, so many times."""
    enough = deltas >= times * policy.trigger_delta_commits
    late = _seconds_between(since, now) >= times * policy.trigger_seconds
    match policy.trigger:
        case CompactionTrigger.TIME_ELAPSED:
            return late
        case CompactionTrigger.NUM_AND_TIME:
            return enough and late
        case CompactionTrigger.NUM_OR_TIME:
            return enough or late
    return enough


def _since_last(trigger: CompactionTrigger, timeline: ActiveInstants) -> tuple[str | None, int]:
    """Return the time of the last compaction and the number of delta commits since.

    Without one it is the time of the first write.
    """
    instants, began_as = tuple(timeline.instants), timeline.began_as
    deltas = [
        instant
        for instant in instants
        if instant.action is Action.DELTACOMMIT
        and instant.completed is not None
        and instant.requested not in began_as
    ]
    if trigger is CompactionTrigger.NUM_COMMITS_AFTER_LAST_REQUEST:
        pending = (i.requested for i in instants if i.action is Action.COMPACTION)
        began = chain((r for r, a in began_as.items() if a is Action.COMPACTION), pending)
    else:
        done = {i.requested for i in instants if i.completed is not None}
        began = chain(r for r, a in began_as.items() if a is Action.COMPACTION and r in done)
    last = max(began, default=None)
    if last is None:
        first = min(deltas, key=lambda i: (i.completed or "", i.requested), default=None)
        return (None if first is None else first.requested), len(deltas)
    return last, sum((instant.completed or "") > last for instant in deltas)


def _seconds_between(earlier: str, later: str) -> float:
    try:
        moments = [datetime.strptime(time[:14], "%Y%m%d%H%M%S") for time in (earlier, later)]
    except ValueError:  # a synthetic time is older than anything
        return float("inf")
    milliseconds = [int(time[14:17] or 0) for time in (earlier, later)]
    between = moments[1] - moments[0]
    return (between + timedelta(milliseconds=milliseconds[1] - milliseconds[0])).total_seconds()
