"""Recording the maintenance policy of a table that exists."""

from __future__ import annotations

from functools import partial

from pyhudi.plan.upkeep import Upkeep, with_upkeep
from pyhudi.session.lock_setting import under_recorded_lock
from pyhudi.session.open import Overrides
from pyhudi.session.properties import update_properties
from pyhudi.storage.protocol import Storage
from pyhudi.world import World


def record_upkeep(
    storage: Storage,
    world: World,
    overrides: Overrides,
    lock_wait_ms: int,
    policy: Upkeep | None,
) -> None:
    """Record the policy, under the table's lock where it has one; None for none."""
    with under_recorded_lock(storage, world, overrides.config(storage), lock_wait_ms):
        update_properties(storage, partial(with_upkeep, policy), world)
