"""Who acts on the table in a simulation: writers, readers, recoverers, late tasks, a pruner.

Each is a process of its own around the protocol code of production. What an actor does is drawn
from its own stream of chance; what it was told goes to the history.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC

from pyhudi.engine.decide import DecisionLog
from pyhudi.engine.repair import Repair
from pyhudi.engine.rollback import FailedWriteRecovery
from pyhudi.engine.transaction import Transaction
from pyhudi.errors import ConflictError, HudiError, OutcomeUnknownError, UnavailableError
from pyhudi.format.commit_metadata import WriteStat
from pyhudi.format.instant import Action, Instant
from pyhudi.format.log_entry import entry_path
from pyhudi.format.table_config import TableType
from pyhudi.settings import WriteSettings
from pyhudi.simulate.choices import drawn, random_stream
from pyhudi.simulate.chronicle import ChronicledStorage
from pyhudi.simulate.evidence import TIMELINE_FOLDER
from pyhudi.simulate.history import Event, History, Operation, Outcome
from pyhudi.simulate.light_table import (
    KEYS,
    DataFile,
    LightReader,
    Row,
    TableKind,
    base_files,
    commit_metadata,
    latest_completion,
    log_files,
    seed_files,
    write_data_file,
)
from pyhudi.simulate.simulated_lock import SharedLock
from pyhudi.simulate.simulation import Process, Simulation
from pyhudi.storage.decision_log import entries_after
from pyhudi.timeline.ledger import BEFORE_ALL

_ROWS_MAX = 5
_ORDERINGS = 4  # few, so that ties are common
_CONFLICT_RETRIES = 2
_RESOLVE_ATTEMPTS = 3
_TASK_DELAYS_MS = (0, 100, 3_000, 30_000)
_TASK_RATE = 0.15


@dataclass(frozen=True, slots=True)
class Stage:
    """What all actors of one simulation share."""

    simulation: Simulation
    storage: ChronicledStorage
    kind: TableKind
    settings: WriteSettings
    history: History
    lock: SharedLock | None = None  # where a foreign engine writes too
    skew_ms: int = 0  # by which clocks may differ there

    def chance(self, purpose: str) -> random.Random:
        return random_stream(self.simulation.seed, purpose)

    def decision_log(self, process: Process) -> DecisionLog:
        return DecisionLog(
            process.storage,
            process.world,
            self.settings,
            timeline_folder=TIMELINE_FOLDER,
            zone=UTC,
            lock=None if self.lock is None else self.lock.of(process),
            skew_ms=self.skew_ms,
        )

    @property
    def action(self) -> Action:
        copies = self.kind.table_type is TableType.COPY_ON_WRITE
        return Action.COMMIT if copies else Action.DELTACOMMIT


def happens(chance: random.Random, rate: float) -> bool:
    return chance.random() < rate


def drawn_rows(chance: random.Random, version: str) -> tuple[Row, ...]:
    """Upserts and deletes of a few keys."""
    count = 1 + drawn(chance, _ROWS_MAX)
    keys = sorted({KEYS[drawn(chance, len(KEYS))] for _ in range(count)})
    return tuple(
        Row(key, 1 + drawn(chance, _ORDERINGS), version, happens(chance, 0.25)) for key in keys
    )


class Writer:
    """Writes a number of times, and repeats what met a conflict.

    `base_rate` is how often it writes base files, which yields to others, instead of log files;
    `checked_rate` how often log files yield, too; `task_rate` how often a task has a late twin.
    """

    def __init__(
        self,
        stage: Stage,
        name: str,
        *,
        writes: int,
        base_rate: float = 0.0,
        checked_rate: float = 0.0,
        task_rate: float = _TASK_RATE,
        process: Process | None = None,
    ) -> None:
        self.stage = stage
        self.process = process or stage.simulation.process(name)
        self.writes = writes
        self._base_rate = base_rate
        self._checked_rate = checked_rate
        self._task_rate = task_rate
        self._chance = stage.chance(f"work of {name}")
        self._count = 0
        self._tasks = 0

    def run(self) -> None:
        log = self.stage.decision_log(self.process)
        recovery = FailedWriteRecovery(log, self.stage.settings)
        while self.writes > 0:
            for _ in range(1 + _CONFLICT_RETRIES):
                if self.write(log, recovery) is not Outcome.FAIL:
                    break
            self.writes -= 1
            self.process.world.sleep_ms((0, 1, 200, 5_000)[drawn(self._chance, 4)])

    def run_once(self) -> Outcome:
        log = self.stage.decision_log(self.process)
        return self.write(log, FailedWriteRecovery(log, self.stage.settings))

    def write(self, log: DecisionLog, recovery: FailedWriteRecovery) -> Outcome:
        """One attempt: a new instant, and rows that no other attempt has."""
        self._count += 1
        rows = drawn_rows(self._chance, f"{self.process.name}.{self._count}")
        is_base = happens(self._chance, self._base_rate)
        is_checked = is_base or happens(self._chance, self._checked_rate)
        attempt = _Attempt(self, rows, is_base=is_base, is_checked=is_checked)
        return attempt.run(log, recovery)

    # What an attempt asks of its writer.

    def write_files(self, files: Sequence[DataFile]) -> list[WriteStat]:
        """Write the files, and now and then leave a late second attempt of a task behind."""
        stats = []
        for file in files:
            if happens(self._chance, self._task_rate):
                self._leave_late_task(file)
            stats.append(write_data_file(self.process.storage, file))
        return stats

    def _leave_late_task(self, file: DataFile) -> None:
        self._tasks += 1
        name = f"{self.process.name}-task{self._tasks}"
        task = self.stage.simulation.process(name)
        wait_ms = _TASK_DELAYS_MS[drawn(self._chance, len(_TASK_DELAYS_MS))]
        task.start(_late_task, task, file, wait_ms)

    def resolves(self) -> bool:
        """Whether it asks again after an unknown outcome."""
        return happens(self._chance, 0.5)


def _late_task(task: Process, file: DataFile, wait_ms: int) -> None:
    task.world.sleep_ms(wait_ms)
    write_data_file(task.storage, file)


class _Attempt:
    """One attempt of a write, with its question and its answer in the history."""

    def __init__(
        self, writer: Writer, rows: tuple[Row, ...], *, is_base: bool, is_checked: bool
    ) -> None:
        self._writer = writer
        self._stage = writer.stage
        self._process = writer.process
        self._rows = rows
        self._is_base = is_base
        self._is_checked = is_checked
        self._number = writer.stage.history.new_attempt()
        self._requested = ""

    def run(self, log: DecisionLog, recovery: FailedWriteRecovery) -> Outcome:
        self._record(Outcome.INVOKE)
        try:
            recovery.recover()
            transaction = Transaction(log, self._stage.settings, self._stage.action, recovery)
        except UnavailableError:
            return self._record(Outcome.FAIL)
        except HudiError as error:
            return self._surprised(error)
        self._requested = transaction.requested
        self._stage.history.begun[self._number] = transaction.requested
        try:
            stats = self._writer.write_files(self._files())
        except UnavailableError:
            transaction.abandon()
            return self._record(Outcome.FAIL)
        return self._complete(transaction, stats)

    def _files(self) -> list[DataFile]:
        if not self._is_base:
            return log_files(self._requested, self._rows)
        reader = LightReader(self._process.storage, self._stage.kind)
        before = reader.groups(reader.load())
        return base_files(self._requested, self._rows, before, self._stage.kind)

    def _complete(self, transaction: Transaction, stats: Sequence[WriteStat]) -> Outcome:
        asked = False  # whether its completion may have been decided
        for _ in range(_RESOLVE_ATTEMPTS):
            try:
                time = transaction.complete(commit_metadata(stats), is_checked=self._is_checked)
                return self._record(Outcome.OK, completed=time)
            except OutcomeUnknownError:
                asked = True
                if not self._writer.resolves():
                    break
            except ConflictError as error:
                return self._record(Outcome.FAIL, error=error.why)
            except UnavailableError:
                if not asked:
                    transaction.abandon()
                    return self._record(Outcome.FAIL)
            except HudiError as error:
                return self._surprised(error)
        return self._record(Outcome.INFO)

    def _surprised(self, error: HudiError) -> Outcome:
        self._stage.history.unexpected.append(f"{self._process.name} was told: {error}")
        return self._record(Outcome.INFO)

    def _record(self, outcome: Outcome, *, completed: str = "", error: str = "") -> Outcome:
        event = Event(
            process=self._process.name,
            outcome=outcome,
            operation=Operation.WRITE,
            attempt=self._number,
            place=len(self._stage.storage.changes),
            rows=self._rows,
            is_checked=self._is_checked,
            requested=self._requested,
            completed=completed,
            error=error,
        )
        self._stage.history.record(event)
        return outcome


def seed_table(stage: Stage) -> None:
    """The first write, before anything can go wrong: an empty base for every file group."""
    process = stage.simulation.process("seeder", faulty=False, clock_skew_ms=0)
    log = stage.decision_log(process)
    recovery = FailedWriteRecovery(log, stage.settings)
    transaction = Transaction(log, stage.settings, stage.action, recovery)
    files = seed_files(transaction.requested)
    stats = [write_data_file(process.storage, file) for file in files]
    transaction.complete(commit_metadata(stats), is_checked=False)


class Reader:
    """Reads in every way, and consumes changes from its own checkpoint."""

    def __init__(self, stage: Stage, name: str, *, reads: int) -> None:
        self._stage = stage
        self._process = stage.simulation.process(name)
        self._reads = reads
        self._chance = stage.chance(f"work of {name}")
        self._checkpoint = BEFORE_ALL

    @property
    def process(self) -> Process:
        return self._process

    def run(self) -> None:
        reader = LightReader(self._process.storage, self._stage.kind)
        for _ in range(self._reads):
            if happens(self._chance, 0.3):  # it starts anew, with nothing but its checkpoint
                reader = LightReader(self._process.storage, self._stage.kind)
            operation = (Operation.SNAPSHOT, Operation.TRAVEL, Operation.CHANGES)[
                drawn(self._chance, 3)
            ]
            self._read(reader, operation)
            self._process.world.sleep_ms((0, 1, 500, 10_000)[drawn(self._chance, 4)])

    def _read(self, reader: LightReader, operation: Operation) -> None:
        number = self._stage.history.new_attempt()
        self._record(number, Outcome.INVOKE, operation)
        try:
            if operation is Operation.CHANGES:
                self._consume(number, reader)
            else:
                self._look(number, reader, operation)
        except UnavailableError:
            self._record(number, Outcome.FAIL, operation)
        except (HudiError, FileNotFoundError) as error:
            self._stage.history.unexpected.append(f"{self._process.name} was told: {error}")

    def _look(self, number: int, reader: LightReader, operation: Operation) -> None:
        state = reader.load()
        as_of = latest_completion(state)
        if operation is Operation.SNAPSHOT:
            rows = reader.snapshot(state)
        else:
            times = sorted(state.timeline.completion_times.values())
            as_of = times[drawn(self._chance, len(times))] if times else as_of
            rows = reader.at(state, as_of)
        read = {row.key: row.version for row in rows.values() if not row.is_deleted}
        self._record(number, Outcome.OK, operation, as_of=as_of, read=read)

    def _consume(self, number: int, reader: LightReader) -> None:
        since = self._checkpoint
        changes = reader.changes(reader.load(), since)
        self._checkpoint = changes.until
        self._record(
            number,
            Outcome.OK,
            Operation.CHANGES,
            rows=changes.rows,
            since=since,
            as_of=changes.until,
        )

    def _record(
        self,
        number: int,
        outcome: Outcome,
        operation: Operation,
        *,
        rows: tuple[Row, ...] = (),
        since: str = "",
        as_of: str = "",
        read: dict[str, str] | None = None,
    ) -> None:
        event = Event(
            process=self._process.name,
            outcome=outcome,
            operation=operation,
            attempt=number,
            place=len(self._stage.storage.changes),
            rows=rows,
            since=since,
            as_of=as_of,
            read=read or {},
        )
        self._stage.history.record(event)


class Recoverer:
    """Undoes what dead writers left, and sweeps up, now and then."""

    def __init__(self, stage: Stage, name: str, *, rounds: int, grace_ms: int) -> None:
        self._stage = stage
        self.process = stage.simulation.process(name)
        self._rounds = rounds
        self._grace_ms = grace_ms
        self._chance = stage.chance(f"work of {name}")

    def run(self) -> None:
        log = self._stage.decision_log(self.process)
        recovery = FailedWriteRecovery(log, self._stage.settings)
        timeout_ms = self._stage.settings.heartbeat_timeout_ms
        for _ in range(self._rounds):
            waits = (0, timeout_ms // 2, timeout_ms + 1, 3 * timeout_ms)
            self.process.world.sleep_ms(waits[drawn(self._chance, len(waits))])
            try:
                if happens(self._chance, 0.5):
                    log.refresh()
                    recovery.recover()
                else:
                    Repair(log, recovery, grace_ms=self._grace_ms).run()
            except (UnavailableError, ConflictError):
                continue  # the next round, or the next process, does it
            except HudiError as error:
                self._stage.history.unexpected.append(f"{self.process.name} was told: {error}")


class Pruner:
    """Removes log entries without asking who needs them: all but the last few, oldest first.

    The figures of real pruning only keep writers from being refused. Safety does not rest on them.
    With `archives`, completed rollbacks leave the timeline at once, too.
    """

    def __init__(self, stage: Stage, name: str, *, rounds: int, archives: bool = False) -> None:
        self.process = stage.simulation.process(name)
        self._storage = self.process.storage
        self._rounds = rounds
        self._archives = archives
        self._chance = stage.chance(f"work of {name}")

    def run(self) -> None:
        for _ in range(self._rounds):
            self.process.world.sleep_ms((0, 1, 1_000, 20_000)[drawn(self._chance, 4)])
            try:
                self._prune()
                if self._archives:
                    self._archive_rollbacks()
            except UnavailableError:
                continue

    def _prune(self) -> None:
        numbers = [number for number, _ in entries_after(self._storage, 0)]
        for number in numbers[: -1 - drawn(self._chance, 3)]:
            self._storage.delete(entry_path(number))

    def _archive_rollbacks(self) -> None:
        objects = self._storage.list_folder(TIMELINE_FOLDER).objects
        instants = [Instant.parse(stat.path.rpartition("/")[2]) for stat in objects]
        done = {i.requested for i in instants if i.completed and i.action is Action.ROLLBACK}
        for instant in instants:
            if instant.requested in done:
                self._storage.delete(f"{TIMELINE_FOLDER}/{instant.file_name}")
