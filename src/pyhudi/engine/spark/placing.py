"""Bringing rows together: each (partition, bucket) in one task, sorted by place.

The bucket of a row is computed in the JVM where that is certain: the index hashes Java's hash of
the key's text, and Spark can call the very method (`java_method`), which costs half of what a
Python function costs when all columns travel along. Keys of several fields, and decimals, are
hashed by a function of ours, vectorised, that is given the key columns alone.

`place` is one number to shuffle and to sort by (see `sorted_rows`). A salt of the instant makes
sure that two groups whose hashes coincide once do not do so always.

Spark's adaptive execution sizes the tasks once it knows how many bytes there are. An input that
Spark knows to be tiny skips the shuffle and is written by one task.
"""

from __future__ import annotations

import re
from typing import Final
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from pyhudi.engine.sorted_rows import KEY_BITS
from pyhudi.engine.spark.bucket_function import bucket_function
from pyhudi.engine.spark.types import spark_type
from pyhudi.engine.spark.write_task import BUCKET, NO_BUCKET, PLACE
from pyhudi.format.table_config import KeyGenerator, TableConfig
from pyhudi.table.partitions import DEFAULT_PARTITION

#: An input that Spark estimates below this is written by one task, without a shuffle.
TINY_BYTES: Final = 4 << 20
#: Tasks, at most, where Spark does not size them itself.
_TASKS_WITHOUT_ADAPTING = 32
_KEY_MASK = (1 << KEY_BITS) - 1
_ESTIMATE = re.compile(r"sizeInBytes=([0-9.]+) ([KMGTPE]i)?B")
_UNITS = {"": 0, "Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


#: Parts of a plan whose output Spark does not estimate lower than it is. What is missing here may
#: make many rows of few, or take long for each: functions over Arrow or pandas, `explode`.
_MEASURED = frozenset(
    {
        "Aggregate",
        "Deduplicate",
        "Distinct",
        "Filter",
        "GlobalLimit",
        "Join",
        "LocalLimit",
        "LocalRelation",
        "OneRowRelation",
        "Project",
        "Range",
        "Relation",
        "Repartition",
        "RepartitionByExpression",
        "Sort",
        "Union",
    }
)


def placed(
    frame: DataFrame, config: TableConfig, schema: pa.Schema, *, salt: str, by_partition: bool
) -> DataFrame:
    """The frame with bucket and place, shuffled and sorted by it."""
    frame = frame.withColumn(BUCKET, _bucket(frame, config, schema))
    partition = [_partition_text(name) for name in config.partition_fields if by_partition]
    group = F.xxhash64(F.lit(salt), *partition, F.col(BUCKET))
    key = F.xxhash64(*(_column(name) for name in config.record_key_fields))
    place = group.bitwiseAND(F.lit(~_KEY_MASK)).bitwiseOR(key.bitwiseAND(F.lit(_KEY_MASK)))
    is_tiny = estimated_bytes(frame) <= TINY_BYTES
    frame = frame.withColumn(PLACE, place)
    return _together(frame, is_tiny=is_tiny).sortWithinPartitions(PLACE)


def _together(frame: DataFrame, *, is_tiny: bool) -> DataFrame:
    if is_tiny:
        return frame.coalesce(1)
    group = F.shiftright(F.col(PLACE), KEY_BITS)
    conf = frame.sparkSession.conf
    if conf.get("spark.sql.adaptive.enabled", "true") == "true":
        return frame.repartition(group)
    tasks = int(conf.get("spark.sql.shuffle.partitions", "200") or 200)
    return frame.repartition(min(tasks, _TASKS_WITHOUT_ADAPTING), group)


def estimated_bytes(frame: DataFrame) -> float:
    """How much Spark thinks the frame holds; much where it does not know. Nothing is evaluated."""
    try:
        rows = frame.sparkSession.sql("EXPLAIN COST SELECT * FROM {rows}", rows=frame).collect()
    except (PySparkException, TypeError, NotImplementedError):
        return float("inf")  # an older Connect takes no frames in SQL
    plan = rows[0][0].partition("\n\n")[0]
    found = _ESTIMATE.search(plan)
    nodes = {line.lstrip(" :+-").partition(" ")[0] for line in plan.splitlines()[1:]}
    if found is None or not nodes <= _MEASURED:
        return float("inf")
    return float(found[1]) * 2.0 ** _UNITS[found[2] or ""]


# ---- buckets


def _bucket(frame: DataFrame, config: TableConfig, schema: pa.Schema) -> Column:
    assert config.buckets is not None
    names = config.record_key_fields
    text = _text(names[0], schema.field(names[0]).type)
    is_plain = len(names) == 1 and config.key_generator is not KeyGenerator.COMPLEX
    if is_plain and text is not None and _may_reflect(frame.sparkSession):
        return _hashed(text, names[0], config.buckets.count)
    columns = []
    for name in names:
        type_ = schema.field(name).type
        text = _text(name, type_)
        columns.append(_as_stored(name, type_) if text is None else text)
    return bucket_function(config)(*columns)


def _hashed(text: Column, name: str, count: int) -> Column:
    """As `simple_bucket.bucket_ids`, for a key of one field.

    A key that looks like several fields, this one among them, is hashed by parts.
    """
    text = F.coalesce(text, F.lit(""))
    call = F.call_function("java_method", F.lit("java.util.Objects"), F.lit("hashCode"), text)
    hash_ = call.cast("bigint") + F.lit(31)
    bucket = (hash_.bitwiseAND(F.lit(0x7FFFFFFF)) % F.lit(count)).cast("int")
    named = text.startswith(f"{name}:") | text.contains(f",{name}:")
    return F.when(named & text.contains(","), F.lit(NO_BUCKET)).otherwise(bucket)


def _text(name: str, type_: pa.DataType) -> Column | None:
    """The text that the record key has of a column; None where Spark's may be another."""
    if pa.types.is_decimal(type_):
        return None
    column = _column(name)
    if pa.types.is_timestamp(type_):
        micros = F.unix_micros(column) if type_.tz else F.expr(_LOCAL_MICROS.format(quoted(name)))
        return micros.cast("string")
    return _as_stored(name, type_).cast("string")


def _as_stored(name: str, type_: pa.DataType) -> Column:
    """The column as the table has it; null where it does not fit, which the task then refuses."""
    stored = spark_type(type_, name).simpleString()
    return F.expr(f"try_cast({quoted(name)} AS {stored})")


#: Microseconds since 1970 of a time without a zone, piece by piece: most functions would take it
#: for one of the session's zone.
_LOCAL_MICROS = (
    "unix_date(to_date({0})) * 86400000000L + hour({0}) * 3600000000L + minute({0}) * 60000000L"
    " + cast(extract(SECOND FROM {0}) * 1000000L AS bigint)"
)


def _partition_text(name: str) -> Column:
    """Equal wherever the partition path is."""
    text = _column(name).cast("string")
    return F.coalesce(F.when(text != "", text), F.lit(DEFAULT_PARTITION))


def _column(name: str) -> Column:
    return F.col(quoted(name))


def quoted(name: str) -> str:
    """A column's name in SQL."""
    return f"`{name.replace('`', '``')}`"


_reflecting: WeakKeyDictionary[SparkSession, bool] = WeakKeyDictionary()


def _may_reflect(session: SparkSession) -> bool:
    """Whether SQL may call Java's methods; some platforms forbid it. Asked once of a session."""
    if session not in _reflecting:
        call = "SELECT java_method('java.util.Objects', 'hashCode', 'a')"
        try:
            _reflecting[session] = session.sql(call).collect()[0][0] == "97"
        except PySparkException:
            _reflecting[session] = False
    return _reflecting[session]
