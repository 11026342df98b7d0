"""All services of a toy table as one, by the function of production: whatever is due is done.

The archive's policy is then raised by those of cleaning and compaction, and whether something is
due is judged by what one long-lived process knows of the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import cast

from pyhudi.commit.rollback import FailedWriteRecovery
from pyhudi.errors import ConflictError, InvalidRequestError, UnavailableError
from pyhudi.format.table.table_config import TableConfig
from pyhudi.format.timeline.instant import InstantTime
from pyhudi.plan.cleaning import CleanPolicy
from pyhudi.plan.compaction import CompactionPolicy
from pyhudi.services.archiving.facts import ServiceMemory
from pyhudi.services.maintenance import Upkeep, run_services
from pyhudi.session.session import TableSession
from pyhudi.simulate.simulation import Process
from pyhudi.simulate.table.actors.archiver import policy
from pyhudi.simulate.table.actors.compactor import LightMerge
from pyhudi.simulate.table.actors.service_actor import Servant
from pyhudi.simulate.table.stage import Stage
from pyhudi.simulate.table.table import LightReader, avro_schema, table_config
from pyhudi.write.files.spec import WriteSpec
from pyhudi.write.local import LocalWriter
from pyhudi.write.writer import TableWriter


class Keeper(Servant):
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
        self._upkeep = Upkeep(compaction=compaction, clean=clean, archive=archive)

    def _begun(self, process: Process) -> Callable[[], object]:
        writer = cast(LocalWriter, LightWriter(self._stage, process))
        merge = LightMerge(self._stage, process)
        return partial(self._keep_up, process, writer, ServiceMemory(), merge)

    def _keep_up(
        self, process: Process, writer: LocalWriter, memory: ServiceMemory, merge: LightMerge
    ) -> None:
        for _, error in run_services(writer, self._upkeep, memory, merge=merge).errors:
            self._told(process, error)


class LightWriter(TableWriter):
    """What services need of a writer of production, on a toy table."""

    def __init__(self, stage: Stage, process: Process) -> None:
        super().__init__(process.storage, process.world, stage.settings)
        self._kind = stage.kind
        log = stage.decision_log(process)
        self._session = TableSession(
            process.storage,
            process.world,
            stage.settings,
            table_config(stage.kind),
            LightReader(process.storage, stage.kind).loader,
            log,
            FailedWriteRecovery(log, stage.settings),
        )

    @property
    def config(self) -> TableConfig:
        return self.session.config

    def open(self) -> TableConfig:
        """Return the configuration: a toy table's properties never change."""
        return self.session.config

    def spec(self, requested: str) -> WriteSpec:
        return WriteSpec(InstantTime(requested), avro_schema(self._kind))
