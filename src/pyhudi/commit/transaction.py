"""The life of an instant that this process began: written, then completed or rolled back.

    with heartbeat and requested file → inflight → markers and data files → completed

A write that stops on the way leaves a pending instant, which no reader shows. This process rolls
it back at once if it can; otherwise the next writer does, when the heartbeat has expired.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NoReturn

from pyhudi.commit.concurrent import SEED_KEY, ConcurrentWrites, is_seed
from pyhudi.commit.conflict_report import (
    ROLLED_BACK_RULES,
    Found,
    Loser,
    conflict_error,
    rolled_back_error,
    schema_error,
)
from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.early_evidence import Evidence
from pyhudi.commit.evolution import SchemaEvolution
from pyhudi.commit.proposals import (
    AlreadyDone,
    Begin,
    Decided,
    NothingDecidedError,
    Outcome,
    Refused,
    Rule,
    refusal_error,
)
from pyhudi.commit.rollback import FailedWriteRecovery
from pyhudi.commit.validation import (
    Accepted,
    CheckFailedError,
    Checks,
    CompletionCheck,
    Denied,
    ResizeInTheWay,
    SchemaConflict,
    WriteCompletion,
    own_write,
)
from pyhudi.conflict.announced import Met
from pyhudi.conflict.bucket_layout import LayoutOffence, layout_error
from pyhudi.conflict.file_groups import Footprint, footprint
from pyhudi.conflict.rules import (
    Conflict,
    ConflictRule,
    OwnWrite,
    Retry,
    WriteKind,
)
from pyhudi.conflict.schema_to_record import TableSchemaText
from pyhudi.errors import (
    ConflictError,
    HudiError,
    InvalidRequestError,
    OutcomeUnknownError,
    UnavailableError,
)
from pyhudi.format.timeline.commit_metadata import (
    CommitMetadata,
    WriteStat,
    encode_commit_metadata,
    stats_by_partition,
)
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.writer_identity import (
    WRITER_KEY,
    WriterIdentity,
    parse_label,
    parse_writer,
)
from pyhudi.settings import WriteSettings
from pyhudi.storage.objects.dual_logs import is_named_by
from pyhudi.storage.objects.heartbeats import WriteHeartbeat
from pyhudi.storage.objects.markers import load_markers, marker_objects
from pyhudi.storage.objects.write_fence import raise_fence, remove_fence
from pyhudi.world import World

#: How long to wait until a writer of another engine may have read the timeline.
LOOK_AROUND_PAUSE_MS = 100
#: How often the schema of a write may be brought first. Once is enough, unless another engine keeps
#: recording an older one, or the strategy makes another schema each time.
EVOLUTIONS_MAX = 10


@dataclass(frozen=True, slots=True)
class Completed:
    """The write is visible from this time on."""

    time: str
    behind: frozenset[str] = frozenset()  # conflicting writes that it was committed behind
    schema: TableSchemaText | None = None  # what it recorded

    def or_raise(self) -> Completed:
        return self


@dataclass(frozen=True, slots=True)
class Lost:
    """The write may not complete: nothing of it is visible, nor ever will be."""

    error: HudiError
    retry: Retry  # what helps
    waits_for: str | None = None  # the write that goes first
    keeps_files: bool = False  # the instant stays, since its files are to be read
    is_counted: bool = True  # among the retries; a resize is nothing that a caller has to avoid
    unfinished: str | None = None  # the virtual resize that has to be executed first

    def or_raise(self) -> NoReturn:
        raise self.error


@dataclass(frozen=True, slots=True)
class Held:
    """The write is pending still, and may complete once the resize is dealt with."""

    met: ResizeInTheWay

    def error(self, requested: str) -> ConflictError:
        """Return the error for a write that is not completed because of it."""
        return ConflictError(
            f"the write {requested} was not completed",
            why=f"{Rule.RESIZE} ({self.met.resize})",
            next_step="Write again; nothing of this write is visible",
        )

    def or_raise(self) -> NoReturn:
        raise self.error("that another one needs")


class MigratingError(ConflictError):
    """The table's buckets are being migrated, and the rows were placed without knowing of it."""


class Transaction:
    """An instant that this process has begun."""

    def __init__(
        self,
        log: DecisionLog,
        settings: WriteSettings,
        action: Action,
        recovery: FailedWriteRecovery,
        *,
        is_fenced: bool = False,
        is_seed: bool = False,
    ) -> None:
        """`is_fenced`: its tasks run in other processes, and a fence keeps late ones out."""
        self._log = log
        self._settings = settings
        self._recovery = recovery
        interval_ms = settings.heartbeat_interval_ms
        self._heartbeat = WriteHeartbeat(log.storage, log.world, interval_ms)
        self.writer = writer_identity(log.world, settings)
        self._began_ms = log.world.elapsed_ms()
        self.action = action
        self.is_fenced = is_fenced
        self._is_seed = is_seed
        self._is_over = False  # completed or aborted, or only the log knows
        self.evidence: Evidence | None = None

    @classmethod
    def begin(
        cls,
        log: DecisionLog,
        settings: WriteSettings,
        action: Action,
        recovery: FailedWriteRecovery,
        *,
        is_fenced: bool = False,
        is_seed: bool = False,
    ) -> Transaction:
        """Begin an instant."""
        transaction = cls(log, settings, action, recovery, is_fenced=is_fenced, is_seed=is_seed)
        transaction._start()
        return transaction

    @classmethod
    def resume(
        cls,
        log: DecisionLog,
        settings: WriteSettings,
        action: Action,
        recovery: FailedWriteRecovery,
        begun: tuple[str, int],
        pending: Collection[str],
    ) -> Transaction:
        """Continue an instant that another process has `begun`: its requested time and the number
        of its entry. `pending` are the instants that were pending then. The heartbeat is left to
        that process."""
        transaction = cls(log, settings, action, recovery, is_fenced=True)
        transaction.requested, transaction.number = begun
        transaction._heartbeat.follow(transaction.requested)
        transaction.others = ConcurrentWrites(
            log, transaction.requested, action, frozenset(pending)
        )
        return transaction

    def _start(self) -> None:
        log = self._log
        try:
            self.requested, self.number = self._begun()
            self.others = ConcurrentWrites(
                log, self.requested, self.action, frozenset(log.live.pending)
            )
            log.storage.create(log.path(self._instant(State.INFLIGHT)), self._introduction())
        except BaseException:
            self._heartbeat.stop()  # or the instant would look alive until this process ends
            raise

    def _begun(self) -> tuple[str, int]:
        outcome = self._log.append(Begin(self.action, announce=self._heartbeat.announce))
        if isinstance(outcome, Refused):
            raise refusal_error(outcome, self._log.storage.uri)
        assert isinstance(outcome, Decided)
        assert outcome.entry.instant is not None
        return outcome.entry.instant, outcome.entry.n

    def _introduction(self) -> bytes:
        """Return what the inflight file records: the writer, and whether it is a seed."""
        seed = {SEED_KEY: "true"} if self._is_seed else {}
        metadata = CommitMetadata(extra_metadata={WRITER_KEY: self.writer.text, **seed})
        return encode_commit_metadata(metadata, self._log.world.random_bytes(16))

    def _instant(self, state: State) -> Instant:
        return Instant(InstantTime(self.requested), self.action, state)

    def leaves(self, evidence: Evidence | None) -> None:
        """Note what there will be of the write beside its markers, to be removed at its end."""
        self.evidence = evidence

    def leave(self) -> None:
        """Stop the heartbeat without aborting the instant: another process continues it."""
        self._is_over = True
        self._heartbeat.stop()

    # -- completing

    def close(self, files: Collection[str]) -> list[str]:
        """Stop tasks from creating more files; return announced files that are not among `files`.

        For writes whose tasks may outlive them. A file that no reported attempt wrote means that
        two attempts of a task disagree. What an earlier completion has put into the children of a
        resize is of no task.
        """
        storage = self._log.storage
        raise_fence(storage, self.requested)
        announced = (marker.data_file for marker in load_markers(storage, self.requested))
        by_tasks = {path for path in announced if is_named_by(path, self.requested)}
        return sorted(by_tasks - set(files))

    def complete(
        self, metadata: CommitMetadata, checks: Checks | None = None
    ) -> Completed | Lost | Held:
        """Make the write visible, unless another write prevents it (`commit.validation`).

        If it is held, the caller either does what is asked and completes it again, or abandons it.
        If it raises, nothing of the write is ever visible, unless the error says that the outcome
        is unknown.
        """
        checks = checks or Checks()
        extra = {**(metadata.extra_metadata or {}), WRITER_KEY: self.writer.text}
        metadata = replace(metadata, extra_metadata=extra)
        own = self.own_write(footprint(metadata), checks, is_seed=is_seed(metadata))
        sync = self._log.world.random_bytes(16)
        check = CompletionCheck(self._log, self.others, own, checks)
        identity = self.requested, self.action, self.number
        outcome = self._decide(WriteCompletion(*identity, check, metadata, sync), checks)
        if isinstance(outcome, Refused):
            if isinstance(outcome.reason, ResizeInTheWay):
                self._is_over = False
                self._heartbeat.start()  # until the resize is out of the way
                return Held(outcome.reason)
            return self._lost(outcome, own, checks, metadata)
        self._tidy()
        if isinstance(outcome, AlreadyDone):
            assert outcome.instant.completed is not None
            return Completed(outcome.instant.completed)
        assert isinstance(outcome.draft.basis, Accepted)
        assert outcome.entry.time is not None
        accepted = outcome.draft.basis
        return Completed(outcome.entry.time, accepted.behind, accepted.schema)

    def lost_to_schema(self, found: SchemaConflict) -> Lost:
        """Abandon the write, whose rows contradict the schema that was in force when it began."""
        loser = Loser(self.requested, self.writer, (), 0.0)
        self.abandon()
        return Lost(schema_error(self._log.storage, loser, found, WriterIdentity()), Retry.NO)

    def lost_early(
        self,
        refused: Refused,
        own: OwnWrite,
        checks: Checks,
        stats: Collection[WriteStat],
        others: ConcurrentWrites,
        met: Met | None = None,
    ) -> Lost:
        """Abandon the write, whose completion would be refused for this reason, or which yields.

        `others` are the other writes as they were seen when that was found, and `met` is the
        conflict with one that has announced a file.
        """
        self.others = others
        metadata = CommitMetadata(stats_by_partition(stats))
        lost = self._reported(refused, own, checks, metadata, found=Found.EARLY, met=met)
        self.abandon()
        return replace(lost, keeps_files=False)

    def _lost(
        self, refused: Refused, own: OwnWrite, checks: Checks, metadata: CommitMetadata
    ) -> Lost:
        self._is_over = False
        lost = self._reported(refused, own, checks, metadata)  # before its files are gone
        if lost.keeps_files:
            self._heartbeat.start()  # until the retry has read the files of this instant
        else:
            self.abandon()
        return lost

    def own_write(self, made: Footprint, checks: Checks, *, is_seed: bool = False) -> OwnWrite:
        """Return the write as the rules see it, with files in these groups."""
        return own_write(
            self.requested,
            made,
            checks,
            is_mor=self.action is Action.DELTACOMMIT,
            settings=self._settings,
            is_seed=is_seed,
        )

    def _reported(
        self,
        refused: Refused,
        own: OwnWrite,
        checks: Checks,
        metadata: CommitMetadata,
        *,
        found: Found = Found.END,
        met: Met | None = None,
    ) -> Lost:
        storage = self._log.storage
        seconds = (self._log.world.elapsed_ms() - self._began_ms) / 1000
        loser = Loser(
            self.requested,
            self.writer,
            metadata.stats,
            seconds,
            checks.is_numbered,
            checks.node,
            found,
            self._log.now(),
            None if met is None else met.strategy,
            None if met is None else met.announced_ago_ms,
        )
        match refused.reason:
            case LayoutOffence() as offence:
                return Lost(layout_error(offence), Retry.NO)
            case Denied(error):
                return Lost(error, Retry.NO)
            case SchemaConflict(by=by) as evolved:
                winner = WriterIdentity()
                if by is not None:
                    winner = parse_writer(self.others.metadata(by).extra_metadata)
                return Lost(schema_error(storage, loser, evolved, winner), Retry.NO)
            case Conflict() as conflict:
                return self._conflicted(conflict, loser, own, checks)
        if refused.rule in ROLLED_BACK_RULES:
            return Lost(self._rolled_back(refused, loser), Retry.WRITE)
        is_foreign = refused.rule is Rule.FOREIGN  # it needs a lock first
        error = refusal_error(refused, storage.uri, self.requested)
        if refused.rule is Rule.MIGRATING:  # no other write is in its way
            error = MigratingError(error.what, why=error.why, next_step=error.next_step)
            keeps = checks.keeps_files
            return Lost(error, Retry.WRITE, keeps_files=keeps, is_counted=False)
        return Lost(error, Retry.NO if is_foreign else Retry.WRITE)

    def _conflicted(self, conflict: Conflict, loser: Loser, own: OwnWrite, checks: Checks) -> Lost:
        if self._cannot_succeed(own, checks, loser.stats):
            conflict = replace(conflict, retry=Retry.NO)
        winner = self.others.writer(conflict.other)
        error = conflict_error(self._log.storage, loser, conflict, winner)
        is_ahead = conflict.rule is ConflictRule.PRIORITY or loser.strategy is not None
        waits_for = conflict.other.requested if is_ahead else None
        is_resize = conflict.other.kind is WriteKind.RESIZE
        keeps = checks.keeps_files
        return Lost(error, conflict.retry, waits_for, keeps_files=keeps, is_counted=not is_resize)

    def _rolled_back(self, refused: Refused, loser: Loser) -> ConflictError:
        done = self._log.live.completed.get(refused.instant or "")
        by = parse_label(self._log.writer_of_rollback(self.requested))
        completed = None if done is None else done.completed
        return rolled_back_error(self._log.storage, loser, refused, by, completed)

    def _cannot_succeed(self, own: OwnWrite, checks: Checks, stats: Collection[WriteStat]) -> bool:
        """True if another engine replaced a bucket for which the write, done again, would have
        rows.

        A write that depends on the rows it finds has none left there, and would do without.
        """
        brings_rows = checks.reads_nothing or checks.is_part or checks.replaces is not None
        if checks.has_replaced_bucket is None or not (
            brings_rows and any(stat.rows_written for stat in stats)
        ):
            return False
        try:
            return checks.has_replaced_bucket(own.touched)
        except UnavailableError:
            return False  # unknown now; the next attempt finds out
        except HudiError:
            return True  # it would be refused for that reason

    def _evolve(self, checks: Checks) -> Refused | None:
        """Bring the schema of the write in a commit of its own; return why it cannot be."""
        log = self._log
        assert checks.schemas is not None
        sync = log.world.random_bytes(16)
        evolution = SchemaEvolution(self.action, self.others, checks.schemas, self.writer, sync)
        try:
            outcome = log.append(evolution)
        except UnavailableError as error:
            raise CheckFailedError(
                f"the write {self.requested} could not be completed",
                why=f"its schema could not be recorded ({error.what}: {error.why})",
                next_step="Write again; nothing of this write is visible",
            ) from error
        if isinstance(outcome, Refused) and outcome.rule is not Rule.NOTHING_TO_EVOLVE:
            return outcome
        return None

    def _never_settled(self) -> Refused:
        error = InvalidRequestError(
            f"the write {self.requested} could not be completed",
            why=f"its schema was recorded {EVOLUTIONS_MAX} times, and each time another one came of"
            " the schema strategy",
            next_step="Correct the strategy in WriteSettings(schema_strategy=...): once a result is"
            " in force, it must come of it again",
        )
        return Refused(Rule.DENIED, detail=error.why, reason=Denied(error))

    def _decide(self, completion: WriteCompletion, checks: Checks) -> Outcome:
        self._is_over = True
        evolutions = 0
        try:
            while True:
                outcome = self._log.append(completion)
                if not isinstance(outcome, Refused):
                    return outcome
                if outcome.rule is Rule.NOT_YET:
                    self._log.world.sleep_ms(LOOK_AROUND_PAUSE_MS)
                elif outcome.rule is not Rule.EVOLVE_FIRST:
                    return outcome
                elif evolutions == EVOLUTIONS_MAX:
                    return self._never_settled()
                elif (refused := self._evolve(checks)) is not None:
                    return refused
                else:
                    evolutions += 1
        except (NothingDecidedError, CheckFailedError):
            self._is_over = False
            self.abandon()
            raise
        except (UnavailableError, InvalidRequestError) as error:
            raise self._unknown(error) from error
        finally:
            self._heartbeat.stop()  # from here on the log knows, or others may roll it back

    def _unknown(self, error: HudiError) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"whether the write {self.requested} became visible is not known",
            why=f"storage failed while its completion was appended ({error.what})",
            next_step="Repeat the write with the same write_id, which writes only if it must. If it"
            f" had none, look in table.inspect.timeline() whether {self.requested} has completed,"
            " before you write again",
            instant=self.requested,
        )

    def _tidy(self) -> None:
        """Remove what only a pending write needs. What fails here is removed later."""
        storage = self._log.storage
        try:
            self._heartbeat.end()
            if self.evidence is not None:
                self.evidence.clear(storage, self.requested)
            storage.delete_all(marker_objects(storage, self.requested))
            if self.is_fenced:
                # Last: without a heartbeat no task creates a file.
                remove_fence(storage, self.requested)
        except HudiError:
            return

    # -- aborting

    def abandon(self) -> None:
        """Roll the instant back now, instead of when other writers find it silent.

        Does nothing once the completion was proposed: then only the log knows the outcome.
        """
        if self._is_over:
            return
        self._is_over = True
        try:
            if self.is_fenced:  # tasks that still run need not continue, and leave less behind
                raise_fence(self._log.storage, self.requested)
            self._recovery.abort(self._instant(State.REQUESTED))
            self._heartbeat.stop()  # a heartbeat after the rollback would create its file again
            if rollback := self._log.live.rolled_back_by.get(self.requested):
                self._recovery.undo(rollback)
                if self.evidence is not None:
                    self.evidence.clear(self._log.storage, self.requested)
                if self.is_fenced:
                    remove_fence(self._log.storage, self.requested)
        except HudiError:
            return  # the heartbeat stops below, so the next writer does it
        finally:
            self._heartbeat.stop()


@contextmanager
def preparing(what: str) -> Iterator[None]:
    """Wrap a commit that must come before that of the rows.

    If its outcome is unknown, that of the rows is not: nothing of them was written.
    """
    try:
        yield
    except OutcomeUnknownError as error:
        raise UnavailableError(
            f"{what} could not be prepared", why=error.why, next_step="Repeat the call"
        ) from error


def writer_identity(world: World, settings: WriteSettings) -> WriterIdentity:
    job = settings.job or world.program
    return WriterIdentity(job, world.host, world.user, world.process, settings.priority)
