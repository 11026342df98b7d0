"""A read that has been planned: pinned to the files it needs, and ready to return its rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, Literal, overload

import pyarrow as pa

from pyhudi.api.inputs import checked_limit
from pyhudi.api.polars_source import lazy_frame
from pyhudi.errors import InvalidRequestError
from pyhudi.plan.scan import ScanPlan
from pyhudi.progress import ProgressBoard
from pyhudi.read.counting import count_rows
from pyhudi.read.slice import read_rows
from pyhudi.storage.protocol import Storage

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from duckdb import DuckDBPyConnection, DuckDBPyRelation
    from pyspark.sql import DataFrame, SparkSession


class Scan:
    """The rows of one read. It is pinned: writes that complete later do not change it.

    Rows come in no particular order. Each `to_` method reads again.
    """

    def __init__(
        self,
        storage: Storage,
        plan: ScanPlan,
        watch: Callable[[], ProgressBoard] | None = None,
        limit: int | None = None,
    ) -> None:
        """With `watch`, a result that is read as a whole reports its progress."""
        self.storage = storage
        self._plan = plan
        self._watch = watch
        self._limit = None if limit is None else checked_limit(limit)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_watch": None}  # the listener of this process is not sent

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return self._plan.spec.output

    @property
    def plan(self) -> ScanPlan:
        """Which file slices are read, and how."""
        return self._plan

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield record batches, one slice after the other, in bounded memory."""
        return read_rows(self.storage, self._plan, self._limit)

    def count(self) -> int:
        """Return the number of rows.

        The footers of base files without logs have it. Of other slices the keys are read, and of
        all of them the columns of a predicate.
        """
        if self._limit is not None:  # reading stops there
            return sum(batch.num_rows for batch in self.to_batches())
        return count_rows(self.storage, self._plan)

    def head(self, rows: int = 10) -> pa.Table:
        """Return the first rows that are found, as an Arrow table; reading stops there."""
        wanted = checked_limit(rows)
        limit = wanted if self._limit is None else min(wanted, self._limit)
        return pa.Table.from_batches(read_rows(self.storage, self._plan, limit), self.schema)

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return an Arrow stream, by which pyarrow, Polars, DuckDB, pandas and DataFusion read."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        if self._watch is None:
            return self.to_reader().read_all()
        with self._watch() as board:
            return pa.Table.from_batches(board.counting(self.to_batches()), self.schema)

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """Return a pandas DataFrame; the options are those of `pyarrow.Table.to_pandas`."""
        return self.to_arrow().to_pandas(**options)

    @overload
    def to_polars(self, *, lazy: Literal[False] = False) -> pl.DataFrame: ...

    @overload
    def to_polars(self, *, lazy: Literal[True]) -> pl.LazyFrame: ...

    @overload
    def to_polars(self, *, lazy: bool) -> pl.DataFrame | pl.LazyFrame: ...

    def to_polars(self, *, lazy: bool = False) -> pl.DataFrame | pl.LazyFrame:
        """Return a Polars DataFrame, or with `lazy` a LazyFrame that reads when it is collected.

        A LazyFrame reads the columns that its query uses and skips partitions, files and row groups
        by its filters, as far as docs/predicates.md supports them; its rows come in batches.
        """
        try:
            import polars as pl
        except ModuleNotFoundError as error:
            raise _not_installed("polars") from error
        if lazy:
            return lazy_frame(self.storage, self._plan, self._limit)
        return pl.DataFrame(self.to_arrow())

    def to_duckdb(self, connection: DuckDBPyConnection | None = None) -> DuckDBPyRelation:
        """Return a DuckDB relation over the rows, which come in batches while a query runs.

        Each query over it reads again. Without a connection it belongs to DuckDB's default one.
        """
        try:
            import duckdb
        except ModuleNotFoundError as error:
            raise _not_installed("duckdb") from error
        return (connection or duckdb).from_arrow(self)

    def to_spark(
        self, spark: SparkSession | None = None, *, native_schemes: Collection[str] = ("file",)
    ) -> DataFrame:
        """Return a Spark DataFrame, read in Spark's tasks; in the active session by default.

        `native_schemes` are those that this Spark can open by itself, with its own credentials. Its
        own parquet scan then reads slices without logs. Add "s3", "gs" or "az" if Spark can open
        them.
        """
        from pyhudi.spark.scan import spark_frame

        frame = spark_frame(self.storage, self._plan, spark, native_schemes)
        return frame if self._limit is None else frame.limit(self._limit)

    def __repr__(self) -> str:
        slices = self._plan.reads
        size = sum(read.slice.bytes for read in slices)
        return f"<{type(self).__name__} of {len(slices)} file slices, {size:,} bytes>"


def _not_installed(library: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"the rows cannot be given to {library}",
        why=f"the library {library!r} is not installed",
        next_step=f"Install it with pip install {library}, or call to_arrow()",
    )


class Changes(Scan):
    """The rows that the writes of a time range left behind.

    `until` is the completion time up to which the changes are complete. Pass it as the next
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
