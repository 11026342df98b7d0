"""Tables that are opened on a given storage, world and settings."""

from __future__ import annotations

from pyhudi.api.table import Table
from pyhudi.format.lock.lock_address import LockAddress
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.plan.upkeep import Upkeep
from pyhudi.progress import Listener
from pyhudi.read.load import TableLoader, load_config
from pyhudi.session.open import OpenTable, Overrides
from pyhudi.session.session import TableSession
from pyhudi.settings import WriteSettings
from pyhudi.storage.protocol import Storage
from pyhudi.world import World


def opening_on(
    storage: Storage,
    world: World,
    settings: WriteSettings | None = None,
    *,
    buckets: SimpleBuckets | None = None,
    lock: LockKind | None = None,
    lock_address: LockAddress | None = None,
) -> OpenTable:
    """Return the way to open the table: `session()` opens it."""
    overrides = Overrides(buckets, lock, lock_address)
    return OpenTable(storage, world, settings or WriteSettings(), overrides)


def session_on(
    storage: Storage, world: World, settings: WriteSettings | None = None
) -> TableSession:
    """Open the table for services."""
    return opening_on(storage, world, settings).session()


def table_on(
    storage: Storage,
    world: World,
    settings: WriteSettings | None = None,
    *,
    upkeep: Upkeep | bool | None = None,
    listener: Listener | None = None,
    lock: LockKind | None = None,
    lock_address: LockAddress | None = None,
) -> Table:
    """Return the table as a user has it."""
    opening = opening_on(storage, world, settings, lock=lock, lock_address=lock_address)
    return Table(TableLoader(storage, load_config(storage)), opening, upkeep, listener)
