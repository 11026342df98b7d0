"""Planted bugs in which schema a commit records, and when.

As in `commit`, each weakens the code of production at one point, and has no state of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from pyhudi.commit import validation
from pyhudi.commit.concurrent import ConcurrentWrites
from pyhudi.commit.validation import CompletionCheck
from pyhudi.conflict.schema_to_record import TableSchemaText, WriteSchemas
from pyhudi.conflict.schemas import ReconcileSchemaStrategy, SchemaContradiction, merged
from pyhudi.read.schema_in_force import RecordedSchema, last_recorded
from pyhudi.timeline.live import LiveTimeline
from pyhudi.write import schemas

_Bug = Callable[[], AbstractContextManager[Any]]


def _begin_recorded() -> AbstractContextManager[Any]:
    """A commit records the schema as of its begin, as Hudi did before RFC-82."""

    def weak(schemas: WriteSchemas, now: TableSchemaText | None) -> TableSchemaText | None:
        return schemas.own or schemas.start or now

    return patch.object(validation, "schema_to_record", weak)


def _evolved_behind() -> AbstractContextManager[Any]:
    """A write changes the schema although one with a later request has completed."""
    return patch.object(CompletionCheck, "_later_request", lambda self, live: None)


def _evolved_behind_services() -> AbstractContextManager[Any]:
    """A write changes the schema although a compaction with a later request is there."""
    later = CompletionCheck._later_request

    def weak(self: CompletionCheck, live: LiveTimeline) -> str | None:
        found = later(self, live)
        is_service = found in live.began_as or found in live.pending
        return None if is_service else found

    return patch.object(CompletionCheck, "_later_request", weak)


def _joined_by_union() -> AbstractContextManager[Any]:
    """A write keeps the columns that it began with, and what others dropped returns."""
    resolve = ReconcileSchemaStrategy.resolve

    def weak(
        self: ReconcileSchemaStrategy, start: pa.Schema, now: pa.Schema | None, own: pa.Schema
    ) -> pa.Schema | SchemaContradiction:
        if now is None or set(start.names) > set(own.names):  # its own drops still count
            return resolve(self, start, now, own)
        return merged(pa.schema([]), now, own)

    return patch.object(ReconcileSchemaStrategy, "resolve", weak)


def _kept_from_the_call() -> AbstractContextManager[Any]:
    """What others changed between the call and the begin is undone: row 6 becomes row 5."""

    def weak(
        called: TableSchemaText | None,
        rows: TableSchemaText | None,
        start: TableSchemaText | None,
        table_name: str,
    ) -> TableSchemaText | None:
        return rows or start

    return patch.object(schemas, "own_schema", weak)


def _services_bring_schemas() -> AbstractContextManager[Any]:
    """A compaction of the schema before a change completes, and that schema counts again."""

    def weak(
        self: ConcurrentWrites, live: LiveTimeline, known: str | None = None
    ) -> RecordedSchema | None:
        return last_recorded(self.instants(live), live.began_as, self.metadata)

    return patch.object(ConcurrentWrites, "schema", weak)


def _last_begin_passed() -> AbstractContextManager[Any]:
    """A change without rows does not look at the write that had begun last before it."""
    return patch.object(LiveTimeline, "last_completion", property(lambda self: self.highest))


#: The bugs, by name.
SCHEMA_BUGS: dict[str, _Bug] = {
    "schema of the begin recorded": _begin_recorded,
    "evolved behind a later request": _evolved_behind,
    "evolved behind a service": _evolved_behind_services,
    "joined by union": _joined_by_union,
    "own kept from the call": _kept_from_the_call,
    "services bring schemas": _services_bring_schemas,
    "last begin passed": _last_begin_passed,
}
