"""Archiving of a toy table, by the class of production.

Archiving rests on the protocol's one timing assumption, so it comes when every pending operation
has had the time to end, and writers make pauses that are longer still.
"""

from __future__ import annotations

from collections.abc import Callable

from pyhudi.format.table.table_config import TableType
from pyhudi.plan.archiving.policy import ArchivePolicy
from pyhudi.services.archiving.archive_files import ArchiveFiles
from pyhudi.services.archiving.execute import Archiver
from pyhudi.simulate.simulation import Process
from pyhudi.simulate.table.actors.service_actor import ServiceActor
from pyhudi.simulate.table.stage import Stage
from pyhudi.simulate.table.table import ToyReader
from pyhudi.storage.objects.consumers import load_consumers

#: Longer than any process is late in a schedule with archivers; and a pause that is longer still.
GRACE_MS = 900_000
LONG_PAUSE_MS = 1_000_000
#: Longer than what a refresh of a table takes for recent (`read.load.CLOCK_DIFFERENCE`).
HOURS_MS = 9_000_000


def policy(grace_ms: int = GRACE_MS) -> ArchivePolicy:
    """Return a policy so small that a short schedule has several archive files, levels and
    manifests."""
    return ArchivePolicy(
        keep_min=1,
        keep_max=2,
        delta_commits=0,
        file_instants=2,
        merge_files=2,
        grace_ms=grace_ms,
        aborted_grace_ms=grace_ms,
    )


class ArchiverActor(ServiceActor):
    """Archives."""

    def __init__(self, stage: Stage, name: str, *, rounds: int) -> None:
        pauses = (5_000, LONG_PAUSE_MS, LONG_PAUSE_MS, HOURS_MS)
        super().__init__(stage, name, rounds=rounds, pauses=pauses)

    def _begun(self, process: Process) -> Callable[[], object]:
        return lambda: archiver(self._stage, process).run()


def archiver(stage: Stage, process: Process, *, grace_ms: int = GRACE_MS) -> Archiver:
    """Return the archiver of one process."""
    since = min((found.consumer.since for found in load_consumers(process.storage)), default=None)
    return Archiver(
        stage.decision_log(process),
        ToyReader(process.storage, stage.kind).load,
        policy(grace_ms),
        is_mor=stage.kind.table_type is TableType.MERGE_ON_READ,
        consumers_since=since,
    )


def archive_all(stage: Stage, process: Process) -> None:
    """Archive what may be archived while no process writes, and clean the archive up."""
    archiver(stage, process, grace_ms=0).run()
    log = stage.decision_log(process)
    with log.guarded() as (_, may_go_on):
        files = ArchiveFiles(
            process.storage, log.history_folder, process.world, policy(grace_ms=0), may_go_on
        )
        files.snapshot()
        files.tidy(log.clock.read_ms())
