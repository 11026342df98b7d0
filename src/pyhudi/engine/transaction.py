"""The life of one instant of ours: begun, written, and then completed or given up.

    with heartbeat and requested file → inflight → markers and data files → completed

Whatever stops on the way leaves a pending instant behind, which nobody sees, and which this
process gives up at once if it can, or the next writer does when the heartbeat has grown old.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from pyhudi.conflict.bucket_layout import LayoutOffence, first_offence, layout_error
from pyhudi.conflict.writes import OtherWrite, Overlap, first_overlap, touched_groups
from pyhudi.engine.decide import DecisionLog
from pyhudi.engine.decisions import (
    AlreadyDone,
    Begin,
    Complete,
    Decided,
    Outcome,
    Refused,
    Rule,
    TooBusyError,
)
from pyhudi.engine.rollback import FailedWriteRecovery
from pyhudi.engine.timeline_files import load_timeline_file
from pyhudi.engine.write_files import attempts_disagree
from pyhudi.errors import (
    ConflictError,
    HudiError,
    InvalidRequestError,
    OutcomeUnknownError,
    UnavailableError,
)
from pyhudi.format.commit_metadata import (
    CommitMetadata,
    decode_commit_metadata,
    encode_commit_metadata,
)
from pyhudi.format.file_names import FileGroupId
from pyhudi.format.instant import Action, Instant, InstantTime, State
from pyhudi.format.plan_files import decode_compaction_plan, decode_requested_replace
from pyhudi.settings import WriteSettings
from pyhudi.storage.heartbeats import Heartbeat
from pyhudi.storage.marker_files import load_markers, marker_objects
from pyhudi.storage.write_fence import close_fence, open_fence
from pyhudi.timeline.ledger import Ledger
from pyhudi.timeline.timeline import WRITE_ACTIONS


@dataclass(frozen=True, slots=True)
class BucketLayout:
    """How many buckets there are, and by partition the file ids that they are known to have."""

    count: int
    known: Mapping[str, Sequence[str]]


#: Whether an overwrite or a delete of partitions is about a partition.
Cleared: TypeAlias = Callable[[str], bool]

_SERVICES = (Action.CLUSTERING, Action.COMPACTION, Action.LOGCOMPACTION)


@dataclass(frozen=True, slots=True)
class _Claims:
    """What a write must not share with one that completed meanwhile."""

    touched: frozenset[FileGroupId]
    opened: frozenset[FileGroupId]  # with a base file among logs
    appended: frozenset[FileGroupId]  # the others, if it is checked at all
    clears: Cleared | None


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
    ) -> None:
        """Begin an instant, or take up one that another process of ours has `begun`: its requested
        time and the number of its entry. Who takes it up lets the heartbeat be."""
        self._log = log
        self._settings = settings
        self._recovery = recovery
        self._heartbeat: Heartbeat | None = None
        self._staged: str | None = None
        self._others_known: dict[str, OtherWrite] = {}
        self._metadata_known: dict[str, CommitMetadata] = {}
        self._offence: LayoutOffence | None = None
        self.action = action
        self._is_over = False  # decided, or in the log's hands
        self.is_fenced = False  # whether its tasks run elsewhere, and a fence keeps late ones out
        if begun is not None:
            self.requested, self.number = begun
            self._heartbeat = Heartbeat(log.storage, self.requested)
            return
        try:
            self.requested, self.number = self._begun()
            log.storage.create(log.path(self._instant(State.INFLIGHT)), b"")
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

    def _announce(self, requested: str) -> None:
        if self._heartbeat is not None:
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

    def close(self, files: Collection[str]) -> None:
        """Let no task create another file; InvalidRequestError if one did, or still may.

        `files` are those that tasks told of. For writes whose tasks may outlive them.
        """
        storage = self._log.storage
        close_fence(storage, self.requested)
        announced = (marker.data_file for marker in load_markers(storage, self.requested))
        if unknown := sorted(set(announced) - set(files)):
            raise attempts_disagree(unknown[0], "no attempt that counts wrote it")

    def complete(
        self,
        metadata: CommitMetadata,
        *,
        is_checked: bool,
        layout: BucketLayout | None = None,
        clears: Cleared | None = None,
    ) -> str:
        """Make the write visible; its completion time.

        With `is_checked`, ConflictError if another write completed on one of its file groups
        since it began; if it `clears` partitions, also if one completed anywhere in them; with a
        `layout`, an error if one broke it. Whatever the error, unless it says that the outcome is
        unknown, nothing of the write is ever visible.
        """
        data = encode_commit_metadata(metadata, self._log.world.random_bytes(16))
        touched, opened = touched_groups(metadata), self._opened(metadata)
        claims = _Claims(touched, opened, touched - opened if is_checked else frozenset(), clears)
        check = partial(self._refusal, claims, layout)
        self._staged = self._log.stage(self.requested, data)
        outcome = self._decide(
            Complete(self.requested, self.action, self.number, data, self._staged, check)
        )
        if isinstance(outcome, Refused):
            self._is_over = False
            self.abandon()
            if self._offence is not None:
                raise layout_error(self._offence)
            raise refusal_error(outcome, self._log.storage.uri, self.requested)
        self._tidy()
        time = outcome.instant.completed if isinstance(outcome, AlreadyDone) else outcome.entry.time
        assert time is not None
        return time

    def _decide(self, job: Complete) -> Outcome:
        self._is_over = True
        try:
            return self._log.append(job)
        except TooBusyError:
            self._is_over = False  # nothing was decided
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

    def _refusal(
        self, claims: _Claims, layout: BucketLayout | None, ledger: Ledger
    ) -> Refused | None:
        """Why the write may not complete on the timeline as it is; None if it may."""
        if (service := self._unseeing_service(claims, ledger)) is not None:
            return Refused(Rule.CONFLICT, service.requested, _service_told(service))
        if layout is not None and (offence := self._layout_offence(layout, ledger)) is not None:
            self._offence = offence
            return Refused(Rule.LAYOUT, offence.requested, offence.why)
        overlap = self._overlap(claims, ledger)
        if overlap is None:
            return None
        return Refused(Rule.CONFLICT, overlap.other.requested, _told(overlap))

    def _overlap(self, claims: _Claims, ledger: Ledger) -> Overlap | None:
        if not claims.opened and not claims.appended and claims.clears is None:
            return None
        others = self._others(ledger)
        if (overlap := first_overlap(claims.opened, others)) is not None:
            return overlap
        others = [other for other in others if not other.passes_logs]
        if (overlap := first_overlap(claims.appended, others)) is not None:
            return overlap
        if claims.clears is None:
            return None
        found = ((o, g) for o in others for g in sorted(o.groups) if claims.clears(g.partition))
        return next((Overlap(other, group) for other, group in found), None)

    def _layout_offence(self, layout: BucketLayout, ledger: Ledger) -> LayoutOffence | None:
        for instant in ledger.completed_after(self.requested):
            if instant.action in WRITE_ACTIONS and instant.requested != self.requested:
                metadata = self._metadata(instant)
                found = first_offence(instant.requested, metadata, layout.count, layout.known)
                if found is not None:
                    return found
        return None

    def _unseeing_service(self, claims: _Claims, ledger: Ledger) -> Instant | None:
        """A table service under way that has not seen this write and would undo part of it.

        A clustering moves the rows of its file groups elsewhere: what is added there is lost. A
        compaction that was planned since we began would hide a base file of ours, and what a log
        compaction writes belongs to the newest slice: it would bring back what our base file
        stands for.
        """
        for instant in ledger.pending_of(*_SERVICES):
            groups = claims.touched if instant.action is Action.CLUSTERING else claims.opened
            is_late = instant.action is not Action.COMPACTION or instant.requested > self.requested
            if not is_late or not groups:
                continue
            planned = self._planned(instant)
            if planned is None or not groups.isdisjoint(planned):
                return instant
        return None

    def _planned(self, instant: Instant) -> frozenset[FileGroupId] | None:
        """The file groups that a pending table service works on; None if it does not tell."""
        path = self._log.path(Instant(instant.requested, instant.action, State.REQUESTED))
        data = load_timeline_file(self._log.storage, path)
        if not data:
            return None
        if instant.action is Action.CLUSTERING:
            asked = decode_requested_replace(data, path)
            plan = None if asked is None else asked.clustering_plan
            ids = {} if plan is None else plan.file_ids
            return frozenset(FileGroupId(p, id_) for p, found in ids.items() for id_ in found)
        operations = decode_compaction_plan(data, path).operations or ()
        return frozenset(FileGroupId(o.partition_path or "", o.file_id or "") for o in operations)

    def _others(self, ledger: Ledger) -> list[OtherWrite]:
        """Writes that completed since we began."""
        found = ledger.completed_after(self.requested)
        return [
            self._other(instant)
            for instant in found
            if instant.action in WRITE_ACTIONS and instant.requested != self.requested
        ]

    def _other(self, instant: Instant) -> OtherWrite:
        if instant.requested not in self._others_known:
            assert instant.completed is not None
            metadata = self._metadata(instant)
            self._others_known[instant.requested] = OtherWrite(
                instant.requested,
                instant.completed,
                touched_groups(metadata),
                # A seed and, on a table of logs, a compaction: logs go on above them.
                passes_logs=(metadata.extra_metadata or {}).get("pyhudi.seed") == "true"
                or (self.action is Action.DELTACOMMIT and instant.action is Action.COMMIT),
            )
        return self._others_known[instant.requested]

    def _metadata(self, instant: Instant) -> CommitMetadata:
        if instant.requested not in self._metadata_known:
            path = self._log.path(instant)
            data = load_timeline_file(self._log.storage, path)
            self._metadata_known[instant.requested] = decode_commit_metadata(data, path)
        return self._metadata_known[instant.requested]

    def _unknown(self, error: HudiError) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"whether the write {self.requested} became visible is not known",
            why=f"storage failed while it was being decided ({error.what})",
            next_step="Repeat the write with the same write_id, which writes only if it must",
            instant=self.requested,
        )

    def _tidy(self) -> None:
        """Remove what only a write under way needs. What fails here is swept up later."""
        storage = self._log.storage
        try:
            if self._heartbeat is not None:
                self._heartbeat.end()
            for path in marker_objects(storage, self.requested):
                storage.delete(path)
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


@contextmanager
def preparing(what: str) -> Iterator[None]:
    """Around a commit that rows need before their own: if it fails, they are not in doubt."""
    try:
        yield
    except OutcomeUnknownError as error:
        raise UnavailableError(
            f"{what} could not be prepared", why=error.why, next_step="Repeat the call"
        ) from error


def _told(overlap: Overlap) -> str:
    group = overlap.group
    return (
        f"write {overlap.other.requested}, completed at {overlap.other.completed}, also wrote file"
        f" group {group.file_id} of partition {group.partition!r}"
    )


def _service_told(service: Instant) -> str:
    return f"the {service.action} {service.requested} is under way, and has not seen this write"


def refusal_error(refused: Refused, uri: str, requested: str | None = None) -> HudiError:
    """A refusal as an error, for the user."""
    what = f"the write {requested}" if requested else f"a write to the table at {uri}"
    if refused.rule is Rule.FOREIGN:
        return InvalidRequestError(
            f"{what} is refused",
            why=f"another engine began {refused.instant} without an entry in the decision log",
            next_step="Make the table with lock='file' or 'storage', the lock that engine uses",
        )
    if refused.rule is Rule.CONFLICT:
        return ConflictError(
            f"{what} lost to another write",
            why=refused.detail,
            next_step="Read the table as it is now and write again",
        )
    by = f" ({refused.instant})" if refused.instant else ""
    return ConflictError(
        f"{what} was not completed",
        why=f"{refused.rule}{by}",
        next_step="Write again; nothing of this write is visible",
    )
