"""Which schemas does a write have: of its rows, of its files, and of the commit that it makes?

The rows are converted once, when the write is called, to the table's schema of that moment and what
they add to it (`RowSchema`). The table may evolve between the call and the begin, and between two
attempts. So each attempt applies the changes of the rows to the schema that is in force when it
begins, and its files have the result. What the commit records is decided when it is validated
(`conflict.schema_to_record`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from pyhudi.commit.validation import SchemaConflict
from pyhudi.conflict.schema_to_record import TableSchemaText, WriteSchemas, own_schema
from pyhudi.conflict.schemas import (
    ReconcileSchemaStrategy,
    SchemaContradiction,
    SchemaStrategy,
    SimpleSchemaStrategy,
)
from pyhudi.errors import InvalidRequestError
from pyhudi.format.avro.recorded import encode_schema
from pyhudi.format.table.table_config import TableConfig
from pyhudi.session.session import TableSession
from pyhudi.settings import SchemaMode, WriteSettings
from pyhudi.table.rows.input_rows import MODE_WORDS
from pyhudi.table.rows.schema_mode import brought_schema
from pyhudi.table.schema import META_COLUMNS
from pyhudi.table.schema_changes import ChangeKind, column_changes

_STRATEGIES: dict[object, SchemaStrategy] = {
    "reconcile": ReconcileSchemaStrategy(),
    "simple": SimpleSchemaStrategy(),
}


@dataclass(frozen=True, slots=True)
class RowSchema:
    """The schema to which the rows of a write are converted when it is called."""

    called: TableSchemaText | None  # the table's then; None if it had none
    rows: TableSchemaText
    fills_missing: bool = False  # True if rows may lack columns, which become null
    #: How the caller chooses a schema mode, for advice; None if its verb has none.
    mode_words: Mapping[SchemaMode, str] | None = None


def row_schema(
    session: TableSession,
    rows: pa.Schema | None = None,
    mode: SchemaMode = SchemaMode.STRICT,
    words: Mapping[SchemaMode, str] = MODE_WORDS,
) -> RowSchema:
    """Return the schema to convert rows to.

    `rows` is the schema of whole rows, None if there are none. By `words` the caller chooses a
    mode.
    """
    called = session.schema.now()
    if rows is None or (called is not None and mode is SchemaMode.STRICT):
        if called is None:
            session.schema.avro()  # raises
        assert called is not None
        # No mode takes a column that was dropped.
        is_choice = rows is not None and not {*rows.names} & {*dict(called.dropped)}
        return RowSchema(called, called, mode_words=words if is_choice else None)
    config = session.config
    table = None if called is None else called.arrow
    brought = brought_schema(table, rows, mode, fixed_columns(config))
    if called is not None and called.dropped:
        _refuse_dropped(called, brought)
    texts = [] if called is None else [called.avro_json]
    dropped = () if called is None else called.dropped
    text = encode_schema(brought, texts, config.name, without=META_COLUMNS)
    fills = mode is SchemaMode.MERGE
    return RowSchema(called, TableSchemaText(text, dropped), fills_missing=fills, mode_words=words)


def _refuse_dropped(called: TableSchemaText, brought: pa.Schema) -> None:
    """Raise InvalidRequestError if the rows bring a column back that was dropped."""
    dropped = {name.lower(): when for name, when in called.dropped}  # Spark does not see case
    for change in column_changes(called.arrow, brought):
        if change.kind is ChangeKind.ADDED and change.path.lower() in dropped:
            raise InvalidRequestError(
                f"column {change.path!r} cannot be added again",
                why=f"it was dropped at {dropped[change.path.lower()]}, and data files may still"
                " hold its values",
                next_step="Write it under another name. Once compaction and cleaning have removed"
                " those files, table.update_schema() can add it",
            )


def schemas_at_begin(
    session: TableSession, rows: RowSchema | None
) -> WriteSchemas | SchemaConflict:
    """Return the schemas of an attempt that has just begun. `rows` is None if it has none."""
    start, config = session.schema.now(), session.config
    own = None
    if rows is not None:
        found = own_schema(rows.called, rows.rows, start, config.name)
        if isinstance(found, SchemaContradiction):
            return SchemaConflict(found, rows.called, start, rows.rows, None)
        own = found
    strategy = schema_strategy(session.settings)
    return WriteSchemas(start, own, strategy, fixed_columns(config), config.name)


def fixed_columns(config: TableConfig) -> tuple[str, ...]:
    """Return the columns that identify or order rows, which no write may change."""
    return (*config.record_key_fields, *config.partition_fields, *config.ordering_fields)


def schema_strategy(settings: WriteSettings) -> SchemaStrategy:
    given = settings.schema_strategy
    return _STRATEGIES[given] if isinstance(given, str) else given  # type: ignore[return-value]
