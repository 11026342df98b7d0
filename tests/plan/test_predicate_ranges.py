from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from io import BytesIO
from math import isnan
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predicate_cases import SCHEMA, batch_of, expected, predicates, rows
from pyhudi.plan.predicate.binding import ColumnRange, bind
from pyhudi.plan.predicate.tree import Column, Like, Predicate

NAN = float("nan")
ALL_NULL = ColumnRange(null_count=4, row_count=4)
NO_NULL = ColumnRange(null_count=0, row_count=4)


def between(low: Any, high: Any, nulls: int | None = 0) -> ColumnRange:
    return ColumnRange(low, high, nulls, 4)


@pytest.mark.parametrize(
    ("where", "known", "answer"),
    [
        ("big = 5", between(1, 4), False),
        ("big = 5", between(1, 5), True),
        ("big <> 5", between(5, 5), False),
        ("big <> 5", between(5, 6), True),
        ("big < 1", between(1, 4), False),
        ("big <= 1", between(1, 4), True),
        ("big > 4", between(1, 4), False),
        ("big >= 4", between(1, 4), True),
        ("NOT big >= 1", between(1, 4), False),
        ("big > 4", ColumnRange(min=1), True),
        ("big > 4", ColumnRange(max=4), False),
        ("big = 5", ColumnRange(), True),
        ("big = 5", ALL_NULL, False),
        ("big = 5 OR big IS NULL", ALL_NULL, True),
        ("big <=> 5", ALL_NULL, False),
        ("NOT big <=> 5", ALL_NULL, True),
        ("NOT big <=> 5", between(5, 5), False),
        ("NOT big <=> 5", between(5, 5, nulls=1), True),
        ("big <=> NULL", NO_NULL, False),
        ("big IS NULL", NO_NULL, False),
        ("big IS NULL", ColumnRange(null_count=1), True),
        ("big IS NOT NULL", ALL_NULL, False),
        ("big IS NOT NULL", ColumnRange(null_count=4), True),
        ("big IN (1, 9)", between(2, 8), False),
        ("big IN (1, 5, 9)", between(2, 8), True),
        ("big IN (1, 9)", ColumnRange(min=9), True),
        ("big IN (1, 9)", ColumnRange(min=10), False),
        ("big NOT IN (1, 9)", between(9, 9), False),
        ("big NOT IN (1, 9)", between(8, 9), True),
        ("big NOT IN (1, 9)", ALL_NULL, False),
        ("big = 5 AND big IS NULL", between(1, 4, nulls=2), False),
        ("big = 5 OR FALSE", between(1, 4), False),
        ("NULL", ColumnRange(), False),
        ("big = 1.5", ColumnRange(), False),
        ("big < 1e30", ALL_NULL, False),
        ("nested IS NULL", between(1, 4), False),
        ("big = 5", between(4, 1), True),  # nonsense says nothing
        ("big = 5", between("1", "4"), True),
        ("big = 5", between(True, True), True),
        ("name = 'b'", between("a", "az"), False),
        ("name = 'b'", between(1, 2), True),
        ("name > '\U0001f600'", between("a", "\uffff"), False),
        ("name LIKE 'b%'", between("a", "az"), False),
        ("name LIKE 'b%'", between("a", "b"), True),
        ("name LIKE 'b%'", between("bx", "c"), True),
        ("name LIKE 'b%'", between("c", "d"), False),
        ("name LIKE 'b\\%c'", between("b%", "b&"), True),
        ("name LIKE 'b\\%c'", between("ba", "bz"), False),
        ("name LIKE '%b'", between("c", "d"), True),
        ("name NOT LIKE 'b%'", between("b", "b"), True),
        ("name LIKE '%'", ALL_NULL, False),
        ("raw = X'80'", between(b"\x00", b"\x7f"), False),
        ("flag", between(False, False), False),
        ("NOT flag", between(False, False), True),
        ("NOT flag", between(True, True), False),
        ("flag = TRUE", between(False, True), True),
        ("price = 1.5", between(Decimal("1.51"), Decimal("2")), False),
        ("price = 1.5", between(1, 2), True),
        ("price = 1.5", between(Decimal("NaN"), Decimal("2")), True),
        ("day = '2026-01-05'", between(date(2026, 1, 6), date(2026, 1, 7)), False),
        ("day = '2026-01-05'", between(datetime(2026, 1, 6), datetime(2026, 1, 7)), True),
        (
            "at < '2026-01-05T00:00Z'",
            between(datetime(2026, 1, 5, 1, tzinfo=timezone(timedelta(hours=1))), None),
            False,
        ),
        ("at < '2026-01-05'", between(datetime(2026, 1, 5), None), False),
        ("local < '2026-01-05'", between(datetime(2026, 1, 5, tzinfo=UTC), None), False),
        # NaN is in no range, and larger than all numbers.
        ("double > 5", between(1.0, 2.0), True),
        ("double = 5", between(1.0, 2.0), False),
        ("double < 1", between(1.0, 2.0), False),
        ("double <= 5", between(6.0, 7.0), False),
        ("NOT double <= 5", between(1.0, 2.0), True),
        ("double <> 1", between(1.0, 1.0), True),
        ("double NOT IN (1)", between(1.0, 1.0), True),
        ("double < 1", between(NAN, NAN), True),
        ("double = 0", between(-0.0, -0.0), True),
        ("double = 1", between(2, 3), True),
        ("single = 1", between(2.0, 3.0), False),
    ],
)
def test_ranges_rule_out_what_they_can(where: str, known: ColumnRange, answer: bool) -> None:
    bound = bind(where, SCHEMA)
    assert bound.may_match(dict.fromkeys(SCHEMA.names, known)) == answer


@pytest.mark.parametrize(
    ("where", "answer"),
    [
        ("name < label", False),
        ("name = label", True),
        ("name > label", True),
        ("NOT name >= label", False),
        ("double < other", True),  # other may be NaN
        ("double <= other", True),
        ("double > other", True),
        ("double <=> other", True),
    ],
)
def test_two_columns_are_compared_by_their_ranges(where: str, answer: bool) -> None:
    stats = {
        "name": between("b", "c"),
        "label": between("a", "b"),
        "double": between(2.0, 3.0),
        "other": between(1.0, 2.0),
    }
    assert bind(where, SCHEMA).may_match(stats) == answer


@pytest.mark.parametrize(
    ("where", "answer"),
    [("day = '2026-01-05' AND big = 1", True), ("day > '2026-01-05' AND big = 1", False)],
)
def test_a_column_without_a_range_can_be_anything(where: str, answer: bool) -> None:
    stats = {"day": ColumnRange(date(2026, 1, 5), date(2026, 1, 5), 0)}
    assert bind(where, SCHEMA).may_match(stats) == answer


def test_a_null_partition_matches_is_null_alone() -> None:
    stats = {"day": ColumnRange(null_count=1, row_count=1)}
    assert bind("day IS NULL", SCHEMA).may_match(stats)
    assert not bind("day IS NOT NULL", SCHEMA).may_match(stats)
    assert not bind("day <> '2026-01-05'", SCHEMA).may_match(stats)


def test_a_field_is_known_by_its_path() -> None:
    bound = bind("nested.inner = 5", SCHEMA)
    assert not bound.may_match({"nested.inner": between(1, 4)})
    assert bound.may_match({"inner": between(1, 4), "nested": between(1, 4)})


@pytest.mark.parametrize("where", ["a.b = 5", "`a.b` = 5"])
def test_a_path_with_two_meanings_rules_out_nothing(where: str) -> None:
    schema = pa.schema([("a.b", pa.int32()), ("a", pa.struct([("b", pa.int32())]))])
    assert bind(where, schema).may_match({"a.b": between(1, 4)})


def range_of(values: list[Any]) -> ColumnRange:
    """The statistics a parquet writer gives: without NaN."""
    known = [value for value in values if value is not None]
    bounded = [value for value in known if not (isinstance(value, float) and isnan(value))]
    low, high = (min(bounded), max(bounded)) if bounded else (None, None)
    return ColumnRange(low, high, len(values) - len(known), len(values))


def statistics_of(some: list[dict[str, Any]]) -> dict[str, ColumnRange]:
    flat = {name: [row[name] for row in some] for name in SCHEMA.names if name != "nested"}
    flat["nested.inner"] = [row["nested"] and row["nested"]["inner"] for row in some]
    return {path: range_of(values) for path, values in flat.items()}


_forgotten = st.sets(st.sampled_from(["min", "max", "null_count", "row_count"]))


@settings(deadline=None, max_examples=100)
@given(predicates, rows, _forgotten, st.sets(st.sampled_from(SCHEMA.names), max_size=3))
def test_no_matching_row_is_ever_ruled_out(
    predicate: Predicate, some: list[dict[str, Any]], forgotten: set[str], absent: set[str]
) -> None:
    stats = {
        path: replace(known, **dict.fromkeys(forgotten))
        for path, known in statistics_of(some).items()
        if path not in absent
    }
    bound = bind(predicate, SCHEMA)
    mask = bound.mask(batch_of(some))
    assert bound.may_match(stats) or mask.true_count == 0


def _is_exact(predicate: Predicate) -> bool:
    """True if a single value decides it: no range shows NaN or more than a text's beginning."""
    text = repr(predicate)
    return not any(word in text for word in ("Like", "single", "double", "other", "('nested',)"))


@settings(deadline=None, max_examples=60)
@given(predicates.filter(_is_exact), rows)
def test_a_partition_is_ruled_out_exactly(predicate: Predicate, some: list[dict[str, Any]]) -> None:
    stats = statistics_of(some[:1])
    answer = expected(predicate, some[0])
    assert bind(predicate, SCHEMA).may_match(stats) == (answer is True)


@settings(deadline=None, max_examples=30)
@given(predicates, rows)
def test_parquet_statistics_serve_as_they_are(
    predicate: Predicate, some: list[dict[str, Any]]
) -> None:
    file = BytesIO()
    pq.write_table(pa.Table.from_batches([batch_of(some)]), file)
    group = pq.read_metadata(file).row_group(0)
    stats: dict[str, ColumnRange] = {}
    for index in range(group.num_columns):
        chunk = group.column(index)
        found = chunk.statistics
        if found is not None:
            low, high = (found.min, found.max) if found.has_min_max else (None, None)
            stats[chunk.path_in_schema] = ColumnRange(low, high, found.null_count, group.num_rows)
    bound = bind(predicate, SCHEMA)
    assert stats
    assert bound.may_match(stats) or bound.mask(batch_of(some)).true_count == 0


def test_like_is_ruled_out_by_the_beginning_of_its_pattern() -> None:
    column = Column(("name",))
    known = {"name": between("2026-01-05", "2026-02-01")}
    answers = {
        pattern: bind(Like(column, pattern), SCHEMA).may_match(known)
        for pattern in ("2026-01-%", "2026-02-%", "2026-03-%", "2025%", "2026-01-04", "2026-01-05")
    }
    assert [pattern for pattern, answer in answers.items() if answer] == [
        *("2026-01-%", "2026-02-%", "2026-01-05"),
    ]
