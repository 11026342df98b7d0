"""How many rows of a frame go to which file group? One job, which only counts.

The frame is evaluated once, for its record key and its partition columns: Spark need not compute
the others. Buckets are computed as for the shuffle of a write (`spark.shuffle`), and the rows are
counted by partition and bucket, so that what comes back is as many rows as there are file groups.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from pyhudi.errors import InvalidRequestError
from pyhudi.index.routing import Targets
from pyhudi.spark.shuffle import bucket_column, estimated_bytes, quoted, stored_text
from pyhudi.spark.types import empty_batch
from pyhudi.spark.write_task import BUCKET, NO_BUCKET
from pyhudi.table.rows.partition_paths import partition_paths
from pyhudi.write.preview.places import Placement, RowCounts
from pyhudi.write.row_shape import row_shape

_ROWS: Final = "__pyhudi_rows"


def counted(frame: DataFrame, placement: Placement) -> RowCounts:
    """Count the rows of the frame by file group.

    Raise InvalidRequestError if its columns are not those that the write needs, or if rows have no
    certain bucket. How many bytes the rows have is not known.
    """
    intent, config = placement.intent, placement.session.config
    assert intent.rows is not None
    shape, schema = row_shape(intent.change, intent.rows, config), intent.rows.rows.arrow
    frame = frame.selectExpr(*map(quoted, shape.columns(frame.columns)))
    shape.prepare(empty_batch(frame.schema))
    fields, routing = config.partition_fields, placement.routing
    texts = [F.expr(stored_text(name, schema.field(name).type)).alias(name) for name in fields]
    size = estimated_bytes(frame) if routing.shared is None else 0.0
    bucket = bucket_column(frame, config, schema, routing, fields, size).alias(BUCKET)
    by = [*map(quoted, fields), BUCKET]
    found = frame.select(*texts, bucket).groupBy(*by).agg(F.count(F.lit(1)).alias(_ROWS)).collect()
    if odd := sum(row[_ROWS] for row in found if row[BUCKET] == NO_BUCKET):
        raise InvalidRequestError(
            f"{odd} rows cannot be placed",
            why="their record key or partition is missing, or has no certain place",
            next_step="Write them to see which they are; nothing of a refused write is visible",
        )
    ordinals = np.array([row[BUCKET] for row in found], np.int32)
    types = (schema.field(name).type for name in fields)
    columns = [
        pa.array([row[name] for row in found], type_ if pa.types.is_decimal(type_) else pa.string())
        for name, type_ in zip(fields, types, strict=True)
    ]
    batch = pa.RecordBatch.from_arrays([*columns, pa.array(ordinals)], names=[*fields, BUCKET])
    targets = Targets(routing, partition_paths(batch, config), ordinals)
    counts = RowCounts()
    for number, row in enumerate(found):
        counts.rows[targets.group(number)] += row[_ROWS]
    return counts
