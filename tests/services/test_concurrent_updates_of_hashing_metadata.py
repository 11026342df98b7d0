"""RFC-42's fifth test: concurrent updates of hashing metadata.

Processes are threads with a table of their own, on one storage. They begin at one moment; each
claim holds whichever is first.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from typing import TypeVar

import pyarrow as pa
import pytest

import pyhudi
from opened_tables import session_on, table_on
from pyhudi.api.table import Table
from pyhudi.errors import ConflictError, InvalidRequestError
from pyhudi.format.table.ring_file import FIRST_INSTANT, Ring
from pyhudi.plan.table_definition import TableDefinition
from pyhudi.services.resizing.result import ResizeResult
from pyhudi.services.resizing.run import resizes
from pyhudi.session.create import create_table_files
from pyhudi.session.session import TableSession
from pyhudi.storage.stores.memory import MemoryStorage
from pyhudi.world import real_world
from resize_tables import SCHEMA, begin_resize, splits

_T = TypeVar("_T")
PROCESSES = 4
DAYS = ("a", "b", "c", "d")
KEYS = [f"k{n}" for n in range(200)]

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # buckets this small are for tests only
    SMALL = pyhudi.ResizePolicy(target_bytes=4096, split_above=1, rest_seconds=0)


class Shared:
    """A table in memory with one bucket in each partition, and the threads that have it open."""

    def __init__(self) -> None:
        self._storage = MemoryStorage(real_world().now_ms)
        buckets = pyhudi.ConsistentBuckets(initial=1, max=8)
        definition = TableDefinition.of(
            "t", SCHEMA, record_key="id", partition_by="day", ordering="ts", buckets=buckets
        )
        create_table_files(self._storage, definition, real_world(), exist_ok=False)
        for day in DAYS:
            self.table().upsert(batch(day, KEYS, 1))

    def table(self) -> Table:
        """As one more process has it open."""
        return table_on(self._storage, real_world())

    def session(self) -> TableSession:
        return session_on(self._storage, real_world())

    def ring(self, day: str) -> Ring:
        ring = self.session().groups.ring(day)
        assert ring is not None
        return ring

    def plan(self, day: str) -> str:
        """Plan a split of a partition's buckets in two."""
        numbers = count()

        def new_id() -> str:
            return f"{day * 8}-0000-0000-0000-{next(numbers):05d}"

        return begin_resize(self.session(), (day,), lambda ring: splits(ring, 2, new_id))

    def execute(self, requested: str) -> ResizeResult | None:
        return resizes(self.session()).execute(requested)

    def require_rows(self, stamps: dict[str, int]) -> None:
        """Every row once, with its owner."""
        table = self.table()
        found = table.read(columns=["id", "day", "v"]).to_arrow().to_pylist()
        expected = [
            {"id": f"{day}{key}", "day": day, "v": f"{key} {stamp}"}
            for day, stamp in stamps.items()
            for key in KEYS
        ]
        assert sorted(map(repr, found)) == sorted(map(repr, expected))
        assert not table.services.verify().findings


@pytest.fixture
def shared() -> Shared:
    return Shared()


def batch(day: str, keys: Sequence[str], stamp: int) -> pa.Table:
    rows = [{"id": f"{day}{key}", "day": day, "ts": stamp, "v": f"{key} {stamp}"} for key in keys]
    return pa.Table.from_pylist(rows, SCHEMA)


def at_once(calls: Sequence[Callable[[], _T]]) -> list[_T]:
    """Make all calls at one moment, each in a thread; raise what one of them raises."""
    barrier = threading.Barrier(len(calls))

    def call(each: Callable[[], _T]) -> _T:
        barrier.wait(30)
        return each()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [done.result(120) for done in [pool.submit(call, each) for each in calls]]


def test_resizes_of_different_partitions_are_executed_at_once(shared: Shared) -> None:
    plans = {day: shared.plan(day) for day in DAYS}
    results = at_once([partial(shared.execute, plans[day]) for day in DAYS])
    assert [result and result.instant for result in results] == list(plans.values())
    for day in DAYS:
        ring = shared.ring(day)
        assert (ring.instant, len(ring.nodes)) == (plans[day], 2)
    shared.require_rows(dict.fromkeys(DAYS, 1))


def test_of_resizes_of_one_partition_that_race_each_begins_with_the_ring_that_the_last_one_left(
    shared: Shared,
) -> None:
    def resized() -> None:
        shared.table().services.resize(SMALL)

    before = {day: shared.ring(day) for day in DAYS}
    at_once([resized] * PROCESSES)
    completed = [
        row["requested"]
        for row in shared.table().inspect.timeline().to_pylist()
        if row["action"] == "replacecommit" and row["state"] == "completed"
    ]
    assert completed
    for day in DAYS:
        ring = shared.ring(day)
        assert before[day].instant == FIRST_INSTANT
        assert ring.instant in completed
        assert 1 <= ring.sequence_number <= len(completed)
    shared.require_rows(dict.fromkeys(DAYS, 1))


def test_of_plans_of_one_partition_that_race_one_is_made(shared: Shared) -> None:
    def planned() -> str | None:
        return shared.table().services.resize(SMALL, plan_only=True).planned

    plans = [made for made in at_once([planned] * PROCESSES) if made is not None]
    assert len(plans) == 1
    done = shared.table().services.resize(SMALL)
    assert plans[0] in [result.instant for result in done.results]
    shared.require_rows(dict.fromkeys(DAYS, 1))


def test_executors_of_one_resize_race_and_one_completion_brings_one_ring(shared: Shared) -> None:
    requested = shared.plan("a")
    writer = shared.table()

    def wrote() -> None:
        writer.upsert(batch("a", KEYS, 2))

    def executed() -> ResizeResult | None:
        try:
            return shared.execute(requested)
        except (ConflictError, InvalidRequestError) as error:
            raise AssertionError(f"an executor that is overtaken reports it: {error}") from error

    results = at_once([*[executed] * PROCESSES, wrote])[:PROCESSES]
    told = [result for result in results if result is not None]
    assert sum(result.is_ours for result in told) == 1
    assert {result.instant for result in told} == {requested}
    ring = shared.ring("a")
    assert (ring.instant, ring.sequence_number, len(ring.nodes)) == (requested, 1, 2)
    shared.require_rows({day: 2 if day == "a" else 1 for day in DAYS})
