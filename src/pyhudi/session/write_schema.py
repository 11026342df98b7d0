"""Which schema does a write bring its rows to, and record?

That of the last completed write, by the rule that readers go by too (`read.schema`). A session
looks only at writes that completed since its last look.
"""

from __future__ import annotations

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.errors import InvalidRequestError
from pyhudi.format.table.table_config import TableConfig
from pyhudi.format.timeline.commit_metadata import CommitMetadata
from pyhudi.format.timeline.instant import Instant
from pyhudi.read.current_state import CurrentState
from pyhudi.read.load import TableLoader
from pyhudi.read.schema_in_force import RecordedSchema, avro_in_force, last_recorded
from pyhudi.timeline.timeline import WRITE_ACTIONS


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
        """Return the schema as commits record it: Avro, as JSON, without meta columns."""
        live, known = self._log.live, self._last
        if known is not None and not live.is_committed(known.instant.requested):
            known = None  # a restore undid it
        since = "" if known is None else known.instant.completed or ""
        new = live.completed_after(since)
        self._last = known = last_recorded(new, live.began_as, self._metadata, known)
        if known is not None:
            return known.avro_json
        is_first = not any(i.action in WRITE_ACTIONS for i in live.completed.values())
        found = self._config.create_schema if is_first else self._in_force()
        if found:
            return found
        raise InvalidRequestError(
            f"the table at {self._loader.storage.uri} cannot be written yet",
            why="no write has given it a schema, and its properties have none",
            next_step="Write it once with Apache Hudi, or create it with create_table",
        )

    def note(self, instant: Instant, avro: str) -> None:
        """Take note of a write of this process that completed, which spares reading its file."""
        self._last = RecordedSchema(instant, avro)

    def _in_force(self) -> str | None:
        return avro_in_force(self._loader, self._current.load())

    def _metadata(self, instant: Instant) -> CommitMetadata:
        return self._loader.metadata(instant, self._log.metadata(instant.requested))
