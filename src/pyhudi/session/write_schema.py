"""Which schema does a write bring its rows to, and record?

That of the last completed write, by the rule that readers go by too (`read.schema_in_force`). A
session looks only at writes that completed since its last look. If the last one is of another
engine, a session that has just been opened finds what pyhudi recorded before it by the log's end.
"""

from __future__ import annotations

import warnings

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.conflict.schema_to_record import TableSchemaText
from pyhudi.errors import InvalidRequestError
from pyhudi.format.table.table_config import TableConfig
from pyhudi.format.timeline.commit_metadata import CommitMetadata
from pyhudi.format.timeline.instant import Instant
from pyhudi.read.current_state import CurrentState
from pyhudi.read.load import TableLoader
from pyhudi.read.log_view import inline_metadata
from pyhudi.read.schema_in_force import (
    RecordedSchema,
    last_recorded,
    recorded_back,
    recorded_before,
    recorded_schema,
    text_in_force,
    with_gone,
)
from pyhudi.timeline.live import LiveTimeline
from pyhudi.timeline.timeline import WRITE_ACTIONS

#: How many entries of the log, and how many commits of another engine, are read at most to find
#: what pyhudi recorded last.
LOOK_BACK = 32


class SchemaWarning(UserWarning):
    """Another engine's commit took a column out of the table that was not dropped."""


class SchemaInForce:
    """The schema of one table, as the last completed write recorded it."""

    def __init__(
        self, config: TableConfig, loader: TableLoader, log: DecisionLog, current: CurrentState
    ) -> None:
        self._config = config
        self._loader = loader
        self._log = log
        self._current = current
        self._last: RecordedSchema | None = None
        self._warned: set[tuple[str, str]] = set()

    def avro(self) -> str:
        """Return the schema as commits record it: Avro, as JSON, without meta columns.

        Raise InvalidRequestError if the table has no schema yet.
        """
        if (now := self.now()) is not None:
            return now.avro_json
        raise InvalidRequestError(
            f"the table at {self._loader.storage.uri} has no columns yet",
            why="no write has given it a schema, and its properties have none",
            next_step="Write rows with upsert or append first, or create the table with"
            " create_table",
        )

    def avro_at(self, requested: str) -> str:
        """Return the schema that was in force when an instant began.

        A table service writes its files in it, and records it: whatever changed since came with a
        later request (`CompletionCheck`), and a read as of the service's request has no part of it.
        """
        now, last = self.avro(), self._last
        if last is None or (last.instant.completed or "") < requested:
            return now
        live = self._log.live
        before = [i for i in live.completed_after("") if (i.completed or "") < requested]
        found = last_recorded(before, live.began_as, self._metadata)
        if found is None or found.is_of_service:
            state = self._current.load()
            found = recorded_before(self._loader, state, requested) or found
        if found is None or found.is_foreign or found.lost:
            return now  # which may have a column again that another engine had taken out
        return found.avro_json

    def now(self) -> TableSchemaText | None:
        """Return the schema in force, as the live timeline has it; None if there is none yet.

        Warn of columns that another engine's commit took out.
        """
        live, known = self._log.live, self._last
        if known is not None and not live.is_committed(known.instant.requested):
            known = None  # a restore undid it
        new = live.completed_after(_completion(known))
        found = last_recorded(new, live.began_as, self._metadata, known)
        if found is not None and found is not known and found.is_foreign:
            found = self._behind_pyhudi(found, known, live)
        self._last = found
        if found is not None:
            self._warn(found)
            return found.text
        is_first = not any(i.action in WRITE_ACTIONS for i in live.completed.values())
        if not is_first:
            return text_in_force(self._loader, self._current.load())
        created = self._config.create_schema
        return TableSchemaText(created) if created else None

    def _behind_pyhudi(
        self, found: RecordedSchema, known: RecordedSchema | None, live: LiveTimeline
    ) -> RecordedSchema:
        """Return what another engine recorded, with the columns that are gone since pyhudi's last
        write.

        The log has that write, however many commits of the other engine came behind it.
        """
        before = self._last_of_pyhudi(live, _completion(known)) or known
        if before is None:
            return found
        behind = live.completed_after(_completion(before))[-LOOK_BACK:]
        passed = recorded_back(behind, self._metadata)
        return with_gone(found, before.text, passed)

    def _last_of_pyhudi(self, live: LiveTimeline, since: str) -> RecordedSchema | None:
        """Return what pyhudi's last write after that time recorded, if the log's end has it."""
        for entry in self._log.latest_entries(LOOK_BACK):
            if entry.time is not None and entry.time <= since:
                return None
            done = entry.completed_write
            if done is None:
                continue
            if done.requested not in live.completed:
                return None  # archived, or undone: an earlier write would not tell what it changed
            found = recorded_schema(done, self._loader.metadata(done, inline_metadata(entry)))
            if found is not None and not (found.is_of_service or found.is_foreign):
                return found
        return None

    def may_go(self) -> frozenset[str] | None:
        """Return the columns whose values a rewrite may leave out; None if that of any may go.

        Where only pyhudi writes, no column is lost, and no file need be looked at.
        """
        now = self.now()
        if now is None or not (self._config.lock.is_shared or now.lost):
            return None
        return frozenset(name for name, _ in now.dropped)

    def note(self, instant: Instant, schema: TableSchemaText) -> None:
        """Take note of a write of this process that completed, which spares reading its file.

        Warn of columns that another engine's commit took out while it ran.
        """
        drops = tuple((name, when or instant.completed or "") for name, when in schema.dropped)
        self._last = RecordedSchema(instant, schema.avro_json, dropped=drops, lost=schema.lost)
        self._warn(self._last)

    def _metadata(self, instant: Instant) -> CommitMetadata:
        return self._loader.metadata(instant, self._log.metadata(instant.requested))

    def _warn(self, now: RecordedSchema) -> None:
        """Warn of the columns that are lost, of each once."""
        for name, by in now.lost:
            if (name, by) not in self._warned:
                self._warned.add((name, by))
                warnings.warn(
                    f"the write {by} took the column {name!r} out of the table: its writer recorded"
                    " an older schema than the one in force. Its values are still in the files."
                    " Bring it back with table.update_schema() and union_by_name"
                    " (docs/differences.md)",
                    SchemaWarning,
                    stacklevel=2,
                )


def _completion(known: RecordedSchema | None) -> str:
    return "" if known is None else known.instant.completed or ""
