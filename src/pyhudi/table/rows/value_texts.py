"""The text that Hudi makes of a value, in record keys and in partition paths.

Two engines that write one table must make the same text of the same value, or a key gets two rows.
So only types with one certain text are taken:

| type       | text                                                                      |
| ---------- | ------------------------------------------------------------------------- |
| string     | itself                                                                    |
| int, long  | decimal digits                                                            |
| boolean    | `true`, `false`                                                           |
| date       | `2024-02-29`, in the years 1 to 9999                                      |
| timestamp  | microseconds since 1970 as digits, with or without a zone                 |
| decimal    | all digits of its scale, `1.50`; as Java, `1E-7` where the scale is ≥ 7   |

Floats and doubles are refused: Java versions print some of them differently, and a number that was
computed twice is seldom the same key.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequestError
from pyhudi.table.rows.bad_rows import sample, true_rows

_MICROSECONDS: Final = frozenset({pa.timestamp("us"), pa.timestamp("us", "UTC")})
_AS_THEY_ARE: Final = frozenset({pa.string(), pa.int32(), pa.int64(), pa.bool_(), pa.date32()})
#: Days since 1970. Outside of these years Java writes more digits, or a sign.
_FIRST_DAY, _LAST_DAY = -719162, 2932896


def refuse_type(field: pa.Field, role: str) -> None:
    """Raise InvalidRequestError if the column's type does not suit its role.

    The role is a record key or a partition field.
    """
    type_ = field.type
    if type_ in _AS_THEY_ARE or type_ in _MICROSECONDS or pa.types.is_decimal128(type_):
        return
    why = f"Hudi has no certain text for {type_}"
    if pa.types.is_floating(type_):
        why = f"{type_} has no certain text, and equal numbers may differ in their last digit"
    raise InvalidRequestError(
        f"column {field.name!r} cannot be {role}",
        why=why,
        next_step="Choose a column of text, int, long, boolean, date, timestamp or decimal",
    )


def refuse_values(array: pa.Array, column: str, role: str) -> None:
    """Raise InvalidRequestError for values without a certain text in a type that has one."""
    if array.type != pa.date32():
        return
    days = array.cast(pa.int32())
    odd = pc.or_(pc.less(days, _FIRST_DAY), pc.greater(days, _LAST_DAY))
    if rows := true_rows(odd):
        raise InvalidRequestError(
            f"dates in column {column!r} cannot be {role}",
            why=f"their year is not from 1 to 9999, as in {sample(rows, {column: days})}, in days",
            next_step="Correct these rows",
        )


def texts(array: pa.Array) -> pa.StringArray:
    """Return the text of each value of an accepted type; null stays null."""
    if array.type in _MICROSECONDS:
        array = array.cast(pa.int64())
    return array if array.type == pa.string() else pc.cast(array, pa.string())
