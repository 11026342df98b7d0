"""A damaged table through the front door: rows or a typed error, in bounded time and memory."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pyarrow as pa

import pyhudi

SECONDS_MAX = 5.0
BYTES_MAX = 256 * 1024 * 1024
#: Holds for every row, and needs statistics, values and a merge to say so.
WHERE = "_hoodie_record_key >= '' AND _hoodie_record_key NOT LIKE '%no_such%'"

Answer = pa.Table | pyhudi.HudiError


class TookTooLong(BaseException):
    """Not an Exception, so that no `except` of the code under test can take it for bad bytes."""


def answers(uri: str, time: str) -> Mapping[str, Answer]:
    """What each verb of the front door says about the table; another exception is left to fly."""
    opened = _answer(lambda: pyhudi.open_table(uri))
    if isinstance(opened, pyhudi.HudiError):
        return {"open": opened}
    verbs: Mapping[str, Callable[[], pa.Table]] = {
        "read": lambda: opened.read().to_arrow(),
        "as of": lambda: opened.read(as_of=time).to_arrow(),
        "where": lambda: opened.read(where=WHERE).to_arrow(),
        "changes": lambda: opened.changes().to_arrow(),
        "timeline": opened.inspect.timeline,
        "slices": opened.inspect.file_slices,
    }
    return {name: _answer(verb) for name, verb in verbs.items()}


def _answer(verb: Callable[[], object]) -> object:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pyhudi.CorruptBlockWarning)
            return verb()
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


_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def _begin_of_peak() -> int:
    """Memory in use now, with the kernel's high-water mark set back to it (on Linux alone)."""
    if _CLEAR.exists():
        _CLEAR.write_text("5")
    return _status("VmRSS")


def _status(name: str) -> int:
    if not _STATUS.exists():
        return 0
    lines = _STATUS.read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
