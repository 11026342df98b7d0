"""Compaction by hand: planned, run and completed as three steps, each when a test wants it.

Plan, base files and metadata are made with the encoders, the slicing and the merge that production
code has, and each step is decided in the table's decision log. What is left out is everything that
a table service adds to that: a choice of file groups, a heartbeat, and what happens when it fails.

    planned = plan_compaction(session)       the plan is on the timeline; readers see no difference
    planned.run()                           the new base files are there; still no difference
    planned.complete()                      readers use them
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from many_writers.services_by_hand import begin_service
from pyhudi.commit.proposals import Begin, Complete, Decided, Refused, Rule
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.timeline.commit_metadata import CommitMetadata, WriteStat, encode_commit_metadata
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.plan_files import (
    CompactionOperation,
    CompactionPlan,
    decode_compaction_plan,
    encode_compaction_plan,
)
from pyhudi.plan.scan import ReadSpec, SliceRead, Split, merge_rule
from pyhudi.read.plan import Reader
from pyhudi.read.slice import read_split
from pyhudi.session.session import TableSession
from pyhudi.storage.objects.markers import marker_objects
from pyhudi.table.file_group import BaseFile, FileGroupFiles, FileSlice
from pyhudi.table.file_slices import grouped_files, is_replaced, latest_slice
from pyhudi.table.schema import with_meta_columns
from pyhudi.timeline.completion import only, visible_now
from pyhudi.timeline.live import LiveTimeline
from pyhudi.write.begin import write_spec
from pyhudi.write.files.base_file import write_base

_SERVICES = (Action.COMPACTION, Action.LOGCOMPACTION, Action.CLUSTERING)


def plan_compaction(
    session: TableSession, groups: Collection[FileGroupId] | None = None
) -> PlannedCompaction | None:
    """Plan the compaction of these file groups, or of all that have logs; None if none has.

    A group that another plan is about is left out. As RFC-66 has it, the plan holds exactly the
    logs that completed before its own requested time, whatever is under way.
    """
    live = session.log.refresh()
    seen = live.highest
    slices = [s for s in _compactable(session) if groups is None or _group(s) in groups]
    if not slices:
        return None

    def unchanged(now: LiveTimeline) -> Refused | None:
        """A write that completed since would be older than the plan, and not in it."""
        changed = now.completed_after(seen)
        return Refused(Rule.CONFLICT, changed[0].requested) if changed else None

    plan = CompactionPlan(tuple(map(_operation, slices)), preserve_hoodie_metadata=True)
    data = encode_compaction_plan(plan, session.world.random_bytes(16))
    outcome = session.log.append(Begin(Action.COMPACTION, plan=data, check=unchanged))
    assert isinstance(outcome, Decided), outcome
    assert outcome.entry.instant is not None
    return PlannedCompaction(session, outcome.entry.instant, outcome.entry.n, plan)


def found_compaction(session: TableSession, requested: str) -> PlannedCompaction:
    """A plan of another process, to be carried out by this one."""
    session.log.refresh()
    path = session.log.path(Instant(InstantTime(requested), Action.COMPACTION, State.REQUESTED))
    plan = decode_compaction_plan(session.storage.read(path), path)
    return PlannedCompaction(session, requested, session.log.number_of(requested), plan)


def rewrite_groups(session: TableSession) -> str:
    """A write that gives every file group with logs a new base file, whatever plans are pending.

    Another engine's may: one that was planned before it began goes below it. Its requested time.
    """
    service = begin_service(session, Action.DELTACOMMIT, b"")
    plan = CompactionPlan(tuple(map(_operation, _with_logs(session))))
    made = PlannedCompaction(session, service.requested, None, plan)
    stats = made.write_bases()
    metadata = CommitMetadata(
        {stat.partition_path or "": (stat,) for stat in stats},
        extra_metadata={"schema": write_spec(session, service.requested).avro_schema},
        operation_type="UPSERT",
    )
    assert len(metadata.write_stats) == len(stats), "one file group of each partition"
    service.complete(encode_commit_metadata(metadata, session.world.random_bytes(16)))
    return service.requested


@dataclass(slots=True)
class PlannedCompaction:
    """A compaction on the timeline."""

    session: TableSession
    requested: str
    number: int | None
    plan: CompactionPlan
    stats: list[WriteStat] = field(default_factory=list)

    @property
    def operations(self) -> tuple[CompactionOperation, ...]:
        return self.plan.operations or ()

    @property
    def log_instants(self) -> set[str]:
        """Requested times of the writes whose logs the plan has."""
        files = (_files(self.session, operation) for operation in self.operations)
        return {log.name.requested for group in files for log in group.logs}

    def run(self) -> PlannedCompaction:
        """Write the base files. May be called again: they are found there."""
        pending = Instant(InstantTime(self.requested), Action.COMPACTION, State.INFLIGHT)
        self.session.storage.create(self.session.log.path(pending), b"")
        self.stats = self.write_bases()
        return self

    def write_bases(self) -> list[WriteStat]:
        return [self._compacted(operation) for operation in self.operations]

    def complete(self) -> str:
        """Make the base files visible; the completion time."""
        by_partition: dict[str, tuple[WriteStat, ...]] = {}
        for stat in self.stats:
            partition = stat.partition_path or ""
            by_partition[partition] = (*by_partition.get(partition, ()), stat)
        metadata = CommitMetadata(
            by_partition,
            compacted=True,
            extra_metadata={"schema": write_spec(self.session, self.requested).avro_schema},
            operation_type="COMPACT",
        )
        data = encode_commit_metadata(metadata, self.session.world.random_bytes(16))
        job = Complete(self.requested, Action.COMPACTION, self.number, data)
        outcome = self.session.log.append(job)
        assert isinstance(outcome, Decided), outcome
        for path in marker_objects(self.session.storage, self.requested):
            self.session.storage.delete(path)
        assert outcome.entry.time is not None
        return outcome.entry.time

    def _compacted(self, operation: CompactionOperation) -> WriteStat:
        files = _files(self.session, operation)
        spec = write_spec(self.session, self.requested)
        base = files.bases[0] if files.bases else None
        group = FileGroupId(files.partition, files.file_id)
        rows = self._merged(files, base)
        return write_base(self.session.storage, spec, group, rows, previous=base)

    def _merged(self, files: FileGroupFiles, base: BaseFile | None) -> Iterator[pa.RecordBatch]:
        schema = with_meta_columns(write_spec(self.session, self.requested).layout.data)
        instants = only(frozenset(file.name.requested for file in files.files))
        spec = ReadSpec(schema, schema, schema, merge_rule(self.session.config), instants)
        slice_ = FileSlice(files.partition, files.file_id, self.requested, base, files.logs)
        return read_split(self.session.storage, spec, Split((SliceRead(slice_),)))


def _compactable(session: TableSession) -> list[FileSlice]:
    """The latest slice of every file group that has logs and is in no other plan."""
    taken = _planned(session)
    return [slice_ for slice_ in _with_logs(session) if _group(slice_) not in taken]


def _with_logs(session: TableSession) -> list[FileSlice]:
    """The latest slice of every file group that has logs."""
    state = session.current.load()
    now = visible_now(state.timeline)
    times = Reader(session.loader).completion_times(state)
    found = (
        latest_slice(group, times, now)
        for group in state.groups()
        if not is_replaced(group, state.replaced, now)
    )
    return [slice_ for slice_ in found if slice_ is not None and slice_.logs]


def _planned(session: TableSession) -> set[FileGroupId]:
    taken: set[FileGroupId] = set()
    for instant in session.log.live.pending_of(*_SERVICES):
        if instant.action is Action.CLUSTERING:
            continue
        path = session.log.path(Instant(instant.requested, instant.action, State.REQUESTED))
        plan = decode_compaction_plan(session.storage.read(path), path)
        taken |= {
            FileGroupId(o.partition_path or "", o.file_id or "") for o in plan.operations or ()
        }
    return taken


def _group(slice_: FileSlice) -> FileGroupId:
    return FileGroupId(slice_.partition, slice_.file_id)


def _operation(slice_: FileSlice) -> CompactionOperation:
    return CompactionOperation(
        base_instant_time=slice_.base_instant,
        delta_file_paths=tuple(log.name.file_name for log in slice_.logs),
        data_file_path=slice_.base.name.file_name if slice_.base else None,
        file_id=slice_.file_id,
        partition_path=slice_.partition,
        metrics={},
    )


def _files(session: TableSession, operation: CompactionOperation) -> FileGroupFiles:
    """The files that the plan names, as a listing would give them."""
    base = operation.base_file_path
    paths = [*([base] if base else []), *operation.log_file_paths]
    sizes = [(path, session.storage.stat(path)) for path in paths]
    listed = [(path, stat.size) for path, stat in sizes if stat is not None]
    assert len(listed) == len(paths), "a file of the plan is gone"
    [files] = grouped_files(operation.partition_path or "", listed)
    return files
