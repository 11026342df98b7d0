"""A table and the result of a write as notebooks show them: a small piece of HTML for each.

The functions take plain values and read nothing, so that a cell's output appears at once. The HTML
stands on its own: no script, no style sheet, nothing fetched. It names no colour but takes the
notebook's own, dark or light. Every value is escaped, and long ones are cut: a column may be called
anything.

No address is changed here. Storage refuses one that carries credentials, and a folder that is
called `key=1` is shown as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, tzinfo
from html import escape
from itertools import chain
from typing import Final, Protocol

from pyhudi.progress import Counts, per_second
from pyhudi.wording import counted, readable

COLUMNS_MAX: Final = 50
CHARACTERS_MAX: Final = 300

_BOX = "display:inline-block;max-width:100%;padding:0.4em 0.8em;border:1px solid;border-radius:4px"
_TABLE = "border-collapse:collapse;border:none;margin:0.3em 0;background:none"
_ROW = "background:none;border:none"
_CELL = "text-align:left;vertical-align:top;border:none;padding:0.1em 1em 0.1em 0"
_LABEL = f"{_CELL};font-weight:normal;opacity:0.7;white-space:nowrap"
_VALUE = f"{_CELL};overflow-wrap:anywhere"


class Written(Counts, Protocol):
    """A write that completed."""

    @property
    def instant(self) -> str: ...
    @property
    def completed(self) -> str: ...
    @property
    def deletes(self) -> int: ...
    @property
    def retries(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def repeated(self) -> bool: ...


def table_html(
    *,
    name: str,
    uri: str,
    table_type: str,
    version: int,
    record_key: Sequence[str],
    partition_by: Sequence[str],
    ordering: Sequence[str],
    buckets: str | None,
    concurrency: str | None,
    columns: Iterable[tuple[str, object]] | None,
) -> str:
    """Return a table; `columns` are names and types, None as long as no schema has been loaded."""
    facts = [
        ("Address", uri),
        ("Type", f"{table_type}, version {version}"),
        ("Record key", ", ".join(record_key) or "none"),
        ("Partitioned by", ", ".join(partition_by) or "nothing"),
        ("Ordering", ", ".join(ordering) or "none: the last commit wins"),
        ("Buckets", "unknown" if buckets is None else buckets),
        ("Concurrency", concurrency or "left to the writers"),
    ]
    shown = "" if columns is None else _columns_html(list(columns))
    return _box(f"Hudi table {name}", _rows(facts) + shown)


def _columns_html(columns: Sequence[tuple[str, object]]) -> str:
    """Return the first columns with their types, and how many more there are."""
    more = len(columns) - COLUMNS_MAX
    rest = f"<div>and {more:,} more</div>" if more > 0 else ""
    title = counted(len(columns), "column")
    return f"<details open><summary>{title}</summary>{_rows(columns[:COLUMNS_MAX])}{rest}</details>"


def result_html(result: Written, *, zone: tzinfo | None = UTC) -> str:
    """Return what a write did; `zone` is the timeline's, None for this machine's own."""
    facts = [
        ("Requested", result.instant),
        ("Completed", readable_time(result.completed, zone)),
        ("Rows written", f"{result.rows:,}"),
        ("Deletes written", f"{result.deletes:,}"),
        ("Files", f"{result.files:,}"),
        ("Size", readable(result.bytes, "B")),
        ("Repeated after conflicts", counted(result.retries, "time")),
        ("Seconds", f"{result.seconds:,.1f}"),
        ("Rows per second", readable(per_second(result.rows, result.seconds))),
    ]
    title = "Hudi write, done before under this write_id" if result.repeated else "Hudi write"
    return _box(title, _rows(facts))


class Checked(Counts, Protocol):
    """A table that was verified."""

    @property
    def findings(self) -> Sequence[object]: ...
    @property
    def left_out(self) -> int: ...
    @property
    def commits(self) -> int: ...
    @property
    def seconds(self) -> float: ...


def verified_html(result: Checked) -> str:
    """Return what a verification found."""
    total = len(result.findings) + result.left_out
    facts = [
        ("Findings", "none: the table is whole" if not total else f"{total:,}"),
        ("Commits", f"{result.commits:,}"),
        ("Files", f"{result.files:,}"),
        ("Rows", f"{result.rows:,}"),
        ("Size", readable(result.bytes, "B")),
        ("Seconds", f"{result.seconds:,.1f}"),
    ]
    shown = [(str(number), finding) for number, finding in enumerate(result.findings, 1)]
    return _box("Hudi table, verified", _rows([*facts, *shown[:COLUMNS_MAX]]))


def readable_time(digits: str, zone: tzinfo | None) -> str:
    """Return an instant time, of a timeline in the zone, as UTC.

    Digits that are not a moment stay as they are.

    >>> readable_time("20260102030405678", UTC)
    '2026-01-02 03:04:05.678 UTC'
    """
    try:
        moment = datetime.strptime(digits[:14], "%Y%m%d%H%M%S").replace(tzinfo=zone)
        there = moment.astimezone(UTC)
    except (ValueError, OverflowError):  # such as the 17 zeros that Hudi's own tables begin with
        return digits
    fraction = f".{digits[14:]}" if digits[14:] else ""
    return f"{there:%Y-%m-%d %H:%M:%S}{fraction} UTC"


def _box(title: str, content: str) -> str:
    # The class keeps a notebook from typesetting text between dollar signs.
    begin = f'<div class="tex2jax_ignore" style="{_BOX}"><strong>{_shown(title)}</strong>'
    return f"{begin}{content}</div>"


def _rows(facts: Iterable[tuple[str, object]]) -> str:
    """Return a table of two columns."""
    rows = (
        f'<tr style="{_ROW}"><th scope="row" style="{_LABEL}">{_shown(label)}</th>'
        f'<td style="{_VALUE}">{_shown(value)}</td></tr>'
        for label, value in facts
    )
    return "".join(chain([f'<table style="{_TABLE}"><tbody>'], rows, ["</tbody></table>"]))


def _shown(value: object) -> str:
    """Return the value cut, then escaped, so that no escape is cut in two."""
    text = str(value)
    cut = text if len(text) <= CHARACTERS_MAX else f"{text[:CHARACTERS_MAX]}…"
    return escape(cut)
