"""What to delete: keys with their partitions and ordering values, found where they were not given.

On a table that merges by event time a delete has a time as well: it removes what is older, and a
row that is newer stays, whatever is written first. The caller gives that ordering value, or it is
looked up: the value of the row to be deleted, which that delete then beats and a newer one does
not. A delete without a value beats everything that was written before it, also rows that its
author never saw; it is written only when asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequestError
from pyhudi.format.table.table_config import TableConfig
from pyhudi.index.routing import Place, latest_per_key, refuse_null_ordering
from pyhudi.index.simple_bucket import bucket_ids
from pyhudi.table.rows.input_rows import conformed
from pyhudi.table.rows.partition_paths import partition_paths
from pyhudi.table.rows.record_keys import record_keys
from pyhudi.table.schema import META_COLUMNS, PARTITION_PATH, RECORD_KEY
from pyhudi.write.buffer import GatheredDeletes, ordering_columns
from pyhudi.write.files.spec import DeleteRows


def lookup_columns(config: TableConfig) -> list[str]:
    """What `looked_up` needs of the rows that are to be deleted."""
    return [RECORD_KEY, PARTITION_PATH, *ordering_columns(config, config.ordering_fields)]


def given_keys(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, config: TableConfig
) -> pa.Table:
    """The caller's keys as a table with `RECORD_KEY`, and what else it was given of
    `lookup_columns`."""
    return pa.concat_tables([keyed_rows(batch, schema, config) for batch in batches])


def keyed_rows(batch: pa.RecordBatch, schema: pa.Schema, config: TableConfig) -> pa.Table:
    """One batch of `given_keys`; InvalidRequestError if its columns are not what is needed."""
    given = batch.schema.names
    batch = batch.select([place for place, n in enumerate(given) if n not in META_COLUMNS])
    names = [name for name in schema.names if name in batch.schema.names]
    missing = [name for name in config.record_key_fields if name not in names]
    unknown = [name for name in batch.schema.names if name not in names]
    if missing or unknown:
        what = f"{missing[0]!r} is missing" if missing else f"{unknown[0]!r} is not in the table"
        raise InvalidRequestError(
            "these keys cannot be deleted",
            why=f"the column {what}",
            next_step=f"Give the columns {', '.join(config.record_key_fields)}, and if they are"
            " known those of the partition and the ordering",
        )
    rows = conformed(batch, pa.schema([schema.field(name) for name in names]))
    columns: dict[str, pa.Array] = {RECORD_KEY: record_keys(rows, config)}
    if set(config.partition_fields) <= set(names):
        columns[PARTITION_PATH] = partition_paths(rows, config).cast(pa.string())
    ordering = ordering_columns(config, config.ordering_fields)
    if ordering and set(ordering) <= set(names):
        refuse_null_ordering(rows, ordering)
        columns.update({name: rows.column(name) for name in ordering})
    return pa.table(columns)


def is_located(keys: pa.Table, config: TableConfig, *, unconditional: bool) -> bool:
    """Whether nothing has to be looked up."""
    needed = {RECORD_KEY, PARTITION_PATH}
    if not unconditional:
        needed |= set(ordering_columns(config, config.ordering_fields))
    return needed <= set(keys.column_names)


def looked_up(keys: pa.Table, rows: Iterable[pa.RecordBatch], config: TableConfig) -> pa.Table:
    """The keys with partition and ordering value of the rows that are there; others fall away.

    `rows` have the `lookup_columns` of the table as it is. What the caller gave stays.
    """
    by_partition = PARTITION_PATH in keys.column_names
    keys = _one_per_key(keys, config, by_partition=by_partition)
    wanted = _joint(keys) if by_partition else keys.column(RECORD_KEY).combine_chunks()
    found = [_matching(batch, wanted, keys, by_partition=by_partition) for batch in rows]
    if not found:
        return keys.slice(0, 0)
    return pa.concat_tables(found)


def _one_per_key(keys: pa.Table, config: TableConfig, *, by_partition: bool) -> pa.Table:
    """Of deletes of one key, the one that beats most."""
    if not keys.num_rows:
        return keys
    names = _joint(keys) if by_partition else keys.column(RECORD_KEY).combine_chunks()
    ordering = [
        name
        for name in ordering_columns(config, config.ordering_fields)
        if name in keys.column_names
    ]
    rows = keys.combine_chunks().to_batches()[0]
    _, kept = latest_per_key(names, rows, ordering, event_time=bool(ordering))
    return pa.Table.from_batches([kept])


def _joint(rows: pa.Table | pa.RecordBatch) -> pa.Array:
    """Key and partition in one text: a line break cannot be in a partition path."""
    path = rows.column(PARTITION_PATH)
    joint = pc.binary_join_element_wise(path, rows.column(RECORD_KEY), "\n")
    return joint.combine_chunks() if isinstance(joint, pa.ChunkedArray) else joint


def _matching(
    batch: pa.RecordBatch, wanted: pa.Array, keys: pa.Table, *, by_partition: bool
) -> pa.Table:
    present = _joint(batch) if by_partition else batch.column(RECORD_KEY)
    place = pc.index_in(present, value_set=wanted)
    hit = place.is_valid()
    rows = pa.Table.from_batches([batch]).filter(hit)
    given = keys.take(place.filter(hit))
    for name in keys.column_names:
        if name not in (RECORD_KEY, PARTITION_PATH):
            rows = rows.set_column(rows.column_names.index(name), name, given.column(name))
    return rows


def gathered_deletes(
    keys: pa.Table, config: TableConfig, *, unconditional: bool
) -> GatheredDeletes:
    """The deletes by partition and bucket."""
    assert config.buckets is not None
    if not keys.num_rows:
        return GatheredDeletes({})
    record = keys.column(RECORD_KEY).combine_chunks()
    buckets = np.asarray(bucket_ids(record, config.buckets.hash_fields, config.buckets.count))
    path = keys.column(PARTITION_PATH).combine_chunks().dictionary_encode()
    codes = np.asarray(path.indices, np.int64) * config.buckets.count + buckets
    ordering = (
        None if unconditional else _ordering(keys, ordering_columns(config, config.ordering_fields))
    )
    return GatheredDeletes(dict(_groups(record, path.dictionary, codes, ordering, config)))


def _ordering(keys: pa.Table, names: Sequence[str]) -> pa.Array | None:
    columns = [keys.column(name).combine_chunks() for name in names]
    if len(columns) > 1:
        return pa.StructArray.from_arrays(columns, names=list(names))
    return columns[0] if columns else None


def _groups(
    record: pa.Array,
    paths: pa.Array,
    codes: np.ndarray[tuple[int], np.dtype[np.int64]],
    ordering: pa.Array | None,
    config: TableConfig,
) -> Iterator[tuple[Place, DeleteRows]]:
    assert config.buckets is not None
    order = np.argsort(codes, kind="stable")
    sorted_codes = codes[order]
    starts = np.flatnonzero(np.diff(sorted_codes, prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(codes)], strict=True):
        partition, bucket = divmod(int(sorted_codes[start]), config.buckets.count)
        rows = pa.array(order[start:end])
        values = None if ordering is None else ordering.take(rows)
        yield (paths[partition].as_py(), bucket), DeleteRows(record.take(rows), values)
