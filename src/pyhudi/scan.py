"""A read that has been planned: pinned to the files it needs, and ready to give its rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyhudi.engine.tasks import read_split
from pyhudi.plan.scan import ScanPlan
from pyhudi.progress import ProgressBoard
from pyhudi.storage.protocol import Storage

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from pyspark.sql import DataFrame, SparkSession


class Scan:
    """The rows of one read. Pinned: writes that complete later do not change it.

    Rows come in no particular order. Each `to_` method reads anew.
    """

    def __init__(
        self, storage: Storage, plan: ScanPlan, watch: Callable[[], ProgressBoard] | None = None
    ) -> None:
        """With `watch`, a result that is read as a whole reports its progress."""
        self.storage = storage
        self._plan = plan
        self._watch = watch

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_watch": None}  # a terminal stays where it is

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return self._plan.spec.output

    @property
    def plan(self) -> ScanPlan:
        """Which file slices are read, and how."""
        return self._plan

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Record batches, one slice after the other, in bounded memory."""
        for split in self._plan.splits():
            yield from read_split(self.storage, self._plan.spec, split)

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """So that pyarrow, Polars, DuckDB, pandas and DataFusion take a scan as it is."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        if self._watch is None:
            return self.to_reader().read_all()
        with self._watch() as board:
            return pa.Table.from_batches(board.counting(self.to_batches()), self.schema)

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """A pandas DataFrame; the options are those of `pyarrow.Table.to_pandas`."""
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> pl.DataFrame:
        import polars as pl

        return pl.DataFrame(self.to_arrow())

    def to_spark(
        self, spark: SparkSession | None = None, *, native_schemes: Collection[str] = ("file",)
    ) -> DataFrame:
        """A Spark DataFrame, read in Spark's tasks; in the active session by default.

        `native_schemes` are those that this Spark can open by itself, with its own credentials:
        slices without logs then go through its own parquet scan. Add "s3", "gs" or "az" where
        it can.
        """
        from pyhudi.engine.spark.scan import spark_frame

        return spark_frame(self.storage, self._plan, spark, native_schemes)

    def __repr__(self) -> str:
        slices = self._plan.reads
        size = sum(read.slice.bytes for read in slices)
        return f"<{type(self).__name__} of {len(slices)} file slices, {size:,} bytes>"


class Changes(Scan):
    """The rows that the writes of a time range left behind.

    `until` is the completion time up to which the changes are complete: pass it as the next
    `since`, and every write is seen exactly once.
    """

    def __init__(
        self,
        storage: Storage,
        plan: ScanPlan,
        since: str,
        until: str,
        watch: Callable[[], ProgressBoard] | None = None,
    ) -> None:
        super().__init__(storage, plan, watch)
        self.since = since
        self.until = until
