from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, timedelta, timezone, tzinfo
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.notebook import COLUMNS_MAX, readable_time, result_html, table_html

NASTY = """<script>alert("x")</script>&amp;'"><img src=x onerror=y>"""
ALLOWED = {"div", "strong", "table", "tbody", "tr", "th", "td", "details", "summary"}


class Page(HTMLParser):
    """What a browser would see: tags, attributes, and the text of each cell."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.open.append(tag)
        self.texts.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts[-1] += data

    @property
    def facts(self) -> dict[str, str]:
        """Each label with the value beside it."""
        cells = [text for text in self.texts if text]
        return dict(pairwise(cells))


def table(**given: Any) -> str:
    values: dict[str, Any] = {
        "name": "orders",
        "uri": "s3://lake/orders",
        "table_type": "MERGE_ON_READ",
        "version": 9,
        "record_key": ("id", "line"),
        "partition_by": ("day",),
        "ordering": ("ts",),
        "buckets": "1,024 in each partition",
        "concurrency": "NON_BLOCKING_CONCURRENCY_CONTROL",
        "columns": [("id", pa.int64()), ("tags", pa.list_(pa.string()))],
    }
    return table_html(**values | given)


@dataclass(frozen=True, slots=True)
class Result:
    instant: str = "20260102030405678"
    completed: str = "20260102030406001"
    rows: int = 1_234_567
    deletes: int = 12
    files: int = 32
    bytes: int = 45_100_000
    retries: int = 1
    seconds: float = 10.25
    repeated: bool = False


def test_table_shows_what_it_is() -> None:
    page = Page(table())
    assert "Hudi table orders" in page.texts
    expected = {
        "Address": "s3://lake/orders",
        "Type": "MERGE_ON_READ, version 9",
        "Record key": "id, line",
        "Partitioned by": "day",
        "Ordering": "ts",
        "Buckets": "1,024 in each partition",
        "Concurrency": "NON_BLOCKING_CONCURRENCY_CONTROL",
        "id": "int64",
        "tags": "list<item: string>",
    }
    assert page.facts.items() >= expected.items()
    assert "2 columns" in page.texts


def test_table_says_what_it_lacks() -> None:
    bare = table(record_key=(), partition_by=(), ordering=(), buckets=None, concurrency=None)
    expected = {
        "Record key": "none",
        "Partitioned by": "nothing",
        "Ordering": "none: the last commit wins",
        "Buckets": "unknown",
        "Concurrency": "left to the writers",
    }
    assert Page(bare).facts.items() >= expected.items()


def test_table_without_a_schema_shows_no_columns() -> None:
    assert "details" not in Page(table(columns=None)).tags


@pytest.mark.parametrize(
    ("count", "more"), [(50, None), (51, "and 1 more"), (2_000, "and 1,950 more")]
)
def test_wide_table_shows_its_first_columns(count: int, more: str | None) -> None:
    page = Page(table(columns=[(f"c{n}", "string") for n in range(count)]))
    assert f"c{COLUMNS_MAX - 1}" in page.texts
    assert f"c{COLUMNS_MAX}" not in page.texts
    assert (more in page.texts) if more else not any("more" in text for text in page.texts)


def test_result_shows_what_the_write_did() -> None:
    assert (
        Page(result_html(Result())).facts.items()
        >= {
            "Requested": "20260102030405678",
            "Completed": "2026-01-02 03:04:06.001 UTC",
            "Rows written": "1,234,567",
            "Deletes written": "12",
            "Files": "32",
            "Size": "45.1 MB",
            "Repeated after conflicts": "1 time",
            "Seconds": "10.2",
            "Rows per second": "120 k",
        }.items()
    )


def test_result_of_an_earlier_write_says_so() -> None:
    title = "Hudi write, done before under this write_id"
    assert title in Page(result_html(Result(repeated=True))).texts
    assert title not in Page(result_html(Result())).texts


def test_result_of_a_write_in_no_time_has_no_rate() -> None:
    assert Page(result_html(Result(seconds=0.0))).facts["Rows per second"] == "0"


@pytest.mark.parametrize(
    ("digits", "zone", "text"),
    [
        ("20260102030405678", UTC, "2026-01-02 03:04:05.678 UTC"),
        ("20260102030405", UTC, "2026-01-02 03:04:05 UTC"),
        ("20260102003000000", timezone(timedelta(hours=2)), "2026-01-01 22:30:00.000 UTC"),
        ("00000000000000010", UTC, "00000000000000010"),
        ("00010101000000000", timezone(timedelta(hours=2)), "00010101000000000"),
        ("20261399000000000", UTC, "20261399000000000"),
        ("", UTC, ""),
    ],
)
def test_times_are_readable(digits: str, zone: tzinfo, text: str) -> None:
    assert readable_time(digits, zone) == text


def test_time_of_a_timeline_in_the_zone_of_this_machine_is_shown_in_utc(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Etc/GMT-5")  # five hours east
    time.tzset()
    try:
        text = readable_time("20260102030405678", None)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert text == "2026-01-01 22:04:05.678 UTC"


@pytest.mark.parametrize(
    "given",
    [
        {"name": NASTY},
        {"uri": NASTY},
        {"table_type": NASTY},
        {"record_key": (NASTY,)},
        {"partition_by": (NASTY,)},
        {"ordering": (NASTY,)},
        {"concurrency": NASTY},
        {"columns": [(NASTY, "string")]},
        {"columns": [("c", NASTY)]},
    ],
)
def test_nothing_in_a_table_becomes_markup(given: dict[str, Any]) -> None:
    page = Page(table(**given))
    assert page.tags <= ALLOWED
    assert any(NASTY in text for text in page.texts)


@settings(deadline=None, max_examples=100)
@given(st.text(max_size=400), st.text(max_size=400))
def test_any_text_is_shown_as_text(name: str, kind: str) -> None:
    page = Page(table(name=name, uri=kind, columns=[(name, kind)]))
    assert page.tags <= ALLOWED
    assert page.attributes <= {"class", "style", "scope", "open"}


def test_nothing_in_a_result_becomes_markup() -> None:
    assert Page(result_html(Result(instant=NASTY, completed=NASTY))).tags <= ALLOWED


def test_long_values_are_cut() -> None:
    assert len(table(name="&" * 100_000, columns=[("c", "x" * 100_000)])) < 20_000


@pytest.mark.parametrize("text", [table(), result_html(Result())])
def test_piece_stands_on_its_own_and_names_no_colour(text: str) -> None:
    assert "://" not in text.replace("s3://lake/orders", "")
    assert not any(word in text for word in ("url(", "color", "#", "rgb", "<style", "<script"))
