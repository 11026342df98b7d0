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
from pyhudi.format.avro.nesting import is_array
from pyhudi.table.rows.storable_types import storable_fields
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
        why = None if known else _unfit_column(column)
        for before in known:
            why = why or _unread(before, column, column.name)
        if why is not None:
            return why
    for name in fixed:
        if name in now.names and not _is_kept(now.field(name), result.field(name)):
            return f"its schema changes {name!r}, which identifies or orders the rows"
    return None


def unfit_contradiction(columns: object) -> str | None:
    """Return what is wrong with the columns of a contradiction that a strategy returned."""
    is_sequence = isinstance(columns, tuple | list) and columns
    if is_sequence and all(_is_named(one) for one in columns):  # type: ignore[attr-defined]
        return None
    return "it returned a contradiction whose columns are not pairs of a path and a reason"


def _is_named(pair: object) -> bool:
    return isinstance(pair, tuple | list) and [type(each) for each in pair] == [str, str]


def _is_kept(before: pa.Field, column: pa.Field) -> bool:
    is_relaxed = column.nullable and not before.nullable
    return bool(column.type.equals(before.type)) and not is_relaxed


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


def _unfit_column(column: pa.Field, within: str = "") -> str | None:
    """Return why a column that neither side has cannot be recorded, if there is a reason."""
    name = f"{within}{column.name}"
    if not column.nullable:
        return f"its column {name!r} requires a value, which older rows lack"
    if column.name.lower().startswith(_RESERVED):
        return f"its column {name!r} has a name that pyhudi or Hudi uses itself"
    try:
        [stored] = storable_fields([column], within)
    except HudiError as error:
        return f"{error.what}: {error.why}"
    if not stored.type.equals(column.type):
        return f"its column {name!r} is {column.type}, which is stored as {stored.type}"
    return None


def _unread(before: pa.Field, after: pa.Field, path: str) -> str | None:
    """Return why values of a column are not read as what the strategy made of it."""
    if before.nullable and not after.nullable:
        return f"its column {path!r} requires a value, which older rows may lack"
    old, new = before.type, after.type
    if old.equals(new):
        return None
    if is_array(old) and is_array(new):
        return _unread(old.value_field, new.value_field, f"{path}.element")
    if pa.types.is_map(old) and pa.types.is_map(new) and old.key_type == new.key_type:
        return _unread(old.item_field, new.item_field, f"{path}.value")
    if not (pa.types.is_struct(old) and pa.types.is_struct(new)):
        if is_promotion(old, new) and not (old.num_fields or new.num_fields):
            return None
        return f"its column {path!r} is {new}, and values of {old} are not read as that"
    children = {child.name: child for child in old}
    for child in new:
        known = children.get(child.name)
        if known is None:
            why = _unfit_column(child, f"{path}.")
        else:
            why = _unread(known, child, f"{path}.{child.name}")
        if why is not None:
            return why
    return None


def unfit_error(why: str) -> HudiError:
    return InvalidRequestError(
        "the result of the schema strategy cannot be recorded",
        why=why,
        next_step="Correct the strategy in WriteSettings(schema_strategy=...)",
    )
