"""Avro records → Arrow columns, a field of all records at a time.

Where an Avro value begins depends on all values before it, so records are usually read one after
the other. But a log block says how long each record is: with one position per record, the first
field of all records is read at once, which leaves every position at the second field, and so on.
A schema is compiled into a tree of columns once, and used for many blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pyhudi.format.avro.columns import ListColumn, MapColumn, RecordColumn, UnionColumn
from pyhudi.format.avro.cursor import Content, Cursor, Ints
from pyhudi.format.avro.leaves import (
    BytesColumn,
    Column,
    DecimalColumn,
    EnumColumn,
    NullColumn,
    NumberColumn,
    StringColumn,
    boolean_column,
    fixed_column,
    float_column,
)
from pyhudi.format.avro.types import (
    Array,
    AvroError,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    Type,
    Union,
)


class RecordLayout:
    """A compiled schema that decodes records."""

    def __init__(self, record: Record, schema: pa.Schema) -> None:
        self.schema = schema
        self._columns = _fields(record, list(schema))

    def decode(self, content: Content, starts: Ints, ends: Ints) -> pa.RecordBatch:
        """Return the records at [start, end) each; AvroError if one is malformed."""
        cursor = Cursor(content, starts, ends)
        columns = [column.read(cursor) for column in self._columns]
        if np.count_nonzero(cursor.at != ends):
            raise AvroError("a record ends before its length says")
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _fields(record: Record, fields: Sequence[pa.Field]) -> list[Column]:
    """Return the columns of a record.

    Its Arrow form has the same fields, unless names hide each other.
    """
    if [field.name for field in record.fields] != [field.name for field in fields]:
        raise AvroError(f"{record.name[:100]!r} is the name of two types")
    return [_column(f.type, arrow.type) for f, arrow in zip(record.fields, fields, strict=True)]


def _column(avro: Type, arrow: pa.DataType) -> Column:
    types = pa.types
    match avro:
        case Union(branches):
            return UnionColumn([_column(branch, arrow) for branch in branches], arrow)
        case Record() if types.is_struct(arrow):
            return RecordColumn(_fields(avro, list(arrow)), arrow)
        case Array(items) if types.is_list(arrow):
            return ListColumn(_column(items, arrow.value_type), arrow)
        case Map(values) if types.is_map(arrow):
            return MapColumn(_column(values, arrow.item_type), arrow)
        case Enum(symbols) if types.is_string(arrow):
            return EnumColumn(symbols)
        case Fixed(size) if types.is_decimal(arrow) or arrow == pa.binary(size):
            return fixed_column(size, arrow)
        case Primitive(name):
            return _primitive(name, arrow)
    raise AvroError("the schema has one name for two types")


def _primitive(name: str, arrow: pa.DataType) -> Column:
    match name:
        case "boolean":
            return boolean_column()
        case "int" | "long":
            return NumberColumn(arrow)
        case "float" | "double":
            return float_column(arrow)
        case "string":
            return StringColumn()
        case "bytes":
            return DecimalColumn(arrow) if pa.types.is_decimal(arrow) else BytesColumn()
        case _:  # null, which only a union has
            return NullColumn()
