r"""A predicate as SQL: text that our own parser and Spark read with the same meaning.

Where Spark offers several spellings, the one is used that no setting or version of it changes:

- Every name is in backticks, for the set of reserved words varies.
- A quote in a text is `\'`. Doubled quotes are a quote only since Spark 4; before, they vanish.
- `${` would be replaced by a setting's value even inside a text, so the dollar is `\u0024`.
- A double has an exponent and a decimal has a point: without them Spark takes `1.5` for a decimal
  and `1` for an integer. A decimal without fraction ends with its point.
- An instant names its zone, for otherwise the session's zone is used.
"""

from __future__ import annotations

import re
from datetime import date, datetime
from decimal import Decimal

from pyhudi.plan.predicate.tree import (
    And,
    Column,
    Comparison,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Predicate,
    Scalar,
)

# Control characters are escaped as well, so that the text stays on one line of a log.
_ESCAPED = re.compile(r"['\\\x00-\x1f\x7f]|\$(?=\{)")


def to_sql(predicate: Predicate) -> str:
    """Return the text of a predicate; parsing it gives an equal tree.

    >>> to_sql(And((Column(("paid",)), In(Column(("a", "b")), (Literal("it's"), Literal(1.0))))))
    "`paid` AND `a`.`b` IN ('it\\\\'s', 1.0E0)"
    """
    match predicate:
        case Column(name):
            return ".".join(f"`{part.replace('`', '``')}`" for part in name)
        case Literal(value):
            return _literal(value)
        case Comparison(op, left, right):
            return f"{to_sql(left)} {op} {to_sql(right)}"
        case And(operands):
            return " AND ".join(_within(operand, (And, Or)) for operand in operands)
        case Or(operands):
            return " OR ".join(_within(operand, (And, Or)) for operand in operands)
        case Not(operand):
            return f"NOT {_within(operand, (Comparison, And, Or, In, IsNull, Like))}"
        case In(column, literals, negated):
            choices = ", ".join(_literal(literal.value) for literal in literals)
            return f"{to_sql(column)} {'NOT ' if negated else ''}IN ({choices})"
        case IsNull(column, negated):
            return f"{to_sql(column)} IS {'NOT ' if negated else ''}NULL"
        case Like(column, pattern):
            return f"{to_sql(column)} LIKE {_literal(pattern)}"


def _within(predicate: Predicate, enclosed: tuple[type, ...]) -> str:
    text = to_sql(predicate)
    return f"({text})" if isinstance(predicate, enclosed) else text


def _literal(value: Scalar) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value)
        case float():
            text = repr(value).upper()
            return text if "E" in text else f"{text}E0"
        case Decimal():
            text = f"{value:f}"
            return text if "." in text else f"{text}."
        case str():
            return f"'{_ESCAPED.sub(_escape, value)}'"
        case bytes():
            return f"X'{value.hex().upper()}'"
        case datetime():
            text = value.replace(tzinfo=None).isoformat(" ", "microseconds")
            return f"TIMESTAMP_NTZ '{text}'" if value.tzinfo is None else f"TIMESTAMP '{text}Z'"
        case date():
            return f"DATE '{value.isoformat()}'"


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    return f"\\{character}" if character in "'\\" else f"\\u{ord(character):04x}"
