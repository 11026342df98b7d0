"""What all actors of one simulation share: the table, the history, and the source of chance."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.format.table.table_config import TableType
from pyhudi.format.timeline.instant import Action
from pyhudi.read.load import TableLoader
from pyhudi.session.session import TableSession
from pyhudi.settings import WriteSettings
from pyhudi.simulate.choices import random_stream
from pyhudi.simulate.lock import SharedLock
from pyhudi.simulate.simulation import Process, Simulation
from pyhudi.simulate.table.checks.change_log import ChangeLogStorage
from pyhudi.simulate.table.checks.evidence import TIMELINE_FOLDER
from pyhudi.simulate.table.history import History
from pyhudi.simulate.table.rows import TableKind
from pyhudi.simulate.table.table import table_config


@dataclass(frozen=True, slots=True)
class Stage:
    """One table and the actors on it."""

    simulation: Simulation
    storage: ChangeLogStorage
    kind: TableKind
    settings: WriteSettings
    history: History
    lock: SharedLock | None = None  # set if a foreign engine writes too
    skew_ms: int = 0  # by which clocks may differ then

    def chance(self, purpose: str) -> random.Random:
        return random_stream(self.simulation.seed, purpose)

    def decision_log(self, process: Process) -> DecisionLog:
        return DecisionLog(
            process.storage,
            process.world,
            self.settings,
            timeline_folder=TIMELINE_FOLDER,
            zone=UTC,
            lock=None if self.lock is None else self.lock.of(process, asks_again=True),
            skew_ms=self.skew_ms,
        )

    def session(self, process: Process) -> TableSession:
        """Open the table for services, as one process does. Its properties never change."""
        config = table_config(self.kind)
        loader = TableLoader(process.storage, config)
        return TableSession.of(self.settings, config, loader, self.decision_log(process))

    @property
    def action(self) -> Action:
        copies = self.kind.table_type is TableType.COPY_ON_WRITE
        return Action.COMMIT if copies else Action.DELTACOMMIT

    @property
    def place(self) -> int:
        """Return how many changes the store has seen."""
        return len(self.storage.changes)

    def unexpected_error(self, process: Process, error: Exception) -> None:
        """Record an error that no client should ever get."""
        self.history.unexpected.append(f"{process.name} got the error: {error}")
