"""Ordinals of rows as a Spark function: over Arrow arrays if Spark can, else over pandas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from pyhudi.errors import HudiError
from pyhudi.format.table.table_config import TableConfig
from pyhudi.index.routing import PreparedBatch, Routing
from pyhudi.spark.write_task import NO_BUCKET
from pyhudi.table.rows.partition_paths import partition_paths
from pyhudi.table.rows.record_keys import record_keys, rows_without_key
from pyhudi.write.row_shape import UNKNOWN_PARTITION

try:
    import pandas
except ImportError:  # only Spark 3.5 needs it, and reports this itself
    pandas = None


class _Buckets:
    """Computes the ordinals of key and partition columns, a batch at a time, in a Python worker."""

    def __init__(
        self, config: TableConfig, routing: Routing, names: Sequence[str], size: float
    ) -> None:
        """Take columns of these names; new partitions are laid out for rows of `size` bytes."""
        self._config = config
        self._routing = routing
        self._names = list(names)
        self._size = size

    def __call__(self, *columns: pa.Array) -> pa.Array:
        # Texts may arrive as large ones, and a pandas column of nulls without a type.
        columns = tuple(c if pa.types.is_decimal(c.type) else c.cast(pa.string()) for c in columns)
        batch = pa.RecordBatch.from_arrays(list(columns), names=self._names)
        try:
            return pa.array(self._ordinals(batch))
        except HudiError:
            # Some rows have no certain key or partition. The task that gets one reports all its
            # columns.
            fit = ~np.asarray(rows_without_key(batch, self._config)) & ~self._unplaceable(batch)
            buckets = np.full(batch.num_rows, NO_BUCKET, np.int32)
            buckets[fit] = self._ordinals(batch.filter(pa.array(fit)))
            return pa.array(buckets)

    @property
    def _partition_fields(self) -> list[str]:
        """The partition columns, if rows come with them."""
        fields = self._config.partition_fields
        return list(fields) if set(fields) <= set(self._names) else []

    def _ordinals(self, batch: pa.RecordBatch) -> npt.NDArray[np.int32]:
        keys = record_keys(batch, self._config)
        if (shared := self._routing.shared) is not None:
            return shared.assign(keys)
        if self._partition_fields or not self._config.partition_fields:
            paths = partition_paths(batch, self._config)
        else:
            paths = pa.array([UNKNOWN_PARTITION] * len(keys)).dictionary_encode()
        return self._routing.ordinals(PreparedBatch(batch, keys, paths), self._size)

    def _unplaceable(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Return which rows have a value that cannot be a partition."""
        found = np.zeros(batch.num_rows, np.bool_)
        for name in self._partition_fields:
            encoded = batch.column(name).dictionary_encode()
            wrong = [n for n in range(len(encoded.dictionary)) if self._is_wrong(name, encoded, n)]
            found |= np.isin(encoded.indices.to_numpy(zero_copy_only=False), wrong)
        return found

    def _is_wrong(self, name: str, encoded: pa.DictionaryArray, n: int) -> bool:
        value = encoded.dictionary[n : n + 1]
        columns = [value if name == other else pa.nulls(1, pa.string()) for other in self._names]
        try:
            partition_paths(pa.RecordBatch.from_arrays(columns, names=self._names), self._config)
        except HudiError:
            return True
        return False


def bucket_function(
    config: TableConfig, routing: Routing, names: Sequence[str], size: float
) -> Callable[..., Column]:
    """Return a function of these columns, as texts or as they are, to the ordinal.

    They are those of the record key, and of the partition if rows come with it. New partitions are
    laid out for rows of `size` bytes in all.
    """
    buckets = _Buckets(config, routing, names, size)

    # Spark finds the types of the arguments by these hints.
    def over_arrays(*columns: pa.Array) -> pa.Array:
        return buckets(*columns)

    def over_series(*columns: pandas.Series) -> pandas.Series:
        return buckets(*map(pa.Array.from_pandas, columns)).to_pandas()

    api: Any = F  # its overloads have no function of any number of columns
    made: Callable[..., Column] = (
        api.arrow_udf(over_arrays, "int")
        if hasattr(F, "arrow_udf")
        else api.pandas_udf(over_series, "int")
    )
    return made
