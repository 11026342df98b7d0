"""A table that is open: everything a process needs to work on it, under one set of properties."""

from __future__ import annotations

from dataclasses import dataclass

from pyhudi.commit.log import DecisionLog
from pyhudi.commit.rollback import FailedWriteRecovery
from pyhudi.format.table.table_config import TableConfig
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
