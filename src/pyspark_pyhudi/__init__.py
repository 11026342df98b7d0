"""Spark 4 looks for packages called `pyspark_*` and registers their `DefaultSource`."""

from pyhudi.engine.spark.datasource import PyhudiSource as DefaultSource

__all__ = ["DefaultSource"]
