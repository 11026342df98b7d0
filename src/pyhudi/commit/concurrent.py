"""Other writes that completed since ours began, or are pending. Each is read from the timeline
once.

A write that completed since may also have been archived since. Archiving goes by requested times up
to the oldest pending write, and a write may take long and complete last. Such a write was pending
when ours began. So a write that was pending then, and is not on the timeline now, is looked up in
the archive.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.pending_plans import ServicePlan, load_resize_plan, load_service_plan
from pyhudi.conflict.file_groups import touched_groups
from pyhudi.conflict.resizes import BucketChange, Resize
from pyhudi.conflict.rules import OtherWrite, OwnWrite, WriteKind
from pyhudi.conflict.schema_to_record import TableSchemaText
from pyhudi.errors import CorruptTableError, HudiError, UnavailableError
from pyhudi.format.files.file_names import FileGroupId, group_of_path
from pyhudi.format.timeline.commit_metadata import (
    CommitMetadata,
    WriteStat,
    decode_commit_metadata,
    decode_inflight_commit,
)
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.resize_plan import ResizePlan
from pyhudi.format.timeline.writer_identity import WriterIdentity, parse_writer
from pyhudi.plan.changes import CompletedWrite
from pyhudi.read.archive import History
from pyhudi.read.schema_in_force import (
    RecordedSchema,
    behind_pyhudi,
    last_recorded,
    recorded_back,
)
from pyhudi.storage.objects.markers import load_markers
from pyhudi.storage.objects.timeline_files import load_timeline_file
from pyhudi.timeline.live import LiveTimeline
from pyhudi.timeline.timeline import WRITE_ACTIONS

SEED_KEY = "pyhudi.seed"
#: Table services that write data files, by the action of their plans.
SERVICES = {
    Action.CLUSTERING: WriteKind.CLUSTERING,
    Action.COMPACTION: WriteKind.COMPACTION,
    Action.LOGCOMPACTION: WriteKind.LOG_COMPACTION,
}
_WRITES = (Action.COMMIT, Action.DELTACOMMIT)


class ConcurrentWrites:
    """Other writes, as one write sees them. A completed write never changes, so it is cached."""

    def __init__(
        self,
        log: DecisionLog,
        requested: str,
        action: Action,
        pending: frozenset[str] | None = None,
    ) -> None:
        """`pending` are the instants that were pending when our write began; None if that is not
        known."""
        self._log = log
        self._requested = requested
        self._action = action
        self._pending = pending
        self._history = History(log.storage, log.history_folder)
        self._identities: dict[str, WriterIdentity] = {}
        self._plans: dict[str, ServicePlan] = {}
        #: Of completed clusterings.
        self._resize_plans: dict[str, ResizePlan | CorruptTableError | None] = {}
        self._is_mor = action is Action.DELTACOMMIT
        self._completed: dict[str, OtherWrite] = {}
        self._metadata: dict[str, CommitMetadata] = {}

    def seen_from(self, log: DecisionLog) -> ConcurrentWrites:
        """Return the same writes for another thread, which has this access to the log."""
        return ConcurrentWrites(log, self._requested, self._action, self._pending)

    # -- completed since our write began

    def completed(self, own: OwnWrite, live: LiveTimeline) -> Iterator[OtherWrite]:
        """Yield completed writes by completion time. An unchecked write needs replace commits
        only."""
        is_checked = own.new_slices or own.appended or own.partial or own.replaces is not None
        for instant in self.instants(live):
            if not is_checked and instant.action is not Action.REPLACECOMMIT:
                continue
            yield self._seen(instant)

    def bases_since(
        self, time: str, live: LiveTimeline
    ) -> Iterator[tuple[OtherWrite, frozenset[FileGroupId]]]:
        """Yield writes that began after the time and have completed, each with the file groups in
        which it opened base files.

        A compaction is none of them: it has read what its base file hides.
        """
        for instant in self.instants(live):
            if instant.requested > time and not (self._is_mor and instant.action is Action.COMMIT):
                stats = self.metadata(instant).group_stats
                yield self._seen(instant), frozenset(g for g, s in stats if s.log_files is None)

    def named(self, requested: str, live: LiveTimeline) -> OtherWrite:
        """Return the completed write with that requested time."""
        return next(self._seen(i) for i in self.instants(live) if i.requested == requested)

    def _seen(self, instant: Instant) -> OtherWrite:
        if instant.requested not in self._completed:
            self._completed[instant.requested] = self._other(instant)
        return self._completed[instant.requested]

    def instants(self, live: LiveTimeline) -> Iterator[Instant]:
        active = live.completed_after(self._requested)
        found = sorted([*self._archived(live), *active], key=lambda i: i.completed or "")
        for instant in found:
            if instant.action in WRITE_ACTIONS and instant.requested != self._requested:
                yield instant

    def _archived(self, live: LiveTimeline) -> Iterator[Instant]:
        gone = None
        if self._pending is not None:
            known = {*live.pending, *live.completed, *live.rolled_back_by, self._requested}
            gone = self._pending - known
            if not gone:
                return
        for write in self._history.writes(self._requested, live.highest):
            if (gone is None or write.requested in gone) and write.requested not in live.completed:
                self._metadata[write.requested] = write.metadata
                yield self._as_instant(write)

    def _as_instant(self, write: CompletedWrite) -> Instant:
        """Return an instant for an archived write, with the action as exact as conflicts need
        it."""
        action = Action.COMMIT if write.is_compaction else self._action
        action = Action.REPLACECOMMIT if write.metadata.replaced_file_ids else action
        times = InstantTime(write.requested), InstantTime(write.completed)
        return Instant(times[0], action, State.COMPLETED, times[1])

    def schema(
        self, live: LiveTimeline, start: TableSchemaText | None = None
    ) -> RecordedSchema | None:
        """Return the schema left by the writes that completed since; None if they left none.

        None, too, if it is that of the `start`, by its fingerprint in the log: then nothing is
        read. A table service that completed since leaves none: its schema may be older than that
        of the start.
        """
        known = None if start is None else start.fingerprint
        instants = list(self.instants(live))
        writes = [i for i in instants if i.requested not in live.began_as]
        if known is not None and writes and self._log.schema_of(writes[-1].requested) == known:
            return None
        found = last_recorded(instants, live.began_as, self.metadata)
        if found is None or (start is not None and found.is_of_service):
            return None
        return behind_pyhudi(found, recorded_back(instants, self.metadata), start)

    def metadata(self, instant: Instant) -> CommitMetadata:
        if instant.requested not in self._metadata:
            self._metadata[instant.requested] = self._load_metadata(instant)
        return self._metadata[instant.requested]

    def _load_metadata(self, instant: Instant) -> CommitMetadata:
        if (known := self._log.metadata(instant.requested)) is not None:
            return known
        path = self._log.path(instant)
        try:
            return decode_commit_metadata(load_timeline_file(self._log.storage, path), path)
        except UnavailableError:  # archived since the timeline was read
            for write in self._history.writes(self._requested, instant.completed or ""):
                if write.requested == instant.requested:
                    return write.metadata
            raise

    def _other(self, instant: Instant) -> OtherWrite:
        metadata = self.metadata(instant)
        stats = metadata.stats
        return OtherWrite(
            instant.requested,
            instant.completed,
            touched_groups(metadata),
            self._kind(instant, metadata),
            removals=removals(metadata),
            files=tuple(stat.path for stat in stats if stat.path),
            has_deletes_without_keys=any(map(has_deletes_without_keys, stats)),
        )

    def _kind(self, instant: Instant, metadata: CommitMetadata) -> WriteKind:
        if instant.action is Action.REPLACECOMMIT:
            return WriteKind.RESIZE if self.is_resize(instant) else WriteKind.REPLACE
        if self._is_mor and instant.action is Action.COMMIT:
            return WriteKind.COMPACTION
        if metadata.operation_type == "LOG_COMPACT":
            return WriteKind.LOG_COMPACTION
        return WriteKind.SEED if is_seed(metadata) else WriteKind.WRITE

    # -- resizes

    def resizes(self, own: OwnWrite, live: LiveTimeline) -> list[Resize]:
        """Return the resizes that are pending, or completed since our write began.

        Where buckets have no numbers every clustering resizes, so one whose plan is damaged does,
        too, unless another engine may have planned it. A seed passes it: no resize is planned of a
        file group that has no committed file.
        """
        if not own.touched:
            return []
        found = []
        for instant in live.completed_after(self._requested):  # none is archived while ours pends
            if instant.action is Action.REPLACECOMMIT:
                plan = self._resize_plan(instant)
                if isinstance(plan, CorruptTableError):
                    found.append(_unreadable(instant, self.metadata(instant)))
                elif plan is not None:
                    found.append(_resize(instant, plan, live))
        for instant in live.pending_of(Action.CLUSTERING):
            if not self._is_resize(instant, own) or self._is_cancelled(instant, live):
                continue
            if (plan := self._plan(instant).resize) is not None:
                found.append(_resize(instant, plan, live))
            elif not own.is_seed:
                is_closed = instant.requested in live.closed
                found.append(Resize(instant.requested, None, is_closed, (), is_readable=False))
        return found

    def _is_resize(self, service: Instant, own: OwnWrite) -> bool:
        """True if a pending table service is a resize."""
        if service.action is not Action.CLUSTERING:
            return False
        plan = self._plan(service)
        is_damaged = plan.damage is not None and not self._log.is_shared
        return plan.resize is not None or (is_damaged and not own.is_numbered)

    def is_resize(self, instant: Instant) -> bool:
        """True if it is a resize that has completed."""
        return instant.action is Action.REPLACECOMMIT and self._resize_plan(instant) is not None

    def _resize_plan(self, instant: Instant) -> ResizePlan | CorruptTableError | None:
        """Return the plan of a completed replace commit, if it is a resize, or why it cannot be
        read."""
        requested = instant.requested
        if self._log.live.began_as.get(requested) is not Action.CLUSTERING:
            return None
        if requested not in self._resize_plans:
            self._resize_plans[requested] = self._loaded_plan(requested)
        return self._resize_plans[requested]

    def _loaded_plan(self, requested: str) -> ResizePlan | CorruptTableError | None:
        try:
            return load_resize_plan(self._log, requested)
        except CorruptTableError as error:
            if self._log.is_shared:  # it may be a clustering of another kind
                raise
            return error

    def _plan(self, instant: Instant) -> ServicePlan:
        plan = self._plans.get(instant.requested)
        if plan is None:
            plan = load_service_plan(self._log, instant)
            if plan.groups != frozenset():  # else it may be decided, and not published yet
                self._plans[instant.requested] = plan
        return plan

    # -- pending

    def services(self, own: OwnWrite, live: LiveTimeline) -> Iterator[OtherWrite]:
        """Yield pending table services that could conflict.

        Plans are read only if our write touches something that they can invalidate.
        """
        for instant in live.pending_of(*SERVICES):
            kind = SERVICES[instant.action]
            has_cause = (
                own.touched if kind is WriteKind.CLUSTERING else own.new_slices | own.new_keys
            )
            if has_cause and (service := self.service(instant, own, live)) is not None:
                yield service

    def service(self, instant: Instant, own: OwnWrite, live: LiveTimeline) -> OtherWrite | None:
        """Return a pending table service; None if it is cancelled for good."""
        if self._is_cancelled(instant, live):
            return None
        plan = self._plan(instant)
        is_resize = self._is_resize(instant, own)
        kind = WriteKind.RESIZE if is_resize else SERVICES[instant.action]
        damaged = None if plan.damage is None else plan.damage.path
        return OtherWrite(instant.requested, None, plan.groups, kind, damaged_plan=damaged)

    def _is_cancelled(self, instant: Instant, live: LiveTimeline) -> bool:
        """True if a pending rollback cancels the plan for good, so that no process executes it."""
        is_named = instant.requested in live.rolled_back_by
        return is_named and self._log.rollback_of(instant.requested) is not None

    def pending(self, own: OwnWrite, live: LiveTimeline) -> Iterator[OtherWrite]:
        """Yield pending writes that may go before ours."""
        if not (own.new_slices or own.appended):
            return
        for instant in live.pending_of(Action.REPLACECOMMIT):
            if instant.requested > own.requested and (found := self.inflight(instant)):
                yield OtherWrite(instant.requested, None, touched_groups(found), WriteKind.REPLACE)
        for instant in live.pending_of(*_WRITES):
            if instant.requested == own.requested:
                continue
            priority = self.identity(instant).priority
            if priority > own.priority:
                groups, files = self._announced(instant)
                yield OtherWrite(
                    instant.requested,
                    None,
                    groups,
                    priority=priority,
                    files=files,
                    has_deletes_without_keys=not self._is_mor,
                )

    def not_yet_inflight(self, live: LiveTimeline) -> list[Instant]:
        """Return earlier writes that are requested and not inflight yet.

        Hudi's writers read the timeline in between, and take what has completed by then for older
        than themselves. A write that completes before that read is never a conflict to them,
        although they began earlier: their files would be hidden behind ours.
        """
        return [
            instant
            for instant in live.pending_of(*_WRITES, Action.REPLACECOMMIT)
            if instant.state is State.REQUESTED and instant.requested < self._requested
        ]

    def inflight(self, instant: Instant) -> CommitMetadata | None:
        """Return what the inflight file of a pending write says, if it is there."""
        path = self._log.path(instant.in_state(State.INFLIGHT))
        try:
            return decode_inflight_commit(load_timeline_file(self._log.storage, path), path)
        except HudiError:
            return None  # not there yet, or gone; one that completed is found as completed

    def _announced(self, instant: Instant) -> tuple[frozenset[FileGroupId], tuple[str, ...]]:
        files = [marker.data_file for marker in load_markers(self._log.storage, instant.requested)]
        return frozenset(filter(None, map(group_of_path, files))), tuple(files)

    # -- their writers

    def writer(self, other: OtherWrite) -> WriterIdentity:
        if other.requested in self._metadata:
            return parse_writer(self._metadata[other.requested].extra_metadata)
        instant = self._log.live.pending.get(other.requested)
        return WriterIdentity() if instant is None else self.identity(instant)

    def identity(self, instant: Instant) -> WriterIdentity:
        """Return the writer of a pending write, from its inflight file."""
        if instant.requested not in self._identities:
            found = self.inflight(instant)
            if found is None:
                return WriterIdentity()  # it may still be written
            self._identities[instant.requested] = parse_writer(found.extra_metadata)
        return self._identities[instant.requested]


def _resize(instant: Instant, plan: ResizePlan, live: LiveTimeline) -> Resize:
    changes = tuple(
        BucketChange(frozenset(change.inputs), frozenset(change.made)) for change in plan.groups
    )
    is_closed = instant.requested in live.closed
    return Resize(instant.requested, instant.completed, is_closed, changes, plan.is_dual)


def _unreadable(instant: Instant, metadata: CommitMetadata) -> Resize:
    """Return a completed resize whose plan is damaged: its commit names the same file groups."""
    ids = metadata.replaced_file_ids.items()
    inputs = frozenset(FileGroupId(path, id_) for path, found in ids for id_ in found)
    children = touched_groups(metadata) - inputs
    change = BucketChange(inputs, children)
    return Resize(instant.requested, instant.completed, False, (change,), is_readable=False)


def is_seed(metadata: CommitMetadata) -> bool:
    """True if the write is a seed: empty base files, and no rows."""
    return (metadata.extra_metadata or {}).get(SEED_KEY) == "true"


def removals(metadata: CommitMetadata) -> frozenset[FileGroupId]:
    """Return the file groups in which a write deleted rows, or wrote a base file."""
    return frozenset(
        group for group, stat in metadata.group_stats if stat.num_deletes or stat.log_files is None
    )


def has_deletes_without_keys(stat: WriteStat) -> bool:
    """True if a write deleted rows whose keys its file does not record: a base file lacks them.

    Whether two such files have a key in common cannot be known.
    """
    return stat.log_files is None and bool(stat.num_deletes)
