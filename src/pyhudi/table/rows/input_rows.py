"""A user's rows as the table stores them.

Rows come from anywhere: pandas counts nanoseconds, Polars has unsigned numbers and categories,
Spark has neither. A new table takes the types of `storable_types` for those of its first rows. From
then on every batch is converted to exactly the table's columns, by the rules of `coercion`.

The columns may come in any order. The five meta columns that a read returns are left out, so that
rows can be read, changed and written back; the write makes new ones, as in Hudi. Nothing else is
dropped, invented or rounded: a batch that does not fit is refused whole, and the error names the
columns and shows a few of the rows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from pyhudi.errors import CorruptTableError, InvalidRequestError
from pyhudi.format.avro.schema import avro_record_schema, decode_arrow_schema
from pyhudi.table.rows.bad_rows import sample
from pyhudi.table.rows.coercion import UnfitValuesError, coerced, mismatches, unfit_rows
from pyhudi.table.rows.storable_types import storable_fields
from pyhudi.table.schema import META_COLUMNS, with_meta_columns

_RESERVED = "_hoodie_"
_NAMES_SHOWN_MAX = 10


# ---- a new table


def storable_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of a table for rows of this schema.

    InvalidRequestError names what it cannot hold.

    >>> storable_schema(pa.schema([("n", pa.uint16()), ("at", pa.timestamp("ns"))]))
    n: int32
    at: timestamp[us]

    Hudi's five meta columns are left out, as from rows: the schema may be that of another table.
    """
    schema = pa.schema([field for field in schema if field.name not in META_COLUMNS])
    if not len(schema):
        raise InvalidRequestError(
            "the table cannot be created",
            why="its schema has no columns",
            next_step="Give the columns and their types",
        )
    for name in schema.names:
        if name.startswith(_RESERVED):
            raise InvalidRequestError(
                f"column {name!r} cannot be stored",
                why=f"names that begin with {_RESERVED!r} are Hudi's own",
                next_step="Rename it, or leave it out",
            )
    stored = pa.schema(storable_fields(list(schema)))
    _refuse_unreadable(stored)
    return stored


def _refuse_unreadable(schema: pa.Schema) -> None:
    """Raise if the schema exceeds what readers accept, before it is stored."""
    avro = json.dumps(avro_record_schema(with_meta_columns(schema), "new"))
    try:
        decode_arrow_schema(avro, "the schema")
    except CorruptTableError as error:
        raise InvalidRequestError(
            "the table cannot be created",
            why=error.why,
            next_step="Give it fewer columns, or flatten those inside others",
        ) from None


# ---- rows for a table


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with exactly the schema's columns, in its order and of its types.

    The schema has the table's data columns, with nullability as the table has it.
    """
    _refuse_columns(batch.schema, schema)
    _refuse_types(batch.schema, schema)
    columns = [_column(batch.column(field.name), field) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _refuse_columns(given: pa.Schema, schema: pa.Schema) -> None:
    counts = Counter(name for name in given.names if name not in META_COLUMNS)
    problems = {
        "missing columns": [name for name in schema.names if name not in counts],
        "columns that the table does not have:": [n for n in counts if n not in schema.names],
        "several columns named": [name for name, count in counts.items() if count > 1],
    }
    whys = [f"{what} {_listed(names)}" for what, names in problems.items() if names]
    if whys:
        raise InvalidRequestError(
            "the rows do not have the table's columns",
            why="; ".join(whys),
            next_step=_advice_on_names(schema, *list(problems.values())[:2]),
        )


def _advice_on_names(schema: pa.Schema, missing: Sequence[str], unknown: Sequence[str]) -> str:
    by_case = {name.lower(): name for name in unknown}
    renamed = [(by_case[n.lower()], n) for n in missing if n.lower() in by_case]
    if renamed:
        return f"Upper and lower case count: rename {renamed[0][0]!r} to {renamed[0][1]!r}"
    wanted = _listed(schema.names)
    return f"Give {wanted}, each once, and no other; a value that is unknown may be null"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_NAMES_SHOWN_MAX])
    rest = len(names) - _NAMES_SHOWN_MAX
    return shown if rest <= 0 else f"{shown} and {rest} more"


def _refuse_types(given: pa.Schema, schema: pa.Schema) -> None:
    found = [
        mismatch
        for field in schema
        for mismatch in mismatches(given.field(field.name).type, field.type, field.name)
    ]
    if found:
        raise InvalidRequestError(
            f"the rows do not have the table's types in {_listed([m.path for m in found])}",
            why="; ".join(f"{m.path}: {m.why}" for m in found[:_NAMES_SHOWN_MAX]),
            next_step="Cast these columns before writing",
        )


def _column(array: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return coerced(array, field, field.name)
    except UnfitValuesError as unfit:
        rows = unfit_rows(array, partial(coerced, field=field, path=field.name))
        if not rows:  # each row fits, all together do not
            raise InvalidRequestError(
                f"the column {field.name!r} cannot be written at once",
                why=unfit.why,
                next_step="Write it in smaller batches",
            ) from None
        raise InvalidRequestError(
            f"values of column {unfit.path!r} do not fit",
            why=f"{unfit.why}, as in {sample(rows, {field.name: array})}",
            next_step="Correct these rows, or leave them out",
        ) from None
