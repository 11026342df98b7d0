"""Who reads the table in a simulation: readers of snapshots, and consumers of changes."""

from __future__ import annotations

from pyhudi.errors import HudiError, UnavailableError
from pyhudi.simulate.choices import drawn
from pyhudi.simulate.history import Event, Operation, Outcome
from pyhudi.simulate.light_rows import happens
from pyhudi.simulate.light_table import LightReader, latest_completion
from pyhudi.simulate.simulation import Process
from pyhudi.simulate.stage import Stage
from pyhudi.timeline.ledger import BEFORE_ALL

_POLL_PAUSES_MS = (0, 0, 1, 50, 500, 5_000)


class Reader:
    """Reads the table as it is and as it was."""

    def __init__(self, stage: Stage, name: str, *, reads: int) -> None:
        self._stage = stage
        self.process = stage.simulation.process(name)
        self._reads = reads
        self._chance = stage.chance(f"work of {name}")

    def run(self) -> None:
        reader = LightReader(self.process.storage, self._stage.kind)
        for _ in range(self._reads):
            if happens(self._chance, 0.3):
                reader = LightReader(self.process.storage, self._stage.kind)
            self._read(reader, (Operation.SNAPSHOT, Operation.TRAVEL)[drawn(self._chance, 2)])
            self.process.world.sleep_ms((0, 1, 500, 10_000)[drawn(self._chance, 4)])

    def _read(self, reader: LightReader, operation: Operation) -> None:
        number = self._stage.history.new_attempt()
        self._record(number, Outcome.INVOKE, operation)
        try:
            self._look(number, reader, operation)
        except UnavailableError:
            self._record(number, Outcome.FAIL, operation)
        except (HudiError, FileNotFoundError) as error:
            self._stage.surprise(self.process, error)

    def _look(self, number: int, reader: LightReader, operation: Operation) -> None:
        state = reader.load()
        as_of = latest_completion(state)
        if operation is Operation.SNAPSHOT:
            rows = reader.snapshot(state)
        else:
            times = sorted(state.timeline.completion_times.values())
            as_of = times[drawn(self._chance, len(times))] if times else as_of
            rows = reader.at(state, as_of)
        read = {row.key: row.shown for row in rows.values() if not row.is_deleted}
        self._record(number, Outcome.OK, operation, as_of=as_of, read=read)

    def _record(
        self,
        number: int,
        outcome: Outcome,
        operation: Operation,
        *,
        as_of: str = "",
        read: dict[str, str] | None = None,
    ) -> None:
        event = Event(
            process=self.process.name,
            outcome=outcome,
            operation=operation,
            attempt=number,
            place=self._stage.place,
            as_of=as_of,
            read=read or {},
        )
        self._stage.history.record(event)


class Consumer:
    """Polls for changes, one process after the other, from a checkpoint that outlives them all.

    What a poll brought and the checkpoint behind it are stored in one step, so a process that
    dies in between has received nothing.
    """

    def __init__(self, stage: Stage, name: str, *, polls: int) -> None:
        self._stage = stage
        self.name = name
        self._polls = polls
        self._chance = stage.chance(f"work of {name}")
        self._checkpoint = BEFORE_ALL
        self._processes = 0

    def start(self) -> None:
        """A new process goes on from the checkpoint, and another one should it crash."""
        process = self._stage.simulation.process(self.name + "+" * self._processes)
        self._processes += 1
        process.on_crash = self.start
        process.start(self._run, process)

    def _run(self, process: Process) -> None:
        reader = LightReader(process.storage, self._stage.kind)
        while self._polls > 0:
            self._polls -= 1
            if happens(self._chance, 0.3):  # it starts anew, with nothing but its checkpoint
                reader = LightReader(process.storage, self._stage.kind)
            self.poll(process, reader)
            pause = _POLL_PAUSES_MS[drawn(self._chance, len(_POLL_PAUSES_MS))]
            process.world.sleep_ms(pause)

    def finish(self, process: Process) -> None:
        """Poll once more when all is over."""
        self.poll(process, LightReader(process.storage, self._stage.kind))
        self._stage.history.consumed_to_the_end.append(self.name)

    def poll(self, process: Process, reader: LightReader) -> None:
        history, since = self._stage.history, self._checkpoint
        number = history.new_attempt()
        history.record(self._event(number, Outcome.INVOKE))
        try:
            found = reader.changes(reader.load(), since)
        except UnavailableError:
            history.record(self._event(number, Outcome.FAIL))
            return
        except (HudiError, FileNotFoundError) as error:
            self._stage.surprise(process, error)
            return
        self._checkpoint = found.until
        rows = tuple(found.rows)
        event = Event(
            process=self.name,
            outcome=Outcome.OK,
            operation=Operation.CHANGES,
            attempt=number,
            place=self._stage.place,
            rows=rows,
            since=since,
            as_of=found.until,
        )
        history.record(event)

    def _event(self, number: int, outcome: Outcome) -> Event:
        return Event(
            process=self.name,
            outcome=outcome,
            operation=Operation.CHANGES,
            attempt=number,
            place=self._stage.place,
        )
