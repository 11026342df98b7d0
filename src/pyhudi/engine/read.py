"""Reads, step by step: load what is new, decide at which point to read, plan the slices.

What a read means is decided here for both engines. A point in time is one of three:

- *now*: every write that has completed;
- *a completion time*: every write that had completed by then (RFC-66);
- *a requested time*: Hudi's own time travel, for those who need its answer.

A time that is older than what cleaning has left is refused, since the answer would silently miss
rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

import pyarrow as pa

from pyhudi.engine.history import History
from pyhudi.engine.load import PROPERTIES, TableLoader
from pyhudi.engine.tasks import load_base_schema
from pyhudi.engine.timeline_files import load_timeline_file
from pyhudi.errors import InvalidRequestError, UnsupportedTableError
from pyhudi.format.column_owners import is_joined
from pyhudi.format.instant import Action, Instant
from pyhudi.format.service_metadata import CLEAN, CleanMetadata
from pyhudi.plan.changes import CompletedWrite, in_range, plan_changes
from pyhudi.plan.predicate import Predicate
from pyhudi.plan.predicate_binding import bind
from pyhudi.plan.scan import (
    ReadSpec,
    ScanPlan,
    SliceOf,
    plan_scan,
    read_optimized,
    read_spec,
    with_path_columns,
)
from pyhudi.table.partitions import with_dropped_columns
from pyhudi.table.schema import table_schema, with_meta_columns
from pyhudi.table.snapshot import archive_needed, latest_slice, slice_at_request
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import (
    CompletionTimes,
    Visibility,
    only,
    visible_at_completion,
    visible_at_request,
    visible_now,
)
from pyhudi.timeline.timeline import Timeline


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
    """What the user wants to see of the rows."""

    columns: tuple[str, ...] | None = None
    where: str | Predicate | None = None
    read_optimized: bool = False
    path_columns: bool = False  # partition columns as the path has them: Hudi's incremental reads


class Reader:
    """Plans reads of one table. Holds the loader and the archive, and no table state."""

    def __init__(self, loader: TableLoader) -> None:
        self._loader = loader
        self._history = History(loader.storage, loader.history_folder)

    # -- snapshots

    def plan_snapshot(self, state: TableState, point: Point, question: Question) -> ScanPlan:
        self._refuse_cleaned(state, point)
        times = self.completion_times(state, point)
        visibility = _visibility(times, point)
        schema = self.schema_at(state, visibility, by_request=isinstance(point, AtRequest))
        spec = _spec(state, schema, visibility, question)
        plan = plan_scan(state, schema, spec, _slice_of(times, visibility, point))
        if question.read_optimized:
            plan = read_optimized(plan)
        return with_path_columns(plan, schema, state.config, as_in_path=question.path_columns)

    def completion_times(self, state: TableState, point: Point = _NOW) -> CompletionTimes:
        """Completion times, with what a read at the point needs of the archive."""
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
        """A point before the earliest one that cleaning kept has lost files."""
        if isinstance(point, Now):
            return
        active = map(self._clean, reversed(state.timeline.completed(Action.CLEAN)))
        # Cleans are archived too, and what they removed stays removed. The newest one that
        # removed something has the last word.
        bounds = (clean.earliest_kept for clean in chain(active, self._history.cleans()))
        earliest = next(filter(None, bounds), "")
        if isinstance(point, AtCompletion):
            earliest = state.timeline.completion_times.get(earliest, earliest)
        if point.time < earliest:
            raise InvalidRequestError(
                f"the table as of {point.time} can no longer be read",
                why=f"cleaning has kept what is needed from {earliest} on",
                next_step="Ask for a later time, or keep more commits when cleaning",
            )

    def _clean(self, instant: Instant) -> CleanMetadata:
        path = f"{self._loader.timeline_folder}/{instant.file_name}"
        return CLEAN.decode(load_timeline_file(self._loader.storage, path), path)

    # -- schema

    def schema_at(
        self, state: TableState, visibility: Visibility, *, by_request: bool = False
    ) -> pa.Schema:
        """The schema that the last visible write left, with the meta columns."""
        written = self._written_schema(state, visibility, by_request=by_request)
        return with_dropped_columns(written, state.config)

    def _written_schema(
        self, state: TableState, visibility: Visibility, *, by_request: bool
    ) -> pa.Schema:
        writes = [i for i in state.timeline.writes if visibility.sees(i.requested)]
        if by_request:
            writes.sort(key=lambda instant: instant.requested)
        if schema := self._last_schema(state.timeline, writes):
            return schema
        bases = [b for g in state.groups() for b in g.bases if visibility.sees(b.name.requested)]
        if bases:  # of writes that were archived
            newest = max(bases, key=lambda base: base.name.requested)
            return with_meta_columns(load_base_schema(self._loader.storage, newest))
        # Before the first write the table had no rows, and the columns that write brought.
        if schema := self._last_schema(state.timeline, state.timeline.writes[:1]):
            return schema
        if state.config.create_schema:
            return table_schema(state.config.create_schema, PROPERTIES)
        return with_meta_columns(pa.schema([]))

    def _last_schema(self, timeline: Timeline, writes: Sequence[Instant]) -> pa.Schema | None:
        """The schema of the last of these writes that has one.

        A table service keeps the schema it was planned with, which may be older than that of a
        write it overlapped: it is asked only if no write has a schema.
        """
        services = [i for i in writes if timeline.is_table_service(i)]
        others = [i for i in writes if not timeline.is_table_service(i)]
        for instant in (*reversed(others), *reversed(services)):
            metadata = self._loader.metadata(instant)
            if metadata.schema_history:
                raise UnsupportedTableError(
                    f"the schema of {instant.requested} cannot be read",
                    why="it was changed with schema-on-read, whose renames are not followed",
                    next_step="Read this table with Apache Hudi",
                )
            if metadata.schema_json:
                return table_schema(metadata.schema_json, instant.file_name)
        return None

    # -- changes

    def plan_changes(
        self, state: TableState, since: str, until: str | None, question: Question
    ) -> tuple[ScanPlan, str]:
        """The changes in (since, until], and the time up to which they are complete."""
        timeline = state.timeline
        if until is not None and until < since:
            raise InvalidRequestError(
                "the range of changes is empty",
                why=f"it begins at {since or 'the beginning'} and ends before, at {until}",
                next_step="Give a later end",
            )
        # No further than what has completed: a later write may still complete within `until`.
        newest = max([since, *timeline.completion_times.values()])
        end = newest if until is None else min(until, newest)
        archived = self._history.writes(since, end)
        # An instant may have moved into the archive since the timeline was loaded.
        moved = frozenset(write.requested for write in archived)
        active = in_range(timeline.completion_times.items(), since, end) - moved
        writes = [w for w in (*archived, *self._active_writes(state, active)) if w.brings_rows]
        if is_joined(state.config):
            writes = [write for write in writes if not write.is_compaction]
            self._refuse_cleaned(state, AtCompletion(end))  # rows are read as of then
        instants = frozenset(write.requested for write in writes)
        older = self.completion_times(state, AtCompletion(end)).archived
        in_archive = {write.requested: write.completed for write in archived}
        times = CompletionTimes(timeline, {**older, **in_archive})
        at_end = visible_at_completion(times, end)
        schema = self.schema_at(state, visible_now(timeline))
        spec = _spec(state, schema, only(instants), question, instants, at_end)
        as_in_path = question.path_columns
        plan = plan_changes(state, writes, times, schema, spec, prune=not as_in_path)
        return with_path_columns(plan, schema, state.config, as_in_path=as_in_path), end

    def _active_writes(
        self, state: TableState, requested: frozenset[str]
    ) -> Sequence[CompletedWrite]:
        return [
            CompletedWrite(i.requested, i.completed or "", self._loader.metadata(i))
            for i in state.timeline.writes
            if i.requested in requested
        ]


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
    return read_spec(
        state.config,
        schema,
        visibility,
        columns=question.columns,
        predicate=predicate,
        row_instants=row_instants,
        whole_visibility=whole_visibility,
    )
