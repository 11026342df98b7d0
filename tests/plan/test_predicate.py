from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from pyhudi.errors import InvalidRequestError
from pyhudi.plan.predicate.parser import parse_predicate
from pyhudi.plan.predicate.tree import (
    DEPTH_MAX,
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
    columns_of,
)

A, B = Column(("a",)), Column(("b", "c"))
TREE = And((Comparison(Operator.EQUAL, A, Literal(1)), Or((Not(A), IsNull(B), Like(B, "x%")))))


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, True), (1, 1.0), (1, Decimal(1)), (1.0, Decimal(1)), (0, False), ("a", b"a"), (0, None)],
)
def test_literals_of_different_types_are_different(one: Any, other: Any) -> None:
    assert Literal(one) != Literal(other)
    assert len({Literal(one), Literal(other)}) == 2


def test_an_instant_is_the_same_literal_in_every_zone() -> None:
    east = datetime(2026, 1, 5, 14, tzinfo=timezone(timedelta(hours=2)))
    assert Literal(east) == Literal(datetime(2026, 1, 5, 12, tzinfo=UTC))
    assert Literal(east) != Literal(datetime(2026, 1, 5, 12))


@pytest.mark.parametrize(("text", "op"), [("==", "="), ("!=", "<>"), ("<=>", "<=>")])
def test_an_operator_has_one_spelling_in_the_tree(text: str, op: str) -> None:
    assert Comparison(text, A, Literal(1)) == Comparison(Operator(op), A, Literal(1))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (lambda: Literal(float("nan")), "not a finite double"),
        (lambda: Literal(float("-inf")), "not a finite double"),
        (lambda: Literal(Decimal("NaN")), "not a finite number"),
        (lambda: Literal(Decimal("Infinity")), "not a finite number"),
        (lambda: Literal(10**38), "more than 38 digits"),
        (lambda: Literal(-(10**5000)), "more than 38 digits"),
        (lambda: Literal(Decimal("1E+38")), "more than 38 digits"),
        (lambda: Literal(Decimal("1E-39")), "more than 38 digits"),
        (lambda: Literal("\ud800"), "surrogate"),
        (lambda: Literal(np.float64(1.5)), "no text for its type"),
        (lambda: Literal([1]), "no text for its type"),  # type: ignore[arg-type]
        (
            lambda: Literal(datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))),
            "outside the years 1 to 9999",
        ),
        (lambda: Column("a"), "tuple"),  # type: ignore[arg-type]
        (lambda: Column(()), "tuple"),
        (lambda: Column(("a", "")), "non-empty"),
        (lambda: Comparison("~", A, A), "no such operator"),  # type: ignore[arg-type]
        (lambda: And((A,)), "two at least"),
        (lambda: Or([A, A]), "tuple"),  # type: ignore[arg-type]
        (lambda: In(A, ()), "empty"),
        (lambda: Like(A, "a\\b"), "backslash"),
        (lambda: Like(A, "a\\"), "backslash"),
    ],
)
def test_a_tree_refuses_what_sql_could_not_say(build: Callable[[], Predicate], why: str) -> None:
    with pytest.raises(InvalidRequestError, match=why):
        build()


@pytest.mark.parametrize("value", [10**38 - 1, Decimal("0." + "9" * 38), date(1, 1, 1), b"", -0.0])
def test_the_extremes_of_a_literal_are_accepted(value: Any) -> None:
    assert Literal(value).value == value


def test_a_tree_survives_pickling() -> None:
    assert pickle.loads(pickle.dumps(TREE)) == TREE


def test_the_columns_of_a_tree_are_found_at_every_level() -> None:
    assert columns_of(TREE) == {A, B}
    assert columns_of(Literal(True)) == set()


def nested(levels: int) -> Predicate:
    tree: Predicate = A
    for _ in range(levels - 1):
        tree = Not(tree)
    return tree


def test_a_built_tree_passes_the_parser_unchanged() -> None:
    deepest = nested(DEPTH_MAX)
    assert parse_predicate(TREE) is TREE
    assert parse_predicate(deepest) is deepest


@pytest.mark.parametrize("levels", [DEPTH_MAX + 1, 100_000])
def test_a_tree_too_deep_to_walk_is_refused(levels: int) -> None:
    with pytest.raises(InvalidRequestError, match="more than 64 levels"):
        parse_predicate(nested(levels))
