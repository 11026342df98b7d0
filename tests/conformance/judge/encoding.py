"""How the judges' rows become JSON.

Dates are `YYYY-MM-DD`, instants `YYYY-MM-DDTHH:MM:SS.ffffffZ`, timestamps without zone the same
without the Z, decimals texts with all their digits, binary base64, NaN and infinities texts, maps
objects with texts as keys. So types that Python would call equal stay apart: 1, 1.0 and "1.0".
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import math
from collections.abc import Iterable
from typing import Any

Row = dict[str, Any]

META_PREFIX = "_hoodie_"
META_COLUMNS = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)


def encode(value: Any) -> Any:
    """One value of Spark or Arrow as plain JSON."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return _encode_float(value)
        case decimal.Decimal():
            return format(value, "f")
        case dt.datetime():
            return _encode_datetime(value)
        case dt.date():
            return value.isoformat()
        case bytes() | bytearray():
            return base64.b64encode(value).decode("ascii")
        case dict():
            return {str(encode(key)): encode(item) for key, item in value.items()}
        case list() | tuple():
            return [encode(item) for item in value]
    raise TypeError(f"cannot encode {type(value).__name__}")


def _encode_float(value: float) -> float | str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _encode_datetime(value: dt.datetime) -> str:
    if value.tzinfo is None:
        return value.strftime("%Y-%m-%dT%H:%M:%S.%f")
    return value.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def stable_order(rows: Iterable[Row]) -> list[Row]:
    """Rows sorted by their data columns, then by the meta columns."""

    def key(row: Row) -> tuple[str, str]:
        data = {name: value for name, value in row.items() if not name.startswith(META_PREFIX)}
        return json.dumps(data, sort_keys=True), json.dumps(row, sort_keys=True)

    return sorted(rows, key=key)


def chosen_columns(names: list[str], columns: list[str] | None, *, meta: bool) -> list[str]:
    return [name for name in columns or names if meta or name not in META_COLUMNS]


def is_local(path: str) -> bool:
    return "://" not in path
