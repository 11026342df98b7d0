"""What to delete: keys with partitions and ordering values, which are looked up if not given.

On a table that merges by event time a delete has a time, too. It removes older rows, and a newer
row stays, whichever is written first. The caller gives that ordering value, or the value of the row
to be deleted is looked up: the delete beats that row, but not a newer one. A delete without a value
beats everything that was written before it, also rows that its author never saw. It is written only
if the caller asks for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequestError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.table_config import TableConfig
from pyhudi.index.routing import PreparedBatch, Routing
from pyhudi.table.large_columns import one_batch
from pyhudi.table.rows.input_rows import conformed
from pyhudi.table.rows.latest import latest_per_key, ordering_columns, refuse_null_ordering
from pyhudi.table.rows.partition_paths import partition_paths
from pyhudi.table.rows.record_keys import record_keys
from pyhudi.table.schema import META_COLUMNS, PARTITION_PATH, RECORD_KEY
from pyhudi.write.files.spec import DeleteRows


def lookup_columns(config: TableConfig) -> list[str]:
    """Return the columns of the rows to be deleted that `looked_up` needs."""
    return [RECORD_KEY, PARTITION_PATH, *ordering_columns(config, config.ordering_fields)]


def keyed_rows(batch: pa.RecordBatch, schema: pa.Schema, config: TableConfig) -> pa.Table:
    """Return the caller's keys as a table with `RECORD_KEY` and those of `lookup_columns` given.

    Raise InvalidRequestError if a needed column is missing, or one is not in the table.
    """
    given = batch.schema.names
    batch = batch.select([at for at, n in enumerate(given) if n not in META_COLUMNS])
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


def are_located(given: Collection[str], config: TableConfig, *, unconditional: bool) -> bool:
    """True if keys that come with these columns of the table need not be looked up."""
    needed = set(config.partition_fields)
    if not unconditional:
        needed |= set(ordering_columns(config, config.ordering_fields))
    return needed <= set(given)


def is_located(keys: pa.Table, config: TableConfig, *, unconditional: bool) -> bool:
    """True if the keys have all columns that a delete needs."""
    needed = {RECORD_KEY, PARTITION_PATH}
    if not unconditional:
        needed |= set(ordering_columns(config, config.ordering_fields))
    return needed <= set(keys.column_names)


def looked_up(keys: pa.Table, rows: Iterable[pa.RecordBatch], config: TableConfig) -> pa.Table:
    """Return the keys with partition and ordering value of the rows that exist; drop the others.

    `rows` have the `lookup_columns` of the table as it is. Values that the caller gave stay.
    """
    by_partition = PARTITION_PATH in keys.column_names
    keys = _one_per_key(keys, config, by_partition=by_partition)
    wanted = _joint(keys) if by_partition else keys.column(RECORD_KEY).combine_chunks()
    found = [_matching(batch, wanted, keys, by_partition=by_partition) for batch in rows]
    if not found:
        return keys.slice(0, 0)
    return pa.concat_tables(found)


def _one_per_key(keys: pa.Table, config: TableConfig, *, by_partition: bool) -> pa.Table:
    """Return for each key the delete that removes most."""
    if not keys.num_rows:
        return keys
    names = _joint(keys) if by_partition else keys.column(RECORD_KEY).combine_chunks()
    ordering = [
        name
        for name in ordering_columns(config, config.ordering_fields)
        if name in keys.column_names
    ]
    rows = keys.combine_chunks().to_batches()[0]
    _, latest = latest_per_key(names, rows, ordering, event_time=bool(ordering))
    return pa.Table.from_batches([latest])


def _joint(rows: pa.Table | pa.RecordBatch) -> pa.Array:
    """Return key and partition as one text. A partition path cannot contain a line break."""
    path = rows.column(PARTITION_PATH)
    joint = pc.binary_join_element_wise(path, rows.column(RECORD_KEY), "\n")
    return joint.combine_chunks() if isinstance(joint, pa.ChunkedArray) else joint


def _matching(
    batch: pa.RecordBatch, wanted: pa.Array, keys: pa.Table, *, by_partition: bool
) -> pa.Table:
    present = _joint(batch) if by_partition else batch.column(RECORD_KEY)
    at = pc.index_in(present, value_set=wanted)
    hit = at.is_valid()
    rows = pa.Table.from_batches([batch]).filter(hit)
    given = keys.take(at.filter(hit))
    for name in keys.column_names:
        if name not in (RECORD_KEY, PARTITION_PATH):
            rows = rows.set_column(rows.column_names.index(name), name, given.column(name))
    return rows


@dataclass(frozen=True, slots=True)
class LocatedDeletes:
    """Deletes with all that they need: `RECORD_KEY`, `PARTITION_PATH` and ordering columns."""

    keys: pa.Table
    unconditional: bool

    def partitions(self) -> list[str]:
        if not self.keys.num_rows:
            return []
        return sorted(self.keys.column(PARTITION_PATH).unique().to_pylist())

    def split(self, config: TableConfig, routing: Routing) -> dict[FileGroupId, DeleteRows]:
        """Return the deletes of each file group, in the order of the groups."""
        if not self.keys.num_rows:
            return {}
        ordering = ordering_columns(config, config.ordering_fields)
        if self.unconditional:
            ordering = ()
        wanted = self.keys.select([RECORD_KEY, PARTITION_PATH, *ordering])
        rows = one_batch(wanted.to_batches())
        keys, paths = rows.column(RECORD_KEY), rows.column(PARTITION_PATH).dictionary_encode()
        # Only the columns that a delete has besides its key: they are copied, and deletes are many.
        batch = PreparedBatch(rows.select(list(ordering or [RECORD_KEY])), keys, paths)
        return {
            part.group: DeleteRows(part.keys, _ordering(part.rows, ordering))
            for part in routing.split(batch)
        }


def _ordering(rows: pa.RecordBatch, names: Sequence[str]) -> pa.Array | None:
    columns = [rows.column(name) for name in names]
    if len(columns) > 1:
        return pa.StructArray.from_arrays(columns, names=list(names))
    return columns[0] if columns else None
