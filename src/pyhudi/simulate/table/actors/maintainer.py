"""All services of a toy table as one, by the function of production: whatever is due is done.

The archive's policy is then raised by those of cleaning and compaction, and whether something is
due is judged by what one long-lived process knows of the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from pyhudi.errors import ConflictError, InvalidRequestError, UnavailableError
from pyhudi.plan.cleaning import CleanPolicy
from pyhudi.plan.compaction.policy import CompactionPolicy
from pyhudi.plan.upkeep import Upkeep
from pyhudi.services.archiving.facts import ServiceMemory
from pyhudi.services.maintenance import run_services
from pyhudi.session.session import TableSession
from pyhudi.simulate.simulation import Process
from pyhudi.simulate.table.actors.archiver import policy
from pyhudi.simulate.table.actors.compactor import ToyMerge
from pyhudi.simulate.table.actors.service_actor import ServiceActor
from pyhudi.simulate.table.stage import Stage


class MaintenanceActor(ServiceActor):
    """Runs the services that are due."""

    harmless = (UnavailableError, ConflictError, InvalidRequestError)  # other processes were faster

    def __init__(
        self,
        stage: Stage,
        name: str,
        clean: CleanPolicy,
        *,
        rounds: int,
        archives: bool,
        rests: tuple[int, ...] = (),
    ) -> None:
        super().__init__(stage, name, rounds=rounds, pauses=(20, 300, 3_000, *rests))
        compaction = CompactionPolicy(trigger_delta_commits=2)
        archive = replace(policy(), delta_commits=1) if archives else None
        self._upkeep = Upkeep(compaction=compaction, resize=None, clean=clean, archive=archive)

    def _begun(self, process: Process) -> Callable[[], object]:
        session = self._stage.session(process)
        merge = ToyMerge(self._stage, process)
        return partial(self._keep_up, process, session, ServiceMemory(), merge)

    def _keep_up(
        self, process: Process, session: TableSession, memory: ServiceMemory, merge: ToyMerge
    ) -> None:
        for _, error in run_services(session, self._upkeep, memory, merge=merge).errors:
            self._report(process, error)
