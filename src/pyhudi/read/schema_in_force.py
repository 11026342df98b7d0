"""Which schema is in force at a point: the one answer, for readers and for writers.

A commit records the table's schema as of its completion. So the schema in force is the one that the
last of the visible writes recorded. "Last" is by completion time; Hudi's own time travel compares
requested times, so there the caller sorts by those.

A table service (compaction, log compaction, clustering) brings no rows. It records the schema as of
its begin, and a write that it overlapped may have added a column since. Its schema counts only
where no write has recorded one.

Where no visible write of the active timeline recorded a schema, the archive is asked, by the same
rule. A table whose timeline has no archive costs no request for that. If the archive does not know
either, as after an upgrade, the newest base file has the schema. A table without a committed file
has the one that it was created with.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa

from pyhudi.conflict.gone_columns import GoneColumns, recorded_drops, recorded_losses
from pyhudi.conflict.schema_to_record import TableSchemaText
from pyhudi.errors import CorruptTableError, UnsupportedTableError
from pyhudi.format.avro.schema import avro_record_schema
from pyhudi.format.timeline.commit_metadata import CommitMetadata
from pyhudi.format.timeline.instant import Action, Instant
from pyhudi.format.timeline.writer_identity import WRITER_KEY
from pyhudi.plan.column_paths import has_column, parse_path
from pyhudi.read.load import PROPERTIES, TableLoader
from pyhudi.read.slice import load_base_schema
from pyhudi.table.schema import META_COLUMNS, table_schema, with_meta_columns
from pyhudi.table.schema_changes import ChangeKind, column_changes
from pyhudi.table.state import TableState
from pyhudi.timeline.completion import (
    CompletionTimes,
    Visibility,
    visible_at_completion,
    visible_now,
)
from pyhudi.timeline.timeline import WRITE_ACTIONS

#: Operations of table services, for instants whose begin is no longer known.
_SERVICE_OPERATIONS = frozenset({"COMPACT", "LOG_COMPACT", "CLUSTER", "INDEX"})


@dataclass(frozen=True, slots=True)
class RecordedSchema:
    """A schema as an instant recorded it: Avro in JSON, without meta columns."""

    instant: Instant
    avro_json: str
    is_of_service: bool = False
    dropped: GoneColumns = ()
    lost: GoneColumns = ()
    is_foreign: bool = False  # True if another engine recorded it, and no columns that are gone

    @property
    def text(self) -> TableSchemaText:
        return TableSchemaText(self.avro_json, self.dropped, self.instant.file_name, self.lost)


def last_recorded(
    instants: Iterable[Instant],
    began_as: Mapping[str, Action],
    metadata: Callable[[Instant], CommitMetadata],
    before: RecordedSchema | None = None,
) -> RecordedSchema | None:
    """Return the schema in force after the instants, which are in order; `before` is the one
    before.

    Commits are read from the last one backwards, and only until one of a write has a schema.
    """
    writes = [instant for instant in instants if instant.action in WRITE_ACTIONS]
    services = [instant for instant in writes if instant.requested in began_as]
    others = [instant for instant in writes if instant.requested not in began_as]
    of_service: RecordedSchema | None = None
    for instant in reversed(others):
        found = recorded_schema(instant, metadata(instant))
        if found is not None and not found.is_of_service:
            return found
        of_service = of_service or found
    if before is not None and not before.is_of_service:
        return before
    for instant in reversed(services):
        if (found := recorded_schema(instant, metadata(instant))) is not None:
            of_service = RecordedSchema(instant, found.avro_json, is_of_service=True)
            break
    return of_service or before


def last_archived(writes: Iterable[tuple[Instant, CommitMetadata]]) -> RecordedSchema | None:
    """Return the schema in force after archived writes, of which the latest comes first."""
    of_service: RecordedSchema | None = None
    for instant, metadata in writes:
        found = recorded_schema(instant, metadata)
        if found is not None and not found.is_of_service:
            return found
        of_service = of_service or found
    return of_service


def recorded_schema(instant: Instant, metadata: CommitMetadata) -> RecordedSchema | None:
    if metadata.schema_history:
        raise UnsupportedTableError(
            f"the schema of {instant.requested} cannot be read",
            why="it was changed with schema-on-read, whose renames are not followed",
            next_step="Read this table with Apache Hudi",
        )
    if not metadata.schema_json:
        return None
    is_of_service = (metadata.operation_type or "").upper() in _SERVICE_OPERATIONS
    extra = metadata.extra_metadata or {}
    gone = recorded_drops(extra, instant), recorded_losses(extra, instant)
    is_foreign = WRITER_KEY not in extra
    return RecordedSchema(instant, metadata.schema_json, is_of_service, *gone, is_foreign)


def recorded_back(
    instants: Iterable[Instant], metadata: Callable[[Instant], CommitMetadata]
) -> Iterator[RecordedSchema]:
    """Yield what writes recorded, the last one first; the instants are in order."""
    writes = [instant for instant in instants if instant.action in WRITE_ACTIONS]
    for instant in reversed(writes):
        recorded = recorded_schema(instant, metadata(instant))
        if recorded is not None and not recorded.is_of_service:
            yield recorded


def behind_pyhudi(
    found: RecordedSchema, back: Iterable[RecordedSchema], before: TableSchemaText | None
) -> RecordedSchema:
    """Return the schema of another engine's commit with the columns that are gone since.

    They follow from what pyhudi recorded last: by one of the writes back from that commit, or else
    `before`.
    """
    if not found.is_foreign:
        return found
    passed: list[RecordedSchema] = []
    for recorded in back:
        if not recorded.is_foreign:
            before = recorded.text
            break
        passed.append(recorded)
    return found if before is None else with_gone(found, before, passed)


def with_gone(
    found: RecordedSchema, before: TableSchemaText, passed: Iterable[RecordedSchema]
) -> RecordedSchema:
    """Return the schema of another engine's commit with the columns that are gone since `before`.

    What is no longer there was dropped or lost by then. Else the first of the commits since that
    lacks it has taken it out; `passed` are these commits, the last one first, and are taken only
    as far as that needs.
    """
    schema = found.text.arrow
    gone = [
        tuple((name, since) for name, since in known if not _has(schema, name))
        for known in (before.dropped, before.lost)
    ]
    known = {name for name, _ in (*gone[0], *gone[1])}
    changes = () if before.avro_json == found.avro_json else column_changes(before.arrow, schema)
    new = [c.path for c in changes if c.kind is ChangeKind.DROPPED and c.path not in known]
    by = dict.fromkeys(new, found.instant.requested)
    missing = {*new}
    with suppress(CorruptTableError):  # then a later commit is named
        for other in passed if new else ():
            there = other.text.arrow
            missing = {name for name in missing if not _has(there, name)}
            if not missing:
                break
            by.update(dict.fromkeys(missing, other.instant.requested))
    return replace(found, dropped=gone[0], lost=(*gone[1], *by.items()))


def _has(schema: pa.Schema, path: str) -> bool:
    return has_column(schema, parse_path(path))


def recorded_by_write(metadata: CommitMetadata) -> str | None:
    """Return the schema that a write recorded; None for a table service, or if it has none."""
    operation = (metadata.operation_type or "").upper()
    return None if operation in _SERVICE_OPERATIONS else metadata.schema_json


def schema_in_force(
    loader: TableLoader,
    state: TableState,
    visibility: Visibility,
    *,
    completed_by: str | None = None,
    by_request: bool = False,
) -> pa.Schema:
    """Return the columns as the last visible write left them, with the meta columns.

    Of archived writes those count that had completed by the time, if there is one.
    """
    timeline = state.timeline
    found = _recorded_at(loader, state, visibility, completed_by, by_request=by_request)
    if found is not None:
        return table_schema(found.avro_json, found.instant.file_name)
    bases = [b for g in state.groups() for b in g.bases if visibility.sees(b.name.requested)]
    if bases:  # of writes that recorded none
        newest = max(bases, key=lambda base: base.name.requested)
        return with_meta_columns(load_base_schema(loader.storage, newest))
    # Before the first write the table had no rows, and the columns of that write.
    if found := last_recorded(timeline.writes[:1], timeline.began_as, loader.metadata):
        return table_schema(found.avro_json, found.instant.file_name)
    if state.config.create_schema:
        return table_schema(state.config.create_schema, PROPERTIES)
    return with_meta_columns(pa.schema([]))


def text_in_force(loader: TableLoader, state: TableState) -> TableSchemaText | None:
    """Return the schema now, as a commit recorded it; None if the table has no columns yet.

    Where none has, it is made of the columns of the newest base file.
    """
    visibility = visible_now(state.timeline)
    if found := _recorded_at(loader, state, visibility):
        return found.text
    schema = schema_in_force(loader, state, visibility)
    columns = pa.schema([field for field in schema if field.name not in META_COLUMNS])
    if not columns.names:
        return None
    return TableSchemaText(json.dumps(avro_record_schema(columns, state.config.name)))


def recorded_before(loader: TableLoader, state: TableState, time: str) -> RecordedSchema | None:
    """Return what the write recorded that was the last to complete by a time, archived or not."""
    visibility = visible_at_completion(CompletionTimes(state.timeline), time)
    return _recorded_at(loader, state, visibility, time)


def _recorded_at(
    loader: TableLoader,
    state: TableState,
    visibility: Visibility,
    completed_by: str | None = None,
    *,
    by_request: bool = False,
) -> RecordedSchema | None:
    """Return what the last visible write recorded, which may be archived."""
    timeline = state.timeline
    writes = [i for i in timeline.writes if visibility.sees(i.requested)]
    if by_request:
        writes.sort(key=lambda instant: instant.requested)
    if found := last_recorded(writes, timeline.began_as, loader.metadata):
        return found
    if not loader.may_have_archive or not visibility.archived_before:
        return None
    until = visibility.archived_before if by_request else completed_by
    archived = loader.history.latest_writes(until, by_request=by_request)
    return last_archived(w for w in archived if visibility.sees(w[0].requested))
