"""A table in memory with a clock of its own, and as many processes as a test wants to write it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from opened_tables import opening_on, table_on
from pyhudi.api.table import Table
from pyhudi.plan.table_definition import TableDefinition
from pyhudi.session.create import create_table_files
from pyhudi.session.open import OpenTable
from pyhudi.session.session import TableSession
from pyhudi.settings import WriteSettings
from pyhudi.storage.protocol import Storage
from pyhudi.storage.stores.memory import MemoryStorage
from pyhudi.world import World
from worlds import Clock, still_world

TIMELINE = ".hoodie/timeline"


class MemoryTable:
    """Nothing happens by itself: the clock moves when it is looked at, or told to."""

    def __init__(self, schema: pa.Schema, **definition: Any) -> None:
        self.clock = Clock()
        self.storage = MemoryStorage(lambda: self.clock.ms)
        asked = TableDefinition.of("t", schema, **{"record_key": "id", **definition})
        create_table_files(self.storage, asked, still_world(self.clock), exist_ok=False)

    def world(self, label: str) -> World:
        return still_world(self.clock, label)

    def table(self, label: str = "a", storage: Storage | None = None, **settings: Any) -> Table:
        """The table as one process has it open, perhaps through storage that fails."""
        return table_on(storage or self.storage, self.world(label), WriteSettings(**settings))

    def opening(
        self, label: str = "a", storage: Storage | None = None, **settings: Any
    ) -> OpenTable:
        """The way in which one process opens the table."""
        return opening_on(storage or self.storage, self.world(label), WriteSettings(**settings))

    def session(
        self, label: str = "a", storage: Storage | None = None, **settings: Any
    ) -> TableSession:
        """The table as services of one process have it open."""
        return self.opening(label, storage, **settings).session()

    def names(self) -> list[str]:
        """The files of the timeline."""
        return [s.path.rpartition("/")[2] for s in self.storage.list(TIMELINE)]

    def pending(self) -> list[str]:
        """Timeline files of instants that did not complete."""
        done = {name[:17] for name in self.names() if "_" in name}
        return [name for name in self.names() if name[:1].isdigit() and name[:17] not in done]
