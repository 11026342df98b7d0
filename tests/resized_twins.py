"""One history of writes on two tables, of which one is resized meanwhile.

Whatever the resizes do, each write has to be as visible on the one table as on the other: at every
time, and in every range of times. Times differ between the tables, so writes are told by numbers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from many_writers.scene import HeldWrite, Stop
from pyhudi.format.table.column_owners import ColumnOwners
from pyhudi.storage.objects.column_owners import declare_owners
from pyhudi.timeline.instant_time import RequestedTime
from pyhudi.write.result import WriteResult
from resize_tables import MODES, Beside, ResizeTable

JOINED = "joined"
_OWNERS = {"own": ("v",), "other": ("ts",)}
_SEEN = ["id", "v", "ts", "_hoodie_commit_time"]
_MS = 1


@dataclass
class Twin:
    """A table, and what was done to it. Without `resizes` the same, and none is made."""

    mode: str
    resizes: bool
    writes: list[tuple[str, str]] = field(default_factory=list)  # requested, completed
    resized: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.mode == JOINED:
            self.table = ResizeTable(owners=_OWNERS)
            declare_owners(self.table.storage, ColumnOwners(_OWNERS))
        else:
            self.table = ResizeTable(**MODES[self.mode])

    # -- what is done

    def put(self, keys: str, stamp: int) -> None:
        self.did(self._upsert("w", keys, stamp))

    def _upsert(self, label: str, keys: str, stamp: int) -> WriteResult:
        """Upsert whole rows; in a joined table the part of one owner or the other."""
        table, rows = self.table.table(label), self.table.made(keys, stamp)
        if self.mode != JOINED:
            return table.upsert(rows)
        if stamp % 2:
            return table.upsert(rows.drop_columns(["ts"]), owner="own")
        return table.upsert(rows.drop_columns(["v"]), owner="other")

    def remove(self, keys: str) -> None:
        gone = pa.table({"id": list(keys), "day": ["d"] * len(keys)})
        self.did(self.table.table("d").delete(gone))

    def hold(self, keys: str, stamp: int) -> HeldWrite:
        return HeldWrite(lambda: self._upsert("held", keys, stamp)).run_to(Stop.WRITTEN)

    def did(self, result: WriteResult) -> WriteResult:
        assert result.completed is not None
        self.writes.append((result.requested, result.completed))
        return result

    def resize(
        self,
        plan: Callable[[ResizeTable], str],
        pending: Callable[[], object] = lambda: None,
        executing: dict[str, Callable[[], object]] | None = None,
    ) -> None:
        """Resize; do something while it is pending, and while files with such names are made."""
        deeds = executing or {}
        if not self.resizes:
            pending()
            for deed in deeds.values():
                deed()
            return
        requested = plan(self.table)
        pending()
        done = self.table.resizes(storage=Beside(self.table, deeds)).execute(requested)
        assert done is not None
        assert not deeds, "a deed was not done"
        self.resized.append((requested, done.completed))

    # -- what readers see

    def seen(self, found: pa.Table) -> list[tuple[Any, ...]]:
        """The rows, with the number of the write that each is of.

        A row of a joined table is of several writes, and has the time of any.
        """
        numbers = {requested: number for number, (requested, _) in enumerate(self.writes)}
        numbers = dict.fromkeys(numbers, 0) if self.mode == JOINED else numbers
        rows = (list(row.values()) for row in found.select(_SEEN).to_pylist())
        return sorted((*map(str, row), numbers[time]) for *row, time in rows)

    def now(self, **read: Any) -> list[tuple[Any, ...]]:
        return self.seen(self.table.table("r").read(meta=True, **read).to_arrow())

    def changed(self, since: str | None, until: str | None) -> list[tuple[Any, ...]]:
        changes = self.table.table("r").changes(since=since, until=until, meta=True)
        return self.seen(changes.to_arrow())

    def moments(self) -> list[str]:
        """Times just before, at and just after everything that happened."""
        named = {int(time) for pair in (*self.writes, *self.resized) for time in pair}
        return sorted({str(time + shift) for time in named for shift in (-_MS, 0, _MS)})

    def ends(self) -> list[str]:
        """Times at which ranges may begin and end: completions, and around each resize."""
        named = {int(completed) for _, completed in self.writes}
        named |= {int(time) for pair in self.resized for time in pair}
        named |= {int(completed) - _MS for _, completed in self.resized}
        return sorted(map(str, named))

    @property
    def completions(self) -> set[str]:
        """When writes completed."""
        return {completed for _, completed in self.writes}

    def has_resize(self, since: str | None, until: str) -> bool:
        """True if a resize completed in the range."""
        return any((since or "") < completed <= until for _, completed in self.resized)

    def completed_by(self, time: str) -> int:
        return bisect_right(sorted(completed for _, completed in self.writes), time)

    def requested_by(self, time: str) -> int:
        return bisect_right(sorted(requested for requested, _ in self.writes), time)

    def completion(self, count: int) -> str | None:
        """The time at which so many writes had completed."""
        return sorted(completed for _, completed in self.writes)[count - 1] if count else None

    def request(self, count: int) -> RequestedTime | None:
        """The time at which so many writes had been requested."""
        requests = sorted(requested for requested, _ in self.writes)
        return RequestedTime(requests[count - 1]) if count else None


def lived(mode: str, *, resizes: bool) -> Twin:
    """A history with a split and a merge; every write that may meet a resize does."""
    twin = Twin(mode, resizes)
    twin.put("klmnopqrst", 1)
    twin.put("kl", 2)
    held: list[HeldWrite] = []

    def hold() -> None:
        held.append(twin.hold("pqu", 4))

    def while_pending() -> None:
        twin.put("mn", 3)
        twin.remove("o")
        if mode != "commit time":  # there the next write would conflict with it
            hold()

    def while_executed() -> None:
        twin.put("kqv", 5)
        if not held:
            hold()

    twin.resize(lambda table: table.plan(4), while_pending, {".parquet": while_executed})
    result = twin.did(held.pop().finish())
    assert bool(result.moved) is resizes
    twin.put("wr", 6)
    twin.remove("s")
    twin.resize(lambda table: table.plan_merge(), lambda: twin.put("kx", 7))
    twin.put("ly", 8)
    return twin
