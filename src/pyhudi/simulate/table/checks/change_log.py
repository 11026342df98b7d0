"""Every change of the store, in order: what the invariants are judged by.

A simulation's trace is for people. It has paths and sizes. Whether a promise was kept at every
moment, and not only at the end, needs the bytes as well, and the process that changed them.
"""

from __future__ import annotations

from typing import NamedTuple

from pyhudi.simulate.scheduler import Scheduler
from pyhudi.simulate.simulation import Simulation
from pyhudi.simulate.storage import SharedObjects
from pyhudi.storage.stores.memory import MemoryStorage


class Change(NamedTuple):
    """An object was put, or removed. A create that found the path taken is not a change."""

    place: int  # in the change log, from 0
    at_ms: int  # true time, which is also the store's date of the object
    actor: str
    path: str
    data: bytes | None  # None: removed
    before: bytes | None  # what was there; None: nothing

    @property
    def process(self) -> str:
        return self.actor.partition("/")[0]


class ChangeLogStorage(MemoryStorage):
    """The store of a simulation, which records all its changes."""

    def __init__(self, scheduler: Scheduler, uri: str) -> None:
        super().__init__(lambda: scheduler.now_ms, uri=uri)
        self.changes: list[Change] = []
        self._scheduler = scheduler

    def _put(self, path: str, data: bytes) -> str:
        self._remember(path, bytes(data))
        return super()._put(path, data)

    def delete(self, path: str) -> None:
        if path in self._objects:
            self._remember(path, None)
        super().delete(path)

    def _remember(self, path: str, data: bytes | None) -> None:
        stored = self._objects.get(path)
        before = None if stored is None else stored.data
        current = self._scheduler.current
        actor = "outside" if current is None else current.name
        at_ms = self._scheduler.now_ms
        self.changes.append(Change(len(self.changes), at_ms, actor, path, data, before))


def with_change_log(simulation: Simulation) -> ChangeLogStorage:
    """Give the simulation, which must have no process yet, a store that records its changes."""
    storage = ChangeLogStorage(simulation.scheduler, simulation.storage.uri)
    stale = simulation.faults.may_be_stale
    simulation.storage = storage
    simulation._shared = SharedObjects(storage, may_be_stale=stale)
    return storage
