"""Opening a table: from its properties and the caller's overrides to a session.

Every operation asks for the session and so reads the properties once. They may have changed: the
table may have another lock since, or other buckets. Then a new session takes the place of the old.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from threading import RLock

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.format.lock.lock_address import LockAddress
from pyhudi.format.lock.lock_kind import LockKind
from pyhudi.format.table.bucket_config import BUCKET_COUNT, Buckets
from pyhudi.format.table.bucket_migration import MigratingBuckets
from pyhudi.format.table.table_config import TableConfig
from pyhudi.plan.writable import refuse_unwritable, with_overrides
from pyhudi.read.load import TableLoader, load_config
from pyhudi.session.bucket_discovery import found_buckets, refuse_other_kind
from pyhudi.session.lock_setting import is_first_lock, record_lock, recorded_lock, setting_change
from pyhudi.session.missing_timeline import require_timeline
from pyhudi.session.properties import load_properties_file
from pyhudi.session.session import TableSession
from pyhudi.settings import WriteSettings
from pyhudi.storage.probe import (
    is_atomic_by_construction,
    verify_atomic_create,
    verify_atomic_replace,
)
from pyhudi.storage.protocol import Storage
from pyhudi.world import World

#: Says that the table's store was put to the test.
PROBED = ".hoodie/.pyhudi/probed"


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the caller says of the table, where its properties do not, or cannot."""

    buckets: Buckets | None = None
    lock: LockKind | None = None
    lock_address: LockAddress | None = None

    def config(self, storage: Storage) -> TableConfig:
        """Load the table's configuration, with these overrides."""
        return with_overrides(load_config(storage), self.buckets, self.lock, self.lock_address)


class OpenTable:
    """Gives the session of one table; a new one when hoodie.properties has changed."""

    def __init__(
        self, storage: Storage, world: World, settings: WriteSettings, overrides: Overrides
    ) -> None:
        self.storage = storage
        self.world = world
        self.settings = settings
        self.exclusive = RLock()  # threads that share a table take turns
        self._own: set[str] = set()
        self.overrides = overrides
        self._session: TableSession | None = None
        self._read_only: TableSession | None = None
        self._properties: bytes | None = None
        self._is_tested = False  # whether the store was seen to be fit
        self._ignores_unfit = False
        self._found: Buckets | None = None

    def known(self) -> TableSession:
        """Return the last session, without a request; open the table if there is none."""
        known = self._session if self._is_tested else None
        return self.session() if known is None else known

    def session(self, *, is_read_only: bool = False) -> TableSession:
        """Return the session under the properties as they are now.

        A read-only one writes nothing: it neither tests the store nor records a first lock.
        """
        data = load_properties_file(self.storage)
        session = self._session
        if session is None or data is None or data != self._properties:
            session = self._opened(data)
        if is_read_only:
            return self._looking(session)
        if not self._is_tested:
            require_timeline(self.storage, session.log.folder)
            self._require_true_store(session.config)
            self._is_tested = True
        if is_first_lock(session.config):
            wait_ms = self.settings.lock_wait_ms
            record_lock(self.storage, self.world, session.config, wait_ms)
            session = self._opened(load_properties_file(self.storage))
        return session

    def _looking(self, session: TableSession) -> TableSession:
        known = self._read_only
        if known is None or known.config is not session.config:
            log = session.log.read_only()
            self._read_only = known = TableSession.of(
                self.settings,
                session.config,
                session.loader,
                log,
                current=session.current,
                exclusive=self.exclusive,
                own=self._own,
            )
        return known

    def _opened(self, data: bytes | None) -> TableSession:
        config = self._with_buckets(self._accepted_config())
        loader = TableLoader(self.storage, config)
        log = self._decision_log(config, loader, data)
        self._session = TableSession.of(
            self.settings, config, loader, log, exclusive=self.exclusive, own=self._own
        )
        self._properties, self._read_only = data, None
        return self._session

    def _accepted_config(self) -> TableConfig:
        config = self.overrides.config(self.storage)
        refuse_unwritable(config)
        return config

    def _with_buckets(self, config: TableConfig) -> TableConfig:
        """Return the configuration with its buckets, found in the table's files if need be."""
        if config.buckets is not None and BUCKET_COUNT in config.properties.values:
            return config
        loader = TableLoader(self.storage, config)
        if config.buckets is None:
            self._found = self._found or found_buckets(loader)
            config = replace(config, buckets=self._found)
        elif self._found != config.buckets:
            assert not isinstance(config.buckets, MigratingBuckets), "a migration is recorded"
            refuse_other_kind(loader, config.buckets)
            self._found = config.buckets
        return config

    def _decision_log(
        self, config: TableConfig, loader: TableLoader, data: bytes | None
    ) -> DecisionLog:
        return DecisionLog(
            self.storage,
            self.world,
            self.settings,
            timeline_folder=loader.timeline_folder,
            history_folder=loader.history_folder,
            zone=config.zone,
            lock=recorded_lock(
                self.storage, self.world, config, ignore_unusable=self._ignores_unfit
            ),
            skew_ms=config.clock_skew_ms if config.lock.is_shared else 0,
            setting_change=partial(setting_change, self.storage, config, data),
        )

    def _require_true_store(self, config: TableConfig) -> None:
        """Race for objects, once for each table, unless the storage is true by construction."""
        if is_atomic_by_construction(self.storage) or self.storage.stat(PROBED) is not None:
            return
        verify_atomic_create(self.storage, self.world)
        if config.lock is LockKind.STORAGE:
            verify_atomic_replace(self.storage, self.world)
        self.storage.create(PROBED, b"")

    @contextmanager
    def by_recorded_lock(self) -> Iterator[None]:
        """Use the lock recorded in the table; drop the caller's override if the block succeeds.

        A recorded lock that this storage cannot have is ignored: the table was copied from another
        place.
        """
        before = self.overrides
        self._forget(Overrides(before.buckets))
        self._ignores_unfit = True
        try:
            yield
        except BaseException:
            self._forget(before)
            raise
        finally:
            self._ignores_unfit = False

    def _forget(self, overrides: Overrides) -> None:
        self.overrides = overrides
        self._session = self._read_only = None
