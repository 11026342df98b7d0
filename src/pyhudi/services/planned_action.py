"""The life of a plan that any process may execute: compaction, resizing and cleaning.

    schedule   the plan is appended to the log, and then is on the timeline
    execute    heartbeat → inflight → work → completed
    cancel     the plan ends without its work

Scheduling and cancelling are a service's own: it proposes a plan to the decision log in the way
that keeps the plan right (`schedule` of each service), and it defines how a plan that was begun may
end. Executing is the same for all services, and each supplies its steps.

**Any process, any number of times.** A plan stays until a process completes or cancels it. A
service makes its work repeatable: the names of its files are fixed, or it only deletes. So an
executor that dies is succeeded by another, and two at once end in one result: the decision log
accepts one completion, and the other executor finds it there. The heartbeat only saves double work.
Work is done outside of `exclusive`, so that other threads that share the table can write.

**A plan that has ended.** An executor may sleep at any step. That a plan is gone from the timeline
does not mean that it was cancelled: another executor may have completed it, and it may have been
archived since. The timeline is read before the archive, because an instant is added to the archive
before it leaves the timeline. An inflight file is created right after the log and the plan were
read, and a completion is refused once the plan is gone: neither may bring back an archived
instant.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.liveness import Liveness
from pyhudi.commit.proposals import AlreadyDone, Complete, Decided, Outcome, Refused, Rule
from pyhudi.commit.transaction import writer_identity
from pyhudi.errors import (
    ConflictError,
    CorruptTableError,
    HudiError,
    InvalidRequestError,
    UnavailableError,
)
from pyhudi.format.timeline.commit_metadata import CommitMetadata
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.read.archive import History, as_instant
from pyhudi.settings import WriteSettings
from pyhudi.storage.objects.heartbeats import Heartbeat, heartbeat_path
from pyhudi.timeline.live import LiveTimeline
from pyhudi.timeline.timeline import WRITE_ACTIONS

#: How often the work of a plan is done in one call, because another engine undid it.
WORK_ATTEMPTS_MAX = 3
NOT_EXCLUSIVE: AbstractContextManager[Any] = nullcontext()

Plan = TypeVar("Plan")
Work = TypeVar("Work")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Execution(Generic[Plan]):
    """One process's run of a plan."""

    requested: str
    plan: Plan
    started_ms: int  # by the steady clock

    def with_plan(self, plan: Plan) -> Execution[Plan]:
        return replace(self, plan=plan)


def has_plan(log: DecisionLog, instant: Instant) -> bool:
    """True if the plan is on the timeline; an inflight file alone may be a late file."""
    return log.storage.stat(log.path(instant.in_state(State.REQUESTED))) is not None


class PlannedAction(ABC, Generic[Plan, Work, Result]):
    """What one process does for the plans of one action of one table."""

    action: ClassVar[Action]

    def __init__(
        self,
        log: DecisionLog,
        settings: WriteSettings,
        exclusive: AbstractContextManager[Any] = NOT_EXCLUSIVE,
    ) -> None:
        """Hold `exclusive` for everything but the work."""
        self._log = log
        self._storage = log.storage
        self._settings = settings
        self._exclusive = exclusive
        self._liveness = Liveness(log, settings)

    @property
    def called(self) -> str:
        """What users call a plan of this service."""
        return self.action.value

    # -- what a service supplies

    @abstractmethod
    def _load_plan(self, requested: str) -> Plan:
        """Return a plan of the timeline, with what its work needs; raise if it cannot be used."""

    def _rechecked(self, run: Execution[Plan]) -> Execution[Plan]:
        """Return the run with its plan as the table of this moment needs it, before its work."""
        return run

    @abstractmethod
    def _work(self, run: Execution[Plan]) -> Work:
        """Do the work. Other processes may have done a part of it, or be doing it now."""

    @abstractmethod
    def _encoded(self, run: Execution[Plan], work: Work) -> bytes:
        """Return the completed file."""

    def _objection(self, run: Execution[Plan], work: Work) -> Refused | None:
        """Return why the work may not count. Called under the lock, where the table has one."""
        return None

    @abstractmethod
    def _result(self, run: Execution[Plan], work: Work, done: Instant, *, is_ours: bool) -> Result:
        """Return the result of a completed run. Not `is_ours`: another process completed it."""

    @abstractmethod
    def _ended_before(self, requested: str, ended: Instant, started_ms: int) -> Result:
        """Return the result of a plan that ended before this process did its work.

        If `ended` is not completed, the plan is gone and nothing records how it ended.
        """

    @abstractmethod
    def _refusal(self, refused: Refused, run: Execution[Plan], work: Work) -> HudiError:
        """Return the error of a refused completion, and remove files that can no longer count."""

    # -- which plans are there

    def pending(self) -> list[Instant]:
        """Return plans that wait to be executed, oldest first."""
        with self._exclusive:
            return [i for i in self.plans() if i.requested not in self._log.live.rolled_back_by]

    def plans(self) -> list[Instant]:
        """Return plans that are not cancelled, even if another engine is about to restart them."""
        with self._exclusive:
            plans = self._log.refresh().pending_of(self.action)
            return [i for i in plans if self._has_plan(i.requested) and not self._is_cancelled(i)]

    def _has_plan(self, requested: str) -> bool:
        return has_plan(self._log, Instant(InstantTime(requested), self.action, State.REQUESTED))

    def _is_cancelled(self, plan: Instant) -> bool:
        """True if a rollback targets the plan itself, not just the files of one failed run."""
        is_named = plan.requested in self._log.live.rolled_back_by
        return is_named and self._log.rollback_of(plan.requested) is not None

    def _path(self, requested: str, state: State) -> str:
        return self._log.path(Instant(InstantTime(requested), self.action, state))

    # -- executing

    def execute(self, requested: str, *, is_forced: bool = False) -> Result | None:
        """Execute a plan, or what is left of it; None if another process is executing it.

        With `is_forced`, execute it even beside another executor, which only costs double work.
        """
        started = self._log.world.elapsed_ms()
        with self._exclusive:
            if (done := self._completed(requested)) is not None:
                return self._ended_before(requested, done, started)
            try:
                run = Execution(requested, self._load_plan(requested), started)
            except HudiError as error:
                if (done := self._ended_meanwhile(requested, error)) is None:
                    raise
                return self._ended_before(requested, done, started)
        writer = writer_identity(self._log.world, self._settings).text
        heartbeat = Heartbeat(self._storage, requested, writer)
        try:
            if not self._claimed(heartbeat, is_forced=is_forced):
                return None
            return self._executed(run)
        finally:
            with suppress(HudiError):  # what stays is swept up
                self._remove_late_inflight(requested)
            with suppress(HudiError):  # a heartbeat that stays expires
                heartbeat.end()

    def is_being_executed(self, requested: str) -> bool:
        """True if a process that executes the plan has a live heartbeat."""
        heartbeat = heartbeat_path(requested)
        return self._storage.stat(heartbeat) is not None and self._liveness.is_alive(heartbeat)

    def _claimed(self, heartbeat: Heartbeat, *, is_forced: bool) -> bool:
        """True if this process has claimed the plan; later ones then leave it to this one."""
        settings, log = self._settings, self._log
        timeout_ms = None if is_forced else settings.heartbeat_timeout_ms
        with self._exclusive:
            interval_ms = settings.heartbeat_interval_ms
            return heartbeat.claim(log.clock, log.world, interval_ms, timeout_ms)

    def _executed(self, run: Execution[Plan]) -> Result:
        requested = run.requested
        for _ in range(WORK_ATTEMPTS_MAX):
            with self._exclusive:
                run = self._rechecked(run)
                if (ended := self._make_inflight(requested)) is not None:
                    return self._ended_before(requested, ended, run.started_ms)
            try:
                work = self._work(run)
            except HudiError as error:
                if (done := self._completed_meanwhile(requested, error)) is not None:
                    return self._ended_before(requested, done, run.started_ms)
                raise
            outcome = self._completion(run, work)
            with self._exclusive:
                if not self._must_repeat(outcome, requested):
                    return self._finished(run, work, outcome)
        raise UnavailableError(
            f"the {self.called} {requested} could not be completed",
            why=f"another engine undid its work {WORK_ATTEMPTS_MAX} times",
            next_step="Let only one engine execute it. Repeat the call if that is pyhudi",
        )

    def _make_inflight(self, requested: str) -> Instant | None:
        """Create the inflight file; return the instant instead if it has ended meanwhile.

        The file is created only beside its plan, because alone it would stand for a plan that no
        process can read. A process that sleeps after this check finds the plan gone when it
        completes.
        """
        if (done := self._completed(requested)) is not None:
            return done
        instant = self._pending(requested)
        if not self._has_plan(requested):
            return instant.in_state(State.REQUESTED)
        self._storage.create(self._path(requested, State.INFLIGHT), b"")
        return None

    def _remove_late_inflight(self, requested: str) -> None:
        """Remove our inflight file if the plan is gone, because it was then created too late."""
        if not self._has_plan(requested):
            self._storage.delete(self._path(requested, State.INFLIGHT))

    def _completed_meanwhile(self, requested: str, error: HudiError) -> Instant | None:
        """Return the completed instant, if that explains an error of the work."""
        return self._ended_meanwhile(requested, error)

    def _ended_meanwhile(self, requested: str, error: HudiError) -> Instant | None:
        """Return the completed instant, if that explains an error: a plan that has ended may lose
        its files, and no longer fit the table.

        Raise InvalidRequestError if the plan was cancelled, and files are gone for that reason.
        Files made since then are swept up by their markers. The markers must stay, because another
        executor may be as late.
        """
        with self._exclusive:
            done = self._completed(requested)
            if done is None and isinstance(error, CorruptTableError):
                self._pending(requested)
            return done

    # -- completing

    def _completion(self, run: Execution[Plan], work: Work) -> Outcome:
        """Propose the completion. A service whose work goes on meanwhile does more."""
        with self._exclusive:
            return self._complete(run, work)

    def _complete(self, run: Execution[Plan], work: Work) -> Outcome:
        data = self._encoded(run, work)
        # An executor need not have read the log since the plan's begin, so it names no begin entry.
        check = partial(self._verdict, run, work)
        outcome = self._log.append(Complete(run.requested, self.action, None, data, check))
        if isinstance(outcome, Refused) and (done := self._completed(run.requested)) is not None:
            return AlreadyDone(done)  # and it has been archived since
        return outcome

    def _verdict(self, run: Execution[Plan], work: Work, _: LiveTimeline) -> Refused | None:
        if not self._has_plan(run.requested):
            return Refused(Rule.NOT_PENDING, run.requested)
        return self._objection(run, work)

    def _must_repeat(self, outcome: Outcome, requested: str) -> bool:
        """True if another engine undid the work, and the plan itself is still there."""
        if not isinstance(outcome, Refused):
            return False
        is_lost = outcome.rule in (Rule.DENIED, Rule.NOT_INFLIGHT)
        return is_lost and requested in self._log.refresh().pending

    def _finished(self, run: Execution[Plan], work: Work, outcome: Outcome) -> Result:
        if isinstance(outcome, Refused):
            raise self._refusal(outcome, run, work)
        if isinstance(outcome, AlreadyDone):
            return self._result(run, work, outcome.instant, is_ours=False)
        return self._result(run, work, self._done(outcome), is_ours=True)

    def _done(self, decided: Decided) -> Instant:
        assert decided.entry.instant is not None
        assert decided.entry.time is not None
        times = InstantTime(decided.entry.instant), InstantTime(decided.entry.time)
        return Instant(times[0], self.action.completed_as, State.COMPLETED, times[1])

    # -- how a plan ended

    def _completed(self, requested: str) -> Instant | None:
        """Return the instant if it has completed, from the timeline or the archive."""
        live = self._log.refresh()
        if requested in live.completed or requested in live.pending:
            return live.completed.get(requested)
        found = self._history().instant(requested)
        if found is None or found.action not in {self.action, *WRITE_ACTIONS}:
            return None
        return as_instant(found)

    def _was_cancelled(self, requested: str) -> bool:
        """True if a rollback says that no file of the instant will ever count.

        Only then may an executor that slept remove its files, because the names of a cancelled
        instant are never used again. Where this is not known, the files stay.
        """
        live = self._log.refresh()
        if requested in live.completed:
            return False
        if self._log.rollback_of(requested) is not None:
            return True
        if requested in live.pending:
            return False
        history = self._history()
        return history.instant(requested) is None and history.is_undone(requested)

    def _pending(self, requested: str) -> Instant:
        """Return the instant if its plan is pending; raise InvalidRequestError otherwise."""
        instant = self._log.live.pending.get(requested)
        rollback = self._log.live.rolled_back_by.get(requested)
        if instant is None or rollback is not None or instant.action is not self.action:
            why = f"the rollback {rollback} cancels it" if rollback else "no plan has that time"
            raise self._not_pending(requested, why)
        return instant

    def _load_metadata(self, done: Instant) -> CommitMetadata:
        """Return the metadata of the completed instant; empty if it was not retained."""
        try:
            return self._history().write_metadata(self._log.folder, done)
        except UnavailableError:
            return CommitMetadata()

    def _history(self) -> History:
        return History(self._storage, self._log.history_folder)

    # -- errors

    def _not_pending(self, requested: str, why: str) -> InvalidRequestError:
        return InvalidRequestError(
            f"there is no pending {self.called} {requested:.100}",
            why=why,
            next_step=f"Look at table.inspect.timeline(), or plan a new {self.called}",
        )

    def _nothing_to_cancel(self, requested: str) -> InvalidRequestError:
        done = self._completed(requested)
        why = "no plan has that time" if done is None else f"it has completed at {done.completed}"
        return InvalidRequestError(
            f"there is no pending {self.called} {requested:.100} to cancel",
            why=why,
            next_step="Look at table.inspect.timeline()",
        )

    def _cannot_cancel_now(self, requested: str) -> ConflictError:
        timeout = f"{self._settings.heartbeat_timeout_ms / 1000:g} s"
        return ConflictError(
            f"the {self.called} {requested} cannot be cancelled now",
            why="another process seems to execute it: its last sign of life is not older than"
            f" {timeout}",
            next_step=f"Let it end, or repeat the call once it has been silent for {timeout}",
        )
