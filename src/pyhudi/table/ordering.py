"""Ordering values: comparing them as Hudi does, on whole columns.

An ordering value may have any scalar type, and a table may order by several fields, compared one
after the other. Hudi replaces null by the int 0. Among ints that has a meaning, which is
followed here; among values of any other type Hudi fails, and here null is below everything. Floats
follow Java's total order, in which -0.0 is below 0.0 and NaN is above everything; they are mapped
to integers of the same order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ranks = npt.NDArray[np.int64]


def comparable(array: pa.Array) -> pa.Array:
    """Return the values in a type whose comparison gives the same order without exceptions."""
    if array.type == pa.int32():
        return pc.fill_null(array, 0)
    if pa.types.is_floating(array.type):
        values = np.asarray(pc.fill_null(array.cast(pa.float64()), 0.0))
        bits = np.where(np.isnan(values), np.nan, values).view(np.int64)  # every NaN is the same
        # Positive floats order as their bits; negative ones in reverse.
        ordered = np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits)
        return pa.array(ordered, mask=np.asarray(pc.is_null(array)))
    if pa.types.is_boolean(array.type):
        return array.cast(pa.int8())
    return array


def dense_ranks(columns: Sequence[pa.Array]) -> Ranks:
    """Return one integer per row, in the order of the columns taken together; null is lowest."""
    length = len(columns[0])
    combined: Ranks = np.zeros(length, dtype=np.int64)
    for column in columns:
        ranks = _column_ranks(column)
        # Equal so far is decided by this column: re-rank the pairs densely, so nothing overflows.
        pairs = combined * (np.int64(ranks.max(initial=0)) + 1) + ranks
        combined = np.unique(pairs, return_inverse=True)[1].astype(np.int64)
    return combined


def _column_ranks(column: pa.Array) -> Ranks:
    values = comparable(column)
    ranks: Ranks = np.asarray(pc.rank(values, tiebreaker="dense")).astype(np.int64)
    return np.where(np.asarray(pc.is_null(values)), 0, ranks)  # ranks of values begin at 1


def at_least(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> pa.BooleanArray:
    """Return true for each row whose left ordering value is not below the right one."""
    result: pa.Array = pa.repeat(pa.scalar(True), len(left[0]))
    for a, b in reversed(list(zip(left, right, strict=True))):
        a, b = comparable(a), comparable(b)
        above = _null_lowest(pc.greater(a, b), pc.is_valid(a), pc.is_null(b))
        same = _null_lowest(pc.equal(a, b), pc.is_null(a), pc.is_null(b))
        result = pc.or_(above, pc.and_(same, result))
    return result


def _null_lowest(known: pa.Array, left: pa.Array, right: pa.Array) -> pa.Array:
    """Return the comparison where both values are known, and null's rank where they are not."""
    return pc.coalesce(known, pc.and_(left, right))
