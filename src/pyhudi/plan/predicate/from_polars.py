"""A Polars expression → the tree that `where` takes.

Polars writes an expression as JSON, which is the tree. The names in it belong to Polars and may
change with its releases, so only what is listed here is taken, in exactly this shape, and all else
is refused by its name.

What Polars and SQL mean differently is written out: `is_in` is unknown for a null alone, whatever
nulls are among its values, unless `nulls_equal` is set.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from pyhudi.errors import InvalidRequestError
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
    joined,
    like_text,
)

_COMPARISONS: Final = {
    "Eq": Operator.EQUAL,
    "NotEq": Operator.NOT_EQUAL,
    "Lt": Operator.LESS,
    "LtEq": Operator.LESS_OR_EQUAL,
    "Gt": Operator.GREATER,
    "GtEq": Operator.GREATER_OR_EQUAL,
    "EqValidity": Operator.NULL_SAFE_EQUAL,
}
#: `closed` of a range → how its lower and its upper end are compared.
_ENDS: Final = {
    "Both": (Operator.GREATER_OR_EQUAL, Operator.LESS_OR_EQUAL),
    "Left": (Operator.GREATER_OR_EQUAL, Operator.LESS),
    "Right": (Operator.GREATER, Operator.LESS_OR_EQUAL),
    "None": (Operator.GREATER, Operator.LESS),
}
_INTEGERS: Final = frozenset(
    [*(f"Int{bits}" for bits in (8, 16, 32, 64, 128)), *(f"UInt{b}" for b in (8, 16, 32, 64, 128))]
)
#: Units of a time → how many of them are how many microseconds.
_MICROSECONDS: Final = {
    "Nanoseconds": (1_000, 1),
    "Microseconds": (1, 1),
    "Milliseconds": (1, 1_000),
}
_EPOCH: Final = datetime(1970, 1, 1)


def from_polars(expression: Any) -> Predicate:
    """Return the predicate that keeps the rows that a filter by the expression keeps."""
    return _translated(_tree(expression))


def _translated(node: Any) -> Predicate:
    try:
        return _predicate(node)
    except RecursionError:
        raise _refusal("it is nested too deeply") from None
    except OverflowError:
        raise _refusal("a time in it lies outside the years 1 to 9999") from None
    except (LookupError, pa.ArrowException) as error:  # a word or a type of a newer Polars
        raise _refusal(f"pyhudi does not know {error!r:.100}") from None


def translated_conjuncts(expression: Any) -> Iterator[Predicate]:
    """Yield the conditions that can be translated, of those that must all hold."""
    try:
        nodes = list(_conjuncts(_tree(expression)))
    except (InvalidRequestError, RecursionError):
        return
    for node in nodes:
        try:
            found = _translated(node)
        except InvalidRequestError:
            continue
        yield found


def _conjuncts(node: Any) -> Iterator[Any]:
    match node:
        case {"BinaryExpr": {"left": left, "op": "And", "right": right}}:
            yield from _conjuncts(left)
            yield from _conjuncts(right)
        case _:
            yield node


def _tree(expression: Any) -> Any:
    try:
        return json.loads(expression.meta.serialize(format="json"))
    # Polars has errors of its own, and a function of Python's in an expression may raise any.
    except Exception as error:
        raise _refusal(f"Polars does not spell it out ({error!r:.200})") from None


def _predicate(node: Any) -> Predicate:
    match node:
        case {"BinaryExpr": {"left": left, "op": "And", "right": right}}:
            return joined(And, (_predicate(left), _predicate(right)))
        case {"BinaryExpr": {"left": left, "op": "Or", "right": right}}:
            return joined(Or, (_predicate(left), _predicate(right)))
        case {"BinaryExpr": {"left": left, "op": "NotEqValidity", "right": right}}:
            return Not(Comparison(Operator.NULL_SAFE_EQUAL, _operand(left), _operand(right)))
        case {"BinaryExpr": {"left": left, "op": str() as op, "right": right}}:
            if op not in _COMPARISONS:
                raise _refusal(f"the operator {op!r} is not supported")
            return Comparison(_COMPARISONS[op], _operand(left), _operand(right))
        case {"Function": {"input": list() as inputs, "function": function}}:
            if found := _boolean(function, inputs) or _column(node):
                return found
            raise _refusal(f"the function {function!r:.80} is not supported")
    return _operand(node)


def _boolean(function: Any, inputs: Sequence[Any]) -> Predicate | None:
    match function, inputs:
        case {"Boolean": "Not"}, [operand]:
            return Not(_predicate(operand))
        case {"Boolean": "IsNull"}, [operand]:
            return IsNull(_required_column(operand))
        case {"Boolean": "IsNotNull"}, [operand]:
            return IsNull(_required_column(operand), negated=True)
        case {"Boolean": {"IsBetween": {"closed": str() as closed}}}, [value, low, high]:
            least, most = _ENDS[closed]
            tested = _operand(value)
            ends = (
                Comparison(least, tested, _operand(low)),
                Comparison(most, tested, _operand(high)),
            )
            return And(ends)
        case {"Boolean": {"IsIn": {"nulls_equal": bool() as nulls_equal}}}, [value, values]:
            return _is_in(_required_column(value), _values(values), nulls_equal=nulls_equal)
        case {"StringExpr": "StartsWith"}, [
            value,
            {"Literal": {"Scalar": {"String": str() as text}}},
        ]:
            return Like(_required_column(value), f"{like_text(text)}%")
        case {"StringExpr": "EndsWith"}, [
            value,
            {"Literal": {"Scalar": {"String": str() as text}}},
        ]:
            return Like(_required_column(value), f"%{like_text(text)}")
    return None


def _is_in(column: Column, literals: Sequence[Literal], *, nulls_equal: bool) -> Predicate:
    values = tuple(literal for literal in literals if literal.value is not None)
    # Of no values: false, and unknown for a null.
    is_found = In(column, values) if values else Comparison(Operator.NOT_EQUAL, column, column)
    if not nulls_equal:
        return is_found
    if len(values) < len(literals):
        return Or((IsNull(column), is_found))
    return And((IsNull(column, negated=True), is_found))


def _operand(node: Any) -> Operand:
    if (column := _column(node)) is not None:
        return column
    match node:
        case {"Literal": {"Dyn": {"Int": int() as value}}}:
            return Literal(value)
        case {"Literal": {"Dyn": {"Float": float() as value}}}:
            return Literal(value)
        case {"Literal": {"Scalar": dict() as scalar}}:
            return Literal(_scalar(scalar))
    raise _refusal(f"{_name_of(node)} stands where a column or a literal must be")


def _column(node: Any) -> Column | None:
    match node:
        case {"Column": str() as name} if name:
            return Column((name,))
        case {
            "Function": {
                "input": [inner],
                "function": {"StructExpr": {"FieldByName": str() as name}},
            }
        } if name and (outer := _column(inner)):
            return Column((*outer.name, name))
    return None


def _required_column(node: Any) -> Column:
    if (column := _column(node)) is None:
        raise _refusal(f"{_name_of(node)} stands where a column must be")
    return column


def _scalar(scalar: dict[str, Any]) -> Scalar:
    match scalar:
        case {"Null": _}:
            return None
        case (
            {"Boolean": bool() as value}
            | {"String": str() as value}
            | {"Float64": float() as value}
        ):
            return value
        case {"Binary": list() as octets}:
            return bytes(octets)
        case {"Date": int() as days}:
            return date(1970, 1, 1) + timedelta(days)
        case {"Datetime": [int() as count, str() as unit, zone]}:
            return _moment(count, unit, has_zone=zone is not None)
        case {"Decimal": [int() as unscaled, int(), int() as scale]}:
            return Decimal(unscaled).scaleb(-scale)
    [(kind, value)] = scalar.items()
    if kind in _INTEGERS and isinstance(value, int):
        return value
    raise _refusal(f"a literal of the type {kind} is not supported")


def _moment(count: int, unit: str, *, has_zone: bool) -> datetime:
    per, times = _MICROSECONDS[unit]
    whole, rest = divmod(count * times, per)
    if rest:
        raise _refusal("a literal has parts of a microsecond")
    moment = _EPOCH + timedelta(microseconds=whole)
    return moment.replace(tzinfo=UTC) if has_zone else moment


def _values(node: Any) -> list[Literal]:
    """Return the values of a list, which Polars writes as an Arrow stream."""
    match node:
        case {"Literal": {"Scalar": {"List": list() as octets}} | {"Series": list() as octets}}:
            [column] = pa.ipc.open_stream(bytes(octets)).read_all().columns
            if pa.types.is_timestamp(column.type):
                zone = None if column.type.tz is None else "UTC"
                column = column.cast(pa.timestamp("us", zone))
            return [Literal(value) for value in column.to_pylist()]
    raise _refusal(f"{_name_of(node)} stands where a list of values must be")


def _name_of(node: Any) -> str:
    """Return what Polars calls a part of an expression."""
    return repr(next(iter(node))) if isinstance(node, dict) and node else "something"


def _refusal(why: str) -> InvalidRequestError:
    return InvalidRequestError(
        "the Polars expression cannot be used as a predicate",
        why=why,
        next_step="Write it as SQL text, or filter the rows afterwards; docs/predicates.md has"
        " what can be translated",
    )
