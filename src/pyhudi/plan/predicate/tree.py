"""The tree that a `where` text becomes.

A predicate is parsed once into these values and never handled as text again: the same tree prunes
partitions and files, filters Arrow batches and is written back as SQL for Spark. So a tree holds
only what all of them understand, and each value refuses at once what one of them could not handle.
Two trees are equal exactly when they mean the same text, which is why a literal compares its type
as well: Python holds `1`, `1.0` and `True` to be equal, SQL does not.

There is no node for BETWEEN, which is two comparisons, and none for arithmetic or functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from math import isfinite
from typing import TypeAlias

from pyhudi.errors import InvalidRequestError

DEPTH_MAX = 64
DIGITS_MAX = 38  # what Spark's widest number holds

Scalar: TypeAlias = bool | int | float | Decimal | str | bytes | date | datetime | None


class Operator(StrEnum):
    """How two operands are compared. `==` and `!=` are other spellings of the first two."""

    EQUAL = "="
    NOT_EQUAL = "<>"
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    NULL_SAFE_EQUAL = "<=>"

    @classmethod
    def _missing_(cls, value: object) -> Operator | None:
        return {"==": cls.EQUAL, "!=": cls.NOT_EQUAL}.get(str(value))


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a field of a struct column: one part for each level, outermost first."""

    name: tuple[str, ...]

    def __post_init__(self) -> None:
        if not (isinstance(self.name, tuple) and self.name and all(self.name)):
            raise InvalidRequestError(
                f"{self.name!r} does not name a column",
                why="a column name is a tuple of one non-empty text for each level",
                next_step='Write Column(("name",))',
            )


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A constant. A datetime with a zone is an instant, and is kept in UTC; one without is not."""

    value: Scalar

    def __post_init__(self) -> None:
        if problem := _literal_problem(self.value):
            why, next_step = problem
            what = f"this {type(self.value).__name__} cannot be a literal"
            raise InvalidRequestError(what, why=why, next_step=next_step)
        if isinstance(self.value, datetime) and self.value.tzinfo is not None:
            object.__setattr__(self, "value", _in_utc(self.value))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Literal):
            return NotImplemented
        return type(self.value) is type(other.value) and self.value == other.value

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


Operand: TypeAlias = Column | Literal


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two operands side by side. Unknown if one is null, except for `<=>`."""

    op: Operator
    left: Operand
    right: Operand

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "op", Operator(self.op))
        except ValueError:
            raise InvalidRequestError(
                f"{self.op!r} does not compare",
                why="there is no such operator",
                next_step=f"Use one of {', '.join(Operator)}",
            ) from None


@dataclass(frozen=True, slots=True)
class And:
    """All operands hold. Flat, so that a long chain is not a deep tree."""

    operands: tuple[Predicate, ...]

    def __post_init__(self) -> None:
        _check_operands(self.operands)


@dataclass(frozen=True, slots=True)
class Or:
    """At least one operand holds."""

    operands: tuple[Predicate, ...]

    def __post_init__(self) -> None:
        _check_operands(self.operands)


@dataclass(frozen=True, slots=True)
class Not:
    """The operand does not hold. The negation of unknown is unknown."""

    operand: Predicate


@dataclass(frozen=True, slots=True)
class In:
    """The column equals one of the literals."""

    column: Column
    literals: tuple[Literal, ...]
    negated: bool = False

    def __post_init__(self) -> None:
        if not self.literals:
            raise InvalidRequestError(
                "IN has nothing to look in",
                why="its list is empty",
                next_step="Give at least one literal, or leave the condition out",
            )


@dataclass(frozen=True, slots=True)
class IsNull:
    """The column has no value. Never unknown."""

    column: Column
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Like:
    r"""The whole text matches: `%` is any text, `_` any character, `\` takes the next as it is."""

    column: Column
    pattern: str

    def __post_init__(self) -> None:
        for character, escaped in like_characters(self.pattern):
            if escaped and character not in ("%", "_", "\\"):
                raise InvalidRequestError(
                    f"LIKE cannot use the pattern {self.pattern!r:.200}",
                    why=r"a backslash stands before something other than %, _ or a backslash",
                    next_step="Double the backslash to match a backslash",
                )


Predicate: TypeAlias = Comparison | And | Or | Not | In | IsNull | Like | Column | Literal


def joined(kind: type[And] | type[Or], operands: Iterable[Predicate]) -> Predicate:
    """Return AND or OR of the operands, flat: operands of the same kind are replaced by theirs."""
    flat: list[Predicate] = []
    for operand in operands:
        flat += operand.operands if isinstance(operand, kind) else (operand,)
    return kind(tuple(flat))


def like_text(text: str) -> str:
    r"""Return the text as a part of a LIKE pattern that matches it alone.

    >>> print(like_text("5% of a_b"))
    5\% of a\_b
    """
    return re.sub(r"([%_\\])", r"\\\1", text)


def like_characters(pattern: str) -> Iterator[tuple[str, bool]]:
    """Yield the characters of a LIKE pattern, each with whether it was escaped.

    A backslash at the end escapes nothing, the empty text.
    """
    rest = iter(pattern)
    for character in rest:
        if character == "\\":
            yield next(rest, ""), True
        else:
            yield character, False


def check_depth(predicate: Predicate) -> None:
    """Refuse a tree that is too deep for the recursive functions over it."""
    level: list[Predicate] = [predicate]
    for _ in range(DEPTH_MAX):
        level = [child for node in level for child in children(node)]
        if not level:
            return
    raise InvalidRequestError(
        "the predicate is nested too deeply",
        why=f"it has more than {DEPTH_MAX} levels",
        next_step="Use IN for many values of one column, or filter in two steps",
    )


def children(predicate: Predicate) -> tuple[Predicate, ...]:
    match predicate:
        case And(operands) | Or(operands):
            return operands
        case Not(operand):
            return (operand,)
    return ()


def columns_of(predicate: Predicate) -> frozenset[Column]:
    """Return every column the predicate reads."""
    match predicate:
        case Column():
            return frozenset((predicate,))
        case Comparison(_, left, right):
            return columns_of(left) | columns_of(right)
        case In(column) | IsNull(column) | Like(column):
            return frozenset((column,))
    return frozenset().union(*map(columns_of, children(predicate)))


def _check_operands(operands: tuple[Predicate, ...]) -> None:
    if not isinstance(operands, tuple) or len(operands) < 2:
        raise InvalidRequestError(
            "AND and OR join conditions",
            why="there must be a tuple of two at least",
            next_step="Use a single condition as it is",
        )


def _literal_problem(value: Scalar) -> tuple[str, str] | None:
    """Return why a value cannot be written in SQL, and what to do; None if it can."""
    # Subclasses (numpy's floats, pandas' timestamps) may hold more than their text would keep.
    if type(value) not in (type(None), bool, int, float, Decimal, str, bytes, date, datetime):
        kinds = "bool, int, float, Decimal, str, bytes, date or datetime"
        return "SQL has no text for its type", f"Convert it to a {kinds}"
    match value:
        case float() if not isfinite(value):
            return "it is not a finite double", "Compare with the largest or smallest double"
        case Decimal() if not value.is_finite():
            return "it is not a finite number", "Use a number"
        case str() if any("\ud800" <= character <= "\udfff" for character in value):
            return "half a surrogate pair is not a character", "Write the character itself"
        case int() if abs(value) >= 10**DIGITS_MAX:
            pass
        case Decimal() if _digits(value) > DIGITS_MAX:
            pass
        case _:
            return None
    return f"it has more than {DIGITS_MAX} digits", "Write it with an exponent, as a double"


def _digits(value: Decimal) -> int:
    """Return the digits it takes to write the number without an exponent."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), "finite"
    return max(len(digits) + exponent, 0) + max(-exponent, 0)


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise InvalidRequestError(
            f"{moment.isoformat()} cannot be a literal",
            why="it lies outside the years 1 to 9999 in UTC",
            next_step="Compare with a time within these years",
        ) from None
