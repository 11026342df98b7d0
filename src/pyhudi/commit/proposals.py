"""What can be appended to the decision log, when each is legal, and how an append turns out.

A proposal is drafted once in each round of `DecisionLog.append`, on a current live timeline.
`draft` judges first and makes the bytes afterwards, so that they may depend on the verdict. The
verdict stays true until the entry is created, because every other entry would have taken the number
that this one needs. The table of proposals is section 3 of `docs/protocol/README.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar, Protocol

from pyhudi.errors import ConflictError, HudiError, InvalidRequestError, UnavailableError
from pyhudi.format.timeline.decision_entry import (
    INLINE_BYTES_MAX,
    Creation,
    Entry,
    EntryKind,
    Target,
    closed_path,
    creation,
)
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.plan.writable import USE_LOCK
from pyhudi.read.log_view import KnownLog
from pyhudi.storage.protocol import Storage
from pyhudi.timeline.instant_time import following_time
from pyhudi.timeline.live import LiveTimeline


class Rule(StrEnum):
    """Why a proposal was refused."""

    RESTORE_PENDING = "a restore of the table is pending"
    ROLLED_BACK = (
        "another writer rolled it back: its heartbeat had expired, or that writer uses"
        " failed_writes='eager'"
    )
    NOT_INFLIGHT = "its inflight file is gone, so another engine rolled it back"
    LOG_NOT_WHOLE = "the decision log was pruned while this write slept"
    NOT_PENDING = "it is not pending"
    COMPLETED = "it has completed"
    CONFLICT = "another write completed on the same file groups"
    RESIZE = "a resize of its file groups has to be dealt with first"
    FOREIGN = "another engine writes this table"
    OTHER_LOCK = "the table has another lock since this process opened it"
    MIGRATING = "the table's buckets are being migrated since the rows were placed"
    NOT_YET = "a Hudi writer has requested an instant but has not read the timeline yet"
    DENIED = "it may no longer complete"
    NOT_COPIED = "a write that completed meanwhile is not in its new buckets yet"
    HAS_ROWS = "a write that completed has its rows in its new buckets"
    LAYOUT = "another engine broke the bucket layout"
    SCHEMA_EVOLVED = "another write evolved the table's schema in a way that contradicts its own"
    EVOLVE_FIRST = "its schema has to be on the timeline first"
    NOTHING_TO_EVOLVE = "the table has this schema already"


@dataclass(frozen=True, slots=True)
class Draft:
    """What an entry is to hold, but for its number, its time and where large bytes are staged."""

    kind: EntryKind
    action: Action  # as it is called while pending
    data: bytes  # of the file that applies the entry
    requested: str | None = None  # the instant; None if the entry's own time begins it
    begin: int | None = None  # number of the entry that began the instant
    target: Target | None = None
    whole: bool = False  # a completion that begins its instant, too
    schema: str | None = None  # fingerprint of the schema that a write records
    also: tuple[tuple[str, bytes], ...] = ()  # paths and bytes of what is created before
    basis: object = None  # what the verdict was based on, for the proposer

    @property
    def label(self) -> str:
        """Return the first part of the name of staged bytes: an instant, or "plan" if there is
        none."""
        return self.requested or (self.target.instant if self.target else "plan")

    def oversized(self) -> list[bytes]:
        """Return the bytes that do not fit into the entry, and have to be staged."""
        left, staged = INLINE_BYTES_MAX, []
        for data in (self.data, *(data for _, data in self.also)):
            if len(data) > left:
                staged.append(data)
            else:
                left -= len(data)
        return staged

    def entry(self, blank: Entry, time: str, staged: Mapping[bytes, str]) -> Entry:
        """Return the entry, from one that has its number and place in the chain.

        `staged` maps bytes that were too large to where they are.
        """
        requested = self.requested or time
        if self.whole:
            time = following_time(requested)
        return replace(
            blank,
            kind=self.kind,
            time=time,
            instant=requested,
            action=self.action,
            begin=self.begin,
            target=self.target,
            whole=self.whole,
            schema=self.schema,
            creates=self._creation(self._name(requested, time), self.data, staged),
            also=tuple(self._creation(path, data, staged) for path, data in self.also),
        )

    def _name(self, requested: str, time: str) -> str:
        """Return the name of the file that applies the entry."""
        if self.kind is EntryKind.CLOSE:
            return closed_path(requested)
        file = Instant(InstantTime(requested), self.action, State.REQUESTED)
        if self.kind is EntryKind.COMPLETE:
            done = self.action.completed_as
            file = Instant(InstantTime(requested), done, State.COMPLETED, InstantTime(time))
        return file.file_name

    def _creation(self, name: str, data: bytes, staged: Mapping[bytes, str]) -> Creation:
        return creation(name, data, staged.get(data))


@dataclass(frozen=True, slots=True)
class Decided:
    """The entry stands, and was published."""

    entry: Entry
    draft: Draft


@dataclass(frozen=True, slots=True)
class AlreadyDone:
    """The effect exists already; another process may have made it on our behalf."""

    instant: Instant


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was appended. `instant` is the one that prevents it, if one does."""

    rule: Rule
    instant: str | None = None
    detail: str = ""
    reason: object = None  # the verdict behind the rule, for the proposer


class NothingDecidedError(UnavailableError):
    """The proposal cannot be judged now, and was not appended."""


class TooBusyError(NothingDecidedError):
    """Other processes won every race for the next entry."""


def too_busy(uri: str, rounds: int) -> TooBusyError:
    return TooBusyError(
        f"the table at {uri} is too busy",
        why=f"in {rounds} rounds other processes were first to append to its decision log, or the"
        " lock was lost",
        next_step="Repeat the call, or let fewer writers commit at once",
    )


def unstaged(uri: str, error: UnavailableError) -> NothingDecidedError:
    return NothingDecidedError(
        f"the decision log of the table at {uri} could not be appended to",
        why=f"the bytes to publish could not be stored ({error.what}: {error.why})",
        next_step=error.next_step,
    )


def restless(uri: str, attempts: int) -> UnavailableError:
    return UnavailableError(
        f"the decision log of the table at {uri} changes too fast",
        why=f"its last entry vanished {attempts} times",
        next_step="Repeat the call",
    )


def undecided(uri: str, why: str) -> UnavailableError:
    return UnavailableError(
        f"an entry in the decision log of the table at {uri} could not be published",
        why=f"it was appended, and {why}",
        next_step="Repeat the call",
    )


def refusal_error(
    refused: Refused, uri: str, requested: str | None = None, *, what: str | None = None
) -> HudiError:
    """Return the error for a refusal. `what` was refused, if it is not a write."""
    if what is None:
        what = f"the write {requested}" if requested else f"a write to the table at {uri}"
    if refused.rule is Rule.FOREIGN:
        return InvalidRequestError(
            f"{what} is refused",
            why=f"another engine began {refused.instant} without an entry in the decision log, and"
            " the table has no lock which that engine takes",
            next_step=f"Call {USE_LOCK} once, with the lock which that engine takes",
        )
    if refused.rule is Rule.OTHER_LOCK:
        return ConflictError(
            f"{what} was not completed",
            why=f"{refused.rule} ({refused.detail})",
            next_step="Repeat it with the lock recorded in the table; nothing of it is visible",
        )
    by = f" ({refused.instant})" if refused.instant else ""
    return ConflictError(
        f"{what} was not completed",
        why=f"{refused.rule}{by}",
        next_step="Write again; nothing of this write is visible",
    )


#: Refusals because of the table's lock, whatever was proposed.
LOCK_RULES = (Rule.FOREIGN, Rule.OTHER_LOCK)

Outcome = Decided | AlreadyDone | Refused
Check = Callable[[LiveTimeline], Refused | None]
Announce = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Facts:
    """What a proposal may query beside the live timeline."""

    storage: Storage
    folder: str  # of the timeline
    known: KnownLog
    #: The table's buckets are being migrated, and this process opened it before.
    is_migrating: bool = False

    def is_whole_from(self, n: int) -> bool:
        """True if every entry from number n to the log's end was seen, chained to the next."""
        return self.known.is_whole_from(n)

    def is_inflight(self, requested: str, action: Action) -> bool:
        """True if the instant's inflight file is there now."""
        inflight = Instant(InstantTime(requested), action, State.INFLIGHT)
        return self.storage.stat(f"{self.folder}/{inflight.file_name}") is not None


class Proposal(Protocol):
    """Something to append to the log."""

    @property
    def requested(self) -> str | None:
        """Return the pending instant that it completes, if it is a completion."""

    @property
    def announce(self) -> Announce | None:
        """Return what the owner calls with the entry's time before the effect, in each round."""

    def draft(self, facts: Facts, live: LiveTimeline) -> Draft | Refused | AlreadyDone:
        """Judge the proposal on the timeline as it is, and then return what its entry is to
        hold."""


@dataclass(frozen=True, slots=True)
class Begin:
    """A new instant; its requested time is the time of the entry."""

    action: Action
    plan: bytes = b""
    announce: Announce | None = None  # the heartbeat, before others see the instant
    check: Check = lambda _: None

    requested: ClassVar[None] = None

    def refusal(self, facts: Facts, live: LiveTimeline) -> Refused | AlreadyDone | None:
        for restore in live.pending_of(Action.RESTORE):
            return Refused(Rule.RESTORE_PENDING, restore.requested)
        return self.check(live)

    def draft(self, facts: Facts, live: LiveTimeline) -> Draft | Refused | AlreadyDone:
        return self.refusal(facts, live) or Draft(EntryKind.BEGIN, self.action, self.plan)


@dataclass(frozen=True, slots=True)
class Complete:
    """A completion: the instant becomes visible, with these bytes as its completed file."""

    requested: str
    action: Action  # as it is called while pending
    begin: int | None  # number of the entry that began it; None if a foreign engine did
    data: bytes = b""
    check: Check = lambda _: None
    #: Of a resize: the paths and bytes of its rings, which are there before it is visible.
    also: tuple[tuple[str, bytes], ...] = ()

    announce: ClassVar[None] = None

    def refusal(self, facts: Facts, live: LiveTimeline) -> Refused | AlreadyDone | None:
        if done := live.completed.get(self.requested):
            return AlreadyDone(done)
        if rollback := live.rolled_back_by.get(self.requested):
            return Refused(Rule.ROLLED_BACK, rollback)
        if self.begin is not None and not facts.is_whole_from(self.begin):
            return Refused(Rule.LOG_NOT_WHOLE)
        # An inflight file alone is ours: this process slept until another engine had removed the
        # rest.
        is_pending = self.requested in live.pending
        if not is_pending or not facts.is_inflight(self.requested, self.action):
            return Refused(Rule.NOT_INFLIGHT)
        return self.check(live)

    def drafted(self, data: bytes, basis: object = None, schema: str | None = None) -> Draft:
        return Draft(
            EntryKind.COMPLETE,
            self.action,
            data,
            self.requested,
            self.begin,
            schema=schema,
            also=self.also,
            basis=basis,
        )

    def draft(self, facts: Facts, live: LiveTimeline) -> Draft | Refused | AlreadyDone:
        return self.refusal(facts, live) or self.drafted(self.data)


@dataclass(frozen=True, slots=True)
class Close:
    """The close of a resize: until it ends, no write that has files in an input completes."""

    requested: str
    check: Check = lambda _: None

    announce: ClassVar[None] = None

    def refusal(self, facts: Facts, live: LiveTimeline) -> Refused | AlreadyDone | None:
        if done := live.completed.get(self.requested):
            return AlreadyDone(done)
        if rollback := live.rolled_back_by.get(self.requested):
            return Refused(Rule.ROLLED_BACK, rollback)
        pending = live.pending.get(self.requested)
        if pending is None or pending.action is not Action.CLUSTERING:
            return Refused(Rule.NOT_PENDING, self.requested)
        if self.requested in live.closed:
            return AlreadyDone(pending)
        return self.check(live)

    def draft(self, facts: Facts, live: LiveTimeline) -> Draft | Refused | AlreadyDone:
        made = Draft(EntryKind.CLOSE, Action.CLUSTERING, b"", self.requested)
        return self.refusal(facts, live) or made


@dataclass(frozen=True, slots=True)
class Abort:
    """The begin of a rollback of a pending instant, by this plan."""

    target: Instant
    begin: int | None
    plan: bytes
    check: Check = lambda _: None

    requested: ClassVar[None] = None
    announce: ClassVar[None] = None

    def refusal(self, facts: Facts, live: LiveTimeline) -> Refused | AlreadyDone | None:
        requested = self.target.requested
        if requested in live.completed:
            return Refused(Rule.COMPLETED, requested)
        if rollback := live.rolled_back_by.get(requested):
            return Refused(Rule.ROLLED_BACK, rollback)
        if requested not in live.pending:
            return Refused(Rule.NOT_PENDING, requested)
        return self.check(live)

    def draft(self, facts: Facts, live: LiveTimeline) -> Draft | Refused | AlreadyDone:
        target = Target(self.target.requested, self.target.action, self.begin)
        made = Draft(EntryKind.ABORT, Action.ROLLBACK, self.plan, target=target)
        return self.refusal(facts, live) or made
