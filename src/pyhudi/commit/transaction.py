"""The life of one instant of ours: begun, written, and then completed or given up.

    with heartbeat and requested file → inflight → markers and data files → completed

Whatever stops on the way leaves a pending instant behind, which nobody sees, and which this
process gives up at once if it can, or the next writer does when the heartbeat has grown old.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from pyhudi.commit.concurrent import Rivals
from pyhudi.commit.conflict_report import (
    GIVEN_UP_RULES,
    Loser,
    conflict_error,
    given_up_error,
    schema_error,
)
from pyhudi.commit.log import DecisionLog
from pyhudi.commit.proposals import (
    AlreadyDone,
    Begin,
    Complete,
    Decided,
    NothingDecidedError,
    Outcome,
    Refused,
    Rule,
    refusal_error,
)
from pyhudi.commit.rollback import FailedWriteRecovery
from pyhudi.conflict.bucket_layout import LayoutOffence, first_offence, layout_error
from pyhudi.conflict.file_groups import touched_groups
from pyhudi.conflict.rules import (
    Cleared,
    Conflict,
    ConflictRule,
    OwnWrite,
    Retry,
    first_conflict,
)
from pyhudi.errors import (
    ConflictError,
    CorruptTableError,
    HudiError,
    InvalidRequestError,
    OutcomeUnknownError,
    UnavailableError,
    UnsupportedTableError,
)
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.conflict_strategy import Strategy
from pyhudi.format.timeline.commit_metadata import CommitMetadata, WriteStat, encode_commit_metadata
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.writer_identity import (
    WRITER_KEY,
    WriterIdentity,
    parse_label,
    parse_writer,
)
from pyhudi.read.schema import RecordedSchema, is_same_schema, schema_change
from pyhudi.settings import WriteSettings
from pyhudi.storage.objects.heartbeats import Heartbeat
from pyhudi.storage.objects.markers import load_markers, marker_objects
from pyhudi.storage.objects.write_fence import close_fence, open_fence
from pyhudi.timeline.live import Ledger
from pyhudi.world import World

#: How long a writer of another engine may take from its beginning until it has looked around.
LOOK_AROUND_MS = 10_000
LOOK_AROUND_PAUSE_MS = 100


@dataclass(frozen=True, slots=True)
class BucketLayout:
    """How many buckets there are, and by partition the file ids that they are known to have."""

    count: int
    known: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Checks:
    """What a write asks before it completes, each time it tries to."""

    is_checked: bool = False  # whether its logs, too, must not meet another write's
    is_blind: bool = False  # whether it read nothing of the table
    is_part: bool = False  # whether its rows are parts, and those it counts as inserts are new
    layout: BucketLayout | None = None
    clears: Cleared | None = None
    strategy: Strategy = Strategy.BUCKET
    keeps_files: bool = False  # whether the files are still needed after a conflict
    #: Whether buckets of these file groups can be written no more, since another engine's commit.
    are_closed: Callable[[frozenset[FileGroupId]], bool] | None = None
    recheck: Callable[[], None] | None = None  # InvalidRequestError if it may not complete any more


class CheckFailedError(UnavailableError):
    """What a completion depends on could not be read, so nothing was decided."""


class Transaction:
    """An instant that this process has begun."""

    def __init__(
        self,
        log: DecisionLog,
        settings: WriteSettings,
        action: Action,
        recovery: FailedWriteRecovery,
        *,
        begun: tuple[str, int] | None = None,
        pending: Collection[str] | None = None,
    ) -> None:
        """Begin an instant, or take up one that another process of ours has `begun`: its requested
        time and the number of its entry, and what was `pending` then. Who takes it up lets the
        heartbeat be."""
        self._log = log
        self._settings = settings
        self._recovery = recovery
        self._heartbeat: Heartbeat | None = None
        self._staged: str | None = None
        self._offence: LayoutOffence | None = None
        self._conflict: Conflict | None = None
        self._denied: HudiError | None = None
        self._schema: str | None = None  # what it is about to record
        self._new_schema: RecordedSchema | None = None  # what others recorded since, if it differs
        self.accepted: set[str] = set()  # writes behind which it was committed again, as it is
        self.has_kept_files = False  # whether it lost, and its files wait to be written anew
        self.writer = writer_identity(log.world, settings)
        self._began_ms = log.world.elapsed_ms()
        self.action = action
        self._is_over = False  # decided, or in the log's hands
        self.is_fenced = False  # whether its tasks run elsewhere, and a fence keeps late ones out
        if begun is not None:
            self.requested, self.number = begun
            self._heartbeat = Heartbeat(log.storage, self.requested)
            before = None if pending is None else frozenset(pending)
            self._rivals = Rivals(log, self.requested, action, before)
            return
        try:
            self.requested, self.number = self._begun()
            self._rivals = Rivals(log, self.requested, action, frozenset(log.ledger.pending))
            log.storage.create(log.path(self._instant(State.INFLIGHT)), self._introduction())
        except BaseException:
            self._stop_beating()  # or it would look alive for as long as this process lives
            raise

    def _begun(self) -> tuple[str, int]:
        outcome = self._log.append(Begin(self.action, announce=self._announce))
        if isinstance(outcome, Refused):
            raise refusal_error(outcome, self._log.storage.uri)
        assert isinstance(outcome, Decided)
        assert outcome.entry.instant is not None
        return outcome.entry.instant, outcome.entry.n

    def _introduction(self) -> bytes:
        """What the inflight file says: who writes."""
        metadata = CommitMetadata(extra_metadata={WRITER_KEY: self.writer.text})
        return encode_commit_metadata(metadata, self._log.world.random_bytes(16))

    def _announce(self, requested: str) -> None:
        """Called in each round that finds the begin decided: its heartbeat never goes meanwhile."""
        if self._heartbeat is not None:
            if self._heartbeat.requested == requested:
                self._heartbeat.stop()
            else:
                self._heartbeat.end()
        self._heartbeat = Heartbeat(self._log.storage, requested)
        self._heartbeat.start(self._log.world, self._settings.heartbeat_interval_ms)

    def _instant(self, state: State) -> Instant:
        return Instant(InstantTime(self.requested), self.action, state)

    def leave(self) -> None:
        """Stop beating without giving the instant up: another process goes on with it."""
        self._is_over = True
        self._stop_beating()

    # -- the good end

    def close(self, files: Collection[str]) -> list[str]:
        """Let no task create another file; return announced files that are not among `files`.

        For writes whose tasks may outlive them. A file that no reported attempt wrote means that
        two attempts of a task disagree.
        """
        storage = self._log.storage
        close_fence(storage, self.requested)
        announced = (marker.data_file for marker in load_markers(storage, self.requested))
        return sorted(set(announced) - set(files))

    def complete(self, metadata: CommitMetadata, checks: Checks | None = None) -> str:
        """Make the write visible; its completion time.

        ConflictError if another write stands in the way (`conflict.rules`). Whatever the error,
        unless it says that the outcome is unknown, nothing of the write is ever visible.
        """
        checks = checks or Checks()
        extra = {**(metadata.extra_metadata or {}), WRITER_KEY: self.writer.text}
        metadata = replace(metadata, extra_metadata=extra)
        data = encode_commit_metadata(metadata, self._log.world.random_bytes(16))
        own = self._own(metadata, checks)
        self._schema = metadata.schema_json
        check = partial(self._refusal, own, checks)
        self._staged = self._log.stage(self.requested, data)
        outcome = self._decide(
            Complete(self.requested, self.action, self.number, data, self._staged, check)
        )
        if isinstance(outcome, Refused):
            self._is_over = False
            error = self._told(outcome, own, checks, metadata)  # before its files are gone
            self._drop_staged()
            self.has_kept_files = checks.keeps_files and outcome.rule is Rule.CONFLICT
            if self.has_kept_files:
                self._beat_again()
            else:
                self.abandon()
            raise error
        self._tidy()
        time = outcome.instant.completed if isinstance(outcome, AlreadyDone) else outcome.entry.time
        assert time is not None
        return time

    def _drop_staged(self) -> None:
        """Of a refused completion no entry names the bytes."""
        if self._staged is not None:
            with suppress(HudiError):
                self._log.storage.delete(self._staged)

    def _beat_again(self) -> None:
        """Stay alive, to be given up later by whoever was told of the conflict."""
        if self._heartbeat is not None:
            self._heartbeat.start(self._log.world, self._settings.heartbeat_interval_ms)

    def _own(self, metadata: CommitMetadata, checks: Checks) -> OwnWrite:
        touched, opened = touched_groups(metadata), self._opened(metadata)
        return OwnWrite(
            self.requested,
            touched,
            opened,
            touched - opened if checks.is_checked else frozenset(),
            checks.clears,
            parts=touched if checks.is_part else frozenset(),
            fresh=_with_inserts(metadata) if checks.is_part else frozenset(),
            is_blind=checks.is_blind and self._is_retried and self.action is Action.DELTACOMMIT,
            priority=self.writer.priority,
        )

    @property
    def _is_retried(self) -> bool:
        return self._settings.conflict_retries > 0

    def _told(
        self, refused: Refused, own: OwnWrite, checks: Checks, metadata: CommitMetadata
    ) -> HudiError:
        if self._offence is not None:
            return layout_error(self._offence)
        if self._denied is not None:
            return self._denied
        storage, conflict = self._log.storage, self._conflict
        seconds = (self._log.world.elapsed_ms() - self._began_ms) / 1000
        loser = Loser(self.requested, self.writer, metadata.stats, seconds)
        if refused.rule in GIVEN_UP_RULES:
            return self._given_up(refused, loser)
        if refused.rule is Rule.SCHEMA_CHANGED and self._new_schema is not None:
            other = self._new_schema.instant
            winner = parse_writer(self._rivals.metadata(other).extra_metadata)
            return schema_error(storage, loser, refused.detail, other, winner)
        if refused.rule is not Rule.CONFLICT or conflict is None:
            return refusal_error(refused, storage.uri, self.requested)
        if self._is_in_vain(own, checks, metadata.stats):
            conflict = replace(conflict, retry=Retry.NO)
        return conflict_error(storage, loser, conflict, self._rivals.writer(conflict.other))

    def _given_up(self, refused: Refused, loser: Loser) -> ConflictError:
        done = self._log.ledger.completed.get(refused.instant or "")
        by = parse_label(self._log.who_gave_up(self.requested))
        completed = None if done is None else done.completed
        return given_up_error(self._log.storage, loser, refused, by, completed)

    def _is_in_vain(self, own: OwnWrite, checks: Checks, stats: Collection[WriteStat]) -> bool:
        """Whether another engine closed a bucket that the write, made again, would have rows for.

        One that depends on rows it finds has none left there, and would do without.
        """
        brings_rows = checks.is_blind or checks.is_part or checks.clears is not None
        if checks.are_closed is None or not (
            brings_rows and any(stat.rows_written for stat in stats)
        ):
            return False
        try:
            return checks.are_closed(own.touched)
        except UnavailableError:
            return False  # that cannot be told now, and whoever tries again is told then
        except HudiError:
            return True  # it would be refused for that

    def _decide(self, job: Complete) -> Outcome:
        self._is_over = True
        try:
            while True:
                outcome = self._log.append(job)
                if not isinstance(outcome, Refused) or outcome.rule is not Rule.NOT_YET:
                    return outcome
                self._log.world.sleep_ms(LOOK_AROUND_PAUSE_MS)
        except (NothingDecidedError, CheckFailedError):
            self._is_over = False
            self.abandon()
            raise
        except (UnavailableError, InvalidRequestError) as error:
            raise self._unknown(error) from error
        finally:
            self._stop_beating()  # from here on the decision log knows, or others may give it up

    def _opened(self, metadata: CommitMetadata) -> frozenset[FileGroupId]:
        """The file groups in which it opens a slice: a base file among logs hides, to readers,
        whatever completed there before it began."""
        if self.action is not Action.DELTACOMMIT:
            return frozenset()
        return frozenset(
            FileGroupId(partition, stat.file_id or "")
            for partition, stats in metadata.write_stats.items()
            for stat in stats
            if stat.log_files is None
        )

    def _refusal(self, own: OwnWrite, checks: Checks, ledger: Ledger) -> Refused | None:
        """Why the write may not complete on the timeline as it is; None if it may."""
        try:
            return self._judged(own, checks, ledger) or self._outdated(ledger)
        except (CorruptTableError, UnsupportedTableError) as error:
            self._denied = error
            return Refused(Rule.DENIED, detail=error.why)
        except UnavailableError as error:  # asked before anything was decided
            raise CheckFailedError(
                f"the write {self.requested} could not be completed",
                why=f"whether it conflicts with others cannot be told ({error.what})",
                next_step="Write again; nothing of it is visible",
            ) from error

    def _judged(self, own: OwnWrite, checks: Checks, ledger: Ledger) -> Refused | None:
        self._offence = self._conflict = self._denied = None
        try:
            if checks.recheck is not None:
                checks.recheck()
        except InvalidRequestError as error:
            self._denied = error
            return Refused(Rule.DENIED, detail=error.why)
        if self._must_wait(own, checks, ledger):
            return Refused(Rule.NOT_YET)
        conflict = first_conflict(own, self._rivals.services(own, ledger), checks.strategy)
        offence = None
        if conflict is None and checks.layout is not None:
            offence = self._layout_offence(checks.layout, ledger)
            if offence is not None and offence.kind.breaks_table:
                self._offence = offence
                return Refused(Rule.LAYOUT, offence.requested, offence.why)
        conflict = conflict or self._overlap(own, checks.strategy, ledger)
        if conflict is None and offence is not None:  # in a bucket that it has no file of
            other = self._rivals.named(offence.requested, ledger)
            conflict = Conflict(ConflictRule.REPLACED, other, offence.group, Retry.WRITE)
        self._conflict = conflict
        if conflict is None:
            return None
        return Refused(Rule.CONFLICT, conflict.other.requested, conflict.rule.value)

    def _outdated(self, ledger: Ledger) -> Refused | None:
        """Why the write may not record its schema; None if that is the one in force."""
        own, now = self._schema, None if self._schema is None else self._rivals.schema(ledger)
        if own is None or now is None or is_same_schema(own, now.avro_json):
            return None
        self._new_schema = now
        change = schema_change(own, now.avro_json)
        return Refused(Rule.SCHEMA_CHANGED, now.instant.requested, change)

    def _must_wait(self, own: OwnWrite, checks: Checks, ledger: Ledger) -> bool:
        """Whether a writer of another engine is just about to look around; it takes a moment."""
        if checks.layout is None or not (own.appended or own.opened):
            return False
        return any(map(self._is_fresh, self._rivals.unseeing(ledger)))

    def _is_fresh(self, requested: Instant) -> bool:
        """Whether it was requested, by the store's clock, less than a moment ago."""
        found = self._log.storage.stat(self._log.path(requested))
        if found is None:
            return False  # gone since
        self._log.clock.observe(found.modified_ms)
        reached = self._log.clock.at_least_ms() or found.modified_ms
        return reached - found.modified_ms < LOOK_AROUND_MS

    def _overlap(self, own: OwnWrite, strategy: Strategy, ledger: Ledger) -> Conflict | None:
        """The conflict with a write, unless committing behind it settles that.

        Nothing has to be decided or written anew for a write whose logs are in their place: it is
        committed as if it had begun after the other one completed.
        """
        rivals = chain(self._rivals.completed(own, ledger), self._rivals.under_way(own, ledger))
        for other in rivals:
            conflict = first_conflict(own, [other], strategy)
            if conflict is None:
                continue
            if conflict.retry is not Retry.COMMIT:
                return conflict
            self.accepted.add(other.requested)
        return None

    def _layout_offence(self, layout: BucketLayout, ledger: Ledger) -> LayoutOffence | None:
        for instant in self._rivals.instants(ledger):
            metadata = self._rivals.metadata(instant)
            found = first_offence(instant.requested, metadata, layout.count, layout.known)
            if found is not None:
                return found
        return None

    def _unknown(self, error: HudiError) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"whether the write {self.requested} became visible is not known",
            why=f"storage failed while it was being decided ({error.what})",
            next_step="Repeat the write with the same write_id, which writes only if it must. If it"
            f" had none, look in table.inspect.timeline() whether {self.requested} has completed,"
            " before you write again",
            instant=self.requested,
        )

    def _tidy(self) -> None:
        """Remove what only a write under way needs. What fails here is swept up later."""
        storage = self._log.storage
        try:
            if self._heartbeat is not None:
                self._heartbeat.end()
            storage.delete_all(marker_objects(storage, self.requested))
            if self._staged is not None:
                storage.delete(self._staged)
            if self.is_fenced:
                open_fence(storage, self.requested)  # last: without a heartbeat nobody gets in
        except HudiError:
            return

    # -- the bad end

    def abandon(self) -> None:
        """Give the instant up now, instead of letting others find it silent.

        Nothing to do once its completion was asked for: then it is the log's to say.
        """
        if self._is_over:
            return
        self._is_over = True
        try:
            if self.is_fenced:  # tasks that still run need not go on, and leave less behind
                close_fence(self._log.storage, self.requested)
            self._recovery.abort(self._instant(State.REQUESTED))
            self._stop_beating()  # a beat behind the rollback would bring the heartbeat back
            if rollback := self._log.ledger.named_by.get(self.requested):
                self._recovery.undo(rollback)
                if self.is_fenced:
                    open_fence(self._log.storage, self.requested)
        except HudiError:
            return  # the heartbeat stops below, so the next writer does it
        finally:
            self._stop_beating()

    def _stop_beating(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()


def _with_inserts(metadata: CommitMetadata) -> frozenset[FileGroupId]:
    return frozenset(
        FileGroupId(partition, stat.file_id or "")
        for partition, stats in metadata.write_stats.items()
        for stat in stats
        if stat.num_inserts
    )


@contextmanager
def preparing(what: str) -> Iterator[None]:
    """Around a commit that rows need before their own: if it fails, they are not in doubt."""
    try:
        yield
    except OutcomeUnknownError as error:
        raise UnavailableError(
            f"{what} could not be prepared", why=error.why, next_step="Repeat the call"
        ) from error


def writer_identity(world: World, settings: WriteSettings) -> WriterIdentity:
    job = settings.job or world.program
    return WriterIdentity(job, world.host, world.user, world.process, settings.priority)
