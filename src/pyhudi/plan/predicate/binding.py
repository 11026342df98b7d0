"""A predicate meets a schema.

Binding finds once what every later step needs: which field each column is,
what type each comparison has, and what its literal is in that type. The result is again a tree, in
a normal form on which the questions below are easy:

- A comparison has a column on the left, and on the right a column of the same type or a value
  that the column could hold.
- NOT stands only before a plain boolean column, LIKE and `<=>`; it is pushed down to the leaves,
  which changes nothing in three-valued logic, since the order of values is total (NaN included).
- AND and OR are flat and hold no TRUE or FALSE; IN is sorted and holds no NULL.

Spark should be given this tree's text rather than the user's: every literal in it has the
column's own type, so that no conversion of Spark's, no setting and no session's zone matters.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pyhudi.errors import InvalidRequestError
from pyhudi.plan.predicate.algebra import (
    conjunction,
    disjunction,
    negation,
    restricted,
)
from pyhudi.plan.predicate.columns import BoundField, bound_field, clear_paths, is_text
from pyhudi.plan.predicate.literals import comparable, compared, never
from pyhudi.plan.predicate.mask import row_mask
from pyhudi.plan.predicate.parser import Where, parse_predicate
from pyhudi.plan.predicate.ranges import ColumnRange, outcomes
from pyhudi.plan.predicate.sql import to_sql
from pyhudi.plan.predicate.tree import (
    And,
    Column,
    Comparison,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Operator,
    Or,
    Predicate,
    Scalar,
    columns_of,
)

__all__ = ["BoundPredicate", "ColumnRange", "bind"]


_UNKNOWN = Literal(None)

_MIRRORED = {
    Operator.LESS: Operator.GREATER,
    Operator.LESS_OR_EQUAL: Operator.GREATER_OR_EQUAL,
    Operator.GREATER: Operator.LESS,
    Operator.GREATER_OR_EQUAL: Operator.LESS_OR_EQUAL,
}


def bind(predicate: Where, schema: pa.Schema) -> BoundPredicate:
    """Resolve the columns and type the literals of a predicate; raise for what does not fit.

    >>> schema = pa.schema([("day", pa.date32()), ("n", pa.int32())])
    >>> bind("Day >= '2026-01-01' AND NOT n < 1.5", schema).to_sql()
    "`day` >= DATE '2026-01-01' AND `n` > 1"
    """
    binder = _Binder(schema)
    bound = binder.bound(parse_predicate(predicate))
    return _with_fields(bound, binder.fields)


@dataclass(frozen=True, slots=True)
class BoundPredicate:
    """A predicate in normal form, with the fields that its columns are."""

    predicate: Predicate
    fields: Mapping[Column, BoundField]

    @property
    def columns(self) -> frozenset[str]:
        """The top-level columns that the predicate reads."""
        return frozenset(column.name[0] for column in self.fields)

    def to_sql(self) -> str:
        """Return the text that Spark filters by with the same meaning."""
        # Alone, NULL has no type for Spark, and a filter must be boolean.
        return "NULL AND TRUE" if self.predicate == _UNKNOWN else to_sql(self.predicate)

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return true, false or null for each row; a filter keeps the true ones."""
        return row_mask(self.predicate, batch, self.fields)

    def may_match(self, stats: Mapping[str, ColumnRange]) -> bool:
        """True unless no row within the ranges can match; a field's key is its dotted path."""
        return True in outcomes(self.predicate, stats, self.fields)

    def both(self, other: BoundPredicate) -> BoundPredicate:
        """Return the predicate of the rows for which both hold."""
        fields = {**self.fields, **other.fields}
        return _with_fields(conjunction((self.predicate, other.predicate)), fields)

    def restricted_to(self, columns: Collection[str]) -> BoundPredicate | None:
        """Return what follows for these top-level columns alone, if anything."""
        kept = restricted(self.predicate, columns)
        return None if kept is None else _with_fields(kept, self.fields)


def _with_fields(predicate: Predicate, fields: Mapping[Column, BoundField]) -> BoundPredicate:
    used = columns_of(predicate)
    kept = {column: field for column, field in fields.items() if column in used}
    return BoundPredicate(predicate, kept)


class _Binder:
    """Turns a tree into its normal form and remembers the fields that it met."""

    def __init__(self, schema: pa.Schema) -> None:
        self.fields: dict[Column, BoundField] = {}
        self._schema = schema
        self._paths = clear_paths(schema)

    def bound(self, node: Predicate) -> Predicate:
        match node:
            case And(operands):
                return conjunction(map(self.bound, operands))
            case Or(operands):
                return disjunction(map(self.bound, operands))
            case Not(operand):
                return negation(self.bound(operand))
            case Comparison():
                return self._comparison(node)
            case In(column, literals, negated):
                found = self._in(self._column(column), literals)
                return negation(found) if negated else found
            case IsNull(column, negated):
                return IsNull(self._column(column), negated)
            case Like(column, pattern):
                return Like(self._checked(column, is_text, "LIKE needs text"), pattern)
            case Column():
                return self._checked(node, pa.types.is_boolean, "it is not a condition by itself")
            case Literal(value):
                return _condition(value)

    def _column(self, column: Column) -> Column:
        resolved, field = bound_field(column, self._schema, self._paths)
        self.fields[resolved] = field
        return resolved

    def _checked(
        self, column: Column, fits: Callable[[pa.DataType], bool], otherwise: str
    ) -> Column:
        resolved = self._column(column)
        field = self.fields[resolved]
        if field.compared is not None and fits(field.compared):
            return resolved
        raise InvalidRequestError(
            f"column {'.'.join(column.name)!r} cannot be used like this",
            why=f"it is of type {field.declared}, and {otherwise}",
            next_step="Compare the column with a literal",
        )

    def _comparison(self, node: Comparison) -> Predicate:
        match node.left, node.right:
            case Column() as left, Column() as right:
                return self._columns_compared(node.op, self._column(left), self._column(right))
            case Column() as column, Literal() as literal:
                return self._compared(node.op, self._column(column), literal)
            case Literal() as literal, Column() as column:
                mirrored = _MIRRORED.get(node.op, node.op)
                return self._compared(mirrored, self._column(column), literal)
        raise InvalidRequestError(
            f"{to_sql(node):.100} compares no column",
            why="one side at least must be a column",
            next_step="Write TRUE for a condition that always holds",
        )

    def _compared(self, op: Operator, column: Column, literal: Literal) -> Predicate:
        field = self.fields[column]
        if literal.value is not None:
            return compared(column, field, op, literal)
        comparable(column, field)
        return IsNull(column) if op is Operator.NULL_SAFE_EQUAL else _UNKNOWN

    def _columns_compared(self, op: Operator, left: Column, right: Column) -> Predicate:
        one, other = (comparable(side, self.fields[side]) for side in (left, right))
        if one == other:
            return Comparison(op, left, right)
        raise InvalidRequestError(
            f"columns {'.'.join(left.name)!r} and {'.'.join(right.name)!r} cannot be compared",
            why=f"they are of types {one} and {other}",
            next_step="Compare columns of the same type, or filter the rows afterwards",
        )

    def _in(self, column: Column, literals: Iterable[Literal]) -> Predicate:
        tests = [self._compared(Operator.EQUAL, column, literal) for literal in literals]
        # What the column cannot hold has become a test that no value passes.
        values: set[Any] = set()
        for test in tests:
            if isinstance(test, Comparison) and isinstance(test.right, Literal):
                values.add(test.right.value)
        found = In(column, tuple(map(Literal, sorted(values)))) if values else never(column)
        return disjunction((found, _UNKNOWN)) if _UNKNOWN in tests else found


def _condition(value: Scalar) -> Literal:
    if value is None or isinstance(value, bool):
        return Literal(value)
    raise InvalidRequestError(
        f"{to_sql(Literal(value)):.60} is not a condition",
        why="it is neither true nor false",
        next_step="Compare a column with it",
    )
