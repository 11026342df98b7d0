"""Comparing a read with the rows that Apache Hudi recorded for it.

Rows are compared as JSON lines in the encoding of the recordings (`golden/README.md`), meta columns
included, whatever their order. `scores` keeps how many recorded reads of a table an engine
passed; the run prints them as a table at its end.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

_OPTIONS = {
    "query_type": "hoodie.datasource.query.type",
    "as_of": "as.of.instant",
    "begin": "hoodie.datasource.read.begin.instanttime",
    "end": "hoodie.datasource.read.end.instanttime",
}

#: Engine → table → (reads passed, reads recorded).
scores: dict[str, dict[str, tuple[int, int]]] = {}


def recorded_reads(description: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The recorded reads but for change capture, which pyhudi does not read yet."""
    return [read for read in description["reads"] if read["how"].get("query_type") != "cdc"]


def hudi_options(how: Mapping[str, str]) -> dict[str, str]:
    """The read's arguments under Hudi's own option names, at least one of which is there."""
    return {_OPTIONS["query_type"]: "snapshot", **{_OPTIONS[n]: v for n, v in how.items()}}


def encoded(value: Any) -> Any:
    """A Python value of Arrow or Spark as the recordings write it."""
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case decimal.Decimal():
            return format(value, "f")
        case dt.datetime() if value.tzinfo is not None:
            return value.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        case dt.datetime():
            return value.strftime("%Y-%m-%dT%H:%M:%S.%f")
        case dt.date():
            return value.isoformat()
        case bytes() | bytearray():
            return base64.b64encode(value).decode()
        case dict():
            return {str(encoded(key)): encoded(item) for key, item in value.items()}
        case list() | tuple():
            return [encoded(item) for item in value]
    return value


def lines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted(json.dumps(encoded(dict(row)), sort_keys=True) for row in rows)


def differences(want: Iterable[Mapping[str, Any]], got: Iterable[Mapping[str, Any]]) -> str:
    """Empty when the rows are the same; else what is missing and what is too much."""
    expected, actual = lines(want), lines(got)
    if expected == actual:
        return ""
    missing = [line for line in expected if line not in actual]
    extra = [line for line in actual if line not in expected]
    return (
        f"{len(expected)} rows expected, {len(actual)} read\n"
        f"  missing    {missing[:2]}\n  unexpected {extra[:2]}"
    )


def keep_score(engine: str, table: str, passed: int, recorded: int) -> None:
    scores.setdefault(engine, {})[table] = (passed, recorded)


def score_lines() -> list[str]:
    """The conformance table: reads passed per golden table per engine."""
    engines = sorted(scores)
    if not engines:
        return []
    tables = sorted({table for engine in engines for table in scores[engine]})
    text = [f"{'golden table':<32}" + "".join(f"{engine:>16}" for engine in engines)]
    for table in tables:
        cells = (scores[engine].get(table) for engine in engines)
        shown = ("-" if cell is None else f"{cell[0]}/{cell[1]}" for cell in cells)
        text.append(f"{table:<32}" + "".join(f"{cell:>16}" for cell in shown))
    sums = [[sum(part) for part in zip(*scores[e].values(), strict=True)] for e in engines]
    text.append(f"{'all':<32}" + "".join(f"{f'{p}/{n}':>16}" for p, n in sums))
    return text
