"""Actors that change the table in a simulation: writers, late tasks, recoverers, a pruner.

Each is a process of its own around the protocol code of production. What an actor does is drawn
from its own stream of chance; the answers that it gets are recorded in the history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyhudi.commit.decision_log import DecisionLog
from pyhudi.commit.ownership import OwnedPart
from pyhudi.commit.rollback import FailedWriteRecovery
from pyhudi.commit.transaction import Completed, Held, Lost, Transaction
from pyhudi.commit.validation import Checks, SchemaConflict
from pyhudi.conflict.schema_to_record import WriteSchemas
from pyhudi.errors import (
    ConflictError,
    HudiError,
    InvalidRequestError,
    OutcomeUnknownError,
    UnavailableError,
)
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.paths import file_name
from pyhudi.format.table.conflict_strategy import Strategy
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.format.timeline.decision_entry import entry_path
from pyhudi.format.timeline.instant import Action, Instant
from pyhudi.services.repair import Repair
from pyhudi.session.session import TableSession
from pyhudi.simulate.choices import drawn
from pyhudi.simulate.simulation import Process
from pyhudi.simulate.table.actors.evolver import EvolvingCall, drawn_columns
from pyhudi.simulate.table.actors.looks import (
    ToyWatch,
    announced_again,
    rules_session,
    watching,
)
from pyhudi.simulate.table.actors.overwriter import drawn_overwrite
from pyhudi.simulate.table.actors.owner_registrar import declare_owners, owned
from pyhudi.simulate.table.actors.resizer import toy_resizes
from pyhudi.simulate.table.actors.way import Way
from pyhudi.simulate.table.checks.evidence import TIMELINE_FOLDER
from pyhudi.simulate.table.history import Event, LostFile, Operation, Outcome
from pyhudi.simulate.table.rows import KEYS, PARTITIONS, Placing, Row, drawn_rows, group_of, happens
from pyhudi.simulate.table.stage import Stage
from pyhudi.simulate.table.table import (
    DataFile,
    GoneError,
    ToyReader,
    avro_schema,
    base_files,
    bucket_layout,
    commit_metadata,
    first_rings,
    log_files,
    projected,
    seed_files,
    virtual_log_files,
    write_data_file,
)
from pyhudi.simulate.table.toy_rings import all_groups, placing_by
from pyhudi.storage.objects.decision_log import entries_after
from pyhudi.storage.objects.rings import write_mark
from pyhudi.write.column_owners import OwnedColumns
from pyhudi.write.files.group_log import VirtualInput
from pyhudi.write.files.spec import refuse_unknown
from pyhudi.write.resizing.beside import resizes_beside, virtual_inputs
from pyhudi.write.resizing.meet import ResizesMet, WrittenFiles

_CONFLICT_RETRIES = 2
_RESOLVE_ATTEMPTS = 3
_TASK_DELAYS_MS = (0, 100, 3_000, 30_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterProfile:
    """How a writer writes: how often in which way."""

    base_rate: float = 0.0  # base files instead of logs, which yield to others in any mode
    checked_rate: float = 0.0  # logs that yield, too
    reads_nothing_rate: float = 1.0  # of these, logs of rows that depend on nothing in the table
    task_rate: float = 0.15  # a task that has a late twin
    fenced_rate: float = 0.0  # tasks that check the fence, and whose twins may disagree
    keeping_rate: float = 0.0  # a write that lost keeps its files until it was rebased
    replacing_rate: float = 0.0  # partitions that are overwritten, or deleted
    owner: str | None = None  # the owner of the columns that it writes, on a table that has owners
    priority: int = 0
    strategy: Strategy = Strategy.BUCKET  # what counts as a conflict
    pauses_ms: tuple[int, ...] = (0, 1, 200, 5_000)  # between writes
    evolves: bool = False  # its rows bring columns and wider types
    late_rate: float = 0.0  # it looks at the rings late, when a resize has completed
    looks: bool = False  # it looks while it writes whether it is doomed
    has_lists: bool = False  # its markers are lines of lists
    yields_by: str | None = None  # the strategy by which it yields to writes that are ahead


class Writer:
    """Writes a number of times, and repeats what lost a conflict."""

    def __init__(
        self,
        stage: Stage,
        name: str,
        profile: WriterProfile,
        *,
        writes: int = 1,
        process: Process | None = None,
    ) -> None:
        self.stage = stage
        self.process = process or stage.simulation.process(name)
        self.profile = profile
        self.settings = replace(stage.settings, priority=profile.priority)
        self.writes = writes
        #: Transactions that lost a conflict, and are abandoned once they were rebased.
        self.kept: list[Transaction] = []
        self._chance = stage.chance(f"work of {name}")
        self._replacing = stage.chance(f"clearing of {name}")
        self._evolving = stage.chance(f"evolving of {name}")
        self._call: EvolvingCall | None = None  # of the attempts until the next call
        self._count = 0
        self._tasks = 0
        self.session: TableSession | None = None  # on a table of rings
        self._resizing = stage.chance(f"rings of {name}")
        self._is_late = False  # it begins beside a resize, and looks at the rings after it
        self._looking = stage.chance(f"looks of {name}")

    def run(self) -> None:
        log = self._opened()
        recovery = FailedWriteRecovery(log, self.settings)
        while self.writes > 0:
            for _ in range(1 + _CONFLICT_RETRIES):
                if self.write(log, recovery) is not Outcome.FAIL:
                    break
                if self.kept or self.profile.owner:  # its columns may become its own
                    self.process.world.sleep_ms((0, 50, 1_000)[drawn(self._chance, 3)])
            while self.kept:
                self.kept.pop().abandon()
            self._call = None
            self.writes -= 1
            pauses = self.profile.pauses_ms
            self.process.world.sleep_ms(pauses[drawn(self._chance, len(pauses))])

    def run_once(self) -> Outcome:
        log = self._opened()
        return self.write(log, FailedWriteRecovery(log, self.settings))

    def _opened(self) -> DecisionLog:
        if not self.stage.kind.has_rings:
            return self.stage.decision_log(self.process)
        self.session = self.stage.session(self.process)
        return self.session.log

    def write(self, log: DecisionLog, recovery: FailedWriteRecovery) -> Outcome:
        """Make one attempt: a new instant, and rows that no other attempt has."""
        self._count += 1
        profile, chance = self.profile, self._chance
        version = f"{self.process.name}.{self._count}"
        rows = drawn_rows(chance, version, profile.owner)
        is_base = happens(chance, profile.base_rate)
        removes = profile.owner is not None and rows[0].is_deleted
        way = Way(
            is_base,
            is_checked=happens(chance, profile.checked_rate) or removes,
            reads_nothing=not is_base and happens(chance, profile.reads_nothing_rate),
            is_fenced=happens(chance, profile.fenced_rate),
            keeps_files=happens(chance, profile.keeping_rate),
        )
        self._is_late = self.session is not None and happens(self._resizing, profile.late_rate)
        if self._is_late:
            with suppress(UnavailableError):
                self._wait(log, lambda: bool(log.live.pending_of(Action.CLUSTERING)))
        if not happens(self._replacing, profile.replacing_rate):
            return _Attempt(self, rows, way).run(log, recovery)
        overwrite = drawn_overwrite(self._replacing, version, may_bring=profile.owner is None)
        way = replace(way, is_base=True, is_checked=True, reads_nothing=False, overwrite=overwrite)
        return _Attempt(self, overwrite.rows, way).run(log, recovery)

    # What an attempt needs of its writer.

    def call(self, log: DecisionLog) -> EvolvingCall | None:
        """Return what the verb found of the schema when it was called; None if that never
        changes."""
        if self._call is None and self.stage.kind.evolves:
            brought = partial(drawn_columns, self.stage, self._evolving)
            brings = self.profile.evolves and self.profile.owner is None
            self._call = EvolvingCall.of(
                self.stage, log, self.settings, brought if brings else lambda table: table
            )
        return self._call

    def placing(self) -> Placing:
        """Return where rows belong as this process has it now."""
        session = self.session
        if session is None:
            return group_of
        if self._is_late:
            log = session.log
            begun = {resize.requested for resize in log.live.pending_of(Action.CLUSTERING)}
            self._wait(log, lambda: not begun <= log.live.pending.keys())
        session.groups.prepare(dict.fromkeys(PARTITIONS, 0))
        return placing_by(session.groups.layout)

    def _wait(self, log: DecisionLog, is_over: Callable[[], bool]) -> None:
        """Let time pass, for a while or until something is over."""
        for _ in range((1, 4, 10)[drawn(self._resizing, 3)]):
            self.process.world.sleep_ms((100, 900, 2_000)[drawn(self._resizing, 3)])
            log.refresh()
            if is_over():
                return

    def virtual(self, requested: str) -> Mapping[FileGroupId, VirtualInput]:
        """Return the buckets whose rows go to the children of pending resizes."""
        is_virtual = self.session is not None and self.stage.kind.is_virtual
        return virtual_inputs(self.session, requested) if self.session and is_virtual else {}

    def rest(self) -> None:
        """Take some time for a write, where resizes go on meanwhile."""
        if self.session is not None:
            self.process.world.sleep_ms((0, 0, 100, 2_000)[drawn(self._resizing, 4)])

    def watch(
        self, log: DecisionLog, transaction: Transaction, way: Way, owned: OwnedPart | None
    ) -> ToyWatch | None:
        """Return the looks of an attempt; None if this writer does not look."""
        if not self.profile.looks:
            return None
        profile = self.profile
        settings = watching(self.settings, profile.yields_by, is_fenced=way.is_fenced)
        session = rules_session(
            log,
            settings,
            self.stage.kind,
            profile.strategy,
            is_checked=way.is_checked,
            known=self.session,
            own={kept.requested for kept in self.kept},
        )
        return ToyWatch(
            self.stage,
            self.process,
            session,
            transaction,
            way,
            owned,
            self._looking,
            has_lists=profile.has_lists,
        )

    def write_files(self, files: Sequence[DataFile], placing: Placing) -> Iterator[WriteStat]:
        """Write the files, and sometimes leave a late second attempt of a task behind."""
        for file in files:
            if happens(self._chance, self.profile.task_rate):
                self._leave_late_task(self._computed_again(file, files, placing))
            yield write_data_file(self.process.storage, file)

    def _computed_again(
        self, file: DataFile, files: Sequence[DataFile], placing: Placing
    ) -> DataFile:
        """Return the file of the second attempt: the same, or another one if the input differs."""
        others = sorted({*KEYS} - {row.key for each in files for row in each.rows})
        taken = {each.group for each in files}
        strangers = [key for key in others if placing(key) not in taken]
        if not file.is_fenced or not strangers or happens(self._chance, 0.5) or not file.rows:
            return file
        row = file.rows[0]._replace(key=strangers[drawn(self._chance, len(strangers))])
        return log_files(file.requested, [row], placing)[0]._replace(is_fenced=True)

    def _leave_late_task(self, file: DataFile) -> None:
        self._tasks += 1
        file = file._replace(announcing=announced_again(file.announcing))
        name = f"{self.process.name}-task{self._tasks}"
        task = self.stage.simulation.process(name)
        wait_ms = _TASK_DELAYS_MS[drawn(self._chance, len(_TASK_DELAYS_MS))]
        task.start(_late_task, task, file, wait_ms)

    def resolves(self) -> bool:
        """True if it retries after an unknown outcome."""
        return happens(self._chance, 0.5)


def _late_task(task: Process, file: DataFile, wait_ms: int) -> None:
    task.world.sleep_ms(wait_ms)
    write_data_file(task.storage, file)


class _Attempt:
    """One attempt of a write, with its request and its answer in the history."""

    def __init__(self, writer: Writer, rows: tuple[Row, ...], way: Way) -> None:
        self._writer = writer
        self._stage = writer.stage
        self._process = writer.process
        self._rows = rows
        self._way = way
        # A write that replaces a partition takes it from all owners alike.
        self._owner = writer.profile.owner if way.overwrite is None else None
        self._number = writer.stage.history.new_attempt()
        self._requested = ""
        self._asked = 0
        self._owned: OwnedColumns | None = None
        self._call: EvolvingCall | None = None
        self._schemas: WriteSchemas | None = None
        self._virtual: Mapping[FileGroupId, VirtualInput] = {}

    def run(self, log: DecisionLog, recovery: FailedWriteRecovery) -> Outcome:
        self._record(Outcome.INVOKE)
        try:
            if self._owner is not None:
                self._owned = owned(self._stage, self._process, self._owner)
            recovery.recover(frozenset(kept.requested for kept in self._writer.kept))
            self._call = self._writer.call(log)
            transaction = Transaction.begin(
                log,
                self._writer.settings,
                self._stage.action,
                recovery,
                is_fenced=self._way.is_fenced,
            )
        except UnavailableError:
            return self._record(Outcome.FAIL)
        except InvalidRequestError as error:
            return self._unexpected(error) if self._owned else self._record(Outcome.FAIL)
        except HudiError as error:
            return self._unexpected(error)
        self._requested = transaction.requested
        self._stage.history.begun[self._number] = transaction.requested
        try:
            if self._call is not None:
                found = self._call.begun()
                if isinstance(found, SchemaConflict):
                    clash = transaction.lost_to_schema(found).error
                    assert isinstance(clash, ConflictError)
                    return self._record(Outcome.FAIL, error=clash.why, facts=clash.facts)
                self._schemas = found
            placing = self._writer.placing()
            stats = self._written(log, transaction, placing)
            if isinstance(stats, Lost):
                return self._ended(transaction, stats, WrittenFiles((), ()))
            self._writer.rest()
            if self._way.is_fenced:
                refuse_unknown(transaction.close([stat.data_path for stat in stats]))
        except (UnavailableError, ConflictError, InvalidRequestError) as error:
            # Storage failed, others rolled it back, or a late attempt of a task disagreed.
            if isinstance(error, GoneError):
                lost = LostFile(self._requested, error.path, self._stage.place)
                self._stage.history.lost.append(lost)
            transaction.abandon()
            return self._record(Outcome.FAIL)
        return self._complete(transaction, stats)

    def _written(
        self, log: DecisionLog, transaction: Transaction, placing: Placing
    ) -> list[WriteStat] | Lost:
        """Write the files, and look meanwhile whether that is in vain, if the writer does."""
        owned = self._owned.relied_on if self._owned is not None and self._is_part else None
        watch = self._writer.watch(log, transaction, self._way, owned)
        files = self._files(placing)
        if watch is None:
            return list(self._writer.write_files(files, placing))
        return watch.ran(self._writer.write_files(watch.announced(files), placing))

    def _files(self, placing: Placing) -> list[DataFile]:
        kind, overwrite = self._stage.kind, self._way.overwrite
        if overwrite is not None:
            reader = ToyReader(self._process.storage, kind)
            overwrite = overwrite._replace(rows=self._numbered(overwrite.rows))
            there = reader.places(reader.load())
            files = overwrite.files(self._requested, there, kind, placing)
        elif self._way.is_base:
            reader = ToyReader(self._process.storage, kind)
            before = reader.groups(reader.load(), placing)
            rows = self._numbered(self._rows)
            files = base_files(self._requested, rows, before, kind, placing)
            if self._schemas is not None and self._schemas.own is not None:
                columns = self._schemas.own.avro_json
                files = [f._replace(rows=tuple(projected(f.rows, columns))) for f in files]
        else:
            rows = self._numbered(self._with_placeholders())
            self._virtual = self._writer.virtual(self._requested)
            files = virtual_log_files(self._requested, rows, placing, self._virtual)
        return [file._replace(is_fenced=self._way.is_fenced) for file in files]

    def _numbered(self, rows: tuple[Row, ...]) -> tuple[Row, ...]:
        """Return the rows with values in columns that were added."""
        if self._call is None or self._schemas is None or self._is_part:
            return rows
        numbered = self._call.numbered(rows, self._schemas, self._number)
        written = {(row.key, row.version): row.more for row in numbered if row.more is not None}
        self._stage.history.numbers.update(written)
        return numbered

    def _with_placeholders(self) -> tuple[Row, ...]:
        """Return the rows; partial rows whose keys do not exist come behind a placeholder."""
        if not self._is_part:
            return self._rows
        reader = ToyReader(self._process.storage, self._stage.kind)
        # A write that began later is read behind these logs, so it brings no row that they rest on.
        found = reader.before(reader.load(), self._requested)
        live = {key for key, row in found.items() if not row.is_deleted}
        return tuple(row._replace(is_fresh=row.key not in live) for row in self._rows)

    @property
    def _is_part(self) -> bool:
        return any(row.cells is not None for row in self._rows)

    def _complete(self, transaction: Transaction, stats: Sequence[WriteStat]) -> Outcome:
        is_open = False  # its completion may have been appended
        files, attempts = WrittenFiles(tuple(stats), tuple(stats)), 0
        session = self._writer.session
        resizes = None if session is None else ResizesMet(session, self._requested)
        self._asked = self._stage.place
        while attempts < _RESOLVE_ATTEMPTS:
            attempts += 1
            try:
                ended = self._proposed(transaction, files)
                if not isinstance(ended, Held):
                    return self._ended(transaction, ended, files)
                assert resizes is not None, "only buckets on rings are resized"
                is_open, attempts = False, 0
                dealt_with = resizes.deal_with(ended, files)
                if isinstance(dealt_with, Lost):
                    transaction.abandon()
                    if self._stage.lock is not None:  # Hudi seems to execute the resize
                        return self._record(Outcome.FAIL)
                    return self._finished_first(dealt_with)
                files = dealt_with
            except OutcomeUnknownError:
                is_open = True
                if not self._writer.resolves():
                    break
            except (UnavailableError, ConflictError):
                # Storage failed, or others rolled it back while it dealt with a resize.
                if not is_open:
                    transaction.abandon()
                    return self._record(Outcome.FAIL)
            except HudiError as error:
                return self._unexpected(error)
        return self._record(Outcome.INFO)

    def _proposed(self, transaction: Transaction, files: WrittenFiles) -> Completed | Lost | Held:
        """Propose its completion, with the files that it has now."""
        owned = None if self._owned is None else self._owned.relied_on
        way, overwrite, has_rings = self._way, self._way.overwrite, self._stage.kind.has_rings
        stats = files.stats
        checks = Checks(
            way.is_checked,
            way.reads_nothing,
            is_part=self._is_part,
            layout=None if self._stage.lock is None else bucket_layout(has_rings=has_rings),
            replaces=None if overwrite is None else overwrite.replaced(stats),
            strategy=self._writer.profile.strategy,
            keeps_files=way.keeps_files,
            is_numbered=not has_rings,
            owned=owned,
            schemas=self._schemas,
            moved=files.left,
            twice=frozenset(each.resize for each in files.twice),
            beside=resizes_beside(self._virtual, stats),
        )
        metadata = commit_metadata(files.committed, self._stage.kind, way.operation)
        return transaction.complete(metadata, checks)

    def _finished_first(self, lost: Lost) -> Outcome:
        """Execute the virtual resize that prevented the write, before it is made again."""
        if lost.unfinished is None:
            assert isinstance(lost.error, HudiError)
            return self._unexpected(lost.error)
        with suppress(UnavailableError, ConflictError, InvalidRequestError):
            toy_resizes(self._stage, self._process, self._writer.session).execute(lost.unfinished)
        return self._record(Outcome.FAIL)

    def _ended(
        self, transaction: Transaction, ended: Completed | Lost, files: WrittenFiles
    ) -> Outcome:
        if self._call is not None:
            done = ended if isinstance(ended, Completed) else None
            self._call.ended(self._stage.place, transaction.requested, done)
        if isinstance(ended, Completed):
            files.remove_left(self._process.storage)
            return self._record(Outcome.OK, completed=ended.time)
        if ended.keeps_files:
            self._writer.kept.append(transaction)
        match ended.error:
            case ConflictError() as error:
                return self._record(Outcome.FAIL, error=error.why, facts=error.facts)
            case InvalidRequestError() if self._owned:  # its columns are no longer its own
                return self._record(Outcome.FAIL)
        return self._unexpected(ended.error)

    def _unexpected(self, error: HudiError) -> Outcome:
        self._stage.unexpected_error(self._process, error)
        return self._record(Outcome.INFO)

    def _record(
        self,
        outcome: Outcome,
        *,
        completed: str = "",
        error: str = "",
        facts: Mapping[str, Any] | None = None,
    ) -> Outcome:
        event = Event(
            process=self._process.name,
            outcome=outcome,
            operation=Operation.WRITE,
            attempt=self._number,
            place=self._stage.place,
            rows=self._rows,
            is_checked=self._way.is_base or self._way.is_checked,
            reads_nothing=self._way.reads_nothing,
            replaces=self._way.overwrite.partitions if self._way.overwrite else (),
            changes=() if self._call is None else self._call.changed,
            owner=self._owner,
            priority=self._writer.profile.priority,
            asked=self._asked,
            requested=self._requested,
            completed=completed,
            error=error,
            facts=facts or {},
        )
        self._stage.history.record(event)
        return outcome


def seed_table(stage: Stage, groups: Iterable[FileGroupId] | None = None) -> None:
    """Make the first write, before anything can fail: an empty base file for every file group.

    On a copy-on-write table, which needs no seeds, some `groups` are enough.
    """
    if stage.kind.has_owners:
        declare_owners(stage.storage)
    process = stage.simulation.process("seeder", faulty=False, clock_skew_ms=0)
    log = stage.decision_log(process)
    recovery = FailedWriteRecovery(log, stage.settings)
    transaction = Transaction.begin(log, stage.settings, stage.action, recovery)
    rings = first_rings(stage.kind)
    if rings:
        groups = all_groups(rings)
    files = seed_files(transaction.requested, groups)
    stats = [write_data_file(process.storage, file) for file in files]
    metadata = commit_metadata(stats, stage.kind, schema=avro_schema(stage.kind))
    transaction.complete(metadata).or_raise()
    for ring in rings:  # every node has a file group
        write_mark(process.storage, ring.partition, ring.instant, is_complete=True)


class Recoverer:
    """Rolls back what dead writers left, and removes remains, from time to time."""

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
                self._stage.unexpected_error(self.process, error)


class Pruner:
    """Removes log entries whether they are needed or not: all but the last few, oldest first.

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
        instants = [Instant.parse(file_name(stat.path)) for stat in objects]
        done = {i.requested for i in instants if i.completed and i.action is Action.ROLLBACK}
        for instant in instants:
            if instant.requested in done:
                self._storage.delete(f"{TIMELINE_FOLDER}/{instant.file_name}")
