"""`spark.read.format("pyhudi")` and `df.write.format("pyhudi")`: Spark 4's Python Data Source.

Spark finds it by itself, through the package `pyspark_pyhudi`. It asks for the schema, the
partitions, a writer and its commit in separate processes, so each of them opens the table again.
"""

from __future__ import annotations

from pyspark.sql import datasource as api
from pyspark.sql.types import StructType

from pyhudi.spark.types import spark_schema
from pyspark_pyhudi.address import PATH
from pyspark_pyhudi.catalog import is_for_catalog, options_of, recorded_in_schema, user_options
from pyspark_pyhudi.reader import PushdownReader, PyhudiReader, opened_table
from pyspark_pyhudi.writer import PyhudiWriter

#: "true" if `spark.sql.python.filterPushdown.enabled` is: see `PushdownReader`.
FILTER_PUSHDOWN = "filter_pushdown"


class PyhudiSource(api.DataSource):
    """A Hudi table by its path and Hudi's own options."""

    @classmethod
    def name(cls) -> str:
        return "pyhudi"

    def schema(self) -> StructType:
        options = dict(self.options)
        for_catalog = is_for_catalog(options)
        if for_catalog:
            options = user_options(options)
        table, others = opened_table(options)
        others.pop(FILTER_PUSHDOWN, None)
        schema = spark_schema(table.read_with_hudi_options(others).schema)
        return recorded_in_schema(schema, table.uri, options) if for_catalog else schema

    def reader(self, schema: StructType) -> api.DataSourceReader:
        options = dict(self.options)
        if PATH not in options:
            options = {**options_of(schema), **options}
        pushdown = options.pop(FILTER_PUSHDOWN, "false").lower() == "true"
        return (PushdownReader if pushdown else PyhudiReader)(options, schema.names)

    def writer(self, schema: StructType, overwrite: bool) -> api.DataSourceWriter:
        return PyhudiWriter(dict(self.options), schema, overwrite=overwrite)
