"""Which writes a read may see, and when each completed.

`CompletionTimes` answers both for the active timeline together with as much of the archive as was
loaded. The archive is loaded only when a slice depends on it (`table.file_slices`), so most
reads never open it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pyhudi.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class CompletionTimes:
    """Requested time → completion time, over the active and the archived timeline."""

    timeline: Timeline
    archived: Mapping[str, str] = field(default_factory=dict)

    def of(self, requested: str) -> str | None:
        """Return the completion time; None when pending, unknown, or archived and not loaded."""
        done = self.timeline.completion_times.get(requested)
        if done is None and self.timeline.is_archived(requested):
            done = self.archived.get(requested)
        return done

    def is_committed(self, requested: str) -> bool:
        return self.timeline.is_committed(requested)


@dataclass(frozen=True, slots=True)
class Visibility:
    """The instants whose log blocks and rows one read may see. Travels to the tasks.

    `instants` are visible. So is every instant below `archived_before` that is not `hidden`: those
    left the active timeline long ago, and a file's name is all that is left of them.
    """

    instants: frozenset[str]
    archived_before: str = ""
    hidden: frozenset[str] = frozenset()

    def sees(self, requested: str) -> bool:
        if requested in self.instants:
            return True
        return requested < self.archived_before and requested not in self.hidden

    def with_instants(self, more: frozenset[str]) -> Visibility:
        return replace(self, instants=self.instants | more) if more else self


def visible_now(timeline: Timeline) -> Visibility:
    """Return the visibility of every committed instant."""
    return Visibility(
        frozenset(timeline.completion_times),
        timeline.first_active or "",
        timeline.pending_writes,
    )


def visible_at_completion(completion_times: CompletionTimes, time: str) -> Visibility:
    """Return the visibility of instants that had completed by the time.

    The archive must be loaded for older times.
    """
    timeline = completion_times.timeline
    seen = frozenset(r for r, done in timeline.completion_times.items() if done <= time)
    # Of the active ones, those that a savepoint holds lie below the first active one, too.
    known = {**completion_times.archived, **timeline.completion_times}
    late = frozenset(r for r, done in known.items() if done > time)
    return Visibility(seen, timeline.first_active or "", timeline.pending_writes | late)


def visible_at_request(timeline: Timeline, time: str) -> Visibility:
    """Return the visibility of instants requested by the time, which is Hudi's time travel.

    Those that have not completed by now are not visible.
    """
    seen = frozenset(r for r in timeline.completion_times if r <= time)
    # Archived instants newer than the time can only exist below the first active one.
    boundary = min(timeline.first_active or "", _just_after(time))
    return Visibility(seen, boundary, timeline.pending_writes)


def _just_after(time: str) -> str:
    return time + "0"


def just_before(time: str) -> str:
    """Return a text that is above every earlier time and below this one."""
    return time[:-1] + chr(ord(time[-1]) - 1)


def only(instants: frozenset[str]) -> Visibility:
    """Return the visibility of exactly these instants."""
    return Visibility(instants)
