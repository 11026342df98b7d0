"""Reads, step by step: load what is new, choose the point in time, plan the slices.

What a read means is defined here for both engines. A point in time is one of three:

- *now*: every write that has completed;
- *a completion time*: every write that had completed by then (RFC-66);
- *a requested time*: Hudi's own time travel, for readers that need its answer.

A time before what cleaning has retained is refused, since the answer would silently miss rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import pyarrow as pa

from pyhudi.errors import HudiError, InvalidRequestError, UnavailableError
from pyhudi.format.avro.container import CONTAINER_BYTES_MAX
from pyhudi.format.files.file_names import BaseFileName, FileGroupId
from pyhudi.format.table.column_owners import is_joined
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.resize_plan import ResizePlan, decode_resize_plan
from pyhudi.plan.changes import (
    READ_AGAIN,
    CompletedWrite,
    Referred,
    by_reference,
    handed_over,
    in_range,
    lost_referred,
    plan_changes,
    references_in,
)
from pyhudi.plan.predicate.binding import bind
from pyhudi.plan.predicate.parser import Where
from pyhudi.plan.retention import CleanBound, Retention, retention_after
from pyhudi.plan.scan import (
    ReadSpec,
    ScanPlan,
    SliceOf,
    chosen_columns,
    plan_scan,
    read_optimized,
    read_spec,
    with_path_columns,
)
from pyhudi.read.clean_bounds import archived_clean_bound, load_clean_bound
from pyhudi.read.load import TableLoader
from pyhudi.read.lost_files import doomed_files, loss_error, not_replaced, removing_clean
from pyhudi.read.referred_logs import referred_paths
from pyhudi.read.schema_in_force import schema_in_force
from pyhudi.table.committed_files import LostFile, lost_files
from pyhudi.table.file_slices import archive_needed, latest_slice, slice_at_request
from pyhudi.table.partitions import with_dropped_columns
from pyhudi.table.schema import without_meta_columns
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import (
    CompletionTimes,
    Visibility,
    only,
    visible_at_completion,
    visible_at_request,
    visible_now,
)


@dataclass(frozen=True, slots=True)
class Now:
    """Every completed write."""


@dataclass(frozen=True, slots=True)
class AtCompletion:
    """Every write that had completed by the time, inclusive."""

    time: str


@dataclass(frozen=True, slots=True)
class AtRequest:
    """Every completed write that was requested by the time, inclusive: Hudi's meaning."""

    time: str


Point: TypeAlias = Now | AtCompletion | AtRequest
_NOW = Now()


@dataclass(frozen=True, slots=True)
class Question:
    """Which rows and columns the user wants to read."""

    columns: tuple[str, ...] | None = None
    where: Where | None = None
    read_optimized: bool = False
    #: As Hudi's incremental reads: partition columns as in the path, and the columns of now.
    hudi_incremental: bool = False
    meta: bool = False  # without `columns`: Hudi's five columns in front of the data


class Reader:
    """Plans reads of one table. Holds the loader and the archive, and no table state."""

    def __init__(self, loader: TableLoader) -> None:
        self._loader = loader
        self._history = loader.history
        self._archived: tuple[frozenset[Instant], tuple[CleanBound, ...]] | None = None
        #: The last state that was found whole, and how many files of commits were compared.
        self._whole: tuple[TableState, int] | None = None

    # -- snapshots

    def plan_snapshot(
        self, state: TableState, point: Point, question: Question, *, is_damaged: bool = False
    ) -> ScanPlan:
        """Return the plan; with `is_damaged` also if files are lost, for what shows a damage."""
        self._refuse_cleaned(state, point)
        times = self.completion_times(state, point)
        visibility = _visibility(times, point)
        schema = self.schema_at(state, visibility, point)
        spec = _spec(state, schema, visibility, question)
        slice_of = _slice_of(times, visibility, point)
        if not is_damaged:
            self.refuse_losses(state, point, slice_of, visibility, bases=question.read_optimized)
        plan = plan_scan(state, schema, spec, slice_of)
        if question.read_optimized:
            plan = read_optimized(plan)
        return with_path_columns(plan, schema, state.config, as_in_path=question.hudi_incremental)

    def completion_times(self, state: TableState, point: Point = _NOW) -> CompletionTimes:
        """Return completion times, with those of the archive that a read at the point needs."""
        timeline = state.timeline
        if isinstance(point, AtCompletion):
            files = (f for group in state.groups() for f in group.files)
            needed: frozenset[str] = frozenset(
                f.name.requested for f in files if timeline.is_archived(f.name.requested)
            )
        else:
            needed = archive_needed(state.groups(), timeline)
        return CompletionTimes(timeline, self._history.completion_times(needed))

    def _refuse_cleaned(self, state: TableState, point: Point) -> None:
        """Refuse a point before the earliest one that cleaning retained: it has lost files."""
        if isinstance(point, Now):
            return
        retention = self.retention(state)
        earliest = retention.since if isinstance(point, AtCompletion) else retention.earliest
        if point.time < earliest:
            raise _cleaned(point.time, f"cleaning has retained what is needed from {earliest} on")

    def refuse_losses(
        self,
        state: TableState,
        point: Point,
        slice_of: SliceOf,
        visibility: Visibility,
        *,
        bases: bool = False,
    ) -> None:
        """Raise CorruptTableError if a file that the read needs is lost, by the commits known.

        With `bases` no log is needed.
        """
        files = self._loader.known_files(state.timeline)
        files = [f for f in files if isinstance(f.name, BaseFileName)] if bases else files
        is_now, known = isinstance(point, Now) and not bases, self._whole
        if is_now and known is not None and known[0] is state and known[1] == len(files):
            return
        losses = lost_files(state, files, visibility, slice_of)
        losses = not_replaced(self._loader, state, losses, partial(_sees, point))
        if losses:
            raise self._loss(state, losses[0], point)
        if is_now:
            self._whole = state, len(files)

    def _loss(self, state: TableState, lost: LostFile, point: Point) -> HudiError:
        what = f"the table at {self._loader.storage.uri} cannot be read"
        if not isinstance(point, Now):
            clean = removing_clean(self._loader, state.timeline, lost.path)
            if clean is not None:
                return _cleaned(point.time, f"the clean {clean} has removed {lost.path!r}")
        return loss_error(self._loader.storage, state.timeline, lost, what)

    def retention(self, state: TableState) -> Retention:
        """Return from when on the table can be read, by what cleans removed or are about to."""
        cleans = [instant for instant in state.timeline.instants if instant.action is Action.CLEAN]
        found = {instant: self._bound(instant) for instant in cleans}
        self._loader.clean_bounds = found
        bounds = [bound for bound in found.values() if bound is not None and bound.is_bound]
        bounds += self._archived_bounds(frozenset(found), bounds)
        earliest = max((bound.earliest for bound in bounds if bound.since is None), default=None)
        if earliest is None:  # cleans of pyhudi record everything
            return retention_after(state, bounds)
        times = self._archived_times(state, earliest)
        kept = retention_after(state, bounds, times)
        return replace(kept, since=max(kept.since, self._replaced_at(state, earliest, times)))

    def _bound(self, clean: Instant) -> CleanBound | None:
        """Return the bound of a clean; None if it records none, as without a plan."""
        known = self._loader.clean_bounds
        if clean in known:
            return known[clean]
        folder = self._loader.timeline_folder
        try:
            return load_clean_bound(self._loader.storage, folder, clean)
        except UnavailableError:  # archived since the timeline was read
            archived = self._history.instant(clean.requested)
            if archived is not None:
                return archived_clean_bound(archived, f"{folder}/{clean.file_name}")
            if clean.completed is not None:
                raise
            return None  # an inflight file that came too late

    def _archived_bounds(
        self, active: frozenset[Instant], bounds: Sequence[CleanBound]
    ) -> tuple[CleanBound, ...]:
        """Return the bounds of archived cleans: what they removed stays removed, whatever the
        policy now.

        A clean of pyhudi includes all before it. A clean of Hudi retains nothing later than its own
        time, so cleans before the earliest retained time add nothing.
        """
        newest = max(bounds, key=lambda bound: bound.planned, default=None)
        if newest is not None and newest.since is not None:
            return ()
        if self._archived is not None and self._archived[0] == active:
            return self._archived[1]
        found: list[CleanBound] = []
        earliest = max((bound.earliest or bound.last for bound in bounds), default="")
        for bound in self._history.clean_bounds():
            if bound.planned <= earliest:
                break
            if bound.is_bound:
                found.append(bound)
                earliest = max(earliest, bound.earliest or bound.last)
            if bound.is_bound and bound.since is not None:
                break
        self._archived = (active, tuple(found))
        return self._archived[1]

    def _archived_times(self, state: TableState, earliest: str) -> dict[str, str]:
        """Return the archived times that show when the state which a clean of Hudi retained was
        complete."""
        times = dict(self.completion_times(state, AtCompletion("")).archived)
        replaced = {time for instants in state.replaced.values() for time in instants}
        times.update(self._history.completion_times(frozenset({earliest, *replaced} - {""})))
        return times

    def _replaced_at(self, state: TableState, earliest: str, archived: Mapping[str, str]) -> str:
        """Return when the last archived write completed whose replaced file groups are gone by now.

        Only writes count that were requested before what a clean of Hudi retained, and completed
        after it.
        """
        done = {**archived, **state.timeline.completion_times}
        if not earliest or not done:
            return ""
        late = self._history.writes(done.get(earliest, earliest), max(done.values()))
        replacing = (w for w in late if w.requested < earliest and w.metadata.replaced_file_ids)
        return max((write.completed for write in replacing), default="")

    # -- schema

    def schema_at(
        self, state: TableState, visibility: Visibility, point: Point = _NOW
    ) -> pa.Schema:
        """Return the schema that the last visible write left, with the meta columns."""
        written = schema_in_force(
            self._loader,
            state,
            visibility,
            completed_by=point.time if isinstance(point, AtCompletion) else None,
            by_request=isinstance(point, AtRequest),
        )
        return with_dropped_columns(written, state.config)

    # -- changes

    def plan_changes(
        self, state: TableState, since: str, until: str | None, question: Question
    ) -> tuple[ScanPlan, str]:
        """Return the changes in (since, until], and the time up to which they are complete.

        They have the columns of that time.
        """
        timeline = state.timeline
        if until is not None and until < since:
            raise InvalidRequestError(
                "the range of changes is empty",
                why=f"it begins at {since or 'the beginning'} and ends before, at {until}",
                next_step="Choose a later end",
            )
        # No further than what has completed: a later write may still complete within `until`.
        newest = max(timeline.completion_times.values(), default=since)
        since = min(since, newest)  # else a future time would hide what completes until then
        end = newest if until is None else min(until, newest)
        archived = self._history.writes(since, end)
        # An instant may have moved into the archive since the timeline was loaded.
        moved = frozenset(write.requested for write in archived)
        active = in_range(timeline.completion_times.items(), since, end) - moved
        writes = [w for w in (*archived, *self._active_writes(state, active)) if w.brings_rows]
        referred = self._by_reference(writes)
        writes = list(referred.writes)
        handed: dict[FileGroupId, frozenset[FileGroupId]] = {}
        if is_joined(state.config):
            for write in (write for write in writes if write.is_clustering):
                handed.update(handed_over(write.metadata, self.resize_plan(write.requested)))
            writes = [w for w in writes if not (w.is_compaction or w.is_clustering)]
            self._refuse_cleaned(state, AtCompletion(end))  # rows are read as of then
        instants = frozenset(write.requested for write in writes)
        older = self.completion_times(state, AtCompletion(end)).archived
        in_archive = {write.requested: write.completed for write in archived}
        times = CompletionTimes(timeline, {**older, **in_archive})
        # Partial rows are merged as of then, if that can still be read.
        is_whole = end == newest or end >= self.retention(state).since
        at_end = visible_at_completion(times, end) if is_whole else None
        if end == newest or question.hudi_incremental:
            schema = self.schema_at(state, visible_now(timeline))
        else:
            schema = self.schema_at(state, visible_at_completion(times, end), AtCompletion(end))
        spec = _spec(state, schema, only(instants), question, instants, at_end)
        as_in_path = question.hudi_incremental
        doomed = doomed_files(self._loader, timeline) if writes else frozenset()
        plan = lost_referred(state, referred.through) or plan_changes(
            state,
            writes,
            times,
            schema,
            spec,
            doomed=doomed,
            handed=handed,
            prune=not as_in_path,
        )
        if isinstance(plan, LostFile):
            raise self._lost_change(state, plan)
        return with_path_columns(plan, schema, state.config, as_in_path=as_in_path), end

    def _by_reference(self, writes: Iterable[CompletedWrite]) -> Referred:
        """Return the writes without what is read by reference; each reference is one request."""
        writes, storage = tuple(writes), self._loader.storage
        references = references_in(writes)
        named = {
            stat.data_path: referred_paths(storage, stat.data_path, write.requested)
            for write, stat in references
        }
        return by_reference(writes, named)

    def resize_plan(self, requested: str) -> ResizePlan | None:
        """Return the plan of a resize; None if it is gone, or that of a clustering."""
        plan = Instant(InstantTime(requested), Action.CLUSTERING, State.REQUESTED)
        path = f"{self._loader.timeline_folder}/{plan.file_name}"
        try:
            return decode_resize_plan(self._loader.storage.read(path, 0, CONTAINER_BYTES_MAX), path)
        except FileNotFoundError:
            archived = self._history.instant(requested)
            data = archived and archived.plan
            return decode_resize_plan(data, path) if data else None

    def _lost_change(self, state: TableState, lost: LostFile) -> HudiError:
        """Return the error for a file of the range that is gone: cleaned, or lost."""
        clean = None
        if lost.found is None:
            clean = removing_clean(self._loader, state.timeline, lost.path)
        if clean is None:
            what = f"the changes of the table at {self._loader.storage.uri} cannot be read"
            return loss_error(self._loader.storage, state.timeline, lost, what)
        return InvalidRequestError(
            "the changes of this range are no longer complete",
            why=f"the clean {clean} removes {lost.path!r}, or has removed it",
            next_step=READ_AGAIN,
        )

    def _active_writes(
        self, state: TableState, requested: frozenset[str]
    ) -> Sequence[CompletedWrite]:
        return [
            CompletedWrite(i.requested, i.completed or "", self._loader.metadata(i))
            for i in state.timeline.writes
            if i.requested in requested
        ]


def _cleaned(time: str, why: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"the table as of {time} can no longer be read",
        why=why,
        next_step="Read at a later time, or retain more commits when cleaning",
    )


def _sees(point: Point, write: CompletedWrite) -> bool:
    """True if a read at the point sees the archived write."""
    match point:
        case AtCompletion(time):
            return write.completed <= time
        case AtRequest(time):
            return write.requested <= time
        case _:
            return True


def _visibility(times: CompletionTimes, point: Point) -> Visibility:
    match point:
        case AtCompletion(time):
            return visible_at_completion(times, time)
        case AtRequest(time):
            return visible_at_request(times.timeline, time)
        case Now():
            return visible_now(times.timeline)


def _slice_of(times: CompletionTimes, visibility: Visibility, point: Point) -> SliceOf:
    if isinstance(point, AtRequest):
        now = visible_now(times.timeline)
        return lambda group: slice_at_request(group, times, now, visibility, point.time)
    return lambda group: latest_slice(group, times, visibility)


def _spec(
    state: TableState,
    schema: pa.Schema,
    visibility: Visibility,
    question: Question,
    row_instants: frozenset[str] | None = None,
    whole_visibility: Visibility | None = None,
) -> ReadSpec:
    predicate = bind(question.where, schema) if question.where is not None else None
    chosen, every = question.columns, schema if question.meta else without_meta_columns(schema)
    return read_spec(
        state.config,
        schema,
        visibility,
        output=every if chosen is None else chosen_columns(schema, chosen),
        predicate=predicate,
        row_instants=row_instants,
        whole_visibility=whole_visibility,
    )
