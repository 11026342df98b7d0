"""The least type that holds the values of two types without loss.

    int32 < int64, int32 < float64, float32 < float64
    decimal(p, s) < decimal(p', s') if neither the integer digits p - s nor the scale s shrink
    struct < struct with more children, with wider ones, with nullable ones
    list < list, map < map of wider or nullable elements

What is not in the table has no order: a long has more digits than a double, and a number and its
text sort differently. Hudi promotes both, and a user may ask for it, but rows, and two writes that
met by chance, must not. Decimals have up to 38 digits.

**Where two types have a bound they have a least one.** Among the four numbers, the only pairs with
a bound are the three of the table, and int32 with float32: above both lies float64 alone. (int64
with either float has none, as nothing lies above int64.) Decimals are pairs of digits that are
compared one by one; the larger of each is the least bound, or it has over 38 digits together, and
then no decimal is a bound. Structs, lists and maps are products of orders for which this holds; a
child that one struct lacks is null there, so it is nullable in the join. A partial order in which
each pair has a least bound or none, with "contradiction" above all, is a semilattice: the join is
associative, commutative (but for the order of a struct's children) and idempotent.
"""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

from pyhudi.format.avro.nesting import is_array
from pyhudi.table.rows.storable_types import DECIMAL_DIGITS_MAX

#: What Arrow tells apart and Avro does not.
_STORED = {
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
}
_ABOVE = {
    frozenset((pa.int32(), pa.int64())): pa.int64(),
    frozenset((pa.int32(), pa.float64())): pa.float64(),
    frozenset((pa.float32(), pa.float64())): pa.float64(),
    frozenset((pa.int32(), pa.float32())): pa.float64(),
}


@lru_cache(maxsize=1024)  # a wide table has few pairs of types
def joined_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the least type that holds both without loss; None if no type does.

    >>> joined_type(pa.int32(), pa.float32())
    DataType(double)
    >>> joined_type(pa.int64(), pa.float64()) is None
    True
    """
    contradictions: list[tuple[str, str]] = []
    type_ = join(left, right, "", contradictions)
    return None if contradictions else type_


def join(
    left: pa.DataType, right: pa.DataType, path: str, contradictions: list[tuple[str, str]]
) -> pa.DataType:
    """Return the join of a column's two types, noting each path at which there is none."""
    return _join(_stored(left), _stored(right), path, contradictions)


def _stored(type_: pa.DataType) -> pa.DataType:
    """Return the type as it comes back from a table."""
    if pa.types.is_struct(type_):
        return pa.struct([child.with_type(_stored(child.type)) for child in type_])
    if is_array(type_):
        child = type_.value_field
        return pa.list_(pa.field("element", _stored(child.type), child.nullable))
    if pa.types.is_map(type_):
        child = type_.item_field
        return pa.map_(type_.key_type, pa.field("value", _stored(child.type), child.nullable))
    return _STORED.get(type_, type_)


def _join(
    left: pa.DataType, right: pa.DataType, path: str, contradictions: list[tuple[str, str]]
) -> pa.DataType:
    if left == right:
        return left
    if pa.types.is_decimal128(left) and pa.types.is_decimal128(right):
        scale = max(left.scale, right.scale)
        digits = scale + max(left.precision - left.scale, right.precision - right.scale)
        if digits <= DECIMAL_DIGITS_MAX:
            return pa.decimal128(digits, scale)
    elif pa.types.is_struct(left) and pa.types.is_struct(right):
        return _joined_struct(left, right, path, contradictions)
    elif is_array(left) and is_array(right):
        pair = (left.value_field, right.value_field)
        return pa.list_(_joined_child("element", *pair, path, contradictions))
    elif pa.types.is_map(left) and pa.types.is_map(right) and left.key_type == right.key_type:
        pair = (left.item_field, right.item_field)
        child = _joined_child("value", *pair, path, contradictions)
        return pa.map_(left.key_type, child)
    elif (above := _ABOVE.get(frozenset((left, right)))) is not None:
        return above
    contradictions.append((path, f"no type holds both {left} and {right} without loss"))
    return left


def _joined_struct(
    left: pa.StructType, right: pa.StructType, path: str, contradictions: list[tuple[str, str]]
) -> pa.StructType:
    others = {child.name: child for child in right}
    children = []
    for child in left:
        other = others.pop(child.name, None)
        if other is None:
            children.append(child.with_nullable(True))
        else:
            children.append(_joined_child(child.name, child, other, path, contradictions))
    return pa.struct([*children, *(child.with_nullable(True) for child in others.values())])


def _joined_child(
    name: str,
    left: pa.Field,
    right: pa.Field,
    path: str,
    contradictions: list[tuple[str, str]],
) -> pa.Field:
    type_ = _join(left.type, right.type, f"{path}.{name}", contradictions)
    return pa.field(name, type_, left.nullable or right.nullable)
