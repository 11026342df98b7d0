"""Small scenes on a light table, for tests that choose the faults and the order themselves."""

from __future__ import annotations

from collections.abc import Sequence

from pyhudi.engine.rollback import FailedWriteRecovery
from pyhudi.engine.transaction import Transaction
from pyhudi.errors import ConflictError, HudiError, OutcomeUnknownError
from pyhudi.format.table_config import TableType
from pyhudi.simulate.actors import Stage, Writer
from pyhudi.simulate.evidence import Evidence, Violation
from pyhudi.simulate.history import Event, Operation, Outcome
from pyhudi.simulate.invariants import Case, violations
from pyhudi.simulate.light_table import (
    LightReader,
    Row,
    TableKind,
    base_files,
    commit_metadata,
    log_files,
    write_data_file,
)
from pyhudi.simulate.schedules import SETTINGS, finish, new_stage
from pyhudi.simulate.simulation import Process, Simulation

OCC = TableKind(TableType.COPY_ON_WRITE, by_event_time=False)
NBCC = TableKind(TableType.MERGE_ON_READ, by_event_time=True)
KINDS = {"occ": OCC, "nbcc": NBCC}


def stage_of(simulation: Simulation, kind: TableKind) -> Stage:
    return new_stage(simulation, kind)


def steady_writer(stage: Stage, name: str) -> Writer:
    """Writes once, without late tasks: base files on a copy-on-write table, else log files."""
    copies = stage.kind.table_type is TableType.COPY_ON_WRITE
    return Writer(
        stage,
        name,
        writes=1,
        base_rate=1.0 if copies else 0.0,
        checked_rate=1.0 if copies else 0.0,
        task_rate=0.0,
    )


class OpenWrite:
    """A write of a process of its own that has written its files and not been completed."""

    def __init__(self, stage: Stage, name: str, keys: Sequence[str]) -> None:
        self.process = stage.simulation.process(name)
        self.log = stage.decision_log(self.process)
        self.recovery = FailedWriteRecovery(self.log, stage.settings)
        self._stage = stage
        self.is_checked = stage.kind.table_type is TableType.COPY_ON_WRITE
        self._attempt = stage.history.new_attempt()
        self._rows = tuple(Row(key, 1, f"{name}.1", is_deleted=False) for key in keys)
        self._record(Outcome.INVOKE)
        self.transaction = Transaction(self.log, stage.settings, stage.action, self.recovery)
        requested = self.transaction.requested
        stage.history.begun[self._attempt] = requested
        files = log_files(requested, self._rows)
        if self.is_checked:
            reader = LightReader(self.process.storage, stage.kind)
            files = base_files(requested, self._rows, reader.groups(reader.load()), stage.kind)
        self.stats = [write_data_file(self.process.storage, file) for file in files]

    def fall_silent(self) -> None:
        """No more beats; and the last one is too long ago."""
        self.transaction._stop_beating()
        self._stage.simulation.scheduler.now_ms += 2 * self._stage.settings.heartbeat_timeout_ms

    def complete(self) -> None:
        try:
            time = self.transaction.complete(
                commit_metadata(self.stats), is_checked=self.is_checked
            )
        except ConflictError as error:
            self._record(Outcome.FAIL, error=error.why)
        except OutcomeUnknownError:
            self._record(Outcome.INFO)
        else:
            self._record(Outcome.OK, completed=time)

    def _record(self, outcome: Outcome, *, completed: str = "", error: str = "") -> None:
        known = outcome is not Outcome.INVOKE
        event = Event(
            process=self.process.name,
            outcome=outcome,
            operation=Operation.WRITE,
            attempt=self._attempt,
            place=len(self._stage.storage.changes),
            rows=self._rows,
            is_checked=self.is_checked,
            requested=self.transaction.requested if known else "",
            completed=completed,
            error=error,
        )
        self._stage.history.record(event)


def recover(stage: Stage, process: Process) -> None:
    """What any writer does before it begins."""
    log = stage.decision_log(process)
    log.refresh()
    FailedWriteRecovery(log, stage.settings).recover()


def judged(stage: Stage, *, fresh_write: str | None = None, repaired: bool) -> list[Violation]:
    case = Case(
        Evidence(stage.storage, stage.kind),
        stage.history,
        SETTINGS.heartbeat_timeout_ms,
        fresh_write=fresh_write,
        repaired=repaired,
    )
    return violations(case)


def judged_after_repair(stage: Stage) -> list[Violation]:
    stage.simulation.faults_strike = False
    try:
        failed = finish(stage)
    except HudiError as error:
        failed = str(error)
    return judged(stage, fresh_write=failed, repaired=True)
