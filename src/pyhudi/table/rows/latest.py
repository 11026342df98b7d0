"""Which row of a key counts, of those that one write holds?

It is the row that merging them would leave: a write that holds a key twice must not depend on how
it is cut into blocks. Under event time that is the row with the greatest ordering value, the later
of equals; under commit time it is the last.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyhudi.errors import InvalidRequestError
from pyhudi.format.table.merge_rules import MergeMode
from pyhudi.format.table.table_config import TableConfig
from pyhudi.table.ordering import dense_ranks
from pyhudi.table.rows.bad_rows import sample, true_rows


def ordering_columns(config: TableConfig, names: Collection[str]) -> tuple[str, ...]:
    """Return the columns that order rows of these columns; none where the commit decides."""
    is_event_time = config.merge_mode is MergeMode.EVENT_TIME_ORDERING
    ordered = is_event_time and set(config.ordering_fields) <= set(names)
    return config.ordering_fields if ordered else ()


def latest_per_key(
    keys: pa.StringArray, rows: pa.RecordBatch, ordering_fields: Sequence[str], *, event_time: bool
) -> tuple[pa.StringArray, pa.RecordBatch]:
    """Return one row of each key, in the order they came."""
    kept = latest_indices(keys, rows, ordering_fields if event_time else ())
    if kept is None:
        return keys, rows
    return keys.take(pa.array(kept)), rows.take(pa.array(kept))


def latest_indices(
    keys: pa.StringArray, rows: pa.RecordBatch, ordering_fields: Sequence[str]
) -> npt.NDArray[np.int64] | None:
    """Return the index of each key's latest row, ascending; None if each key is there once.

    Without ordering fields the last one is the latest.
    """
    encoded = keys.dictionary_encode()
    if len(encoded.dictionary) == len(keys):
        return None
    order = np.arange(len(keys))
    if ordering_fields:
        ranks = dense_ranks([rows.column(name) for name in ordering_fields])
        order = np.argsort(ranks, kind="stable")
    winners = np.empty(len(encoded.dictionary), np.int64)
    winners[np.asarray(encoded.indices)[order]] = order  # the last assignment stays
    return np.sort(winners)


def refuse_null_ordering(batch: pa.RecordBatch, fields: Sequence[str]) -> None:
    """Raise InvalidRequestError if some row has no ordering value: Hudi could not merge it.

    For tables under event time; elsewhere nothing depends on the values.
    """
    for name in fields:
        column = batch.column(name)
        if column.null_count:
            rows = true_rows(column.is_null())
            raise InvalidRequestError(
                f"{column.null_count} of {len(column)} rows have no ordering value",
                why=f"null in {name!r}: {sample(rows, {name: column})}",
                next_step="Give each row a value there, or leave these rows out",
            )
