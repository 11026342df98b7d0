"""A table that is open: everything a process needs to work on it, under one set of properties."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from threading import RLock
from typing import Any

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.rollback import FailedWriteRecovery
from pyhudi.format.table.bucket_config import ConsistentBuckets
from pyhudi.format.table.bucket_migration import MigratingBuckets, ring_settings
from pyhudi.format.table.table_config import TableConfig, TableType
from pyhudi.format.timeline.instant import Action
from pyhudi.read.current_state import CurrentState
from pyhudi.read.load import TableLoader
from pyhudi.session.bucket_groups import BucketGroups
from pyhudi.session.bucket_sizes import BucketSizes
from pyhudi.session.migrating_groups import MigratingGroups
from pyhudi.session.replaced_groups import ReplacedGroups
from pyhudi.session.ring_groups import RingGroups
from pyhudi.session.simple_groups import SimpleGroups
from pyhudi.session.write_schema import SchemaInForce
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
    current: CurrentState
    schema: SchemaInForce
    groups: BucketGroups
    replaced: ReplacedGroups
    exclusive: AbstractContextManager[Any]  # held by one thread at a time, of those that share it
    sizes: BucketSizes
    own: set[str]  # instants that this process works on: no repair rolls them back
    copied: set[str]  # resizes that are known not to be virtual

    @classmethod
    def of(
        cls,
        settings: WriteSettings,
        config: TableConfig,
        loader: TableLoader,
        log: DecisionLog,
        *,
        current: CurrentState | None = None,
        exclusive: AbstractContextManager[Any] | None = None,
        own: set[str] | None = None,
    ) -> TableSession:
        """Open a session; those of one process share `exclusive` and `own`."""
        current = current or CurrentState(loader)
        replaced = ReplacedGroups(loader, log)
        return cls(
            log.storage,
            log.world,
            settings,
            config,
            loader,
            log,
            FailedWriteRecovery(log, settings),
            current,
            SchemaInForce(config, loader, log, current),
            _groups(config, loader, log, replaced),
            replaced,
            RLock() if exclusive is None else exclusive,
            BucketSizes(),
            set() if own is None else own,
            set(),
        )

    @property
    def is_mor(self) -> bool:
        return self.config.table_type is TableType.MERGE_ON_READ

    @property
    def can_resize(self) -> bool:
        """True if buckets of the table split and merge, and no Hudi writer shares it."""
        return ring_settings(self.config.buckets) is not None and not self.log.is_shared

    @property
    def action(self) -> Action:
        """The action of a write of rows."""
        return Action.DELTACOMMIT if self.is_mor else Action.COMMIT

    def recover(self) -> tuple[str, ...]:
        """Roll back what failed writers left; return their instants."""
        return self.recovery.recover(frozenset(self.own))

    def failed(self) -> tuple[str, ...]:
        """Return the instants that `recover` would roll back, and change nothing."""
        return self.recovery.failed(frozenset(self.own))


def _groups(
    config: TableConfig, loader: TableLoader, log: DecisionLog, replaced: ReplacedGroups
) -> BucketGroups:
    if isinstance(config.buckets, MigratingBuckets):
        return MigratingGroups(log.storage, config, loader, log, replaced)
    if isinstance(config.buckets, ConsistentBuckets):
        return RingGroups(log.storage, config, loader, log, replaced)
    return SimpleGroups(log.storage, config, log, replaced)
