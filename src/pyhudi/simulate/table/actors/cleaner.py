"""Cleaning of a toy table by the class of production."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pyhudi.errors import HudiError
from pyhudi.plan.cleaning import CleanPolicy
from pyhudi.read.lost_files import CommitRecords
from pyhudi.services.cleaning.execute import Cleanings
from pyhudi.simulate.simulation import Process
from pyhudi.simulate.table.actors.service_actor import ServiceActor
from pyhudi.simulate.table.rows import happens
from pyhudi.simulate.table.stage import Stage
from pyhudi.simulate.table.table import ToyReader
from pyhudi.table.state import TableState

#: What a table may be cleaned by: all its cleaners have the same policy.
POLICIES = (
    CleanPolicy.commits(1),
    CleanPolicy.commits(2),
    CleanPolicy.commits(3),
    CleanPolicy.versions(1),
    CleanPolicy.versions(2),
)
#: The same where schedules last for hours.
LONG_POLICIES = (*POLICIES, CleanPolicy.hours(1), CleanPolicy.hours(2))


class Cleaner(ServiceActor):
    """Cleans; a plan may stay pending for long."""

    def __init__(
        self,
        stage: Stage,
        name: str,
        policy: CleanPolicy,
        *,
        rounds: int,
        rests: tuple[int, ...] = (),
    ) -> None:
        super().__init__(stage, name, rounds=rounds, pauses=(20, 300, 3_000, 20_000, *rests))
        self._policy = policy
        self._work: tuple[Process, Cleanings] | None = None

    def _begun(self, process: Process) -> Callable[[], object]:
        work = cleanings(self._stage, process)
        self._work = process, work
        return partial(self._clean, work)

    def _clean(self, work: Cleanings) -> None:
        if happens(self._chance, 0.25):
            work.schedule(self._policy)
        else:
            work.run(self._policy, take_over=happens(self._chance, 0.5)).or_raise()

    def finish(self) -> None:
        """Read once more at the end, with what it has known of the table for long."""
        if self._work is not None and not self._work[0].crashed:
            process, work = self._work
            try:
                work.preview(self._policy)
            except HudiError as error:
                self._stage.unexpected_error(process, error)


def cleanings(stage: Stage, process: Process) -> Cleanings:
    """Return the cleanings of one process."""
    log = stage.decision_log(process)
    reader = ToyReader(process.storage, stage.kind)

    def times(state: TableState) -> Any:
        return reader.times(state, "")

    load = partial(reader.load, is_whole=True)
    records = CommitRecords(reader.loader)
    return Cleanings(log, load, times, reader.retention, records, stage.settings)


def clean_all(stage: Stage, process: Process) -> None:
    """Execute everything that is pending, whichever process also does."""
    work = cleanings(stage, process)
    for plan in work.pending():
        work.execute(plan.requested)
