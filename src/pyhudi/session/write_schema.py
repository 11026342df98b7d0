"""Which schema does a write bring its rows to, and record?

That of the last completed write, by the rule that readers go by too (`read.schema_in_force`). A
session looks only at writes that completed since its last look.
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
from pyhudi.read.schema_in_force import (
    RecordedSchema,
    last_recorded,
    text_in_force,
    with_earlier_drops,
)
from pyhudi.timeline.timeline import WRITE_ACTIONS


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

    def now(self) -> TableSchemaText | None:
        """Return the schema in force, as the live timeline has it; None if there is none yet."""
        live, known = self._log.live, self._last
        if known is not None and not live.is_committed(known.instant.requested):
            known = None  # a restore undid it
        since = "" if known is None else known.instant.completed or ""
        new = live.completed_after(since)
        before, drops = known, () if known is None else known.dropped
        known = last_recorded(new, live.began_as, self._metadata, known)
        if known is not None and known is not before:
            known = with_earlier_drops(known, new, self._metadata, drops)
        self._last = known
        if self._config.lock.is_shared and before is not None and known is not None:
            _warn_of_lost_columns(before, known)
        if known is not None:
            return known.text
        is_first = not any(i.action in WRITE_ACTIONS for i in live.completed.values())
        if not is_first:
            return text_in_force(self._loader, self._current.load())
        created = self._config.create_schema
        return TableSchemaText(created) if created else None

    def dropped(self) -> frozenset[str]:
        """Return the columns that were dropped."""
        now = self.now()
        return frozenset() if now is None else frozenset(name for name, _ in now.dropped)

    def note(self, instant: Instant, schema: TableSchemaText) -> None:
        """Take note of a write of this process that completed, which spares reading its file."""
        drops = tuple((name, when or instant.completed or "") for name, when in schema.dropped)
        self._last = RecordedSchema(instant, schema.avro_json, dropped=drops)

    def _metadata(self, instant: Instant) -> CommitMetadata:
        return self._loader.metadata(instant, self._log.metadata(instant.requested))


def _warn_of_lost_columns(before: RecordedSchema, now: RecordedSchema) -> None:
    """Warn if a commit lacks columns of the one before it, and does not record a drop."""
    if before.avro_json == now.avro_json:
        return
    dropped = {name for name, _ in now.dropped}
    gone = [name for name in before.text.arrow.names if name not in now.text.arrow.names]
    if lost := [name for name in gone if name not in dropped]:
        warnings.warn(
            f"the write {now.instant.requested} took the column {lost[0]!r} out of the table: its"
            " writer recorded an older schema than the one in force. Its values are still in the"
            " files. Bring it back with table.update_schema() and union_by_name"
            " (docs/differences.md)",
            SchemaWarning,
            stacklevel=2,
        )
