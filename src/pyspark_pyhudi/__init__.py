"""Spark 4 looks for packages called `pyspark_*` and registers their `DefaultSource`."""

from pyspark_pyhudi.source import PyhudiSource as DefaultSource

__all__ = ["DefaultSource"]
