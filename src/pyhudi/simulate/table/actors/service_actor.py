"""An actor that serves the table in rounds: from time to time, in one process after the other.

A process that crashes is followed by the next one, which has the remaining rounds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from pyhudi.errors import ConflictError, HudiError, UnavailableError
from pyhudi.simulate.choices import drawn
from pyhudi.simulate.simulation import Process
from pyhudi.simulate.table.stage import Stage


class ServiceActor(ABC):
    #: Errors after which the next round, or the next process, does what is left.
    harmless: tuple[type[HudiError], ...] = (UnavailableError, ConflictError)

    def __init__(self, stage: Stage, name: str, *, rounds: int, pauses: Sequence[int]) -> None:
        self._stage = stage
        self._name = name
        self._rounds = rounds
        self._pauses = pauses
        self._chance = stage.chance(f"work of {name}")
        self._processes = 0

    def start(self) -> None:
        process = self._stage.simulation.process(self._name + "+" * self._processes)
        self._processes += 1
        process.on_crash = self.start
        process.start(self._run, process)

    @abstractmethod
    def _begun(self, process: Process) -> Callable[[], object]:
        """Return what a new process does in each of its rounds."""

    def _run(self, process: Process) -> None:
        work = self._begun(process)
        while self._rounds > 0:
            self._rounds -= 1
            process.world.sleep_ms(self._pauses[drawn(self._chance, len(self._pauses))])
            self._round(process, work)

    def _round(self, process: Process, work: Callable[[], object]) -> None:
        try:
            work()
        except HudiError as error:
            self._report(process, error)

    def _report(self, process: Process, error: HudiError) -> None:
        if not isinstance(error, self.harmless):
            self._stage.unexpected_error(process, error)
