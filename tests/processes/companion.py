"""A process beside the writers of a table that is resized: an executor, a janitor or a reader.

    cd tests && python -m processes.companion ORDERS.json

An executor resizes without a rest, up to the most buckets and down to one, and so on. It comes to
grief where that hurts most: just after it closed a resize it stops itself, kills itself, or goes
on, as its orders have it. It closes more often than writers make it, so that each run has closes.

Its notes are JSON lines, on disk before it goes on. Times are of the machine's monotonic clock, as
in the journals of writers.
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
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle
from pathlib import Path
from typing import Any

import pyhudi
from processes.journal import Event, Journal
from processes.workload import open_table
from pyhudi.commit.proposals import Outcome
from pyhudi.plan.resizing.copies import OwedCopy
from pyhudi.plan.resizing.pace import REFUSALS_MAX, Pace
from pyhudi.write.resizing.finish import ResizeEnd

CLOSES = 0.5  # of the resizes are closed, whether writers are faster or not
KEPT_COMMITS = 60
_PAUSE_S = 0.1
_JANITOR_PAUSE_S = 1.5  # buckets in a pending compaction are in no plan of a resize


class Role(StrEnum):
    EXECUTOR = "executor"
    JANITOR = "janitor"  # compacts and cleans
    READER = "reader"


class Then(StrEnum):
    """What an executor does once it has closed a resize."""

    STOPS = "stops"
    DIES = "dies"
    GOES_ON = "goes on"


#: In this order, over and over.
_AFTER_CLOSES = (Then.STOPS, Then.DIES, Then.GOES_ON)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanionOrders:
    """What a companion is told when it is started."""

    uri: str
    options: dict[str, str] | None
    role: str
    seed: int
    journal: str
    notes: str


class Notes:
    """What an executor did, for the process that judges."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
        self.closes = len([note for note in load_notes(path) if "closed" in note])

    def note(self, **fields: Any) -> None:
        os.write(self._file, json.dumps({"at": time.monotonic_ns(), **fields}).encode() + b"\n")
        os.fsync(self._file)


def load_notes(path: Path) -> list[dict[str, Any]]:
    """All notes; one that a kill cut short does not count."""
    data = path.read_bytes() if path.exists() else b""
    return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]


class Companion:
    """One process, until it is told to stop."""

    def __init__(self, orders: CompanionOrders) -> None:
        self._journal = Journal(Path(orders.journal))
        self._notes = Notes(Path(orders.notes))
        self._chance = random.Random(f"{orders.seed}/{orders.journal}/{self._journal.lives}")
        self._table = open_table(orders.uri, orders.options)
        self._parent = os.getppid()
        self._is_told = False
        self._role = Role(orders.role)

    def stop(self, *_: object) -> None:
        self._is_told = True

    def run(self) -> None:
        self._journal.note(Event.START, pid=os.getpid())
        rounds = {
            Role.EXECUTOR: (self._split, self._merge),
            Role.JANITOR: (self._compact, self._clean),
            Role.READER: (self._read_now, self._read_past),
        }[self._role]
        for round_ in cycle(rounds):
            if self._is_told or os.getppid() != self._parent:
                break
            try:
                round_()
            except (pyhudi.ConflictError, pyhudi.UnavailableError):
                time.sleep(self._chance.uniform(0, _PAUSE_S))
            except BaseException:
                self._journal.note(Event.SURPRISE, error=traceback.format_exc())
                raise
        self._journal.note(Event.STOP)

    # -- an executor

    def _split(self) -> None:
        self._resize(pyhudi.ResizePolicy(target_bytes=4096, split_above=1, rest_seconds=0))

    def _merge(self) -> None:
        self._resize(pyhudi.ResizePolicy(merge_below=1, rest_seconds=0))

    def _resize(self, policy: pyhudi.ResizePolicy) -> None:
        results = self._table.services.resize(policy).results
        for result in results:
            self._notes.note(resized=result.instant, is_ours=result.is_ours)
        if not results:
            self._notes.note(rested=True)
            time.sleep(_PAUSE_S)

    def close_more(self) -> None:
        """Close resizes without need, and come to grief after closes."""
        run, is_closed = ResizeEnd.run, ResizeEnd._is_closed

        def closing_run(end: ResizeEnd) -> Outcome:
            if self._chance.random() < CLOSES:
                with end._exclusive:
                    owed = end._copies.owed(end._log.refresh())
                end._copies.copy(owed)
                outrun = Pace(0, 0, is_outrun=True, refusals=REFUSALS_MAX)
                with end._exclusive:
                    end._is_closed(outrun, end._copies.owed(end._log.refresh()))
            return run(end)

        def noted_close(end: ResizeEnd, pace: Pace, owed: Sequence[OwedCopy]) -> bool:
            requested = end._work.requested
            was_closed = requested in end._log.live.closed
            if (closed := is_closed(end, pace, owed)) and not was_closed:
                self._closed(requested)
            return closed

        ResizeEnd.run = closing_run  # type: ignore[method-assign, assignment]
        ResizeEnd._is_closed = noted_close  # type: ignore[method-assign, assignment]

    def _closed(self, requested: str) -> None:
        then = _AFTER_CLOSES[self._notes.closes % len(_AFTER_CLOSES)]
        self._notes.closes += 1
        self._notes.note(closed=requested, then=then, wall_ms=time.time_ns() // 10**6)
        if then is Then.STOPS:
            os.kill(os.getpid(), signal.SIGSTOP)
        elif then is Then.DIES:
            os.kill(os.getpid(), signal.SIGKILL)

    # -- a janitor

    def _compact(self) -> None:
        self._table.services.compact()
        time.sleep(_JANITOR_PAUSE_S)

    def _clean(self) -> None:
        self._table.services.clean(pyhudi.CleanPolicy.commits(KEPT_COMMITS))
        time.sleep(_JANITOR_PAUSE_S)

    # -- a reader

    def _read_now(self) -> None:
        rows = self._table.read(columns=["id", "version"]).to_arrow()
        if len(rows["id"].unique()) < rows.num_rows:
            raise AssertionError("a reader saw a key twice")

    def _read_past(self) -> None:
        completed = [
            time_ for time_ in self._table.inspect.timeline()["completed"].to_pylist() if time_
        ]
        if not completed:
            return
        as_of = self._chance.choice(sorted(completed)[-KEPT_COMMITS // 4 :])
        try:
            rows = self._table.read(as_of=as_of, columns=["id", "version"]).to_arrow().to_pylist()
        except pyhudi.InvalidRequestError as error:
            if "cleaning has retained" not in str(error):
                raise
            return  # this process was slower than a clean
        versions = {row["id"]: row["version"] for row in rows}
        if len(versions) < len(rows):
            raise AssertionError(f"a reader saw a key twice as of {as_of}")
        self._journal.note(Event.READ, as_of=as_of, versions=versions)


def main(path: str) -> None:
    record: dict[str, Any] = json.loads(Path(path).read_text("utf-8"))
    faulthandler.register(signal.SIGUSR1)  # tells on stderr where it is
    warnings.simplefilter("ignore")  # buckets this small are for tests only
    companion = Companion(CompanionOrders(**record))
    signal.signal(signal.SIGTERM, companion.stop)
    if record["role"] == Role.EXECUTOR:
        companion.close_more()
    companion.run()


if __name__ == "__main__":
    main(sys.argv[1])
