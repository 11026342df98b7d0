"""A consistent state of a timeline that changes while a reader lists it.

A listing is not atomic. It comes in pages, or in the order of a local folder, and it may show a
completion and miss an earlier one whose name lies on a page that was read before. Repeating it
until two listings agree does not help: on a busy table they never do.

**The cut.** Completions become visible in the order of their times (R1 of `docs/protocol`). So the
highest completion time that a first listing shows is a cut: every completion up to it was there
when that listing ended. A second listing, begun afterwards, shows all of them, or the archive has
them. Later completions do not count; their instants are pending as of the cut.

**Removals.** Data files are listed after the first listing of the timeline. A rollback of a write
that never completed removes only files that no cut shows. A clean leaves the state as of all writes
that had completed before it was planned. One that counted a completion beyond the cut leaves the
state of the cut only if it retains every state from then on (`plan.retention`); so does one begun
after the first listing. An instant that was completed in the first listing, and is pending in the
second, or missing although an older one is still there, was rolled back. Then, and after a restore,
the reader takes a newer cut.

A clean that completes after the first listing is pending as of the cut: the data files were listed
before that, so the next refresh must list its partitions again.

**Archiving** takes instants away in the order of their requests. If all writes of the first listing
are in the second, then nothing that the first one missed was archived in between. A write that
began after the first listing passed its name, and completed and was archived before the second one
reached it, would be missed. Archiving waits longer than a listing takes (`ArchivePolicy.grace_ms`).
"""

from __future__ import annotations

from collections.abc import Iterable

from pyhudi.format.timeline.instant import Action, Instant, State
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
        if instant.action is Action.CLEAN and instant.completed is not None:
            merged[key] = known or instant.in_state(State.INFLIGHT)
        elif not is_write or (instant.completed or "") <= time:
            if known is None or known.completed is None:
                merged[key] = instant
        elif known is None:
            action = began_as.get(instant.requested, instant.action)
            merged[key] = Instant(instant.requested, action, State.INFLIGHT)
    for instant in archived:
        if instant.completed is not None and instant.completed <= time:
            merged[_key(instant)] = instant
    return Timeline(tuple(sorted(merged.values(), key=_order)), began_as)


def is_rolled_back(first: Timeline, second: Timeline) -> bool:
    """True if a completed write of the first listing was rolled back, or a restore has begun."""
    known = {_key(instant) for instant in first.instants}
    if any(i.action is Action.RESTORE and _key(i) not in known for i in second.instants):
        return True
    if first.completion_times.keys() & second.pending_writes:
        return True
    kept = shared_writes(first, second)
    return any(
        instant.requested > kept[0] and instant.requested not in second.completion_times
        for instant in first.writes
        if kept
    )


def is_archived_since(first: Timeline, second: Timeline, start: str) -> bool:
    """True if writes left the timeline between the listings.

    The second listing begins with instants requested at `start`.
    """
    return any(time >= start for time in unsaved_writes(first) - unsaved_writes(second))


def cleans_beyond(first: Timeline, second: Timeline) -> tuple[Instant, ...]:
    """Return the cleans that may have counted a completion beyond the cut of the first listing.

    The first listing may show a clean on a later page than the completions that it missed.
    """
    time, known = cut_time(first), {_key(instant) for instant in first.instants}
    beyond = [done for done in second.completion_times.values() if done > time]
    return tuple(
        instant
        for instant in second.instants
        if instant.action is Action.CLEAN
        and (_key(instant) not in known or any(done < instant.requested for done in beyond))
    )


def shared_writes(first: Timeline, second: Timeline) -> list[str]:
    """Return the requested times of writes that both listings show, oldest first."""
    return sorted(unsaved_writes(first) & unsaved_writes(second))


def unsaved_writes(timeline: Timeline) -> set[str]:
    """Return the requested times of writes without the savepointed ones, which archiving skips."""
    saved = {i.requested for i in timeline.instants if i.action is Action.SAVEPOINT}
    return (timeline.completion_times.keys() | timeline.pending_writes) - saved


def _key(instant: Instant) -> tuple[str, Action]:
    return instant.requested, instant.action.completed_as


def _order(instant: Instant) -> tuple[str, Action]:
    return instant.requested, instant.action
