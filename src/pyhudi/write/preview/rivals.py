"""Whom would a write meet that began now, and what would follow if the other were first?

A rival is a live writer that has announced a file in one of the write's places, or a pending plan
of a table service that has one. It began earlier, so it has the smaller instant. The rules are
those of every completion (`conflict.rules`, `conflict.resizes`), judged for the case that the rival
completes while the write is at work. A plan, or a writer of higher priority, may also be in the way
while it is pending; then that is what is found.

Nothing of this is a promise. A rival may fail, and may go on to files in other places. What is
*certain* is one thing: if the rival completes first, then the write is refused as it is, and has to
be made again. That is not so

    where the files of the write can be committed behind the rival's, or its logs are moved
    where it is an update, which may find none of its keys there
    where the rival's plan or markers cannot be read, so that it may have any file group
    where the rival may be a seed: its markers name base files only, as those of a load do
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from pyhudi.commit.concurrent import SERVICES, ConcurrentWrites
from pyhudi.commit.liveness import Liveness
from pyhudi.commit.rollback import ROLLED_BACK_ACTIONS
from pyhudi.commit.validation import own_write
from pyhudi.conflict.announced import LATEST
from pyhudi.conflict.file_groups import Footprint, touched_groups
from pyhudi.conflict.resizes import (
    MeetsClosed,
    MustCancel,
    MustMove,
    MustRepeat,
    MustWriteTwice,
    PlacedWrite,
    Resize,
    ResizeVerdict,
    resize_verdict,
)
from pyhudi.conflict.rules import (
    Conflict,
    ConflictRule,
    OtherWrite,
    Retry,
    WriteKind,
    conflict_key,
    first_conflict,
)
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.conflict_strategy import Strategy
from pyhudi.format.timeline.instant import Action, Instant
from pyhudi.format.timeline.writer_identity import WRITER_KEY, WriterIdentity, parse_writer
from pyhudi.session.session import TableSession
from pyhudi.storage.objects.heartbeats import load_owner
from pyhudi.storage.objects.markers import load_announced
from pyhudi.write.complete import rules
from pyhudi.write.intent import Reads, WriteIntent
from pyhudi.write.preview.places import Places


class Outcome(StrEnum):
    """What becomes of a write if the other one completes first."""

    BOTH = "both complete"
    BEHIND = "its files are committed behind the other's"
    AGAIN = "it is made again, or refused"
    LATER = "it yields while the other is under way"
    MOVED = "its logs are moved to the new buckets"
    CANCELS = "it cancels the resize"
    FINISHES = "it finishes the resize first"
    TWICE = "its logs go into the new buckets, too"


_RETRIES = {
    Retry.COMMIT: Outcome.BEHIND,
    Retry.WRITE: Outcome.AGAIN,
    Retry.NO: Outcome.AGAIN,
    Retry.LATER: Outcome.LATER,
}
#: What a write does about a resize: a rule's name and words, and the outcome.
_RESIZES: dict[type[ResizeVerdict], tuple[str, str, Outcome]] = {
    MeetsClosed: ("resize_closed", "the resize copies nothing more", Outcome.FINISHES),
    MustCancel: ("resize_yields", "what replaces rows wins over a resize", Outcome.CANCELS),
    MustMove: ("resize_moves", "the resize gives the bucket's rows to others", Outcome.MOVED),
    MustWriteTwice: (
        "resize_twice",
        "Hudi can execute the resize, and copies nothing",
        Outcome.TWICE,
    ),
    MustRepeat: (ConflictRule.RESIZED.name.lower(), ConflictRule.RESIZED.value, Outcome.AGAIN),
}


@dataclass(frozen=True, slots=True)
class Meeting:
    """A rival, and what would follow if it completed first."""

    other: OtherWrite
    writer: WriterIdentity
    group: FileGroupId  # where the rule applies, or one that both have
    shared: int  # places that both have
    rule: str | None
    rule_says: str | None
    outcome: Outcome
    is_certain: bool


def meetings(session: TableSession, intent: WriteIntent, places: Places) -> Iterator[Meeting]:
    """Yield the rivals of a write that would have files in these places. The session is current."""
    return _Meetings(session, intent, places).all()


class _Meetings:
    """The rivals of one write that has not begun."""

    def __init__(self, session: TableSession, intent: WriteIntent, places: Places) -> None:
        self._session = session
        self._live = session.log.live
        self._others = ConcurrentWrites(session.log, LATEST, session.action, frozenset())
        self._liveness = Liveness(session.log, session.settings)
        checks = rules(session, intent, places.partitions)
        self._strategy = checks.strategy
        self._own = own_write(
            LATEST,
            Footprint(places.groups, places.bases),
            checks,
            is_mor=session.is_mor,
            settings=session.settings,
        )
        self._finds_all = intent.reads is not Reads.ROWS
        self._keys = {self._key(group) for group in places.groups}

    def all(self) -> Iterator[Meeting]:
        live = self._live
        resizes = {each.requested: each for each in self._others.resizes(self._own, live)}
        for instant in sorted(live.pending.values(), key=lambda each: each.requested):
            if instant.action in SERVICES:
                plan = self._others.service(instant, self._own, live)
                found = None if plan is None else self._with_plan(plan, resizes)
            elif instant.action in ROLLED_BACK_ACTIONS and self._is_under_way(instant):
                found = self._with_writer(instant)
            else:
                continue
            if found is not None:
                yield found

    def _is_under_way(self, instant: Instant) -> bool:
        if self._live.rolled_back_by.get(instant.requested) is not None:
            return False
        return self._liveness.seems_writer_alive(instant)

    # -- writers

    def _with_writer(self, instant: Instant) -> Meeting | None:
        announced = load_announced(self._session.storage, instant.requested)
        groups = frozenset(marker.file_group for marker in announced.since_ms)
        bases = frozenset(m.file_group for m in announced.since_ms if m.is_of_base)
        is_replace = instant.action is Action.REPLACECOMMIT
        if is_replace and (inflight := self._others.inflight(instant)) is not None:
            groups |= touched_groups(inflight)
        writer = self._others.identity(instant)
        other = OtherWrite(
            instant.requested,
            None,
            groups if announced.damage is None else None,
            WriteKind.REPLACE if is_replace else WriteKind.WRITE,
            writer.priority,
            removals=bases,
        )
        has_bases_only = bool(groups) and groups == bases
        may_be_seed = self._session.is_mor and has_bases_only and not is_replace
        return self._met(other, writer, may_be_seed=may_be_seed)

    def _met(
        self, other: OtherWrite, writer: WriterIdentity, *, may_be_seed: bool = False
    ) -> Meeting | None:
        conflict = self._conflict(other)
        shared = self._shared(other)
        if conflict is None:
            if not shared:
                return None
            return Meeting(
                other, writer, min(shared), len(shared), None, None, Outcome.BOTH, is_certain=False
            )
        kinds = [WriteKind.WRITE, WriteKind.SEED] if may_be_seed else [other.kind]
        is_certain = other.groups is not None and self._finds_all
        is_certain &= all(self._is_refused(replace(other, kind=kind)) for kind in kinds)
        return Meeting(
            other,
            writer,
            conflict.group,
            len(shared),
            conflict.rule.name.lower(),
            conflict.rule.value,
            _RETRIES[conflict.retry],
            is_certain=is_certain,
        )

    def _conflict(self, other: OtherWrite) -> Conflict | None:
        """Return the conflict with a rival: while it is pending, or else once it is completed."""
        pending = first_conflict(self._own, [other], self._strategy)
        if pending is not None:
            return pending
        return self._conflict_once_completed(other)

    def _conflict_once_completed(self, other: OtherWrite) -> Conflict | None:
        kind = WriteKind.REPLACE if other.kind is WriteKind.CLUSTERING else other.kind
        return first_conflict(
            self._own, [replace(other, completed=LATEST, kind=kind)], self._strategy
        )

    def _is_refused(self, other: OtherWrite) -> bool:
        """True if the write cannot keep its files once the rival has completed."""
        conflict = self._conflict_once_completed(other)
        return conflict is not None and conflict.retry is not Retry.COMMIT

    # -- table services

    def _with_plan(self, plan: OtherWrite, resizes: Mapping[str, Resize]) -> Meeting | None:
        writer = parse_writer({WRITER_KEY: load_owner(self._session.storage, plan.requested)})
        resize = resizes.get(plan.requested)
        if resize is None:
            return self._met(plan, writer)
        met = self._resized(resize)
        if met is None:
            return self._met(plan, writer)
        rule, says, outcome = _RESIZES[type(met)]
        shared = self._shared(plan)
        is_certain = outcome is Outcome.AGAIN and self._finds_all
        return Meeting(plan, writer, min(shared), len(shared), rule, says, outcome, is_certain)

    def _resized(self, resize: Resize) -> ResizeVerdict | None:
        """Return what the write does about a resize: while it is pending, or once it is done."""
        own = PlacedWrite(self._own.requested, self._own.touched, self._own.new_slices)
        for each in (resize, replace(resize, completed=LATEST)):
            met = resize_verdict(own, [each])
            if met is not None:
                return met
        return None

    # -- places

    def _shared(self, other: OtherWrite) -> list[FileGroupId]:
        """Return the places that the rival has too, or may have."""
        if other.groups is None:
            return sorted(self._own.touched)
        return sorted(group for group in other.groups if self._key(group) in self._keys)

    @property
    def _key(self) -> Callable[[FileGroupId], Hashable]:
        by_number = self._own.is_numbered and self._strategy is not Strategy.SIMPLE
        return conflict_key if by_number else _itself


def _itself(group: FileGroupId) -> FileGroupId:
    return group
