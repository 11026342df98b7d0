"""The types of columns, by the names that Spark and Avro users write.

A type may also be given as an Arrow type, which is the only way to give a nested one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from pyhudi.errors import InvalidRequestError

_NAMED: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),  # a moment, as in Spark
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL: Final = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")


def parse_type(given: object, column: str) -> pa.DataType:
    """Return the Arrow type that the user gave for a column, perhaps by its name.

    >>> parse_type("decimal(10, 2)", "price")
    Decimal128Type(decimal128(10, 2))
    """
    if isinstance(given, pa.DataType):
        return given
    text = given.strip().lower() if isinstance(given, str) else ""
    if text in _NAMED:
        return _NAMED[text]
    if (found := _DECIMAL.fullmatch(text)) is not None:
        precision, scale = map(int, found.groups())
        if 1 <= precision <= 38 and scale <= precision:
            return pa.decimal128(precision, scale)
        why = f"{text} is no decimal of at most 38 digits"
    else:
        why = f"{given!r:.100} is not a type"
    raise InvalidRequestError(
        f"column {column!r} cannot have that type",
        why=why,
        next_step=f"Give an Arrow type, or one of {', '.join(_NAMED)} and decimal(10,2)",
    )
