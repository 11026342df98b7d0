"""What may happen in the midst of a read: moments that a busy table meets once in a long while."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from faulty_storage import FaultyStorage
from memory_tables import TIMELINE, MemoryTable
from pyhudi.errors import UnavailableError
from pyhudi.format.timeline.instant import Action, Instant, InstantTime, State
from pyhudi.format.timeline.service_metadata import (
    CleanedPartition,
    CleanMetadata,
    encode_clean_metadata,
)
from pyhudi.storage.protocol import Folder, ObjectStat, Storage
from pyhudi.timeline.cut import cut_time

SCHEMA = pa.schema(
    [pa.field("id", pa.string(), nullable=False), ("day", pa.string()), ("v", pa.int64())]
)
COLUMNS = ["id", "day", "v"]
DUE = pyhudi.CompactionPolicy(min_delta_commits=1)
ARCHIVE = pyhudi.ArchivePolicy(
    keep_min=1, keep_max=2, delta_commits=0, grace_ms=0, aborted_grace_ms=0
)
DAY_MS = 24 * 3_600_000


def batch(v: int, *ids: str) -> pa.Table:
    values = {"id": ids, "day": ["mon"] * len(ids), "v": [v] * len(ids)}
    return pa.table(values, schema=SCHEMA)


def made_table() -> MemoryTable:
    buckets = pyhudi.SimpleBuckets(1)
    return MemoryTable(SCHEMA, partition_by="day", buckets=buckets, ordering="v")


def rows(made: MemoryTable, storage: Storage | None = None) -> list[tuple[Any, ...]]:
    found = made.table("reader", storage).read(columns=COLUMNS).to_arrow()
    return sorted(tuple(row.values()) for row in found.to_pylist())


def page_now(made: MemoryTable) -> tuple[ObjectStat, ...]:
    return made.storage.list_folder(TIMELINE).objects


class Held(FaultyStorage):
    """The storage of a writer that stops before its first log file, until it is released."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.reached, self.go = threading.Event(), threading.Event()
        self.fails = False

    def create_from(self, path: str, chunks: Iterable[bytes]) -> int | None:
        self._stop(path)
        return super().create_from(path, chunks)

    def create(self, path: str, data: bytes) -> bool:
        self._stop(path)
        return super().create(path, data)

    def _stop(self, path: str) -> None:
        if ".log." not in path or path.startswith(".hoodie") or self.go.is_set():
            return
        self.reached.set()
        assert self.go.wait(60)
        if self.fails:
            raise UnavailableError("no", why="no answer", next_step="Wait")


class Writing:
    """An upsert of another process, which is under way."""

    def __init__(self, made: MemoryTable, label: str, what: pa.Table) -> None:
        self._storage = Held(made.storage)
        table = made.table(label, self._storage)

        def run() -> None:
            with suppress(UnavailableError):
                table.upsert(what)

        self._thread = threading.Thread(target=run)
        self._thread.start()
        assert self._storage.reached.wait(60)

    def fail(self) -> None:
        self._storage.fails = True
        self.finish()

    def finish(self) -> None:
        self._storage.go.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


class Played(FaultyStorage):
    """A reader's storage. The first listing of the timeline begins with a page that was read at an
    earlier moment, and `between` happens once, before data files are listed."""

    def __init__(
        self,
        made: MemoryTable,
        page: tuple[ObjectStat, ...] | None = None,
        between: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(made.storage)
        self._page, self._between = page, between

    def list_folder(self, prefix: str) -> Folder:
        if prefix == "":
            act, self._between = self._between, lambda: None
            act()
        found = super().list_folder(prefix)
        if prefix != TIMELINE or self._page is None:
            return found
        page, self._page = self._page, None
        last = page[-1].path
        return Folder(found.folders, (*page, *(o for o in found.objects if o.path > last)))


# ---- cleans


@pytest.mark.parametrize("policy", [pyhudi.CleanPolicy.commits(1), pyhudi.CleanPolicy.versions(1)])
def test_a_clean_that_counted_completions_which_the_first_listing_missed_is_noticed(
    policy: pyhudi.CleanPolicy,
) -> None:
    made = made_table()
    made.table("a").upsert(batch(1, "x", "y"))
    made.table("a").upsert(batch(2, "x"))
    made.table("c").services.compact(DUE, plan_only=True)
    before = rows(made)
    other, failing = Writing(made, "b", batch(3, "z")), Writing(made, "f", batch(4, "never"))
    page = page_now(made)  # the compaction and two upserts are pending
    failing.fail()
    made.table("c").services.compact(DUE)
    other.finish()
    made.table("c").services.clean(policy)  # its name lies behind those of the page
    found = rows(made, Played(made, page))
    assert found in (before, rows(made))
    assert len(before) == 2


def hudi_clean(made: MemoryTable, earliest: str, gone: list[str]) -> None:
    """A clean that says what it kept by a requested time only."""
    for path in gone:
        made.storage.delete(path)
    names = [name for name in made.names() if name[:1].isdigit()]
    newest = max([*(n[:17] for n in names), *(n[18:35] for n in names if n[17:18] == "_")])
    requested, completed = InstantTime(str(int(newest) + 1)), InstantTime(str(int(newest) + 3))
    removed = tuple(path.rpartition("/")[2] for path in gone)
    part = CleanedPartition("mon", "KEEP_LATEST_COMMITS", (), removed)
    metadata = CleanMetadata(requested, 1, len(gone), earliest, newest, {"mon": part})
    for state in (State.REQUESTED, State.INFLIGHT):
        name = Instant(requested, Action.CLEAN, state).file_name
        made.storage.create(f"{TIMELINE}/{name}", b"")
    done = Instant(requested, Action.CLEAN, State.COMPLETED, completed)
    data = encode_clean_metadata(metadata, bytes(16))
    made.storage.create(f"{TIMELINE}/{done.file_name}", data)


def test_a_clean_of_hudi_that_counted_a_compaction_beyond_the_cut_is_noticed() -> None:
    made = made_table()
    made.table("a").upsert(batch(1, "x", "y"))
    made.table("a").upsert(batch(2, "x"))
    made.table("c").services.compact(DUE, plan_only=True)
    kept = made.table("a").upsert(batch(3, "z"))  # requested after the plan
    before = rows(made)

    def compact_and_clean() -> None:
        paths = [stat.path for stat in made.storage.list("mon")]
        old = [p for p in paths if kept.requested not in p and ".hoodie_partition" not in p]
        made.table("c").services.compact(DUE)
        hudi_clean(made, kept.requested, old)

    assert rows(made, Played(made, between=compact_and_clean)) == before == rows(made)


def test_files_that_a_clean_removed_while_the_table_was_opened_are_forgotten() -> None:
    made = made_table()
    made.table("a").upsert(batch(1, "x", "y"))
    early = made.table("a").upsert(batch(2, "x"))
    made.table("c").services.compact(DUE)
    made.table("a").upsert(batch(3, "z"))

    class Late(Played):
        is_cleaned = False

        def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectStat]:
            if prefix == TIMELINE and not self.is_cleaned:
                self.is_cleaned = True
                made.table("c").services.clean(pyhudi.CleanPolicy.commits(1))
            return super().list(prefix, after=after)

    table = made.table("reader", Late(made))
    table.read(columns=COLUMNS).to_arrow()
    with pytest.raises(pyhudi.InvalidRequestError, match="no longer"):
        table.changes(until=early.completed, columns=COLUMNS).to_arrow()
    assert table._state is not None
    known = {file.path for group in table._state.groups() for file in group.files}
    assert known <= {stat.path for stat in made.storage.list("mon")}


# ---- archiving


def overlapping(made: MemoryTable) -> tuple[ObjectStat, ...]:
    """Two writes are pending on the page; then both complete, the older one first."""
    writes = [Writing(made, "w0", batch(5, "r0")), Writing(made, "w1", batch(6, "r1"))]
    page = page_now(made)
    for write in writes:
        write.finish()
    for v in (7, 8):
        made.clock.ms += 5_000
        made.table("a").upsert(batch(v, f"l{v}"))
    made.clock.ms += 5_000
    return page


def test_a_completion_that_was_missed_and_then_archived_is_found_in_the_archive() -> None:
    made = made_table()
    for v in range(3):
        made.table("a").upsert(batch(v, f"k{v}"))
    made.clock.ms += DAY_MS
    page, expected = overlapping(made), rows(made)
    archiver = made.table("archiver")
    archive = Played(made, page, between=lambda: archiver.services.archive(ARCHIVE))
    assert rows(made, archive) == expected


def test_archiving_inside_of_the_second_listing_is_noticed() -> None:
    made = made_table()
    for v in range(3):
        made.table("a").upsert(batch(v, f"k{v}"))
    made.clock.ms += 60_000
    archiver = made.table("archiver")
    archiver.services.archive(ARCHIVE)
    page, expected = overlapping(made), rows(made)

    class Torn(Played):
        is_torn = False

        def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectStat]:
            if prefix != TIMELINE or self.is_torn:
                return super().list(prefix, after=after)
            self.is_torn = True
            names = [s for s in super().list(prefix, after=after) if "/history/" not in s.path]
            oldest = min(stat.path for stat in names)[: len(TIMELINE) + 18]
            first = [stat for stat in names if stat.path.startswith(oldest)]
            archiver.services.archive(replace(ARCHIVE, keep_min=3, keep_max=4))
            rest = (s for s in super().list(prefix, after=after) if s.path > first[-1].path)
            return iter([*first, *rest])

    assert rows(made, Torn(made, page)) == expected


def test_a_write_that_completes_beyond_the_cut_and_is_archived_at_once_is_not_shown_alone() -> None:
    made, some = made_table(), replace(ARCHIVE, keep_min=3, keep_max=4)
    for v in range(6):
        made.table("a").upsert(batch(v, f"k{v}"))
        made.clock.ms += 5_000
    made.table("archiver").services.archive(some)
    slow = Writing(made, "slow", batch(10, "r0"))
    made.clock.ms += 5_000
    made.table("a").upsert(batch(11, "r5"))
    states = [rows(made)]

    def act() -> None:
        for more in (batch(12, "r6"), None, batch(13, "r7")):
            made.clock.ms += 5_000
            if more is None:
                slow.finish()
            else:
                made.table("a").upsert(more)
            states.append(rows(made))
        made.clock.ms += 5_000
        made.table("archiver").services.archive(some)

    class Met(FaultyStorage):
        is_met = False

        def list_folder(self, prefix: str) -> Folder:
            found = super().list_folder(prefix)
            if prefix == TIMELINE and not self.is_met:
                self.is_met = True
                act()
            return found

    assert rows(made, Met(made.storage)) in states
    assert len(states) == 4


# ---- what is undone


def test_a_completed_write_that_hudi_rolls_back_meanwhile_is_noticed() -> None:
    """Its completed file goes first, then its data files; requested and inflight are there."""
    made = made_table()
    made.table("a").upsert(batch(1, "x", "y"))
    made.clock.ms += DAY_MS
    last = made.table("a").upsert(batch(9, "x", "y"))

    def roll_back() -> None:
        made.storage.delete(f"{TIMELINE}/{last.requested}_{last.completed}.deltacommit")
        for state in ("requested", "inflight"):
            made.storage.create(f"{TIMELINE}/{int(last.completed) + 5}.rollback.{state}", b"")
        for stat in list(made.storage.list("mon")):
            if last.requested in stat.path:
                made.storage.delete(stat.path)

    table = made.table("reader", Played(made, between=roll_back))
    found = table.read(columns=["id", "v"]).to_arrow().sort_by("id").to_pylist()
    assert found == [{"id": "x", "v": 1}, {"id": "y", "v": 1}]
    assert table._state is not None
    assert cut_time(table._state.timeline) < last.completed
