"""The verbs that say where a write would go and whom it would meet, and write nothing.

Each has the intent and the rows of the verb that it is for (`api.writes`). The session is
read-only. A Spark frame is evaluated once for it, as rows of its keys and partitions alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyhudi.api.inputs import is_spark_frame
from pyhudi.api.writes import (
    overwrite_intent,
    part_intent,
    refuse_owned_mode,
    source_of,
    update_intent,
    upsert_intent,
    with_row_schema,
)
from pyhudi.session.open import OpenTable
from pyhudi.session.session import TableSession
from pyhudi.settings import SchemaMode
from pyhudi.table.rows.schema_mode import parse_schema_mode
from pyhudi.write.intent import WriteIntent
from pyhudi.write.preview.places import Placement
from pyhudi.write.preview.preview import WritePreview, write_preview


class Previews:
    """Previews of writes of one table."""

    def __init__(self, table: OpenTable) -> None:
        self._table = table

    def upsert(self, rows: Any, owner: str | None, schema_mode: str | None) -> WritePreview:
        source, mode = source_of(rows), self._mode(schema_mode)
        refuse_owned_mode(owner, schema_mode)
        with self._looking() as session:
            if owner is None:
                return _previewed(session, upsert_intent(session), source, mode)
            return _previewed(session, *part_intent(session, source, owner))

    def update(self, rows: Any, columns: Sequence[str]) -> WritePreview:
        source = source_of(rows)
        with self._looking() as session:
            return _previewed(session, update_intent(session, columns), source)

    def overwrite(self, rows: Any, partitions: Any, schema_mode: str | None) -> WritePreview:
        source, mode = source_of(rows), self._mode(schema_mode)
        with self._looking() as session:
            return _previewed(session, *overwrite_intent(session, source, partitions), mode)

    def _mode(self, given: str | None) -> SchemaMode:
        return self._table.settings.schema_mode if given is None else parse_schema_mode(given)

    @contextmanager
    def _looking(self) -> Iterator[TableSession]:
        """Open the table as it is now, alone among the threads that share it."""
        with self._table.exclusive:
            session = self._table.session(is_read_only=True)
            session.log.refresh()
            yield session


def _previewed(
    session: TableSession,
    intent: WriteIntent,
    source: Any,
    mode: SchemaMode = SchemaMode.STRICT,
) -> WritePreview:
    intent, source = with_row_schema(session, intent, source, mode)
    is_sent = is_spark_frame(source)
    placement = Placement.now(session, intent, is_sent=is_sent)
    if is_sent:
        from pyhudi.spark.places import counted  # optional: it needs PySpark

        counts = counted(source, placement)
    else:
        counts = placement.counted(source)
    session.log.peek()  # the rows may have taken long to arrive
    return write_preview(session, intent, placement.places(counts))
