"""How far a running write has come: for a person at a terminal, or for a program.

A write reports to a `ProgressBoard`. From time to time the board reports to a listener, which is a
function of the user's or a line on the terminal, and it reports once more at the end, whether the
write completed or failed. Nothing here may harm the write: a listener that raises is warned about
once, a closed terminal is left alone.

A local write adds to the board. The tasks of a distributed write cannot reach it, so the board
follows what they write to storage, and gets the true totals when they are known.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, Self, TextIO

from pyhudi.errors import HudiError, InvalidRequestError
from pyhudi.wording import counted, readable
from pyhudi.world import World

if TYPE_CHECKING:
    import pyarrow as pa

INTERVAL_MS: Final = 500

_COLUMNS = 80  # of a terminal that does not report its width
_log = logging.getLogger(__name__)


class Counts(Protocol):
    """What has been written."""

    @property
    def rows(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def files(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Progress:
    """What a write, a compaction or a read has done so far.

    A write that is repeated after a conflict counts from zero again.
    """

    rows: int
    bytes: int
    files: int
    seconds: float  # since the write began, repetitions included
    last: bool = False  # no report follows: the write has completed or failed
    read: int = 0  # rows taken from the input, which may come slowly; 0 where Spark reads it

    @property
    def rows_per_second(self) -> float:
        return per_second(self.rows, self.seconds)

    @property
    def bytes_per_second(self) -> float:
        return per_second(self.bytes, self.seconds)

    @property
    def files_per_second(self) -> float:
        return per_second(self.files, self.seconds)


Listener = Callable[[Progress], None]


def per_second(count: int, seconds: float) -> float:
    """Return the rate; 0 if no time has passed."""
    return count / seconds if seconds > 0 else 0.0


def progress_text(progress: Progress, width: int) -> str:
    """Return one line of at most `width` characters: with rates, without them, or rows alone.

    >>> progress_text(Progress(1_234_567, 45_100_000, 32, 10.25), 80)
    '1,234,567 rows (120 k/s), 45.1 MB (4.4 MB/s), 32 files (3.1/s)'
    """
    if progress.read and not progress.files:
        return _input_text(progress)[:width]
    rows, size = counted(progress.rows, "row"), readable(progress.bytes, "B")
    files = counted(progress.files, "file")
    row_rate, file_rate = readable(progress.rows_per_second), readable(progress.files_per_second)
    byte_rate = readable(progress.bytes_per_second, "B")
    full = f"{rows} ({row_rate}/s), {size} ({byte_rate}/s), {files} ({file_rate}/s)"
    texts = (full, f"{rows}, {size}, {files}", rows)
    return next((text for text in texts if len(text) <= width), rows[:width])


def _input_text(progress: Progress) -> str:
    """Return the line while rows of the input are collected and nothing is written yet.

    A read writes nothing at all.

    >>> _input_text(Progress(0, 0, 0, 2.0, read=3_000))
    '3,000 rows read (1.5 k/s)'
    """
    rate = readable(per_second(progress.read, progress.seconds))
    return f"{counted(progress.read, 'row')} read ({rate}/s)"


class ProgressLine:
    """A listener that rewrites one line in place, and clears it after the last report."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = 0  # characters on the line
        self._gone = False

    def __call__(self, progress: Progress) -> None:
        # The last column stays free: many terminals wrap when it is filled.
        text = "" if progress.last else progress_text(progress, _width(self._stream) - 1)
        blanks = " " * (self._shown - len(text))
        end = "\r" if progress.last else ""
        if text or self._shown:
            self._write(f"\r{text}{blanks}{end}")
        self._shown = len(text)

    def _write(self, text: str) -> None:
        if self._gone:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # hung up, or closed elsewhere
            self._gone = True


def _width(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or _COLUMNS
    except (OSError, ValueError):  # a notebook's stream has no file
        return _COLUMNS


def progress_listener(asked: bool | Listener | None, stream: TextIO | None) -> Listener | None:
    """Return the function that gets the reports of a write; None if there is none.

    None means a line on a terminal and silence elsewhere, False silence. True means the line also
    where the stream does not call itself a terminal but shows a rewritten line well: notebooks,
    consoles of editors.
    """
    if asked is None:
        asked = _is_terminal(stream)
    if isinstance(asked, bool):
        return ProgressLine(stream) if asked and stream is not None else None
    if not callable(asked):
        raise InvalidRequestError(
            f"progress={asked!r} cannot be used",
            why="it is neither True, False, None nor a function",
            next_step="Pass a function of one argument, a Progress, or leave it out",
        )
    return asked


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except (OSError, ValueError):  # closed
        return False


class ProgressBoard:
    """Collects what one write reports, from any thread, while it runs inside `with`.

    Without a listener it costs nothing and starts nothing. The first report comes after one
    interval, so that a short write shows no line; the last one always comes. Calls of the listener
    never overlap, and the end of the write waits for a running one.
    """

    def __init__(
        self, listener: Listener | None, world: World, *, interval_ms: int = INTERVAL_MS
    ) -> None:
        self._listener = listener
        self._world = world
        self._interval_ms = interval_ms
        self._lock = threading.Lock()
        self._rows = self._bytes = self._files = self._read = 0
        self._load: Callable[[], Counts] | None = None
        self.began_ms: int | None = None
        self._stop: Callable[[], None] = lambda: None
        self._warned = False

    @property
    def is_watched(self) -> bool:
        """True if there is a listener. If not, tasks need not report their totals."""
        return self._listener is not None

    def __enter__(self) -> Self:
        self.began_ms = self._world.elapsed_ms()
        if self._listener is not None:
            self._stop = self._world.every(self._interval_ms, self._report)
        return self

    def __exit__(self, *_: object) -> None:
        if self._listener is not None:
            try:
                self._stop()
            finally:
                self._report(last=True)

    def add(self, *, rows: int = 0, bytes: int = 0, files: int = 0, read: int = 0) -> None:
        """Add to what was written, and to the rows that were read from the input."""
        with self._lock:
            self._read += read
            self._rows += rows
            self._bytes += bytes
            self._files += files

    def counting(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches, and count their rows as read."""
        for batch in batches:
            self.add(read=batch.num_rows)
            yield batch

    def set_totals(self, totals: Counts) -> None:
        """Set the final totals, and stop following any source."""
        with self._lock:
            self._load = None
            self._take(totals)

    def follow(self, load: Callable[[], Counts]) -> None:
        """Begin again from zero, and before each report take the totals that `load` returns."""
        with self._lock:
            self._rows = self._bytes = self._files = 0
            self._load = load

    def _take(self, totals: Counts) -> None:
        self._rows, self._bytes, self._files = totals.rows, totals.bytes, totals.files

    def _report(self, *, last: bool = False) -> None:
        assert self._listener is not None
        try:
            if not last:
                self._refresh()
            self._listener(self._progress(last))
        except Exception:
            if not self._warned:
                _log.warning(
                    "Progress of a write cannot be shown; the write continues", exc_info=True
                )
            self._warned = True

    def _refresh(self) -> None:
        load = self._load
        if load is None:
            return
        try:
            totals = load()
        except HudiError:
            return  # the next time it may answer
        with self._lock:
            if self._load is load:  # or better numbers came meanwhile
                self._take(totals)

    def _progress(self, last: bool) -> Progress:
        assert self.began_ms is not None, "it runs inside `with`"
        seconds = (self._world.elapsed_ms() - self.began_ms) / 1000
        with self._lock:
            return Progress(self._rows, self._bytes, self._files, seconds, last, self._read)
