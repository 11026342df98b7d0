"""Whether the table that exists is the requested one and, if not, in what it differs.

The name is not compared, because a table that was moved or copied keeps the old one. Nor is the
order of columns, or anything that the caller of `create_table` cannot choose.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

import pyarrow as pa

from pyhudi.format.table.bucket_config import ConsistentBuckets, SimpleBuckets
from pyhudi.format.table.bucket_migration import MigratingBuckets, agrees
from pyhudi.format.table.column_owners import RANK_COLUMN
from pyhudi.format.table.conflict_strategy import Strategy
from pyhudi.format.table.table_config import TableConfig
from pyhudi.plan.table_definition import TableDefinition

_COLUMNS_MAX = 5  # of a schema that is wholly different, in an error


def definition_differences(requested: TableDefinition, found: TableConfig) -> tuple[str, ...]:
    """Return a phrase for each choice that differs from the table's; () if none does."""
    buckets, strategy = (found.buckets, found.conflict_strategy)
    if agrees(buckets, requested.buckets):
        buckets = requested.buckets
    if isinstance(found.buckets, MigratingBuckets):
        strategy = _judged_by(requested, found)  # it follows from the kind of buckets
    compared: dict[str, tuple[object, object]] = {
        "owners of columns": (
            "declared" if RANK_COLUMN in found.ordering_fields else "none",
            "declared" if requested.owners is not None else "none",
        ),
        "database": (found.database, requested.database),
        "table type": (found.table_type, requested.table_type),
        "table version": (found.version, requested.version),
        "record key": (found.record_key_fields, requested.record_key),
        "partition columns": (found.partition_fields, requested.partition_by),
        "key generator": (found.key_generator, requested.key_generator),
        "ordering": (found.ordering_fields, requested.ordering),
        "merge mode": (found.merge_mode, requested.merge_mode),
        "hive style partitions": (found.hive_style, requested.hive_style),
        "URL encoded partitions": (found.url_encode, requested.url_encode),
        "buckets": (buckets, requested.buckets),
        "concurrency mode": (found.concurrency, requested.concurrency),
        "conflict strategy": (strategy, _judged_by(requested, found)),
        "lock": (found.lock, requested.lock),
        "address of the lock": (found.lock_address, requested.lock_address),
    }
    return tuple(
        f"{what}: {_shown(there)} in the table, {_shown(here)} requested"
        for what, (there, here) in compared.items()
        if there != here
    )


def _judged_by(requested: TableDefinition, found: TableConfig) -> Strategy:
    strategy = found.conflict_strategy
    return strategy if requested.is_judged_by(strategy) else requested.judged_by


def schema_differences(
    requested: pa.Schema, found: pa.Schema, *, nulls: bool = True
) -> tuple[str, ...]:
    """Return a phrase for each column that one of them lacks or has otherwise.

    Without `nulls` it does not matter which columns may be null.
    """
    phrases = [*_column_differences(requested, found, nulls=nulls)]
    more = len(phrases) - _COLUMNS_MAX
    return (*phrases[:_COLUMNS_MAX], *([f"{more} more columns differ"] if more > 0 else []))


def _column_differences(requested: pa.Schema, found: pa.Schema, *, nulls: bool) -> Iterator[str]:
    there, here = ({field.name: field for field in schema} for schema in (found, requested))
    for name in there:
        if name not in here:
            yield f"column {name!r} is in the table, and was not requested"
    for name, field in here.items():
        if name not in there:
            yield f"column {name!r} is not in the table"
        elif not there[name].type.equals(field.type):
            yield f"column {name!r} is {there[name].type}, not {field.type}"
        elif nulls and there[name].nullable != field.nullable:
            yield f"column {name!r} {'may' if there[name].nullable else 'may not'} be null"


def _shown(value: object) -> str:
    match value:
        case SimpleBuckets(count, hash_fields):
            return f"{count} by {', '.join(hash_fields)}"
        case ConsistentBuckets(initial, least, most, hash_fields):
            shown = f"consistent from {initial} (min={least}, max={most})"
            return f"{shown} by {', '.join(hash_fields)}"
        case MigratingBuckets(before, after):
            return f"{_shown(before)}, being migrated to {_shown(after)}"
        case tuple():
            return ", ".join(value) or "none"
        case Enum():
            return str(value.value)
        case None | "":
            return "not stated"
    return str(value)
