from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from pyhudi.plan.predicate.parser import parse_predicate
from pyhudi.plan.predicate.sql import to_sql
from pyhudi.plan.predicate.tree import Column, Literal


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"),
        (True, "TRUE"),
        (-5, "-5"),
        (1.0, "1.0E0"),
        (1e300, "1E+300"),
        (-0.0, "-0.0E0"),
        (Decimal("1.50"), "1.50"),
        (Decimal(1), "1."),
        (Decimal("1E+3"), "1000."),
        (Decimal("1E-7"), "0.0000001"),
        ("it's", r"'it\'s'"),
        ("\\%", r"'\\%'"),
        ("a\nb\x00", r"'a\u000ab\u0000'"),
        ("${x} $y", r"'\u0024{x} $y'"),
        ("é\U0001f600", "'é\U0001f600'"),
        (b"\x00\xff", "X'00FF'"),
        (date(26, 1, 5), "DATE '0026-01-05'"),
        (datetime(2026, 1, 5, tzinfo=UTC), "TIMESTAMP '2026-01-05 00:00:00.000000Z'"),
        (datetime(2026, 1, 5, 1, 2, 3, 4), "TIMESTAMP_NTZ '2026-01-05 01:02:03.000004'"),
    ],
)
def test_a_literal_is_written_so_that_no_reader_can_take_it_for_another(
    value: Any, text: str
) -> None:
    assert to_sql(Literal(value)) == text
    assert parse_predicate(text) == Literal(value)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("a.`b``c` == 1", "`a`.`b``c` = 1"),
        ("a and (b or c)", "`a` AND (`b` OR `c`)"),
        ("a and b or c", "(`a` AND `b`) OR `c`"),
        ("not a", "NOT `a`"),
        ("not not (a = 1)", "NOT NOT (`a` = 1)"),
        ("not a and b", "NOT `a` AND `b`"),
        ("a not like 'x'", "NOT (`a` LIKE 'x')"),
        ("a not in (1,2)", "`a` NOT IN (1, 2)"),
        ("not a in (1)", "NOT (`a` IN (1))"),
        ("a is not null", "`a` IS NOT NULL"),
        ("a between 1 and 2", "`a` >= 1 AND `a` <= 2"),
    ],
)
def test_there_is_one_text_for_a_tree(text: str, canonical: str) -> None:
    assert to_sql(parse_predicate(text)) == canonical
    assert to_sql(parse_predicate(canonical)) == canonical


def test_a_name_is_always_quoted() -> None:
    assert to_sql(Column(("select", "a.b"))) == "`select`.`a.b`"
