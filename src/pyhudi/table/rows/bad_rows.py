"""A few bad rows, as an error shows them.

An error about data is useful only if the data can be found. So it names up to three rows, by their
number in the batch (the first is 0) and by the values that are wrong, each cut to a readable
length. This is the one place where single values are looked at in Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from itertools import islice
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

SAMPLE_ROWS_MAX: Final = 3
_SHOWN_CHARACTERS_MAX = 40


def sample(rows: Iterable[int], columns: Mapping[str, pa.Array]) -> str:
    """Return the first of these rows, with their values in the columns.

    >>> sample([1], {"id": pa.array(["a", None]), "n": pa.array([1, 2])})
    'row 1 (id=null, n=2)'
    """
    texts = []
    for row in islice(rows, SAMPLE_ROWS_MAX):
        values = (f"{name}={_shown(column[row])}" for name, column in columns.items())
        texts.append(f"row {row} ({', '.join(values)})")
    return ", ".join(texts)


def true_rows(mask: pa.BooleanArray) -> list[int]:
    """Return the first rows where the mask is true, as many as a sample shows."""
    rows: list[int] = pc.indices_nonzero(mask)[:SAMPLE_ROWS_MAX].to_pylist()
    return rows


def _shown(value: pa.Scalar) -> str:
    if not value.is_valid:
        return "null"
    text = _text(value)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]}…"


def _text(value: pa.Scalar) -> str:
    """Return the value as text, with text in quotes.

    Times are printed by Arrow, since Python's types cannot hold all of them.
    """
    try:
        if pa.types.is_temporal(value.type):
            return str(pc.cast(value, pa.string()).as_py())
        found = value.as_py()
        return str(found) if isinstance(found, int | float | Decimal) else repr(found)
    except (ValueError, OverflowError, pa.ArrowException):  # such a time inside a struct, say
        return f"a {value.type}"
