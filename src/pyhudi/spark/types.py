"""Arrow types → Spark types, and back."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as spark

from pyhudi.errors import InvalidRequestError, UnsupportedTableError

_SIMPLE: dict[pa.DataType, type[spark.DataType]] = {
    pa.bool_(): spark.BooleanType,
    pa.int32(): spark.IntegerType,
    pa.int64(): spark.LongType,
    pa.float32(): spark.FloatType,
    pa.float64(): spark.DoubleType,
    pa.string(): spark.StringType,
    pa.binary(): spark.BinaryType,
    pa.date32(): spark.DateType,
    pa.null(): spark.NullType,
}


def spark_schema(schema: pa.Schema) -> spark.StructType:
    return spark.StructType(
        [spark.StructField(f.name, spark_type(f.type, f.name), nullable=True) for f in schema]
    )


def spark_type(type_: pa.DataType, column: str) -> spark.DataType:
    if type_ in _SIMPLE:
        return _SIMPLE[type_]()
    if pa.types.is_timestamp(type_):
        return spark.TimestampType() if type_.tz else spark.TimestampNTZType()
    if pa.types.is_decimal128(type_):
        return spark.DecimalType(type_.precision, type_.scale)
    if pa.types.is_list(type_):
        return spark.ArrayType(spark_type(type_.value_type, column), containsNull=True)
    if pa.types.is_map(type_):
        value = spark_type(type_.item_type, column)
        return spark.MapType(spark.StringType(), value, valueContainsNull=True)
    if pa.types.is_struct(type_):
        return spark_schema(pa.schema(list(type_)))
    if pa.types.is_fixed_size_binary(type_):
        return spark.BinaryType()
    raise UnsupportedTableError(
        f"column {column!r} cannot be read with Spark",
        why=f"Spark has no type for Arrow's {type_}",
        next_step="Leave it out with columns=, or read it without Spark",
    )


_ARROW: dict[type[spark.DataType], pa.DataType] = {
    **{kind: type_ for type_, kind in _SIMPLE.items()},
    spark.ByteType: pa.int8(),
    spark.ShortType: pa.int16(),
    spark.TimestampType: pa.timestamp("us", "UTC"),
    spark.TimestampNTZType: pa.timestamp("us"),
}


def arrow_schema(schema: spark.StructType) -> pa.Schema:
    """Return the types that these columns have when Spark passes them on."""
    return pa.schema([_arrow_field(field) for field in schema.fields])


def empty_batch(schema: spark.StructType) -> pa.RecordBatch:
    """Return a batch of these columns without rows, to check whether they fit."""
    fields = arrow_schema(schema)
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in fields], schema=fields)


def _arrow_field(field: spark.StructField) -> pa.Field:
    # As in tables that Spark creates: columns without nulls today may have some tomorrow.
    return pa.field(field.name, _arrow_type(field.dataType, field.name), nullable=True)


def _arrow_type(type_: spark.DataType, column: str) -> pa.DataType:
    if type(type_) in _ARROW:
        return _ARROW[type(type_)]
    if isinstance(type_, spark.StringType):  # also with a collation or a length
        return pa.string()
    if isinstance(type_, spark.DecimalType):
        return pa.decimal128(type_.precision, type_.scale)
    if isinstance(type_, spark.ArrayType):
        return pa.list_(_arrow_type(type_.elementType, column))
    if isinstance(type_, spark.MapType):
        key = _arrow_type(type_.keyType, column)
        return pa.map_(key, _arrow_type(type_.valueType, column))
    if isinstance(type_, spark.StructType):
        return pa.struct([_arrow_field(field) for field in type_.fields])
    raise InvalidRequestError(
        f"column {column!r} cannot be stored",
        why=f"Hudi has no type for Spark's {type_.simpleString()}",
        next_step="Cast it, or leave it out",
    )
