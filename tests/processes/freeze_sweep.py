"""Freeze a writer after each call that changes the disk, and see that another goes past it.

    cd tests && python -m processes.freeze_sweep FOLDER KIND

A writer may hold anything when it freezes: a lock of the operating system on a file, too, which no
simulated storage knows. So one process after the other is forked, writes a batch, and stops itself
after its first, second, third, ... call; another writer then writes, which takes the frozen one's
instant for failed at once instead of waiting for its heartbeat; and the frozen one wakes. Whoever
waits for it runs into an alarm. Prints after how many calls it was frozen; the journals of both
stay in the folder, beside the table.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pyhudi
from processes.journal import Event, Journal
from processes.workload import Batch, Kind, create_table, write

TABLE = "table"
CALLS = ("link", "rename", "unlink", "fsync", "mkdir")
PASSING_S = 60  # for one write that has to go past a frozen writer
_POINTS_MAX = 1_000

_SLEEPER, _PASSER = 0, 1


def main(folder: Path, kind: Kind) -> None:
    create_table(str(folder / TABLE), kind, None)
    passer = _table(folder, pyhudi.FailedWrites.EAGER)
    journal = Journal(folder / f"{_PASSER}.jsonl")
    for point in range(1, _POINTS_MAX):
        sleeper = os.fork()
        if sleeper == 0:
            _sleep(folder, kind, point)
        _, status = os.waitpid(sleeper, os.WUNTRACED)
        if os.WIFEXITED(status):
            assert os.waitstatus_to_exitcode(status) == 0, "the writer failed"
            print(point - 1, flush=True)
            return
        assert os.WIFSTOPPED(status)
        try:
            _pass(passer, kind, _batch(_PASSER, point), journal)
        finally:
            os.kill(sleeper, signal.SIGCONT)
        _, status = os.waitpid(sleeper, 0)
        assert os.waitstatus_to_exitcode(status) == 0, "the writer failed after it woke"
    raise AssertionError(f"a write has more than {_POINTS_MAX} calls")


def _sleep(folder: Path, kind: Kind, point: int) -> None:
    """In a process of its own: write a batch, and stop after so many calls."""
    code = 1
    try:
        journal = Journal(folder / f"{_SLEEPER}.jsonl")
        table = _table(folder, pyhudi.FailedWrites.LAZY)
        _stop_after(point)
        _write(table, kind, _batch(_SLEEPER, point), journal)
        code = 0
    finally:
        os._exit(code)


def _stop_after(point: int) -> None:
    """Stop this process after the call of that number."""
    done = 0

    def stopping(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            nonlocal done
            result = call(*arguments, **options)
            done += 1
            if done == point:
                os.kill(os.getpid(), signal.SIGSTOP)
            return result

        return called

    for name in CALLS:
        setattr(os, name, stopping(getattr(os, name)))


def _pass(table: pyhudi.Table, kind: Kind, batch: Batch, journal: Journal) -> None:
    def alarm(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"a write waits for a frozen one: {batch.version}")

    signal.signal(signal.SIGALRM, alarm)
    signal.alarm(PASSING_S)
    _write(table, kind, batch, journal)
    signal.alarm(0)


def _table(folder: Path, failed_writes: pyhudi.FailedWrites) -> pyhudi.Table:
    """The table; heartbeats are so slow that none gets in between the calls that are counted."""
    settings = pyhudi.WriteSettings(failed_writes=failed_writes)
    return pyhudi.open_table(str(folder / TABLE), write_settings=settings)


def _batch(writer: int, number: int) -> Batch:
    """One row of one bucket, so that there is one file to write."""
    return Batch(f"{writer}-{number}", False, {writer: 2 * number + writer})


def _write(table: pyhudi.Table, kind: Kind, batch: Batch, journal: Journal) -> None:
    journal.note(Event.INVOKE, batch=batch.to_json())
    try:
        result = write(table, kind, batch)
    except pyhudi.ConflictError as error:
        journal.note(Event.FAIL, version=batch.version, error=str(error))
        return
    journal.note(
        Event.OK,
        version=batch.version,
        instant=result.instant,
        completed=result.completed,
        retries=result.retries,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Kind(sys.argv[2]))
