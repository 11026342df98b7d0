from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

from predicate_cases import SCHEMA, batch_of, expected, predicates, rows
from pyhudi.errors import InvalidRequestError
from pyhudi.plan.predicate.binding import bind
from pyhudi.plan.predicate.parser import parse_predicate
from pyhudi.plan.predicate.tree import And, Column, In, Literal, Or, Predicate

WIDE = pa.schema(
    [
        ("ns", pa.timestamp("ns")),
        ("seconds", pa.timestamp("s", "Europe/Paris")),
        ("money", pa.decimal128(38, 2)),
        ("huge", pa.decimal256(50, 2)),
        ("u8", pa.uint8()),
        ("u64", pa.uint64()),
        ("half", pa.float16()),
        ("coded", pa.dictionary(pa.int32(), pa.string())),
        ("view", pa.string_view()),
        ("fixed", pa.binary(2)),
        ("date64", pa.date64()),
        ("tags", pa.list_(pa.string())),
        ("time", pa.time64("us")),
        ("Mixed", pa.int32()),
        ("mixed", pa.int32()),
        ("a.b", pa.int32()),
        ("a", pa.struct([("b", pa.int32()), ("C", pa.struct([("d", pa.string())]))])),
        ("twice", pa.int32()),
        ("twice", pa.int32()),
    ]
)


@pytest.mark.parametrize(
    ("where", "bound"),
    [
        # An integer column and a number that it cannot hold.
        ("small = 1.0", "`small` = 1"),
        ("small = 1e0", "`small` = 1"),
        ("small = 1.5", "`small` IS NULL AND NULL"),
        ("small <> 1.5", "`small` IS NOT NULL OR NULL"),
        ("small <=> 1.5", "FALSE"),
        ("small < 1.5", "`small` <= 1"),
        ("small <= 1.5", "`small` <= 1"),
        ("small > 1.5", "`small` > 1"),
        ("small >= 1.5", "`small` > 1"),
        ("small < -1.5", "`small` <= -2"),
        ("small < 127.5", "`small` <= 127"),
        ("small < 128", "`small` IS NOT NULL OR NULL"),
        ("small > 1e30", "`small` IS NULL AND NULL"),
        ("small > -128.5", "`small` IS NOT NULL OR NULL"),
        ("small >= -1000", "`small` IS NOT NULL OR NULL"),
        ("small <= -1000", "`small` IS NULL AND NULL"),
        ("big = 1E18", "`big` = 1000000000000000000"),
        ("big < 9007199254740993.5", "`big` <= 9007199254740993"),
        ("nested.inner = 2147483648", "`nested`.`inner` IS NULL AND NULL"),
        # A decimal column keeps its scale.
        ("price = 1", "`price` = 1.00"),
        ("price = 1.1e0", "`price` = 1.10"),
        ("price = 1.255", "`price` IS NULL AND NULL"),
        ("price < 1.255", "`price` <= 1.25"),
        ("price < 1000", "`price` IS NOT NULL OR NULL"),
        ("price <= -0.005", "`price` <= -0.01"),
        # A double column takes the nearest double.
        ("double = 0.1", "`double` = 0.1E0"),
        ("double = 9007199254740993", "`double` = 9007199254740992.0E0"),
        ("single = 0.1", "`single` = 0.1E0"),
        # Times.
        ("day = '2026-01-05'", "`day` = DATE '2026-01-05'"),
        ("day < TIMESTAMP '2026-01-05 12:00:00'", "`day` <= DATE '2026-01-05'"),
        ("day >= TIMESTAMP '2026-01-05'", "`day` >= DATE '2026-01-05'"),
        ("at > '2026-01-05'", "`at` > TIMESTAMP '2026-01-05 00:00:00.000000Z'"),
        ("at > DATE '2026-01-05'", "`at` > TIMESTAMP '2026-01-05 00:00:00.000000Z'"),
        ("at = '2026-01-05T10:00+02:00'", "`at` = TIMESTAMP '2026-01-05 08:00:00.000000Z'"),
        (
            "at = TIMESTAMP_NTZ '2026-01-05 10:00:00'",
            "`at` = TIMESTAMP '2026-01-05 10:00:00.000000Z'",
        ),
        (
            "local = TIMESTAMP '2026-01-05 10:00:00+02:00'",
            "`local` = TIMESTAMP_NTZ '2026-01-05 08:00:00.000000'",
        ),
        (
            "local < '2026-01-05 00:00:00.0005'",
            "`local` <= TIMESTAMP_NTZ '2026-01-05 00:00:00.000000'",
        ),
        ("local = '2026-01-05 00:00:00.0005'", "`local` IS NULL AND NULL"),
        # Texts, binary and booleans are taken as they are.
        ("name < 'b'", "`name` < 'b'"),
        ("raw >= X'FF'", "`raw` >= X'FF'"),
        ("flag", "`flag`"),
        ("flag <> TRUE", "`flag` <> TRUE"),
        ("double < other", "`double` < `other`"),
    ],
)
def test_a_literal_takes_the_type_of_its_column_exactly(where: str, bound: str) -> None:
    assert bind(where, SCHEMA).to_sql() == bound


@pytest.mark.parametrize(
    ("where", "bound"),
    [
        ("ns < '9999-01-01'", "`ns` IS NOT NULL OR NULL"),
        ("ns > '2026-01-05'", "`ns` > TIMESTAMP_NTZ '2026-01-05 00:00:00.000000'"),
        (
            "seconds > '2026-01-05 00:00:00.5'",
            "`seconds` > TIMESTAMP '2026-01-05 00:00:00.000000Z'",
        ),
        ("money < " + "9" * 38, "`money` IS NOT NULL OR NULL"),
        ("money = " + "9" * 36 + ".99", "`money` = " + "9" * 36 + ".99"),
        ("u8 > -1", "`u8` IS NOT NULL OR NULL"),
        ("u64 = 18446744073709551615", "`u64` = 18446744073709551615"),
        ("date64 = '2026-01-05'", "`date64` = DATE '2026-01-05'"),
        ("huge IS NULL AND tags IS NOT NULL", "`huge` IS NULL AND `tags` IS NOT NULL"),
        ("time is null", "`time` IS NULL"),
    ],
)
def test_the_less_usual_types_are_bound_too(where: str, bound: str) -> None:
    assert bind(where, WIDE).to_sql() == bound


@pytest.mark.parametrize(
    ("where", "bound"),
    [
        ("1 < big", "`big` > 1"),
        ("1 >= big", "`big` <= 1"),
        ("1 <=> big", "`big` <=> 1"),
        ("NOT big < 1", "`big` >= 1"),
        ("NOT (big < 1 AND flag)", "`big` >= 1 OR NOT `flag`"),
        ("NOT (big = 1 OR big IS NULL)", "`big` <> 1 AND `big` IS NOT NULL"),
        ("NOT NOT name LIKE 'a'", "`name` LIKE 'a'"),
        ("NOT big <=> 1", "NOT (`big` <=> 1)"),
        ("NOT big IN (2, 1)", "`big` NOT IN (1, 2)"),
        ("NOT NULL", "NULL AND TRUE"),
        ("big = NULL", "NULL AND TRUE"),
        ("big <=> NULL", "`big` IS NULL"),
        ("NOT big <=> NULL", "`big` IS NOT NULL"),
        ("big IN (3, 1, 3, 1.0, 2.5)", "`big` IN (1, 3)"),
        ("big IN (1, NULL)", "`big` IN (1) OR NULL"),
        ("big NOT IN (1, NULL)", "`big` NOT IN (1) AND NULL"),
        ("big IN (1.5)", "`big` IS NULL AND NULL"),
        ("big IN (NULL)", "(`big` IS NULL AND NULL) OR NULL"),
        ("flag AND (big = 1 AND TRUE)", "`flag` AND `big` = 1"),
        ("flag AND FALSE", "FALSE"),
        ("flag OR NOT FALSE", "TRUE"),
        ("flag OR flag", "`flag`"),
        ("TRUE AND TRUE", "TRUE"),
        ("flag AND NULL", "`flag` AND NULL"),
    ],
)
def test_a_bound_predicate_is_in_normal_form(where: str, bound: str) -> None:
    assert bind(where, SCHEMA).to_sql() == bound


@pytest.mark.parametrize(
    ("where", "column"),
    [
        ("BIG = 1", "`big`"),
        ("Nested.INNER = 1", "`nested`.`inner`"),
    ],
)
def test_a_column_is_found_in_any_case(where: str, column: str) -> None:
    assert bind(where, SCHEMA).to_sql() == f"{column} = 1"


@pytest.mark.parametrize(
    ("where", "column"),
    [
        ("Mixed = 1", "`Mixed`"),
        ("mixed = 1", "`mixed`"),
        ("`a.b` = 1", "`a.b`"),
        ("a.b = 1", "`a`.`b`"),
        ("A.c.D = '1'", "`a`.`C`.`d`"),
    ],
)
def test_the_exact_spelling_comes_first(where: str, column: str) -> None:
    assert bind(where, WIDE).to_sql().startswith(f"{column} = ")


@pytest.mark.parametrize(
    ("where", "what", "why", "next_step"),
    [
        ("dai = '2026-01-05'", "no column 'dai'", "no such name", "Did you mean 'day'?"),
        ("nested.iner = 1", "no column 'nested.iner'", "nested has no such", "'inner'"),
        ("name.x = 1", "no column 'name.x'", "'name' is not a struct", "backticks"),
        ("zzzzzz = 1", "no column 'zzzzzz'", "among 14", "'flag', 'small', 'big'"),
        ("name = 5", "compared with 5", "type string", "in single quotes"),
        ("name IN ('a', 5)", "compared with 5", "type string", "in single quotes"),
        ("big = '5'", "compared with '5'", "type int64", "without quotes"),
        ("big = TRUE", "compared with TRUE", "type int64", "without quotes"),
        ("price = 'x'", "compared with 'x'", "decimal128(5, 2)", "without quotes"),
        ("double = '1'", "compared with '1'", "type double", "without quotes"),
        ("flag = 1", "compared with 1", "type bool", "TRUE or FALSE"),
        ("raw = 'x'", "compared with 'x'", "type binary", "X'00FF'"),
        ("day = 20260105", "compared with 20260105", "date32", "DATE 'YYYY-MM-DD'"),
        ("day = '2026-13-01'", "compared with '2026-13-01'", "date32", "DATE 'YYYY-MM-DD'"),
        ("day = '2026-01-05 10:00:00'", "compared with", "date32", "DATE 'YYYY-MM-DD'"),
        ("at = 'yesterday'", "compared with 'yesterday'", "timestamp[us, tz=UTC]", "TIMESTAMP '"),
        ("at = 5", "compared with 5", "timestamp[us, tz=UTC]", "TIMESTAMP '"),
        ("at = '0001-01-01 00:00:00+01:00'", "literal", "years 1 to 9999", "within"),
        ("nested = 1", "'nested' cannot be compared", "tested for null", "field of the struct"),
        ("nested = NULL", "'nested' cannot be compared", "tested for null", "IS NULL"),
        ("big = double", "'big' and 'double'", "int64 and double", "same type"),
        ("at = local", "'at' and 'local'", "timestamp[us, tz=UTC]", "same type"),
        ("big", "'big' cannot be used", "not a condition by itself", "Compare"),
        ("NOT name", "'name' cannot be used", "not a condition by itself", "Compare"),
        ("big LIKE '1%'", "'big' cannot be used", "LIKE needs text", "Compare"),
        ("1 = 1", "1 = 1 compares no column", "must be a column", "TRUE"),
        ("5", "5 is not a condition", "neither true nor false", "Compare"),
        ("flag AND 'x'", "'x' is not a condition", "neither true nor false", "Compare"),
    ],
)
def test_what_does_not_fit_the_schema_is_refused(
    where: str, what: str, why: str, next_step: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        bind(where, SCHEMA)
    assert what in caught.value.what
    assert why in caught.value.why
    assert next_step in caught.value.next_step


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("MIXED = 1", "'Mixed', 'mixed'"),
        ("twice = 1", "'twice', 'twice'"),
        ("huge = 1", "decimal256"),
        ("tags = 'x'", "list<"),
        ("time = 1", "time64"),
    ],
)
def test_what_the_schema_leaves_open_is_refused(where: str, why: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        bind(where, WIDE)
    assert why in caught.value.why


def test_the_columns_are_the_top_level_ones_that_are_read() -> None:
    assert bind("nested.inner = 1 AND (Day IS NULL OR flag)", SCHEMA).columns == {
        *("nested", "day", "flag"),
    }
    assert bind("big = 1 OR TRUE", SCHEMA).columns == set()


def test_a_bound_predicate_survives_pickling() -> None:
    bound = bind("nested.inner = 1 AND at > '2026-01-05'", SCHEMA)
    assert pickle.loads(pickle.dumps(bound)) == bound


@pytest.mark.parametrize(
    ("where", "restricted"),
    [
        ("day = '2026-01-05' AND big > 1", "`day` = DATE '2026-01-05'"),
        ("day = '2026-01-05' OR big > 1", None),
        ("(flag AND big > 1) OR (NOT flag AND big < 1)", "`flag` OR NOT `flag`"),
        ("NOT (day = '2026-01-05' OR big > 1)", "`day` <> DATE '2026-01-05'"),
        ("big > 1", None),
        ("big = 1 AND NULL", "NULL AND TRUE"),
        ("FALSE", "FALSE"),
        ("nested.inner > 1 AND flag", "`flag`"),
    ],
)
def test_a_restriction_keeps_what_follows_for_its_columns(
    where: str, restricted: str | None
) -> None:
    kept = bind(where, SCHEMA).restricted_to(["day", "flag"])
    assert (kept and kept.to_sql()) == restricted


@settings(deadline=None, max_examples=100)
@given(predicates, rows)
def test_what_follows_from_a_predicate_holds_where_it_holds(
    predicate: Predicate, some: list[dict[str, Any]]
) -> None:
    bound = bind(predicate, SCHEMA)
    batch = batch_of(some)
    kept = bound.restricted_to(["big", "name", "flag", "nested"])
    consequence = kept.mask(batch).to_pylist() if kept else [True] * len(some)
    for index, row in enumerate(some):
        if expected(predicate, row) is True:
            assert consequence[index] is True


@settings(deadline=None, max_examples=100)
@given(predicates)
def test_the_text_of_a_bound_predicate_binds_to_the_same(predicate: Predicate) -> None:
    bound = bind(predicate, SCHEMA)
    assert bind(bound.to_sql(), SCHEMA) == bound


def test_a_list_of_literals_may_be_long() -> None:
    numbers = tuple(map(Literal, range(50_000)))
    bound = bind(In(Column(("big",)), numbers), SCHEMA)
    assert bound.predicate == In(Column(("big",)), numbers)


def test_binding_takes_a_tree_as_well_as_text() -> None:
    tree = parse_predicate("flag AND big = 1 OR name = 'a'")
    assert isinstance(tree, Or)
    assert isinstance(tree.operands[0], And)
    assert bind(tree, SCHEMA) == bind("flag AND big = 1 OR name = 'a'", SCHEMA)
