"""Whether running writes that were found to be doomed were: nothing could have completed them.

A look says that a write is certain to be refused at its end. So from that moment on, at every
moment of the run, the rules must refuse it with exactly the file groups that it has, or would have
had. The rules are computed here once more, from what the store shows to be decided by then: I5 for
its file groups, N1 to N9 for resizes, and the two of partial rows.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyhudi.commit.concurrent import removals
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.simulate.table.checks.evidence import Evidence, Published
from pyhudi.simulate.table.history import Doomed, Event, History

_Groups = frozenset[FileGroupId]


def early_stops_are_deserved(evidence: Evidence, history: History) -> Iterator[str]:
    """A write that was doomed did not complete, and could not have, then or later."""
    for doomed in history.doomed:
        requested = doomed.requested
        if requested in evidence.writes:
            yield f"{requested} was certain to lose to {doomed.by}, and completed"
        asked = history.by_instant[requested].invoke
        for place in _moments(evidence, doomed.place):
            if not _is_refused(evidence, doomed, asked, place):
                what = f"change {place}" if place > doomed.place else "that moment"
                yield f"{requested} stopped because of {doomed.by}, and could complete at {what}"
                break


def _moments(evidence: Evidence, since: int) -> list[int]:
    """Return the moment itself, and each later one behind something that was decided."""
    decided = {*evidence.decided.values(), *(p.change.place for p in evidence.published)}
    return [since, *sorted(place + 1 for place in decided if place >= since)]


def _is_refused(evidence: Evidence, doomed: Doomed, asked: Event, place: int) -> bool:
    """True if the completion of the write would have been refused at that moment."""
    if doomed.was_rolled_back:
        plans = {plan.target: plan.change.place for plan in evidence.plans}
        aborted = evidence.decided.get(doomed.requested, plans.get(doomed.requested, place))
        return min(aborted, plans.get(doomed.requested, place)) < place
    known = doomed.bases | doomed.logs | doomed.references
    if evidence.announced(doomed.requested, place) - known:
        return True  # two attempts of a task disagree
    done = _completed(evidence, doomed.requested, place)
    until = max((write.completed for write in done), default="")
    if _is_resized(evidence, doomed, done):
        return True
    others = [write for write in done if not write.is_resize]
    through = evidence.buckets.through
    return any(
        _conflict(doomed, asked, other, through(other.groups, until)) for other in others
    ) or any(_hides_keys(doomed, asked, write, through(doomed.new_keys, until)) for write in done)


def _completed(evidence: Evidence, requested: str, place: int) -> list[Published]:
    """Return the other writes that completed since a write began, up to a moment, in order."""
    found = [
        write
        for write in evidence.writes.values()
        if write.completed > requested
        and write.requested != requested
        and min(write.change.place, evidence.decided.get(write.requested, place)) < place
    ]
    return sorted(found, key=lambda write: write.completed)


def _conflict(doomed: Doomed, asked: Event, other: Published, theirs: _Groups) -> bool:
    """True if the write does not merge with one that completed meanwhile in these file groups."""
    is_older = other.requested < doomed.requested
    if other.is_compaction and is_older:
        return False
    if any(group.partition in asked.replaces for group in other.groups):
        return not other.is_compaction or bool(theirs & doomed.bases)
    if theirs & doomed.bases:
        return True
    if other.is_compaction:
        return False
    removed = theirs & (removals(other.metadata) | (theirs - other.groups))
    if _is_part(asked) and removed & doomed.logs:
        return True
    is_merged = not asked.is_checked or (asked.reads_nothing and is_older)
    return bool(theirs & doomed.logs) and not is_merged


def _hides_keys(doomed: Doomed, asked: Event, other: Published, mine: _Groups) -> bool:
    """True if keys that the write took for new may be in a base file that is newer."""
    is_merge = other.is_compaction or other.is_resize
    is_later = other.requested > doomed.requested
    return _is_part(asked) and is_merge and is_later and bool(other.groups & mine)


def _is_part(asked: Event) -> bool:
    return any(row.cells is not None for row in asked.rows)


def _is_resized(evidence: Evidence, doomed: Doomed, done: list[Published]) -> bool:
    """True if resizes have left the write nothing to move to."""
    groups = doomed.bases | doomed.logs
    for write in done:
        if not write.is_resize:
            continue
        plan = evidence.resizes[write.requested].plan
        hit = groups & (plan.inputs | plan.made)
        if hit and write.requested > doomed.requested:
            return True
        if doomed.bases & hit:
            return True
        groups = evidence.buckets.through(groups, write.completed) if hit else groups
    return False
