"""Making clean plans from a loaded table, and appending them to the log if they are still right.

*Why a plan stays right.* It removes files that no retained state needs, as of one load. Writes that
complete later do not change that: a later state is made of the latest slices of that load and of
newer files, and the plan has none of either. A compaction or clustering that is planned later does
not change it either, because it reads latest slices. But another engine may compute slices
differently (Hudi #19290), so if one appeared since the load, the table is loaded again. An old file
can be needed again because of a savepoint, a restore, a rollback of a write that had completed, or
a consumer that registers with an older time. The check when the plan is appended looks for all of
these, and any instant that is appended later finds the plan on the timeline. Without a lock the
decision log has everything that pyhudi does. Instants of another engine are looked for before that,
and once more before the first file is removed.

*Consumers* are not instants. A process that registers one creates its object first and then looks
for planned cleans. A process that executes a plan looks for consumers before it removes the first
file. So either the registration fails because it is too late, or the consumer's files are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.proposals import LOCK_RULES, Begin, Check, Decided, Refused, Rule, refusal_error
from pyhudi.errors import ConflictError, HudiError, UnavailableError
from pyhudi.format.timeline.instant import Action, Instant
from pyhudi.format.timeline.plan_files import encode_cleaner_plan
from pyhudi.plan.clean_recheck import clean_changes_since, logged_changes_since, weighty_instants
from pyhudi.plan.clean_verdicts import Pins
from pyhudi.plan.cleaning import CleanPlan, CleanPolicy, plan_cleaning
from pyhudi.plan.retention import Retention
from pyhudi.read.lost_files import CommitRecords
from pyhudi.services.cleaning.pins import live_consumers, load_pins
from pyhudi.services.planned_action import has_plan
from pyhudi.storage.objects.timeline_listing import list_timeline
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import CompletionTimes
from pyhudi.timeline.live import LiveTimeline
from pyhudi.timeline.timeline import Timeline

#: How many plans may become outdated in one call before it fails.
PLAN_ATTEMPTS_MAX = 5


class CleanFacts(NamedTuple):
    """What a plan is made from."""

    state: TableState
    times: CompletionTimes
    pins: Pins
    now_ms: int  # by the store's clock


class CleanPlanning:
    """Makes plans from the table as it is, and appends them if nothing has changed since."""

    def __init__(
        self,
        log: DecisionLog,
        load: Callable[[], TableState],
        times: Callable[[TableState], CompletionTimes],
        retention: Callable[[TableState], Retention],
        records: CommitRecords,
    ) -> None:
        """`load` must read the whole active timeline as it is now, and `times` must have every
        archived write whose files are there."""
        self._log = log
        self._storage = log.storage
        self._load = load
        self._times = times
        self._retention = retention
        self._records = records

    def preview(self, policy: CleanPolicy) -> CleanPlan:
        """Return what a clean would do now."""
        facts = self.facts(self._log.clock.estimate_ms())
        pending = self._planned(facts.state.timeline.pending)
        return replace(self.plan(facts, policy), pending=pending)

    def schedule(self, policy: CleanPolicy) -> tuple[str | None, str | None]:
        """Put a plan on the timeline; return its requested time, or None if no file is removed.

        Without a plan, also return the write from which on the policy retains, if that is the
        reason. A pending plan is another reason: its files are still there, and would be planned
        once more.
        """
        for _ in range(PLAN_ATTEMPTS_MAX):
            decided = set() if self._log.is_shared else weighty_instants(self._log.refresh())
            facts = self.facts(self._log.clock.read_ms())
            pending = facts.state.timeline.pending
            refuse_beside_restore(f"cleaning the table at {self._storage.uri}", pending)
            if self._planned(pending):
                return None, None
            plan = self.plan(facts, policy)
            if not plan.count:
                return None, None if plan.earliest is None else plan.earliest.requested
            going = plan.going.select(["partition", "file_group"]).to_pydict()
            self.refuse_losses(facts, set(zip(*going.values(), strict=True)))
            data = encode_cleaner_plan(
                plan.cleaner_plan(self._storage.uri), self._log.world.random_bytes(16)
            )
            # Listing takes longer than a small write, so without a lock a plan would lose the race
            # for the next entry each time. A new savepoint is seen when the plan is executed.
            outcome = None if self._log.is_shared else self._listed_changes(facts)
            if outcome is None:
                begin = Begin(Action.CLEAN, data, check=self._unchanged(facts, decided))
                appended = self._log.append(begin)
                if isinstance(appended, Decided):
                    return appended.entry.instant, None
                assert isinstance(appended, Refused)
                outcome = appended
            if outcome.rule is not Rule.CONFLICT:
                raise clean_refusal(outcome, f"cleaning the table at {self._storage.uri}")
        raise UnavailableError(
            f"the table at {self._storage.uri} could not be cleaned",
            why=f"other table services intervened in each of {PLAN_ATTEMPTS_MAX} attempts",
            next_step="Repeat the call",
        )

    def _planned(self, pending: Iterable[Instant]) -> tuple[str, ...]:
        cleans = (instant for instant in pending if instant.action is Action.CLEAN)
        return tuple(clean.requested for clean in cleans if has_plan(self._log, clean))

    def facts(self, now_ms: int) -> CleanFacts:
        """Load what a plan is made from, at a time of the store's clock."""
        state = self._load()
        pins = load_pins(self._storage, self._log.folder, state.timeline, now_ms)
        return CleanFacts(state, self._times(state), pins, now_ms)

    def plan(self, facts: CleanFacts, policy: CleanPolicy) -> CleanPlan:
        """Return the policy's verdict on every file."""
        state = facts.state
        return plan_cleaning(
            state,
            facts.times,
            policy,
            now_ms=facts.now_ms,
            pins=facts.pins,
            retention=self._retention(state),
        )

    def refuse_losses(self, facts: CleanFacts, groups: Collection[tuple[str, str]]) -> None:
        """Raise CorruptTableError if the latest slice of one of these file groups is not whole."""
        what = f"the table at {self._storage.uri} cannot be cleaned"
        self._records.refuse_lost(facts.state, facts.times, groups, what)

    def _unchanged(self, facts: CleanFacts, decided: set[tuple[str, Action]]) -> Check:
        """Return a check, called when the plan is appended: is a file that it removes needed now?

        `decided` are the instants that the log had before the facts were loaded.
        """
        known = dict(facts.pins.consumers)

        def check(live: LiveTimeline) -> Refused | None:
            if self._log.is_shared:
                changes = self._listed_changes(facts)
            else:
                changes = _outdated(logged_changes_since(decided, facts.state.timeline, live))
            if changes is not None:
                return changes
            for name, since in live_consumers(self._storage, facts.now_ms):
                if since < known.get(name, "9" * 17):
                    return Refused(Rule.CONFLICT, detail=f"consumer {name!r} has registered")
            return None

        return check

    def _listed_changes(self, facts: CleanFacts) -> Refused | None:
        """Return what is new by a listing of the timeline, which shows savepoints, too."""
        listed = list_timeline(self._storage, self._log.folder, is_guarded=self._log.is_shared)
        return _outdated(clean_changes_since(facts.state.timeline, Timeline.of(listed)))


def _outdated(changes: Sequence[str]) -> Refused | None:
    return Refused(Rule.CONFLICT, changes[0]) if changes else None


def refuse_beside_restore(what: str, pending: Iterable[Instant]) -> None:
    """Raise if a restore is pending: it brings old slices back.

    A restore by another engine is not in the decision log.
    """
    for instant in pending:
        if instant.action is Action.RESTORE:
            raise clean_refusal(Refused(Rule.RESTORE_PENDING, instant.requested), what)


def clean_refusal(refused: Refused, what: str) -> HudiError:
    """Return the error of a refused clean; `what` names it."""
    if refused.rule in LOCK_RULES:
        return refusal_error(refused, "", what=what)
    by = f" ({refused.instant})" if refused.instant else ""
    return ConflictError(
        f"{what} was not completed",
        why=f"{refused.rule}{by}",
        next_step="Clean again when that is over. This finishes what is planned. Nothing that is"
        " needed was removed",
    )
