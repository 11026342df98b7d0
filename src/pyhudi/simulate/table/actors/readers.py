"""Actors that read the table in a simulation: readers of snapshots, and consumers of changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyhudi.errors import HudiError, InvalidRequestError, UnavailableError
from pyhudi.services.consumers import advance_consumer, register_consumer
from pyhudi.simulate.choices import drawn
from pyhudi.simulate.simulation import Process
from pyhudi.simulate.table.history import Event, Operation, Outcome
from pyhudi.simulate.table.rows import Row, happens
from pyhudi.simulate.table.stage import Stage
from pyhudi.simulate.table.table import GoneError, ToyReader, latest_completion
from pyhudi.timeline.live import BEFORE_ALL

_POLL_PAUSES_MS = (0, 0, 1, 50, 500, 5_000)
#: Of a consumer that registers, so that cleans come before it and in between.
_LONG_PAUSES_MS = (0, 50, 5_000, 30_000)


class Reader:
    """Reads the table as it is and as it was."""

    def __init__(self, stage: Stage, name: str, *, reads: int, rests: tuple[int, ...] = ()) -> None:
        self._stage = stage
        self.process = stage.simulation.process(name)
        self._reads = reads
        self._pauses = (0, 1, 500, 10_000, *rests)
        self._chance = stage.chance(f"work of {name}")
        self._seen: set[str] = set()  # completion times, also of writes that are archived by now
        self._as_of = ""
        self._reader = ToyReader(self.process.storage, stage.kind)

    def run(self) -> None:
        for _ in range(self._reads):
            if happens(self._chance, 0.3):
                self._reader = ToyReader(self.process.storage, self._stage.kind)
            operation = (Operation.SNAPSHOT, Operation.TRAVEL)[drawn(self._chance, 2)]
            self._read(self._reader, operation)
            self.process.world.sleep_ms(self._pauses[drawn(self._chance, len(self._pauses))])

    def finish(self) -> None:
        """Read once more at the end, with what it has known of the table for long."""
        for operation in () if self.process.crashed else (Operation.SNAPSHOT, Operation.TRAVEL):
            self._read(self._reader, operation)
            last = self._stage.history.events[-1]
            if last.outcome is Outcome.FAIL and not last.error:
                self._stage.history.unexpected.append(f"{self.process.name} can no longer read")

    def _read(self, reader: ToyReader, operation: Operation) -> None:
        number = self._stage.history.new_attempt()
        self._record(number, Outcome.INVOKE, operation)
        try:
            read = self._look(reader, operation)
            self._record(number, Outcome.OK, operation, as_of=self._as_of, read=read)
        except GoneError as error:
            self._record(number, Outcome.FAIL, operation, missing=error.path)
        except UnavailableError:
            self._record(number, Outcome.FAIL, operation)
        except InvalidRequestError as error:
            self._record(number, Outcome.FAIL, operation, as_of=self._as_of, error=error.what)
        except (HudiError, FileNotFoundError) as error:
            self._stage.unexpected_error(self.process, error)

    def _look(self, reader: ToyReader, operation: Operation) -> dict[str, str]:
        state = reader.load()
        self._as_of = latest_completion(state)
        self._seen.update(state.timeline.completion_times.values())
        if operation is Operation.SNAPSHOT:
            return shown(reader.snapshot(state))
        times = sorted(self._seen)
        self._as_of = times[drawn(self._chance, len(times))] if times else self._as_of
        return shown(reader.at(state, self._as_of))

    def _record(
        self,
        number: int,
        outcome: Outcome,
        operation: Operation,
        *,
        as_of: str = "",
        read: dict[str, str] | None = None,
        error: str = "",
        missing: str = "",
    ) -> None:
        event = Event(
            process=self.process.name,
            outcome=outcome,
            operation=operation,
            attempt=number,
            place=self._stage.place,
            as_of=as_of,
            read=read or {},
            error=error,
            missing=missing,
        )
        self._stage.history.record(event)


def shown(rows: Mapping[str, Row]) -> dict[str, str]:
    """Return what a reader sees of the rows."""
    return {row.key: row.shown for row in rows.values() if not row.is_deleted}


class Consumer:
    """Polls for changes, one process after the other, from a checkpoint that outlives them all.

    The result of a poll and the checkpoint behind it are stored in one step, so a process that dies
    in between has received nothing. A registered consumer is promised that no change is cleaned
    before it has come; another one may have to begin again from a snapshot.
    """

    def __init__(
        self,
        stage: Stage,
        name: str,
        *,
        polls: int,
        registers: bool = False,
        rests: tuple[int, ...] = (),
    ) -> None:
        self._stage = stage
        self.name = name
        self._polls = polls
        self._chance = stage.chance(f"work of {name}")
        self._checkpoint = BEFORE_ALL
        self._processes = 0
        self._registers = registers
        self._pauses = (*(_LONG_PAUSES_MS if registers else _POLL_PAUSES_MS), *rests)
        self._is_registered = False

    def start(self) -> None:
        """Start a process that continues from the checkpoint, and another one should it crash."""
        process = self._stage.simulation.process(self.name + "+" * self._processes)
        self._processes += 1
        process.on_crash = self.start
        process.start(self._run, process)

    def _run(self, process: Process) -> None:
        reader = ToyReader(process.storage, self._stage.kind)
        while self._polls > 0:
            self._polls -= 1
            if happens(self._chance, 0.3):  # it starts again, with nothing but its checkpoint
                reader = ToyReader(process.storage, self._stage.kind)
            self.poll(process, reader)
            process.world.sleep_ms(self._pauses[drawn(self._chance, len(self._pauses))])

    def finish(self, process: Process) -> None:
        """Poll once more at the end; twice, if it has to begin again."""
        reader = ToyReader(process.storage, self._stage.kind)
        self.poll(process, reader)
        if self._stage.history.events[-1].operation is Operation.RESTART:
            self.poll(process, reader)
        self._stage.history.consumed_to_the_end.append(self.name)

    def poll(self, process: Process, reader: ToyReader) -> None:
        history, since = self._stage.history, self._checkpoint
        number = history.new_attempt()
        history.record(self._event(number, Outcome.INVOKE))
        try:
            if self._registers and not self._is_registered and happens(self._chance, 0.5):
                self._register(process)
            found = reader.changes(reader.load(), since)
        except UnavailableError as error:
            missing = error.path if isinstance(error, GoneError) else ""
            history.record(self._event(number, Outcome.FAIL, missing=missing))
            return
        except InvalidRequestError as error:  # some of it has been cleaned
            if self._is_registered:
                self._stage.unexpected_error(process, error)
            history.record(self._event(number, Outcome.FAIL, since=since, error=error.what))
            self._restart(process, reader)
            return
        except (HudiError, FileNotFoundError) as error:
            self._stage.unexpected_error(process, error)
            return
        self._checkpoint = found.until
        rows = tuple(found.rows)
        history.record(self._event(number, Outcome.OK, rows=rows, since=since, as_of=found.until))
        self._advance(process)

    def _register(self, process: Process) -> None:
        table = self._stage.session(process)
        register_consumer(table, self.name, since=self._checkpoint, expires_after_hours=None)
        self._is_registered = True
        self._stage.history.registered[self.name] = self._stage.place

    def _advance(self, process: Process) -> None:
        if not self._is_registered:
            return
        try:
            advance_consumer(self._stage.session(process), self.name, self._checkpoint)
        except UnavailableError:
            return  # its files stay a little longer
        except HudiError as error:
            self._stage.unexpected_error(process, error)

    def _restart(self, process: Process, reader: ToyReader) -> None:
        """Read the table as it is, and continue from there."""
        history, number = self._stage.history, self._stage.history.new_attempt()
        history.record(self._event(number, Outcome.INVOKE, Operation.RESTART))
        try:
            state = reader.load()
            read = shown(reader.snapshot(state))
        except UnavailableError as error:
            missing = error.path if isinstance(error, GoneError) else ""
            history.record(self._event(number, Outcome.FAIL, Operation.RESTART, missing=missing))
            return
        except (HudiError, FileNotFoundError) as error:
            self._stage.unexpected_error(process, error)
            return
        self._checkpoint = latest_completion(state)
        history.record(
            self._event(number, Outcome.OK, Operation.RESTART, as_of=self._checkpoint, read=read)
        )

    def _event(
        self,
        number: int,
        outcome: Outcome,
        operation: Operation = Operation.CHANGES,
        **more: Any,
    ) -> Event:
        return Event(
            process=self.name,
            outcome=outcome,
            operation=operation,
            attempt=number,
            place=self._stage.place,
            **more,
        )
