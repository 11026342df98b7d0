"""Deciding a compaction plan: begun as it is if nothing completed meanwhile, or else adjusted.
And what plans say that are on the timeline already, whoever made them.

The decision log asks a job for its plan each time it tries to take the next number. What completed
since the plan was made is seen then, and nothing can complete between that look and the decision:
it would take the number.

So a plan competes with the writers for the number, and on a table of a hundred thousand files it
would lose each time if it were made as a whole each time, for that takes seconds. Even listing the
folders that were written to takes longer than a small write, as soon as they hold some thousand
files. What is new is taken in (`plan.compaction_rebase`): writes name their files, and only file
groups that got some are planned again. And if the race is lost again and again, the plan becomes
smaller, down to one file group, and is made about as fast as a small write is. What those writes
touched stays first, by the policy's order, so that the busiest file groups are not passed over for
ever.

With a lock nobody is faster, but whoever waits for it has slept meanwhile. A write may have
completed then, and may even have been archived: only from the table as it is now does one see it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from pyhudi.commit.log import DecisionLog
from pyhudi.commit.pending_plans import load_planned_groups
from pyhudi.commit.proposals import AlreadyDone, Begin, Draft, Facts, Refused, Rule
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.decision_entry import Entry, EntryKind
from pyhudi.format.timeline.instant import Action, Instant
from pyhudi.format.timeline.plan_files import (
    CompactionOperation,
    encode_compaction_plan,
)
from pyhudi.plan.compaction import (
    SERVICES,
    CompactionPreview,
    PendingPlans,
    PlannedGroups,
    omitted_file,
    unnamed_files,
)
from pyhudi.plan.compaction_rebase import changes_since, missed_archived_writes
from pyhudi.read.archive import History
from pyhudi.read.lost_files import CommitRecords, loss_error
from pyhudi.services.compaction.merge_slice import broken_plan, planned_slice
from pyhudi.table.committed_files import LostFile, with_committed
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import CompletionTimes
from pyhudi.timeline.live import LiveTimeline

#: How often a plan is adjusted before it becomes smaller each time.
WHOLE_MAX = 8


@dataclass(frozen=True, slots=True)
class PlanDraft:
    """A plan, and what it was made from."""

    state: TableState
    plans: PendingPlans
    preview: CompactionPreview


class Advance(Protocol):
    """Gives a table with writes that completed since; told ones name all their files."""

    def __call__(
        self, state: TableState, completed: Iterable[Instant], *, is_told: bool
    ) -> TableState: ...


class Scheduling:
    """The proposal of a plan."""

    def __init__(
        self,
        planned: PlanDraft,
        adjust: Callable[[PlanDraft, LiveTimeline, int], PlanDraft],
        begin_anew: Callable[[LiveTimeline], PlanDraft],
        sync: bytes,
    ) -> None:
        """`adjust` takes in what is new, and leaves a plan of at most so many file groups."""
        self._planned = planned
        self._adjust = adjust
        self._adjusted = 0  # how often
        self._begin_anew = begin_anew
        self._live: LiveTimeline | None = None  # the last one; one that was listed since is another
        self._sync = sync
        self._encoded: tuple[CompactionPreview, bytes] | None = None  # a large plan takes long

    @property
    def completes(self) -> None:
        return None

    def draft(self, facts: Facts, live: LiveTimeline) -> Draft | Refused | AlreadyDone:
        refused = Begin(Action.COMPACTION).refusal(facts, live)
        if refused is not None:
            return refused
        if live is not self._live and missed_archived_writes(self._planned.state.timeline, live):
            self._planned = self._begin_anew(live)
        self._live = live
        if self._news(live) is not None:
            self._adjusted += 1
            self._planned = self._adjust(self._planned, live, self._most())
        found, preview = self._news(live), self._planned.preview
        if preview.is_empty:
            return Refused(Rule.CONFLICT, reason=preview)
        if found is not None:
            return Refused(Rule.CONFLICT, found.requested)
        if self._encoded is None or self._encoded[0] is not preview:
            self._encoded = preview, encode_compaction_plan(preview.plan, self._sync)
        return Draft(EntryKind.BEGIN, Action.COMPACTION, self._encoded[1], basis=preview)

    def _most(self) -> int:
        """Return how many file groups the plan may have, and how many changed ones are read."""
        if self._adjusted <= WHOLE_MAX:
            return sys.maxsize
        return max(1, len(self._planned.preview.slices) // 2)

    def _news(self, live: LiveTimeline) -> Instant | None:
        return changes_since(self._planned.state.timeline, self._planned.plans, live)

    def before_effect(self, entry: Entry) -> None:
        """Do nothing: a plan has no heartbeat until a process starts to execute it."""


def load_plans_beside(log: DecisionLog, live: LiveTimeline, known: PlannedGroups) -> PendingPlans:
    """Pending plans and their file groups; those that are known are not read again."""
    services = live.pending_of(*SERVICES)
    return PendingPlans(
        {i.requested: known.get(i.requested) or load_planned_groups(log, i) for i in services}
    )


def refuse_omitted(
    log: DecisionLog,
    records: CommitRecords,
    state: TableState,
    operations: Mapping[FileGroupId, CompactionOperation],
    requested: str,
) -> None:
    """CorruptTableError for a file whose rows the plan would hide: its write had completed by the
    plan's time, and the plan does not name it. The file is lost if it is not there either."""
    committed = records.load(state, [planned_slice(o) for o in operations.values()])
    whole = with_committed(state, committed.files)
    timeline = state.timeline
    unnamed = {file.name.requested for file in unnamed_files(whole, operations, requested)}
    archived = frozenset(time for time in unnamed if timeline.is_archived(time))
    history = History(log.storage, log.history_folder)
    times = CompletionTimes(timeline, history.completion_times(archived))
    omitted = omitted_file(whole, times, operations, requested)
    if omitted is None:
        return
    listed = {file.path for group in state.groups() for file in group.files}
    if omitted in listed:
        raise broken_plan(requested, f"it leaves out {omitted!r}, which had completed by then")
    file = next(file for file in committed.files if file.path == omitted)
    lost = LostFile(file.path, file.commit, file.size, None)
    what = f"the compaction {requested} cannot be carried out"
    raise loss_error(log.storage, timeline, lost, what)
