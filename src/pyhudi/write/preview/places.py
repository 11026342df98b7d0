"""Which file groups would a write have files in?

A write that begins now would place its rows by the same routing, so these are its file groups. It
is asked of a session that is read-only: no ring is created, and no partition opened. A partition
of consistent buckets that has no ring yet gets its first one from the write itself, sized by its
rows. Until then its buckets have no names, and it is one place without a file group.

Two kinds of writes have files in other places than their rows go to. An overwrite empties the other
buckets of its partitions. An update writes only where it finds its keys, so it may have fewer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pyhudi.conflict.announced import LATEST
from pyhudi.errors import InvalidRequestError
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.table.concurrency_mode import ConcurrencyMode
from pyhudi.index.routing import PreparedBatch, Routing
from pyhudi.session.session import TableSession
from pyhudi.table.file_group import FileSlice
from pyhudi.write.group_files import EmptyBuckets
from pyhudi.write.intent import NewValues, WholeRows, WriteIntent
from pyhudi.write.row_shape import row_shape
from pyhudi.write.tasks import is_load
from pyhudi.write.view import current_slices, state_and_rings


@dataclass(slots=True)
class RowCounts:
    """The rows of a write by file group, and about how many bytes they have, where it is known."""

    rows: Counter[FileGroupId] = field(default_factory=Counter)
    bytes: Counter[FileGroupId] = field(default_factory=Counter)

    def add(self, batch: PreparedBatch, routing: Routing) -> None:
        if not batch.rows.num_rows:
            return
        targets = routing.targets(batch)
        _, first, counts = np.unique(targets.codes, return_index=True, return_counts=True)
        each = batch.rows.nbytes / batch.rows.num_rows
        for row, count in zip(first.tolist(), counts.tolist(), strict=True):
            group = targets.group(row)
            self.rows[group] += count
            self.bytes[group] += int(each * count)


@dataclass(frozen=True, slots=True)
class Places:
    """Where a write would have files."""

    rows: Mapping[FileGroupId, int]  # none where an overwrite empties a bucket
    bases: frozenset[FileGroupId]  # of these, where it would make a base file
    new: Mapping[str, int]  # partitions without a ring yet, and their rows

    @property
    def groups(self) -> frozenset[FileGroupId]:
        return frozenset(self.rows)

    @property
    def partitions(self) -> frozenset[str]:
        return frozenset(group.partition for group in self.rows).union(self.new)


@dataclass(frozen=True, slots=True)
class Placement:
    """How a write would place its rows if it began now."""

    session: TableSession
    intent: WriteIntent
    routing: Routing
    slices: Mapping[FileGroupId, FileSlice]  # if the write's places depend on them

    @classmethod
    def now(cls, session: TableSession, intent: WriteIntent, *, is_sent: bool = False) -> Placement:
        """Look at the table; `is_sent` if processes of Spark place the rows."""
        is_of_rows = isinstance(intent.change, NewValues) or intent.replaces is not None
        slices: Mapping[FileGroupId, FileSlice] = {}
        if is_of_rows or not session.groups.names_are_known:
            slices = current_slices(session, state_and_rings(session))
        routing = session.groups.routing_beside(slices, is_sent=is_sent, creates=False)
        return cls(session, intent, routing, slices)

    def counted(self, batches: Iterable[pa.RecordBatch]) -> RowCounts:
        """Count rows that arrive in this process, and refuse those that the write would refuse."""
        assert self.intent.rows is not None
        shape = row_shape(self.intent.change, self.intent.rows, self.session.config)
        counts = RowCounts()
        for batch in batches:
            counts.add(shape.prepare(batch), self.routing)
        return counts

    def places(self, counts: RowCounts) -> Places:
        """Return where the write has files, if these are its rows."""
        groups = self.session.groups
        found, new = Counter(counts.rows), Counter[str]()
        if isinstance(self.intent.change, NewValues):  # where nothing is, nothing is updated
            found = Counter({g: count for g, count in found.items() if g in self.slices})
        if groups.count is None:
            for partition in {group.partition for group in found}:
                if groups.ring(partition) is None:
                    rows = {g: n for g, n in found.items() if g.partition == partition}
                    new[partition] = sum(rows.values())
                    for group in rows:
                        del found[group]
        found.update(dict.fromkeys(self._emptied(found, new), 0))
        return Places(found, self._bases(found, counts), new)

    def _emptied(
        self, rows: Mapping[FileGroupId, int], new: Mapping[str, int]
    ) -> Iterator[FileGroupId]:
        """Yield the file groups without new rows that an overwrite empties."""
        replaces = self.intent.replaces
        if replaces is None:
            return
        written = {group.partition for group in rows}.union(new)
        named = replaces.partitions
        if named is not None and (others := sorted(written - named)):
            raise InvalidRequestError(
                f"rows of partition {others[0]!r} cannot be written",
                why="the overwrite names other partitions",
                next_step="Name this partition too, or leave these rows out",
            )
        is_replaced = replaces.of(written)
        yield from (g for g in self.slices if g not in rows and is_replaced(g.partition))

    def _bases(self, rows: Mapping[FileGroupId, int], counts: RowCounts) -> frozenset[FileGroupId]:
        """Return where the write would make a base file."""
        session = self.session
        if self.intent.replaces is not None or not session.is_mor:
            return frozenset(rows)
        if not self._may_load:
            return frozenset()
        empty = EmptyBuckets(session.storage, LATEST)
        return frozenset(g for g in rows if is_load(counts.bytes[g]) and empty.has(g))

    @property
    def _may_load(self) -> bool:
        """True if many rows of an empty bucket become its first base file."""
        change = self.intent.change
        is_optimistic = self.session.config.concurrency is not ConcurrencyMode.NON_BLOCKING
        return isinstance(change, WholeRows) and (change.loads or is_optimistic)
