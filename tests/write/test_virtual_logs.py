"""Writes of many tasks, and of more rows than memory holds, beside a virtual resize."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pyarrow as pa
import pytest

from many_writers.scene import HeldWrite, Stop
from pyhudi.format.files.file_names import FileGroupId
from pyhudi.format.files.log_reference import is_virtual_child
from pyhudi.format.timeline.commit_metadata import WriteStat
from pyhudi.write import detached
from pyhudi.write.begin import ready
from pyhudi.write.intent import Reads, WholeRows, WriteIntent
from pyhudi.write.resizing.beside import virtual_inputs
from pyhudi.write.result import WriteResult
from pyhudi.write.schemas import row_schema
from resize_tables import ResizeTable

KEYS = "klmnopq"


@pytest.fixture
def table() -> ResizeTable:
    table = ResizeTable(is_virtual=True, ordering="ts")
    table.put(KEYS, 1)
    return table


def saved(table: ResizeTable, meanwhile: Callable[[], object] = lambda: None) -> WriteResult:
    """Write in three tasks, each of which gets the write as it is sent to another process."""
    session = ready(table.opening("begin"))
    rows = row_schema(session)
    begun = detached.begin(
        session,
        WriteIntent(operation="UPSERT", change=WholeRows(), rows=rows, reads=Reads.NOTHING),
    )
    assert isinstance(begun, detached.DetachedWrite)
    stats: list[WriteStat] = []
    for number, keys in enumerate(("kl", "lmx", "yz")):
        batches = iter(table.made(keys, 2).to_batches())
        stats += detached.run_task(begun, number, batches)
    meanwhile()
    return detached.complete(begun, begun.table(table.world("end")), stats)


def child_logs(table: ResizeTable, requested: str) -> list[str]:
    names = (s.path.rpartition("/")[2] for s in table.storage.list("d") if requested in s.path)
    return [name for name in names if is_virtual_child(name[1:].partition("_")[0])]


def whole(table: ResizeTable) -> dict[str, str]:
    assert bool(table.table("v").services.verify())
    return table.values()


EXPECTED = {key: f"{key}{2 if key in 'klmxyz' else 1}" for key in f"{KEYS}xyz"}


def test_each_task_has_logs_and_references_of_its_own(table: ResizeTable) -> None:
    requested = table.plan()
    result = saved(table)
    assert {name.rpartition("_")[2] for name in child_logs(table, result.requested)} == {
        f"{task}-1-0" for task in range(3)
    }
    assert result.rows == 7
    assert whole(table) == EXPECTED
    table.resizes().execute(requested)
    assert whole(table) == EXPECTED


def test_a_save_that_completes_behind_the_resize_leaves_its_references(table: ResizeTable) -> None:
    requested = table.plan()
    result = saved(table, lambda: table.resizes().execute(requested))
    assert (result.moved, result.retries) == (0, 0)
    assert whole(table) == EXPECTED


def test_a_save_whose_resize_was_cancelled_is_written_again_from_its_files(
    table: ResizeTable,
) -> None:
    requested = table.plan()
    result = saved(table, lambda: table.resizes().cancel(requested))
    assert result.rows == 6  # a key that two tasks have is there once
    assert not child_logs(table, result.requested)
    assert whole(table) == EXPECTED


def streamed(table: ResizeTable, count: int) -> HeldWrite:
    rows = table.made([f"key{n:04}" for n in range(count)], 2)
    reader = pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(max_chunksize=20))
    own = table.table("own", buffer_bytes_max=1 << 10)
    return HeldWrite(lambda: own.upsert(reader)).run_to(Stop.WRITTEN)


def test_a_stream_has_several_logs_in_each_child_and_one_reference(table: ResizeTable) -> None:
    requested = table.plan(2)
    write = streamed(table, 300)
    assert len(child_logs(table, write.requested)) > 2
    write.finish()
    before = whole(table)
    assert len(before) == 300 + len(KEYS)
    table.resizes().execute(requested)
    assert whole(table) == before


def test_a_stream_whose_resize_was_cancelled_is_rebased(table: ResizeTable) -> None:
    requested = table.plan(2)
    write = streamed(table, 300)
    table.resizes().cancel(requested)
    assert write.finish().retries == 1
    assert len(whole(table)) == 300 + len(KEYS)


def test_what_tasks_need_to_know_can_be_sent_to_them(table: ResizeTable) -> None:
    table.plan()
    session = table.session("s")
    found = virtual_inputs(session, "9" * 17)
    assert found
    sent = pickle.loads(pickle.dumps(dict(found)))
    keys = pa.array(list(KEYS))
    for group, replaced in found.items():
        assert isinstance(group, FileGroupId)
        own, other = replaced.children, sent[group].children
        assert own.assign(keys).tolist() == other.assign(keys).tolist()
        assert own.groups == other.groups


def test_a_write_older_than_the_plan_has_nothing_to_do_with_it(table: ResizeTable) -> None:
    requested = table.plan()
    session = table.session("s")
    assert not virtual_inputs(session, requested)
    assert virtual_inputs(session, f"{int(requested) + 1}")


def test_a_plan_that_does_not_fit_the_ring_is_left_alone(table: ResizeTable) -> None:
    requested = table.plan()
    path = f".hoodie/timeline/{requested}.clustering.requested"
    data = table.storage.read(path)
    table.storage.write(path, data[: len(data) // 2])
    assert not virtual_inputs(table.session("s"), "9" * 17)
