"""One writer process: it writes batch after batch until it is told to stop, or killed.

    cd tests && python -m processes.worker ORDERS.json

Its journal tells what it did and what it was told. A process that finds a batch of the one before
it undecided either calls again with the same `write_id`, as a careful user would, or lets it be.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pyhudi
from processes.journal import Event, Journal
from processes.workload import Batch, Kind, next_batch, open_table, write
from pyhudi.write.result import WriteResult

_CALLS_AGAIN = 0.5  # of the lives that begin with an undecided batch
_READS = 0.05  # of the writes are followed by one
_PAUSE_S = 0.1  # at most, after storage did not answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What a writer is told when it is started."""

    uri: str
    options: dict[str, str] | None
    kind: str
    writer: int
    seed: int
    journal: str


class Worker:
    """A life of a writer."""

    def __init__(self, orders: Orders) -> None:
        self._kind = Kind(orders.kind)
        self._writer = orders.writer
        self._journal = Journal(Path(orders.journal))
        self._chance = random.Random(f"{orders.seed}/{orders.writer}/{self._journal.lives}")
        self._table = open_table(orders.uri, orders.options)
        self._parent = os.getppid()
        self._is_told = False
        self._number = self._journal.next_number()

    def stop(self, _signal: int, _frame: FrameType | None) -> None:
        self._is_told = True

    @property
    def _is_to_stop(self) -> bool:
        return self._is_told or os.getppid() != self._parent

    def run(self) -> None:
        undecided = self._journal.undecided()
        self._journal.note(Event.START, pid=os.getpid())
        try:
            if undecided is not None and self._chance.random() < _CALLS_AGAIN:
                self._write(undecided)
            while not self._is_to_stop:
                self.write_next()
        except BaseException:
            self._journal.note(Event.SURPRISE, error=traceback.format_exc())
            raise
        self._journal.note(Event.STOP)

    def write_next(self) -> None:
        self._write(next_batch(self._kind, self._writer, self._number, self._chance))
        self._number += 1

    def _write(self, batch: Batch) -> None:
        """Call until there is an answer that says what became of the batch."""
        while True:
            self._journal.note(Event.INVOKE, batch=batch.to_json())
            try:
                result = write(self._table, self._kind, batch)
            except pyhudi.ConflictError as error:
                self._journal.note(Event.FAIL, version=batch.version, error=str(error))
                return
            except pyhudi.UnavailableError as error:
                self._journal.note(Event.UNKNOWN, version=batch.version, error=str(error))
                if self._is_to_stop:
                    return
                time.sleep(self._chance.uniform(0, _PAUSE_S))
            else:
                self._acknowledge(batch, result)
                return

    def _acknowledge(self, batch: Batch, result: WriteResult) -> None:
        self._journal.note(
            Event.OK,
            version=batch.version,
            instant=result.instant,
            completed=result.completed,
            retries=result.retries,
        )
        if self._chance.random() < _READS:
            try:
                scan = self._table.read(as_of=result, columns=["id", "version"])
                seen = scan.to_arrow().to_pylist()
            except pyhudi.InvalidRequestError as error:
                if "cleaning has retained" not in str(error):
                    raise
                return  # this process was frozen since its write, for longer than a clean retains
            except pyhudi.UnavailableError as error:
                if "after this read was planned" not in str(error):
                    raise
                return  # it was frozen within the read
            versions = {row["id"]: row["version"] for row in seen}
            self._journal.note(Event.READ, as_of=result.completed, versions=versions)


def main(path: str) -> None:
    record: dict[str, Any] = json.loads(Path(path).read_text("utf-8"))
    faulthandler.register(signal.SIGUSR1)  # tells on stderr where it is
    worker = Worker(Orders(**record))
    signal.signal(signal.SIGTERM, worker.stop)
    worker.run()


if __name__ == "__main__":
    main(sys.argv[1])
