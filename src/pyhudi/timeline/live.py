"""What a writer knows of the timeline: a listing, and the entries of the decision log since.

Every entry but the last has been applied before the next one could be appended. So a listing
together with the entries since is the timeline as it is now (`docs/protocol/README.md`, section 3).
A writer therefore lists once and then only folds entries; the age of a table costs nothing. Unlike
`Timeline`, it is mutable.

The fold knows `begin`, `complete`, `abort` and `close`. It does not know inflight files, which are
created without an entry. A caller that needs one looks for that file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Final

from pyhudi.format.timeline.decision_entry import Entry, EntryKind
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.timeline.timeline import WRITE_ACTIONS, Timeline

#: Below every time of a timeline.
BEFORE_ALL: Final = "0" * 17
#: Actions whose requested file is a plan that any process may execute, however often one fails.
PLANNED_ACTIONS: Final = (Action.COMPACTION, Action.LOGCOMPACTION, Action.CLUSTERING)


@dataclass(frozen=True, slots=True)
class NumberedWrite:
    """A completed write, and its place among those that completed since some instant."""

    number: int
    instant: Instant


class LiveTimeline:
    """The instants of a timeline, kept current by entries of the decision log.

    `rolled_back_by` maps the target of each rollback to the rollback's time. The caller adds the
    targets of rollbacks that a foreign engine planned, since a listing does not show them.
    """

    def __init__(self, names: Iterable[Instant] = ()) -> None:
        self.pending: dict[str, Instant] = {}
        self.completed: dict[str, Instant] = {}
        self.rolled_back_by: dict[str, str] = {}
        self.closed: set[str] = set()  # pending resizes whose inputs are closed
        self.began_as: dict[str, Action] = {}  # how completed services began, as in a timeline
        self.highest = BEFORE_ALL
        self.is_ours = False  # whether all its times were found in the log
        self.noted = 0  # entries since the listing, among them of instants archived since
        self._by_completion: list[tuple[str, str]] = []
        timeline = Timeline.of(names)
        self.began_as.update(timeline.began_as)
        for instant in timeline.instants:
            self._see(instant)
        self._by_completion.sort()
        self.first_active = timeline.first_active or ""  # when it was listed

    def _see(self, instant: Instant) -> None:
        self._pass(instant.completed or instant.requested)
        if instant.action is Action.SAVEPOINT:
            return  # it has the time of the write that it saves
        if instant.completed is None:
            self.pending[instant.requested] = instant
        else:
            self.completed[instant.requested] = instant
            self._by_completion.append((instant.completed, instant.requested))

    def _pass(self, time: str) -> None:
        self.highest = max(self.highest, time)

    # -- folding

    def note(self, entry: Entry) -> None:
        """Fold an entry that was appended. The entries before it have been applied."""
        if entry.kind is EntryKind.VOID:
            return
        self.noted += 1
        assert entry.time is not None
        assert entry.instant is not None
        assert entry.action is not None
        self._pass(entry.time)
        if entry.kind is EntryKind.COMPLETE:
            self._complete(entry.instant, entry.action, entry.time)
            return
        if entry.kind is EntryKind.CLOSE:
            self.add_closed((entry.instant,))
            return
        if entry.target is not None:
            self.rolled_back_by[entry.target.instant] = entry.instant
            self.closed.discard(entry.target.instant)
        if entry.instant in self.completed:
            return  # the listing was later than the entry
        begun = Instant(InstantTime(entry.instant), entry.action, State.REQUESTED)
        self.pending[entry.instant] = begun

    def _complete(self, requested: str, action: Action, time: str) -> None:
        self.pending.pop(requested, None)
        self.closed.discard(requested)
        if action is not action.completed_as:
            self.began_as[requested] = action
        if action is Action.ROLLBACK:
            for target, rollback in self.rolled_back_by.items():
                if rollback == requested:
                    self.pending.pop(target, None)  # what a zombie adds to it counts for nothing
        if requested not in self.completed:
            self.completed[requested] = Instant(
                InstantTime(requested), action.completed_as, State.COMPLETED, InstantTime(time)
            )
            self._by_completion.append((time, requested))

    def add_rollback(self, target: str, rollback: str, *, is_final: bool = True) -> None:
        """Note that the rollback has this target, which does not count once it completed.

        A rollback that is not final removes only what a failed execution of a plan left. The plan
        stays, and is executed again under the same name.
        """
        if rollback in self.completed and not is_final:
            return
        self.rolled_back_by[target] = rollback
        self.closed.discard(target)
        if rollback in self.completed:
            self.pending.pop(target, None)

    def add_closed(self, resizes: Iterable[str]) -> None:
        """Note that these were closed; what is left of one that has ended counts for nothing."""
        open_ = self.pending.keys() - self.rolled_back_by.keys()
        self.closed.update(open_.intersection(resizes))

    # -- questions

    @property
    def instants(self) -> Iterable[Instant]:
        """The instants in any order. Savepoints are not among them."""
        return chain(self.completed.values(), self.pending.values())

    def rollbacks_to_look_at(self) -> list[str]:
        """Return rollbacks, pending or done, that may name an instant which is pending here."""
        oldest = min(self.pending, default=None)
        if oldest is None:
            return []
        return sorted(i.requested for i in self.rollbacks() if i.requested >= oldest)

    def rollbacks(self) -> list[Instant]:
        instants = (*self.pending.values(), *self.completed.values())
        return [instant for instant in instants if instant.action is Action.ROLLBACK]

    def is_completed(self, requested: str) -> bool:
        return requested in self.completed

    def is_committed(self, requested: str) -> bool:
        """True if files of the instant count: it completed, now or before the active timeline."""
        if requested in self.completed:
            return True
        return requested < self.first_active and requested not in self.pending

    def completed_after(self, time: str) -> list[Instant]:
        """Return instants whose completion is later than the time, oldest completion first."""
        start = bisect_right(self._by_completion, (time, "\uffff"))
        return [self.completed[requested] for _, requested in self._by_completion[start:]]

    def writes_since(self, requested: str) -> list[NumberedWrite]:
        """Return the writes that completed since the instant was requested, numbered from 1.

        As long as the instant is pending, every process numbers them alike, however late it lists:
        of writes that complete while an instant is pending, none is archived.
        """
        since = (i for i in self.completed_after(requested) if i.action in WRITE_ACTIONS)
        return [NumberedWrite(number, instant) for number, instant in enumerate(since, 1)]

    @property
    def last_completion(self) -> str:
        """Return the greatest completion time; below all times if nothing has completed."""
        return self._by_completion[-1][0] if self._by_completion else BEFORE_ALL

    def times_after(self, time: str) -> set[str]:
        """Return all times of the timeline that are later."""
        times = {instant.completed or "" for instant in self.completed_after(time)}
        times.update(requested for requested in self.completed if requested > time)
        times.update(requested for requested in self.pending if requested > time)
        return times

    def pending_of(self, *actions: Action) -> list[Instant]:
        """Return pending instants of these actions, oldest request first."""
        found = (instant for instant in self.pending.values() if instant.action in actions)
        return sorted(found, key=lambda instant: instant.requested)
