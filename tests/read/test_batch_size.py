"""Batches of base files: as many rows as make some MB, however wide the rows are."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyhudi.read.batch_size import BATCH_BYTES, batch_rows

ROWS = 12_000


@pytest.fixture(scope="module")
def wide() -> pq.ParquetFile:
    """Rows of 10 KB, all of them different, in row groups of 3,000."""
    texts = [f"{n:010d}" * 1000 for n in range(ROWS)]
    nested = pa.array([{"deep": n} for n in range(ROWS)])
    sink = io.BytesIO()
    table = pa.table({"id": range(ROWS), "text": texts, "nested": nested})
    pq.write_table(table, sink, row_group_size=3_000, compression="zstd")
    return pq.ParquetFile(io.BytesIO(sink.getvalue()))


def test_wide_rows_come_in_batches_of_bounded_bytes(wide: pq.ParquetFile) -> None:
    size = batch_rows(wide.metadata, range(4), wide.schema_arrow.names, 1 << 17)
    batches = list(wide.iter_batches(size))
    assert sum(batch.num_rows for batch in batches) == ROWS
    assert max(batch.nbytes for batch in batches) <= BATCH_BYTES * 1.1
    assert len(batches) < 5, "and of no fewer than need be"


@pytest.mark.parametrize("names", [["id"], ["nested"], ["id", "nested"]], ids=str)
def test_only_the_columns_that_are_read_count(wide: pq.ParquetFile, names: list[str]) -> None:
    assert batch_rows(wide.metadata, range(4), names, 1 << 17) == 1 << 17


def test_a_file_without_rows_has_batches_of_the_usual_size(wide: pq.ParquetFile) -> None:
    assert batch_rows(wide.metadata, [], ["id"], 1 << 17) == 1 << 17
