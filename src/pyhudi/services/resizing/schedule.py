"""Making plans of resizes from the table, and adjusting them when they are appended to the log.

Planning costs what planning a compaction costs: the sizes of the buckets are those of the state
that is loaded anyway. The ring of a partition is read only where a size is out of bounds, the worst
partitions first, and no further once the plan is full. Of each bucket that is to be split a few
row groups are read, for its sample.

A plan may be made beside anything. Before its entry is created the decision log asks for its draft,
and there it is adjusted to what completed meanwhile (`plan.resizing.rebase`), as a compaction plan
is. That costs what the new writes name, whatever the size of the table.

On a table that Hudi shares the plan is one that Hudi can execute, too, and beside which the writers
of both engines write twice. It begins only while no write of another engine is pending.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from pyhudi.commit.decision_log import BACK_OFF_FIRST_MS, DecisionLog
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
from pyhudi.errors import CorruptTableError, UnsupportedTableError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.files.log_reference import marked_as_virtual
from pyhudi.format.table.ring_file import FIRST_INSTANT, Ring
from pyhudi.format.timeline.decision_entry import EntryKind
from pyhudi.format.timeline.instant import Action
from pyhudi.format.timeline.resize_plan import encode_resize_plan
from pyhudi.index.consistent_bucket import ring_positions
from pyhudi.plan.compaction.rebase import changes_since, missed_archived_writes, unseen_writes
from pyhudi.plan.pending_plans import PendingPlans
from pyhudi.plan.resizing.changes import LeftAlone, ResizePreview
from pyhudi.plan.resizing.choose import (
    PartitionOptions,
    ResizeFacts,
    RingLimits,
    SizedPartition,
    chosen_of,
    options_of,
    worst_partitions,
)
from pyhudi.plan.resizing.policy import ResizePolicy, ResizeWrites
from pyhudi.plan.resizing.rebase import FactsNow, only_inputs, rebased
from pyhudi.read.bucket_sample import sample_keys
from pyhudi.read.lost_files import CommitRecords
from pyhudi.services.compaction.schedule import Advance, load_plans_beside, with_entered
from pyhudi.table.file_group import FileSlice
from pyhudi.table.file_slices import is_replaced, latest_slice
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import CompletionTimes, visible_now
from pyhudi.timeline.live import LiveTimeline
from pyhudi.timeline.timeline import WRITE_ACTIONS
from pyhudi.world import new_uuid

#: Buckets of which one plan reads a sample. Those of one hash value are sampled in vain.
SAMPLES_MAX = 256

_SAMPLED_ENOUGH = "the plan has sampled enough buckets without it"


@dataclass(frozen=True, slots=True)
class ResizeDraft:
    """A plan, and what it was made from."""

    state: TableState  # with the inputs of the plan alone
    plans: PendingPlans
    preview: ResizePreview


@dataclass(frozen=True, slots=True)
class TableNow:
    """The table as it is when a plan is made, and what is pending."""

    state: TableState
    times: CompletionTimes
    plans: PendingPlans
    live: LiveTimeline

    def clusterings(self) -> dict[str, str]:
        """Return partition → the pending clustering or resize that has file groups in it."""
        return clusterings_of(self.live, self.plans)

    def latest_slices(self) -> dict[str, dict[str, FileSlice]]:
        """Return partition → file id → the latest slice."""
        return latest_slices(self.state, self.times)


@dataclass(frozen=True, slots=True)
class RingFacts:
    """What planning has to know of a table's rings."""

    ring: Callable[[str], Ring | None]  # of a partition, in force right now
    limits: RingLimits
    hash_fields: tuple[str, ...]  # every hash field named


class ResizePlanning:
    """Makes plans of resizes from the table as it is, and adjusts them to what completed since."""

    def __init__(
        self,
        log: DecisionLog,
        rings: RingFacts,
        *,
        load: Callable[[], TableState],
        load_whole: Callable[[], TableState],
        advance: Advance,
        times: Callable[[TableState], CompletionTimes],
        records: CommitRecords,
        now: Callable[[], str],
    ) -> None:
        """The arguments are those of `CompactionPlanning`; `now` is by the timeline's clock."""
        self._log = log
        self._rings = rings
        self._load = load
        self._load_whole = load_whole
        self._advance = advance
        self._times = times
        self._records = records
        self._now = now
        self._damaged: dict[str, CorruptTableError] = {}

    @property
    def damaged(self) -> tuple[CorruptTableError, ...]:
        """The errors of partitions whose rings the last plan needed, and could not read."""
        return tuple(self._damaged.values())

    def preview(self, policy: ResizePolicy) -> ResizePreview:
        """Return the plan that would be made now."""
        return self.drafted(self._log.refresh(), policy).preview

    def _refuse_shared(self, policy: ResizePolicy) -> None:
        if self._log.is_shared and policy.writes == ResizeWrites.VIRTUAL:
            raise UnsupportedTableError(
                f"no virtual resize of the table at {self._log.storage.uri} is planned",
                why="the table has a lock that Apache Hudi takes, and Hudi follows no reference",
                next_step='Leave writes="virtual" out of the policy',
            )

    def schedule(self, policy: ResizePolicy) -> tuple[ResizePreview, str | None]:
        """Make a plan; return what is in it and what is not, and its requested time.

        The time is None if nothing is to be resized.
        """
        self._refuse_shared(policy)
        draft = self.drafted(self._log.refresh(), policy)
        if draft.preview.is_empty:
            return draft.preview, None
        # Writes that complete while it sleeps must be added, and that loses the next race.
        scheduling = Scheduling(self, policy, draft)
        outcome = self._log.append(scheduling, back_off_ms=BACK_OFF_FIRST_MS)
        if isinstance(outcome, Decided):
            assert isinstance(outcome.draft.basis, ResizePreview)
            return outcome.draft.basis, outcome.entry.instant
        assert isinstance(outcome, Refused)
        if not isinstance(outcome.reason, ResizePreview):  # it became empty
            raise refusal_error(outcome, self._log.storage.uri, what=self._what)
        return outcome.reason, None

    @property
    def _what(self) -> str:
        return f"a resize of the table at {self._log.storage.uri}"

    def foreign_write(self, live: LiveTimeline) -> str | None:
        """Return a pending write of another engine, beside which no resize begins.

        It looked for pending resizes when it began, and so would not write twice.
        """
        if not self._log.is_shared:
            return None
        writes = (i.requested for i in live.pending_of(*WRITE_ACTIONS))
        return next((requested for requested in writes if not self._log.is_own(requested)), None)

    # -- making a plan

    def drafted(
        self, live: LiveTimeline, policy: ResizePolicy, *, is_whole: bool = False
    ) -> ResizeDraft:
        """Return a plan from the table as it is now, which is not older than the live timeline."""
        plans = load_plans_beside(self._log, live, {})
        state = self._load_whole() if is_whole else self._load()
        plans = with_entered(self._log, plans, state)
        times = self._times(state)
        preview = self.planned(TableNow(state, times, plans, live), policy)
        inputs = {(g.partition, g.file_id) for change in preview.changes for g in change.inputs}
        what = f"the buckets of the table at {self._log.storage.uri} cannot be resized"
        self._records.refuse_lost(state, times, inputs, what)
        return ResizeDraft(only_inputs(preview, state), plans, preview)

    def planned(self, now: TableNow, policy: ResizePolicy) -> ResizePreview:
        """Look at partitions, the worst first, until the plan is full."""
        slices = now.latest_slices()
        wanted = worst_partitions({path: _sizes(slices[path]) for path in slices}, policy)
        known: dict[str, SizedPartition] = {}
        ringless: list[LeftAlone] = []
        facts = ResizeFacts(known, now.plans, now.clusterings(), self._now())
        gathered = _Gathered(self._log, self._rings, facts, policy)
        self._damaged.clear()
        for start in range(0, len(wanted), policy.partitions_max):
            for path in wanted[start : start + policy.partitions_max]:
                if (ring := self._ring(path)) is None:
                    ringless += _without_ring(path, slices[path], self._damaged.get(path))
                else:
                    known[path] = SizedPartition(ring, slices[path], _resized(ring, now.state))
                    gathered.add(path)
            if _is_full(gathered.sampled(), policy):
                break
        preview = gathered.preview()
        later = len(wanted) - len(known) - len({each.group.partition for each in ringless})
        return ResizePreview(preview.changes, (*preview.left, *ringless), later)

    def _ring(self, partition: str) -> Ring | None:
        """Return the partition's ring; None if it has none, or one that is damaged."""
        try:
            return self._rings.ring(partition)
        except CorruptTableError as error:  # the others can be resized
            self._damaged[partition] = error
            return None

    # -- adjusting it

    def adjusted(self, draft: ResizeDraft, live: LiveTimeline) -> ResizeDraft:
        """Return the plan with what the live timeline has and the draft does not."""
        plans = load_plans_beside(self._log, live, draft.plans.groups)
        unseen = unseen_writes(draft.state.timeline, live)
        state = self._advance(draft.state, unseen, is_told=not self._log.is_shared)
        state = only_inputs(draft.preview, state)
        found = latest_slices(state, self._times(state))
        slices = {FileGroupId(path, id_): s for path in found for id_, s in found[path].items()}
        rings = {path: self._rings.ring(path) for path in state.partitions}
        now = FactsNow(rings, slices, plans, clusterings_of(live, plans))
        preview = rebased(draft.preview, now)
        return ResizeDraft(state, plans, preview)

    def is_current(self, draft: ResizeDraft) -> bool:
        """True if the rings that the plan was made on are in force."""
        return all(
            change.is_on(self._rings.ring(change.partition)) for change in draft.preview.changes
        )

    def encoded(self, preview: ResizePreview, *, is_virtual: bool) -> bytes:
        """Return the plan's file; each new bucket gets a random file id."""
        world = self._log.world
        mark = marked_as_virtual if is_virtual else str
        ids = (mark(new_uuid(world)) for _ in iter(int, 1))
        plan = replace(preview.plan(ids), is_dual=self._log.is_shared)
        return encode_resize_plan(plan, self._log.storage.uri, world.random_bytes(16))


class Scheduling:
    """Proposes a plan, and adjusts it in each round that finds changes."""

    def __init__(
        self, planning: ResizePlanning, policy: ResizePolicy, planned: ResizeDraft
    ) -> None:
        self._planning = planning
        self._policy = policy
        self._planned = planned
        self._live: LiveTimeline | None = None  # the last one; a new listing is another object
        self._encoded: tuple[ResizePreview, bytes] | None = None

    requested: ClassVar[None] = None
    announce: ClassVar[None] = None  # a plan has no heartbeat until a process starts to execute it

    def draft(self, facts: Facts, live: LiveTimeline) -> Draft | Refused | AlreadyDone:
        refused = Begin(Action.CLUSTERING).refusal(facts, live)
        if refused is not None:
            return refused
        if live is not self._live and missed_archived_writes(self._planned.state.timeline, live):
            self._planned = self._planning.drafted(live, self._policy, is_whole=True)
        self._live = live
        if self._is_outdated(live):
            self._planned = self._planning.adjusted(self._planned, live)
        preview = self._planned.preview
        if foreign := self._planning.foreign_write(live):
            inputs = (change.inputs[0] for change in preview.changes)
            why = f"the write {foreign} of another engine is pending"
            preview = preview.without(dict.fromkeys(inputs, why))
        if preview.is_empty:
            return Refused(Rule.CONFLICT, reason=preview)
        if self._is_outdated(live):
            return Refused(Rule.CONFLICT)
        if self._encoded is None or self._encoded[0] is not preview:
            is_virtual = self._policy.writes == ResizeWrites.VIRTUAL
            self._encoded = preview, self._planning.encoded(preview, is_virtual=is_virtual)
        return Draft(EntryKind.BEGIN, Action.CLUSTERING, self._encoded[1], basis=preview)

    def _is_outdated(self, live: LiveTimeline) -> bool:
        planned = self._planned
        is_changed = changes_since(planned.state.timeline, planned.plans, live) is not None
        return is_changed or not self._planning.is_current(planned)


class _Gathered:
    """What might be changed in the partitions that were looked at so far.

    The options of a partition are worked out once, and again when one of its buckets was sampled.
    So the cost does not grow with the square of the partitions, if nothing can be done in most.
    """

    def __init__(
        self, log: DecisionLog, rings: RingFacts, facts: ResizeFacts, policy: ResizePolicy
    ) -> None:
        self._storage = log.storage
        self._rings = rings
        self._facts = facts
        self._policy = policy
        self._options: dict[str, PartitionOptions] = {}
        self._open: set[str] = set()  # partitions with something to change
        self._samples: dict[FileGroupId, npt.NDArray[np.int64]] = {}

    def add(self, partition: str) -> None:
        """Work out the options of a partition, with the samples that there are."""
        limits = self._rings.limits
        found = options_of(partition, self._facts, self._policy, limits, self._samples)
        self._options[partition] = found
        self._open.discard(partition)
        if found.changes:
            self._open.add(partition)

    def sampled(self) -> ResizePreview:
        """Return the changes of the plan; what they need is sampled first."""
        while True:
            options = (self._options[partition] for partition in sorted(self._open))
            preview = chosen_of(options, self._policy)
            if not preview.unsampled or self._has_enough:
                return preview
            for change in preview.changes:
                if change.points is None:
                    self._sample(change.inputs[0], change.slices[0])
            for partition in {group.partition for group in preview.unsampled}:
                self.add(partition)

    def preview(self) -> ResizePreview:
        """Return the plan, and why everything else stays."""
        preview = chosen_of(self._options.values(), self._policy)
        return preview.without(dict.fromkeys(preview.unsampled, _SAMPLED_ENOUGH))

    @property
    def _has_enough(self) -> bool:
        return len(self._samples) + len(self._facts.broken) >= SAMPLES_MAX

    def _sample(self, group: FileGroupId, slice_: FileSlice) -> None:
        try:
            keys = sample_keys(self._storage, slice_)
        except CorruptTableError as error:
            broken = {**self._facts.broken, group: f"{error.what} ({error.why})"}
            self._facts = replace(self._facts, broken=broken)
            return
        positions = ring_positions(keys, self._rings.hash_fields)
        self._samples[group] = np.asarray(positions, np.int64)


def latest_slices(state: TableState, times: CompletionTimes) -> dict[str, dict[str, FileSlice]]:
    """Return partition → file id → the latest slice, of the file groups that readers see."""
    now = visible_now(state.timeline)
    found: dict[str, dict[str, FileSlice]] = {}
    for group in state.groups():
        if is_replaced(group, state.replaced, now):
            continue
        if (slice_ := latest_slice(group, times, now)) is not None:
            found.setdefault(group.partition, {})[group.file_id] = slice_
    return found


def _sizes(slices: Mapping[str, FileSlice]) -> list[int]:
    return [slice_.bytes for slice_ in slices.values()]


def _resized(ring: Ring, state: TableState) -> str | None:
    """Return when the last resize of a partition completed; its request, if it is archived."""
    if ring.instant == FIRST_INSTANT:
        return None
    return state.timeline.completion_times.get(ring.instant) or ring.instant


def _without_ring(
    partition: str, slices: Iterable[str], damage: CorruptTableError | None
) -> Iterator[LeftAlone]:
    why = "its partition has no ring" if damage is None else "its ring cannot be read"
    for file_id in slices:
        yield LeftAlone(FileGroupId(partition, file_id), 0, why)


def _is_full(preview: ResizePreview, policy: ResizePolicy) -> bool:
    partitions = {change.partition for change in preview.changes}
    return (
        len(partitions) >= policy.partitions_max
        or sum(change.bytes for change in preview.changes) >= policy.bytes_max
        or sum(len(change.nodes) for change in preview.changes) >= policy.buckets_max
    )


def clusterings_of(live: LiveTimeline, plans: PendingPlans) -> dict[str, str]:
    """Return partition → the pending clustering or resize that has file groups in it."""
    return {
        group.partition: plan.requested
        for plan in live.pending_of(Action.CLUSTERING)
        for group in plans.groups.get(plan.requested) or ()
    }
