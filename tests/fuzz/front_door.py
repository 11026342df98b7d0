"""A damaged table through the front door: rows or a typed error, in bounded time and memory."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TypeAlias

import pyarrow as pa

import pyhudi

SECONDS_MAX = 5.0
BYTES_MAX = 256 * 1024 * 1024

Answer: TypeAlias = pa.Table | pyhudi.HudiError

#: Holds for every row, and needs statistics, values and a merge to say so.
_WHERE = "_hoodie_record_key >= '' AND _hoodie_record_key NOT LIKE '%no_such%'"

_Verb: TypeAlias = Callable[[pyhudi.Table, str], pa.Table]
_VERBS: Mapping[str, _Verb] = {
    "read": lambda table, _: table.read(meta=True).to_arrow(),
    "as of": lambda table, time: table.read(as_of=time, meta=True).to_arrow(),
    "changes": lambda table, _: table.changes(meta=True).to_arrow(),
    "where": lambda table, _: table.read(where=_WHERE, meta=True).to_arrow(),
    "timeline": lambda table, _: table.inspect.timeline(),
    "slices": lambda table, _: table.inspect.file_slices(),
}
VERBS = tuple(_VERBS)
#: Those whose rows come out of the table's files.
ROWS = ("read", "as of", "changes", "where")


class TookTooLong(BaseException):
    """Not an Exception, so that no `except` of the code under test can take it for bad bytes."""


def answers(uri: str, time: str, verbs: Sequence[str] = VERBS) -> dict[str, Answer]:
    """What each verb says about the table. Another exception than ours is left to fly."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pyhudi.CorruptBlockWarning)
        try:
            table = pyhudi.open_table(uri)
        except pyhudi.HudiError as error:
            return {"open": error}
        return {verb: _answer(_VERBS[verb], table, time) for verb in verbs}


def _answer(verb: _Verb, table: pyhudi.Table, time: str) -> Answer:
    try:
        return verb(table, time)
    except pyhudi.HudiError as error:
        return error


@contextmanager
def bounded(seconds: float = SECONDS_MAX, bytes_max: int = BYTES_MAX) -> Iterator[None]:
    """Fail what runs inside when it takes longer, or more memory, than that."""

    def stop(signum: int, frame: FrameType | None) -> None:
        raise TookTooLong(f"more than {seconds} s")

    before = _begin_of_peak()
    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    grown = _status("VmHWM") - before
    assert grown <= bytes_max, f"memory grew by {grown:,} bytes"


# The kernel keeps a high-water mark of a process's memory, and sets it back when told to. Only
# Linux does, and elsewhere memory is not judged.
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def _begin_of_peak() -> int:
    pa.default_memory_pool().release_unused()
    if _CLEAR.exists():
        _CLEAR.write_text("5")
    return memory_in_use()


def memory_in_use() -> int:
    return _status("VmRSS")


def _status(name: str) -> int:
    if not _STATUS.exists():
        return 0
    lines = _STATUS.read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
