"""Which rows of a batch a predicate holds for, column by column.

SQL's three values are Arrow's true, false and null, and its connectives are Arrow's Kleene
functions. Two things differ from Arrow and follow Spark: a NaN equals itself and is larger than
every other number, and LIKE is translated here, since Arrow's own misreads some escapes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.plan.predicate.columns import BoundField
from pyhudi.plan.predicate.tree import (
    And,
    Column,
    Comparison,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Operand,
    Operator,
    Or,
    Predicate,
    like_characters,
)

Fields = Mapping[Column, BoundField]

# An Array or a Scalar: the compute functions spread a scalar over the rows by themselves.
_Datum = Any

_COMPARE: dict[Operator, Callable[[_Datum, _Datum], _Datum]] = {
    Operator.EQUAL: pc.equal,
    Operator.NOT_EQUAL: pc.not_equal,
    Operator.LESS: pc.less,
    Operator.LESS_OR_EQUAL: pc.less_equal,
    Operator.GREATER: pc.greater,
    Operator.GREATER_OR_EQUAL: pc.greater_equal,
}


def row_mask(predicate: Predicate, batch: pa.RecordBatch, fields: Fields) -> pa.BooleanArray:
    """Return true, false or null for each row.

    The predicate is bound, and the batch has its columns.
    """
    mask = _evaluated(predicate, batch, fields)
    return pa.repeat(mask, batch.num_rows) if isinstance(mask, pa.Scalar) else mask


def _evaluated(predicate: Predicate, batch: pa.RecordBatch, fields: Fields) -> _Datum:
    match predicate:
        case Literal(value):
            return pa.scalar(value, pa.bool_())
        case Column():
            return _values(predicate, batch, fields)
        case And(operands):
            return reduce(pc.and_kleene, (_evaluated(each, batch, fields) for each in operands))
        case Or(operands):
            return reduce(pc.or_kleene, (_evaluated(each, batch, fields) for each in operands))
        case Not(operand):
            return pc.invert(_evaluated(operand, batch, fields))
        case IsNull(column, negated):
            values = _values(column, batch, fields)
            return pc.is_valid(values) if negated else pc.is_null(values)
        case Like(column, pattern):
            return pc.match_substring_regex(_values(column, batch, fields), like_regex(pattern))
        case In(column, literals, negated):
            found = _found(_values(column, batch, fields), [each.value for each in literals])
            return pc.invert(found) if negated else found
        case Comparison(op, left, right):
            assert isinstance(left, Column), "binding puts a column on the left"
            kind = fields[left].compared
            return _compared(op, *(_side(side, kind, batch, fields) for side in (left, right)))


def _values(column: Column, batch: pa.RecordBatch, fields: Fields) -> pa.Array:
    """Return the column's values in the type as which it is compared."""
    top, *below = column.name
    values = batch.column(top)
    if below:
        values = pc.struct_field(values, below)
    kind = fields[column].compared
    return values if kind is None or values.type == kind else values.cast(kind)


def _side(side: Operand, kind: pa.DataType, batch: pa.RecordBatch, fields: Fields) -> _Datum:
    if isinstance(side, Literal):
        return pa.scalar(side.value, kind)
    return _values(side, batch, fields)


def _compared(op: Operator, left: _Datum, right: _Datum) -> _Datum:
    if op is Operator.NULL_SAFE_EQUAL:
        equal = pc.fill_null(_compared(Operator.EQUAL, left, right), False)
        return pc.or_(equal, pc.and_(pc.is_null(left), pc.is_null(right)))
    if pa.types.is_floating(left.type):
        return _compared_doubles(op, left, right)
    return _COMPARE[op](left, right)


def _compared_doubles(op: Operator, left: _Datum, right: _Datum) -> _Datum:
    """Return the comparison with NaN as Spark has it; Arrow finds every one false.

    The results are joined with the plain `or` and `and`, not Kleene's: a null on either side stays
    unknown.
    """
    match op:
        case Operator.EQUAL:
            return pc.or_(pc.equal(left, right), pc.and_(pc.is_nan(left), pc.is_nan(right)))
        case Operator.NOT_EQUAL:
            return pc.invert(_compared_doubles(Operator.EQUAL, left, right))
        case Operator.LESS_OR_EQUAL:
            return pc.or_(pc.less_equal(left, right), pc.is_nan(right))
        case Operator.GREATER_OR_EQUAL:
            return pc.or_(pc.greater_equal(left, right), pc.is_nan(left))
        case Operator.LESS:
            return pc.invert(_compared_doubles(Operator.GREATER_OR_EQUAL, left, right))
    return pc.invert(_compared_doubles(Operator.LESS_OR_EQUAL, left, right))


def _found(values: pa.Array, choices: list[Any]) -> pa.Array:
    if pa.types.is_floating(values.type) and 0.0 in choices:
        choices = [*choices, 0.0, -0.0]  # equal, yet Arrow looks values up by their bits
    found = pc.is_in(values, value_set=pa.array(choices, values.type))
    return pc.if_else(pc.is_valid(values), found, pa.scalar(None, pa.bool_()))


def like_regex(pattern: str) -> str:
    r"""Return the RE2 pattern that matches what LIKE does.

    >>> like_regex(r"50\%_%")
    '\\A(?s:50%..*)\\z'
    """
    wild = {"%": ".*", "_": "."}
    pieces = (
        re.escape(character) if escaped else wild.get(character, re.escape(character))
        for character, escaped in like_characters(pattern)
    )
    return rf"\A(?s:{''.join(pieces)})\z"
