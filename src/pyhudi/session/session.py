"""A table that is open: everything a process needs to work on it, under one set of properties."""

from __future__ import annotations

from dataclasses import dataclass

from pyhudi.commit.log import DecisionLog
from pyhudi.commit.rollback import FailedWriteRecovery
from pyhudi.format.table.table_config import TableConfig, TableType
from pyhudi.format.timeline.instant import Action
from pyhudi.read.load import TableLoader
from pyhudi.settings import WriteSettings
from pyhudi.storage.protocol import Storage
from pyhudi.world import World


@dataclass(frozen=True, slots=True)
class TableSession:
    """A table as this process has it open, under one version of its properties.

    When the properties change, `OpenTable` makes another session. For a dry run the log is one that
    appends nothing.
    """

    storage: Storage
    world: World
    settings: WriteSettings
    config: TableConfig  # with the caller's overrides
    loader: TableLoader
    log: DecisionLog
    recovery: FailedWriteRecovery

    @property
    def is_mor(self) -> bool:
        return self.config.table_type is TableType.MERGE_ON_READ

    @property
    def is_shared(self) -> bool:
        """True if the table has a lock that other engines take, too."""
        return self.config.lock.is_shared

    @property
    def action(self) -> Action:
        """Return what a write is called on the timeline."""
        return Action.DELTACOMMIT if self.is_mor else Action.COMMIT
