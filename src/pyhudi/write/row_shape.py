"""How does an arriving batch become rows of a write? Bad rows are found here.

Rows may arrive in this process or in a Spark task. Both prepare them by these values, so the same
rows are refused with the same error.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from pyhudi.format.table.table_config import TableConfig
from pyhudi.index.routing import PreparedBatch, prepared
from pyhudi.settings import SchemaMode
from pyhudi.table.rows.input_rows import MODE_WORDS, conformed
from pyhudi.table.rows.latest import ordering_columns, refuse_null_ordering
from pyhudi.table.schema import META_COLUMNS, PARTITION_PATH, RECORD_KEY
from pyhudi.write.deletes import keyed_rows
from pyhudi.write.files.spec import rows_layout
from pyhudi.write.intent import Change, Keys, NewValues, PartialRows
from pyhudi.write.schemas import RowSchema, fixed_columns

#: Stands for the partition of keys that come without it.
UNKNOWN_PARTITION: Final = ""


class RowShape(Protocol):
    """What the rows of one write look like."""

    @property
    def ordering(self) -> tuple[str, ...]:
        """The columns that decide which of several rows with one key is the latest."""
        ...

    def columns(self, names: Collection[str]) -> list[str]:
        """Return the columns of an input that the write uses."""
        ...

    def prepare(self, batch: pa.RecordBatch) -> PreparedBatch:
        """Return the batch as rows of the write.

        Raise InvalidRequestError, with a sample of rows, if some cannot be written.
        """
        ...


@dataclass(frozen=True, slots=True)
class ColumnShape:
    """Rows with these columns: all of the table, an owner's, or those that an update sets."""

    config: TableConfig
    schema: pa.Schema
    ignores_others: bool = False  # True if the input may have other columns, which are ignored
    fills_missing: bool = False  # True if the input may lack columns, which become null
    #: How the caller chooses a schema mode, for advice; None if its verb has none.
    mode_words: Mapping[SchemaMode, str] | None = None

    @property
    def ordering(self) -> tuple[str, ...]:
        # An update may lack columns. Without an ordering value, the last row of a key counts.
        return ordering_columns(self.config, self.schema.names)

    def columns(self, names: Collection[str]) -> list[str]:
        if self.ignores_others:
            return [name for name in names if name in self.schema.names]
        return [name for name in names if name not in META_COLUMNS]

    def prepare(self, batch: pa.RecordBatch) -> PreparedBatch:
        if self.ignores_others:
            batch = batch.select(self.columns(batch.schema.names))
        rows = conformed(
            batch,
            self.schema,
            fills_missing=self.fills_missing,
            fixed=None if self.mode_words is None else fixed_columns(self.config),
            words=self.mode_words or MODE_WORDS,
        )
        refuse_null_ordering(rows, self.ordering)
        return prepared(rows, self.config)


@dataclass(frozen=True, slots=True)
class KeyShape:
    """Keys to delete, and the other columns that the caller gave to find them."""

    config: TableConfig
    schema: pa.Schema  # of the table
    given: Collection[str]

    @property
    def ordering(self) -> tuple[str, ...]:
        return ordering_columns(self.config, self.given)

    @property
    def by_partition(self) -> bool:
        """True if the keys come with their partitions."""
        return set(self.config.partition_fields) <= set(self.given)

    def columns(self, names: Collection[str]) -> list[str]:
        return [name for name in names if name not in META_COLUMNS]

    def prepare(self, batch: pa.RecordBatch) -> PreparedBatch:
        keys = keyed_rows(batch, self.schema, self.config).combine_chunks()
        row = keys.to_batches()[0] if keys.num_rows else pa.RecordBatch.from_pylist([], keys.schema)
        if PARTITION_PATH in keys.column_names:
            paths = row.column(PARTITION_PATH).dictionary_encode()
        else:
            indices = pa.array(np.zeros(row.num_rows, np.int32))
            paths = pa.DictionaryArray.from_arrays(indices, pa.array([UNKNOWN_PARTITION]))
        return PreparedBatch(row, row.column(RECORD_KEY), paths)


def row_shape(change: Change, rows: RowSchema, config: TableConfig) -> RowShape:
    """Return the shape of the rows that this change of the table has as its input."""
    avro, part = rows.rows.avro_json, change.part if isinstance(change, PartialRows) else None
    data = rows_layout(avro, part).data
    match change:
        case Keys(given):
            return KeyShape(config, data, given)
        case NewValues(columns):
            finding = {*config.record_key_fields, *config.partition_fields}
            chosen = [f for f in data if f.name in finding or f.name in columns]
            return ColumnShape(config, pa.schema(chosen), ignores_others=True)
        case _:
            fills, words = rows.fills_missing, rows.mode_words
            return ColumnShape(config, data, fills_missing=fills, mode_words=words)
