"""What a table records of its lock: the kind, Hudi's class for it, and its address.

Beside our own key stand Hudi's, so that a Spark writer of the table takes the same lock, and
refuses to write if it is configured with another. Credentials are not recorded
(`format.lock.lock_address`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyhudi.format.lock.lock_address import (
    ADDRESS_OPTIONS,
    OPTION_PREFIXES,
    LockAddress,
    address_properties,
    recorded_lock_address,
)
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.table_config import LOCK_KIND, TableConfig

LOCK_PROVIDER: Final = "hoodie.write.lock.provider"

_LOCK_PACKAGE = "org.apache.hudi.client.transaction.lock."
_LOCK_PROVIDERS = {
    LockKind.FILE: f"{_LOCK_PACKAGE}FileSystemBasedLockProvider",
    LockKind.STORAGE: f"{_LOCK_PACKAGE}StorageBasedLockProvider",
    LockKind.ZOOKEEPER: f"{_LOCK_PACKAGE}ZookeeperBasedLockProvider",
    LockKind.DYNAMODB: "org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider",
}
_ALL_KEYS = {LOCK_KIND, LOCK_PROVIDER} | {
    f"{OPTION_PREFIXES[kind]}{name}" for kind, names in ADDRESS_OPTIONS.items() for name in names
}


def lock_properties(kind: LockKind, address: LockAddress | None) -> dict[str, str]:
    """Return the properties that record this lock."""
    provider = {LOCK_PROVIDER: _LOCK_PROVIDERS[kind]} if kind in _LOCK_PROVIDERS else {}
    return {LOCK_KIND: kind.value, **provider, **address_properties(address)}


def with_lock(
    values: Mapping[str, str], kind: LockKind, address: LockAddress | None
) -> dict[str, str]:
    """Return the table's properties with this lock and without those of any other."""
    rest = {key: value for key, value in values.items() if key not in _ALL_KEYS}
    return {**rest, **lock_properties(kind, address)}


def has_recorded_lock(config: TableConfig) -> bool:
    """True if the table records which lock it has."""
    return LOCK_KIND in config.properties.values


def is_lock_recorded(config: TableConfig) -> bool:
    """True if the table records everything about the lock that this configuration names."""
    recorded = recorded_lock_address(config.lock, config.properties)
    return has_recorded_lock(config) and recorded == config.lock_address


def described_lock(config: TableConfig) -> str:
    """Return the lock in words for an error text."""
    where = f" ({config.lock_address})" if config.lock_address else ""
    return f"{config.lock.value!r}{where}"
