"""What makes a plan of a clean outdated: instants that came, or went, since it was made.

`engine.cleaning` tells why writes that complete meanwhile are not among them.
"""

from __future__ import annotations

from pyhudi.format.instant import Action
from pyhudi.timeline.timeline import Timeline

#: Instants that may need older files than writes do.
_WEIGHTY = frozenset({Action.SAVEPOINT, Action.RESTORE, Action.CLEAN})


def clean_news(then: Timeline, now: Timeline) -> list[str]:
    """Times of instants because of which a plan made then may be wrong now, oldest first."""
    came = {requested for requested, _ in _weighty(now) - _weighty(then)}
    return sorted(came | _vanished(then, now))


def _weighty(timeline: Timeline) -> set[tuple[str, Action]]:
    """Instants after which a plan has to be made anew.

    Their times alone do not tell: a savepoint bears that of the write, or service, that it saves.
    """
    found = {(i.requested, i.action) for i in timeline.instants if i.action in _WEIGHTY}
    pending = {(i.requested, i.action) for i in timeline.pending}
    services = {each for each in pending if each[1].completed_as is not each[1]}
    return found | services | set(timeline.began_as.items())


def _vanished(then: Timeline, now: Timeline) -> set[str]:
    """Writes that had completed and are gone, and not because they were archived."""
    first = now.first_active or ""
    gone = then.completion_times.keys() - now.completion_times.keys()
    return {requested for requested in gone if requested >= first}
