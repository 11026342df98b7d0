"""A reader does not fail, and is never wrong, because others write while it lists the table."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import pyhudi
from faulty_storage import Effect, Fault, FaultyStorage
from memory_tables import TIMELINE, MemoryTable
from pyhudi.api.table import Table
from pyhudi.errors import HudiError, InvalidRequestError, UnavailableError
from pyhudi.storage.protocol import Folder, ObjectStat
from pyhudi.timeline.cut import cut_time

SCHEMA = pa.schema(
    [pa.field("id", pa.string(), nullable=False), ("day", pa.string()), ("v", pa.int64())]
)
COLUMNS = ["id", "day", "v"]
DAYS = ("mon", "tue")
#: With these, readers that repeated their listings until two agreed failed.
SEEDS = (0, 2)
CLEAN = pyhudi.CleanPolicy.commits(8)
ARCHIVE = pyhudi.ArchivePolicy(
    keep_min=9, keep_max=10, delta_commits=0, grace_ms=0, aborted_grace_ms=0
)


class Others:
    """What other processes do to a table, one thing after the other."""

    def __init__(self, made: MemoryTable, seed: int) -> None:
        self._made = made
        self._chance = random.Random(seed)
        self._table = made.table("other")
        self._number = 0
        self.done: list[str] = []

    def act(self) -> None:
        """Do one thing; a service now and then."""
        verb = self._chance.choice([self._upsert] * 6 + [self._delete, self._fail, self._replace])
        service = self._chance.choice([None, None, self._compact, self._clean, self._archive])
        for step in (verb, service):
            if step is not None:
                step()
                self.done.append(step.__name__)
        self._made.clock.ms += 1_000

    def _rows(self) -> pa.Table:
        self._number += 1
        ids = [f"k{self._chance.randrange(12)}", f"n{self._number}"]
        day = self._chance.choice(DAYS)
        return pa.table({"id": ids, "day": [day] * 2, "v": [self._number] * 2}, schema=SCHEMA)

    def _upsert(self) -> None:
        self._table.upsert(self._rows())

    def _delete(self) -> None:
        self._table.delete(f"id = 'k{self._chance.randrange(12)}'")

    def _replace(self) -> None:
        self._table.overwrite(self._rows())

    def _fail(self) -> None:
        """A write that fails half-way, and is rolled back."""
        storage = FaultyStorage(self._made.storage, [Fault(Effect.FAIL, "create", "*.log.*")])
        with pytest.raises(HudiError):
            self._made.table("failing", storage).upsert(self._rows())

    def _compact(self) -> None:
        self._table.services.compact(pyhudi.CompactionPolicy(min_delta_commits=1))

    def _clean(self) -> None:
        self._table.services.clean(CLEAN)

    def _archive(self) -> None:
        self._table.services.archive(ARCHIVE)


class Met(FaultyStorage):
    """Storage whose every listing comes in two pages, and something happens in between."""

    def __init__(self, made: MemoryTable, act: Callable[[], None], seed: int) -> None:
        super().__init__(made.storage)
        self._act = act
        self._chance = random.Random(seed)
        self.listings = 0

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectStat]:
        first = tuple(super().list(prefix, after=after))
        return iter(self._paged(first, lambda: tuple(super(Met, self).list(prefix, after=after))))

    def list_folder(self, prefix: str) -> Folder:
        first = super().list_folder(prefix)
        second = first

        def again() -> tuple[ObjectStat, ...]:
            nonlocal second
            second = super(Met, self).list_folder(prefix)
            return second.objects

        objects = self._paged(first.objects, again)
        return Folder(second.folders, objects)

    def _paged(
        self, first: tuple[ObjectStat, ...], again: Callable[[], tuple[ObjectStat, ...]]
    ) -> tuple[ObjectStat, ...]:
        self.listings += 1
        cut = self._chance.randrange(len(first) + 1)
        self._act()
        last = first[cut - 1].path if cut else ""
        return (*first[:cut], *(stat for stat in again() if stat.path > last))


def busy_table(seed: int, **definition: Any) -> tuple[MemoryTable, Others, Met]:
    buckets = pyhudi.SimpleBuckets(2)
    made = MemoryTable(SCHEMA, partition_by="day", buckets=buckets, **definition)
    others = Others(made, seed)
    for _ in range(6):
        others.act()
    return made, others, Met(made, others.act, seed)


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.select(COLUMNS).to_pylist())


def is_right(made: MemoryTable, table: Table, found: pa.Table) -> bool | None:
    """Whether the rows are those of the cut that was read; None if that state was cleaned since."""
    state = table._state
    assert state is not None
    try:
        quiet = made.table("quiet").read(as_of=cut_time(state.timeline), columns=COLUMNS)
        return rows(quiet.to_arrow()) == rows(found)
    except InvalidRequestError:
        return None


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("is_new", [True, False], ids=["opened anew", "refreshed"])
@pytest.mark.parametrize("kind", [{"ordering": "v"}, {}], ids=["nbcc", "occ"])
def test_a_reader_that_meets_others_in_each_of_its_listings_reads_one_state(
    seed: int, is_new: bool, kind: dict[str, Any]
) -> None:
    made, others, storage = busy_table(seed, **kind)
    table = made.table("reader", storage)
    verdicts = []
    for _ in range(10):
        table = made.table("reader", storage) if is_new else table
        verdicts.append(is_right(made, table, table.read(columns=COLUMNS).to_arrow()))
    assert False not in verdicts
    assert verdicts.count(True) > 5
    assert storage.listings > 30
    assert {"_upsert", "_compact", "_clean", "_archive", "_fail"} <= set(others.done)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_consumer_that_meets_others_in_each_of_its_listings_misses_no_row(seed: int) -> None:
    made, _, storage = busy_table(seed, ordering="v")
    made.table("setup").consumers.register("mirror")
    table, since = made.table("reader", storage), None
    seen: dict[tuple[str, str], int] = {}
    for _ in range(10):
        found = table.changes(since=since, columns=COLUMNS)
        for id_, day, v in rows(found.to_arrow()):
            seen[id_, day] = max(seen.get((id_, day), 0), v)
        since = found.until
        made.table("setup").consumers.advance("mirror", since)
    quiet = rows(made.table("quiet").read(as_of=since, columns=COLUMNS).to_arrow())
    assert len(quiet) > 10
    assert [(id_, day, seen.get((id_, day))) for id_, day, _ in quiet] == quiet


def test_a_state_that_every_clean_takes_away_while_it_is_listed_is_an_error() -> None:
    made, others, _ = busy_table(0, ordering="v")

    def clean_all() -> None:
        for _ in range(2):
            made.table("a").upsert(others._rows())
            made.table("a").services.compact(pyhudi.CompactionPolicy(min_delta_commits=1))
        made.table("a").services.clean(pyhudi.CleanPolicy.commits(1))
        made.clock.ms += 1_000

    class Cleaned(FaultyStorage):
        def list_folder(self, prefix: str) -> Folder:
            found = super().list_folder(prefix)
            if prefix == TIMELINE:
                clean_all()
            return found

    with pytest.raises(UnavailableError, match="changes faster than it can be listed"):
        made.table("reader", Cleaned(made.storage)).read(columns=COLUMNS)


def test_a_quiet_read_lists_the_timeline_twice_to_open_and_once_to_refresh() -> None:
    made, _, _ = busy_table(1, ordering="v")
    storage = FaultyStorage(made.storage)
    table = made.table("reader", storage)
    table.read(columns=COLUMNS)
    counted = [(o.name, o.path) for o in storage.trace if o.path == TIMELINE]
    assert [name for name, _ in counted] == ["list_folder", "list"]
    storage.trace.clear()
    table.read(columns=COLUMNS)
    assert [o.name for o in storage.trace] == ["list"]
