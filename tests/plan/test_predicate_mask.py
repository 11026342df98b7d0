from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predicate_cases import SCHEMA, batch_of, expected, predicates, rows
from pyhudi.plan.predicate.binding import bind
from pyhudi.plan.predicate.tree import Column, Like, Predicate

NAN, INF = float("nan"), float("inf")


@settings(deadline=None, max_examples=120)
@given(predicates, rows)
def test_a_mask_says_of_each_row_what_sql_says(
    predicate: Predicate, some: list[dict[str, Any]]
) -> None:
    mask = bind(predicate, SCHEMA).mask(batch_of(some))
    assert mask.type == pa.bool_()
    assert mask.to_pylist() == [expected(predicate, row) for row in some]


def kept(where: str, kind: pa.DataType, values: list[Any]) -> list[Any]:
    """The values of a column `v` that a filter keeps, without a round trip through Arrow."""
    batch = pa.record_batch({"i": list(range(len(values))), "v": pa.array(values, kind)})
    mask = bind(where, batch.schema).mask(batch)
    return [values[index] for index in batch.column("i").filter(mask).to_pylist()]


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ("v = w", 2),  # NaN with NaN, and 1 with 1
        ("v <> w", 4),
        ("v < w", 2),  # 1 and the infinity with NaN
        ("v <= w", 4),
        ("v > w", 2),
        ("v >= w", 4),
        ("v <=> w", 3),  # null with null, too
        ("v > 1e308", 5),
        ("v <= 1e308", 2),
        ("NOT v <= 1e308", 5),
        ("v <> 1", 5),
    ],
)
def test_nan_equals_itself_and_is_larger_than_any_number(where: str, count: int) -> None:
    left = [NAN, 1.0, INF, NAN, NAN, 1.0, None, None, NAN]
    right = [NAN, NAN, NAN, 1.0, INF, 1.0, NAN, None, None]
    batch = pa.record_batch({"v": left, "w": right})
    assert bind(where, batch.schema).mask(batch).to_pylist().count(True) == count


@pytest.mark.parametrize(
    ("where", "kind", "values", "want"),
    [
        ("v = 0.5", pa.float16(), [0.5, 1.0, None], [0.5]),
        ("v = 0.1", pa.float32(), [0.1], []),  # the float nearest to 0.1 is another double
        ("v > 0.1", pa.float32(), [0.1], [0.1]),
        ("v IN (0, 2)", pa.float64(), [0.0, -0.0, 2.0, NAN, None], [0.0, -0.0, 2.0]),
        ("v NOT IN (-0.0)", pa.float32(), [0.0, -0.0, 1.0, None], [1.0]),
        ("v < 3", pa.uint64(), [2, 2**64 - 1], [2]),
        ("v IN ('a')", pa.dictionary(pa.int8(), pa.string()), ["a", "b", None], ["a"]),
        ("v LIKE 'a%'", pa.dictionary(pa.int8(), pa.string()), ["a", "b", None], ["a"]),
        ("v IN ('a')", pa.string_view(), ["a", "b", None], ["a"]),
        ("v LIKE '_'", pa.large_string(), ["a", "bb", None], ["a"]),
        ("v > X'61'", pa.binary_view(), [b"a", b"b"], [b"b"]),
        ("v = X'6100'", pa.binary(2), [b"a\x00", b"ab"], [b"a\x00"]),
        ("v < X'616263'", pa.binary(2), [b"ab", b"ac"], [b"ab"]),
        ("v = '2026-01-05'", pa.date64(), [date(2026, 1, 5), None], [date(2026, 1, 5)]),
        ("v = 1.5", pa.decimal256(20, 3), [Decimal("1.500"), None], [Decimal("1.500")]),
        (
            "v >= '2026-01-05 00:00:00.000001'",
            pa.timestamp("ns", "UTC"),
            [datetime(2026, 1, 5, 0, 0, 0, micros, UTC) for micros in (0, 1, 2)],
            [datetime(2026, 1, 5, 0, 0, 0, micros, UTC) for micros in (1, 2)],
        ),
        (
            "v = '2026-01-05T11:00+01:00'",
            pa.timestamp("ms", "America/New_York"),
            [datetime(2026, 1, 5, 10, tzinfo=UTC), None],
            [datetime(2026, 1, 5, 10, tzinfo=UTC)],
        ),
        ("v IS NULL", pa.list_(pa.int32()), [[1], [], None], [None]),
        ("v IS NOT NULL", pa.map_(pa.string(), pa.int32()), [[("a", 1)], None], [[("a", 1)]]),
    ],
)
def test_every_comparable_type_filters(
    where: str, kind: pa.DataType, values: list[Any], want: list[Any]
) -> None:
    assert kept(where, kind, values) == want


def test_texts_are_ordered_by_their_utf8_bytes() -> None:
    # UTF-16 would put the emoji, written with surrogates, before the last.
    texts = ["", "A", "a", "a\x00", "aa", "é", "\uffff", "\U0001f600"]
    for index, text in enumerate(texts):
        assert kept(f"v < '{text}'", pa.string(), texts) == texts[:index]


def test_a_field_of_a_null_struct_is_null() -> None:
    inner = pa.array([1, 2, 3], pa.int32())
    struct = pa.StructArray.from_arrays([inner], ["inner"], mask=pa.array([False, True, False]))
    batch = pa.record_batch({"nested": struct})
    mask = bind("nested.inner >= 2", batch.schema).mask(batch)
    assert mask.to_pylist() == [False, None, True]
    assert bind("nested.inner >= 2", batch.schema).mask(batch.slice(1)).to_pylist() == [None, True]


@pytest.mark.parametrize("where", ["TRUE", "FALSE", "NULL", "v = NULL", "v = 1", "v IS NULL"])
@pytest.mark.parametrize("count", [0, 3])
def test_a_mask_has_a_place_for_every_row(where: str, count: int) -> None:
    batch = pa.record_batch({"v": pa.array([1] * count, pa.int64())})
    mask = bind(where, batch.schema).mask(batch)
    assert isinstance(mask, pa.BooleanArray)
    assert len(mask) == count


_alphabet = "ab%_\\.*\n\U0001f600"
_patterns = st.lists(st.sampled_from([*"ab%_.*\n\U0001f600", r"\%", r"\_", r"\\"]), max_size=6)


@settings(deadline=None, max_examples=120)
@given(_patterns.map("".join), st.lists(st.text(_alphabet, max_size=6), min_size=1, max_size=8))
def test_like_matches_whole_texts(pattern: str, texts: list[str]) -> None:
    predicate = Like(Column(("name",)), pattern)
    mask = bind(predicate, SCHEMA).mask(batch_of([{"name": text} for text in texts]))
    assert mask.to_pylist() == [expected(predicate, {"name": text}) for text in texts]


def test_like_takes_every_character_as_itself() -> None:
    characters = [chr(code) for code in range(0x100) if chr(code) not in "%_\\"]
    for character in characters:
        bound = bind(Like(Column(("name",)), character), SCHEMA)
        others = batch_of([{"name": text} for text in (character, character * 2, "zz", "")])
        assert bound.mask(others).to_pylist() == [True, False, False, False]


def test_the_longest_pattern_is_no_problem() -> None:
    bound = bind(Like(Column(("name",)), "_%" * 30_000), SCHEMA)
    assert bound.mask(batch_of([{"name": "a"}])).to_pylist() == [False]


def test_a_batch_is_filtered_without_python_for_each_row() -> None:
    count = 300_000
    numbers = random.Random(7).choices(range(1_000), k=count)
    batch = pa.record_batch({"v": pa.array(numbers), "s": pa.array(map(str, numbers))})
    where = "v BETWEEN 100 AND 899 AND s LIKE '1%' AND v NOT IN (150, 160)"
    mask = bind(where, batch.schema).mask(batch)
    assert mask.true_count == sum(100 <= n < 200 and n not in (150, 160) for n in numbers)
