"""The active timeline as a value: what happened to the table, in order.

A timeline folder holds one file for each state that each action reached. `Timeline.of` folds those
names into one instant per action, in the furthest state it reached. Three questions matter to a
reader:

- *Is this requested time committed?* Yes when a completed write has it. A time that is nowhere on
  the active timeline and older than all of it was archived, hence committed. Anything else is
  pending, rolled back, or garbage, and must not be seen.
- *When did it complete?* The completed file's name says so; for archived instants the archive does.
- *What was there at a time?* The writes whose completion is not later: completion, not request,
  is when a write becomes visible (RFC-66).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from pyhudi.format.timeline.instant import Action, Instant, State

#: Completed actions that put rows into the table, or take them out.
WRITE_ACTIONS = frozenset({Action.COMMIT, Action.DELTACOMMIT, Action.REPLACECOMMIT})

_RANK = {State.REQUESTED: 0, State.INFLIGHT: 1, State.COMPLETED: 2}


def _order(instant: Instant) -> tuple[str, Action]:
    return instant.requested, instant.action


def without_orphaned_inflights(instants: Iterable[Instant]) -> tuple[Instant, ...]:
    """Return the state files without orphaned inflight files of writes and services.

    A requested file comes first, and it goes last, or while the completed one is there. An inflight
    file without either was made by a writer that slept until its instant was rolled back, or
    archived. Taken for a pending write it would be the oldest of all, and everything archived
    behind it would seem not to be committed.
    """
    known = tuple(instants)
    founded = {(i.requested, i.action.completed_as) for i in known if i.state is not State.INFLIGHT}
    return tuple(
        instant
        for instant in known
        if (instant.requested, instant.action.completed_as) in founded
        or instant.action.completed_as not in WRITE_ACTIONS
    )


def orphaned_inflights(instants: Iterable[Instant]) -> list[Instant]:
    """Return the orphaned inflight files, which no reader and no writer needs."""
    known = tuple(instants)
    return sorted(
        set(known) - set(without_orphaned_inflights(known)), key=lambda i: (i.requested, i.action)
    )


class ActiveInstants(Protocol):
    """The instants of the active timeline, in any order; those of a `Timeline` or a live one."""

    @property
    def instants(self) -> Iterable[Instant]: ...

    @property
    def began_as(self) -> Mapping[str, Action]: ...


@dataclass(frozen=True)
class Timeline:
    """An immutable set of instants, oldest request first."""

    instants: tuple[Instant, ...]
    #: How completed instants began, where that differs: a compaction completes as a commit.
    began_as: Mapping[str, Action] = field(default_factory=dict)

    @classmethod
    def of(cls, instants: Iterable[Instant]) -> Timeline:
        """Fold the state files of a timeline folder into one instant per action."""
        furthest: dict[tuple[str, Action], Instant] = {}
        began_as: dict[str, Action] = {}
        for instant in instants:
            key = (instant.requested, instant.action.completed_as)
            known = furthest.get(key)
            if known is None or _RANK[instant.state] >= _RANK[known.state]:
                furthest[key] = instant
            if instant.action is not instant.action.completed_as:
                began_as[instant.requested] = instant.action
        ordered = sorted(furthest.values(), key=_order)
        return cls(tuple(ordered), began_as)

    def advanced(self, completed: Iterable[Instant]) -> Timeline:
        """Return the timeline with a few more completed instants, without sorting it again."""
        new = {(i.requested, i.action): i for i in completed}
        times = {requested for requested, _ in new}
        instants = [
            i
            for i in self.instants
            if i.requested not in times or (i.requested, i.action.completed_as) not in new
        ]
        for instant in new.values():
            insort(instants, instant, key=_order)
        return Timeline(tuple(instants), self.began_as)

    @cached_property
    def writes(self) -> tuple[Instant, ...]:
        """Completed writes in the order of their completion."""
        done = (i for i in self.instants if i.action in WRITE_ACTIONS and i.completed)
        return tuple(sorted(done, key=lambda i: (i.completed or "", i.requested)))

    @cached_property
    def completion_times(self) -> Mapping[str, str]:
        """Requested time → completion time of every completed write."""
        return {i.requested: i.completed for i in self.writes if i.completed is not None}

    @cached_property
    def pending(self) -> tuple[Instant, ...]:
        return tuple(i for i in self.instants if i.state is not State.COMPLETED)

    @cached_property
    def pending_writes(self) -> frozenset[str]:
        """Requested times of writes and table services that have not completed."""
        return frozenset(
            i.requested for i in self.pending if i.action.completed_as in WRITE_ACTIONS
        )

    @cached_property
    def first_active(self) -> str | None:
        """Requested times below this one, and not on the timeline, are archived.

        Savepoints hold their instants back while archiving goes on behind them. So leading
        savepointed writes do not count, except for the last one of all.
        """
        saved = {i.requested for i in self.instants if i.action is Action.SAVEPOINT}
        times = self.completion_times.keys() | self.pending_writes
        return min(times - saved, default=max(times, default=None))

    def completed(self, *actions: Action) -> tuple[Instant, ...]:
        """Return completed instants of these actions, oldest request first."""
        return tuple(i for i in self.instants if i.action in actions and i.completed is not None)

    def is_table_service(self, instant: Instant) -> bool:
        """True if the instant rearranged rows (compaction, clustering) and added none."""
        return instant.requested in self.began_as

    def is_archived(self, requested: str) -> bool:
        """True if the time is older than the active timeline and not on it."""
        if requested in self.completion_times or requested in self.pending_writes:
            return False
        return self.first_active is not None and requested < self.first_active

    def is_committed(self, requested: str) -> bool:
        return requested in self.completion_times or self.is_archived(requested)
