from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predicate_cases import predicates
from pyhudi.errors import InvalidRequestError
from pyhudi.plan.predicate.parser import LENGTH_MAX, parse_predicate
from pyhudi.plan.predicate.sql import to_sql
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

A, B, C = Column(("a",)), Column(("b",)), Column(("c",))


def compared(op: str, value: Any, column: Column = A) -> Comparison:
    return Comparison(Operator(op), column, Literal(value))


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a", A),
        ("TRUE", Literal(True)),
        ("null", Literal(None)),
        ("a.b", Column(("a", "b"))),
        ("`a.b`.`c``d`", Column(("a.b", "c`d"))),
        ("`and`", Column(("and",))),
        ("_hoodie_commit_time > '1'", compared(">", "1", Column(("_hoodie_commit_time",)))),
        *((f"a {op} 1", compared(op, 1)) for op in ("=", "<>", "<", "<=", ">", ">=", "<=>")),
        ("a == 1", compared("=", 1)),
        ("a != 1", compared("<>", 1)),
        ("a=1", compared("=", 1)),
        ("a<-1", compared("<", -1)),
        ("1 < a", Comparison(Operator.LESS, Literal(1), A)),
        ("a = b", Comparison(Operator.EQUAL, A, B)),
        ("((a)) = (1)", compared("=", 1)),
        ("a is null", IsNull(A)),
        ("a IS NOT NULL", IsNull(A, negated=True)),
        ("a in (1, 'x', null)", In(A, (Literal(1), Literal("x"), Literal(None)))),
        ("a not in (1)", In(A, (Literal(1),), negated=True)),
        ("a between 1 and 2", And((compared(">=", 1), compared("<=", 2)))),
        ("a not between 1 and 2", Not(And((compared(">=", 1), compared("<=", 2))))),
        ("a between 1 and 2 and b", And((And((compared(">=", 1), compared("<=", 2))), B))),
        ("a like 'x%'", Like(A, "x%")),
        ("a NOT LIKE 'x'", Not(Like(A, "x"))),
        ("a or b and c", Or((A, And((B, C))))),
        ("(a or b) and c", And((Or((A, B)), C))),
        ("a and b and c", And((A, B, C))),
        ("a and (b and c)", And((A, And((B, C))))),
        ("not a and b", And((Not(A), B))),
        ("not not a", Not(Not(A))),
        ("not a = 1", Not(compared("=", 1))),
        ("not a is null", Not(IsNull(A))),
        ("\n a\t=\r\n1 ", compared("=", 1)),
        ("date = 1", compared("=", 1, Column(("date",)))),
        ("x is null", IsNull(Column(("x",)))),
        ("timestamp in (1)", In(Column(("timestamp",)), (Literal(1),))),
    ],
)
def test_text_becomes_a_tree(text: str, tree: Predicate) -> None:
    assert parse_predicate(text) == tree


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-7", -7),
        ("- 7", -7),
        ("0" * 5000 + "7", 7),
        ("9" * 38, 10**38 - 1),
        ("1.5", Decimal("1.5")),
        ("1.", Decimal(1)),
        (".5", Decimal("0.5")),
        ("-0.10", Decimal("-0.10")),
        ("1e3", 1000.0),
        ("1.5E-3", 0.0015),
        ("TRUE", True),
        ("false", False),
        ("NULL", None),
        ("'text'", "text"),
        ("''", ""),
        ("'it''s'", "it's"),
        (r"'it\'s \\ \"x\" \n\r\t'", 'it\'s \\ "x" \n\r\t'),
        (r"'\u00e9\u0024'", "é$"),
        (r"'50\%\_'", r"50\%\_"),
        ("'AND `x` -- \"'", 'AND `x` -- "'),
        ("X'00fF'", b"\x00\xff"),
        ("x ''", b""),
        ("DATE '2026-01-05'", date(2026, 1, 5)),
        ("TIMESTAMP '2026-01-05'", datetime(2026, 1, 5, tzinfo=UTC)),
        ("timestamp '2026-01-05 10:30'", datetime(2026, 1, 5, 10, 30, tzinfo=UTC)),
        ("TIMESTAMP '2026-01-05T10:30:01Z'", datetime(2026, 1, 5, 10, 30, 1, tzinfo=UTC)),
        ("TIMESTAMP '2026-01-05 10:30:01.25+02:00'", datetime(2026, 1, 5, 8, 30, 1, 250_000, UTC)),
        ("TIMESTAMP_NTZ '2026-01-05 10:30:01.000001'", datetime(2026, 1, 5, 10, 30, 1, 1)),
    ],
)
def test_literals_keep_their_type_and_every_digit(text: str, value: Any) -> None:
    assert parse_predicate(f"a = {text}") == compared("=", value)
    assert parse_predicate(f"a IN ({text})") == In(A, (Literal(value),))


SUPPORTED = "Use comparisons of columns and literals, IN, BETWEEN, LIKE, IS NULL"


@pytest.mark.parametrize(
    ("text", "position", "why", "next_step"),
    [
        ("", 1, "expected a column, a literal or (, found the end", SUPPORTED),
        ("a = ", 5, "found the end", SUPPORTED),
        ("a = 1 b", 7, "expected AND, OR or the end, found b", SUPPORTED),
        ("a rlike 'x'", 3, "found rlike", SUPPORTED),
        ("(a = 1", 7, "expected AND, OR or ), found the end", SUPPORTED),
        ("a = 1)", 6, "found )", SUPPORTED),
        ("a = b = c", 7, "found =", SUPPORTED),
        ("a = (b = c)", 5, "the result of a condition cannot be compared", SUPPORTED),
        ("a + 1 > 2", 3, "arithmetic is not supported", "Compare the column itself"),
        ("a > 2 - 1", 7, "arithmetic is not supported", "Compare the column itself"),
        ("-a > 2", 2, "arithmetic is not supported", "Compare the column itself"),
        ("a % 2 = 0", 3, "arithmetic is not supported", "Compare the column itself"),
        ("a || b = 'x'", 3, "|| joins texts", "Write OR"),
        ("a = 1 && b = 2", 7, "&& is not SQL", "Write AND"),
        ("a & 1 = 1", 3, "arithmetic is not supported", "Compare the column itself"),
        ("day = 2026-01-05", 7, "a date without quotes", "Write '2026-01-05'"),
        ("day IN (2026-1-5)", 9, "a date without quotes", "Write '2026-1-5'"),
        ("day BETWEEN 2026-01-05 AND 3", 13, "a date without quotes", "Write '2026-01-05'"),
        ("a = 2026 - 1", 10, "arithmetic is not supported", "Compare the column itself"),
        ("lower(a) = 'x'", 6, "functions are not supported", SUPPORTED),
        ('a = "x"', 5, "double quotes", "'text' in single quotes and a column's `name`"),
        ("a = 'x", 5, "the closing ' is missing", "'text' in single quotes"),
        ("a = 'x\\'", 5, "the closing ' is missing", "'text' in single quotes"),
        ("`a = 1", 1, "the closing ` is missing", "`name` in backticks"),
        ("`` = 1", 1, "the closing ` is missing", "`name` in backticks"),
        ("prix€ = 1", 5, "'€' has no meaning here", SUPPORTED),
        ("été = 1", 1, "a plain name has the letters A to Z", "`name` in backticks"),
        ("and = 1", 1, "a reserved word needs backticks", SUPPORTED),
        ("a. = 1", 4, "expected a column", SUPPORTED),
        ("a = 5L", 5, "a number runs into a word", "without a suffix"),
        ("a = 0x1F", 5, "a number runs into a word", "without a suffix"),
        ("a = " + "9" * 39, 5, "more than 38 digits", "with an exponent"),
        ("a = " + "9" * 9999, 5, "more than 38 digits", "with an exponent"),
        ("a = 1e999", 5, "not a finite double", "largest"),
        (r"a = 'C:\dir'", 8, r"\d is not one of the escapes", r"Write \\ for a backslash"),
        (r"a = '\ud83d\ude00'", 5, "half a surrogate pair", "the character itself"),
        (r"a LIKE 'C:\\dir'", 8, "a backslash stands before", "Double the backslash"),
        ("a LIKE b", 8, "a pattern in single quotes", SUPPORTED),
        ("a IN ()", 7, "expected a literal", SUPPORTED),
        ("a IN (b)", 7, "expected a literal, found b", SUPPORTED),
        ("a IN (1 2)", 9, "expected , or )", SUPPORTED),
        ("1 IN (1)", 1, "only a column can be tested", SUPPORTED),
        ("a IS TRUE", 6, "expected NULL", SUPPORTED),
        ("a NOT = 1", 7, "expected IN, BETWEEN or LIKE", SUPPORTED),
        ("a BETWEEN 1 OR 2", 13, "expected AND", SUPPORTED),
        ("a = DATE '2026-02-30'", 5, "not a date", "DATE 'YYYY-MM-DD'"),
        ("a = DATE '2026-1-5'", 5, "not a date", "DATE 'YYYY-MM-DD'"),
        ("a = TIMESTAMP '2026-01-05 24:00:00'", 5, "not such a timestamp", "TIMESTAMP 'YYYY"),
        ("a = TIMESTAMP '2026-01-05 10:00:00.1234567'", 5, "not such a timestamp", "TIMESTAMP"),
        ("a = TIMESTAMP '2026-01-05 10:00:00+19:00'", 5, "not such a timestamp", "TIMESTAMP"),
        ("a = TIMESTAMP '0001-01-01 00:00:00+01:00'", 5, "years 1 to 9999", "within"),
        ("a = TIMESTAMP_NTZ '2026-01-05 10:00:00Z'", 5, "not such a timestamp", ".ffffff'"),
        ("a = X'F'", 5, "not binary", "two hex digits"),
        ("a = X'0 F'", 5, "not binary", "two hex digits"),
        ("a = 1; DROP TABLE x", 6, "';' has no meaning here", SUPPORTED),
        ("a = 1 -- x", 7, "arithmetic is not supported", "Compare"),
        ("(" * 65 + "a" + ")" * 65, 65, "more than 64 levels deep", "Use IN"),
        ("NOT " * 65 + "a", 257, "more than 64 levels deep", "Use IN"),
    ],
)
def test_a_refusal_says_where_why_and_what_next(
    text: str, position: int, why: str, next_step: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse_predicate(text)
    assert caught.value.what.endswith(f"at character {position}")
    assert why in caught.value.why
    assert next_step in caught.value.next_step


def test_the_caret_stands_under_the_place() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse_predicate("day = '2026-01-01'\n  and " + "a.b = 1 and " * 9 + "c ! 5")
    first, line, caret, where = caught.value.what.split("\n")
    assert first == "cannot read the predicate"
    assert line[caret.index("^")] == "!"
    assert where == "at character 136"
    assert len(line) < 100


@pytest.mark.parametrize("where", [None, 5, b"a = 1", ["a"], object()])
def test_what_is_neither_text_nor_tree_is_refused(where: Any) -> None:
    with pytest.raises(InvalidRequestError, match="is not a predicate"):
        parse_predicate(where)


def test_the_length_of_a_text_is_limited_in_bytes() -> None:
    fits = "a = '" + "x" * (LENGTH_MAX - 6) + "'"
    assert isinstance(parse_predicate(fits), Comparison)
    for text in (fits + " ", "a = '" + "é" * (LENGTH_MAX // 2) + "'"):
        with pytest.raises(InvalidRequestError, match="more than 65536 bytes"):
            parse_predicate(text)


@pytest.mark.parametrize(
    "text",
    ["'" * (LENGTH_MAX - 1), "a = '" + "''" * 30_000, "`" * 65_535, "1" * LENGTH_MAX, "(" * 60_000],
)
def test_hostile_texts_are_refused_fast(text: str) -> None:
    with pytest.raises(InvalidRequestError):
        parse_predicate(text)


def test_a_long_chain_is_not_a_deep_tree() -> None:
    tree = parse_predicate(" OR ".join(f"a = {number}" for number in range(5_000)))
    assert isinstance(tree, Or)
    assert len(tree.operands) == 5_000


@settings(deadline=None, max_examples=120)
@given(predicates)
def test_the_text_of_a_tree_parses_back_to_it(tree: Predicate) -> None:
    assert parse_predicate(to_sql(tree)) == tree


_characters = st.characters(codec="utf-8")
_names = st.text(_characters, min_size=1, max_size=8)
_digits = st.lists(st.integers(0, 9), min_size=1, max_size=28)
_decimals = st.builds(
    lambda negative, digits, exponent: Decimal((negative, tuple(digits), exponent)),
    st.integers(0, 1),
    _digits,
    st.integers(-10, 10),
)
_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(1 - 10**38, 10**38 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    _decimals,
    st.text(_characters, max_size=20),
    st.binary(max_size=8),
    st.dates(),
    st.datetimes(),
    st.datetimes(timezones=st.just(UTC)),
)


@settings(deadline=None, max_examples=120)
@given(st.lists(_names, min_size=1, max_size=3), st.lists(_scalars, min_size=1, max_size=4))
def test_every_name_and_every_literal_parses_back(names: list[str], values: list[Any]) -> None:
    tree = In(Column(tuple(names)), tuple(map(Literal, values)))
    assert parse_predicate(to_sql(tree)) == tree


_fragments = st.sampled_from(
    [
        *("a", "`b c`", "x", "1", "1.5", "1e3", "'x'", r"'\%'", "'2026-01-05'", "TRUE", "NULL"),
        *("AND", "OR", "NOT", "IN", "IS", "LIKE", "BETWEEN", "DATE", "TIMESTAMP", "X"),
        *(".", "(", ")", ",", "=", "<", "<=>", "-", "'", "`", '"', "\\", "+", ";", "\x00", "é"),
    ]
)


@settings(deadline=None, max_examples=120)
@given(st.lists(_fragments, max_size=12).map(" ".join) | st.text(max_size=30))
def test_any_text_is_a_tree_or_a_refusal(text: str) -> None:
    try:
        tree = parse_predicate(text)
    except InvalidRequestError:
        return
    assert parse_predicate(to_sql(tree)) == tree
