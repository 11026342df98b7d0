"""The table that a save goes to: opened, or created from the options and the frame's columns."""

from __future__ import annotations

from pyspark.sql.types import StructType

from pyhudi.errors import InvalidRequestError
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.bucket_config import ConsistentBuckets
from pyhudi.format.table.table_config import TableType
from pyhudi.hudi_options.resize_options import new_upkeep, warn_of_other_resizes
from pyhudi.hudi_options.write_options import (
    HudiWrite,
    Operation,
    refuse_contradictions,
    refuse_incomplete_table,
)
from pyhudi.plan.table_definition import TableDefinition, legal_table_name
from pyhudi.read.load import is_table, load_config
from pyhudi.session.create import create_table_files
from pyhudi.session.open import OpenTable, Overrides
from pyhudi.spark.types import arrow_schema
from pyhudi.storage.locks.open_lock import open_lock
from pyhudi.storage.open import open_storage
from pyhudi.storage.protocol import Storage
from pyhudi.table.rows.storable_types import storable_schema
from pyhudi.table.schema import META_COLUMNS
from pyhudi.world import World
from pyspark_pyhudi.address import Address


def opened_table(address: Address, save: HudiWrite, schema: StructType, world: World) -> OpenTable:
    """Return the table at the address, for a write; create it if there is none."""
    storage = open_storage(address.uri, address.storage_options)
    if not is_table(storage):
        _create(storage, address.uri, save, schema, world)
    config, table = load_config(storage), save.table
    refuse_contradictions(save, config)
    warn_of_other_resizes(save.resizing, config)
    lock_address = table.lock_address(table.lock or config.lock, config.name)
    # What the options leave open of rings that the table records is not another kind of them.
    has_rings = isinstance(config.buckets, ConsistentBuckets)
    buckets = None if has_rings else table.buckets
    return OpenTable(storage, world, save.settings, Overrides(buckets, table.lock, lock_address))


def _create(storage: Storage, uri: str, save: HudiWrite, schema: StructType, world: World) -> None:
    if save.operation is Operation.DELETE:
        load_config(storage)  # raises: there is nothing to delete from
    refuse_incomplete_table(save)
    table = save.table
    if table.table_type is TableType.COPY_ON_WRITE:
        raise InvalidRequestError(
            'a copy-on-write table cannot be written by df.write.format("pyhudi")',
            why="all rows of a bucket must be in one task, which this path cannot arrange",
            next_step="Write table = pyhudi.create_table(..., table_type='cow') and"
            " table.upsert(df), or leave the table type out, so that it is merge on read",
        )
    data = StructType([field for field in schema.fields if field.name not in META_COLUMNS])
    name = table.name or legal_table_name(uri.rstrip("/").rpartition("/")[2])
    lock = table.lock or LockKind.NONE
    definition = TableDefinition.of(
        name,
        storable_schema(arrow_schema(data)),
        record_key=table.record_key or (),
        partition_by=table.partition_by or (),
        ordering=table.ordering or (),
        buckets=table.buckets,
        table_type=table.table_type or TableType.MERGE_ON_READ,
        version=table.version or 9,
        merge_mode=table.merge_mode,
        hive_style=bool(table.hive_style),
        url_encode=bool(table.url_encode),
        concurrency=table.concurrency,
        lock=lock,
        lock_address=table.lock_address(lock, name),
        database=table.database or "",
        upkeep=new_upkeep(save.resizing, lock),
    )
    # Refuses a kind of lock that this storage cannot have.
    open_lock(definition.lock, storage, world, address=definition.lock_address)
    given = (("lock", table.lock), ("buckets", table.buckets))
    left_open = {part for part, asked in given if asked is None}
    create_table_files(storage, definition, world, exist_ok=True, left_open=left_open)
