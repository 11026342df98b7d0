"""Which schema does a write record when it completes (RFC-82)?

A commit records the table's schema as of its completion. Three schemas decide which one that is:

    start   the table's when the attempt began
    now     the table's when its completion is validated, for exactly the entry that it may append
    own     `start` with the columns and types that the rows of the write bring

A strategy makes one of the three (`conflict.schemas`), it is judged (`conflict.strategy_result`),
and documentation follows it (`conflict.documentation`). A write that brings no schema, such as a
delete, records `now`. So does a write whose rows bring nothing new, whatever others have changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass, field

import pyarrow as pa

from pyhudi.conflict.documentation import merged_documentation
from pyhudi.conflict.gone_columns import (
    GoneColumns,
    gone_extra,
    still_lost,
    too_many_dropped,
)
from pyhudi.conflict.schemas import (
    ReconcileSchemaStrategy,
    SchemaContradiction,
    SchemaStrategy,
)
from pyhudi.conflict.strategy_result import unfit_contradiction, unfit_error, unfit_result
from pyhudi.errors import HudiError, InvalidRequestError, fault
from pyhudi.format.avro.canonical import annotated_schema, fingerprint, is_same_schema
from pyhudi.format.avro.documentation import documented_columns
from pyhudi.format.avro.recorded import encode_schema
from pyhudi.format.timeline.commit_metadata import SCHEMA_KEY
from pyhudi.table.schema import META_COLUMNS
from pyhudi.table.schema_changes import ChangeKind, column_changes


@dataclass(frozen=True, slots=True)
class TableSchemaText:
    """A schema of the table as a commit records it, and where it was found.

    `dropped` and `lost` are the columns that it has no longer (`conflict.gone_columns`).
    """

    avro_json: str
    dropped: GoneColumns = ()
    path: str = "the table's schema"
    lost: GoneColumns = ()

    @property
    def arrow(self) -> pa.Schema:
        """The data columns. CorruptTableError names the path if the text is damaged."""
        return annotated_schema(self.avro_json, self.path, without=META_COLUMNS)

    @property
    def fingerprint(self) -> str:
        """Return a few digits that tell whether another write records just this.

        Documentation counts here, for a write that goes by them records the text that it knows.
        """
        columns = self.arrow
        mark, texts = fingerprint(columns), documented_columns(columns)
        if not self.dropped and not self.lost and not texts:
            return mark
        lost = [self.lost] if self.lost else []
        more = json.dumps([self.dropped, sorted(texts.items()), *lost])
        return hashlib.sha256(f"{mark}{more}".encode()).hexdigest()[: len(mark)]

    def is_same(self, other: TableSchemaText | None) -> bool:
        """True if Hudi would take both for the same schema."""
        if other is None or self.dropped != other.dropped:
            return False
        is_equal = self.avro_json == other.avro_json
        return is_equal or is_same_schema(self.arrow, other.arrow)

    def is_documented_as(self, other: TableSchemaText) -> bool:
        """True if the columns of both have the same documentation, which Hudi does not compare."""
        if self.avro_json == other.avro_json:
            return True
        return documented_columns(self.arrow) == documented_columns(other.arrow)


@dataclass(frozen=True, slots=True)
class WriteSchemas:
    """The schemas that one attempt of a write begins with, and how it deals with those of others.

    `fixed` are the columns that no schema may lack: record key, partition and ordering.
    """

    start: TableSchemaText | None
    own: TableSchemaText | None  # None if the write brings no schema
    strategy: SchemaStrategy = field(default_factory=ReconcileSchemaStrategy)
    fixed: Collection[str] = ()
    table_name: str = "table"
    #: Drops, each with its time, whose values no file holds any more: commits stop carrying them.
    released: frozenset[tuple[str, str]] = frozenset()


def own_schema(
    called: TableSchemaText | None,
    rows: TableSchemaText | None,
    start: TableSchemaText | None,
    table_name: str,
) -> TableSchemaText | SchemaContradiction | None:
    """Return `start` with the changes that the rows bring.

    `rows` is what they were converted to when the write was called, from `called`, the table's
    schema then. The table may have evolved since. A write that is tried again applies the same
    changes to another start, and never undoes what others did.
    """
    if rows is None or start is None:
        return rows or start
    if called is not None and called.avro_json == start.avro_json:
        return rows
    if called is not None and rows.avro_json == called.avro_json:
        return start
    base = None if called is None else called.arrow
    now, own = start.arrow, rows.arrow
    result = ReconcileSchemaStrategy().resolve(base, now, own)
    if isinstance(result, SchemaContradiction):
        return result
    documented = merged_documentation(result, base, now, own)
    return _encoded(documented, start, [start, rows], table_name)


def schema_to_record(
    schemas: WriteSchemas, now: TableSchemaText | None
) -> TableSchemaText | SchemaContradiction | HudiError | None:
    """Return the schema to record, or why there is none; None if the table has no schema yet.

    Raise CorruptTableError if what another write recorded is damaged.
    """
    start, own = schemas.start, schemas.own
    if now is not None and now != start:
        _ = now.arrow  # before anything is decided
    if own is None or (start is not None and own.avro_json == start.avro_json):
        return now or own
    if now is None:
        return own
    known = None if start is None else start.arrow, now.arrow, own.arrow
    try:
        result = schemas.strategy.resolve(*known)
    except HudiError as error:
        return error
    except Exception as error:
        return fault("the schema strategy", error)
    if isinstance(result, SchemaContradiction):
        why = unfit_contradiction(result.columns)
        return result if why is None else unfit_error(why)
    if why := unfit_result(result, now.arrow, own.arrow, schemas.strategy, schemas.fixed):
        return unfit_error(why)
    sources = [text for text in (now, own, start) if text is not None]
    documented = merged_documentation(result, *known)
    try:
        return _encoded(documented, now, sources, schemas.table_name)
    except InvalidRequestError as error:  # such as too many columns, which two writes added
        return error


def _encoded(
    schema: pa.Schema, before: TableSchemaText, sources: list[TableSchemaText], table_name: str
) -> TableSchemaText | SchemaContradiction:
    """Return the text of the schema, which takes the place of the one `before`."""
    texts = [source.avro_json for source in sources]
    text = encode_schema(schema, texts, table_name, without=META_COLUMNS)
    changes = column_changes(before.arrow, schema)
    # Readers that do not see case would find the old values.
    back = {change.path.lower() for change in changes if change.kind is ChangeKind.ADDED}
    gone = [change.path for change in changes if change.kind is ChangeKind.DROPPED]
    if again := [(name, when) for name, when in before.dropped if name.lower() in back]:
        why = "it was dropped{}, and data files may still hold its values"
        return SchemaContradiction(
            tuple((name, why.format(f" at {when}" if when else "")) for name, when in again)
        )
    dropped = (*before.dropped, *((name, "") for name in gone))
    if gone and (error := too_many_dropped(dropped)) is not None:
        raise error
    lost = still_lost(before.lost, {change.path for change in changes})
    return TableSchemaText(text, dropped, lost=lost)


def schema_extra(schema: TableSchemaText) -> dict[str, str]:
    """Return what the metadata of a commit has of the schema."""
    return {SCHEMA_KEY: schema.avro_json, **gone_extra(schema.dropped, schema.lost)}
