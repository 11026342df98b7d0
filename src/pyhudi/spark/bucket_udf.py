"""Ordinals of a layout as a Spark function: over Arrow arrays if Spark can, else over pandas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from pyhudi.errors import HudiError
from pyhudi.format.table.table_config import TableConfig
from pyhudi.index.layout import BucketLayout
from pyhudi.spark.write_task import NO_BUCKET
from pyhudi.table.rows.record_keys import record_keys, rows_without_key

try:
    import pandas
except ImportError:  # only Spark 3.5 needs it, and reports this itself
    pandas = None


class _Buckets:
    """Computes the ordinals of key columns, a batch at a time, in a Python worker."""

    def __init__(self, config: TableConfig, layout: BucketLayout) -> None:
        self._config = config
        self._layout = layout

    def __call__(self, *columns: pa.Array) -> pa.Array:
        config = self._config
        # Texts may arrive as large ones, and a pandas column of nulls without a type.
        columns = tuple(c if pa.types.is_decimal(c.type) else c.cast(pa.string()) for c in columns)
        batch = pa.RecordBatch.from_arrays(list(columns), names=list(config.record_key_fields))
        try:
            return pa.array(self._ordinals(batch))
        except HudiError:
            # Some rows have no certain key. The task that gets one reports all its columns.
            fit = ~np.asarray(rows_without_key(batch, config))
            buckets = np.full(batch.num_rows, NO_BUCKET, np.int32)
            buckets[fit] = self._ordinals(batch.filter(pa.array(fit)))
            return pa.array(buckets)

    def _ordinals(self, batch: pa.RecordBatch) -> npt.NDArray[np.int32]:
        return self._layout.assign(record_keys(batch, self._config))


def bucket_function(config: TableConfig, layout: BucketLayout) -> Callable[..., Column]:
    """Return a function of the record key's columns, as texts or as they are, to the ordinal."""
    buckets = _Buckets(config, layout)

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
