"""Opening and creating a table by what the caller asks for."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from pyhudi.api.inputs import (
    chosen_enum,
    chosen_word,
    optional_word,
    parse_buckets,
    parse_schema,
    parse_settings,
    parse_upkeep_choice,
    storage_at,
    table_name,
)
from pyhudi.api.table import Table
from pyhudi.format.lock.lock_address import parse_lock_address
from pyhudi.format.lock.lock_kind import LockKind, parse_lock_kind
from pyhudi.format.table.bucket_config import Buckets
from pyhudi.format.table.concurrency_mode import ConcurrencyMode
from pyhudi.format.table.conflict_strategy import Strategy
from pyhudi.format.table.merge_rules import MergeMode
from pyhudi.format.table.table_config import TableConfig, TableType
from pyhudi.plan.table_definition import TableDefinition
from pyhudi.plan.upkeep import Upkeep, first_upkeep
from pyhudi.progress import Listener, progress_listener
from pyhudi.read.load import TableLoader, load_config
from pyhudi.read.load import is_table as is_table_at
from pyhudi.session.create import create_table_files
from pyhudi.session.open import OpenTable, Overrides
from pyhudi.settings import WriteSettings
from pyhudi.storage.locks.open_lock import open_lock
from pyhudi.storage.objects.column_owners import declare_owners
from pyhudi.table.rows.storable_types import storable_schema
from pyhudi.world import real_world

Columns = str | Sequence[str]


def open_table(
    uri: str | PathLike[str],
    *,
    storage_options: Mapping[str, str] | None = None,
    write_settings: WriteSettings | None = None,
    buckets: int | Buckets | None = None,
    lock: str | None = None,
    lock_options: Mapping[str, object] | None = None,
    upkeep: Upkeep | bool | None = None,
    progress: bool | Listener | None = None,
) -> Table:
    """Open the Hudi table at a path or URI (local disk, s3://, gs://, az://).

    Raises UnsupportedTableError, naming the feature, if pyhudi cannot read its rows exactly.
    `buckets`, `lock` and `lock_options` are for writing tables that another engine created and
    whose properties do not record them. `progress` is called with a Progress now and then while a
    write, a read of a whole result or a compaction runs. Without it, a line on the terminal shows
    the progress; False silences that. After a write, services that are due run by the policy that
    the table records; `upkeep=False` leaves them to other processes (docs/services.md).
    """
    choice, storage = parse_upkeep_choice(upkeep), storage_at(uri, storage_options)
    config = load_config(storage)
    kind = None if lock is None else parse_lock_kind(lock)
    address = parse_lock_address(kind or config.lock, lock_options, config.name)
    overrides = Overrides(parse_buckets(buckets), kind, address)
    opening = OpenTable(storage, real_world(), parse_settings(write_settings), overrides)
    listener = progress_listener(progress, sys.stderr)
    return Table(TableLoader(storage, config), opening, choice, listener)


def create_table(
    uri: str | PathLike[str],
    schema: Any,
    *,
    record_key: Columns,
    buckets: int | Buckets | None = None,
    partition_by: Columns = (),
    ordering: Columns = (),
    name: str | None = None,
    table_type: str = "mor",
    version: int = 9,
    merge_mode: str | None = None,
    hive_style: bool = False,
    url_encode: bool = False,
    concurrency: str | None = None,
    conflict_strategy: str = "bucket",
    lock: str | None = None,
    lock_options: Mapping[str, object] | None = None,
    owners: Mapping[str, Sequence[str]] | None = None,
    storage_options: Mapping[str, str] | None = None,
    write_settings: WriteSettings | None = None,
    upkeep: Upkeep | bool | None = None,
    progress: bool | Listener | None = None,
    exist_ok: bool = False,
) -> Table:
    """Create a Hudi table, or with `exist_ok` open the same one if it exists.

    `schema` is a schema or a frame of Arrow, Spark, pandas or Polars; no rows of a frame are read.
    `buckets` is a number for each partition, which never changes, or a `ConsistentBuckets`, the
    default for merge on read without a `lock`. With `ordering` the row with the greatest value wins
    (event time) and writers never block each other; without it the last commit wins and writers of
    one bucket conflict. `table_type` is "mor" or "cow", `merge_mode` "event_time" or "commit_time",
    `concurrency` "non_blocking" or "optimistic", `conflict_strategy` "bucket", "simple" or
    "prefer_writer" (docs/concurrency.md). `lock` and `lock_options` are for tables with a Java
    writer (docs/locks.md). An existing table may have any lock and buckets that are not given here.
    For `owners` see docs/partial_updates.md, for `upkeep` services.md. Processes may race.
    """
    choice, storage = parse_upkeep_choice(upkeep), storage_at(uri, storage_options)
    name = table_name(uri) if name is None else name
    definition = TableDefinition.of(
        name,
        storable_schema(parse_schema(schema)),
        record_key=record_key,
        partition_by=partition_by,
        ordering=ordering,
        buckets=parse_buckets(buckets),
        table_type=chosen_word("table_type", table_type, _TABLE_TYPES),
        version=version,
        merge_mode=optional_word("merge_mode", merge_mode, _MERGE_MODES),
        hive_style=hive_style,
        url_encode=url_encode,
        concurrency=optional_word("concurrency", concurrency, _CONCURRENCY),
        conflict_strategy=chosen_enum("conflict_strategy", conflict_strategy, Strategy),
        owners=owners,
        **_asked_lock(lock, lock_options, name, choice),
    )
    opening = OpenTable(storage, real_world(), parse_settings(write_settings), Overrides())
    config = _created(opening, definition, exist_ok, {"lock": lock, "buckets": buckets})
    loader, listener = TableLoader(storage, config), progress_listener(progress, sys.stderr)
    return Table(loader, opening, choice, listener)


def _asked_lock(
    lock: str | None,
    options: Mapping[str, object] | None,
    table_name: str,
    upkeep: Upkeep | bool | None,
) -> dict[str, Any]:
    """Return the lock that is asked for, and the maintenance policy: its default depends on it."""
    kind = LockKind.NONE if lock is None else parse_lock_kind(lock)
    address = parse_lock_address(kind, options, table_name)
    return {"lock": kind, "lock_address": address, "upkeep": first_upkeep(upkeep, kind)}


def _created(
    opening: OpenTable,
    definition: TableDefinition,
    exist_ok: bool,
    given: Mapping[str, object],
) -> TableConfig:
    storage, world = opening.storage, opening.world
    # Refuses a lock that this storage cannot have, or whose library is missing.
    open_lock(definition.lock, storage, world, address=definition.lock_address)
    left_open = {part for part, asked in given.items() if asked is None}
    config = create_table_files(storage, definition, world, exist_ok=exist_ok, left_open=left_open)
    if definition.owners is not None:
        declare_owners(storage, definition.owners)
    return config


_TABLE_TYPES = {"mor": TableType.MERGE_ON_READ, "cow": TableType.COPY_ON_WRITE}
_MERGE_MODES = {
    "event_time": MergeMode.EVENT_TIME_ORDERING,
    "commit_time": MergeMode.COMMIT_TIME_ORDERING,
}
_CONCURRENCY = {
    "non_blocking": ConcurrencyMode.NON_BLOCKING,
    "optimistic": ConcurrencyMode.OPTIMISTIC,
}


def is_table(uri: str | PathLike[str], *, storage_options: Mapping[str, str] | None = None) -> bool:
    """True if there is a Hudi table of any version at the path or URI."""
    return is_table_at(storage_at(uri, storage_options))
