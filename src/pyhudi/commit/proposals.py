"""What can be appended to the decision log, when each is legal, and how an append turns out.

A proposal is drafted once in each round of `DecisionLog.append`, on a current live timeline.
`draft` judges first and makes the bytes afterwards, so that they may depend on the verdict. The
verdict stays true until the entry is created, because every other entry would have taken the number
that this one needs. The table of proposals is section 3 of `docs/protocol/README.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from pyhudi.errors import ConflictError, HudiError, InvalidRequestError, UnavailableError
from pyhudi.format.timeline.decision_entry import Entry, EntryKind, Target, creation
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.plan.writable import USE_LOCK
from pyhudi.timeline.live import LiveTimeline


class Rule(StrEnum):
    """Why a decision was refused."""

    RESTORE_PENDING = "a restore of the table is under way"
    ROLLED_BACK = "another writer took it for dead, or is an eager one, and rolled it back"
    NOT_INFLIGHT = "its inflight file is gone, so another engine rolled it back"
    LOG_NOT_WHOLE = "the decision log was pruned while this write slept"
    NOT_PENDING = "it is not pending"
    COMPLETED = "it has completed"
    CONFLICT = "another write completed on the same file groups"
    FOREIGN = "another engine writes this table"
    OTHER_LOCK = "the table has another lock since this process opened it"
    NOT_YET = "another engine has begun a write, and has not looked around yet"
    DENIED = "it may not complete any more"
    LAYOUT = "another engine broke the bucket layout"
    SCHEMA_CHANGED = "the table's schema changed while it ran"


@dataclass(frozen=True, slots=True)
class Draft:
    """What an entry is to say, but for its number, its time and where large bytes are staged."""

    kind: EntryKind
    action: Action  # as it is called while pending
    data: bytes  # of the timeline file that the entry creates
    requested: str | None = None  # the instant; None if the entry's own time begins it
    begin: int | None = None  # number of the entry that began the instant
    target: Target | None = None
    basis: object = None  # what the proposal judged by, for its proposer

    @property
    def label(self) -> str:
        """Return what the name of staged bytes begins with: an instant, or that there is none."""
        return self.requested or (self.target.instant if self.target else "plan")

    def entry(self, blank: Entry, time: str, staged: str | None) -> Entry:
        """Return the entry, from one that has its number and place in the chain."""
        file = Instant(InstantTime(time), self.action, State.REQUESTED)
        if self.requested is not None:
            done = self.action.completed_as
            times = InstantTime(self.requested), InstantTime(time)
            file = Instant(times[0], done, State.COMPLETED, times[1])
        return replace(
            blank,
            kind=self.kind,
            time=time,
            instant=self.requested or time,
            action=self.action,
            begin=self.begin,
            target=self.target,
            creates=creation(file.file_name, self.data, staged),
        )


@dataclass(frozen=True, slots=True)
class Decided:
    """The entry stands, and has been carried out."""

    entry: Entry
    draft: Draft


@dataclass(frozen=True, slots=True)
class AlreadyDone:
    """What was asked for had been done before, perhaps by somebody else on our behalf."""

    instant: Instant


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was decided. `instant` is the one that stands in the way, if one does."""

    rule: Rule
    instant: str | None = None
    detail: str = ""
    reason: object = None  # the verdict behind the rule, for the proposer


class NothingDecidedError(UnavailableError):
    """It cannot be decided now, and was not."""


class TooBusyError(NothingDecidedError):
    """Others won every race for the next entry."""


def too_busy(uri: str, rounds: int) -> TooBusyError:
    return TooBusyError(
        f"the table at {uri} is too busy",
        why=f"in {rounds} rounds others were first to the next entry of its log, or the lock was"
        " lost",
        next_step="Repeat the call, or let fewer writers commit at once",
    )


def unstaged(uri: str, error: UnavailableError) -> NothingDecidedError:
    return NothingDecidedError(
        f"a decision about the table at {uri} could not be made",
        why=f"what it is to publish could not be stored ({error.what}: {error.why})",
        next_step=error.next_step,
    )


def restless(uri: str, attempts: int) -> UnavailableError:
    return UnavailableError(
        f"the decision log of the table at {uri} does not hold still",
        why=f"its last entry vanished {attempts} times",
        next_step="Repeat the call",
    )


def undecided(uri: str, why: str) -> UnavailableError:
    return UnavailableError(
        f"a decision about the table at {uri} could not be carried out",
        why=f"it was written to the log, and {why}",
        next_step="Repeat the call",
    )


def refusal_error(
    refused: Refused, uri: str, requested: str | None = None, *, what: str | None = None
) -> HudiError:
    """A refusal as an error, for the user; `what` was refused, if it is no write."""
    if what is None:
        what = f"the write {requested}" if requested else f"a write to the table at {uri}"
    if refused.rule is Rule.FOREIGN:
        return InvalidRequestError(
            f"{what} is refused",
            why=f"another engine began {refused.instant} without an entry in the decision log, and"
            " the table has no lock that it heeds",
            next_step=f"Call {USE_LOCK} once, with the lock which that engine takes",
        )
    if refused.rule is Rule.OTHER_LOCK:
        return ConflictError(
            f"{what} was not completed",
            why=f"{refused.rule} ({refused.detail})",
            next_step="Do it again, with the lock that the table tells; nothing of it is visible",
        )
    by = f" ({refused.instant})" if refused.instant else ""
    return ConflictError(
        f"{what} was not completed",
        why=f"{refused.rule}{by}",
        next_step="Write again; nothing of this write is visible",
    )


#: Refusals that have to do with the lock of the table, whatever was to be decided.
LOCK_RULES = (Rule.FOREIGN, Rule.OTHER_LOCK)

Outcome = Decided | AlreadyDone | Refused
Check = Callable[[LiveTimeline], Refused | None]


class Facts(Protocol):
    """What a proposal may ask beside the live timeline."""

    def is_whole_from(self, n: int) -> bool:
        """True if every entry from number n to the log's end was seen, chained to the next."""

    def is_inflight(self, requested: str, action: Action) -> bool:
        """True if the instant's inflight file is there now."""


class Proposal(Protocol):
    """Something to append to the log."""

    @property
    def completes(self) -> str | None:
        """Return the pending instant that it completes, if it is a completion."""

    def draft(self, facts: Facts, live: LiveTimeline) -> Draft | Refused | AlreadyDone:
        """Judge it on the timeline as it is, and then say what its entry is to hold."""

    def before_effect(self, entry: Entry) -> None:
        """Do what must be done between the entry and its effect. Called by the owner only."""


@dataclass(frozen=True, slots=True)
class Begin:
    """A new instant; its requested time is the one the entry brings."""

    action: Action
    plan: bytes = b""
    announce: Callable[[str], None] = lambda _: None  # the heartbeat, before others see it
    check: Check = lambda _: None

    @property
    def completes(self) -> None:
        return None

    def refusal(self, facts: Facts, live: LiveTimeline) -> Refused | AlreadyDone | None:
        for restore in live.pending_of(Action.RESTORE):
            return Refused(Rule.RESTORE_PENDING, restore.requested)
        return self.check(live)

    def draft(self, facts: Facts, live: LiveTimeline) -> Draft | Refused | AlreadyDone:
        return self.refusal(facts, live) or Draft(EntryKind.BEGIN, self.action, self.plan)

    def before_effect(self, entry: Entry) -> None:
        assert entry.time is not None
        self.announce(entry.time)


@dataclass(frozen=True, slots=True)
class Complete:
    """An instant becomes visible, with these bytes as its completed file."""

    requested: str
    action: Action  # as it is called while pending
    begin: int | None  # number of the entry that began it; None if a foreign engine did
    data: bytes = b""
    check: Check = lambda _: None

    @property
    def completes(self) -> str:
        return self.requested

    def refusal(self, facts: Facts, live: LiveTimeline) -> Refused | AlreadyDone | None:
        if done := live.completed.get(self.requested):
            return AlreadyDone(done)
        if rollback := live.rolled_back_by.get(self.requested):
            return Refused(Rule.ROLLED_BACK, rollback)
        if self.begin is not None and not facts.is_whole_from(self.begin):
            return Refused(Rule.LOG_NOT_WHOLE)
        # An inflight file alone is ours: this process slept until another engine had undone all.
        is_pending = self.requested in live.pending
        if not is_pending or not facts.is_inflight(self.requested, self.action):
            return Refused(Rule.NOT_INFLIGHT)
        return self.check(live)

    def drafted(self, data: bytes, basis: object = None) -> Draft:
        kind = EntryKind.COMPLETE
        return Draft(kind, self.action, data, self.requested, self.begin, basis=basis)

    def draft(self, facts: Facts, live: LiveTimeline) -> Draft | Refused | AlreadyDone:
        return self.refusal(facts, live) or self.drafted(self.data)

    def before_effect(self, entry: Entry) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Abort:
    """A rollback of a pending instant begins, by this plan."""

    target: Instant
    begin: int | None
    plan: bytes

    @property
    def completes(self) -> None:
        return None

    def refusal(self, facts: Facts, live: LiveTimeline) -> Refused | AlreadyDone | None:
        requested = self.target.requested
        if requested in live.completed:
            return Refused(Rule.COMPLETED, requested)
        if rollback := live.rolled_back_by.get(requested):
            return Refused(Rule.ROLLED_BACK, rollback)
        if requested not in live.pending:
            return Refused(Rule.NOT_PENDING, requested)
        return None

    def draft(self, facts: Facts, live: LiveTimeline) -> Draft | Refused | AlreadyDone:
        target = Target(self.target.requested, self.target.action, self.begin)
        made = Draft(EntryKind.ABORT, Action.ROLLBACK, self.plan, target=target)
        return self.refusal(facts, live) or made

    def before_effect(self, entry: Entry) -> None:
        pass
