"""Rearranging bound predicates, and what follows from them.

All of it keeps SQL's three values: the rules of De Morgan, of absorption and of flattening hold
for unknown as they do for true and false. What *follows* is weaker: it is true for each row the
predicate is true for, which is all that pruning needs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import reduce
from typing import TypeAlias

from pyhudi.plan.predicate.tree import (
    And,
    Column,
    Comparison,
    In,
    IsNull,
    Literal,
    Not,
    Operator,
    Or,
    Predicate,
    Scalar,
    columns_of,
)

# The values each column can have where a predicate is true, in order.
Pins: TypeAlias = dict[Column, dict[Scalar, None]]

_OPPOSITE = {
    Operator.EQUAL: Operator.NOT_EQUAL,
    Operator.NOT_EQUAL: Operator.EQUAL,
    Operator.LESS: Operator.GREATER_OR_EQUAL,
    Operator.GREATER_OR_EQUAL: Operator.LESS,
    Operator.GREATER: Operator.LESS_OR_EQUAL,
    Operator.LESS_OR_EQUAL: Operator.GREATER,
}


def conjunction(operands: Iterable[Predicate]) -> Predicate:
    """All of them, flat, without what changes nothing."""
    return _joined(And, operands)


def disjunction(operands: Iterable[Predicate]) -> Predicate:
    """Any of them, flat, without what changes nothing."""
    return _joined(Or, operands)


def _joined(kind: type[And] | type[Or], operands: Iterable[Predicate]) -> Predicate:
    neutral, decisive = Literal(kind is And), Literal(kind is Or)
    flat: dict[Predicate, None] = {}
    for operand in operands:
        parts = operand.operands if isinstance(operand, kind) else (operand,)
        flat.update(dict.fromkeys(part for part in parts if part != neutral))
    if decisive in flat:
        return decisive
    return kind(tuple(flat)) if len(flat) > 1 else next(iter(flat), neutral)


def negation(node: Predicate) -> Predicate:
    """The opposite, with NOT only where there is no opposite leaf."""
    match node:
        case And(operands):
            return disjunction(map(negation, operands))
        case Or(operands):
            return conjunction(map(negation, operands))
        case Not(operand):
            return operand
        case Comparison(op, left, right) if op in _OPPOSITE:
            return Comparison(_OPPOSITE[op], left, right)
        case In(column, literals, negated):
            return In(column, literals, not negated)
        case IsNull(column, negated):
            return IsNull(column, not negated)
        case Literal(value):
            return Literal(None if value is None else not value)
    return Not(node)


def restricted(node: Predicate, columns: Collection[str]) -> Predicate | None:
    """What follows from the predicate for the given top-level columns; None if nothing does."""
    if not isinstance(node, And | Or):
        return node if all(column.name[0] in columns for column in columns_of(node)) else None
    parts = [restricted(operand, columns) for operand in node.operands]
    kept = [part for part in parts if part is not None]
    if isinstance(node, And):
        return conjunction(kept) if kept else None
    return disjunction(kept) if len(kept) == len(parts) else None


def pinned_values(node: Predicate) -> Pins | None:
    """The columns that `=` and IN confine to some values. None: no row can match."""
    match node:
        case Literal(value):
            return {} if value is True else None
        case Comparison(
            Operator.EQUAL | Operator.NULL_SAFE_EQUAL, Column() as column, Literal() as one
        ):
            return _pinned(column, (one,))
        case In(column, literals, False):
            return _pinned(column, literals)
        case Column():
            return _pinned(node, (Literal(True),))
        case Not(Column() as column):
            return _pinned(column, (Literal(False),))
        case And(operands):
            return _pinned_by_all(map(pinned_values, operands))
        case Or(operands):
            return _pinned_by_any(map(pinned_values, operands))
    return {}


def _pinned(column: Column, literals: tuple[Literal, ...]) -> Pins:
    if isinstance(literals[0].value, float):
        return {}
    return {column: {literal.value: None for literal in literals}}


def _pinned_by_all(parts: Iterable[Pins | None]) -> Pins | None:
    merged: Pins = {}
    for pins in parts:
        if pins is None:
            return None
        for column, values in pins.items():
            both = {value: None for value in merged.get(column, values) if value in values}
            if not both:
                return None
            merged[column] = both
    return merged


def _pinned_by_any(parts: Iterable[Pins | None]) -> Pins | None:
    possible = [pins for pins in parts if pins is not None]
    if not possible:
        return None
    return reduce(_pinned_by_either, possible)


def _pinned_by_either(some: Pins, others: Pins) -> Pins:
    return {column: some[column] | others[column] for column in some if column in others}
