"""Which columns are inside a column's type?

What a list holds is at the path `element`, what a map holds at `value`, as in `tags.element.name`.
"""

from __future__ import annotations

import pyarrow as pa


def is_array(type_: pa.DataType) -> bool:
    """True if Avro stores the type as an array."""
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))


def struct_inside(type_: pa.DataType) -> tuple[str, list[pa.Field]]:
    """Return the children of a struct, or of that in a list or map, and the path to it.

    >>> struct_inside(pa.list_(pa.struct([("x", pa.int32())])))
    ('.element', [pyarrow.Field<x: int32>])
    """
    path = ""
    while True:
        if pa.types.is_struct(type_):
            return path, list(type_)
        if is_array(type_):
            path, type_ = f"{path}.element", type_.value_type
        elif pa.types.is_map(type_):
            path, type_ = f"{path}.value", type_.item_type
        else:
            return path, []
