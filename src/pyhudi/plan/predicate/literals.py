"""A literal meets a column's type without losing a digit.

The values of an integer, decimal, date or timestamp column lie on a grid: they are whole numbers of
some unit (ones, cents, days, microseconds). A literal becomes an exact point on that grid, as a
fraction, and a comparison with a value between two grid points becomes the comparison with the
point below it that says the same: `n < 1.5` is `n <= 1`, and `n = 1.5` holds for no row. So the
column is never converted, and what it is compared with is a value that it could hold.

A double column is the exception, because SQL says so: the literal becomes the nearest double. An
integer or decimal column takes a double for the number that it is printed as.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from math import floor
from typing import TypeGuard

import pyarrow as pa

from pyhudi.errors import InvalidRequestError
from pyhudi.plan.predicate.columns import BoundField, is_text
from pyhudi.plan.predicate.sql import to_sql
from pyhudi.plan.predicate.times import DATE_FORM, TIMESTAMP_FORM, date_in, timestamp_in
from pyhudi.plan.predicate.tree import (
    And,
    Column,
    Comparison,
    IsNull,
    Literal,
    Operator,
    Or,
    Predicate,
    Scalar,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = _EPOCH.date().toordinal()
_MICROS_PER_DAY = 86_400_000_000
_UNITS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}

_UPWARD = (Operator.GREATER, Operator.GREATER_OR_EQUAL)
_BETWEEN_POINTS = {
    Operator.LESS: Operator.LESS_OR_EQUAL,
    Operator.GREATER_OR_EQUAL: Operator.GREATER,
}


def compared(column: Column, field: BoundField, op: Operator, literal: Literal) -> Predicate:
    """Return the comparison of a column with a literal, in the column's own type.

    The literal is not null.
    """
    kind = comparable(column, field)
    value = literal.value
    if pa.types.is_boolean(kind) and isinstance(value, bool):
        return Comparison(op, column, literal)
    if is_text(kind) and isinstance(value, str):
        return Comparison(op, column, literal)
    if _is_binary(kind) and isinstance(value, bytes):
        return Comparison(op, column, literal)
    if pa.types.is_floating(kind) and _is_number(value):
        return Comparison(op, column, Literal(float(value)))
    exact = _grid_value(value, kind)
    if exact is None:
        raise InvalidRequestError(
            f"column {'.'.join(column.name)!r} cannot be compared with {to_sql(literal):.60}",
            why=f"the column is of type {field.declared}",
            next_step=_advice(kind),
        )
    return _on_grid(column, op, exact, kind)


def comparable(column: Column, field: BoundField) -> pa.DataType:
    """Return the type as which the column is compared."""
    if field.compared is None:
        raise InvalidRequestError(
            f"column {'.'.join(column.name)!r} cannot be compared",
            why=f"a column of type {field.declared} can only be tested for null",
            next_step="Use IS NULL or IS NOT NULL, or a field of the struct if it is one",
        )
    return field.compared


def never(column: Column) -> Predicate:
    """Return a predicate that is false for every value and unknown for null."""
    return And((IsNull(column), Literal(None)))


def always(column: Column) -> Predicate:
    """Return a predicate that is true for every value and unknown for null."""
    return Or((IsNull(column, negated=True), Literal(None)))


def _on_grid(column: Column, op: Operator, exact: Fraction, kind: pa.DataType) -> Predicate:
    point = floor(exact)
    low, high = _grid_range(kind)
    inside = low <= point <= high
    if op in (Operator.EQUAL, Operator.NOT_EQUAL, Operator.NULL_SAFE_EQUAL):
        if inside and exact == point:
            return Comparison(op, column, Literal(_value_at(point, kind)))
        if op is Operator.NULL_SAFE_EQUAL:
            return Literal(False)
        return never(column) if op is Operator.EQUAL else always(column)
    if not inside:
        return always(column) if (point < low) == (op in _UPWARD) else never(column)
    if exact != point:
        op = _BETWEEN_POINTS.get(op, op)
    return Comparison(op, column, Literal(_value_at(point, kind)))


def _grid_value(value: Scalar, kind: pa.DataType) -> Fraction | None:
    """Return the literal's point on the grid of a type; None if it is of another kind."""
    if pa.types.is_integer(kind) and _is_number(value):
        return _exact(value)
    if pa.types.is_decimal(kind) and _is_number(value):
        return _exact(value) * Fraction(10**kind.scale)
    if pa.types.is_date(kind):
        micros = _micros(date_in(value) if isinstance(value, str) else value)
        return None if micros is None else Fraction(micros, _MICROS_PER_DAY)
    if pa.types.is_timestamp(kind):
        # Literal refuses a time that its zone moves out of the years there are.
        moment = Literal(timestamp_in(value)).value if isinstance(value, str) else value
        micros = _micros(moment)
        return None if micros is None else Fraction(micros * _UNITS_PER_SECOND[kind.unit], 10**6)
    return None


def _grid_range(kind: pa.DataType) -> tuple[int, int]:
    """Return the first and the last point that the type can hold."""
    if pa.types.is_decimal(kind):
        return 1 - 10**kind.precision, 10**kind.precision - 1
    if pa.types.is_unsigned_integer(kind):
        return 0, 2**kind.bit_width - 1
    half = 2 ** (kind.bit_width - 1)
    return -half, half - 1


def _value_at(point: int, kind: pa.DataType) -> Scalar:
    if pa.types.is_integer(kind):
        return point
    if pa.types.is_decimal(kind):
        # Not through arithmetic, which would round to the digits of the decimal context.
        return Decimal((point < 0, tuple(map(int, str(abs(point)))), -kind.scale))
    if pa.types.is_date(kind):
        return date.fromordinal(_EPOCH_DAY + point)
    micros = Fraction(point, _UNITS_PER_SECOND[kind.unit]) * 10**6
    assert micros.denominator == 1, "a literal has whole microseconds, so its floor has"
    moment = _EPOCH + timedelta(microseconds=int(micros))
    return moment if kind.tz else moment.replace(tzinfo=None)


def _is_number(value: Scalar) -> TypeGuard[int | float | Decimal]:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _exact(value: int | float | Decimal) -> Fraction:
    return Fraction(Decimal(repr(value)) if isinstance(value, float) else value)


def _micros(moment: Scalar) -> int | None:
    """Return microseconds since the epoch.

    A date is its midnight, and a time without a zone is in UTC.
    """
    match moment:
        case datetime():
            zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            return (zoned - _EPOCH) // timedelta(microseconds=1)
        case date():
            return (moment.toordinal() - _EPOCH_DAY) * _MICROS_PER_DAY
    return None


def _advice(kind: pa.DataType) -> str:
    """Return how a literal for a column of this type is written."""
    if pa.types.is_boolean(kind):
        return "Write TRUE or FALSE"
    if is_text(kind):
        return "Write the text in single quotes, also if it is a number"
    if _is_binary(kind):
        return "Write X'00FF' with two hex digits a byte"
    if pa.types.is_date(kind):
        return f"Write DATE {DATE_FORM}"
    if pa.types.is_timestamp(kind):
        return f"Write TIMESTAMP {TIMESTAMP_FORM}"
    return "Write a number without quotes"
