"""Pruning the decision log: which old entries may be removed?

The oldest entries are removed first, but never the last one, nor one that a pending instant needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile

from pyhudi.commit.conflict_notes import CONFLICT_FOLDER
from pyhudi.commit.decision_log import DecisionLog
from pyhudi.format.timeline.decision_entry import entry_path
from pyhudi.storage.objects.decision_log import entries_in, load_entry, log_folders
from pyhudi.storage.protocol import ObjectStat

#: The newest entries of the log that pruning retains, and how long it retains the others.
ENTRIES_KEPT = 100
ENTRIES_KEPT_MS = 7 * 24 * 3_600_000


def prune(log: DecisionLog) -> list[str]:
    """Remove old entries, and notes of conflicts that are as old; return the paths removed."""
    reached_ms = log.clock.at_least_ms() or 0
    removed: list[str] = []
    for path in _old(log, reached_ms - ENTRIES_KEPT_MS):
        log.storage.delete(path)
        removed.append(path)
    return removed


def _old(log: DecisionLog, before_ms: int) -> Iterator[str]:
    notes = list(log.storage.list(CONFLICT_FOLDER))
    yield from (note.path for note in notes if note.modified_ms <= before_ms)
    pending, tail = log.refresh().pending, log.tail
    last = 0 if tail is None else tail.n - ENTRIES_KEPT
    if last <= 0:
        return
    oldest = min(pending, default=None)
    left: list[int] = []
    for folder in log_folders(log.storage):  # one at a time: a log may have many entries
        entries = entries_in(log.storage, folder)
        may_go = [*left, *_leading(entries, last, before_ms)]
        count = len(may_go) if oldest is None else _count_before(log, may_go, oldest)
        yield from map(entry_path, may_go[:count])
        if count < len(may_go) - 1 or may_go[-1:] != [n for n, _ in entries[-1:]]:
            return
        left = may_go[count:]


def _count_before(log: DecisionLog, numbers: list[int], oldest: str) -> int:
    """Count the entries that come before the last one that is older than that instant."""
    low, high = 0, len(numbers)
    while low < high:
        middle = (low + high) // 2
        time = _time_from(log, numbers[middle])
        if time is not None and time < oldest:
            low = middle + 1
        else:
            high = middle
    return max(low - 1, 0)


def _time_from(log: DecisionLog, number: int) -> str | None:
    """Return the time of the first entry from this one on that has one; a void has none."""
    assert log.tail is not None
    for n in range(number, log.tail.n + 1):
        entry = load_entry(log.storage, n)
        if entry is not None and entry.time is not None:
            return entry.time
    return None


def _leading(entries: Iterable[tuple[int, ObjectStat]], last: int, before_ms: int) -> list[int]:
    """Return the first entries, up to that number, as long as they are old."""
    old = takewhile(lambda e: e[0] <= last and e[1].modified_ms <= before_ms, entries)
    return [number for number, _ in old]
