"""A Spark frame that is played: its job runs in this process, in one task, without a JVM.

It answers the few public operations that a write of a tiny input asks of a frame. So a test can
follow such a write through storage, which real tasks do in processes of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

_ESTIMATE = "== Optimized Logical Plan ==\nLocalRelation [id], Statistics(sizeInBytes=64.0 B)\n\n"
_Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class _Session:
    """A session that has nothing to do."""

    def sql(self, text: str, **frames: Any) -> Any:
        assert text.startswith("EXPLAIN COST"), text
        return SimpleNamespace(collect=lambda: [(_ESTIMATE,)])

    def addTag(self, tag: str) -> None: ...  # noqa: N802  # as PySpark names it
    def removeTag(self, tag: str) -> None: ...  # noqa: N802
    def interruptTag(self, tag: str) -> None: ...  # noqa: N802


class DataFrame:
    """Rows that say they are Spark's."""

    __module__ = "pyspark.sql.played"

    sparkSession = _Session()  # noqa: N815

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self.schema = from_arrow_schema(rows.schema)
        self.columns = list(rows.schema.names)

    def coalesce(self, tasks: int) -> DataFrame:
        assert tasks == 1
        return self

    def selectExpr(self, *names: str) -> DataFrame:  # noqa: N802
        return DataFrame(self._rows.select([name.strip("`") for name in names]))

    def mapInArrow(self, task: _Task, schema: str) -> Any:  # noqa: N802
        def collect() -> list[dict[str, Any]]:
            found = task(iter(self._rows.to_batches()))
            return [row for batch in found for row in batch.to_pylist()]

        return SimpleNamespace(collect=collect)


def spark_frame(rows: pa.Table) -> Any:
    """Return the rows as a frame of a session that is played."""
    return DataFrame(rows)
