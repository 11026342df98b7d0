"""A consistent state of a timeline that changes while a reader lists it.

A listing is no moment. It comes in pages, or in the order of a local folder, and it may show a
completion and miss an earlier one whose name lies on a page that was read before. Repeating it
until two listings agree is no way out: on a busy table they never do.

**The cut.** Completions become visible in the order of their times (R1 of `docs/protocol`). So the
highest completion time that a first listing shows is a cut: every completion up to it was there
when that listing ended. A second listing, begun afterwards, shows all of them, or the archive has
them. Later completions do not count; their instants are pending as of the cut.

**Removals.** Data files are listed after the first listing of the timeline. A rollback removes only
files of writes that never completed, and no cut shows those. A clean that was planned before the
first listing spares what was visible then. One that began since spares the state of the cut if it
keeps every state from then on (`plan.kept`). An instant that was completed in the first listing and
is not in the second, although an older one is still there, was undone. Then, and after a restore,
the reader takes a newer cut.

**Archiving** takes instants away in the order of their requests. If the oldest write of the first
listing is in the second, then nothing was archived in between.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyhudi.format.instant import Action, Instant, State
from pyhudi.timeline.timeline import WRITE_ACTIONS, Timeline


def cut_time(timeline: Timeline) -> str:
    """Return the highest completion time of a write; empty if none has completed."""
    return max(timeline.completion_times.values(), default="")


def at_cut(first: Timeline, second: Timeline, archived: Iterable[Instant] = ()) -> Timeline:
    """Return the timeline as of the cut of the first listing.

    The second listing may be of the timeline's end only. `archived` are completed writes that the
    first listing missed and that were archived before the second one.
    """
    time = cut_time(first)
    began_as = {**first.began_as, **second.began_as}
    merged = {_key(instant): instant for instant in first.instants}
    for instant in second.instants:
        key = _key(instant)
        is_write = instant.action.completed_as in WRITE_ACTIONS
        known = merged.get(key)
        if not is_write or (instant.completed or "") <= time:
            if known is None or known.completed is None:
                merged[key] = instant
        elif known is None:
            action = began_as.get(instant.requested, instant.action)
            merged[key] = Instant(instant.requested, action, State.INFLIGHT)
    for instant in archived:
        if instant.completed is not None and instant.completed <= time:
            merged[_key(instant)] = instant
    return Timeline(tuple(sorted(merged.values(), key=_order)), began_as)


def is_undone(first: Timeline, second: Timeline) -> bool:
    """Return whether a completed write of the first listing was undone, or a restore has begun."""
    known = {_key(instant) for instant in first.instants}
    if any(i.action is Action.RESTORE and _key(i) not in known for i in second.instants):
        return True
    kept = kept_writes(first, second)
    return any(
        instant.requested > kept[0] and instant.requested not in second.completion_times
        for instant in first.writes
        if kept
    )


def is_archived_since(first: Timeline, second: Timeline, start: str) -> bool:
    """Return whether writes left the timeline between the listings.

    The second listing begins with instants requested at `start`.
    """
    oldest = min((time for time in _unsaved(first) if time >= start), default=None)
    return oldest is not None and oldest not in _unsaved(second)


def cleans_since(first: Timeline, second: Timeline) -> tuple[Instant, ...]:
    """Return the cleans that began after the first listing."""
    known = {_key(instant) for instant in first.instants}
    return tuple(i for i in second.instants if i.action is Action.CLEAN and _key(i) not in known)


def kept_writes(first: Timeline, second: Timeline) -> list[str]:
    """Return the requested times of writes that both listings show, oldest first."""
    return sorted(_unsaved(first) & _unsaved(second))


def _unsaved(timeline: Timeline) -> set[str]:
    """Return the requested times of writes; archiving passes by the savepointed ones."""
    saved = {i.requested for i in timeline.instants if i.action is Action.SAVEPOINT}
    return (timeline.completion_times.keys() | timeline.pending_writes) - saved


def _key(instant: Instant) -> tuple[str, Action]:
    return instant.requested, instant.action.completed_as


def _order(instant: Instant) -> tuple[str, Action]:
    return instant.requested, instant.action
