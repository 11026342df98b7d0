"""Which type holds the values of two types without loss?

The order is int < long, int < double, float < double, and decimals by the digits before and behind
the point. Wherever two types have an upper bound in it they have a least one. Hudi reads more
promotions (long as float, numbers as text), but those lose digits or change what a value means, so
nothing takes them by itself.
"""

from __future__ import annotations

import pyarrow as pa

_DECIMAL_DIGITS_MAX = 38
_ABOVE = {
    pa.int32(): {pa.int32(), pa.int64(), pa.float64()},
    pa.int64(): {pa.int64()},
    pa.float32(): {pa.float32(), pa.float64()},
    pa.float64(): {pa.float64()},
}


def lossless_join(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the least type above two types that are not nested; None if there is none.

    >>> lossless_join(pa.int32(), pa.float32())
    DataType(double)
    >>> lossless_join(pa.int64(), pa.float64()) is None
    True
    """
    if one.equals(other):
        return one
    if one in _ABOVE and other in _ABOVE:
        both = _ABOVE[one] & _ABOVE[other]
        return one if one in both else other if other in both else next(iter(both), None)
    if pa.types.is_decimal128(one) and pa.types.is_decimal128(other):
        scale = max(one.scale, other.scale)
        digits = max(one.precision - one.scale, other.precision - other.scale) + scale
        return pa.decimal128(digits, scale) if digits <= _DECIMAL_DIGITS_MAX else None
    return None
