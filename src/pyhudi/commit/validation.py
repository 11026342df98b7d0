"""Validating a completion: may the write become visible on the timeline as it is?

Asked in each round of an append, under the table's lock where it has one. The answer is a value.
What cannot be read now leaves the question open: `CheckFailedError`, and nothing was decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import ClassVar, TypeAlias

from pyhudi.commit.concurrent import ConcurrentWrites
from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.ownership import OwnedPart, ownership_lost
from pyhudi.commit.proposals import AlreadyDone, Complete, Draft, Facts, Refused, Rule
from pyhudi.conflict.bucket_layout import LayoutOffence, first_offence
from pyhudi.conflict.file_groups import Footprint, footprint
from pyhudi.conflict.resizes import (
    BesideResize,
    MeetsClosed,
    MustCancel,
    MustForget,
    MustMove,
    MustRepeat,
    MustWriteTwice,
    PlacedWrite,
    Resize,
    other_through,
    own_through,
    repeat_conflict,
    resize_verdict,
)
from pyhudi.conflict.rules import (
    Conflict,
    ConflictRule,
    OwnWrite,
    PartitionFilter,
    Retry,
    first_conflict,
)
from pyhudi.conflict.schema_to_record import (
    TableSchemaText,
    WriteSchemas,
    schema_extra,
    schema_to_record,
)
from pyhudi.conflict.schemas import SchemaContradiction
from pyhudi.errors import (
    CorruptTableError,
    HudiError,
    UnavailableError,
    UnsupportedTableError,
)
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.conflict_strategy import Strategy
from pyhudi.format.timeline.commit_metadata import (
    CommitMetadata,
    WriteStat,
    encode_commit_metadata,
    stats_by_partition,
)
from pyhudi.format.timeline.instant import Action, Instant
from pyhudi.settings import WriteSettings
from pyhudi.timeline.live import PLANNED_ACTIONS, LiveTimeline
from pyhudi.timeline.timeline import WRITE_ACTIONS

#: How long a writer of another engine may take from its begin until it has read the timeline.
LOOK_AROUND_MS = 10_000


@dataclass(frozen=True, slots=True)
class KnownLayout:
    """How many buckets there are, and by partition the file ids that they are known to have.

    There is no such number where each partition has a ring.
    """

    count: int | None
    known: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Checks:
    """What is checked before a write completes, at each attempt."""

    is_checked: bool = False  # its logs, too, must not overlap another write's
    reads_nothing: bool = False  # it read nothing of the table
    is_part: bool = False  # its rows are partial, and those it counts as inserts are new
    layout: KnownLayout | None = None
    replaces: PartitionFilter | None = None
    strategy: Strategy = Strategy.BUCKET
    keeps_files: bool = False  # the files are still needed after a conflict
    #: True if buckets of these file groups can no longer be written, since another engine replaced
    #: them.
    has_replaced_bucket: Callable[[frozenset[FileGroupId]], bool] | None = None
    is_numbered: bool = True  # file ids begin with the numbers of buckets
    #: The position of a file group's node, for a report, if file ids have no numbers.
    node: Callable[[FileGroupId], int | None] | None = None
    owned: OwnedPart | None = None  # columns that its owner must still own
    schemas: WriteSchemas | None = None  # None: the metadata has the schema to record, if any
    #: Files that it no longer has, since it moved their rows to where resizes have put the buckets.
    moved: tuple[WriteStat, ...] = ()
    twice: frozenset[str] = frozenset()  # resizes in whose children it has its rows, too
    beside: tuple[BesideResize, ...] = ()  # virtual resizes in whose children it has rows


def own_write(
    requested: str,
    made: Footprint,
    checks: Checks,
    *,
    is_mor: bool,
    settings: WriteSettings,
    is_seed: bool = False,
) -> OwnWrite:
    """Return a write as the rules see it, with files in these groups."""
    # To readers, a base file among logs hides whatever completed in its file group before the
    # write began.
    new_slices = made.bases if is_mor else frozenset()
    before = footprint(CommitMetadata(stats_by_partition(checks.moved)))
    touched = made.groups | before.groups
    inserted = made.inserts | before.inserts
    return OwnWrite(
        requested,
        touched,
        new_slices,
        touched - new_slices if checks.is_checked else frozenset(),
        checks.replaces,
        partial=touched if checks.is_part else frozenset(),
        new_keys=inserted if checks.is_part else frozenset(),
        reads_nothing=checks.reads_nothing and settings.conflict_retries > 0 and is_mor,
        priority=settings.priority,
        is_numbered=checks.is_numbered,
        left=touched - made.groups,
        is_seed=is_seed,
        twice=checks.twice,
        references=made.references,
    )


class CheckFailedError(UnavailableError):
    """What a completion depends on could not be read, so nothing was decided."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The write may complete."""

    behind: frozenset[str] = (
        frozenset()
    )  # conflicting writes that it is committed behind, unchanged
    schema: TableSchemaText | None = None  # what it records


@dataclass(frozen=True, slots=True)
class NotYet:
    """A writer of another engine is about to read the timeline: wait a moment."""


@dataclass(frozen=True, slots=True)
class Denied:
    """The write may not complete, whatever others do."""

    error: HudiError


@dataclass(frozen=True, slots=True)
class SchemaConflict:
    """Another write evolved the schema since this one began, and both changes contradict."""

    contradiction: SchemaContradiction
    start: TableSchemaText | None
    now: TableSchemaText | None
    own: TableSchemaText | None
    by: Instant | None  # the write that recorded `now`; None if it was in force at the start


@dataclass(frozen=True, slots=True)
class EvolveFirst:
    """The write would change the schema behind a commit with a later request.

    Hudi's readers take the schema of the completed commit with the greatest request, be it a write
    or a table service. They would not see the change, and would read wider values wrongly. So a
    commit without rows brings the schema first (`commit.evolution`).
    """

    later: str


#: What can be done about a resize, after which the same write may complete.
ResizeInTheWay: TypeAlias = MeetsClosed | MustCancel | MustMove | MustWriteTwice | MustForget
#: Why a write may not complete now.
Refusal: TypeAlias = (
    NotYet | Denied | Conflict | LayoutOffence | SchemaConflict | EvolveFirst | ResizeInTheWay
)
Verdict: TypeAlias = Accepted | Refusal


@dataclass(frozen=True, slots=True)
class SchemaUnchanged:
    """The write records the schema in force; None if the table has none."""

    schema: TableSchemaText | None


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """The write records a schema that is not in force yet."""

    schema: TableSchemaText


@dataclass(frozen=True, slots=True)
class DocumentationChange:
    """The write records the schema in force with other documentation.

    To Hudi, and so to a write of rows, this is no change. To one that changes the schema it is.
    """

    schema: TableSchemaText


def schema_verdict(
    schemas: WriteSchemas, others: ConcurrentWrites, live: LiveTimeline
) -> SchemaUnchanged | DocumentationChange | SchemaChange | SchemaConflict | Denied:
    """Return the schema to record in the entry that comes next, or why none can be."""
    start = schemas.start
    changed = others.schema(live, start)
    now = start if changed is None else changed.text
    if now is not None and schemas.released.intersection(now.dropped):
        kept = tuple(drop for drop in now.dropped if drop not in schemas.released)
        now = replace(now, dropped=kept)
    result = schema_to_record(schemas, now)
    if isinstance(result, HudiError):
        return Denied(result)
    if isinstance(result, SchemaContradiction):
        by = None if changed is None else changed.instant
        return SchemaConflict(result, start, now, schemas.own, by)
    if result is None:
        return SchemaUnchanged(None)
    if now is None or not result.is_same(now):
        return SchemaChange(result)
    if result.is_documented_as(now):
        return SchemaUnchanged(result)
    return DocumentationChange(result)


class CompletionCheck:
    """Optimistic validation of one write."""

    def __init__(
        self,
        log: DecisionLog,
        others: ConcurrentWrites,
        own: OwnWrite,
        checks: Checks,
    ) -> None:
        self._log = log
        self._others = others
        self._own = own
        self._checks = checks

    def verdict(self, live: LiveTimeline) -> Verdict:
        """Judge the write on the timeline as it is."""
        try:
            if (denied := self._denied()) is not None:
                return denied
            if (schemas := self._checks.schemas) is None:
                return self._judged(live)
            found = schema_verdict(schemas, self._others, live)
            if isinstance(found, Denied | SchemaConflict):
                return found
            judged = self._judged(live)
            if not isinstance(judged, Accepted):
                return judged
            if isinstance(found, SchemaChange) and (later := self._later_request(live)):
                return EvolveFirst(later)
            return replace(judged, schema=found.schema)
        except (CorruptTableError, UnsupportedTableError) as error:
            return Denied(error)
        except UnavailableError as error:  # raised before anything was appended
            raise CheckFailedError(
                f"the write {self._own.requested} could not be completed",
                why=f"whether it conflicts with other writes is not known ({error.what})",
                next_step="Write again; nothing of this write is visible",
            ) from error

    def _denied(self) -> Denied | None:
        if self._checks.owned is None:
            return None
        lost = ownership_lost(self._log.storage, self._checks.owned)
        return None if lost is None else Denied(lost)

    def _judged(self, live: LiveTimeline) -> Verdict:
        own, others = self._own, self._others
        if self._must_wait(live):
            return NotYet()
        resizes = others.resizes(own, live)
        met = resize_verdict(self._placed(own), resizes)
        if isinstance(met, MustRepeat):
            return repeat_conflict(met)
        if (hidden := self._hidden(own, resizes, live)) is not None:
            return hidden
        judged = self._judged_beside(own_through(own, resizes), resizes, live)
        return judged if met is None or not isinstance(judged, Accepted) else met

    def _placed(self, own: OwnWrite) -> PlacedWrite:
        return PlacedWrite(
            own.requested,
            own.present,
            own.new_slices,
            own.references,
            own.twice,
            self._checks.beside,
        )

    def _hidden(
        self, own: OwnWrite, resizes: Sequence[Resize], live: LiveTimeline
    ) -> Conflict | None:
        """Return the conflict with a base file that hides what was written twice.

        These logs are named by the resize, which has completed. So a base file that was begun since
        lies on top of them, while a log of the write's own name would lie on the base file.
        """
        for resize in resizes:
            if resize.requested not in own.twice or resize.completed is None:
                continue
            for other, opened in self._others.bases_since(resize.completed, live):
                if hit := opened & resize.children & own.touched:
                    return Conflict(ConflictRule.HIDDEN_ROWS, other, min(hit), Retry.WRITE)
        return None

    def _judged_beside(
        self, own: OwnWrite, resizes: Sequence[Resize], live: LiveTimeline
    ) -> Verdict:
        """Judge the write by what others did, whatever has to be done about resizes."""
        checks, others = self._checks, self._others
        conflict = first_conflict(own, others.services(own, live), checks.strategy)
        if conflict is not None:
            return conflict
        offence = None
        if checks.layout is not None:
            offence = self._layout_offence(checks.layout, live)
            if offence is not None and offence.kind.breaks_table:
                return offence
        found = self._overlap(own, resizes, live)
        if offence is not None and isinstance(
            found, Accepted
        ):  # in a bucket in which it has no file
            other = others.named(offence.requested, live)
            return Conflict(ConflictRule.REPLACED, other, offence.group, Retry.WRITE)
        return found

    def _overlap(
        self, own: OwnWrite, resizes: Sequence[Resize], live: LiveTimeline
    ) -> Conflict | Accepted:
        """Return the conflict with a write, unless committing behind that write resolves it.

        A write whose logs are in the right slices need not be done again: it is committed as if it
        had begun after the other one completed.
        """
        others = self._others
        behind: set[str] = set()
        for other in chain(others.completed(own, live), others.pending(own, live)):
            compared = other_through(other, resizes)
            conflict = first_conflict(own, [compared], self._checks.strategy)
            if conflict is None:
                continue
            if conflict.retry is not Retry.COMMIT:
                return conflict
            behind.add(other.requested)
        return Accepted(frozenset(behind))

    def _later_request(self, live: LiveTimeline) -> str | None:
        """Return a commit that was requested later than this one, if there is one.

        That is a completed write, or a table service, also one that is pending: it records the
        schema as of its own begin.
        """
        own = self._own.requested
        completed = (i for i in live.completed_after(own) if i.action in WRITE_ACTIONS)
        later = chain(completed, live.pending_of(*PLANNED_ACTIONS))
        return next((i.requested for i in later if i.requested > own), None)

    def _must_wait(self, live: LiveTimeline) -> bool:
        """True if a writer of another engine is about to read the timeline; it takes a moment."""
        if self._checks.layout is None or not (self._own.appended or self._own.new_slices):
            return False
        return any(map(self._is_fresh, self._others.not_yet_inflight(live)))

    def _is_fresh(self, requested: Instant) -> bool:
        """True if it was requested, by the store's clock, less than a moment ago."""
        found = self._log.storage.stat(self._log.path(requested))
        if found is None:
            return False  # gone since
        self._log.clock.observe(found.modified_ms)
        reached = self._log.clock.at_least_ms() or found.modified_ms
        return reached - found.modified_ms < LOOK_AROUND_MS

    def _layout_offence(self, layout: KnownLayout, live: LiveTimeline) -> LayoutOffence | None:
        for instant in self._others.instants(live):
            if self._others.is_resize(instant):
                continue  # what the write does about it is judged by `conflict.resizes`
            metadata = self._others.metadata(instant)
            found = first_offence(instant.requested, metadata, layout.count, layout.known)
            if found is not None:
                return found
        return None


@dataclass(frozen=True, slots=True)
class WriteCompletion:
    """The proposal that makes a write visible: validated first, encoded afterwards."""

    requested: str
    action: Action
    begin: int | None  # number of the entry that began it
    check: CompletionCheck
    metadata: CommitMetadata
    sync: bytes

    announce: ClassVar[None] = None

    def draft(self, facts: Facts, live: LiveTimeline) -> Draft | Refused | AlreadyDone:
        complete = Complete(self.requested, self.action, self.begin)
        if (no := complete.refusal(facts, live)) is not None:
            return no
        if facts.is_migrating:
            return Refused(Rule.MIGRATING)
        verdict = self.check.verdict(live)
        if not isinstance(verdict, Accepted):
            return _refused(verdict)
        metadata, schema = self.metadata, verdict.schema
        if schema is not None:
            extra = {**schema_extra(schema), **(metadata.extra_metadata or {})}
            metadata = replace(metadata, extra_metadata=extra)
        data = encode_commit_metadata(metadata, self.sync)
        mark = None if schema is None else schema.fingerprint
        return complete.drafted(data, verdict, mark)


def _refused(verdict: Refusal) -> Refused:
    match verdict:
        case NotYet():
            return Refused(Rule.NOT_YET)
        case Denied(error):
            return Refused(Rule.DENIED, detail=error.why, reason=verdict)
        case Conflict():
            return Refused(
                Rule.CONFLICT, verdict.other.requested, verdict.rule.value, reason=verdict
            )
        case LayoutOffence():
            return Refused(Rule.LAYOUT, verdict.requested, verdict.why, reason=verdict)
        case SchemaConflict(by=by):
            other = None if by is None else by.requested
            return Refused(Rule.SCHEMA_EVOLVED, other, reason=verdict)
        case EvolveFirst(later):
            return Refused(Rule.EVOLVE_FIRST, later, reason=verdict)
        case _:
            return Refused(Rule.RESIZE, verdict.resize, reason=verdict)
