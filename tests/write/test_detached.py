"""A write in pieces, each of which could run in a process of its own."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from memory_tables import MemoryTable
from opened_tables import opening_on
from pyhudi.errors import ConflictError, InvalidRequestError
from pyhudi.format.table.bucket_config import SimpleBuckets
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.settings import WriteSettings
from pyhudi.storage.objects.heartbeats import HEARTBEAT_FOLDER, heartbeat_path
from pyhudi.storage.objects.write_fence import FENCE_FOLDER
from pyhudi.write.begin import ready
from pyhudi.write.detached import (
    DetachedWrite,
    abandon,
    begin,
    complete,
    renewing_heartbeat,
    run_task,
)
from pyhudi.write.files.spec import WriteOverError
from pyhudi.write.intent import Keys, WholeRows, WriteIntent
from pyhudi.write.result import WriteResult
from pyhudi.write.schemas import row_schema
from pyhudi.write.tasks import RowsTask

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("note", pa.string())])
SETTINGS = WriteSettings()


class Bench(MemoryTable):
    def __init__(self, **definition: Any) -> None:
        super().__init__(SCHEMA, buckets=SimpleBuckets(2), **{"ordering": "ts", **definition})

    def begun(self, write_id: str | None = None, operation: str = "UPSERT") -> DetachedWrite:
        begun = self.begin(write_id, operation)
        assert isinstance(begun, DetachedWrite)
        return begun

    def begin(
        self, write_id: str | None = None, operation: str = "UPSERT"
    ) -> DetachedWrite | WriteResult:
        session = ready(opening_on(self.storage, self.world("begin"), SETTINGS))
        change = Keys(frozenset({"id", "ts"})) if operation == "DELETE" else WholeRows()
        return begin(
            session,
            WriteIntent(
                operation=operation, change=change, rows=row_schema(session), write_id=write_id
            ),
        )

    def complete(self, write: DetachedWrite, stats: list[WriteStat]) -> WriteResult:
        return complete(write, write.table(self.world("end")), stats)

    def rows(self) -> list[tuple[str, int, str]]:
        found = self.table("reader").read(columns=SCHEMA.names).to_arrow().to_pylist()
        return sorted(tuple(row.values()) for row in found)

    def files(self) -> set[str]:
        """Data files."""
        return {s.path for s in self.storage.list("") if not s.path.startswith(".hoodie/")}

    def left(self) -> list[str]:
        """What only a write under way needs."""
        folders = (HEARTBEAT_FOLDER, FENCE_FOLDER)
        return [stat.path for folder in folders for stat in self.storage.list(folder)]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def batches(*rows: tuple[str, int, str], columns: int = 3) -> Iterator[pa.RecordBatch]:
    """Batches of one row each."""
    schema = pa.schema(list(SCHEMA)[:columns])
    for row in rows:
        named = dict(zip(schema.names, row[:columns], strict=True))
        yield pa.RecordBatch.from_pylist([named], schema)


def stats_of(
    write: DetachedWrite, task: int, *rows: tuple[str, int, str], columns: int = 3
) -> list[WriteStat]:
    return list(run_task(write, task, batches(*rows, columns=columns)))


def test_tasks_of_other_processes_write_what_is_then_visible_at_once(bench: Bench) -> None:
    travelled = bench.begun()
    task = travelled.plan.task
    assert isinstance(task, RowsTask)
    files = replace(task.files, routing=_travelled(task.files.routing))
    task = RowsTask(files, _travelled(task.shape), task.target)
    write = replace(travelled, plan=replace(travelled.plan, task=task))
    stats = stats_of(write, 0, ("a", 1, "x"), ("b", 1, "x")) + stats_of(write, 1, ("c", 1, "x"))
    assert bench.rows() == []
    result = bench.complete(write, stats)
    assert bench.rows() == [("a", 1, "x"), ("b", 1, "x"), ("c", 1, "x")]
    assert (result.instant, result.rows) == (write.requested, 3)
    assert bench.left() == []
    assert bench.pending() == []


def _travelled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def test_rows_of_one_key_in_several_tasks_are_merged_by_their_ordering(bench: Bench) -> None:
    write = bench.begun()
    stats = stats_of(write, 0, ("a", 2, "new")) + stats_of(write, 1, ("a", 1, "old"))
    assert len({stat.path for stat in stats}) == 2
    bench.complete(write, stats)
    assert bench.rows() == [("a", 2, "new")]


def test_attempts_of_a_task_meet_on_one_name(bench: Bench) -> None:
    write = bench.begun()
    first = stats_of(write, 7, ("a", 1, "x"), ("b", 1, "x"))
    files = bench.files()
    assert stats_of(write, 7, ("a", 1, "x"), ("b", 1, "x")) == first
    assert bench.files() == files
    bench.complete(write, first)
    assert len(bench.rows()) == 2


def test_an_attempt_that_has_other_rows_is_told(bench: Bench) -> None:
    write = bench.begun()
    stats_of(write, 0, ("a", 1, "x"))
    with pytest.raises(InvalidRequestError, match="two attempts of one task disagree"):
        stats_of(write, 0, ("a", 1, "x"), *((f"k{n}", 1, "y") for n in range(8)))


def test_a_file_that_no_result_names_stops_the_write(bench: Bench) -> None:
    write = bench.begun()
    kept = stats_of(write, 0, ("a", 1, "x"))
    stats_of(write, 1, ("b", 1, "lost"))
    with pytest.raises(InvalidRequestError, match="no attempt that counts wrote it"):
        bench.complete(write, kept)
    assert bench.rows() == []
    assert not any(write.requested in path for path in bench.files())


def test_a_task_that_wakes_up_after_the_end_writes_nothing(bench: Bench) -> None:
    write = bench.begun()
    bench.complete(write, stats_of(write, 0, ("a", 1, "x")))
    files = bench.files()
    with renewing_heartbeat(write, _busy_world(bench)[0]), pytest.raises(WriteOverError):
        stats_of(write, 1, ("b", 1, "late"))
    assert bench.files() == files
    assert bench.rows() == [("a", 1, "x")]


def test_more_rows_than_memory_holds_go_to_more_files(bench: Bench) -> None:
    write = replace(bench.begun(), settings=WriteSettings(buffer_bytes_max=200))
    rows = [(f"k{number % 10}", number, "x" * 20) for number in range(40)]
    stats = stats_of(write, 0, *rows)
    assert len(stats) > 4
    assert stats_of(write, 0, *rows) == stats
    bench.complete(write, stats)
    assert bench.rows() == [(f"k{n}", 30 + n, "x" * 20) for n in range(10)]


def test_deletes_remove_what_is_older(bench: Bench) -> None:
    first = bench.begun()
    bench.complete(first, stats_of(first, 0, ("a", 1, "x"), ("b", 5, "x"), ("c", 1, "x")))
    write = replace(bench.begun(operation="DELETE"), settings=WriteSettings(buffer_bytes_max=1))
    keys = [("a", 2, ""), ("b", 4, ""), ("c", 1, "")]
    stats = list(run_task(write, 0, batches(*keys, columns=2)))
    assert sum(stat.num_deletes or 0 for stat in stats) == 3
    bench.complete(write, stats)
    assert bench.rows() == [("b", 5, "x")]


def test_what_is_given_up_leaves_nothing_and_can_be_given_up_again(bench: Bench) -> None:
    write = bench.begun()
    stats = stats_of(write, 0, ("a", 1, "x"))
    for _ in range(2):
        abandon(write, bench.world("end"))
        assert bench.files() == set()
        assert bench.left() == []
    with pytest.raises(ConflictError):
        bench.complete(write, stats)
    assert bench.rows() == []


def test_giving_up_what_has_completed_changes_nothing(bench: Bench) -> None:
    write = bench.begun()
    bench.complete(write, stats_of(write, 0, ("a", 1, "x")))
    abandon(write, bench.world("end"))
    assert bench.rows() == [("a", 1, "x")]
    assert bench.left() == []


def test_a_write_that_nobody_goes_on_with_is_rolled_back_by_the_next_writer(bench: Bench) -> None:
    lost = bench.begun()
    stats = stats_of(lost, 0, ("a", 1, "x"))
    bench.clock.sleep(SETTINGS.heartbeat_timeout_ms + 1)
    bench.table("next").upsert(pa.Table.from_batches(batches(("b", 1, "x"))))
    assert not any(lost.requested in path for path in bench.files())
    with pytest.raises(ConflictError):
        bench.complete(lost, stats)
    assert bench.rows() == [("b", 1, "x")]


def test_running_tasks_keep_the_write_alive(bench: Bench) -> None:
    write = bench.begun()
    world, look = _busy_world(bench)
    with renewing_heartbeat(write, world):
        for _ in range(8):
            bench.clock.sleep(SETTINGS.heartbeat_interval_ms // 4)
            look()
    bench.clock.sleep(SETTINGS.heartbeat_interval_ms)
    bench.table("next").upsert(pa.Table.from_batches(batches(("b", 1, "x"))))
    bench.complete(write, stats_of(write, 0, ("a", 1, "x")))
    assert len(bench.rows()) == 2


def test_of_many_tasks_one_beats(bench: Bench) -> None:
    write = bench.begun()
    (one, look), (other, look_too) = _busy_world(bench), _busy_world(bench)
    with renewing_heartbeat(write, one), renewing_heartbeat(write, other):
        seen = []
        for _ in range(4):
            look()
            before = bench.storage.stat(heartbeat_path(write.requested))
            look_too()
            seen.append(before == bench.storage.stat(heartbeat_path(write.requested)))
    assert seen.count(True) >= 2


def test_a_beat_never_brings_a_heartbeat_back(bench: Bench) -> None:
    write = bench.begun()
    world, look = _busy_world(bench)
    with renewing_heartbeat(write, world):
        bench.storage.delete(heartbeat_path(write.requested))
        look()
        look()
    assert bench.left() == []


def test_a_write_id_makes_a_second_write_superfluous(bench: Bench) -> None:
    write = bench.begun("w")
    bench.complete(write, stats_of(write, 0, ("a", 1, "x")))
    again = bench.begin("w")
    assert isinstance(again, WriteResult)
    assert again.instant == write.requested


def test_of_two_attempts_with_one_write_id_the_later_goes_on(bench: Bench) -> None:
    lost = bench.begun("w")
    stats = stats_of(lost, 0, ("a", 1, "x"))
    write = bench.begun("w")
    bench.complete(write, stats_of(write, 0, ("a", 1, "x")))
    with pytest.raises(ConflictError):
        bench.complete(lost, stats)
    assert bench.rows() == [("a", 1, "x")]


def test_writes_of_a_bucket_conflict_where_the_commit_decides() -> None:
    bench = Bench(ordering=())
    bench.table("first").upsert(pa.Table.from_batches(batches(("a", 1, "0"))))
    write = bench.begun()
    stats = stats_of(write, 0, ("a", 1, "1"))
    bench.table("rival").upsert(pa.Table.from_batches(batches(("a", 1, "2"))))
    with pytest.raises(ConflictError, match="lost to another write"):
        bench.complete(write, stats)
    assert bench.rows() == [("a", 1, "2")]


def _busy_world(bench: Bench) -> tuple[Any, Callable[[], None]]:
    """A world, and what makes its background calls come."""
    calls: list[Callable[[], None]] = []

    def every(interval_ms: int, call: Callable[[], None]) -> Callable[[], None]:
        calls.append(call)
        return lambda: None

    def look() -> None:
        for call in calls:
            call()

    return replace(bench.world("task"), every=every), look


def test_a_write_that_began_before_the_table_got_a_lock_is_given_up_at_its_end(
    bench: Bench,
) -> None:
    write = bench.begun()
    stats = stats_of(write, 0, ("a", 1, "x"))
    bench.table().alter.use_lock("file")
    with pytest.raises(ConflictError, match="'file', and not 'none'"):
        bench.complete(write, stats)
    assert bench.rows() == []
    assert bench.pending() == []
    assert bench.left() == []
    again = bench.begun()
    bench.complete(again, stats_of(again, 0, ("a", 1, "x")))
    assert bench.rows() == [("a", 1, "x")]
