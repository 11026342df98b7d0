"""What one process has read of the decision log."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from pyhudi.format.timeline.commit_metadata import CommitMetadata, decode_commit_metadata
from pyhudi.format.timeline.decision_entry import Entry, EntryKind, entry_path
from pyhudi.timeline.live import BEFORE_ALL
from pyhudi.timeline.timeline import WRITE_ACTIONS

#: Entries that one process caches.
ENTRIES_KEPT_MAX = 2_000


@dataclass(slots=True)
class KnownLog:
    """An unbroken range of the log, up to its tail: each entry is chained to the one before."""

    whole_from: int = 0
    tail: Entry | None = None
    settled: int = 0  # entries up to this number have been published
    by_number: dict[int, Entry] = field(default_factory=dict)
    ids: set[str] = field(default_factory=set)
    times: set[str] = field(default_factory=set)
    voided: set[int] = field(default_factory=set)
    aborts: dict[str, Entry] = field(default_factory=dict)  # target → its abort, unless voided
    first_time: str | None = None
    highest: str = BEFORE_ALL
    last_write: Entry | None = None  # the last completion of a write, with its bytes

    @property
    def n(self) -> int:
        return 0 if self.tail is None else self.tail.n

    def copied(self) -> KnownLog:
        """Return a copy that changes independently."""
        return replace(
            self,
            by_number=dict(self.by_number),
            ids=set(self.ids),
            times=set(self.times),
            voided=set(self.voided),
            aborts=dict(self.aborts),
        )

    def follows(self, entry: Entry) -> bool:
        """True if the entry continues the range."""
        return entry.n == self.n + 1 and entry.prev == (self.tail.id if self.tail else None)

    def note(self, entry: Entry) -> None:
        if self.tail is not None:  # published by now, so its bytes are no longer needed
            self.by_number[self.tail.n] = replace(self.tail, creates=None, also=())
        self.tail = entry
        self.by_number[entry.n] = entry
        self.ids.add(entry.id)
        if entry.kind is EntryKind.COMPLETE and entry.action in WRITE_ACTIONS:
            self.last_write = entry
        if entry.voids is not None:
            self._void(entry.voids)
        if entry.time is not None:
            self.first_time = self.first_time or entry.time
            self.times.update(_times(entry))
            self.highest = max(self.highest, entry.time)
        if entry.target is not None:
            self.aborts[entry.target.instant] = replace(entry, creates=None)
        if len(self.by_number) > ENTRIES_KEPT_MAX:
            self._forget(ENTRIES_KEPT_MAX // 2)

    def _forget(self, count: int) -> None:
        """Forget the oldest entries; a process may write for months."""
        for number in sorted(self.by_number)[:count]:
            entry = self.by_number.pop(number)
            self.ids.discard(entry.id)
            self.times.difference_update(_times(entry))
            self.first_time = entry.time or self.first_time

    def _void(self, n: int) -> None:
        self.voided.add(n)
        if self.last_write is not None and self.last_write.n == n:
            self.last_write = None
        victim = self.by_number.get(n)
        if victim is not None and victim.target is not None:
            self.aborts.pop(victim.target.instant, None)

    def is_whole_from(self, n: int) -> bool:
        """True if every entry from number n to the tail was seen."""
        return 0 < self.whole_from <= n <= self.n

    def number_of(self, requested: str) -> int | None:
        """Return the number of the entry that began the instant."""
        starts = (EntryKind.BEGIN, EntryKind.ABORT)
        begun = (
            e.n for e in self.by_number.values() if e.instant == requested and e.kind in starts
        )
        return next(begun, None)

    def schema_of(self, requested: str) -> str | None:
        """Return the fingerprint of the schema that the write recorded, if it completed last."""
        entry = self.last_write
        return entry.schema if entry is not None and entry.instant == requested else None

    def metadata(self, requested: str) -> CommitMetadata | None:
        """Return the metadata of the write, if it completed last and its entry holds the bytes."""
        entry = self.last_write
        return None if entry is None or entry.instant != requested else inline_metadata(entry)

    def standing(self, ids: Collection[str]) -> Entry | None:
        """Return the latest entry with one of these ids that has not been voided."""
        if self.ids.isdisjoint(ids):
            return None
        found = (e for n, e in self.by_number.items() if e.id in ids and n not in self.voided)
        return max(found, key=lambda entry: entry.n, default=None)


def inline_metadata(entry: Entry) -> CommitMetadata | None:
    """Return the metadata of a write that completed, if its entry holds the bytes."""
    data = None if entry.creates is None else entry.creates.inline
    return None if data is None else decode_commit_metadata(data, entry_path(entry.n))


def _times(entry: Entry) -> set[str]:
    """Return the times that the entry brings to the timeline."""
    times = {entry.time, entry.instant if entry.whole else None}
    return {time for time in times if time is not None}
