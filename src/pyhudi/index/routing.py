"""From rows to the file groups they belong in.

A row belongs to the partition of its path and to the bucket of its record key there. `placed` takes
a batch apart into these groups, in the order of (partition, bucket), so that the same rows always
make the same files; within a group, rows keep the order in which they came. `latest_per_key` then
leaves one row of each key, the one that merging them would leave: a write that holds a key twice
must not depend on how it is cut into blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequestError
from pyhudi.format.table.table_config import TableConfig
from pyhudi.index.simple_bucket import bucket_ids
from pyhudi.table.ordering import dense_ranks
from pyhudi.table.rows.bad_rows import sample, true_rows
from pyhudi.table.rows.partition_paths import partition_paths
from pyhudi.table.rows.record_keys import record_keys

Place = tuple[str, int]  # partition, bucket


@dataclass(frozen=True, slots=True)
class Placed:
    """The rows of a batch that belong to one bucket of one partition."""

    partition: str
    bucket: int
    keys: pa.StringArray
    rows: pa.RecordBatch


def placed(
    batch: pa.RecordBatch, config: TableConfig, bucket_count: int, hash_fields: Sequence[str] = ()
) -> Iterator[Placed]:
    """The batch in groups of one partition and bucket each, ordered by both.

    Without hash fields the bucket depends on all record key fields. A wrong row is found before
    the first group is given.
    """
    fields = _hash_fields(config, hash_fields)
    keys = record_keys(batch, config)
    paths = partition_paths(batch, config)
    buckets = np.asarray(bucket_ids(keys, fields, bucket_count))
    return _groups(batch, keys, paths, buckets, bucket_count)


def _hash_fields(config: TableConfig, hash_fields: Sequence[str]) -> Sequence[str]:
    """Hudi's default is the record key fields by name, which is not the same as no names."""
    if others := [name for name in hash_fields if name not in config.record_key_fields]:
        raise InvalidRequestError(
            f"rows cannot be put in buckets by {others[0]!r}",
            why=f"it is none of the record key fields {', '.join(config.record_key_fields)}",
            next_step="Give hash fields that are part of the record key",
        )
    return hash_fields or config.record_key_fields


def _groups(
    batch: pa.RecordBatch,
    keys: pa.StringArray,
    paths: pa.DictionaryArray,
    buckets: npt.NDArray[np.int32],
    bucket_count: int,
) -> Iterator[Placed]:
    by_path = pc.sort_indices(paths.dictionary)
    rank = np.empty(len(by_path), np.int64)
    rank[np.asarray(by_path)] = np.arange(len(by_path))
    codes = rank[np.asarray(paths.indices)] * bucket_count + buckets
    order = np.argsort(codes, kind="stable")
    codes = codes[order]
    if (np.diff(order) != 1).any():  # rows that are in order already need no copy
        keys, batch = keys.take(pa.array(order)), batch.take(pa.array(order))
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    names = paths.dictionary.take(by_path)
    for start, end in pairwise([*starts.tolist(), len(codes)]):
        partition, bucket = divmod(int(codes[start]), bucket_count)
        yield Placed(names[partition].as_py(), bucket, keys[start:end], batch[start:end])


def latest_per_key(
    keys: pa.StringArray, rows: pa.RecordBatch, ordering_fields: Sequence[str], *, event_time: bool
) -> tuple[pa.StringArray, pa.RecordBatch]:
    """One row of each key, in the order they came.

    Under event time it is the one with the greatest ordering value, the later of equals; under
    commit time it is the last.
    """
    kept = latest_places(keys, rows, ordering_fields if event_time else ())
    if kept is None:
        return keys, rows
    return keys.take(pa.array(kept)), rows.take(pa.array(kept))


def latest_places(
    keys: pa.StringArray, rows: pa.RecordBatch, ordering_fields: Sequence[str]
) -> npt.NDArray[np.int64] | None:
    """Where the latest row of each key is, in the order they came; None if each key is there once.

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
    """InvalidRequestError if some row has no ordering value: Hudi could not merge it.

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
