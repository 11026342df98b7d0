"""Removing Hudi's metadata table, which pyhudi does not maintain."""

from __future__ import annotations

from pyhudi.session.lock_setting import under_recorded_lock
from pyhudi.session.open import Overrides
from pyhudi.session.properties import switch_off_metadata_table
from pyhudi.storage.protocol import Storage
from pyhudi.world import World


def disable_metadata_table(
    storage: Storage, world: World, overrides: Overrides, lock_wait_ms: int
) -> None:
    """Remove the metadata table, under the table's lock where it has one."""
    with under_recorded_lock(storage, world, overrides.config(storage), lock_wait_ms):
        switch_off_metadata_table(storage, world)
