"""Owners of columns in a simulation: which owner may write what, and an actor that changes it."""

from __future__ import annotations

from functools import partial

from pyhudi.errors import InvalidRequestError, UnavailableError
from pyhudi.format.table.column_owners import ColumnOwners
from pyhudi.simulate.choices import drawn
from pyhudi.simulate.simulation import Process
from pyhudi.simulate.table.rows import FOUNDERS, OWNERS
from pyhudi.simulate.table.stage import Stage
from pyhudi.simulate.table.table import arrow_schema, table_config
from pyhudi.storage.objects.column_owners import change_owners
from pyhudi.storage.protocol import Storage
from pyhudi.write.column_owners import OwnedColumns, owned_columns

#: Owner → the owner that takes over its columns.
HEIRS = {"payments": "billing", "refunds": "returns"}


def owned(stage: Stage, process: Process, owner: str) -> OwnedColumns:
    """Return what the owner may write now; InvalidRequestError if it owns nothing."""
    kind = stage.kind
    return owned_columns(process.storage, table_config(kind), arrow_schema(kind), owner)


def declare_owners(storage: Storage) -> None:
    def declared(now: ColumnOwners) -> ColumnOwners:
        for owner in FOUNDERS:
            now = now.with_owner(owner, OWNERS[owner])
        return now

    change_owners(storage, declared)


class OwnerRegistrar:
    """Takes columns from their owners and gives them to others, while both write."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.process = stage.simulation.process(name)
        self._storage = self.process.storage
        self._chance = stage.chance(f"work of {name}")

    def run(self) -> None:
        for owner, heir in HEIRS.items():
            self.process.world.sleep_ms((1, 20, 300, 2_000)[drawn(self._chance, 4)])
            try:
                change_owners(self._storage, partial(_handed_over, owner, heir))
            except (UnavailableError, InvalidRequestError):
                continue


def _handed_over(owner: str, heir: str, now: ColumnOwners) -> ColumnOwners:
    return now.without(owner).with_owner(heir, OWNERS[heir])
