"""Splitting rows by their owners, each part in the order of the rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_SHORT_MAX: Final = np.iinfo(np.int16).max


def split_rows(
    rows: pa.RecordBatch, owners: npt.NDArray[np.int32]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of each owner, owners by number."""
    for owner, indices in indices_by_owner(owners):
        yield owner, rows if len(indices) == rows.num_rows else rows.take(pa.array(indices))


def indices_by_owner(
    owners: npt.NDArray[np.int32],
) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Yield the indices of each owner in growing order, owners by number.

    >>> [(owner, i.tolist()) for owner, i in indices_by_owner(np.array([2, 0, 2, 0], np.int32))]
    [(0, [1, 3]), (2, [0, 2])]
    """
    if len(owners) and owners.max() <= _SHORT_MAX:  # numpy sorts short numbers by their digits
        owners = owners.astype(np.int16)
    order = np.argsort(owners, kind="stable")
    starts = np.flatnonzero(np.diff(owners[order], prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        yield int(owners[order[start]]), order[start:end]
