"""Why a table that can be read must not be written.

A reader may ignore what a writer may not: a metadata table that the write would make stale, change
files that it would leave out, rows that Java code would have merged. Each reason is named before
anything is written, with a remedy where there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pyhudi.errors import InvalidRequestError, UnsupportedTableError
from pyhudi.format.lock.lock_address import LockAddress
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.lock.lock_properties import LOCK_PROVIDER, has_recorded_lock, lock_properties
from pyhudi.format.table.bucket_config import (
    BUCKET_COUNT,
    Buckets,
    is_extendible,
)
from pyhudi.format.table.bucket_migration import MigratingBuckets, agrees, ring_settings
from pyhudi.format.table.concurrency_mode import ConcurrencyMode
from pyhudi.format.table.merge_rules import MergeMode
from pyhudi.format.table.properties import TableProperties
from pyhudi.format.table.table_config import KeyGenerator, TableConfig, TableType

_PLAIN_GENERATORS = frozenset(
    {KeyGenerator.SIMPLE, KeyGenerator.COMPLEX, KeyGenerator.NON_PARTITION}
)
_MODEL = "org.apache.hudi.common.model."
#: What an upgrade to version 9 leaves of classes that merge as the merge mode says.
_PLAIN_PAYLOADS = frozenset(
    {
        f"{_MODEL}DefaultHoodieRecordPayload",
        f"{_MODEL}EventTimeAvroPayload",
        f"{_MODEL}OverwriteWithLatestAvroPayload",
    }
)
_USE_HUDI = "Write it with Apache Hudi; docs/format.md lists what pyhudi supports"
_SWITCH_OFF = "Call table.alter.disable_metadata_table() once"
#: The call that gives a table another lock than the recorded one.
USE_LOCK: Final = "table.alter.use_lock(...)"


def with_overrides(
    config: TableConfig,
    buckets: Buckets | None,
    lock: LockKind | None,
    lock_address: LockAddress | None = None,
) -> TableConfig:
    """Return the configuration with the caller's overrides of what the table does not record.

    InvalidRequestError if the table records something else: all its writers must agree.
    """
    if buckets is not None:
        if not isinstance(buckets, Buckets):
            raise InvalidRequestError(
                f"buckets={buckets!r:.100} cannot be used",
                why="it is neither a SimpleBuckets nor a ConsistentBuckets",
                next_step="Write buckets=8, or buckets=pyhudi.ConsistentBuckets()",
            )
        resolved = buckets.resolved(config.record_key_fields)
        if config.buckets is None:
            config = replace(config, buckets=resolved)
        elif not agrees(config.buckets, resolved):
            raise _contradiction("buckets", resolved, config.buckets)
    if lock is not None:
        if has_recorded_lock(config) and lock is not config.lock:
            raise _contradiction("lock", lock.value, config.lock.value, _OR_USE_LOCK)
        config = replace(config, lock=lock)
    if lock_address is not None:
        if config.lock_address not in (None, lock_address):
            given, recorded = str(lock_address), str(config.lock_address)
            raise _contradiction("lock_options", given, recorded, _OR_USE_LOCK)
        config = replace(config, lock_address=lock_address)
    return config


_OR_USE_LOCK = f", or call {USE_LOCK} once if the table is to have this lock from now on"


def _contradiction(
    what: str, given: object, recorded: object, otherwise: str = ""
) -> InvalidRequestError:
    return InvalidRequestError(
        f"{what}={given!r} cannot be used with this table",
        why=f"the table itself says {recorded!r}, and all its writers must agree",
        next_step=f"Leave {what} out{otherwise}",
    )


def with_first_lock(values: Mapping[str, str], overrides: TableConfig) -> dict[str, str]:
    """Return the properties of a table that recorded no lock, with its first writer's.

    InvalidRequestError if they name another by now: of two first writers, one is refused.
    """
    found = TableConfig.of(TableProperties(values))
    with_overrides(found, None, overrides.lock, overrides.lock_address)
    if isinstance(found.buckets, MigratingBuckets):
        raise is_migrating(found, overrides.lock)
    recorded = lock_properties(overrides.lock, overrides.lock_address)
    provider = values.get(LOCK_PROVIDER)
    if provider not in (None, recorded[LOCK_PROVIDER]):
        raise InvalidRequestError(
            f"lock={overrides.lock.value!r} cannot be used with this table",
            why=f"its {LOCK_PROVIDER} is {provider}, and all its writers must agree",
            next_step=f"Name the lock that it has, or call {USE_LOCK} once if it is to have this",
        )
    return {**values, **recorded}


def is_migrating(config: TableConfig, kind: LockKind) -> InvalidRequestError:
    """Return the error for one of Hudi's locks on a table whose buckets are being migrated."""
    return InvalidRequestError(
        f"the lock of the table {config.name!r} was not changed to {kind.value!r}",
        why="its buckets are being migrated, and a Hudi writer would put rows into the wrong ones",
        next_step="Finish the migration with table.services.migrate_buckets(), and repeat the call",
    )


def refuse_unwritable(config: TableConfig) -> None:
    """Raise UnsupportedTableError with every reason why this table must not be written, if any."""
    hopeless = [reason for reason, applies in _obstacles(config).items() if applies]
    curable = _curable_obstacles(config)
    if hopeless or curable:
        raise UnsupportedTableError(
            f"the table {config.name!r} cannot be written",
            why="; ".join([*hopeless, *curable]),
            next_step=_USE_HUDI if hopeless else ". ".join(curable.values()),
        )


def _curable_obstacles(config: TableConfig) -> dict[str, str]:
    """Return the reasons that apply, each with what the table's owner can do about it."""
    found = {}
    # Being built or ready, it would miss what is written without it.
    if parts := (*config.metadata_partitions, *config.metadata_partitions_inflight):
        found[f"its metadata table is live ({', '.join(parts)})"] = _SWITCH_OFF
    return found


def _obstacles(config: TableConfig) -> dict[str, bool]:
    """Return the reasons for which there is no remedy here, and whether each applies."""
    merge, legacy = config.merge, config.legacy_payload_class
    copy_on_write = config.table_type is TableType.COPY_ON_WRITE
    return {
        "it captures changes (CDC), which pyhudi does not write": config.cdc_enabled,
        "it leaves partition columns out of its files": config.drop_partition_columns,
        f"its keys are made by the {config.key_generator} key generator": (
            config.key_generator not in _PLAIN_GENERATORS
        ),
        "it has no record key": not config.record_key_fields,
        "its records are merged by Java code": merge.mode is MergeMode.CUSTOM,
        f"its partial update mode is {merge.partial_update_mode}": (
            merge.partial_update_mode is not None
        ),
        f"it merges with {', '.join(merge.properties)}": bool(merge.properties),
        f"it was made for the payload class {legacy}": (
            legacy is not None and legacy not in _PLAIN_PAYLOADS
        ),
        "its writer may have put the key's column name before each key, or not (releases differ)": (
            config.version == 8
            and config.key_generator is KeyGenerator.COMPLEX
            and len(config.record_key_fields) == 1
            and BUCKET_COUNT not in config.properties.values
        ),
        "its buckets are those of extendible hashing": is_extendible(config.properties),
        "it is copy on write, and its buckets are those of consistent hashing": (
            copy_on_write and ring_settings(config.buckets) is not None
        ),
        "it is copy on write, and its concurrency mode is non-blocking": (
            copy_on_write and config.concurrency is ConcurrencyMode.NON_BLOCKING
        ),
    }
