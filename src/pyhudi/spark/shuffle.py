"""The shuffle: bring the rows of a file group together in one task, sorted.

The write's `Routing` decides where a row goes, and the tasks use it. For the shuffle, Spark has to
compute the same ordinal beforehand. Tasks compute it again for some rows and refuse a difference.

Simple buckets are the same number in each partition. The ordinal is then a hash of the record key
modulo that number, computed in the JVM if the result is certain: the index hashes Java's hash of
the key's text, and Spark can call the same method (`java_method`), so no row is sent to Python for
it. Keys of several fields, and decimals, are hashed by a vectorised function of pyhudi that gets
only the key columns.

Consistent buckets need each partition's ring, and a hash that Spark cannot call. That function then
gets the partition columns, too, and reads the rings of the partitions that it meets. Whichever task
meets a new partition first creates its ring, for what the whole input seems to bring there.

The *sort key* is one number to shuffle and to sort by (see `sorted_groups`). It is salted with the
instant, so that two groups whose hashes coincide once do not always do so.

Spark's adaptive execution sizes the tasks once it knows how many bytes there are. An input that
Spark knows to be tiny skips the shuffle and is written by one task.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from pyhudi.format.table.bucket_config import TARGET_BYTES
from pyhudi.format.table.table_config import KeyGenerator, TableConfig
from pyhudi.index.layout import SimpleLayout
from pyhudi.index.routing import Routing
from pyhudi.spark.bucket_udf import bucket_function
from pyhudi.spark.types import spark_type
from pyhudi.spark.write_task import BUCKET, NO_BUCKET, SORT_KEY
from pyhudi.table.partitions import DEFAULT_PARTITION
from pyhudi.write.sorted_groups import KEY_BITS

#: An input that Spark estimates below this is written by one task, without a shuffle.
TINY_BYTES: Final = 1 << 20
#: The maximum number of tasks if Spark does not size them itself.
_TASKS_WITHOUT_ADAPTING = 32
#: What an input is taken to bring whose size Spark does not know: some buckets for a table without
#: partitions, one for each of many.
_UNKNOWN_BYTES = 8 * TARGET_BYTES
_KEY_MASK = (1 << KEY_BITS) - 1
_ESTIMATE = re.compile(r"sizeInBytes=([0-9.]+) ([KMGTPE]i)?B")
_UNITS = {"": 0, "Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


#: Nodes of a plan whose output Spark does not estimate too low. Other nodes may make many rows of
#: few, or take long for each: functions over Arrow or pandas, `explode`.
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


def routed(
    frame: DataFrame,
    config: TableConfig,
    schema: pa.Schema,
    routing: Routing,
    *,
    salt: str,
    by_partition: bool,
) -> DataFrame:
    """Return the frame with bucket and sort key, shuffled and sorted by it.

    A tiny frame is returned as it is, in one task, which then uses the routing itself.
    """
    size = estimated_bytes(frame)
    if size <= TINY_BYTES:
        return frame.coalesce(1)
    fields = config.partition_fields if by_partition else ()
    frame = frame.withColumn(BUCKET, bucket_column(frame, config, schema, routing, fields, size))
    partition = [_partition_text(name) for name in fields]
    group = ", ".join([_literal(salt), *partition, BUCKET])
    key = _key_text(config, schema)
    sort_key = f"(xxhash64({group}) & {~_KEY_MASK}L) | (xxhash64({key}) & {_KEY_MASK}L)"
    return _together(frame.withColumn(SORT_KEY, F.expr(sort_key))).sortWithinPartitions(SORT_KEY)


def _together(frame: DataFrame) -> DataFrame:
    group = F.expr(f"shiftright({SORT_KEY}, {KEY_BITS})")
    conf = frame.sparkSession.conf
    if conf.get("spark.sql.adaptive.enabled", "true") == "true":
        return frame.repartition(group)
    tasks = int(conf.get("spark.sql.shuffle.partitions", "200") or 200)
    return frame.repartition(min(tasks, _TASKS_WITHOUT_ADAPTING), group)


def estimated_bytes(frame: DataFrame) -> float:
    """Return Spark's estimate of the frame's size; infinity if unknown. Nothing is evaluated."""
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


# ---- buckets. Expressions are SQL texts, because each is one call to the JVM, however long.


def bucket_column(
    frame: DataFrame,
    config: TableConfig,
    schema: pa.Schema,
    routing: Routing,
    partition_fields: Sequence[str] = (),
    size: float = 0.0,
) -> Column:
    """Return the ordinal that the routing gives a row, by record key and partition alone."""
    layout = routing.shared
    names = config.record_key_fields
    if layout is None:
        names = tuple(dict.fromkeys((*names, *partition_fields)))
    texts = [_text(name, schema.field(name).type) for name in names]
    is_plain = len(names) == 1 and config.key_generator is not KeyGenerator.COMPLEX
    count = layout.buckets.count if isinstance(layout, SimpleLayout) else None
    if count and is_plain and texts[0] is not None and _may_reflect(frame.sparkSession):
        return F.expr(_hashed(texts[0], names[0], count))
    columns = (F.expr(stored_text(name, schema.field(name).type)) for name in names)
    known = _UNKNOWN_BYTES if size == float("inf") else size
    return bucket_function(config, routing, names, known)(*columns)


def _hashed(text: str, name: str, count: int) -> str:
    """Return the SQL of `SimpleLayout.assign`, for a key of one field.

    A key that looks like several fields, this one among them, is hashed by its parts.
    """
    text = f"coalesce({text}, '')"
    hash_ = f"cast(java_method('java.util.Objects', 'hashCode', {text}) AS bigint) + 31L"
    named = (
        f"startswith({text}, {_literal(name + ':')}) OR contains({text}, {_literal(f',{name}:')})"
    )
    return (
        f"CASE WHEN contains({text}, ',') AND ({named}) THEN {NO_BUCKET}"
        f" ELSE cast((({hash_}) & 2147483647L) % {count} AS int) END"
    )


def _key_text(config: TableConfig, schema: pa.Schema) -> str:
    """Return SQL for a text that is equal if the record keys are, even of different values."""
    names = config.record_key_fields
    parts = []
    for name in names:
        type_ = schema.field(name).type
        text = _text(name, type_) or f"cast({_as_stored(name, type_)} AS string)"
        if len(names) > 1:
            text = f"coalesce(if({text} = '', '__empty__', {text}), '__null__')"
        parts += [_literal(f",{name}:"), text]
    return parts[1] if len(names) == 1 else f"concat({', '.join(parts)})"


def _text(name: str, type_: pa.DataType) -> str | None:
    """Return SQL for the column's text in the record key; None if Spark's text may differ."""
    if pa.types.is_decimal(type_):
        return None
    if pa.types.is_timestamp(type_):
        form = "unix_micros({0})" if type_.tz else _LOCAL_MICROS
        return f"cast({form.format(quoted(name))} AS string)"
    return f"cast({_as_stored(name, type_)} AS string)"


def stored_text(name: str, type_: pa.DataType) -> str:
    """Return SQL for the column's text in keys and paths, or for its value if that is certain."""
    return _text(name, type_) or _as_stored(name, type_)


def _as_stored(name: str, type_: pa.DataType) -> str:
    """Return SQL for the column in the table's type; null, which tasks refuse, if it cannot be."""
    return f"try_cast({quoted(name)} AS {spark_type(type_, name).simpleString()})"


#: Microseconds since 1970 of a time without a zone, computed from its fields: most functions would
#: read it in the session's zone.
_LOCAL_MICROS = (
    "unix_date(to_date({0})) * 86400000000L + hour({0}) * 3600000000L + minute({0}) * 60000000L"
    " + cast(extract(SECOND FROM {0}) * 1000000L AS bigint)"
)


def _partition_text(name: str) -> str:
    """Return SQL for a text that is equal if the partition paths are."""
    text = f"cast({quoted(name)} AS string)"
    return f"coalesce(nullif({text}, ''), '{DEFAULT_PARTITION}')"


def quoted(name: str) -> str:
    """Return a column's name in SQL."""
    return f"`{name.replace('`', '``')}`"


def _literal(text: str) -> str:
    """Return a text in SQL, by its bytes: what a backslash means depends on the configuration."""
    return f"cast(X'{text.encode().hex()}' AS string)"


_reflecting: WeakKeyDictionary[SparkSession, bool] = WeakKeyDictionary()


def _may_reflect(session: SparkSession) -> bool:
    """True if SQL may call Java's methods, which some platforms forbid. Tested once a session."""
    if session not in _reflecting:
        call = "SELECT java_method('java.util.Objects', 'hashCode', 'a')"
        try:
            _reflecting[session] = session.sql(call).collect()[0][0] == "97"
        except PySparkException:
            _reflecting[session] = False
    return _reflecting[session]
