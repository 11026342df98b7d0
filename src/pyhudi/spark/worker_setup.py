"""Python workers of Spark: which Python runs them, and what each does before its first task."""

from __future__ import annotations

import gc
import os
from functools import lru_cache

from pyspark.sql import SparkSession


def worker_python(session: SparkSession) -> str:
    """Return the Python that Spark starts on executors, as an error names it."""
    if type(session).__module__.startswith("pyspark.sql.connect"):
        return "which Spark's server chooses"
    return os.environ.get("PYSPARK_PYTHON") or "python3 (PYSPARK_PYTHON is not set)"


@lru_cache(maxsize=1)
def spare_modules() -> None:
    """Exclude the loaded modules from garbage collection.

    Spark collects garbage after every task. With Arrow and pandas loaded, most of that time is
    spent on their modules. It takes longer than the whole work of a small task.
    """
    gc.freeze()
