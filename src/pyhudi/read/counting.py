"""How many rows a read has, found with the fewest bytes.

The footer of a base file has the number, if there are no logs and every row counts. Elsewhere the
rows are read, but only the columns that the merge and the predicate need.
"""

from __future__ import annotations

from pyhudi.errors import CorruptTableError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.plan.scan import ReadSpec, ScanPlan, SliceRead, Split, counting
from pyhudi.read.slice import load_base_row_count, read_split
from pyhudi.storage.protocol import Storage


def count_rows(storage: Storage, plan: ScanPlan) -> int:
    narrow = counting(plan)
    return sum(_rows_of(storage, narrow.spec, read) for read in narrow.reads)


def rows_of_slices(storage: Storage, plan: ScanPlan) -> dict[FileGroupId, int | CorruptTableError]:
    """Return how many rows each slice of a plan has, or why it cannot be read."""
    narrow = counting(plan)
    found: dict[FileGroupId, int | CorruptTableError] = {}
    for read in narrow.reads:
        group = FileGroupId(read.slice.partition, read.slice.file_id)
        try:
            found[group] = _rows_of(storage, narrow.spec, read)
        except CorruptTableError as error:
            found[group] = error
    return found


def _rows_of(storage: Storage, spec: ReadSpec, read: SliceRead) -> int:
    takes_all = spec.predicate is None and spec.row_instants is None
    if takes_all and not read.slice.logs and read.slice.base is not None:
        return load_base_row_count(storage, read.slice.base)
    return sum(batch.num_rows for batch in read_split(storage, spec, Split((read,))))
