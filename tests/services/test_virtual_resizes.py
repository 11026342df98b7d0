"""Virtual resizes: writes beside one put their rows into its children, and refer to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pyhudi.errors import ConflictError, CorruptTableError, UnsupportedTableError
from pyhudi.format.files.log_reference import is_virtual_child
from pyhudi.format.table.concurrency_mode import ConcurrencyMode
from pyhudi.format.timeline.commit_metadata import CommitMetadata, decode_commit_metadata
from pyhudi.plan.resizing.policy import ResizePolicy
from resize_tables import Beside, ResizeTable

MODES: dict[str, dict[str, Any]] = {
    "event time": {"ordering": "ts"},
    "commit time": {"concurrency": ConcurrencyMode.OPTIMISTIC},
}


#: The end of the name of a log that refers to others.
REFERENCE = ".log.1_0-0-0"


@pytest.fixture(params=MODES)
def table(request: pytest.FixtureRequest) -> ResizeTable:
    return ResizeTable(is_virtual=True, **MODES[request.param])


def last_commit(table: ResizeTable) -> CommitMetadata:
    """What the write that completed last says of itself."""
    paths = [s.path for s in table.storage.list(".hoodie/timeline") if s.path.endswith("commit")]
    newest = max(paths, key=lambda path: path.rpartition("_")[2])
    return decode_commit_metadata(table.storage.read(newest), newest)


def last_completion(table: ResizeTable) -> str:
    return max(i.completed or "" for i in table.session("s").log.refresh().completed_after("0"))


def put_beside(table: ResizeTable, keys: str, stamp: int, deed: Callable[[], Any]) -> None:
    """Write rows; the deed is done when they are in the children, and the write is pending."""
    storage = Beside(table, {REFERENCE: deed})
    table.table("late", storage=storage).upsert(table.made(keys, stamp))


def test_rows_go_to_the_children_and_are_read_through_the_input(table: ResizeTable) -> None:
    table.put("klmnopq", 1)
    table.plan()
    table.put("kxyz", 2)
    stats = last_commit(table).stats
    own = [stat for stat in stats if not stat.is_reference]
    [reference] = [stat for stat in stats if stat.is_reference]
    assert sum(stat.rows_written for stat in own) == 4
    assert all(is_virtual_child(stat.file_id or "") for stat in own)
    assert not is_virtual_child(reference.file_id or "")
    assert table.values() == {k: f"{k}1" for k in "lmnopq"} | {k: f"{k}2" for k in "kxyz"}


def test_each_row_is_written_once(table: ResizeTable) -> None:
    table.put("klmnopq", 1)
    table.plan()
    table.put("kxyz", 2)
    label = b"x2"
    holding = [s.path for s in table.storage.list("d") if label in table.storage.read(s.path)]
    assert len(holding) == 1


def test_readers_see_the_same_rows_before_meanwhile_and_after(table: ResizeTable) -> None:
    table.put("klmnopq", 1)
    requested = table.plan()
    table.put("kxyz", 2)
    table.remove("lx")
    table.put("l", 3)
    before = table.rows()
    assert len(before) == 9
    result = table.resizes().execute(requested)
    assert result is not None
    assert result.copies == 0
    assert table.rows() == before
    table.put("kz", 4)
    assert table.values()["z"] == "z4"


def test_a_merge_keeps_the_rows_of_each_input_apart(table: ResizeTable) -> None:
    table.put("klmnopq", 1)
    table.resizes().execute(table.plan())
    requested = table.plan_merge()
    table.put("klmnopqrstuv", 2)
    stats = [stat for stat in last_commit(table).stats if not stat.is_reference]
    assert len({stat.file_id for stat in stats}) == 1
    assert len(stats) == len([s for s in last_commit(table).stats if s.is_reference]) > 1
    before = table.rows()
    assert table.values() == {k: f"{k}2" for k in "klmnopqrstuv"}
    table.resizes().execute(requested)
    assert table.rows() == before


def test_a_state_of_the_past_is_read_as_it_was(table: ResizeTable) -> None:
    table.put("klm", 1)
    requested = table.plan()
    states = [(last_completion(table), table.rows())]
    for stamp, keys in enumerate(("kx", "ly", "mz"), start=2):
        table.put(keys, stamp)
        states.append((last_completion(table), table.rows()))
    table.resizes().execute(requested)
    states.append((last_completion(table), table.rows()))
    table.put("kw", 9)
    for time, rows in states:
        assert table.rows(as_of=time) == rows


def test_changes_show_each_row_once_wherever_a_range_begins_and_ends(table: ResizeTable) -> None:
    table.put("klm", 1)
    moments = [last_completion(table)]
    requested = table.plan()
    for stamp, keys in enumerate(("kx", "ly", "kz"), start=2):
        table.put(keys, stamp)
        moments.append(last_completion(table))
    meanwhile = {
        (a, b): table.changed(a, b) for i, a in enumerate(moments) for b in moments[i + 1 :]
    }
    table.resizes().execute(requested)
    end = last_completion(table)
    for (since, until), rows in meanwhile.items():
        assert rows
        assert table.changed(since, until) == rows
        assert len(set(rows)) == len(rows)
    for since in moments[:-1]:
        assert table.changed(since, end) == meanwhile[since, moments[-1]]


def test_a_write_that_is_pending_when_the_resize_completes_leaves_its_references(
    table: ResizeTable,
) -> None:
    table.put("klmnopq", 1)
    requested = table.plan()
    put_beside(table, "kxyz", 2, lambda: table.resizes().execute(requested))
    assert not any(stat.is_reference for stat in last_commit(table).stats)
    assert table.values()["k"] == "k2"
    assert len(table.rows()) == 10


def test_a_write_that_is_pending_when_the_resize_is_cancelled_is_made_again(
    table: ResizeTable,
) -> None:
    table.put("klmnopq", 1)
    requested = table.plan()
    put_beside(table, "kxyz", 2, lambda: table.resizes().cancel(requested))
    stats = last_commit(table).stats
    assert not any(is_virtual_child(stat.file_id or "") for stat in stats)
    assert len(table.rows()) == 10
    assert table.values()["x"] == "x2"


def test_a_resize_with_committed_rows_in_its_children_is_not_cancelled(table: ResizeTable) -> None:
    table.put("klmnopq", 1)
    requested = table.plan()
    table.put("kxyz", 2)
    before = table.rows()
    with pytest.raises(ConflictError, match="cannot be cancelled"):
        table.resizes().cancel(requested)
    assert requested in table.session("s").log.refresh().pending
    table.resizes().execute(requested)
    assert table.rows() == before


def test_a_write_that_began_before_the_plan_is_copied_or_moves(table: ResizeTable) -> None:
    table.put("klmnopq", 1)
    planned: list[str] = []
    storage = Beside(table, {".log.1_": lambda: planned.append(table.plan())})
    table.table("early", storage=storage).upsert(table.made("kx", 2))
    assert not any(is_virtual_child(s.file_id or "") for s in last_commit(table).stats)
    table.put("ly", 3)
    before = table.rows()
    result = table.resizes().execute(planned[0])
    assert result is not None
    assert result.copies
    assert table.rows() == before


def test_an_overwrite_cancels_a_resize_that_no_write_refers_to(table: ResizeTable) -> None:
    table.put("klmnopq", 1)
    requested = table.plan()
    table.table("o").overwrite(table.made("ab", 2))
    assert requested not in table.session("s").log.refresh().pending
    assert table.values() == {"a": "a2", "b": "b2"}


def test_a_lost_log_is_an_error_that_names_both_files(table: ResizeTable) -> None:
    table.put("klmnopq", 1)
    table.plan()
    table.put("kxyz", 2)
    [lost, *_] = [stat for stat in last_commit(table).stats if not stat.is_reference]
    [reference] = [stat for stat in last_commit(table).stats if stat.is_reference]
    table.storage.delete(lost.data_path)
    with pytest.raises(CorruptTableError) as caught:
        table.rows()
    assert (lost.path or "").rpartition("/")[2] in str(caught.value)
    assert caught.value.path == reference.path


def test_a_changed_log_is_an_error_that_names_both_files(table: ResizeTable) -> None:
    table.put("klmnopq", 1)
    table.plan()
    table.put("kxyz", 2)
    [changed, *_] = [stat for stat in last_commit(table).stats if not stat.is_reference]
    data = bytearray(table.storage.read(changed.data_path))
    data[len(data) // 2] ^= 1
    table.storage.write(changed.data_path, bytes(data))
    with pytest.raises(CorruptTableError, match="checksum"):
        table.rows()


def test_an_overwrite_finishes_a_resize_that_writes_refer_to(table: ResizeTable) -> None:
    table.put("klmnopq", 1)
    requested = table.plan()
    table.put("kxyz", 2)
    table.table("o").overwrite(table.made("ab", 2))
    assert requested in table.session("s").log.refresh().completed
    assert table.values() == {"a": "a2", "b": "b2"}


def test_a_resize_that_cannot_be_finished_leaves_writes_alone_and_is_named_to_an_overwrite(
    table: ResizeTable,
) -> None:
    table.put("klmnopq", 1)
    [damaged] = [s.path for s in table.storage.list("d") if ".log." in s.path]
    requested = table.plan()
    table.put("kxyz", 2)
    whole = table.storage.read(damaged)
    table.storage.write(damaged, whole[:-30])
    with pytest.raises(CorruptTableError, match="log"):
        table.resizes().execute(requested)
    assert requested in table.session("s").log.refresh().pending
    table.put("kw", 3)
    with pytest.raises(CorruptTableError, match="log"):
        table.table("o").overwrite(table.made("ab", 4))
    table.storage.write(damaged, whole)
    assert table.values()["w"] == "w3"
    assert table.resizes().execute(requested) is not None
    assert len(table.rows()) == 11


def test_a_lock_that_hudi_takes_comes_with_the_end_of_a_resize() -> None:
    table = ResizeTable(is_virtual=True, ordering="ts")
    table.put("klmnopq", 1)
    requested = table.plan()
    table.put("kxyz", 2)
    before = table.rows()
    table.table("own").alter.use_lock("storage")
    assert requested in table.session("s").log.refresh().completed
    assert table.rows() == before
    table.put("kw", 3)
    assert table.values()["w"] == "w3"


def test_a_resize_whose_plan_is_damaged_is_not_cancelled_with_committed_rows() -> None:
    table = ResizeTable(is_virtual=True, ordering="ts")
    table.put("klmnopq", 1)
    requested = table.plan()
    table.put("kxyz", 2)
    before = table.rows()
    path = f".hoodie/timeline/{requested}.clustering.requested"
    data = table.storage.read(path)
    table.storage.write(path, data[: len(data) // 2])
    with pytest.raises(ConflictError, match="cannot be cancelled"):
        table.resizes().cancel(requested)
    assert table.rows() == before
    table.storage.write(path, data)
    assert table.resizes().execute(requested) is not None
    assert table.rows() == before


def test_a_table_with_a_lock_of_hudis_has_no_virtual_resizes() -> None:
    table = ResizeTable(ordering="ts")
    table.put([f"k{n}" for n in range(500)], 1)
    table.table("own").alter.use_lock("storage")
    with pytest.warns(UserWarning, match="smaller than 1 MiB"):
        policy = ResizePolicy(target_bytes=4096, rest_seconds=0, writes="virtual")
    with pytest.raises(UnsupportedTableError, match="no virtual resize"):
        table.table("r").services.resize(policy)
    assert not table.pending()
