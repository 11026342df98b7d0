"""What each key is at a completion time, computed from the writes and from no reader.

Completion times give the order of writes, so the merge of all writes up to a time is what any read
as of that time must have seen. There are two questions:

- what *may* a key be? Where two writes overlapped and ordering values do not decide, either may
  have won; of a partial row, column by column;
- what *is* it, by the bytes? A base file begins a slice, a log is on the newest base that was
  requested before the log completed, and within a slice logs go by requested time. All readers of
  one table have to agree on that.

A resize gives a key another file group: a base file of what had completed when it was planned, then
copies of what completed until it did, in that order, then what is written there. Beside a virtual
resize, what began after its plan is written there at once.

A write that replaces a partition leaves of its keys nothing but its own rows, whatever their
ordering values. Only what completes after it may win against it.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyhudi.format.files.file_names import FileGroupId
from pyhudi.simulate.table.checks.bucket_history import Stay
from pyhudi.simulate.table.checks.evidence import Evidence, Published
from pyhudi.simulate.table.history import Event, History
from pyhudi.simulate.table.rows import COLUMNS, KEYS, Row, partition_of

_ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class _Candidate:
    requested: str
    completed: str
    row: Row | None  # None: the key was replaced
    is_base: bool
    replaces: bool = False


class ExpectedRows:
    """The writes of one simulation, key by key."""

    def __init__(self, evidence: Evidence, history: History) -> None:
        self._kind = evidence.kind
        self._buckets = evidence.buckets
        self._by_key: dict[str, list[_Candidate]] = {key: [] for key in KEYS}
        self._bases: dict[FileGroupId, list[tuple[str, str]]] = {}  # requested, completed
        self._compacted: set[FileGroupId] = set()
        self._replaced: dict[str, list[str]] = {}  # partition → completion times
        #: (resize, write) → the place of the write's rows in a child, where it put them itself.
        self._twice = {(of.resize, of.write): of.name.order for of in evidence.twice.values()}
        for requested, write in evidence.writes.items():
            opened = write.opened
            for group in opened:
                self._bases.setdefault(group, []).append((requested, write.completed))
            self._compacted |= opened if write.is_compaction else frozenset()
            exchange = history.by_instant.get(requested)
            if exchange is not None:
                self._add(write, exchange.invoke)

    def _add(self, write: Published, asked: Event) -> None:
        for partition in asked.replaces:
            self._replaced.setdefault(partition, []).append(write.completed)
        gone = [
            key
            for key in (KEYS if asked.replaces else ())
            if partition_of(key) in asked.replaces and self._opens(write, key)
        ]
        rows: dict[str, Row | None] = dict.fromkeys(gone)
        rows |= {row.key: row._replace(requested=write.requested) for row in asked.rows}
        for key, row in rows.items():
            is_base = self._opens(write, key)
            replaces = bool(asked.replaces)
            found = _Candidate(write.requested, write.completed, row, is_base, replaces)
            self._by_key[key].append(found)

    def _opens(self, write: Published, key: str) -> bool:
        return not write.opened.isdisjoint(self._buckets.groups(key))

    # -- by the bytes

    def row(self, key: str, time: str) -> Row | None:
        """Return what the key is as of the time; None if it never was, or was replaced."""
        row = None
        for candidate in self._in_order(key, time):
            if candidate.row is None or candidate.replaces:
                row = candidate.row
            else:
                row = self._kind.merged(row, candidate.row)
        return row

    def _is_told(self, key: str) -> bool:
        """True if times alone determine what a base file was made of.

        A writer of base files may have read the table before or after a compaction completed, and
        of logs that overlapped another one may have won.
        """
        groups = self._buckets.groups(key)
        others = (k for k in KEYS if not groups.isdisjoint(self._buckets.groups(k)))
        is_rewritten = any(c.is_base for k in others for c in self._by_key[k])
        return not (is_rewritten and groups & self._compacted)

    def _in_order(self, key: str, time: str) -> list[_Candidate]:
        stay = self._buckets.stay(key, time)
        found = self._bases.get(stay.group, ())
        barriers = sorted(requested for requested, done in found if done <= time)

        def place(candidate: _Candidate) -> tuple[int, bool, str]:
            counts_from = candidate.requested if candidate.is_base else candidate.completed
            slice_ = bisect_right(barriers, counts_from)
            return slice_, not candidate.is_base, candidate.requested

        candidates = [c for c in self._by_key[key] if c.completed <= time]
        if not stay.requested:
            return sorted(candidates, key=place)
        since = [c for c in candidates if stay.requested < c.completed]
        own = {c.requested for c in since if (stay.requested, c.requested) in self._twice}
        twice = [c for c in since if c.requested in own]
        once = [c for c in since if c.requested not in own]
        return [
            *self._in_order(key, stay.requested),
            *sorted((c for c in once if self._is_copied(c, stay)), key=lambda c: c.completed),
            *sorted(twice, key=lambda c: self._twice[stay.requested, c.requested]),
            *sorted((c for c in once if not self._is_copied(c, stay)), key=place),
        ]

    def _is_copied(self, candidate: _Candidate, stay: Stay) -> bool:
        """True if the resize that made the group copied the write; a virtual one copies what began
        before it."""
        is_own = self._kind.is_virtual and candidate.requested > stay.requested
        return candidate.completed < stay.completed and not is_own

    # -- by the rules

    def winners(self, key: str, time: str, column: str | None = None) -> list[Row]:
        """Return the rows that may have won by then; of a column, those that have it, and
        deletes."""
        candidates = self._left(key, time)
        if column is not None:
            candidates = [
                (c, r) for c, r in candidates if r.is_deleted or column in (r.cells or ())
            ]
        if self._kind.by_event_time:
            highest = max((row.ordering for _, row in candidates), default=0)
            candidates = [(c, row) for c, row in candidates if row.ordering == highest]
        latest_begin = max((c.requested for c, _ in candidates), default="")
        return [row for c, row in candidates if c.completed >= latest_begin]

    def _left(self, key: str, time: str) -> list[tuple[_Candidate, Row]]:
        """Return the rows that no write up to the time has replaced."""
        replaced = self._replaced.get(partition_of(key), ())
        since = max((done for done in replaced if done <= time), default="")
        return [
            (c, c.row)
            for c in self._by_key[key]
            if since <= c.completed <= time and c.row is not None
        ]

    # -- judging reads

    def faults(self, time: str, read: Mapping[str, str]) -> Iterator[str]:
        """Yield how the read differs from the table as of the time."""
        for key in KEYS:
            shown = read.get(key)
            wrong = next(self._illegal(key, time, shown), None)
            row = self.row(key, time)
            expected = None if row is None or row.is_deleted else row.shown
            if wrong is not None:
                yield wrong
            elif shown != expected and self._is_told(key):
                yield f"{key} was {shown}, and the files say {expected}, as of {time}"
        for key in read.keys() - set(KEYS):
            yield f"{key} was never written"

    def _illegal(self, key: str, time: str, shown: str | None) -> Iterator[str]:
        if not self._kind.has_owners:
            winners = self.winners(key, time)
            legal = {None if row.is_deleted else row.version for row in winners} or {None}
            if shown not in legal:
                yield f"{key} was {shown}, not {_either(legal)}, as of {time}"
            return
        cells = json.loads(shown) if shown else {}
        for column in COLUMNS:
            winners = self.winners(key, time, column)
            legal = {_cell(row.cells, column) for row in winners} or {_ABSENT}
            if (cell := _cell(cells, column)) not in legal:
                yield f"{column} of {key} was {cell}, not {_either(legal)}, as of {time}"

    def change_faults(self, since: str, until: str, received: Sequence[Row]) -> Iterator[str]:
        """Yield how the rows differ from the changes that completed in (since, until]."""
        by_key = {row.key: row for row in received}
        if len(by_key) != len(received):
            yield "a key came twice"
        for key in KEYS:
            brought = {r.version: r for c, r in self._left(key, until) if since < c.completed}
            row = by_key.get(key)
            if row is not None and not brought:
                yield f"{key} came as {row.shown}, and nothing had changed it"
            elif brought and (wrong := self._change_fault(key, until, brought, row)):
                yield wrong

    def _change_fault(
        self, key: str, until: str, brought: Mapping[str, Row], received: Row | None
    ) -> str | None:
        now = self.row(key, until)
        shown = None if received is None or received.is_deleted else received.shown
        if self._kind.has_owners:
            expected = None if now is None or now.is_deleted else now.shown
            is_silent = shown is None and all(row.is_deleted for row in brought.values())
            if shown == expected or is_silent:  # deletes alone need not be reported
                return None
            return f"{key} came as {shown}, not as {expected}"
        legal = {None if now is None else now.version}
        if not self._is_told(key):
            legal |= {row.version for row in self.winners(key, until)}
        if legal <= brought.keys():
            got = None if received is None else received.version
            return None if got in legal else f"{key} came as {got}, not as {_either({*legal})}"
        # What the range brought may have lost against an older row, and been left out.
        if received is None or received.version in brought:
            return None
        return f"{key} came as {shown}, which the range did not bring"


def _cell(cells: Mapping[str, str | None] | None, column: str) -> str | None:
    return _ABSENT if cells is None else cells.get(column, _ABSENT)


def _either(legal: set[str | None]) -> str:
    return " or ".join(sorted(map(str, legal)))
