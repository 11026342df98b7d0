"""Expressions of pyarrow and Polars as predicates: they keep the rows that their library keeps."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.errors import InvalidRequestError
from pyhudi.plan.predicate.binding import bind
from pyhudi.plan.predicate.from_polars import translated_conjuncts
from pyhudi.plan.predicate.parser import parse_predicate
from pyhudi.plan.predicate.tree import And, Column, Comparison, IsNull, Literal, Operator, Or

field, col = pc.field, pl.col
UTC = dt.UTC
NOON = dt.datetime(2026, 1, 2, 12, 0, 0, 1)

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("i", pa.int32()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("l", pa.timestamp("us")),
        ("m", pa.decimal128(10, 2)),
        ("x", pa.binary()),
        ("r", pa.struct([("n", pa.int64()), ("s", pa.string())])),
    ]
)
TEXTS = ["", "a", "A", "ab", "a%", "%", "_", "a_b", "\\", 'q"', "é", "a\nb", "it's"]
DAYS = [dt.date(2026, 1, 1), dt.date(2026, 1, 2), dt.date(1969, 12, 31)]
MOMENTS = [NOON, NOON.replace(microsecond=0), dt.datetime(1969, 12, 31, 23, 59, 59)]
VALUES: dict[str, list[Any]] = {
    "n": [-1, 0, 1, 2, 2**62],
    "i": [-1, 0, 1, 2],
    "f": [-1.5, -0.0, 0.0, 1.0, 2.5, 1e300],
    "s": TEXTS,
    "b": [True, False],
    "d": DAYS,
    "t": [moment.replace(tzinfo=UTC) for moment in MOMENTS],
    "l": MOMENTS,
    "m": [decimal.Decimal("1.50"), decimal.Decimal("-2.00"), decimal.Decimal("0.01")],
    "x": [b"", b"a", b"\x00\xff"],
}
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


def tables() -> st.SearchStrategy[pa.Table]:
    columns = {name: st.none() | st.sampled_from(VALUES[name]) for name in VALUES}
    part = st.fixed_dictionaries({"n": columns["n"], "s": columns["s"]})
    row = st.fixed_dictionaries({**columns, "r": st.none() | part})
    return st.lists(row, max_size=20).map(lambda rows: pa.Table.from_pylist(rows, SCHEMA))


#: A condition as both libraries write it.
Pair = tuple[pc.Expression, pl.Expr]


@st.composite
def simple_conditions(draw: st.DrawFn) -> Pair:
    name = draw(st.sampled_from(sorted(VALUES)))
    value = draw(st.sampled_from(VALUES[name]))
    compare = OPERATORS[draw(st.sampled_from(sorted(OPERATORS)))]
    text = draw(st.sampled_from(TEXTS))
    # Lists of no values have no type of their own.
    of = [value for value in VALUES[name] if not (isinstance(value, float) and value == 0)]
    some = draw(st.lists(st.none() | st.sampled_from(of), max_size=3))
    some_of = pa.array(some, SCHEMA.field(name).type)
    held = draw(st.booleans())
    numbers = draw(st.lists(st.sampled_from(VALUES["n"]), min_size=2, max_size=2))
    kinds: dict[str, Callable[[], Pair]] = {
        "compared": lambda: (compare(field(name), pa.scalar(value)), compare(col(name), value)),
        "mirrored": lambda: (compare(pc.scalar(3), field("n")), compare(pl.lit(3), col("n"))),
        "columns": lambda: (compare(field("t"), field("t")), compare(col("t"), col("t"))),
        "nested": lambda: (
            compare(field("r", "n"), 1),
            compare(col("r").struct.field("n"), 1),
        ),
        "null": lambda: (field(name).is_null(), col(name).is_null()),
        "no null": lambda: (field(name).is_valid(), col(name).is_not_null()),
        "in": lambda: (
            field(name).isin(some_of),
            col(name).is_in(pl.Series(some_of), nulls_equal=True),
        ),
        "flag": lambda: (field("b"), col("b")),
        "starts": lambda: (pc.starts_with(field("s"), text), col("s").str.starts_with(text)),
        "ends": lambda: (pc.ends_with(field("s"), text), col("s").str.ends_with(text)),
        "always": lambda: (pc.scalar(held), pl.lit(held)),
        "between": lambda: (
            (field("n") >= numbers[0]) & (field("n") < numbers[1]),
            col("n").is_between(numbers[0], numbers[1], closed="left"),
        ),
    }
    return kinds[draw(st.sampled_from(sorted(kinds)))]()


def combined(conditions: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    two = st.tuples(conditions, conditions)
    return st.one_of(
        two.map(lambda p: (p[0][0] & p[1][0], p[0][1] & p[1][1])),
        two.map(lambda p: (p[0][0] | p[1][0], p[0][1] | p[1][1])),
        conditions.map(lambda p: (~p[0], ~p[1])),
    )


CONDITIONS = st.recursive(simple_conditions(), combined, max_leaves=6)


def kept(where: Any, rows: pa.Table) -> list[Any]:
    bound = bind(where, rows.schema)
    batches = (batch.filter(bound.mask(batch)) for batch in rows.to_batches())
    found: list[Any] = pa.Table.from_batches(batches, rows.schema).to_pylist()
    return found


@settings(max_examples=300, deadline=None)
@given(tables(), CONDITIONS)
def test_an_expression_keeps_the_rows_that_its_own_library_keeps(
    rows: pa.Table, condition: Pair
) -> None:
    arrow, polars = condition
    assert kept(arrow, rows) == rows.filter(arrow).to_pylist()
    expected = pl.DataFrame(rows.append_column("at", pa.array(range(len(rows)), pa.int64())))
    at = expected.filter(polars)["at"].to_list()
    assert kept(polars, rows) == rows.take(pa.array(at, pa.int64())).to_pylist()


def test_null_safe_comparisons_of_polars_are_translated() -> None:
    rows = pa.table({"n": [1, 2, None]})
    assert kept(col("n").eq_missing(1), rows) == [{"n": 1}]
    assert kept(col("n").ne_missing(1), rows) == [{"n": 2}, {"n": None}]
    assert kept(col("n").eq_missing(None), rows) == [{"n": None}]


@pytest.mark.parametrize("values", [[1, None], [1], [None], []], ids=str)
@pytest.mark.parametrize("nulls_equal", [True, False])
@pytest.mark.parametrize("negated", [True, False])
def test_nulls_of_is_in_count_as_in_polars(
    values: list[int | None], nulls_equal: bool, negated: bool
) -> None:
    rows = pa.table({"n": [1, 2, None]})
    found = col("n").is_in(pl.Series(values, dtype=pl.Int64), nulls_equal=nulls_equal)
    found = ~found if negated else found
    assert kept(found, rows) == pl.DataFrame(rows).filter(found).to_dicts()


@pytest.mark.parametrize("values", [[1, None], [1], [None], []], ids=str)
@pytest.mark.parametrize("skip_nulls", [True, False])
@pytest.mark.parametrize("negated", [True, False])
def test_nulls_of_is_in_count_as_in_pyarrow(
    values: list[int | None], skip_nulls: bool, negated: bool
) -> None:
    rows = pa.table({"n": [1, 2, None]})
    value_set = pa.array(values, pa.int64())
    found = pc.is_in(field("n"), value_set=value_set, skip_nulls=skip_nulls)
    found = ~found if negated else found
    assert kept(found, rows) == rows.filter(found).to_pylist()


ODD_NAMES = ["a b", "a.b", "call", 'q"', "é", "_", "end\n"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_column_may_have_any_name(name: str) -> None:
    expected = Comparison(Operator.EQUAL, Column((name,)), Literal(name))
    assert parse_predicate(field(name) == name) == expected
    assert parse_predicate(col(name) == name) == expected


def test_a_long_chain_is_flat() -> None:
    for one in (field("n"), col("n")):
        chain = one == 0
        for number in range(1, 200):
            chain = chain | (one == number)
        found = parse_predicate(chain)
        assert isinstance(found, Or)
        assert len(found.operands) == 200


REFUSED_BY_ARROW = {
    "arithmetic": (field("n") + 1 > 2, "add"),
    "a cast": (field("n").cast(pa.int32()) > 1, "cast"),
    "NaN as null": (field("f").is_null(nan_is_null=True), "is_null"),
    "another case": (pc.starts_with(field("s"), "a", ignore_case=True), "starts_with"),
    "a regular expression": (pc.match_substring_regex(field("s"), "a.*"), "match_substring_regex"),
    "AND that is unknown with a null": (pc.and_(field("b"), field("b")), "'and'|'and_'"),
    "a condition compared": ((field("n") > 1) == field("b"), "equal"),
    "a null test of a condition": ((field("n") > 1).is_null(), "is_null"),
    "a column by number": (field(0) > 1, "spell it out"),
    "NaN": (field("f") == float("nan"), "finite"),
    "zeros of two signs": (field("f").isin([1.5, 0.0]), "separates 0.0 from -0.0"),
    "a duration": (field("t") == pa.scalar(dt.timedelta(1)), "literal"),
    "parts of a microsecond": (field("l") == pa.scalar(1, pa.timestamp("ns")), "microsecond"),
}
REFUSED_BY_POLARS = {
    "arithmetic": (col("n") + 1 > 2, "BinaryExpr"),
    "a cast": (col("n").cast(pl.Int32) > 1, "Cast"),
    "exclusive or": (col("b") ^ col("b"), "Xor"),
    "an alias": ((col("n") > 1).alias("x"), "Alias"),
    "several columns": (pl.all() > 1, "Selector"),
    "an aggregate": (col("n") > col("n").max(), "Agg"),
    "a pattern": (col("s").str.contains("a.*"), "Contains"),
    "a null test of a condition": ((col("n") > 1).is_null(), "BinaryExpr"),
    "NaN": (col("f") == float("nan"), "Literal"),
    "a list of columns": (col("n").is_in(col("n").implode()), "list of values"),
    "a duration": (col("t") == dt.timedelta(1), "Duration"),
    "a function of Python": (col("n").map_elements(bool, return_dtype=pl.Boolean), "polars|Polars"),
    "a single float": (col("f") == pl.lit(1.5, pl.Float32), "Float32|Cast"),
}


@pytest.mark.parametrize(
    ("expression", "why"),
    [*REFUSED_BY_ARROW.values(), *REFUSED_BY_POLARS.values()],
    ids=[*REFUSED_BY_ARROW, *REFUSED_BY_POLARS],
)
def test_what_cannot_be_translated_is_refused_by_name(expression: Any, why: str) -> None:
    with pytest.raises(InvalidRequestError, match=why):
        bind(expression, SCHEMA)


def test_of_a_conjunction_that_part_is_translated_that_can_be() -> None:
    found = list(translated_conjuncts((col("n") > 1) & (col("i") + 1 > 2) & col("s").is_null()))
    assert found == [
        Comparison(Operator.GREATER, Column(("n",)), Literal(1)),
        IsNull(Column(("s",))),
    ]
    assert isinstance(parse_predicate((col("n") > 1) & col("b") & col("s").is_null()), And)
