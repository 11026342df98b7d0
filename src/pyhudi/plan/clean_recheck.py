"""What makes a clean plan stale: instants that appeared, or disappeared, since it was made.

`services.cleaning.schedule` explains why writes that complete meanwhile are not among them.

A live timeline shows the same for every change that is in the decision log, and costs no listing.
It has no savepoints, because these have the times of other instants, and does not show writes that
disappear.
"""

from __future__ import annotations

from pyhudi.format.timeline.instant import Action
from pyhudi.timeline.live import LiveTimeline
from pyhudi.timeline.timeline import Timeline

#: Instants that may need older files than writes do.
_WEIGHTY = frozenset({Action.SAVEPOINT, Action.RESTORE, Action.CLEAN})


def clean_changes_since(then: Timeline, now: Timeline) -> list[str]:
    """Return the times of instants that may make a plan made `then` wrong `now`, oldest first."""
    came = {requested for requested, _ in _weighty(now) - _weighty(then)}
    return sorted(came | _vanished(then, now))


def weighty_instants(live: LiveTimeline) -> set[tuple[str, Action]]:
    """Return the instants of a live timeline after which a plan has to be made again."""
    found = {(i.requested, i.action) for i in live.completed.values() if i.action in _WEIGHTY}
    for instant in live.pending.values():
        if _is_service(instant.action) or instant.action in _WEIGHTY:
            found.add((instant.requested, instant.action))
    return found | set(live.began_as.items())


def logged_changes_since(
    known: set[tuple[str, Action]], then: Timeline, live: LiveTimeline
) -> list[str]:
    """Return what `clean_changes_since` does, by the decision log.

    `known` is what was there before `then` was loaded. The live timeline keeps what is archived,
    which `then` lacks.
    """
    came = weighty_instants(live) - known - _weighty(then)
    return sorted(requested for requested, _ in came)


def _is_service(action: Action) -> bool:
    return action.completed_as is not action


def _weighty(timeline: Timeline) -> set[tuple[str, Action]]:
    """Return instants after which a plan has to be made again.

    Their times alone are not enough: a savepoint has that of the write, or service, that it saves.
    """
    found = {(i.requested, i.action) for i in timeline.instants if i.action in _WEIGHTY}
    pending = {(i.requested, i.action) for i in timeline.pending}
    services = {each for each in pending if _is_service(each[1])}
    return found | services | set(timeline.began_as.items())


def _vanished(then: Timeline, now: Timeline) -> set[str]:
    """Return writes that had completed and are missing, although they were not archived."""
    first = now.first_active or ""
    gone = then.completion_times.keys() - now.completion_times.keys()
    return {requested for requested in gone if requested >= first}
