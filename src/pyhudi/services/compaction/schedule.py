"""Making compaction plans from the table, and adjusting them when they are appended to the log.

A plan may be made at any moment, whatever is under way. The decision log asks for its draft each
time it tries to create the next entry. The draft then includes what completed since the plan was
made, and nothing can complete between that check and the entry, because it would use the entry's
number.

So a plan competes with the writers for the number. On a table of a hundred thousand files it would
lose each time if it were made as a whole each time, because that takes seconds. Even listing the
folders that were written to takes longer than a small write, as soon as they hold some thousand
files. So only changes are added (`plan.compaction.rebase`): writes name their files, and only file
groups with new files are planned again. If the race is still lost repeatedly, the plan becomes
smaller, down to one file group, and is made about as fast as a small write is. The file groups that
those writes touched stay first, by the policy's order, so that the busiest file groups are not
deferred for ever.

With a lock no other process is faster, but a process that waited for the lock has slept meanwhile.
A write may have completed then, and may even have been archived: only the table as it is now shows
it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from pyhudi.commit.decision_log import BACK_OFF_FIRST_MS, DecisionLog
from pyhudi.commit.pending_plans import entered_children, entered_then, load_planned_groups
from pyhudi.commit.proposals import (
    AlreadyDone,
    Begin,
    Decided,
    Draft,
    Facts,
    Refused,
    Rule,
    refusal_error,
)
from pyhudi.format.timeline.decision_entry import EntryKind
from pyhudi.format.timeline.instant import Action, Instant
from pyhudi.format.timeline.plan_files import encode_compaction_plan
from pyhudi.plan.compaction.choose import plan_compaction
from pyhudi.plan.compaction.policy import CompactionPolicy
from pyhudi.plan.compaction.preview import CompactionPreview
from pyhudi.plan.compaction.rebase import (
    adjusted_plan,
    changes_since,
    missed_archived_writes,
    unseen_writes,
    without_old_slices,
    written_since,
)
from pyhudi.plan.pending_plans import SERVICES, PendingPlans, PlannedGroups
from pyhudi.read.lost_files import CommitRecords
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
    """Returns a table with writes that completed since; `is_told`: they name all their files."""

    def __call__(
        self, state: TableState, completed: Iterable[Instant], *, is_told: bool
    ) -> TableState: ...


class CompactionPlanning:
    """Makes plans from the table as it is, and adjusts them to what completed since."""

    def __init__(
        self,
        log: DecisionLog,
        *,
        load: Callable[[], TableState],
        load_whole: Callable[[], TableState],
        advance: Advance,
        times: Callable[[TableState], CompletionTimes],
        records: CommitRecords,
    ) -> None:
        """`load` returns the table as it is now, and `load_whole` does so even where archiving
        changed what was loaded before. `advance` adds writes that completed since, and `times`
        returns what slicing needs of the archive."""
        self._log = log
        self._load = load
        self._load_whole = load_whole
        self._advance = advance
        self._times = times
        self._records = records

    def preview(self, policy: CompactionPolicy) -> CompactionPreview:
        """Return the plan that would be made now."""
        return self.drafted(self._log.refresh(), policy).preview

    def schedule(self, policy: CompactionPolicy) -> tuple[CompactionPreview, str | None]:
        """Make a plan; return what is in it and what is not, and its requested time.

        The time is None if nothing is to be compacted.
        """
        draft = self.drafted(self._log.refresh(), policy)
        if draft.preview.is_empty:
            return draft.preview, None
        scheduling = Scheduling(self, policy, draft, self._log.world.random_bytes(16))
        # Writes that complete while it sleeps must be added, and that loses the next race.
        outcome = self._log.append(scheduling, back_off_ms=BACK_OFF_FIRST_MS)
        if isinstance(outcome, Decided):
            assert isinstance(outcome.draft.basis, CompactionPreview)
            return outcome.draft.basis, outcome.entry.instant
        assert isinstance(outcome, Refused)
        if not isinstance(outcome.reason, CompactionPreview):  # it became empty
            raise refusal_error(outcome, self._log.storage.uri)
        return outcome.reason, None

    def drafted(
        self, live: LiveTimeline, policy: CompactionPolicy, *, is_whole: bool = False
    ) -> PlanDraft:
        """Return a plan from the table as it is now, which is not older than the live timeline."""
        plans = load_plans_beside(self._log, live, {})
        state = self._load_whole() if is_whole else self._load()
        plans = with_entered(self._log, plans, state)
        times = self._times(state)
        preview = plan_compaction(state, times, plans, policy)
        groups = {(slice_.partition, slice_.file_id) for slice_ in preview.slices}
        what = f"the table at {self._log.storage.uri} cannot be compacted"
        self._records.refuse_lost(state, times, groups, what)
        return PlanDraft(without_old_slices(preview, state), plans, preview)

    def adjusted(
        self, draft: PlanDraft, live: LiveTimeline, policy: CompactionPolicy, groups_max: int
    ) -> PlanDraft:
        """Return the plan with what the live timeline has and the draft does not.

        It has at most `groups_max` file groups.
        """
        plans = load_plans_beside(self._log, live, draft.plans.groups)
        unseen = unseen_writes(draft.state.timeline, live)
        # Another engine may leave files that its commit does not name. But there the lock is held,
        # and no process wins the race while folders are listed.
        state = self._advance(draft.state, unseen, is_told=not self._log.is_shared)
        since = written_since(draft.preview, draft.state, state, policy, groups_max)
        times = self._times(since.written)
        preview = adjusted_plan(draft.preview, since, times, plans, policy, groups_max=groups_max)
        return PlanDraft(state, plans, preview)


class Scheduling:
    """Proposes a plan, and adjusts it in each round that finds changes."""

    def __init__(
        self,
        planning: CompactionPlanning,
        policy: CompactionPolicy,
        planned: PlanDraft,
        sync: bytes,
    ) -> None:
        self._planning = planning
        self._policy = policy
        self._planned = planned
        self._adjusted = 0  # how often
        self._live: LiveTimeline | None = None  # the last one; a new listing is another object
        self._sync = sync
        self._encoded: tuple[CompactionPreview, bytes] | None = None  # a large plan takes long

    requested: ClassVar[None] = None
    announce: ClassVar[None] = None  # a plan has no heartbeat until a process starts to execute it

    def draft(self, facts: Facts, live: LiveTimeline) -> Draft | Refused | AlreadyDone:
        refused = Begin(Action.COMPACTION).refusal(facts, live)
        if refused is not None:
            return refused
        if live is not self._live and missed_archived_writes(self._planned.state.timeline, live):
            self._planned = self._planning.drafted(live, self._policy, is_whole=True)
        self._live = live
        if self._changes(live) is not None:
            self._adjusted += 1
            adjusted = self._planning.adjusted
            self._planned = adjusted(self._planned, live, self._policy, self._groups_max())
        found, preview = self._changes(live), self._planned.preview
        if preview.is_empty:
            return Refused(Rule.CONFLICT, reason=preview)
        if found is not None:
            return Refused(Rule.CONFLICT, found.requested)
        if self._encoded is None or self._encoded[0] is not preview:
            self._encoded = preview, encode_compaction_plan(preview.plan, self._sync)
        return Draft(EntryKind.BEGIN, Action.COMPACTION, self._encoded[1], basis=preview)

    def _groups_max(self) -> int:
        """Return how many file groups the plan may have, and how many changed ones are read."""
        if self._adjusted <= WHOLE_MAX:
            return sys.maxsize
        return max(1, len(self._planned.preview.slices) // 2)

    def _changes(self, live: LiveTimeline) -> Instant | None:
        return changes_since(self._planned.state.timeline, self._planned.plans, live)


def with_entered(log: DecisionLog, plans: PendingPlans, state: TableState) -> PendingPlans:
    """Return the plans with what a state shows that is newer than the live timeline."""
    return replace(plans, entered={**entered_then(log, state.timeline), **plans.entered})


def load_plans_beside(log: DecisionLog, live: LiveTimeline, known: PlannedGroups) -> PendingPlans:
    """Return pending plans and their file groups; known plans are not read again."""
    services = live.pending_of(*SERVICES)
    return PendingPlans(
        {i.requested: known.get(i.requested) or load_planned_groups(log, i) for i in services},
        entered_children(log, live),
    )
