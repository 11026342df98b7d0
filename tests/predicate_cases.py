"""Random predicates over one wide schema, and what each must give for a row.

`expected` is the oracle: plain Python, one row at a time, from the tree before binding. It shares
no code with the engine, and it is written so that it can be compared with the rules in
`docs/predicates.md` line by line.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from math import isnan
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

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
)

SCHEMA = pa.schema(
    [
        ("flag", pa.bool_()),
        ("small", pa.int8()),
        ("big", pa.int64()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("other", pa.float64()),
        ("price", pa.decimal128(5, 2)),
        ("name", pa.string()),
        ("label", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("ms")),
        ("nested", pa.struct([("inner", pa.int32())])),
    ]
)

_NUMBERS: list[Any] = [0, 1, -1, 2, 127, 128, -128, -129, 2**53 + 1, 2**63 - 1, 2**63, -(2**63)]
_NUMBERS += [Decimal(text) for text in ("0.5", "1.00", "1.25", "1.255", "-0.01", "999.99", "1000")]
_NUMBERS += [0.1, -0.0, 1.5, 1e3, 1e-3, 9007199254740993.0, 1e300, -1e300, 0.10000000149011612]
_TEXTS = ["", "a", "ab", "aab", "b", "%", "a%", "_", "\\", "\\%", "it's", '"', "`", "\n", "\x00"]
_TEXTS += ["é", "\uffff", "\U0001f600", "a\U0001f600", "${spark.app.name}", "A", " a", "\x7f"]
_BYTES = [text.encode() for text in _TEXTS] + [b"\xff", b"\x80\x00"]
_DAYS = [date(1, 1, 1), date(1969, 12, 31), date(2026, 1, 5), date(2026, 1, 6), date(9999, 12, 31)]
_TIMES = [datetime(day.year, day.month, day.day, hour) for day in _DAYS for hour in (0, 23)]
_TIMES += [datetime(2026, 1, 5, 12, 30, 0, micros) for micros in (0, 1, 999, 1000, 500_000)]

_FLOATS = [0.0, -0.0, 1.5, -1.5, float("nan"), float("inf"), float("-inf"), 0.5, 1000.0]
VALUES: dict[str, list[Any]] = {
    "flag": [True, False],
    "small": [-128, -1, 0, 1, 2, 127],
    "big": [-(2**63), -1, 0, 1, 2, 2**53 + 1, 2**63 - 1],
    "single": [*_FLOATS, 0.10000000149011612],
    "double": [*_FLOATS, 0.1, 1e300, 9007199254740992.0],
    "other": [*_FLOATS, 0.1],
    "price": [Decimal(text) for text in ("0.00", "0.50", "1.00", "1.25", "-0.01", "999.99")],
    "name": _TEXTS,
    "label": _TEXTS,
    "raw": _BYTES,
    "day": _DAYS,
    "at": [time.replace(tzinfo=UTC) for time in _TIMES],
    "local": [time.replace(microsecond=time.microsecond // 1000 * 1000) for time in _TIMES],
    "nested": [{"inner": value} for value in (None, -1, 0, 1, 2**31 - 1)],
}

_TIME_LITERALS: list[Any] = [*_DAYS, *_TIMES, *VALUES["at"], "2026-01-05"]
_LITERALS: dict[str, list[Any]] = {
    "flag": [True, False],
    **dict.fromkeys(("small", "big", "single", "double", "other", "price"), _NUMBERS),
    **dict.fromkeys(("name", "label"), _TEXTS),
    "raw": _BYTES,
    "day": _TIME_LITERALS,
    "at": [*_TIME_LITERALS, "2026-01-05T12:30Z", "2026-01-05 13:30:00.000001+01:00"],
    "local": _TIME_LITERALS,
    "nested": [*_NUMBERS],
}
_PATTERNS = ["", "%", "_", "a%", "%a", "%a%", "a_%", r"\%", r"\_%", r"%\\", r"\\\%", "__", "%\n%"]
_PATTERNS += ["a", "é", "A%", "%b", "a%b", "\U0001f600", "it's%", ".*", "(", "[a]", "a|b"]

_COMPARABLE_PAIRS = [("double", "other"), ("other", "other"), ("name", "label"), ("day", "day")]


def column(name: str) -> Column:
    return Column(("nested", "inner") if name == "nested" else (name,))


_names = st.sampled_from(SCHEMA.names)
_operators = st.sampled_from(Operator)


def literals(name: str) -> st.SearchStrategy[Literal]:
    return st.sampled_from(_LITERALS[name]).map(Literal)


def _maybe_null(name: str) -> st.SearchStrategy[Literal]:
    return literals(name) | literals(name) | literals(name) | st.just(Literal(None))


def _comparison(name: str) -> st.SearchStrategy[Predicate]:
    left, right = st.just(column(name)), _maybe_null(name)
    return st.builds(Comparison, _operators, left, right) | st.builds(
        Comparison, _operators, right, left
    )


_pairs = st.builds(
    lambda op, pair: Comparison(op, column(pair[0]), column(pair[1])),
    _operators,
    st.sampled_from(_COMPARABLE_PAIRS),
)
_ins = _names.flatmap(
    lambda name: st.builds(
        In,
        st.just(column(name)),
        st.lists(_maybe_null(name), min_size=1, max_size=4).map(tuple),
        st.booleans(),
    )
)
_leaves = st.one_of(
    _names.flatmap(_comparison),
    _pairs,
    _ins,
    st.builds(IsNull, _names.map(column), st.booleans()),
    st.builds(IsNull, st.just(Column(("nested",))), st.booleans()),
    st.builds(Like, st.just(Column(("name",))), st.sampled_from(_PATTERNS)),
    st.just(Column(("flag",))),
    st.sampled_from([True, False, None]).map(Literal),
)


def _joined(inner: st.SearchStrategy[Predicate]) -> st.SearchStrategy[Predicate]:
    operands = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(st.builds(And, operands), st.builds(Or, operands), st.builds(Not, inner))


predicates = st.recursive(_leaves, _joined, max_leaves=6)

_row = st.fixed_dictionaries(
    {name: st.none() | st.sampled_from(values) for name, values in VALUES.items()}
)
rows = st.lists(_row, min_size=1, max_size=6)


def batch_of(some: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(some, SCHEMA)


def expected(node: Predicate, row: dict[str, Any]) -> bool | None:
    """What SQL says the predicate is for the row."""
    match node:
        case Literal(value):
            assert value is None or isinstance(value, bool)
            return value
        case Column():
            flag = _value(node, row)
            assert flag is None or isinstance(flag, bool)
            return flag
        case Not(operand):
            inner = expected(operand, row)
            return None if inner is None else not inner
        case And(operands):
            results = [expected(operand, row) for operand in operands]
            return False if False in results else None if None in results else True
        case Or(operands):
            return expected(Not(And(tuple(map(Not, operands)))), row)
        case IsNull(subject, negated):
            return (_value(subject, row) is None) != negated
        case In(subject, choices, negated):
            equal = [Comparison(Operator.EQUAL, subject, choice) for choice in choices]
            found: Predicate = Or((*equal, Literal(False)))
            return expected(Not(found) if negated else found, row)
        case Like(subject, pattern):
            text = _value(subject, row)
            return None if text is None else _like(text, pattern)
        case Comparison(op, left, right):
            is_double = _is_double(left) or _is_double(right)
            one, other = (_orderable(_value(side, row), is_double) for side in (left, right))
            return _compared(op, one, other)


def _value(side: Column | Literal, row: dict[str, Any]) -> Any:
    if isinstance(side, Literal):
        return side.value
    value = row[side.name[0]]
    for part in side.name[1:]:
        value = None if value is None else value[part]
    return value


def _is_double(side: Column | Literal) -> bool:
    return isinstance(side, Column) and side.name[0] in ("single", "double", "other")


def _orderable(value: Any, is_double: bool) -> Any:
    """A value whose Python order is SQL's, next to others of its kind."""
    match value:
        case None:
            return None
        case str() if re.match(r"\d{4}-", value):  # the only texts that stand for times
            return _orderable(datetime.fromisoformat(value), is_double)
        case bool() | bytes():
            return value
        case str():
            return value.encode()
        case int() | float() | Decimal() if is_double:
            return (isnan(value), 0.0 if isnan(value) else float(value))
        case float():
            return Fraction(repr(value))
        case int() | Decimal():
            return Fraction(value)
        case datetime():
            return value if value.tzinfo else value.replace(tzinfo=UTC)
        case date():
            return datetime(value.year, value.month, value.day, tzinfo=UTC)
    raise AssertionError(value)


def _compared(op: Operator, left: Any, right: Any) -> bool | None:
    if op is Operator.NULL_SAFE_EQUAL:
        return bool(left == right)
    if left is None or right is None:
        return None
    results: dict[Operator, bool] = {
        Operator.EQUAL: left == right,
        Operator.NOT_EQUAL: left != right,
        Operator.LESS: left < right,
        Operator.LESS_OR_EQUAL: left <= right,
        Operator.GREATER: left > right,
        Operator.GREATER_OR_EQUAL: left >= right,
    }
    return results[op]


def _like(text: str, pattern: str) -> bool:
    if not pattern:
        return not text
    first, rest = pattern[0], pattern[1:]
    if first == "%":
        return any(_like(text[start:], rest) for start in range(len(text) + 1))
    if first == "\\":
        first, rest = rest[0], rest[1:]
    elif first == "_":
        return bool(text) and _like(text[1:], rest)
    return text[:1] == first and _like(text[1:], rest)
