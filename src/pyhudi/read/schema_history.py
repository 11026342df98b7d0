"""Who changed the table's columns, and when?

A write changes them if the schema that it recorded is another than the one that the write before it
recorded, or documents them in another way. "Before" is by completion. Table services bring no
schema (`read.schema_in_force`).

The archive is not in the order of completion, so what is needed of each write is collected before
the writes are compared: a few short texts, and each distinct schema once. Commits, which may be
large, are read one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pyhudi.conflict.schema_to_record import TableSchemaText
from pyhudi.errors import CorruptTableError, HudiError
from pyhudi.format.timeline.commit_metadata import CommitMetadata
from pyhudi.format.timeline.instant import Instant
from pyhudi.format.timeline.writer_identity import WriterIdentity, parse_writer
from pyhudi.plan.changes import CompletedWrite
from pyhudi.read.load import TableLoader
from pyhudi.read.schema_in_force import recorded_by_write
from pyhudi.table.schema_changes import ColumnChange, column_changes
from pyhudi.timeline.timeline import Timeline

_AFTER_ALL = "~"


@dataclass(frozen=True, slots=True)
class SchemaWrite:
    """A write that recorded a schema."""

    completed: str
    requested: str
    operation: str | None
    writer: WriterIdentity
    avro_json: str


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A write that changed the table's schema.

    `changes` is None if this schema or the one before it cannot be read.
    """

    write: SchemaWrite
    changes: tuple[ColumnChange, ...] | None


def schema_changes(loader: TableLoader, timeline: Timeline) -> Iterator[SchemaChange]:
    """Yield the writes that changed the schema, the oldest first; the first one brought it.

    The archive is read up to the last completion that the timeline shows.
    """
    before: str | None = None
    for write in _writes(loader, timeline):
        if before is None or not _is_same(before, write.avro_json):
            yield SchemaChange(write, _changes(before, write.avro_json, write.requested))
        before = write.avro_json


def _writes(loader: TableLoader, timeline: Timeline) -> list[SchemaWrite]:
    """Return the writes that recorded a schema, by completion."""
    texts: dict[str, str] = {}
    people: dict[WriterIdentity, WriterIdentity] = {}

    def noted(write: CompletedWrite) -> Iterable[SchemaWrite]:
        avro = recorded_by_write(write.metadata)
        if avro is not None:
            avro = texts.setdefault(avro, avro)
            found = parse_writer(write.metadata.extra_metadata)
            writer = people.setdefault(found, found)
            operation = write.metadata.operation
            yield SchemaWrite(write.completed, write.requested, operation, writer, avro)

    until = max(timeline.completion_times.values(), default=_AFTER_ALL)
    found = loader.history.from_writes("", until, noted)
    # An instant may have moved into the archive since the timeline was loaded.
    archived = {write.requested for write in found}
    for instant in timeline.writes:
        if instant.requested in archived or timeline.is_table_service(instant):
            continue
        if (metadata := _metadata(loader, instant)) is not None:
            found += noted(CompletedWrite(instant.requested, instant.completed or "", metadata))
    return sorted(found, key=lambda write: (write.completed, write.requested))


def _metadata(loader: TableLoader, instant: Instant) -> CommitMetadata | None:
    """Return a commit's contents; None if it is damaged, and shows nothing."""
    try:
        return loader.history.write_metadata(loader.timeline_folder, instant)
    except CorruptTableError:
        return None


def _is_same(before: str, now: str) -> bool:
    try:
        old, new = TableSchemaText(before), TableSchemaText(now)
        return new.is_same(old) and new.is_documented_as(old)
    except HudiError:  # one of them cannot be read, and the texts differ
        return False


def _changes(before: str | None, now: str, origin: str) -> tuple[ColumnChange, ...] | None:
    try:
        old = None if before is None else TableSchemaText(before, path=origin).arrow
        return column_changes(old, TableSchemaText(now, path=origin).arrow)
    except HudiError:
        return None
