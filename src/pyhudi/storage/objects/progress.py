"""How the tasks of a distributed write report their progress to its driver: a small object for
each.

A task and its driver share nothing but storage (a cluster, Spark Connect). So if the write has a
listener, each task writes an object with its totals so far, written again at most once a second and
once when the task ends. The driver adds them up. The numbers are for show: no decision rests on
them, content that makes no sense counts as zero, and a task that cannot write them continues
without.

The objects of all instants lie in one folder, since local disk keeps a folder when it is empty. A
task that outlives its write may leave one behind after `clear_progress`; a repair sweeps it up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Final

from pyhudi.errors import HudiError
from pyhudi.format.timeline.instant import is_instant_time
from pyhudi.storage.protocol import ObjectStat, Storage

PROGRESS_FOLDER: Final = ".hoodie/.pyhudi/progress"
INTERVAL_MS: Final = 1_000

BYTES_MAX: Final = 256  # of one object; three numbers need fewer
TASKS_MAX: Final = 10_000  # objects of one instant that are looked at
READS_MAX: Final = 64  # objects read for one report; the others are read for the next

_COUNT_MAX = 2**63 - 1
_TASK = re.compile(r"[A-Za-z0-9_\-]{1,100}")


@dataclass(frozen=True, slots=True)
class Totals:
    """What has been written so far."""

    rows: int = 0
    bytes: int = 0
    files: int = 0


def progress_path(requested: str, task: str) -> str:
    """Return where the totals of a task are stored.

    >>> progress_path("20260102030405678", "task-7")
    '.hoodie/.pyhudi/progress/20260102030405678.task-7'
    """
    assert _TASK.fullmatch(task), "a task is named by its number"
    return f"{_beginning(requested)}{task}"


def _beginning(requested: str) -> str:
    assert is_instant_time(requested)
    return f"{PROGRESS_FOLDER}/{requested}."


class TaskProgress:
    """The totals that one task reports.

    The attempts of a task share its name: the last report counts.

    The first failure to write is the last try, since storage may take minutes to say that it is not
    there.
    """

    def __init__(
        self, storage: Storage, requested: str, task: str, elapsed_ms: Callable[[], int]
    ) -> None:
        self._storage = storage
        self._path = progress_path(requested, task)
        self._elapsed_ms = elapsed_ms
        self._totals = self._told = Totals()
        self._told_ms = elapsed_ms()
        self._failed = False

    def add(self, *, rows: int = 0, bytes: int = 0, files: int = 0) -> None:
        """Add to the totals, and write them if the last report is a second old."""
        was = self._totals
        self._totals = Totals(was.rows + rows, was.bytes + bytes, was.files + files)
        if self._elapsed_ms() - self._told_ms >= INTERVAL_MS:
            self._tell()

    def end(self) -> None:
        """Write the totals that were not reported yet: short tasks count too."""
        if self._totals != self._told:
            self._tell()

    def _tell(self) -> None:
        if self._failed:
            return
        try:
            self._storage.write(self._path, encode_totals(self._totals))
        except (HudiError, OSError):
            self._failed = True
        self._told, self._told_ms = self._totals, self._elapsed_ms()


@dataclass(frozen=True, slots=True)
class _Heard:
    version: tuple[str | None, int, int]
    turn: int  # the load that read it
    totals: Totals


class JobProgress:
    """The totals that all tasks of an instant have reported. Each `load` reads only what is new."""

    def __init__(self, storage: Storage, requested: str) -> None:
        assert is_instant_time(requested)
        self._storage = storage
        self._requested = requested
        self._heard: dict[str, _Heard] = {}
        self._turn = 0

    def load(self) -> Totals:
        """Return the sum over all tasks; UnavailableError if storage does not answer."""
        self._turn += 1
        found = list(_objects(self._storage, self._requested))
        new = [stat for stat in found if not self._knows(stat)]
        new.sort(key=lambda stat: self._last_turn(stat.path))
        for stat in new[:READS_MAX]:
            totals = _load_totals(self._storage, stat.path)
            self._heard[stat.path] = _Heard(_version(stat), self._turn, totals)
        heard = [self._heard[stat.path].totals for stat in found if stat.path in self._heard]
        return Totals(
            sum(totals.rows for totals in heard),
            sum(totals.bytes for totals in heard),
            sum(totals.files for totals in heard),
        )

    def _knows(self, stat: ObjectStat) -> bool:
        heard = self._heard.get(stat.path)
        return heard is not None and heard.version == _version(stat)

    def _last_turn(self, path: str) -> int:
        heard = self._heard.get(path)
        return 0 if heard is None else heard.turn


def clear_progress(storage: Storage, requested: str) -> None:
    """Remove the totals of the instant's tasks."""
    for stat in list(_objects(storage, requested)):
        storage.delete(stat.path)


def _objects(storage: Storage, requested: str) -> Iterator[ObjectStat]:
    """Yield the objects of the instant's tasks; files of others beside them are skipped."""
    beginning = _beginning(requested)
    found = storage.list(PROGRESS_FOLDER, after=beginning[:-1])
    near = takewhile(lambda stat: stat.path < f"{beginning[:-1]}/", found)  # "/" follows "."
    own = (stat for stat in near if stat.path.startswith(beginning))
    named = (stat for stat in own if _TASK.fullmatch(stat.path[len(beginning) :]))
    return islice(named, TASKS_MAX)


def _version(stat: ObjectStat) -> tuple[str | None, int, int]:
    return stat.etag, stat.size, stat.modified_ms


def _load_totals(storage: Storage, path: str) -> Totals:
    try:
        data = storage.read(path, 0, BYTES_MAX + 1)
    except FileNotFoundError:
        return Totals()
    return decode_totals(data)


def encode_totals(totals: Totals) -> bytes:
    """Return the bytes that a task writes.

    >>> encode_totals(Totals(rows=1, bytes=2, files=3))
    b'{"rows": 1, "bytes": 2, "files": 3}'
    """
    values = {"rows": totals.rows, "bytes": totals.bytes, "files": totals.files}
    return json.dumps(values).encode()


def decode_totals(data: bytes) -> Totals:
    """Return the totals.

    Zero if the bytes are not what a task writes (cut short, foreign, too long).
    """
    if len(data) > BYTES_MAX:
        return Totals()
    try:
        values = json.loads(data)
    except ValueError:
        return Totals()
    match values:
        case {"rows": int(rows), "bytes": int(size), "files": int(files)}:
            totals = Totals(rows, size, files)
        case _:
            return Totals()
    return totals if all(0 <= n <= _COUNT_MAX for n in (rows, size, files)) else Totals()
