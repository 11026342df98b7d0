"""How many rows of a parquet file make a batch: many, but no more bytes than fit in memory.

A batch crosses row groups, so their size bounds nothing. The footer records the size of encoded
values; a column of few distinct values takes more in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow.parquet as pq

BATCH_BYTES = 64 * 1024 * 1024


def batch_rows(
    metadata: pq.FileMetaData, groups: Sequence[int], names: Collection[str], rows_max: int
) -> int:
    """Return the number of rows whose columns have about `BATCH_BYTES`, `rows_max` at most."""
    found = [metadata.row_group(group) for group in groups]
    rows: int = sum(group.num_rows for group in found)
    if sum(group.total_byte_size for group in found) * rows_max <= BATCH_BYTES * rows:
        return rows_max  # even with all columns: the common case, which looks at no column
    bytes_: int = sum(
        chunk.total_uncompressed_size
        for group in found
        for chunk in map(group.column, range(group.num_columns))
        if chunk.path_in_schema.partition(".")[0] in names
    )
    return max(1, min(rows_max, BATCH_BYTES * rows // max(bytes_, 1)))
