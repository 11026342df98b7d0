"""A user's rows as the table stores them.

Rows come from anywhere: pandas counts nanoseconds, Polars has unsigned numbers and categories,
Spark has neither. A new table takes the types of `storable_types` for those of its first rows. From
then on every batch is converted to exactly the columns of one schema, by the rules of `coercion`:
the table's, or the one that the rows bring (`schema_mode`).

The columns may come in any order. The five meta columns that a read returns are left out, so that
rows can be read, changed and written back; the write makes new ones, as in Hudi. Nothing else is
dropped, invented or rounded: a batch that does not fit is refused whole, and the error names the
columns and shows a few of the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa

from pyhudi.errors import InvalidRequestError
from pyhudi.settings import SchemaMode
from pyhudi.table.rows.bad_rows import sample
from pyhudi.table.rows.coercion import (
    Mismatch,
    UnfitValuesError,
    coerced,
    mismatches,
    unfit_rows,
)
from pyhudi.table.rows.schema_mode import brought_schema
from pyhudi.table.schema import META_COLUMNS

_NAMES_SHOWN_MAX = 10

#: How a caller of a verb chooses a mode.
MODE_WORDS: Final[Mapping[SchemaMode, str]] = {mode: f'schema_mode="{mode}"' for mode in SchemaMode}


def conformed(
    batch: pa.RecordBatch,
    schema: pa.Schema,
    *,
    fills_missing: bool = False,
    fixed: Collection[str] | None = None,
    words: Mapping[SchemaMode, str] = MODE_WORDS,
) -> pa.RecordBatch:
    """Return the batch with exactly the schema's columns, in its order and of its types.

    The schema has the table's data columns, with nullability as the table has it. With
    `fills_missing`, columns that the batch lacks are null, unless the schema requires them.

    `fixed` names the columns of record key, partition and ordering if the caller's verb takes a
    `schema_mode`. An error then says which mode would help, if one would, and by `words` how the
    caller chooses it.
    """
    given, choice = batch.schema, None if fixed is None else _Choice(fixed, words)
    found = _Findings.of(given, schema, fills_missing=fills_missing)
    if found.whys:
        raise InvalidRequestError(
            "the rows do not have the table's columns",
            why="; ".join(found.whys),
            next_step=_advice_on_names(schema, found) + _advice_on_mode(given, schema, choice),
        )
    if found.mismatches:
        raise InvalidRequestError(
            "the rows do not have the table's types in "
            + _listed([mismatch.path for mismatch in found.mismatches]),
            why="; ".join(f"{m.path}: {m.why}" for m in found.mismatches[:_NAMES_SHOWN_MAX]),
            next_step="Cast these columns before writing" + _advice_on_mode(given, schema, choice),
        )
    names = {*given.names}
    return pa.RecordBatch.from_arrays(
        [
            _column(batch.column(field.name), field, choice)
            if field.name in names
            else pa.nulls(batch.num_rows, field.type)
            for field in schema
        ],
        schema=schema,
    )


# ---- columns and types


@dataclass(frozen=True, slots=True)
class _Findings:
    """What keeps rows with these columns from becoming the table's."""

    missing: Sequence[str]
    unknown: Sequence[str]
    doubled: Sequence[str]
    mismatches: Sequence[Mismatch]  # of the columns that both have, once

    @classmethod
    def of(cls, given: pa.Schema, schema: pa.Schema, *, fills_missing: bool) -> _Findings:
        counts = Counter(name for name in given.names if name not in META_COLUMNS)
        wanted = {*schema.names}
        pairs = [(given.field(f.name).type, f) for f in schema if counts[f.name] == 1]
        return cls(
            missing=[
                field.name
                for field in schema
                if field.name not in counts and not (fills_missing and field.nullable)
            ],
            unknown=[name for name in counts if name not in wanted],
            doubled=[name for name, count in counts.items() if count > 1],
            mismatches=[
                mismatch
                for source, field in pairs
                for mismatch in mismatches(
                    source, field.type, field.name, fills_missing=fills_missing
                )
            ],
        )

    @property
    def whys(self) -> list[str]:
        """Return what is wrong with the names."""
        problems = {
            "missing columns": self.missing,
            "columns that the table does not have:": self.unknown,
            "several columns named": self.doubled,
        }
        return [f"{what} {_listed(names)}" for what, names in problems.items() if names]

    @property
    def is_empty(self) -> bool:
        return not (self.whys or self.mismatches)


def _advice_on_names(schema: pa.Schema, found: _Findings) -> str:
    by_case = {name.lower(): name for name in found.unknown}
    renamed = [(by_case[n.lower()], n) for n in found.missing if n.lower() in by_case]
    if renamed:
        return f"Upper and lower case count: rename {renamed[0][0]!r} to {renamed[0][1]!r}"
    wanted = _listed(schema.names)
    return f"Give {wanted}, each once, and no other; a value that is unknown may be null"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_NAMES_SHOWN_MAX])
    rest = len(names) - _NAMES_SHOWN_MAX
    return shown if rest <= 0 else f"{shown} and {rest} more"


# ---- values


def _column(array: pa.Array, field: pa.Field, choice: _Choice | None) -> pa.Array:
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
            next_step="Correct these rows, or leave them out"
            + _advice_on_wider_type(array, field, choice),
        ) from None


# ---- which schema mode would help


@dataclass(frozen=True, slots=True)
class _Choice:
    """The schema modes as a caller chooses among them."""

    fixed: Collection[str]
    words: Mapping[SchemaMode, str]

    def brought(self, given: pa.Schema, schema: pa.Schema, mode: SchemaMode) -> pa.Schema | None:
        """Return the schema that the mode would lead to; None if it is refused."""
        try:
            return brought_schema(schema, given, mode, self.fixed)
        except InvalidRequestError:
            return None


def _advice_on_mode(given: pa.Schema, schema: pa.Schema, choice: _Choice | None) -> str:
    """Return a sentence on the first mode under which the rows fit, and what it would do.

    Both are found by trying, so that no advice leads to the next refusal. The effects are named,
    because a misspelt column looks like a new one.
    """
    if choice is None:
        return ""
    for mode in (SchemaMode.ADD, SchemaMode.MERGE):
        brought = choice.brought(given, schema, mode)
        fills = mode is SchemaMode.MERGE
        if brought is not None and _Findings.of(given, brought, fills_missing=fills).is_empty:
            effects = " and ".join(_effects(given, schema, brought))
            return f". {choice.words[mode]} would {effects}"
    return ""


def _effects(given: pa.Schema, schema: pa.Schema, brought: pa.Schema) -> list[str]:
    """Return what changes in the table and in its rows if the rows are brought to that schema."""
    added = brought.names[len(schema) :]
    pairs = zip(schema, brought, strict=False)
    widened = [new.name for old, new in pairs if not new.type.equals(old.type)]
    strictly = _Findings.of(given, brought, fills_missing=False)
    lacking = [*strictly.missing, *(mismatch.path for mismatch in strictly.mismatches)]
    effects = {
        "add {} to the table": added,
        "widen {} in the table": widened,
        "write null for {}, in place of any older value": lacking,
    }
    return [effect.format(_listed(names)) for effect, names in effects.items() if names]


def _advice_on_wider_type(array: pa.Array, field: pa.Field, choice: _Choice | None) -> str:
    if choice is None:
        return ""
    given = pa.schema([pa.field(field.name, array.type)])
    brought = choice.brought(given, pa.schema([field]), SchemaMode.ADD)
    if brought is None or brought.field(0).type.equals(field.type):
        return ""
    try:
        coerced(array, brought.field(0), field.name)
    except UnfitValuesError:
        return ""
    return f". {choice.words[SchemaMode.ADD]} would widen {field.name!r} in the table"
