"""What a write does once its instant has begun: a plan for its tasks, and its end.

A plan is made after the begin. So whatever completes is either seen by the plan or found later by
the check for conflicts. A plan is a value: an executor runs its tasks, in this process or in Spark
(`write.executor`). When all tasks are done, `finish` completes the files: it seeds the buckets that
are new, and empties those that are overwritten without rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from copy import copy
from dataclasses import dataclass, replace
from typing import TypeAlias

from pyhudi.conflict.schema_to_record import TableSchemaText, WriteSchemas, own_schema
from pyhudi.errors import ConflictError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.concurrency_mode import ConcurrencyMode
from pyhudi.format.table.table_config import TableConfig
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.index.routing import Routing, resized
from pyhudi.plan.scan import ScanPlan
from pyhudi.read.lookup import GroupView
from pyhudi.read.plan import AtRequest, Now, Point, Question, Reader
from pyhudi.read.schema_in_force import text_in_force
from pyhudi.session.session import TableSession
from pyhudi.table.file_group import FileSlice
from pyhudi.table.schema import PARTITION_PATH, RECORD_KEY
from pyhudi.table.state import TableState
from pyhudi.write.column_owners import refuse_gone_columns
from pyhudi.write.deletes import are_located, lookup_columns
from pyhudi.write.early.announcing import LookingMarkers
from pyhudi.write.files.announcing import Announcing
from pyhudi.write.files.group_log import VirtualInput
from pyhudi.write.files.spec import WriteSpec
from pyhudi.write.group_files import Files
from pyhudi.write.intent import (
    Change,
    Found,
    Keys,
    NewValues,
    PartialRows,
    Reads,
    WholeRows,
    WriteIntent,
)
from pyhudi.write.new_keys import has_newer_writes, known_keys
from pyhudi.write.resizing.beside import NOTHING, children_of, virtual_inputs
from pyhudi.write.row_shape import UNKNOWN_PARTITION, RowShape, row_shape
from pyhudi.write.seeds import seed_missing
from pyhudi.write.tasks import (
    DeleteTask,
    FoundDeletesTask,
    GroupTask,
    RowsTask,
    Target,
    UpdateTask,
)
from pyhudi.write.view import current_slices, group_view, state_and_rings

Task: TypeAlias = GroupTask | FoundDeletesTask


@dataclass(frozen=True, slots=True)
class WritePlan:
    """What one attempt of a write does."""

    intent: WriteIntent
    schemas: WriteSchemas
    task: Task
    #: Groups that the write replaces; those that get no rows get an empty base file.
    replaceable: tuple[FileGroupId, ...] = ()

    @property
    def files(self) -> Files:
        return self.task.files

    @property
    def spec(self) -> WriteSpec:
        return self.files.spec

    @property
    def routing(self) -> Routing:
        return self.files.routing


def with_markers(plan: WritePlan, inner: Announcing) -> WritePlan:
    """Return the plan with tasks whose markers are stored in this way, after the same looks."""
    looking = plan.spec.announcing
    announcing = replace(looking, inner=inner) if isinstance(looking, LookingMarkers) else inner
    task = copy(plan.task)
    task.files = replace(plan.files, spec=replace(plan.spec, announcing=announcing))
    return replace(plan, task=task)


@dataclass(frozen=True, slots=True)
class Prepared:
    """What an executor did for the write before it began."""

    partitions: Collection[str] = ()  # every bucket of them has a file group
    checked: TableState | None = None  # none of the write's keys is in the table in this state


def plan_write(
    session: TableSession,
    intent: WriteIntent,
    spec: WriteSpec,
    schemas: WriteSchemas,
    prepared: Prepared,
) -> WritePlan:
    """Return the plan of a write whose instant has begun."""
    return _Planning(session, intent, spec, schemas, prepared).plan()


class _Planning:
    """Makes the plan of one attempt."""

    def __init__(
        self,
        session: TableSession,
        intent: WriteIntent,
        spec: WriteSpec,
        schemas: WriteSchemas,
        prepared: Prepared,
    ) -> None:
        self._session = session
        self._config = session.config
        self._intent = intent
        self._spec = spec
        self._schemas = schemas
        self._prepared = prepared

    def plan(self) -> WritePlan:
        intent = self._intent
        if intent.replaces is not None:
            return self._overwrite(intent.replaces.partitions)
        return WritePlan(intent, self._schemas, self._task())

    def _task(self) -> Task:
        match self._intent.change:
            case WholeRows(loads):
                return self._rows(loads=loads)
            case PartialRows():
                return RowsTask(self._part_files(), self._shape, Target.LOG)
            case NewValues(columns):
                state = self._load()
                view = self._view(state, None)
                return UpdateTask(self._files(state), self._shape, view, columns)
            case Keys(given, unconditional):
                return self._key_deletes(given, unconditional=unconditional)
            case Found() as found:
                return self._found_deletes(found)

    @property
    def _shape(self) -> RowShape:
        assert self._intent.rows is not None
        return row_shape(self._intent.change, self._intent.rows, self._config)

    def _load(self) -> TableState:
        """Load the table as it is now, and let the files of the write have its columns.

        Another write may have evolved the schema since this one began. Rows that are read from the
        table and written again have the columns and types of that write.
        """
        session, requested = self._session, self._spec.requested
        state = state_and_rings(session)
        if any((write.completed or "") > requested for write in state.timeline.writes):
            now = text_in_force(session.loader, state)
            rows, config = self._intent.rows, session.config
            if now is not None and rows is not None:
                own = own_schema(rows.called, rows.rows, now, config.name)
                if isinstance(own, TableSchemaText):  # else its completion finds the contradiction
                    self._spec = replace(self._spec, avro_schema=own.avro_json)
        return state

    # -- the kinds of changes

    def _rows(self, *, loads: bool) -> RowsTask:
        is_optimistic = self._config.concurrency is not ConcurrencyMode.NON_BLOCKING
        target = Target.LOAD if loads or is_optimistic else Target.LOG
        if not self._session.is_mor:
            target = Target.MERGED_BASE
        if self._intent.reads is not Reads.KEYS or self._are_keys_checked():
            return RowsTask(self._files(), self._shape, target)
        state = self._load()
        known = known_keys(self._session, state)
        return RowsTask(self._files(state), self._shape, target, known=known)

    def _are_keys_checked(self) -> bool:
        checked = self._prepared.checked
        return checked is not None and not has_newer_writes(self._session, checked)

    def _part_files(self) -> Files:
        """Return how tasks write partial rows: with a view of the existing keys.

        A key counts as existing only by writes that were requested before this one. Readers apply
        logs in that order, and would apply a later write's row after our part of it.
        """
        state, owned = self._load(), self._intent.owned
        if owned is not None:  # it may have lost a column since the call
            refuse_gone_columns(self._spec.layout.data.names, owned.owner, owned.columns)
        point = AtRequest(self._spec.requested)
        existing = self._view(state, [RECORD_KEY, PARTITION_PATH], point)
        return replace(self._files(state), existing=existing)

    def _key_deletes(self, given: Collection[str], *, unconditional: bool) -> DeleteTask:
        if are_located(given, self._config, unconditional=unconditional):
            return DeleteTask(self._files(), self._shape, None, unconditional=unconditional)
        state = self._load()
        view = self._view(state, lookup_columns(self._config))
        files = self._files(state)
        if not set(self._config.partition_fields) <= set(given):
            anywhere = self._session.groups.gathering(view.partitions)
            layouts = {**files.routing.layouts, UNKNOWN_PARTITION: anywhere}
            files = replace(files, routing=replace(files.routing, layouts=layouts))
        return DeleteTask(files, self._shape, view, unconditional=unconditional)

    def _found_deletes(self, found: Found) -> FoundDeletesTask:
        state = self._load()
        scan = _found_scan(self._session, state, found)
        return FoundDeletesTask(self._files(state), scan, unconditional=found.unconditional)

    def _overwrite(self, partitions: frozenset[str] | None) -> WritePlan:
        """Return the plan to replace all rows of these partitions."""
        slices = current_slices(self._session)
        files = self._files_for(slices, replaces_bases=True)
        task = RowsTask(files, self._shape, Target.BASE, partitions=partitions)
        return WritePlan(self._intent, self._schemas, task, tuple(slices))

    # -- what they need

    def _files(self, state: TableState | None = None) -> Files:
        """Return how tasks write. Rows go to the file groups of the state, if it was loaded.

        A merge-on-read table whose partitions were prepared needs no state: the session knows their
        file groups. Otherwise it is needed only if file ids do not follow from the layout.
        """
        session = self._session
        if not session.is_mor:
            slices = current_slices(session, state or self._load(), are_rewritten=True)
            return self._files_for(slices, replaces_bases=True)
        if state is not None:
            return self._files_for(current_slices(session, state))
        if self._prepared.partitions:
            routing = session.groups.routing(self._prepared.partitions)
            virtual = self._virtual()
            together = session.world.together
            return Files(
                session.storage,
                self._spec,
                self._config,
                routing,
                virtual=virtual,
                together=together,
            )
        return self._files_for({} if session.groups.names_are_known else current_slices(session))

    def _files_for(
        self, slices: dict[FileGroupId, FileSlice], *, replaces_bases: bool = False
    ) -> Files:
        bases = {}
        if replaces_bases:
            bases = {group: s.base for group, s in slices.items() if s.base is not None}
        creates = brings_rows(self._intent.change, self._config)
        routing = self._session.groups.routing_beside(
            slices, is_sent=self._spec.is_fenced, creates=creates
        )
        known = {group.partition for group in slices}
        return Files(
            self._session.storage,
            self._spec,
            self._config,
            routing,
            bases,
            virtual=NOTHING if replaces_bases else self._virtual(),
            together=self._session.world.together,
            with_metadata=known,
        )

    def _virtual(self) -> Mapping[FileGroupId, VirtualInput]:
        return virtual_inputs(self._session, self._spec.requested)

    def _view(
        self, state: TableState, columns: list[str] | None, point: Point | None = None
    ) -> GroupView:
        return group_view(self._session, state, columns, point or Now())


def brings_rows(change: Change, config: TableConfig) -> bool:
    """True if the change may add files to partitions that have none yet.

    Other changes are of rows that are there, and the partitions of those have file groups.
    """
    match change:
        case Keys(given, unconditional):
            return are_located(given, config, unconditional=unconditional)
        case NewValues() | Found():
            return False
    return True


def _found_scan(session: TableSession, state: TableState, found: Found) -> ScanPlan:
    question = Question(tuple(lookup_columns(session.config)), found.where)
    return Reader(session.loader).plan_snapshot(state, Now(), question)


def refuse_bad_predicate(session: TableSession, found: Found) -> None:
    """Raise InvalidRequestError if the predicate is wrong, before anything begins."""
    _found_scan(session, session.current.load(), found)


# ---- the end


def finish(session: TableSession, plan: WritePlan, stats: list[WriteStat]) -> list[WriteStat]:
    """Complete the files of a write whose tasks are done; return the stats of all files."""
    written = {_group(stat) for stat in stats}
    _refuse_replaced(session, written, plan.spec.requested)
    replaces = plan.intent.replaces
    if replaces is not None:
        is_replaced = replaces.of({group.partition for group in written})
        empty = [g for g in plan.replaceable if g not in written and is_replaced(g.partition)]
        return [*stats, *(plan.files.base(group, ()) for group in sorted(empty))]
    if session.is_mor:
        opened = {_group(stat) for stat in stats if stat.log_files is None}
        appended = {_group(stat) for stat in stats if stat.log_files is not None}
        partitions = sorted({group.partition for group in appended})
        seed_missing(session, partitions, opened, plan.schemas.own)
        _refuse_moved(session, appended - children_of(plan.files.virtual))
    return stats


def _refuse_moved(session: TableSession, groups: Set[FileGroupId]) -> None:
    """Raise ConflictError if another engine has since opened a bucket, under another file id."""
    layouts = session.groups.layouts({group.partition for group in groups})
    for group in groups - session.replaced.load():
        layout = layouts.get(group.partition)
        if layout is not None and not layout.has(group):
            bucket, partition = layout.ordinal(group.file_id), group.partition
            if bucket is None:
                raise resized(group)
            known = layout.group(bucket).file_id
            raise ConflictError(
                f"bucket {bucket} of partition {partition!r} was opened by another writer",
                why=f"its file group is {known}, and the rows were written to {group.file_id}",
                next_step="Write again",
            )


def _refuse_replaced(
    session: TableSession, groups: Collection[FileGroupId], requested: str
) -> None:
    """Raise if one of the groups is no longer of the table: what is added to it is hidden.

    Where buckets are resized, what was replaced since the write began is judged when it completes:
    it may move its rows.
    """
    hidden = session.replaced.load().intersection(groups)
    if session.groups.count is None:
        hidden = frozenset(g for g in hidden if session.replaced.time(g) < requested)
    if hidden:
        raise session.groups.error_of_replaced(hidden)


def _group(stat: WriteStat) -> FileGroupId:
    return FileGroupId(stat.partition_path or "", stat.file_id or "")
