"""Arrow types → Spark types."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as spark

from pyhudi.errors import UnsupportedTableError

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
