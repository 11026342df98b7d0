"""Which key generators write here, and the columns they take.

A key generator turns columns into record keys and partition paths. SIMPLE, COMPLEX and
NON_PARTITION make them of plain values and are the ones Hudi chooses by itself. The others format
times, need settings that the table does not keep, or run the user's Java code: what they would
write cannot be known here, so a table that has one is read but not written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from pyhudi.errors import InvalidRequestError, UnsupportedTableError
from pyhudi.format.table.table_config import KeyGenerator, TableConfig
from pyhudi.table.rows.value_texts import refuse_type, refuse_values

RECORD_KEY_ROLE: Final = "a record key"
PARTITION_ROLE: Final = "a partition field"

_WRITTEN = frozenset({KeyGenerator.SIMPLE, KeyGenerator.COMPLEX, KeyGenerator.NON_PARTITION})


def refuse_key_generator(config: TableConfig) -> None:
    """Raise UnsupportedTableError for a table whose keys or partition paths cannot be made here."""
    generator, keys = config.key_generator, config.record_key_fields
    if generator not in _WRITTEN:
        raise _refusal(f"it has the key generator {generator}")
    if not keys:
        raise _refusal("it has no record key fields")
    if generator is KeyGenerator.SIMPLE and max(len(keys), len(config.partition_fields)) > 1:
        raise _refusal("its key generator SIMPLE takes one field, and it names several")
    if nested := [name for name in (*keys, *config.partition_fields) if "." in name]:
        raise _refusal(f"its field {nested[0]!r} lies inside another column")


def _refusal(why: str) -> UnsupportedTableError:
    return UnsupportedTableError(
        "pyhudi cannot write to this table",
        why=why,
        next_step="Write to it with Apache Hudi; docs/format.md lists what pyhudi supports",
    )


def key_columns(batch: pa.RecordBatch, names: Sequence[str], role: str) -> dict[str, pa.Array]:
    """Return the named columns. Each of their values has a text."""
    columns = {}
    for name in names:
        _refuse_column(batch.schema, name, role)
        columns[name] = batch.column(name)
        refuse_values(columns[name], name, role)
    return columns


def _refuse_column(schema: pa.Schema, name: str, role: str) -> None:
    if schema.get_field_index(name) < 0:
        raise InvalidRequestError(
            f"column {name!r} is needed as {role}",
            why="there is no column of that name, or there are several",
            next_step="Give the rows one such column",
        )
    refuse_type(schema.field(name), role)
