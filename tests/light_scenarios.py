"""Small scenes on a light table, for tests that choose the faults and the order themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import pyarrow as pa

from pyhudi.commit.rollback import FailedWriteRecovery
from pyhudi.commit.transaction import Completed, Held, Transaction
from pyhudi.commit.validation import Checks
from pyhudi.conflict.schema_to_record import WriteSchemas
from pyhudi.errors import ConflictError, HudiError, OutcomeUnknownError
from pyhudi.format.table.conflict_strategy import Strategy
from pyhudi.format.table.table_config import TableType
from pyhudi.plan.cleaning import CleanPolicy
from pyhudi.simulate.lock import SharedLock
from pyhudi.simulate.simulation import Process, Simulation
from pyhudi.simulate.table.actors.evolver import EvolvingCall, evolve
from pyhudi.simulate.table.actors.writers import Writer, WriterProfile
from pyhudi.simulate.table.checks.evidence import Evidence, Violation
from pyhudi.simulate.table.checks.invariants import Case, violations
from pyhudi.simulate.table.history import Event, Operation, Outcome
from pyhudi.simulate.table.rows import OWNERS, Row, TableKind, group_of
from pyhudi.simulate.table.schedules import SETTINGS, finish, new_stage
from pyhudi.simulate.table.stage import Stage
from pyhudi.simulate.table.table import (
    ToyReader,
    base_files,
    commit_metadata,
    virtual_log_files,
    write_data_file,
)
from pyhudi.simulate.table.toy_rings import placing_by
from pyhudi.write.resizing.beside import resizes_beside, virtual_inputs
from pyhudi.write.resizing.meet import ResizesMet, WrittenFiles

OCC = TableKind(TableType.COPY_ON_WRITE, by_event_time=False)
NBCC = TableKind(TableType.MERGE_ON_READ, by_event_time=True)
RINGS = replace(NBCC, nodes=1)
YIELDING_RINGS = replace(RINGS, by_event_time=False)  # its writers yield to each other
VIRTUAL = replace(RINGS, is_virtual=True)
JOINED = TableKind(TableType.MERGE_ON_READ, by_event_time=False, has_owners=True)
JOINED_RINGS = replace(JOINED, nodes=1)
KINDS = {"occ": OCC, "nbcc": NBCC}
EVOLVING = {name: replace(kind, evolves=True) for name, kind in KINDS.items()}


def stage_of(simulation: Simulation, kind: TableKind, *, shared: bool = False) -> Stage:
    return new_stage(simulation, kind, SharedLock() if shared else None)


def steady_writer(stage: Stage, name: str) -> Writer:
    """Writes once, without late tasks: base files on a copy-on-write table, else log files."""
    rate = 1.0 if stage.kind.table_type is TableType.COPY_ON_WRITE else 0.0
    return Writer(stage, name, WriterProfile(base_rate=rate, checked_rate=rate, task_rate=0.0))


def dropping(name: str) -> Callable[[pa.Schema], pa.Schema]:
    return lambda table: pa.schema([field for field in table if field.name != name])


def start_evolving(stage: Stage, name: str, wanted: Callable[[pa.Schema], pa.Schema]) -> Process:
    """Start a process that changes the schema without rows."""
    process = stage.simulation.process(name)
    process.start(evolve, stage, stage.session(process), wanted)
    return process


class OpenWrite:
    """A write of a process of its own that has written its files and not been completed."""

    def __init__(
        self,
        stage: Stage,
        name: str,
        keys: Sequence[str],
        owner: str | None = None,
        *,
        process: Process | None = None,
        adds: str | None = None,
    ) -> None:
        """On a table that evolves, its rows may add a column."""
        self.process = process or stage.simulation.process(name)
        self._session = stage.session(self.process) if stage.kind.has_rings else None
        session = self._session
        self.log = stage.decision_log(self.process) if session is None else session.log
        self.recovery = FailedWriteRecovery(self.log, stage.settings)
        self._stage = stage
        is_base = stage.kind.table_type is TableType.COPY_ON_WRITE
        self.is_checked = is_base or stage.kind == YIELDING_RINGS
        self._attempt = stage.history.new_attempt()
        version = f"{name}.1"
        cells = None if owner is None else dict.fromkeys(OWNERS[owner], version)
        row = Row("", 1, version, is_deleted=False, cells=cells)
        reader = ToyReader(self.process.storage, stage.kind)
        there = set() if cells is None else reader.snapshot(reader.load()).keys()
        fresh = set() if cells is None else {*keys} - there
        self._rows = tuple(row._replace(key=key, is_fresh=key in fresh) for key in keys)
        self._call = None
        if stage.kind.evolves:
            added = [] if adds is None else [pa.field(adds, pa.int32())]

            def brought(table: pa.Schema) -> pa.Schema:
                return pa.schema([*table, *added]) if added else table

            self._call = EvolvingCall.of(stage, self.log, stage.settings, brought)
        self._record(Outcome.INVOKE)
        self.transaction = Transaction.begin(self.log, stage.settings, stage.action, self.recovery)
        requested = self.transaction.requested
        stage.history.begun[self._attempt] = requested
        self._schemas = self._begun()
        placing = group_of if session is None else placing_by(session.groups.layout)
        self._virtual = {} if session is None else virtual_inputs(session, requested)
        files = virtual_log_files(requested, self._rows, placing, self._virtual)
        if is_base:
            files = base_files(requested, self._rows, reader.groups(reader.load()), stage.kind)
        self.stats = [write_data_file(self.process.storage, file) for file in files]

    def _begun(self) -> WriteSchemas | None:
        if self._call is None:
            return None
        schemas = self._call.begun()
        assert isinstance(schemas, WriteSchemas)
        rows = self._call.numbered(self._rows, schemas, self._attempt)
        numbers = {(row.key, row.version): row.more for row in rows if row.more is not None}
        self._stage.history.numbers.update(numbers)
        self._rows = rows
        return schemas

    def fall_silent(self) -> None:
        """No more beats; and the last one is too long ago."""
        self.transaction._heartbeat.stop()
        self._stage.simulation.scheduler.now_ms += 2 * self._stage.settings.heartbeat_timeout_ms

    def complete(self) -> None:
        try:
            completed = self._completed(WrittenFiles(tuple(self.stats), tuple(self.stats)))
        except ConflictError as error:
            self._record(Outcome.FAIL, error=error.why, facts=error.facts)
        except OutcomeUnknownError:
            self._record(Outcome.INFO)
        else:
            self._record(Outcome.OK, completed=completed.time)

    def _completed(self, files: WrittenFiles) -> Completed:
        """Complete the write, and deal with the resizes that are in its way."""
        kind, has_rings = self._stage.kind, self._stage.kind.has_rings
        met = ResizesMet(self._session, self.transaction.requested) if self._session else None
        while True:
            checks = Checks(
                self.is_checked,
                is_part=kind.has_owners,
                strategy=Strategy.SIMPLE if has_rings else Strategy.BUCKET,
                is_numbered=not has_rings,
                schemas=self._schemas,
                moved=files.left,
                beside=resizes_beside(self._virtual, files.stats),
            )
            ended = self.transaction.complete(commit_metadata(files.stats, kind), checks)
            if not isinstance(ended, Held):
                files.remove_left(self.process.storage)
                return ended.or_raise()
            assert met is not None
            dealt_with = met.deal_with(ended, files)
            assert isinstance(dealt_with, WrittenFiles)
            files = dealt_with

    def _record(
        self,
        outcome: Outcome,
        *,
        completed: str = "",
        error: str = "",
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        known = outcome is not Outcome.INVOKE
        event = Event(
            process=self.process.name,
            outcome=outcome,
            operation=Operation.WRITE,
            attempt=self._attempt,
            place=len(self._stage.storage.changes),
            rows=self._rows,
            is_checked=self.is_checked,
            changes=() if self._call is None else self._call.changed,
            requested=self.transaction.requested if known else "",
            completed=completed,
            error=error,
            facts=facts or {},
        )
        self._stage.history.record(event)


def recover(stage: Stage, process: Process) -> None:
    """What any writer does before it begins."""
    log = stage.decision_log(process)
    log.refresh()
    FailedWriteRecovery(log, stage.settings).recover()


def judged(
    stage: Stage,
    *,
    fresh_write: str | None = None,
    repaired: bool,
    clean_policy: CleanPolicy | None = None,
    closely: bool = False,
) -> list[Violation]:
    case = Case(
        Evidence(stage.storage, stage.kind),
        copy(stage.history),  # it may go on, and a history that was asked remembers the answers
        SETTINGS.heartbeat_timeout_ms,
        fresh_write=fresh_write,
        repaired=repaired,
        clean_policy=clean_policy,
        closely=closely,
    )
    return violations(case)


def judged_after_repair(
    stage: Stage,
    *,
    archives: bool = False,
    clean_policy: CleanPolicy | None = None,
    closely: bool = False,
) -> list[Violation]:
    stage.simulation.faults_strike = False
    try:
        failed = finish(stage, archives=archives)
    except HudiError as error:
        failed = str(error)
    return judged(
        stage, fresh_write=failed, repaired=True, clean_policy=clean_policy, closely=closely
    )
