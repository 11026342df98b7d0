"""Every column type that Hudi stores, with awkward values, for tests of writing."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

_UTC = dt.UTC
_STRUCT = pa.struct([("n", pa.int32()), ("text", pa.string())])
_REQUIRED = pa.struct([pa.field("n", pa.int32(), nullable=False), ("text", pa.string())])

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
_INT = st.integers(-(2**31), 2**31 - 1)
_LONG = st.integers(-(2**63), 2**63 - 1)
_STAMP = st.datetimes(dt.datetime(1600, 1, 1), dt.datetime(9000, 1, 1))


def _decimals(digits: int, places: int) -> st.SearchStrategy[Decimal]:
    most = 10**digits - 1
    unscaled = st.integers(-most, most)
    return unscaled.map(lambda n: Decimal((int(n < 0), Decimal(abs(n)).as_tuple().digits, -places)))


_STRUCTS = st.fixed_dictionaries({"n": st.none() | _INT, "text": st.none() | _TEXT})

#: Name → the Arrow type, one value of it, and any value of it.
TYPES: dict[str, tuple[pa.DataType, Any, st.SearchStrategy[Any]]] = {
    "text": (pa.string(), "naïve \U0001f600", _TEXT),
    "bytes": (pa.binary(), b"\x00\xff", st.binary(max_size=5)),
    "boolean": (pa.bool_(), True, st.booleans()),
    "int": (pa.int32(), -(2**31), _INT),
    "long": (pa.int64(), 2**63 - 1, _LONG),
    "float": (pa.float32(), 0.5, st.floats(width=32, allow_nan=False)),
    "double": (pa.float64(), -0.1, st.floats(allow_nan=False)),
    "decimal": (pa.decimal128(10, 2), Decimal("-99999999.99"), _decimals(10, 2)),
    "wide_decimal": (pa.decimal128(38, 18), Decimal("1.5"), _decimals(38, 18)),
    "date": (pa.date32(), dt.date(1969, 12, 31), st.dates(dt.date(1600, 1, 1))),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=_UTC),
        _STAMP.map(lambda stamp: stamp.replace(tzinfo=_UTC)),
    ),
    "local_timestamp": (
        pa.timestamp("us"),
        dt.datetime(1900, 1, 2, 3, 4, 5, 678901),
        _STAMP,
    ),
    "list": (
        pa.list_(pa.field("element", pa.string())),
        ["a", None, ""],
        st.lists(st.none() | _TEXT, max_size=3),
    ),
    "map": (
        pa.map_(pa.string(), pa.int64()),
        [("a", 1), ("b", None)],
        st.dictionaries(_TEXT, st.none() | _LONG, max_size=3).map(lambda d: list(d.items())),
    ),
    "struct": (_STRUCT, {"n": 1, "text": None}, _STRUCTS),
    "structs": (
        pa.list_(pa.field("element", _STRUCT)),
        [{"n": None, "text": "x"}, None],
        st.lists(st.none() | _STRUCTS, max_size=3),
    ),
    "required_in_struct": (
        _REQUIRED,
        {"n": 7, "text": None},
        st.fixed_dictionaries({"n": _INT, "text": st.none() | _TEXT}),
    ),
}

SCHEMA = pa.schema(
    [("id", pa.string()), ("ts", pa.int64()), *((name, kind[0]) for name, kind in TYPES.items())]
)


def full_row(id_: str, ts: int = 1) -> dict[str, Any]:
    """A row with a value in every column."""
    return {"id": id_, "ts": ts, **{name: kind[1] for name, kind in TYPES.items()}}


def empty_row(id_: str, ts: int = 1) -> dict[str, Any]:
    """A row with a null in every column."""
    return {"id": id_, "ts": ts, **dict.fromkeys(TYPES)}


def any_rows(max_size: int = 8) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Rows of different keys, with any values or none."""
    row = st.fixed_dictionaries(
        {
            "id": st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=3),
            "ts": st.integers(0, 5),
            **{name: st.none() | kind[2] for name, kind in TYPES.items()},
        }
    )
    return st.lists(row, max_size=max_size, unique_by=lambda found: found["id"])
