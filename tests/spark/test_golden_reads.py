"""Every read that Apache Hudi recorded of its own tables, by Spark."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, TimestampType

import pyhudi
from golden_reads import differences, hudi_options, keep_score, recorded_reads
from golden_tables import NAMES, GoldenTables

pytestmark = [pytest.mark.spark, pytest.mark.conformance]

#: What Spark 3.5 has to pass: logs, compaction, types, evolution, partial updates, hive style.
ON_SPARK_35 = {
    "cow_hive_style_v8",
    "cow_schema_evolved",
    "mor_all_types",
    "mor_compacted",
    "mor_partial_update",
    "mor_schema_evolved",
}


def in_utc(value: Any, kind: DataType) -> Any:
    """Spark collects timestamps in this process's zone, without saying so."""
    match kind:
        case _ if value is None:
            return None
        case TimestampType():
            return value.astimezone(dt.UTC)
        case ArrayType():
            return [in_utc(item, kind.elementType) for item in value]
        case MapType():
            return {key: in_utc(item, kind.valueType) for key, item in value.items()}
        case StructType():
            pairs = zip(kind.fields, value, strict=True)
            return {field.name: in_utc(item, field.dataType) for field, item in pairs}
    return value


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.spark35] if n in ON_SPARK_35 else []) for n in NAMES],
)
def test_every_recorded_read_gives_hudis_rows_in_spark(
    golden: GoldenTables, spark: SparkSession, name: str
) -> None:
    table = pyhudi.open_table(golden.path(name))
    reads = recorded_reads(golden.description(name))
    wrong = {}
    for read in reads:
        frame = table.read_with_hudi_options(hudi_options(read["how"])).to_spark(spark)
        rows = [in_utc(row, frame.schema) for row in frame.collect()]
        if difference := differences(read["rows"], rows):
            wrong[read["name"]] = difference
    keep_score(f"spark {spark.version}", name, len(reads) - len(wrong), len(reads))
    assert not wrong
