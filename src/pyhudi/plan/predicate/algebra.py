"""Rearranging bound predicates, and what follows from them.

All of it keeps SQL's three values: the rules of De Morgan, of absorption and of flattening hold
for unknown as they do for true and false. What *follows* is weaker: it is true for each row the
predicate is true for, which is all that pruning needs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from pyhudi.plan.predicate.tree import (
    And,
    Comparison,
    In,
    IsNull,
    Literal,
    Not,
    Operator,
    Or,
    Predicate,
    columns_of,
)

_OPPOSITE = {
    Operator.EQUAL: Operator.NOT_EQUAL,
    Operator.NOT_EQUAL: Operator.EQUAL,
    Operator.LESS: Operator.GREATER_OR_EQUAL,
    Operator.GREATER_OR_EQUAL: Operator.LESS,
    Operator.GREATER: Operator.LESS_OR_EQUAL,
    Operator.LESS_OR_EQUAL: Operator.GREATER,
}


def conjunction(operands: Iterable[Predicate]) -> Predicate:
    """Return all of them joined by AND, flat, without those that change nothing."""
    return _joined(And, operands)


def disjunction(operands: Iterable[Predicate]) -> Predicate:
    """Return them joined by OR, flat, without those that change nothing."""
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
    """Return the opposite, with NOT only where there is no opposite leaf."""
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
    """Return what follows from the predicate for these top-level columns.

    None if nothing does.
    """
    if not isinstance(node, And | Or):
        return node if all(column.name[0] in columns for column in columns_of(node)) else None
    parts = [restricted(operand, columns) for operand in node.operands]
    kept = [part for part in parts if part is not None]
    if isinstance(node, And):
        return conjunction(kept) if kept else None
    return disjunction(kept) if len(kept) == len(parts) else None
