"""Can any row of a partition, file or row group match, to judge by its statistics?

The question is answered by evaluating the predicate over *sets* of outcomes. Each leaf gives those
of true, false and unknown that a row within the ranges could give, and the connectives combine the
sets value by value. A set may be too large, never too small, and so no matching row is skipped:

- A range contains all values but need not be tight; a missing or odd bound says nothing.
- Writers leave NaN out of the bounds of a floating-point column, so such a column may hold NaN
  whatever its range says. NaN is larger than every number.
- Operands are taken as independent, though they may speak of the same row.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import reduce
from math import isnan
from typing import Any

import pyarrow as pa

from pyhudi.plan.predicate.columns import BoundField, is_text
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
    Scalar,
    like_characters,
)

Outcomes = frozenset[bool | None]
_Signs = frozenset[int]  # how left can stand to right: -1 less, 0 equal, 1 greater

_HOLDS: dict[Operator, _Signs] = {
    Operator.EQUAL: frozenset((0,)),
    Operator.NOT_EQUAL: frozenset((-1, 1)),
    Operator.LESS: frozenset((-1,)),
    Operator.LESS_OR_EQUAL: frozenset((-1, 0)),
    Operator.GREATER: frozenset((1,)),
    Operator.GREATER_OR_EQUAL: frozenset((0, 1)),
}


@dataclass(frozen=True, slots=True)
class ColumnRange:
    """What is known of a column's values in some rows. None is unknown.

    No value lies outside `min` and `max`, which are Python values as Arrow and parquet statistics
    give them; NaN is exempt.
    """

    min: Scalar = None
    max: Scalar = None
    null_count: int | None = None
    row_count: int | None = None


@dataclass(frozen=True, slots=True)
class _Span:
    """What an operand can be in some row: a value between two bounds, NaN, null."""

    low: Any  # None: unbounded
    high: Any
    nan: bool
    null: bool
    value: bool


def outcomes(
    predicate: Predicate, ranges: Mapping[str, ColumnRange], fields: Mapping[Column, BoundField]
) -> Outcomes:
    """Return every outcome that the bound predicate can have for a row within the ranges."""

    def of(node: Predicate) -> Outcomes:
        match node:
            case Literal(value):
                assert value is None or isinstance(value, bool), "binding checked it"
                return frozenset((value,))
            case Column():
                return of(Comparison(Operator.EQUAL, node, Literal(True)))
            case And(operands):
                return reduce(_both, map(of, operands))
            case Or(operands):
                return _negation(reduce(_both, (_negation(of(each)) for each in operands)))
            case Not(operand):
                return _negation(of(operand))
            case IsNull(column, negated):
                span = span_of(column)
                nullness = _possible((True, span.null), (False, span.value))
                return _negation(nullness) if negated else nullness
            case In(column, literals, negated):
                found = _found(span_of(column), literals)
                return _negation(found) if negated else found
            case Like(column, pattern):
                return _like(span_of(column), pattern)
            case Comparison(op, left, right):
                return _compared(op, span_of(left), span_of(right))

    def span_of(operand: Operand) -> _Span:
        if isinstance(operand, Literal):
            return _Span(operand.value, operand.value, nan=False, null=False, value=True)
        field = fields[operand]
        return _span(ranges.get(field.path or "", ColumnRange()), field.compared)

    return of(predicate)


def _possible(*cases: tuple[bool | None, bool]) -> Outcomes:
    return frozenset(outcome for outcome, possible in cases if possible)


def _negation(some: Outcomes) -> Outcomes:
    return frozenset(None if outcome is None else not outcome for outcome in some)


def _both(some: Outcomes, others: Outcomes) -> Outcomes:
    return frozenset(_and(left, right) for left in some for right in others)


def _and(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def _compared(op: Operator, left: _Span, right: _Span) -> Outcomes:
    signs = _signs(left, right)
    if op is Operator.NULL_SAFE_EQUAL:
        one_null = (left.null and right.value) or (left.value and right.null)
        return _possible(
            (True, 0 in signs or (left.null and right.null)),
            (False, bool(signs - {0}) or one_null),
        )
    return _possible(
        (True, bool(signs & _HOLDS[op])),
        (False, bool(signs - _HOLDS[op])),
        (None, left.null or right.null),
    )


def _signs(left: _Span, right: _Span) -> _Signs:
    if not (left.value and right.value):
        return frozenset()
    below = not _known_order(right.high, left.low)
    above = not _known_order(left.high, right.low)
    apart = _known_order(left.high, right.low, strict=True)
    apart = apart or _known_order(right.high, left.low, strict=True)
    cases = (
        (-1, below or right.nan),
        (0, not apart or (left.nan and right.nan)),
        (1, above or left.nan),
    )
    return frozenset(sign for sign, possible in cases if possible)


def _known_order(high: Any, low: Any, *, strict: bool = False) -> bool:
    """True if one side's greatest value is known to be at most (below) the other's least."""
    if high is None or low is None:
        return False
    return bool(high < low if strict else high <= low)


def _found(span: _Span, literals: tuple[Literal, ...]) -> Outcomes:
    """Return whether the values can be among the literals, which binding sorted."""
    first, last = 0, len(literals)
    if span.low is not None:
        first = bisect_left(literals, span.low, key=lambda literal: literal.value)
    if span.high is not None:
        last = bisect_right(literals, span.high, key=lambda literal: literal.value)
    inside = first < last
    single = span.low is not None and span.low == span.high and not span.nan
    return _possible(
        (True, span.value and inside),
        (False, span.value and not (inside and single)),
        (None, span.null),
    )


def _like(span: _Span, pattern: str) -> Outcomes:
    """Return the possible outcomes of LIKE.

    Texts that match lie at or above the pattern's fixed beginning, and begin with it.
    """
    prefix = _prefix(like_characters(pattern))
    too_low = span.high is not None and span.high < prefix
    too_high = span.low is not None and span.low > prefix and not span.low.startswith(prefix)
    return _possible(
        (True, span.value and not (too_low or too_high)),
        (False, span.value),
        (None, span.null),
    )


def _prefix(characters: Iterable[tuple[str, bool]]) -> str:
    prefix = ""
    for character, escaped in characters:
        if character in ("%", "_") and not escaped:
            break
        prefix += character
    return prefix


def _span(known: ColumnRange, kind: pa.DataType | None) -> _Span:
    low, high = _bound(known.min, kind), _bound(known.max, kind)
    if low is not None and high is not None and low > high:
        low = high = None  # some writers get the order of a type wrong
    return _Span(
        low,
        high,
        nan=kind is not None and pa.types.is_floating(kind),
        null=known.null_count != 0,
        value=known.null_count is None or known.null_count != known.row_count,
    )


def _bound(value: Any, kind: pa.DataType | None) -> Any:
    """Return a bound as literals of the type are; None if it is of another type.

    A file's statistics may be older than the column's present type. An integer says nothing of a
    floating-point column either: when the column changed, its values may have been rounded.
    """
    types = pa.types
    match value:
        case None:
            return None
        case _ if kind is None:
            return None
        case bool():
            return value if types.is_boolean(kind) else None
        case int() if types.is_integer(kind) or types.is_decimal(kind):
            return value
        case float() if types.is_floating(kind):
            return None if isnan(value) else value
        case Decimal() if types.is_decimal(kind):
            return value if value.is_finite() else None
        case str() if is_text(kind):
            return value
        case bytes() if types.is_binary(kind) or types.is_large_binary(kind):
            return value
        case datetime():
            return _moment(value, kind) if types.is_timestamp(kind) else None
        case date() if types.is_date(kind):
            return value
    return None


def _moment(value: datetime, kind: pa.DataType) -> datetime:
    in_utc = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return in_utc if kind.tz else in_utc.replace(tzinfo=None)
