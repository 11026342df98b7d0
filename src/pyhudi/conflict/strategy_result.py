"""May a table have the schema that a strategy returned?

A strategy is the user's code. What it returns is judged before anything is recorded: files that are
there must stay readable, the rows must keep what identifies and orders them, and no two names may
look the same to Spark. The strategies of pyhudi keep to this by what they are, but for the columns
of the table that no schema may lack, which another engine may have taken out.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from pyhudi.conflict.schemas import (
    ReconcileSchemaStrategy,
    SchemaStrategy,
    SimpleSchemaStrategy,
)
from pyhudi.errors import HudiError, InvalidRequestError
from pyhudi.table.schema import is_promotion

#: How names begin that no strategy may give to a new column.
_RESERVED = ("_hoodie_", "_pyhudi_", "__pyhudi_")


def unfit_result(
    result: object,
    now: pa.Schema,
    own: pa.Schema,
    strategy: SchemaStrategy,
    fixed: Collection[str],
) -> str | None:
    """Return why no table can have what a strategy returned, if there is a reason.

    `fixed` are the columns that no schema may lack or change: record key, partition and ordering.
    """
    if not isinstance(result, pa.Schema):
        return f"it returned a {type(result).__name__}, which is not an Arrow schema"
    for name in fixed:
        if name not in result.names:
            return f"its schema lacks {name!r}, which identifies or orders the rows"
    if type(strategy) in (ReconcileSchemaStrategy, SimpleSchemaStrategy):
        return None
    if (why := _doubled(result, now)) is not None:
        return why
    for column in result:
        known = [side.field(column.name) for side in (now, own) if column.name in side.names]
        if not any(column.equals(one) for one in known):
            why = _unfit_column(column, known[0] if column.name in now.names else None)
            if why is not None:
                return f"its column {column.name!r} {why}"
    for name in fixed:
        if name in now.names and not result.field(name).type.equals(now.field(name).type):
            return f"its schema changes the type of {name!r}, which identifies or orders the rows"
    return None


def _doubled(result: pa.Schema, now: pa.Schema) -> str | None:
    """Return which two columns have one name, if the table does not have both of them."""
    seen: dict[str, str] = {}
    known = {*now.names}
    for name in result.names:
        other = seen.get(name.lower())
        seen[name.lower()] = name
        if other is not None and (other == name or not known >= {other, name}):
            return f"its columns {other!r} and {name!r} differ in case at most"
    return None


def _unfit_column(column: pa.Field, before: pa.Field | None) -> str | None:
    """Return why a column that neither side has so cannot be recorded, if there is a reason."""
    if (before is None or before.nullable) and not column.nullable:
        return "requires a value, which older rows lack"
    if before is None:
        is_reserved = column.name.lower().startswith(_RESERVED)
        return "has a name that pyhudi or Hudi uses itself" if is_reserved else None
    is_nested = bool(before.type.num_fields or column.type.num_fields)
    if not (is_nested and type(before.type) is type(column.type)) and not (
        before.type.equals(column.type) or is_promotion(before.type, column.type)
    ):
        return f"is {column.type}, and values of {before.type} are not read as that"
    return None


def unfit_error(why: str) -> HudiError:
    return InvalidRequestError(
        "the result of the schema strategy cannot be recorded",
        why=why,
        next_step="Correct the strategy in WriteSettings(schema_strategy=...)",
    )
