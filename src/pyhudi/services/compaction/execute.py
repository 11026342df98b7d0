"""Compaction: plans on the timeline, carried out by whoever comes, while writers write.

    schedule   the plan is decided; its time is later than every completion that it knows
    execute    heartbeat → inflight → markers and base files → completed, as a commit
    cancel     a rollback removes the plan and its files, for good

A plan may be made at any moment, whatever is under way. It is made outside the decision log, and
adjusted inside it if something completed meanwhile, so that a busy table cannot keep it from being
made.

A plan that was begun stays until somebody carries it out. The names of its files are fixed, so an
executor that dies is succeeded by another, which finds what is there already, and two of them at
once end in one result: one completes it, and the other is told. The heartbeat, which an executor
claims, only saves double work. Data files are made outside of `turn`, so that other threads that
share the table can write.

**Another engine on the table.** Hudi beats for a plan that it carries out, and leaves one alone
for which somebody beats. When it takes over one that was left inflight, it first deletes what an
earlier attempt left, ours too. So before a completion all files are looked for under the lock, and
made again if they must be. The other way round, what a failed attempt of
another engine left beside our files, perhaps in halves, is deleted under the lock before ours
count. If the other engine has completed the plan first, our files go, unless its own are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any, TypeAlias

from pyhudi.commit.log import BACK_OFF_FIRST_MS, DecisionLog
from pyhudi.commit.proposals import (
    LOCK_RULES,
    AlreadyDone,
    Complete,
    Decided,
    Outcome,
    Refused,
    Rule,
    refusal_error,
)
from pyhudi.commit.rollback import FailedWriteRecovery
from pyhudi.commit.transaction import writer_identity
from pyhudi.errors import (
    CorruptTableError,
    HudiError,
    InvalidRequestError,
    UnavailableError,
)
from pyhudi.format.timeline.commit_metadata import (
    CommitMetadata,
    WriteStat,
    encode_commit_metadata,
)
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.plan_files import (
    CompactionOperation,
    CompactionPlan,
    decode_compaction_plan,
)
from pyhudi.plan.compaction import (
    CompactionPolicy,
    CompactionPreview,
    plan_compaction,
)
from pyhudi.plan.compaction_rebase import (
    adjusted_plan,
    unseen_writes,
    without_old_slices,
    written_since,
)
from pyhudi.read.lost_files import CommitRecords
from pyhudi.services.compaction.merge_slice import (
    broken_plan,
    checked_groups,
)
from pyhudi.services.compaction.outcome import (
    attended,
    begun_anew,
    is_cancelled,
    load_completed,
    load_completed_metadata,
    not_completed,
    nothing_to_cancel,
)
from pyhudi.services.compaction.result import (
    CompactionResult,
    compaction_metadata,
    compaction_result,
    data_paths,
    doubles,
    missing_file,
)
from pyhudi.services.compaction.schedule import (
    Advance,
    PlanDraft,
    Scheduling,
    load_plans_beside,
    refuse_omitted,
)
from pyhudi.settings import WriteSettings
from pyhudi.storage.objects.heartbeats import Heartbeat, heartbeat_path
from pyhudi.storage.objects.markers import load_markers, marker_objects
from pyhudi.storage.objects.timeline_files import load_timeline_file
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import CompletionTimes
from pyhudi.timeline.live import LiveTimeline

#: Makes the base files of a plan: its requested time, the table's schema, its operations.
Merge: TypeAlias = Callable[[str, str, Sequence[CompactionOperation]], Iterable[WriteStat]]

#: How often the files of a plan are made again because another engine took them away.
ATTEMPTS_MAX = 3
#: What `cancel` takes.
_CANCELLABLE = (Action.COMPACTION, Action.LOGCOMPACTION)
_NOTHING: AbstractContextManager[Any] = nullcontext()


class Compactions:
    """What one process does for the compactions of one table."""

    def __init__(
        self,
        log: DecisionLog,
        recovery: FailedWriteRecovery,
        settings: WriteSettings,
        *,
        load: Callable[[], TableState],
        load_whole: Callable[[], TableState],
        advance: Advance,
        times: Callable[[TableState], CompletionTimes],
        records: CommitRecords,
        merge: Merge,
        schema: Callable[[], str],
        turn: AbstractContextManager[Any] = _NOTHING,
    ) -> None:
        """`load` gives the table as it is now, `load_whole` also where archiving changed what it
        knew, `advance` one with writes that completed since, `times` what of the archive slicing
        needs, and `merge` makes base files. `turn` is held for everything but that."""
        self._log = log
        self._recovery = recovery
        self._settings = settings
        self._storage = log.storage
        self._load = load
        self._load_whole = load_whole
        self._advance = advance
        self._times = times
        self._records = records
        self._merge = merge
        self._schema = schema
        self._turn = turn

    # -- planning

    def pending(self) -> list[Instant]:
        """Plans that wait to be carried out, oldest first."""
        with self._turn:
            return [i for i in self.plans() if i.requested not in self._log.live.rolled_back_by]

    def plans(self) -> list[Instant]:
        """Return plans that are not cancelled, also those that another engine is about to begin
        anew."""
        with self._turn:
            plans = self._log.refresh().pending_of(Action.COMPACTION)
            return [i for i in plans if self._has_plan(i.requested) and not self._is_cancelled(i)]

    def _is_cancelled(self, plan: Instant) -> bool:
        """True if a rollback targets the plan itself, not just the files of one failed run."""
        is_named = plan.requested in self._log.live.rolled_back_by
        return is_named and self._log.rollback_of(plan.requested) is not None

    def held(self, plans: Iterable[Instant]) -> list[HudiError]:
        """Of each plan that another engine is about to begin anew, and has been silent about for
        too long: that nobody else can carry it out."""
        with self._turn:
            named = self._log.live.rolled_back_by
            held = [(i.requested, named[i.requested]) for i in plans if i.requested in named]
            return [begun_anew(*names) for names in held if self._is_silent(*names)]

    def _is_silent(self, requested: str, rollback: str) -> bool:
        """As far as one can tell without touching anything."""
        states = (State.REQUESTED, State.INFLIGHT)
        rollbacks = (Instant(InstantTime(rollback), Action.ROLLBACK, state) for state in states)
        paths = (heartbeat_path(requested), *map(self._log.path, rollbacks))
        signs = [stat.modified_ms for stat in map(self._storage.stat, paths) if stat is not None]
        age = self._log.clock.estimate_ms() - max(signs, default=0)
        return age > self._settings.heartbeat_timeout_ms

    def _has_plan(self, requested: str, action: Action = Action.COMPACTION) -> bool:
        plan = Instant(InstantTime(requested), action, State.REQUESTED)
        return self._storage.stat(self._log.path(plan)) is not None

    def preview(self, policy: CompactionPolicy | None = None) -> CompactionPreview:
        """The plan that would be made now."""
        with self._turn:
            return self._drafted(self._log.refresh(), policy or CompactionPolicy()).preview

    def schedule(self, policy: CompactionPolicy | None = None) -> str | None:
        """Make a plan; its requested time, or None if nothing is to be done."""
        return self.scheduled(policy)[1]

    def scheduled(
        self, policy: CompactionPolicy | None = None
    ) -> tuple[CompactionPreview, str | None]:
        """As `schedule`, with what is in the plan and what is not."""
        policy = policy or CompactionPolicy()
        with self._turn:
            draft = self._drafted(self._log.refresh(), policy)
            if draft.preview.is_empty:
                return draft.preview, None
            adjust = partial(self._adjusted, policy=policy)
            begin_anew = partial(self._drafted, policy=policy, is_whole=True)
            sync = self._log.world.random_bytes(16)
            scheduling = Scheduling(draft, adjust, begin_anew, sync)
            # What completes while it sleeps must be worked in, and that loses the next race.
            outcome = self._log.append(scheduling, back_off_ms=BACK_OFF_FIRST_MS)
            if isinstance(outcome, Decided):
                assert isinstance(outcome.draft.basis, CompactionPreview)
                return outcome.draft.basis, outcome.entry.instant
            assert isinstance(outcome, Refused)
            if not isinstance(outcome.reason, CompactionPreview):  # it became empty
                raise refusal_error(outcome, self._storage.uri)
            return outcome.reason, None

    def _drafted(
        self, live: LiveTimeline, policy: CompactionPolicy, *, is_whole: bool = False
    ) -> PlanDraft:
        """A plan from the table as it is now, which is not before the live timeline."""
        plans = load_plans_beside(self._log, live, {})
        state = self._load_whole() if is_whole else self._load()
        times = self._times(state)
        preview = plan_compaction(state, times, plans, policy)
        groups = {(slice_.partition, slice_.file_id) for slice_ in preview.slices}
        what = f"the table at {self._storage.uri} cannot be compacted"
        self._records.refuse_lost(state, times, groups, what)
        return PlanDraft(without_old_slices(preview, state), plans, preview)

    def _adjusted(
        self, draft: PlanDraft, live: LiveTimeline, most: int, *, policy: CompactionPolicy
    ) -> PlanDraft:
        """The plan with what the live timeline has and the draft does not."""
        plans = load_plans_beside(self._log, live, draft.plans.groups)
        unseen = unseen_writes(draft.state.timeline, live)
        # Another engine may leave files that its commit does not name; but there the lock is held,
        # and nobody wins the race while folders are listed.
        state = self._advance(draft.state, unseen, is_told=not self._log.is_shared)
        since = written_since(draft.preview, draft.state, state, policy, most)
        times = self._times(since.written)
        preview = adjusted_plan(draft.preview, since, times, plans, policy, most=most)
        return PlanDraft(state, plans, preview)

    # -- carrying out

    def execute(self, requested: str, *, is_forced: bool = False) -> CompactionResult | None:
        """Carry a plan out, or what is left of it; None if another executor is at work.

        `is_forced` goes on beside another executor, which costs double work and no more.
        """
        started = self._log.world.elapsed_ms()
        with self._turn:
            if (done := load_completed(self._log, requested)) is not None:
                return self._theirs(done, started)
            plan = self._plan(requested)
            schema = self._schema()
        who = writer_identity(self._log.world, self._settings).text
        heartbeat = Heartbeat(self._storage, requested, who)
        try:
            if not self._claimed(heartbeat, is_forced=is_forced):
                return None
            return self._executed(requested, plan, schema, started)
        finally:
            with suppress(HudiError):  # what stays is swept up
                self._remove_late_inflight(requested)
            with suppress(HudiError):  # or it grows old
                heartbeat.end()

    def _claimed(self, heartbeat: Heartbeat, *, is_forced: bool) -> bool:
        """Whether the plan is ours to carry out; who comes later leaves it to us."""
        settings, log = self._settings, self._log
        timeout_ms = None if is_forced else settings.heartbeat_timeout_ms
        with self._turn:
            interval_ms = settings.heartbeat_interval_ms
            return heartbeat.claim(log.clock, log.world, interval_ms, timeout_ms)

    def is_attended(self, requested: str) -> bool:
        """Whether somebody who carries the plan out gave a sign of life not long ago."""
        if self._storage.stat(heartbeat_path(requested)) is None:
            return False
        now = self._log.clock.read_ms()  # first, so that who freezes here errs towards alive
        beat = self._storage.stat(heartbeat_path(requested))
        return beat is not None and now - beat.modified_ms <= self._settings.heartbeat_timeout_ms

    def _plan(self, requested: str) -> CompactionPlan:
        path = self._log.path(self._pending(requested).in_state(State.REQUESTED))
        data = load_timeline_file(self._storage, path)
        try:
            plan = decode_compaction_plan(data, path)
        except CorruptTableError as error:
            raise broken_plan(requested, f"{error.what} ({error.why})") from None
        operations = checked_groups(plan.operations or (), requested)
        refuse_omitted(self._log, self._records, self._load(), operations, requested)
        return plan

    def _pending(self, requested: str) -> Instant:
        """The instant, if its plan waits to be carried out."""
        instant = self._log.live.pending.get(requested)
        rollback = self._log.live.rolled_back_by.get(requested)
        if rollback is not None and instant is not None and not self._is_cancelled(instant):
            raise begun_anew(requested, rollback)
        if instant is None or rollback is not None or instant.action is not Action.COMPACTION:
            raise InvalidRequestError(
                f"there is no pending compaction {requested}",
                why=f"the rollback {rollback} cancels it" if rollback else "no plan has that time",
                next_step="Look at table.inspect.timeline(), or plan a new compaction",
            )
        return instant

    def _executed(
        self, requested: str, plan: CompactionPlan, schema: str, started: int
    ) -> CompactionResult:
        operations = plan.operations or ()
        for _ in range(ATTEMPTS_MAX):
            if (done := self._make_inflight(requested)) is not None:
                return self._theirs(done, started)
            try:
                stats = list(self._merge(requested, schema, operations))
            except HudiError as error:
                if (other := self._ended_meanwhile(requested, started, error)) is not None:
                    return other
                raise
            metadata = compaction_metadata(
                stats, schema, writer_identity(self._log.world, self._settings)
            )
            with self._turn:
                outcome = self._decided(requested, metadata)
                if isinstance(outcome, Refused) and self._may_repeat(outcome, requested):
                    continue
                if isinstance(outcome, Refused):
                    raise self._refused(outcome, requested, stats)
                return self._finished(requested, outcome, metadata, started)
        raise UnavailableError(
            f"the compaction {requested} could not be completed",
            why=f"another engine took its files away {ATTEMPTS_MAX} times",
            next_step="Let one engine carry it out, and repeat the call if it is this one",
        )

    def _make_inflight(self, requested: str) -> Instant | None:
        """The instant, if another executor has completed it meanwhile.

        Only beside its plan: an inflight file alone would stop Hudi's readers. So log and plan are
        looked at right before; who sleeps in between finds the plan gone at the end.
        """
        with self._turn:
            if (done := load_completed(self._log, requested)) is not None:
                return done
            self._pending(requested)
            if self._has_plan(requested):
                self._storage.create(self._log.path(_instant(requested, State.INFLIGHT)), b"")
            return None

    def _remove_late_inflight(self, requested: str) -> None:
        """Whatever the end was: if the plan is gone, an inflight file of ours came too late."""
        if not self._has_plan(requested):
            self._storage.delete(self._log.path(_instant(requested, State.INFLIGHT)))

    def _decided(self, requested: str, metadata: CommitMetadata) -> Outcome:
        data = encode_commit_metadata(metadata, self._log.world.random_bytes(16))
        check = partial(self._objection, requested, metadata)
        # Plans are carried out by anybody, who need not have read the log since their begin: that
        # a plan was cancelled shows in its requested file, too.
        outcome = self._log.append(Complete(requested, Action.COMPACTION, None, data, check))
        if isinstance(outcome, Refused) and (done := load_completed(self._log, requested)):
            return AlreadyDone(done)  # and it has been archived since
        return outcome

    def _objection(
        self, requested: str, metadata: CommitMetadata, live: LiveTimeline
    ) -> Refused | None:
        """Asked under the lock, where there is one."""
        if not self._has_plan(requested):
            return Refused(Rule.NOT_PENDING, requested)
        if self._log.is_shared and (gone := missing_file(self._storage, metadata)):
            return Refused(Rule.DENIED, requested, f"{gone!r} is gone")
        ours = {path for paths in data_paths(metadata).values() for path in paths}
        markers = load_markers(self._storage, requested)
        self._storage.delete_all([m.data_file for m in markers if m.data_file not in ours])
        return None

    def _may_repeat(self, refused: Refused, requested: str) -> bool:
        """Whether another engine began the plan anew, and the plan itself is still there."""
        if refused.rule not in (Rule.DENIED, Rule.NOT_INFLIGHT):
            return False
        return requested in self._log.refresh().pending

    def _refused(self, refused: Refused, requested: str, stats: Sequence[WriteStat]) -> HudiError:
        """Remove our files if the plan was cancelled meanwhile: they would stay for ever."""
        if is_cancelled(self._log, requested):
            self._storage.delete_all([stat.data_path for stat in stats])
        elif refused.rule is Rule.ROLLED_BACK and refused.instant is not None:
            return begun_anew(requested, refused.instant)
        if refused.rule not in (Rule.ROLLED_BACK, Rule.NOT_PENDING, Rule.NOT_INFLIGHT):
            return refusal_error(refused, self._storage.uri, requested)
        return not_completed(requested, refused)

    # -- the end

    def _finished(
        self, requested: str, outcome: Outcome, metadata: CommitMetadata, started: int
    ) -> CompactionResult:
        if isinstance(outcome, AlreadyDone):
            theirs = load_completed_metadata(self._log, outcome.instant)
            self._remove_unnamed(metadata, theirs)
            return self._result(outcome.instant, theirs, started, is_ours=False)
        assert isinstance(outcome, Decided)
        assert outcome.entry.time is not None
        time = InstantTime(outcome.entry.time)
        done = Instant(InstantTime(requested), Action.COMMIT, State.COMPLETED, time)
        with suppress(HudiError):  # what stays is swept up
            self._storage.delete_all(marker_objects(self._storage, requested))
        return self._result(done, metadata, started, is_ours=True)

    def _ended_meanwhile(
        self, requested: str, started: int, error: HudiError
    ) -> CompactionResult | None:
        """Asked after an error: a plan that has ended does not keep its files.

        InvalidRequestError if it was cancelled, and files are gone for that reason. What was made
        since then is swept up by its markers, which must stay: another executor may be as late.
        """
        with self._turn:
            if (done := load_completed(self._log, requested)) is not None:
                return self._theirs(done, started)
            if isinstance(error, CorruptTableError):
                self._pending(requested)
            return None

    def _theirs(self, done: Instant, started: int) -> CompactionResult:
        metadata = load_completed_metadata(self._log, done)
        return self._result(done, metadata, started, is_ours=False)

    def _remove_unnamed(self, ours: CommitMetadata, theirs: CommitMetadata) -> None:
        """Remove our files beside those of another engine, which completed the plan first."""
        for own, other in doubles(ours, theirs):
            if self._storage.stat(other) is not None:
                self._storage.delete(own)

    def _result(
        self, done: Instant, metadata: CommitMetadata, started: int, *, is_ours: bool
    ) -> CompactionResult:
        seconds = (self._log.world.elapsed_ms() - started) / 1000
        return compaction_result(done, metadata, seconds, is_ours=is_ours)

    # -- cancelling

    def cancel(self, requested: str, *, is_forced: bool = False) -> str:
        """Cancel a pending plan: remove it and the files made for it. Return the rollback's time.

        Refused while another process carries it out, unless forced. Takes a log compaction that
        Hudi planned, too: its file groups would stay taken if that Hudi never came back.
        """
        with self._turn:
            live = self._log.refresh()
            instant = live.pending.get(requested)
            rollback = live.rolled_back_by.get(requested)
            if rollback is None:
                if instant is None or instant.action not in _CANCELLABLE:
                    raise nothing_to_cancel(self._log, requested)
                if not is_forced and self.is_attended(requested):
                    raise attended(requested, self._settings.heartbeat_timeout_ms)
                rollback = self._aborted(instant)
            self._recovery.undo(rollback)
            if self._has_plan(requested, Action.COMPACTION if instant is None else instant.action):
                raise begun_anew(requested, rollback)
            return rollback

    def _aborted(self, instant: Instant) -> str:
        outcome = self._recovery.abort(instant)
        if isinstance(outcome, Decided):
            assert outcome.entry.instant is not None
            return outcome.entry.instant
        assert isinstance(outcome, Refused)
        if outcome.rule is Rule.ROLLED_BACK and outcome.instant is not None:
            return outcome.instant  # another process cancels it, too
        if outcome.rule in LOCK_RULES:
            raise refusal_error(outcome, self._storage.uri)
        raise nothing_to_cancel(self._log, instant.requested)


def _instant(requested: str, state: State) -> Instant:
    return Instant(InstantTime(requested), Action.COMPACTION, state)
