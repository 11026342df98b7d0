"""Planted bugs in what a running write takes for certain, or for a reason to yield.

As in `commit`, each weakens the code of production at one point, and has no state of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from pyhudi.commit.concurrent import ConcurrentWrites
from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.pending_plans import ServicePlan, load_service_plan
from pyhudi.commit.proposals import Refused, Rule
from pyhudi.conflict import doomed
from pyhudi.conflict.doomed import certain_conflict
from pyhudi.conflict.file_groups import Footprint
from pyhudi.conflict.resizes import Resize
from pyhudi.conflict.rules import Conflict, OtherWrite, OwnWrite, first_conflict
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.conflict_strategy import Strategy
from pyhudi.format.timeline.instant import Action, Instant
from pyhudi.timeline.live import LiveTimeline
from pyhudi.write import watch
from pyhudi.write.intent import WriteIntent
from pyhudi.write.watch import Watch

_Bug = Callable[[], AbstractContextManager[Any]]


# -- what is certain


def _pending_rivals_count() -> AbstractContextManager[Any]:
    """A rival that has announced a file counts like one that has completed: RFC-56's two kinds of
    evidence are taken for one."""
    refusal = Watch._refusal

    def weak(
        self: Watch, log: DecisionLog, others: ConcurrentWrites, made: Footprint
    ) -> Refused | None:
        if (refused := refusal(self, log, others, made)) is not None:
            return refused
        for instant in log.live.pending_of(Action.COMMIT, Action.DELTACOMMIT):
            is_other = instant.requested != self._transaction.requested
            if is_other and made.groups & others._announced(instant)[0]:
                return Refused(Rule.CONFLICT, instant.requested)
        return None

    return patch.object(Watch, "_refusal", weak)


def _settled_conflicts_count() -> AbstractContextManager[Any]:
    """A conflict that committing the same files again would settle stops the write."""
    return patch.object(WriteIntent, "reads_nothing", property(lambda self: False))


def _pending_resizes_count() -> AbstractContextManager[Any]:
    """A resize that is only planned counts like one that has completed; it may be cancelled."""

    def weak(
        own: OwnWrite, completed: Iterable[OtherWrite], resizes: Sequence[Resize], by: Strategy
    ) -> Conflict | None:
        done = [replace(each, completed=each.completed or own.requested) for each in resizes]
        return certain_conflict(own, completed, done, by)

    return patch.object(watch, "certain_conflict", weak)


def _partitions_not_compared() -> AbstractContextManager[Any]:
    """HUDI-5831: the same file id in another partition is taken for the same file group."""

    def weak(own: OwnWrite, others: Iterable[OtherWrite], by: Strategy) -> Conflict | None:
        own = replace(
            own, new_slices=_bare(own.new_slices), appended=_bare(own.appended), replaces=None
        )
        bare = [replace(each, groups=_bare(each.groups or frozenset())) for each in others]
        return first_conflict(own, bare, by)

    return patch.object(doomed, "first_conflict", weak)


def _bare(groups: frozenset[FileGroupId]) -> frozenset[FileGroupId]:
    return frozenset(FileGroupId("", group.file_id) for group in groups)


def _looks_that_leave_a_trace() -> AbstractContextManager[Any]:
    """A look lists the timeline, and the last entry, which is published later, is not known to the
    writer from then on."""

    def weak(self: DecisionLog) -> LiveTimeline:
        self._catch_up()
        if self.is_shared:
            self._live = None
        return self._current(is_guarded=False)

    return patch.object(DecisionLog, "peek", weak)


def _looks_remember_absent_plans() -> AbstractContextManager[Any]:
    """The plan of a resize that a look does not find, since it is decided and not published yet,
    is not read again at the end."""

    def weak(self: ConcurrentWrites, instant: Instant) -> ServicePlan:
        if instant.requested not in self._plans:
            self._plans[instant.requested] = load_service_plan(self._log, instant)
        return self._plans[instant.requested]

    return patch.object(ConcurrentWrites, "_plan", weak)


#: The bugs, by name.
EARLY_BUGS: dict[str, _Bug] = {
    "pending rivals count": _pending_rivals_count,
    "settled conflicts count": _settled_conflicts_count,
    "pending resizes count": _pending_resizes_count,
    "partitions not compared": _partitions_not_compared,
    "looks that leave a trace": _looks_that_leave_a_trace,
    "absent plans remembered": _looks_remember_absent_plans,
}
