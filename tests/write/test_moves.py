"""What a write does about a resize that is in its way, and what is left of that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from faulty_storage import Effect, Fault, FaultyStorage
from many_writers.scene import HeldWrite, Stop
from opened_tables import opening_on
from pyhudi.commit.proposals import Close
from pyhudi.errors import ConflictError, UnavailableError
from pyhudi.format.files.file_names import LogFileName, parse_data_file
from pyhudi.format.table.concurrency_mode import ConcurrencyMode
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.session.session import TableSession
from pyhudi.settings import WriteSettings
from pyhudi.storage.objects.heartbeats import heartbeat_path
from pyhudi.storage.objects.markers import load_markers
from pyhudi.write import detached
from pyhudi.write.begin import ready
from pyhudi.write.intent import Change, Keys, Reads, WholeRows, WriteIntent
from pyhudi.write.resizing import meet
from pyhudi.write.result import WriteResult
from pyhudi.write.schemas import row_schema
from resize_tables import ResizeTable

KEYS = "klmnopq"


@pytest.fixture
def table() -> ResizeTable:
    table = ResizeTable(ordering="ts")
    table.put(KEYS, 1)
    return table


def held(table: ResizeTable, keys: str = KEYS, stamp: int = 2, **settings: Any) -> HeldWrite:
    own = table.table("own", **settings)
    rows = table.made(keys, stamp)
    return HeldWrite(lambda: own.upsert(rows)).run_to(Stop.WRITTEN)


def logs_of(table: ResizeTable, requested: str) -> dict[str, LogFileName]:
    """The logs in the table that a write named."""
    names = (stat.path for stat in table.storage.list("d"))
    parsed = {path: parse_data_file(path.rpartition("/")[2]) for path in names}
    return {
        path: name
        for path, name in parsed.items()
        if isinstance(name, LogFileName) and name.requested == requested
    }


def closed(table: ResizeTable, deed: Callable[[], object] = lambda: None) -> str:
    """A resize that is closed and whose executor has died; `deed` is done while it was pending."""
    requested = table.plan()
    deed()

    class Dying:
        def __getattr__(self, name: str) -> Any:
            return getattr(table.storage, name)

        def create(self, path: str, data: bytes) -> bool:
            if "/.pyhudi/log/" in path and b'"kind":"complete"' in data:
                raise KeyboardInterrupt
            return table.storage.create(path, data)

    with pytest.raises(KeyboardInterrupt):
        table.resizes("dying", Dying()).execute(requested)
    table.session("closing").log.append(Close(requested, lambda live: None))
    return requested


def test_a_moved_write_leaves_only_its_logs_in_the_children(table: ResizeTable) -> None:
    requested = table.plan(3)
    write = held(table, "klmx")
    before = logs_of(table, write.requested)
    table.resizes().execute(requested)
    result = write.finish()
    assert (result.moved, result.rows, result.retries) == (4, 4, 0)
    after = logs_of(table, result.requested)
    assert len(before) == 1
    assert not before.keys() & after.keys()
    assert result.files == len(after) > 1
    assert not load_markers(table.storage, result.requested)
    assert table.values() == {**{k: f"{k}1" for k in KEYS}, **{k: f"{k}2" for k in "klmx"}}
    assert bool(table.table("v").services.verify())


def test_moved_logs_are_numbered_above_those_of_the_write(table: ResizeTable) -> None:
    """A task of the write may have written to the child, under the token that moved logs have."""
    requested = table.plan(3)
    write = held(table)
    table.resizes().execute(requested)
    result = write.finish()
    assert {name.version for name in logs_of(table, result.requested).values()} == {2}


def test_a_write_is_made_again_once_for_all_resizes_since(table: ResizeTable) -> None:
    write = held(table, "klmx")
    for parts in (2, 3):
        table.resizes().execute(table.plan(parts))
    assert write.finish().retries == 1
    assert len(table.values()) == 8


def test_a_write_moves_through_two_resizes(table: ResizeTable) -> None:
    first = table.plan(2)
    write = held(table, "klmx")
    table.resizes().execute(first)
    session = ready(table.opening("own"))
    [group] = {stat.file_id for stat in _stats(table, write.requested)}
    files = meet.WrittenFiles(*(2 * (_stats(table, write.requested),)))
    once = meet.moved(session, write.requested, files)
    table.resizes().execute(table.plan(3))
    twice = meet.moved(ready(table.opening("own")), write.requested, once)
    assert twice.moved == once.moved == 4
    assert group not in {stat.file_id for stat in twice.stats}
    assert {stat.data_path for stat in once.stats} <= {stat.data_path for stat in twice.left}
    assert sum(stat.rows_written for stat in twice.stats) == 4


def _stats(table: ResizeTable, requested: str) -> tuple[WriteStat, ...]:
    return tuple(
        WriteStat(
            file_id=name.file_id,
            path=path,
            partition_path="d",
            num_inserts=0,
            num_update_writes=4,
            log_version=name.version,
            log_files=(name.file_name,),
            file_size_in_bytes=len(table.storage.read(path)),
        )
        for path, name in logs_of(table, requested).items()
    )


def test_deletes_move_too(table: ResizeTable) -> None:
    requested = table.plan(3)
    own, keys = table.table("own"), table.made("kl", 2).drop_columns(["v"])
    write = HeldWrite(lambda: own.delete(keys)).run_to(Stop.WRITTEN)
    table.resizes().execute(requested)
    result = write.finish()
    assert (result.moved, result.deletes) == (2, 2)
    assert table.values().keys() == set(KEYS) - {"k", "l"}


def test_a_resize_that_was_planned_later_is_no_counted_retry(table: ResizeTable) -> None:
    write = held(table, conflict_retries=0)
    table.resizes().execute(table.plan())
    result = write.finish()
    assert (result.retries, result.moved) == (1, 0)


def test_a_writer_finishes_a_resize_whose_executor_died(table: ResizeTable) -> None:
    write: list[HeldWrite] = []
    requested = closed(table, lambda: write.append(held(table)))
    table.storage.delete(heartbeat_path(requested))
    slept = table.clock.ms
    assert write[0].finish().moved == len(KEYS)
    assert requested in table.session("s").log.refresh().completed
    assert table.clock.ms - slept < meet.EXECUTOR_WAIT_MS // 2
    assert set(table.values().values()) == {f"{key}2" for key in KEYS}


def test_an_executor_that_seems_alive_gets_a_moment(table: ResizeTable) -> None:
    write: list[HeldWrite] = []
    requested = closed(table, lambda: write.append(held(table)))
    table.storage.write(heartbeat_path(requested), b"")
    slept = table.clock.ms
    assert write[0].finish().moved == len(KEYS)
    assert table.clock.ms - slept >= meet.EXECUTOR_WAIT_MS // 2
    assert requested in table.session("s").log.refresh().completed


def test_a_resize_that_cannot_be_finished_is_cancelled(table: ResizeTable) -> None:
    requested = closed(table)
    for stat in table.storage.list("d"):
        if stat.path.endswith(f"_{requested}.parquet"):
            table.storage.delete(stat.path)
    table.put("kx", 2)
    live = table.session("s").log.refresh()
    assert requested not in live.pending
    assert requested not in live.completed
    assert table.values() == {**{key: f"{key}1" for key in KEYS}, "k": "k2", "x": "x2"}


def test_an_overwrite_cancels_a_closed_resize_and_does_not_finish_it(table: ResizeTable) -> None:
    requested = closed(table)
    table.table("own").overwrite(table.made("a", 2), partitions=["d"])
    live = table.session("s").log.refresh()
    assert requested not in live.pending
    assert requested not in live.completed
    assert table.values() == {"a": "a2"}


def test_a_write_whose_log_is_gone_says_so_and_is_made_again(table: ResizeTable) -> None:
    requested = table.plan()
    write = held(table)
    table.resizes().execute(requested)
    for path in logs_of(table, write.requested):
        table.storage.delete(path)
    result = write.finish()
    assert (result.retries, result.moved) == (1, 0)
    assert set(table.values().values()) == {f"{key}2" for key in KEYS}


def test_a_write_that_fails_in_its_move_leaves_nothing(table: ResizeTable) -> None:
    requested = table.plan()
    # Moved logs are streams, and what writes create at first is not.
    fault = Fault(Effect.FAIL, operation="create_from", path="d/*", times=None)
    broken = FaultyStorage(table.storage, [fault])
    own = table.table("own", broken, conflict_retries=0)
    write = HeldWrite(lambda: own.upsert(table.made(KEYS, 2))).run_to(Stop.WRITTEN)
    table.resizes().execute(requested)
    with pytest.raises(UnavailableError):
        write.finish()
    assert not logs_of(table, write.requested)
    assert set(table.values().values()) == {f"{key}1" for key in KEYS}


def test_the_same_obstacle_does_not_hold_a_write_for_ever(
    table: ResizeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed(table)
    tries: list[str] = []
    monkeypatch.setattr(meet, "finish_resize", lambda session, resize: tries.append(resize))
    with pytest.raises(ConflictError, match="resize"):
        table.table("own", conflict_retries=0).upsert(table.made("k", 2))
    assert len(tries) == meet.MEETINGS_MAX


def test_a_frame_that_cannot_be_written_again_is_told_of_the_resize() -> None:
    """A write that depends on rows, and is run once elsewhere."""
    table = ResizeTable(concurrency=ConcurrencyMode.OPTIMISTIC)
    table.put(KEYS, 1)
    write = _begun(table, Keys(frozenset({"id", "day", "ts"})), "DELETE", Reads.LOCATIONS)
    stats = list(detached.run_task(write, 0, _batches(table, "kl", "v")))
    late = table.plan()
    table.resizes().execute(late)
    with pytest.raises(ConflictError, match=late):
        detached.complete(write, write.table(table.world("end")), stats)
    assert table.values().keys() == set(KEYS)
    assert not table.pending()


# -- writes in several processes


def _begun(
    table: ResizeTable,
    change: Change | None = None,
    operation: str = "UPSERT",
    reads: Reads = Reads.NOTHING,
    write_id: str | None = None,
) -> detached.DetachedWrite:
    session: TableSession = ready(table.opening("begin"))
    intent = WriteIntent(
        operation=operation,
        change=change or WholeRows(),
        rows=row_schema(session),
        reads=reads,
        write_id=write_id,
    )
    begun = detached.begin(session, intent)
    assert isinstance(begun, detached.DetachedWrite)
    return begun


def _batches(table: ResizeTable, keys: str, *without: str) -> Any:
    rows = table.made(keys, 2)
    return iter((rows.drop_columns(list(without)) if without else rows).to_batches())


def _saved(
    table: ResizeTable, meanwhile: Callable[[], object], write_id: str | None = None
) -> WriteResult:
    write = _begun(table, write_id=write_id)
    tasks = [detached.run_task(write, n, _batches(table, k)) for n, k in enumerate(("kl", "lm"))]
    stats = [stat for task in tasks for stat in task]
    meanwhile()
    return detached.complete(write, write.table(table.world("end")), stats)


def _done(table: ResizeTable, requested: str) -> None:
    table.resizes().execute(requested)


def test_a_save_moves_the_logs_of_all_its_tasks(table: ResizeTable) -> None:
    requested = table.plan()
    result = _saved(table, lambda: _done(table, requested))
    assert (result.moved, result.retries) == (4, 0)
    expected = {key: f"{key}2" if key in "klm" else f"{key}1" for key in KEYS}
    assert table.values() == expected
    assert not table.pending()


def test_a_save_that_wrote_twice_is_completed_by_the_next_process(table: ResizeTable) -> None:
    """Beside a resize that Hudi can execute; the first one dies at the decision."""
    requested = table.plan(is_dual=True)
    write = _begun(table)
    stats = list(detached.run_task(write, 0, _batches(table, "kl")))

    class Dying:
        def __getattr__(self, name: str) -> Any:
            return getattr(table.storage, name)

        def create(self, path: str, data: bytes) -> bool:
            if "/.pyhudi/log/" in path or path.startswith(".hoodie/timeline"):
                raise KeyboardInterrupt
            return table.storage.create(path, data)

    with pytest.raises(KeyboardInterrupt):
        detached.complete(write, opening_on(Dying(), table.world("dies"), WriteSettings()), stats)
    twice = logs_of(table, requested)
    assert twice
    result = detached.complete(write, write.table(table.world("end")), stats)
    assert (result.rows, result.files) == (2, len(stats))
    assert logs_of(table, requested) == twice
    _done(table, requested)
    assert table.values() == {**{k: f"{k}1" for k in KEYS}, "k": "k2", "l": "l2"}


@pytest.mark.parametrize("write_id", [None, "once"])
def test_a_save_that_a_resize_has_overtaken_is_written_again(
    table: ResizeTable, write_id: str | None
) -> None:
    result = _saved(table, lambda: _done(table, table.plan()), write_id)
    assert (result.moved, result.rows) == (0, 3)
    assert (table.table("b").upsert(table.made("", 1), write_id="once").repeated) is bool(write_id)
    expected = {key: f"{key}2" if key in "klm" else f"{key}1" for key in KEYS}
    assert table.values() == expected
    assert not table.pending()
    assert bool(table.table("v").services.verify())


def test_a_stream_that_a_resize_has_overtaken_is_rebased(table: ResizeTable) -> None:
    own = table.table("own", buffer_bytes_max=1 << 10)
    rows = table.made([f"key{n:04}" for n in range(300)], 2)
    reader = pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(max_chunksize=20))
    write = HeldWrite(lambda: own.upsert(reader)).run_to(Stop.WRITTEN)
    assert len(logs_of(table, write.requested)) > 1
    table.resizes().execute(table.plan())
    assert write.finish().retries == 1
    assert len(table.values()) == 300 + len(KEYS)
    assert bool(table.table("v").services.verify())
