r"""A `where` text becomes a predicate tree.

    predicate   := conjunction (OR conjunction)*
    conjunction := negation (AND negation)*
    negation    := NOT negation | test
    test        := primary [ operator primary
                           | IS [NOT] NULL
                           | [NOT] IN "(" literal ("," literal)* ")"
                           | [NOT] BETWEEN primary AND primary
                           | [NOT] LIKE text ]
    primary     := "(" predicate ")" | column | literal
    column      := name ("." name)*

This is a subset of Spark SQL: what it accepts, Spark reads with the same meaning, and what would
differ is refused. So a backslash in a text escapes, as in Spark, but only in the ways listed here
(Spark drops any other backslash silently), and a double-quoted word is an error, because it is a
text in Spark and a name in standard SQL. One thing is fixed that Spark leaves to the session: a
timestamp without a zone is in UTC.

The text may come from anywhere, so its length and nesting are bounded before any recursion.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC
from decimal import Decimal
from typing import Any, TypeAlias, get_args

from pyhudi.errors import InvalidRequestError
from pyhudi.plan.predicate.from_arrow import from_arrow
from pyhudi.plan.predicate.from_polars import from_polars
from pyhudi.plan.predicate.times import DATE_FORM, TIMESTAMP_FORM, date_in, timestamp_in
from pyhudi.plan.predicate.tree import (
    DEPTH_MAX,
    DIGITS_MAX,
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
    check_depth,
)
from pyhudi.wording import with_article

LENGTH_MAX = 64 * 1024  # bytes of UTF-8

_SUPPORTED = (
    "Use comparisons of columns and literals, IN, BETWEEN, LIKE, IS NULL, AND, OR, NOT "
    "and parentheses"
)
_ARITHMETIC = "arithmetic is not supported"
_NO_ARITHMETIC = "Compare the column itself with a literal, or filter the rows afterwards"
_BARE_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?![0-9])")
_BARE_DATE_WHY = "a date without quotes is a subtraction"
_QUOTES = "Write 'text' in single quotes and a column's `name` in backticks"

_KEYWORDS = frozenset(
    ("AND", "OR", "NOT", "IN", "IS", "NULL", "BETWEEN", "LIKE", "TRUE", "FALSE"),
)
_OPERATORS = frozenset((*Operator, "==", "!="))
_CONSTANTS = {"TRUE": True, "FALSE": False, "NULL": None}
_TYPED = frozenset(("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "X"))  # before a text in quotes

_TOKEN = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<text>'(?:[^'\\]|''|\\.)*+')
    | (?P<quoted>`(?:[^`]|``)++`)
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<number>(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_]))
    | (?P<symbol><=>|<>|!=|==|<=|>=|[<>=(),.-])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"''|\\(?:u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_PLAIN_ESCAPES = {r"\'": "'", r"\"": '"', r"\\": "\\", r"\n": "\n", r"\r": "\r", r"\t": "\t"}
_LIKE_ESCAPES = {r"\%": r"\%", r"\_": r"\_"}  # LIKE understands the backslash, so it stays
_ESCAPED = {"''": "'"} | _PLAIN_ESCAPES | _LIKE_ESCAPES


#: What `where` may be: SQL, a tree, or an expression of pyarrow or Polars, which have no type here.
Where: TypeAlias = str | Predicate | Any


def is_expression(where: Any) -> bool:
    """True if it is an expression of pyarrow or Polars; Polars is not imported to find out."""
    return _library(where) is not None


def _library(where: Any) -> str | None:
    kind = type(where)
    names = {("pyarrow", "Expression"): "pyarrow", ("polars", "Expr"): "polars"}
    return names.get((kind.__module__.partition(".")[0], kind.__name__))


def _translated(where: Any) -> Predicate:
    if _library(where) == "pyarrow":
        return from_arrow(where)
    return from_polars(where)


def parse_predicate(where: Where) -> Predicate:
    """Return the tree of a `where` text; a tree that is already built is returned unchanged.

    An expression of pyarrow or Polars is translated.

    >>> parse_predicate("amount > 5")
    Comparison(op=<Operator.GREATER: '>'>, left=Column(name=('amount',)), right=Literal(value=5))
    """
    if isinstance(where, str):
        predicate = _Parser(where).parse()
    elif isinstance(where, get_args(Predicate)):
        predicate = where
    elif is_expression(where):
        predicate = _translated(where)
    else:
        raise InvalidRequestError(
            f"{with_article(type(where).__name__)} is not a predicate",
            why="a predicate is SQL text, or an expression of pyarrow or Polars",
            next_step=_SUPPORTED,
        )
    check_depth(predicate)
    return predicate


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # a group of _TOKEN, or "end"
    text: str
    start: int

    @property
    def word(self) -> str:
        """The text by which the grammar knows this token: keywords are in capitals."""
        return self.text.upper() if self.kind == "word" else self.text


class _Parser:
    """One pass over one text. Each method consumes what its name says, or raises."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._depth = 0
        self._at = 0
        if len(text.encode("utf-8", "surrogatepass")) > LENGTH_MAX:
            raise InvalidRequestError(
                "the predicate is too long",
                why=f"its text has more than {LENGTH_MAX} bytes",
                next_step="Join the rows with a table of the wanted values instead",
            )
        self._tokens = tuple(self._tokenized())

    def parse(self) -> Predicate:
        predicate = self._predicate()
        self._expect("", "AND, OR or the end")
        return predicate

    # The grammar, from the loosest binding to the tightest.

    def _predicate(self) -> Predicate:
        operands = [self._conjunction()]
        while self._accept("OR"):
            operands.append(self._conjunction())
        return Or(tuple(operands)) if len(operands) > 1 else operands[0]

    def _conjunction(self) -> Predicate:
        operands = [self._negation()]
        while self._accept("AND"):
            operands.append(self._negation())
        return And(tuple(operands)) if len(operands) > 1 else operands[0]

    def _negation(self) -> Predicate:
        if self._peek().word == "NOT":
            return self._nested(lambda: Not(self._negation()))
        return self._test()

    def _test(self) -> Predicate:
        start = self._peek()
        subject = self._primary()
        if not isinstance(subject, Column | Literal):
            return subject
        if self._peek().text in _OPERATORS:
            return Comparison(Operator(self._advance().text), subject, self._operand())
        if self._accept("IS"):
            negated = self._accept("NOT")
            self._expect("NULL")
            return IsNull(self._tested(subject, start), negated)
        negated = self._accept("NOT")
        if self._accept("IN"):
            return In(self._tested(subject, start), self._literals(), negated)
        if self._accept("BETWEEN"):
            return _negated(self._between(subject), negated)
        if self._accept("LIKE"):
            return _negated(self._like(self._tested(subject, start)), negated)
        if negated:
            raise self._unexpected("IN, BETWEEN or LIKE")
        return subject

    def _primary(self) -> Predicate:
        token = self._peek()
        if token.text == "(":
            return self._nested(self._parenthesized)
        if token.kind == "quoted" or (token.kind == "word" and not self._begins_literal()):
            return self._column()
        return self._literal("a column, a literal or (")

    def _nested(self, inner: Callable[[], Predicate]) -> Predicate:
        token = self._advance()
        self._depth += 1
        if self._depth > DEPTH_MAX:
            why = f"the predicate is nested more than {DEPTH_MAX} levels deep"
            raise self._refusal(token.start, why, "Use IN for many values of one column")
        predicate = inner()
        self._depth -= 1
        return predicate

    def _parenthesized(self) -> Predicate:
        predicate = self._predicate()
        self._expect(")", "AND, OR or )")
        return predicate

    def _tested(self, subject: Operand, start: _Token) -> Column:
        if isinstance(subject, Column):
            return subject
        raise self._refusal(start.start, "only a column can be tested in this way", _SUPPORTED)

    def _operand(self) -> Operand:
        start = self._peek().start
        operand = self._primary()
        if isinstance(operand, Column | Literal):
            return operand
        raise self._refusal(start, "the result of a condition cannot be compared", _SUPPORTED)

    def _between(self, subject: Operand) -> And:
        low = self._operand()
        self._expect("AND")
        high = self._operand()
        at_least = Comparison(Operator.GREATER_OR_EQUAL, subject, low)
        return And((at_least, Comparison(Operator.LESS_OR_EQUAL, subject, high)))

    def _like(self, column: Column) -> Like:
        token = self._peek()
        if token.kind != "text":
            raise self._unexpected("a pattern in single quotes")
        pattern = self._text_literal()
        try:
            return Like(column, pattern)
        except InvalidRequestError as error:
            raise self._refusal(token.start, error.why, error.next_step) from None

    def _column(self) -> Column:
        parts = [self._name()]
        while self._accept("."):
            parts.append(self._name())
        if self._peek().text == "(":
            raise self._refusal(self._peek().start, "functions are not supported", _SUPPORTED)
        return Column(tuple(parts))

    def _name(self) -> str:
        token = self._peek()
        if token.kind == "quoted":
            return self._advance().text[1:-1].replace("``", "`")
        if token.kind == "word" and token.word not in _KEYWORDS:
            return self._advance().text
        raise self._unexpected("a column (a reserved word needs backticks)")

    # Literals.

    def _literals(self) -> tuple[Literal, ...]:
        self._expect("(")
        literals = [self._literal("a literal")]
        while self._accept(","):
            literals.append(self._literal("a literal"))
        self._expect(")", ", or )")
        return tuple(literals)

    def _begins_literal(self) -> bool:
        token = self._peek()
        return token.kind == "word" and (
            token.word in _CONSTANTS or (token.word in _TYPED and self._peek(1).kind == "text")
        )

    def _literal(self, expected: str) -> Literal:
        token = self._peek()
        if token.kind == "text":
            value: Scalar = self._text_literal()
        elif token.kind == "number" or token.text == "-":
            value = self._number()
        elif self._begins_literal():
            value = self._word_literal()
        else:
            raise self._unexpected(expected)
        try:
            return Literal(value)
        except InvalidRequestError as error:
            raise self._refusal(token.start, error.why, error.next_step) from None

    def _number(self) -> int | float | Decimal:
        sign = "-" if self._accept("-") else ""
        token = self._peek()
        if token.kind != "number":
            raise self._refusal(token.start, _ARITHMETIC, _NO_ARITHMETIC)
        text = self._advance().text
        if "e" in text.lower():
            return float(sign + text)
        if "." in text:
            return Decimal(sign + text)
        # Python refuses to read very long integers; one digit too many makes Literal refuse it.
        return int(sign + (text.lstrip("0")[: DIGITS_MAX + 1] or "0"))

    def _word_literal(self) -> Scalar:
        word = self._peek()
        if word.word in _CONSTANTS:
            return _CONSTANTS[self._advance().word]
        self._advance()
        text = self._text_literal()
        if word.word == "X":
            if re.fullmatch("(?:[0-9A-Fa-f]{2})*", text):
                return bytes.fromhex(text)
            raise self._refusal(word.start, "this is not binary", "Write two hex digits a byte")
        if word.word == "DATE":
            if day := date_in(text):
                return day
            raise self._refusal(word.start, "this is not a date", f"Write DATE {DATE_FORM}")
        moment = timestamp_in(text)
        if moment and word.word == "TIMESTAMP":
            return moment.replace(tzinfo=moment.tzinfo or UTC)
        if moment and moment.tzinfo is None:
            return moment
        form = TIMESTAMP_FORM if word.word == "TIMESTAMP" else TIMESTAMP_FORM[:-7] + "'"
        raise self._refusal(word.start, "this is not such a timestamp", f"Write {word.word} {form}")

    def _text_literal(self) -> str:
        token = self._advance()

        def unescaped(match: re.Match[str]) -> str:
            if match[0] in _ESCAPED:
                return _ESCAPED[match[0]]
            if len(match[0]) == len(r"\uXXXX"):
                return chr(int(match[0][2:], 16))
            why = f"{match[0]} is not one of the escapes that are supported"
            advice = r"Write \\ for a backslash, or use \' \n \r \t \uXXXX; \% and \_ are for LIKE"
            raise self._refusal(token.start + 1 + match.start(), why, advice)

        return _ESCAPE.sub(unescaped, token.text[1:-1])

    # Tokens.

    def _tokenized(self) -> Iterator[_Token]:
        start = 0
        while start < len(self._text):
            match = _TOKEN.match(self._text, start)
            if match is None:
                raise self._foreign(start)
            if match.lastgroup != "space":
                yield _Token(str(match.lastgroup), match[0], start)
            start = match.end()
        yield _Token("end", "", start)

    def _peek(self, ahead: int = 0) -> _Token:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def _advance(self) -> _Token:
        token = self._peek()
        self._at += 1
        return token

    def _accept(self, word: str) -> bool:
        accepted = self._peek().word == word
        self._at += accepted
        return accepted

    def _expect(self, word: str, expected: str | None = None) -> None:
        if not self._accept(word):
            raise self._unexpected(expected or word)

    # Refusals.

    def _foreign(self, start: int) -> InvalidRequestError:
        character = self._text[start]
        why, next_step = f"{character!r} has no meaning here", _SUPPORTED
        if character == '"':
            why, next_step = "double quotes are a text to some and a name to others", _QUOTES
        elif character in "'`":
            why, next_step = f"the closing {character} is missing", _QUOTES
        elif self._text.startswith("&&", start):
            why, next_step = "&& is not SQL", "Write AND"
        elif self._text.startswith("||", start):
            why, next_step = "|| joins texts in SQL, which is not supported", "Write OR for either"
        elif character in "+*/%^~|&":
            why, next_step = _ARITHMETIC, _NO_ARITHMETIC
        elif character.isdigit():
            why, next_step = "a number runs into a word", "Write the number without a suffix"
        elif character.isalpha():
            why = "a plain name has the letters A to Z, digits and underscores only"
            next_step = "Put the column's `name` in backticks"
        return self._refusal(start, why, next_step)

    def _unexpected(self, expected: str) -> InvalidRequestError:
        token = self._peek()
        if token.text == "-":
            before = self._tokens[self._at - 1]
            if day := _BARE_DATE.match(self._text, before.start if self._at else token.start):
                return self._refusal(before.start, _BARE_DATE_WHY, f"Write '{day[0]}'")
            return self._refusal(token.start, _ARITHMETIC, _NO_ARITHMETIC)
        found = f"{token.text:.40}" if token.kind != "end" else "the end"
        return self._refusal(token.start, f"expected {expected}, found {found}", _SUPPORTED)

    def _refusal(self, start: int, why: str, next_step: str) -> InvalidRequestError:
        """Return the error with a part of the text, on one line, and a caret under the position."""
        first = max(start - 40, 0)
        line = re.sub(r"[^\S ]|[\x00-\x1f]", " ", self._text[first : start + 40])
        what = (
            f"cannot read the predicate\n    {line}\n    {' ' * (start - first)}^\n"
            f"at character {start + 1}"
        )
        return InvalidRequestError(what, why=why, next_step=next_step)


def _negated(predicate: Predicate, negated: bool) -> Predicate:
    return Not(predicate) if negated else predicate
