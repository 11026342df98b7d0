"""Spark 4 looks for packages called `pyspark_*` and registers their `DefaultSource`.

Spark 3.5 has no such sources, and this package then has none.
"""

from importlib.util import find_spec

if find_spec("pyspark.sql.datasource") is not None:
    from pyspark_pyhudi.source import PyhudiSource as DefaultSource

    __all__ = ["DefaultSource"]
