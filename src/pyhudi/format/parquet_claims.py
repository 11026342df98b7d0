"""What a parquet footer claims, judged before any page is inflated.

A few kilobytes of parquet can stand for gigabytes of zeros. The footer says how large the columns
are once inflated, and a claim out of proportion to the file is refused while it is still only a
claim. A footer that understates its pages gets by: what it can do is then bounded by the number of
its pages, each of which holds at most 2 GiB.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow.parquet as pq


def excessive_claim(file: pq.ParquetFile, columns: Collection[str], bytes_max: int) -> str | None:
    """Why reading these top-level columns may take too much memory; None if it will not."""
    footer = file.metadata
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    chunks = [group.column(number) for group in groups for number in range(group.num_columns)]
    claimed = sum(
        chunk.total_uncompressed_size
        for chunk in chunks
        if chunk.path_in_schema.partition(".")[0] in columns
    )
    if claimed > bytes_max or footer.num_rows > bytes_max:
        return f"{footer.num_rows} rows and {claimed} bytes are claimed; at most {bytes_max} may be"
    return None
